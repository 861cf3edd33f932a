"""Plain Python functions that run at compile time, on constants: `constexpr_function`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton import knobs
from triton.runtime.jit import BoundConstexprFunction as TritonBoundConstexprFunction
from triton.runtime.jit import ConstexprFunction as TritonConstexprFunction

from .callable import JITCallable


class BoundConstexprFunction(TritonBoundConstexprFunction):  # type: ignore[misc]
    """A constexpr function as a method of an object."""

    def __init__(self, instance: Any, fn: ConstexprFunction) -> None:
        self.__self__ = instance
        self.__func__ = fn

    @property
    def cache_key(self) -> str:
        return self.__func__.cache_key

    def __hash__(self) -> int:
        return hash(self.cache_key)

    __eq__ = object.__eq__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)


class ConstexprFunction(JITCallable, TritonConstexprFunction):  # type: ignore[misc]
    """A Python function that a kernel calls at compile time.

    Constants among its arguments are unwrapped. Called by the code generator it returns a constant, called
    from Python what the function returns.
    """

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else BoundConstexprFunction(instance, self)

    def __call__(self, *args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        from triton.language import constexpr

        def unwrap(value: Any) -> Any:
            return value.value if isinstance(value, constexpr) else value

        result = self.fn(*map(unwrap, args), **{name: unwrap(value) for name, value in kwargs.items()})
        if _semantic is None or knobs.runtime.interpret:
            return result
        return constexpr(result)

    def __repr__(self) -> str:
        return f"ConstexprFunction({self._shown_name()})"


def constexpr_function(fn: Callable[..., Any]) -> ConstexprFunction:
    """Make ``fn`` callable from kernels, at compile time, on constant arguments; its result is a constant."""
    return ConstexprFunction(fn)
