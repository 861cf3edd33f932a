"""Python source to a syntax tree: ``parse(source)``."""

from __future__ import annotations

import ast

_TRIES = 20


def parse(source: str) -> ast.Module:
    """The syntax tree of ``source``. Raises SyntaxError.

    CPython counts the depth of trees that it builds in one place for all threads. Where another thread (or a
    finalizer) builds one meanwhile, it finds a mismatch and raises SystemError, though the source is right: try again.
    """
    for _ in range(_TRIES):
        try:
            return ast.parse(source)
        except SystemError:
            continue
    return ast.parse(source)
