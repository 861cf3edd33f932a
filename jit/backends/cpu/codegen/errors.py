"""The refusal of what the generator does not know."""

from __future__ import annotations

import linecache

from ....ir import Location, Operation


class UnsupportedOperation(NotImplementedError):
    """The kernel needs something that the CPU backend cannot translate; raised at compile time.

    The message names the operation, the reason and the kernel's source line.
    """


def unsupported(op: Operation, reason: str = "is not supported") -> UnsupportedOperation:
    """The error for an operation, to be raised."""
    return UnsupportedOperation(f"CPU backend: {op.name} {reason}{where(op.location)}")


def where(location: Location) -> str:
    """ " (file.py:12: the line's text)", or "" when the location is unknown."""
    if location.file is None or location.line is None:
        return ""
    text = source_text(location.file, location.line)
    return f" ({location.file}:{location.line}{': ' + text if text else ''})"


def source_text(file: str, line: int) -> str:
    """The source line without its indentation; "" when it cannot be read."""
    return linecache.getline(file, line).strip()
