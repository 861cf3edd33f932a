"""Launches whose tensors have no memory to run on: offered to others before anything reads an address.

Under tracing, functionalization and ``torch.func`` transforms, arguments are tensors that stand for others.
``register(interceptor)`` adds a function that may take such a launch; ``tracer`` may be set to an object that
takes launches while Python code is traced (Dynamo), before any other code of ours runs.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from . import compat

Interceptor = Callable[[Any, Any, "dict[str, Any]", "dict[str, Any]", bool], Any]


class Tracer(Protocol):
    """Takes launches that are traced rather than run."""

    def is_tracing(self) -> bool:
        """Whether the call is being traced; a tracer must be able to evaluate it."""
        ...

    def launch(self, kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The launch, in code that the tracer can follow."""
        ...


tracer: Tracer | None = None
providers: list[str] = []
"""``"module:function"``, called before the first launch that is to be offered: it registers interceptors."""
observers = 0
"""How many `all_launches` contexts are entered, in any thread: a fast path steps aside while it is not zero.
"""
_observing = threading.local()
_observers_lock = threading.Lock()
_interceptors: list[Interceptor] = []
# Classes of arguments that are ordinary: filled as they are met.
_ordinary: set[type] = {int, float, bool, str, type(None)}


def register(interceptor: Interceptor) -> Callable[[], None]:
    """Add ``interceptor(kernel, grid, arguments, options, warmup)``; returns a function that removes it.

    ``arguments`` maps parameter names to what was passed or defaulted, ``options`` holds the other keywords.
    It returns the result of the launch, or NotImplemented to leave it to the next one and then to the
    ordinary launch.
    """
    _interceptors.append(interceptor)

    def remove() -> None:
        _interceptors.remove(interceptor)

    return remove


@contextmanager
def all_launches() -> Iterator[None]:
    """While this is entered, every launch of this thread is offered, ordinary ones too."""
    global observers
    with _observers_lock:
        observers += 1
    _observing.depth = getattr(_observing, "depth", 0) + 1
    try:
        yield
    finally:
        _observing.depth -= 1
        with _observers_lock:
            observers -= 1


def wanted(args: Iterable[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call is to be offered to interceptors.

    So it is for a call that is not `plain`, and for every one inside `all_launches`.
    """
    if observers and getattr(_observing, "depth", 0):
        return True
    return not plain(args, kwargs)


def plain(args: Iterable[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a launch would run a kernel here and now, seen by nobody.

    Not so when an argument is a tensor of a subclass (FakeTensor, FunctionalTensor, ...), a functorch wrapper, a meta
    tensor or a symbolic number, or when a torch dispatch mode is active.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return True
    if compat.dispatch_mode_active(torch):
        return False
    return not any(_special(torch, value) for value in (*args, *kwargs.values()))


def offer(kernel: Any, grid: Any, arguments: dict[str, Any], options: dict[str, Any], warmup: bool) -> Any:
    """Ask the interceptors, the latest first; NotImplemented when none takes the launch."""
    while providers:
        home, _, function = providers.pop().partition(":")
        getattr(importlib.import_module(home), function)()
    for interceptor in reversed(_interceptors):
        result = interceptor(kernel, grid, arguments, options, warmup)
        if result is not NotImplemented:
            return result
    return NotImplemented


def _special(torch: Any, value: Any) -> bool:
    kind = type(value)
    if kind in _ordinary:
        return False
    if isinstance(value, torch.Tensor):
        if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            return True
        # A subclass that does not dispatch (``tensor.as_subclass(...)``) has memory like any tensor.
        return value.is_meta or compat.is_wrapped_tensor(torch, value)
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return True
    if isinstance(value, tuple):
        return any(_special(torch, item) for item in value)
    base = getattr(value, "base", None)
    if base is not None and hasattr(value, "block_shape"):
        return _special(torch, base)
    _ordinary.add(kind)
    return False
