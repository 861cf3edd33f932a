"""``triton.language.extra.libdevice`` on the CPU: every function of `libdevice_table.TABLE`, for use in kernels."""

from __future__ import annotations

from typing import Any

from triton.language import core

from .libdevice_table import TABLE, Overload


def _function(name: str, overloads: list[Overload]) -> Any:
    symbols = {
        tuple(core.dtype(argument) for argument in overload.arguments): (overload.symbol, core.dtype(overload.result))
        for overload in overloads
    }
    arity = len(overloads[0].arguments)

    def call(arguments: list[Any], semantic: Any) -> Any:
        return core.extern_elementwise("", "", arguments, symbols, is_pure=True, _semantic=semantic)

    # Triton's frontend passes arguments by position and looks at the parameters' names.
    if arity == 1:

        def function(arg0: Any, _semantic: Any = None) -> Any:
            return call([arg0], _semantic)

    elif arity == 2:

        def function(arg0: Any, arg1: Any, _semantic: Any = None) -> Any:  # type: ignore[misc]
            return call([arg0, arg1], _semantic)

    else:

        def function(arg0: Any, arg1: Any, arg2: Any, _semantic: Any = None) -> Any:  # type: ignore[misc]
            return call([arg0, arg1, arg2], _semantic)

    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    return core.extern(function)


globals().update({name: _function(name, overloads) for name, overloads in TABLE.items()})


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(f"libdevice.{name} is not supported on the CPU")
