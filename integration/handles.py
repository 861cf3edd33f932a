"""Launch handles for generated wrappers: resolved before the first call, called without a dispatcher.

A wrapper's header calls :func:`resolve` with literals; the result is called as
``handle(stream, *values, grid0, grid1, grid2)``. While a graph is compiled :func:`prepare` starts
the compilation of the same kernels in the background, so that resolving waits at most for the rest.
Where something is assumed, the general variant is compiled too and the handle falls to it: a
launch never compiles.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from . import references
from .literals import decode
from .specialization import Specialization

__all__ = ["Request", "prepare", "resolve"]

_WORKERS = 4  # code generation holds the GIL, the host compiler and ptxas do not


class Request(NamedTuple):
    """What a launch site needs: kernel reference, kinds, one token a value, literals, device."""

    kernel: str
    kinds: str
    tokens: tuple[str, ...]
    constexprs: str
    device: str

    def literals(self) -> str:
        """The arguments of :func:`resolve` as Python source."""
        return ", ".join(map(repr, self))

    def specialization(self, kernel: Any) -> Specialization:
        """The variant that is asked for."""
        names = [p.name for p in kernel.params]
        return Specialization.of(names, self.kinds, self.tokens, decode(self.constexprs))


_lock = threading.Lock()
_executor: ThreadPoolExecutor | None = None
_compiled: dict[tuple[Request, bool], Future[list[Any]]] = {}


def prepare(request: Request) -> Future[list[Any]]:
    """Start compiling what ``request`` needs, once; the future holds the exact and the general kernel.

    ``TRITON_DEBUG`` counts as it is now: with it, assertions are compiled in.
    """
    from triton import knobs

    global _executor
    key = (request, bool(knobs.runtime.debug))
    with _lock:
        future = _compiled.get(key)
        if future is None or (future.done() and future.exception() is not None):
            if _executor is None:
                _executor = ThreadPoolExecutor(_WORKERS, thread_name_prefix="opgraft-compile")
            future = _compiled[key] = _executor.submit(_compile, request)
    return future


def resolve(kernel: str, kinds: str, tokens: tuple[str, ...], constexprs: str, device: str) -> Callable[..., None]:
    """The handle for a launch site.

    Raises LookupError when this process does not hold the kernel, and what compiling it raised.
    """
    request = Request(kernel, kinds, tuple(tokens), constexprs, device)
    exact, *general = prepare(request).result()
    fallback = general[0].handle(constants=False) if general else None
    handle: Callable[..., None] = exact.handle(fallback, constants=False)
    return handle


def _compile(request: Request) -> list[Any]:
    kernel = references.kernel(request.kernel)
    exact = request.specialization(kernel)
    variants = [exact, exact.general()] if exact.assumes else [exact]
    return [variant.compile(kernel, request.device) for variant in variants]


def _forget_executor() -> None:
    """A forked child has no threads of its parent's pool."""
    global _executor
    _executor = None
    for key in [k for k, f in _compiled.items() if not f.done()]:
        del _compiled[key]


os.register_at_fork(after_in_child=_forget_executor)
