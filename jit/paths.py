"""Constants and attributes by their place among a kernel's arguments.

A path is the index of a parameter and, for parts of tuples, the indices inside: ``(2,)``, ``(0, 1)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Path = tuple[int, ...]


def constants_and_attributes(
    specialization: Sequence[Any], values: Sequence[Any], backend: Any
) -> tuple[dict[Path, Any], dict[Path, Any]]:
    """What is constant among the arguments, and what ``backend`` makes of the keys of the others.

    ``specialization`` holds ``(type, key)`` for each of ``values``.
    """
    constants = {}
    attributes = {}
    for num, (kind, key) in enumerate(specialization):
        for path, leaf in _leaves(kind, (num,)):
            assumed = _part(key, path[1:])
            if leaf == "constexpr":
                constants[path] = _part(values[num], path[1:])
                if num == path[-1] and len(path) == 1:
                    assumed = ""
            if isinstance(assumed, str):
                attributes[path] = backend.parse_attr(assumed)
    return constants, attributes


def _leaves(kind: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(kind, tuple):
        for index, inner in enumerate(kind):
            yield from _leaves(inner, (*path, index))
    else:
        yield path, kind


def _part(value: Any, path: Path) -> Any:
    for index in path:
        value = value[index]
    return value
