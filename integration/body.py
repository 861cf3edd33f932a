"""Running the body of an op, and checking what its launches write.

An op promises in ``mutates_args`` which arguments it writes. While a body runs under
:func:`checked`, each launch reports its tensors here (:func:`check_launch`); one that writes the
storage of an argument not promised raises before anything is launched, and one promise that no
launch keeps is not an error (a branch not taken may keep it). What torch's operations write is
reported by :mod:`.torch_writes`.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from triton.runtime.autotuner import Autotuner as TritonAutotuner
from triton.runtime.jit import JITFunction as TritonJITFunction

from ..jit import interception
from . import compat
from .torch_writes import tensors_of, watched

__all__ = ["UndeclaredWrite", "check_launch", "check_result", "checked", "explain_stock_kernel", "refuse_timing"]


class UndeclaredWrite(RuntimeError):
    """An operation of torch in an op's body writes an argument that the op does not declare."""


class _Running(NamedTuple):
    op: str
    declared: frozenset[str]
    storages: dict[int, list[str]]
    """Storage identity of each tensor among the op's arguments, with the names of those that have it."""

    def undeclared(self, tensor: torch.Tensor) -> str | None:
        """The name of the argument in whose memory ``tensor`` lies, when none that lies there may be written."""
        names = self.storages.get(_storage(tensor), [])
        return names[0] if names and self.declared.isdisjoint(names) else None

    def promise(self, broken: Iterable[str]) -> str:
        """The declaration that would allow ``broken``, too."""
        wanted = sorted(self.declared | set(broken))
        names = ", ".join(f'"{name}"' for name in wanted) + ("," if len(wanted) == 1 else "")
        return f"Declare it with mutates_args=({names})"

    def refuse(self, tensor: torch.Tensor, operation: str) -> None:
        """Raise when ``operation`` of torch must not write ``tensor``."""
        name = self.undeclared(tensor)
        if name is not None:
            raise UndeclaredWrite(
                f"{self.op}: {operation} in the body writes the argument {name!r}, which the op does not declare. "
                f"{self.promise([name])}, or write to a tensor that the body allocates."
            )


class _State(threading.local):
    running: _Running | None = None


_state = _State()


@contextmanager
def checked(
    op: str, declared: frozenset[str], arguments: Mapping[str, Any], trace: Callable[[], None]
) -> Iterator[None]:
    """While this is entered, launches and torch's operations are checked against the arguments of ``op``.

    ``trace()`` runs the body on fake tensors, to find the operation where a write is suspected.
    """
    running = _Running(op, declared, _storages(arguments))
    tensors = [tensor for value in arguments.values() for tensor in tensors_of(value)]
    outer, _state.running = _state.running, running
    try:
        with interception.all_launches(), watched(tensors, running.undeclared, running.refuse, trace):
            yield
    finally:
        _state.running = outer


def check_launch(kernel: str, labels: Sequence[str], values: Sequence[Any], written: Sequence[bool]) -> None:
    """Raise when a launch of ``kernel`` writes an argument of the running op that it did not promise."""
    running = _state.running
    if running is None:
        return
    broken = {}
    for label, value, writes in zip(labels, values, written, strict=True):
        if writes and isinstance(value, torch.Tensor):
            name = running.undeclared(value)
            if name is not None:
                broken[name] = label
    if broken:
        what = ", ".join(f"its argument {name!r} (as {label!r} of the kernel)" for name, label in broken.items())
        raise RuntimeError(
            f"{running.op}: the launch of {kernel} writes {what}, which the op does not declare. "
            f"{running.promise(broken)}, or write to a tensor that the body allocates."
        )


def explain_stock_kernel(op: str, error: BaseException) -> None:
    """Raise a TypeError that says what to do when ``error`` comes from Triton's own runtime."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        holder = frame.f_locals.get("self")
        if frame.f_code is TritonAutotuner.run.__code__ and "unhashable" in str(error):  # a symbolic size as key
            assert isinstance(holder, TritonAutotuner)
            raise _tuned_by_triton(op, holder.base_fn.__name__) from error
        if frame.f_code is TritonJITFunction.run.__code__ and isinstance(holder, TritonJITFunction):
            name = holder.__name__
            raise TypeError(
                f"{op}: the body launches {name}, a kernel of triton.jit, with tensors that have no memory (the op is"
                f" being traced). Triton's runtime cannot trace it: define {name} with opgraft.jit.jit, or write"
                f" {name} = opgraft.jit.jit({name}) before the op."
            ) from error


def refuse_timing(kernel: str) -> None:
    """Raise a TypeError when Triton's own autotuner is about to time this launch, which launches nothing."""
    timing = compat.autotuner_timing()
    frame = sys._getframe() if timing is not None else None
    while frame is not None:
        if frame.f_code is timing:
            raise _tuned_by_triton(_state.running.op if _state.running else "launch", kernel)
        frame = frame.f_back


def _tuned_by_triton(op: str, kernel: str) -> TypeError:
    return TypeError(
        f"{op}: {kernel} is tuned by triton.autotune, which would time launches on tensors that have no memory (the op"
        f" is being traced): use opgraft.jit.autotune for {kernel}, with the same arguments"
    )


def check_result(op: str, arguments: Mapping[str, Any], result: Any, returns: int) -> None:
    """Raise when the body of ``op`` returned nothing where it should, or an argument or a view of one."""
    if returns and result is None:
        raise TypeError(f"{op}: the body returned None, but its annotation promises a result; is a return missing?")
    storages = _storages(arguments)
    for value in result if isinstance(result, (list, tuple)) else (result,):
        for tensor in tensors_of(value):
            names = storages.get(_storage(tensor))
            if names:
                raise RuntimeError(
                    f"{op}: the body returned its argument {names[0]!r}, or a view of it; an op returns new tensors:"
                    " return a clone()"
                )


def _storages(arguments: Mapping[str, Any]) -> dict[int, list[str]]:
    storages: dict[int, list[str]] = {}
    for name, value in arguments.items():
        for tensor in tensors_of(value):
            storages.setdefault(_storage(tensor), []).append(name)
    return storages


def _storage(tensor: torch.Tensor) -> int:
    """What two tensors have in common exactly when one is a view of the other."""
    inner: Any = tensor.elem if compat.is_functional(tensor) else tensor  # the tensor that it stands for
    if torch._is_functional_tensor(inner):
        torch._sync(inner)
        inner = torch._from_functional_tensor(inner)
    return int(inner.untyped_storage()._cdata)
