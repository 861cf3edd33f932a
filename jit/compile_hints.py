"""What an error of the compiler does not say: which argument of the launch is probably not what was meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["add_hints"]


def add_hints(error: Any, arguments: Mapping[str, Any]) -> None:
    """Add to a ``CompilationError`` what is odd about the arguments, once."""
    for name, value in arguments.items():
        hint = (
            f"{name!r} was passed a tensor of no dimensions, which a kernel receives as a pointer;"
            f" pass {name}.item() if the number is meant"
        )
        if hasattr(value, "data_ptr") and getattr(value, "shape", None) == () and hint not in error.message:
            error.message += "\n" + hint
