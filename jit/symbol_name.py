"""Names of local functions in compiled code, which tell them apart.

The compiler formats the qualified names of functions into symbols, and takes equal symbols for the same function; two
functions that are defined in functions can have one qualified name, and Triton calls the first for both.
"""

from __future__ import annotations

import contextlib
from typing import Any

from triton.runtime.jit import JITCallable


class SymbolName(str):
    """A qualified name that, formatted, ends with what the function holds."""

    __slots__ = ("owner",)

    owner: Any

    def __new__(cls, owner: Any) -> SymbolName:
        made = super().__new__(cls, owner.fn.__qualname__)
        made.owner = owner
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)

    def __format__(self, spec: str) -> str:
        from .callable import JITCallable as OurCallable
        from .dependencies import cache_key

        owner = self.owner
        try:
            key = owner.cache_key if isinstance(owner, OurCallable) else cache_key(owner)
            return format(f"{self!s}_{key[:12]}", spec)
        except RuntimeError:
            # It calls what it may not call; whoever compiles it will hear so.
            return format(str(self), spec)


def tell_apart(function: Any) -> None:
    """Give a function that kernels can call, ours or Triton's, a name of its own if it was defined in a function."""
    if (
        isinstance(function, JITCallable)
        and "<locals>" in function.fn.__qualname__
        and not isinstance(function.__qualname__, SymbolName)
    ):
        function.__qualname__ = SymbolName(function)


def tell_constants_apart(src: Any) -> None:
    """The same for the functions among the constants of a source to be compiled, and those that they reach."""
    from .dependencies import cache_key

    for value in getattr(src, "constants", {}).values():
        if isinstance(value, JITCallable):
            with contextlib.suppress(RuntimeError):  # as above
                cache_key(value)
