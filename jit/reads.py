"""Values that a kernel reads from outside its arguments, watched for changes.

A `ReadValue` is a variable with the value it had when it was first seen; ``raise_if_changed(reads, kernel)`` refuses a
launch after one of them changed.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from triton.runtime.jit import JITCallable as TritonJITCallable

from . import content

_IMMUTABLE = (int, float, complex, str, bytes, bool, type(None), type, enum.Enum)

ABSENT = object()
"""Stands for the value of a variable that does not exist."""


class CellScope:
    """A closure variable, read as a dictionary of one name is, so that it can be watched as a global is."""

    def __init__(self, name: str, cell: types.CellType) -> None:
        self.name = name
        self.cell = cell

    def get(self, name: str, default: Any = None) -> Any:
        """The variable's value now, or ``default`` when it has none."""
        if name != self.name:
            return default
        try:
            return self.cell.cell_contents
        except ValueError:
            return default


class ClassScope:
    """The attributes of a class, its own and inherited ones, read as a dictionary is."""

    def __init__(self, owner: type) -> None:
        self.owner = owner

    def get(self, name: str, default: Any = None) -> Any:
        """The attribute's value now, or ``default``."""
        return getattr(self.owner, name, default)


@dataclass
class ReadValue:
    """A value as it was when a function first read it."""

    name: str
    scope: Any
    value: Any
    """A copy, so that a change in place is seen."""
    seen: Any
    """The object itself where it cannot change in place, else ``ABSENT``."""

    def changed(self) -> bool:
        """Whether the variable has another value now."""
        now = self.scope.get(self.name, ABSENT)
        return now is not self.seen and not same(self.value, now)

    @property
    def is_function(self) -> bool:
        """Whether it is a function that kernels call: a new one under its name is followed, not refused."""
        return isinstance(self.seen, TritonJITCallable)


def same(old: Any, new: Any) -> bool:
    """Whether two values are equal and compile to the same code."""
    if new is ABSENT:
        return False
    return content.text(old) == content.text(new)


def immutable(value: Any) -> bool:
    """Whether a value cannot change in place, so that the same object means the same value."""
    if value.__class__.__name__ == "constexpr":
        return immutable(getattr(value, "value", ABSENT))
    if isinstance(value, tuple):
        return all(map(immutable, value))
    return isinstance(value, _IMMUTABLE) or value.__class__.__name__ == "dtype"


def raise_if_changed(reads: Iterable[ReadValue], what: str) -> None:
    """Raise RuntimeError when one of ``reads`` has another value now; ``what`` names the kernel."""
    for read in reads:
        if read.changed() and not read.is_function:
            now = read.scope.get(read.name, ABSENT)
            shown = "no value (it was deleted)" if now is ABSENT else now
            raise RuntimeError(
                f"Global variable {read.name} has changed since we compiled this kernel, from {read.value} to"
                f" {shown} ({what}); a kernel keeps the values it was compiled with, so pass {read.name} as"
                " an argument, or make a new kernel after changing it"
            )
