"""Where an operation or value stands in the user's source.

A `Location` keeps the whole MLIR location (`text`, without aliases) and what people ask of it: `file`, `line`
and `column` of the innermost frame that is not in Triton's own library, the variable `name` it carries, and
all `frames` from the innermost callee to the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from .attributes import quoted


class Frame(NamedTuple):
    """A place in a source file; lines count from 1, columns from 0 as Triton writes them."""

    file: str
    line: int
    column: int

    @property
    def in_triton(self) -> bool:
        """Whether the file belongs to Triton's own device library (`triton/language`)."""
        return _is_library(self.file)


@lru_cache(maxsize=1024)
def _is_library(file: str) -> bool:
    return "/triton/language/" in file.replace("\\", "/")


@dataclass(frozen=True, slots=True)
class Location:
    """A location, compared by its MLIR text."""

    text: str
    file: str | None = field(default=None, compare=False)
    line: int | None = field(default=None, compare=False)
    column: int | None = field(default=None, compare=False)
    name: str | None = field(default=None, compare=False)
    frames: tuple[Frame, ...] = field(default=(), compare=False)
    names: tuple[str, ...] = field(default=(), compare=False)
    """Names of the variables the value was assigned to, the last assignment first."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.file is not None else "unknown location"


def make_location(text: str, frames: tuple[Frame, ...], names: tuple[str, ...]) -> Location:
    """A location from its parts; picks the frame that the user knows."""
    chosen = next((frame for frame in frames if not frame.in_triton), frames[0] if frames else None)
    name = names[0] if names else None
    if chosen is None:
        return Location(text, name=name, frames=frames, names=names)
    return Location(text, chosen.file, chosen.line, chosen.column, name, frames, names)


UNKNOWN = make_location("unknown", (), ())


def source_location(file: str, line: int, column: int = 0) -> Location:
    """The location of a place in a source file."""
    return make_location(f"{quoted(file)}:{line}:{column}", (Frame(file, line, column),), ())


def named(location: Location, name: str) -> Location:
    """`location` with the variable name `name`."""
    text = quoted(name) if location.text == "unknown" else f"{quoted(name)}({location.text})"
    return make_location(text, location.frames, (name, *location.names))


def call_site(callee: Location, caller: Location) -> Location:
    """Where an operation of an inlined function stands: in `callee`, called at `caller`."""
    text = f"callsite({callee.text} at {caller.text})"
    return make_location(text, callee.frames + caller.frames, callee.names)
