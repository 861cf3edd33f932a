"""A position in MLIR text and the small steps that move it; what is not as expected raises IRError with its line."""

from __future__ import annotations

import re
from typing import NoReturn

from .errors import IRError

WORD = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)
_SPACE = re.compile(r"[ \t]*")
_BLANKS = frozenset(" \t")
_INTEGER = re.compile(r"-?\d+")
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)")
_BALANCED_STEP = re.compile(r'[^"<>(){}\[\]\n-]+|"(?:[^"\\\n]|\\.)*"|->|-|[<>(){}\[\]]')
_PAIRS = {"<": ">", "(": ")", "[": "]", "{": "}"}
_SHORT_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


def unescape(body: str) -> str:
    """The text of a string literal's body; escaped bytes are UTF-8."""
    if "\\" not in body:
        return body

    parts = _ESCAPE.split(body)
    out = bytearray()
    for index, part in enumerate(parts):
        if index % 2 == 0:
            out += part.encode("utf-8", "surrogateescape")
        elif len(part) == 2:
            out.append(int(part, 16))
        else:
            out += _SHORT_ESCAPES.get(part, part).encode("utf-8")
    return out.decode("utf-8", "surrogateescape")


class Cursor:
    """A position in a text. Blanks are passed where tokens may be apart; a line end never is."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0

    def fail(self, expected: str, pos: int | None = None) -> NoReturn:
        """Raise IRError: `expected`, and what stands there."""
        at = self.pos if pos is None else pos
        line = self.line(at)
        rest = self.text[at:].split("\n", 1)[0]
        found = "the end of the text" if at >= len(self.text) else repr(rest[:60] or "end of line")
        raise IRError(f"expected {expected}, found {found}", line)

    def line(self, pos: int | None = None) -> int:
        """The line of a position, from 1."""
        return self.text.count("\n", 0, self.pos if pos is None else pos) + 1

    def skip(self) -> None:
        if self.text[self.pos : self.pos + 1] in _BLANKS:
            match = _SPACE.match(self.text, self.pos)
            assert match is not None
            self.pos = match.end()

    def accept(self, token: str) -> bool:
        if not self.text.startswith(token, self.pos):
            self.skip()
            if not self.text.startswith(token, self.pos):
                return False
        self.pos += len(token)
        return True

    def expect(self, token: str, context: str) -> None:
        if not self.accept(token):
            self.fail(f"{token!r} {context}")

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.pos)
        if match is None and self.text[self.pos : self.pos + 1] in _BLANKS:
            self.skip()
            match = pattern.match(self.text, self.pos)
        if match is not None:
            self.pos = match.end()
        return match

    def peek(self) -> str:
        self.skip()
        return self.text[self.pos : self.pos + 1]

    def read_integer(self, what: str) -> int:
        match = self.take(_INTEGER)
        if match is None:
            self.fail(what)
        return int(match[0])

    def read_string(self, what: str = "a string") -> str:
        match = self.take(_STRING)
        if match is None:
            self.fail(what)
        return unescape(match[1])

    def balanced(self) -> None:
        """Pass from an opening bracket through its closing one."""
        stack: list[str] = []
        while True:
            match = _BALANCED_STEP.match(self.text, self.pos)
            if match is None:
                self.fail(f"{stack[-1]!r} to close the bracket" if stack else "a bracket")
            token = match[0]
            if token in _PAIRS:
                stack.append(_PAIRS[token])
            elif token in (">", ")", "]", "}"):
                if not stack or stack[-1] != token:
                    self.fail(repr(stack[-1]) if stack else "an opening bracket")
                stack.pop()
            self.pos = match.end()
            if not stack:
                return
