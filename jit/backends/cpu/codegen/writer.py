"""Lines of generated code with indentation and source comments."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ....ir import Location
from .errors import source_text


class Lines:
    """Text under construction; `add` writes a line, `block` an indented one in braces."""

    def __init__(self, depth: int = 0) -> None:
        self.lines: list[str] = []
        self.depth = depth
        self._last: tuple[str, int] | None = None
        self._comments: list[str] = []

    def add(self, text: str) -> None:
        self._flush()
        self.lines.append("  " * self.depth + text if text else "")

    def extend(self, other: Lines) -> None:
        """Take over another's lines, indented to this depth."""
        self._flush()
        self.lines += ["  " * self.depth + line if line else "" for line in other.lines]

    def source(self, location: Location) -> None:
        """A comment with the kernel's source line, unless it was the last one named."""
        if location.file is None or location.line is None or (location.file, location.line) == self._last:
            return
        self._last = (location.file, location.line)
        text = source_text(location.file, location.line)
        # Written when code follows: a line whose operations are all lazy is named at the loop that computes them.
        self._comments.append(
            f"// {os.path.basename(location.file)}:{location.line}{': ' + text if text else ''}".rstrip("\\")
        )

    def _flush(self) -> None:
        comments, self._comments = dict.fromkeys(self._comments), []
        self.lines.extend("  " * self.depth + comment for comment in comments)

    def forget_source(self) -> None:
        self._last = None

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        self.add(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.add(tail)

    def __str__(self) -> str:
        return "\n".join(self.lines)
