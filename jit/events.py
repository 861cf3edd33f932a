"""Every compile and every load from the store, reported to whoever asks.

`on_compile(callback)` registers a callback and returns a function that removes it; `report` is called by the
compiler. A callback receives a `CompileEvent`. An error in a callback is a warning, not a failed launch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import warnings
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

from . import explain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from triton.backends.compiler import GPUTarget

Outcome = Literal["compiled", "stored", "shared"]


@dataclasses.dataclass(frozen=True)
class CompileEvent:
    """One variant of a kernel was needed that this process did not have.

    `kernel` is `module.qualname`. `outcome`: it was "compiled"; it was "stored", by an earlier process or
    launch; or another thread was compiling it already ("shared"). `reason` compares it with the nearest
    variant that this process knew. `key` are the readable parts of its key in the store, `hash` their hash.
    `seconds` of wall clock.
    """

    kernel: str
    key: Mapping[str, Any]
    hash: str
    target: GPUTarget
    outcome: Outcome
    reason: str
    seconds: float

    def reason_from_store(self) -> str:
        """The key compared with the nearest that is in the store: what changed since earlier processes.

        Reads the record of every entry, about 0.1 ms each.
        """
        from .store import entries

        known = [
            entry.record.key
            for entry in reversed(entries())
            if entry.record and entry.name == self.kernel and entry.record.hash != self.hash
            if "analysis" not in entry.record.key
        ]
        return explain.nearest(known, self.key, {}) if known else "no other variant of this kernel is stored"

    def __str__(self) -> str:
        took = f"{self.seconds * 1e3:.0f} ms"
        return f"{self.kernel}: {self.outcome} in {took} for {self.target.backend}; {self.reason}"


_callbacks: tuple[Callable[[CompileEvent], None], ...] = ()
_lock = threading.Lock()

# The arguments of the launch that is being prepared, by name.
_arguments: ContextVar[Mapping[str, Any] | None] = ContextVar("opgraft_launch_arguments", default=None)


def on_compile(callback: Callable[[CompileEvent], None]) -> Callable[[], None]:
    """Call `callback` with every CompileEvent from now on, in the thread that compiles.

    Returns a function that stops it.
    """
    global _callbacks
    with _lock:
        _callbacks = (*_callbacks, callback)

    def stop() -> None:
        global _callbacks
        with _lock:
            _callbacks = tuple(kept for kept in _callbacks if kept is not callback)

    return stop


@contextlib.contextmanager
def launch_arguments(arguments: Mapping[str, Any]) -> Iterator[None]:
    """While the body runs, compiles are for a launch with these arguments: reasons can name their values.

    Only integers are kept, so that a compile in the background holds no tensor.
    """
    token = _arguments.set({name: value for name, value in arguments.items() if type(value) is int})
    try:
        yield
    finally:
        _arguments.reset(token)


def report(kernel: str, key: dict[str, Any], hash: str, target: GPUTarget, outcome: Outcome, seconds: float) -> None:
    """Tell the callbacks, and remember the variant to compare later ones with."""
    values = _arguments.get() or {}
    reason = explain.history.add(kernel, key, hash, values)
    explain.watch(kernel, key)
    if not _callbacks:
        return
    event = CompileEvent(kernel, key, hash, target, outcome, reason, seconds)
    for callback in _callbacks:
        try:
            callback(event)
        except Exception as error:
            warnings.warn(f"on_compile: {callback!r} raised {error!r}", RuntimeWarning, stacklevel=2)
