"""Which argument of a kernel call each argument of the compiled function is.

A path is the index of a parameter and, for parts of tuples, the indices inside: `(2,)`, `(0, 1)`. Constexprs
are not arguments of the function, a tuple is one argument for each part, and a tensor descriptor is several:
what addresses the tensor, its shape and its strides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Path = tuple[int, ...]


def argument_paths(signature: Mapping[str, Any], names: Sequence[str | None]) -> list[Path] | None:
    """The path of each argument of the function; None when they cannot be told apart.

    `signature` maps parameters to types, `names` are those of the function's arguments, where its IR has
    them. How many arguments a descriptor is depends on the target, and on whether the IR was lowered.
    """
    if names and None not in names:
        return _by_name(signature, names)
    found: list[Path] = []
    for index, kind in enumerate(signature.values()):
        for path, leaf in _leaves((index,), kind):
            found += [path] * _frontend_width(leaf)
    return found if len(found) == len(names) else None


def _by_name(signature: Mapping[str, Any], names: Sequence[str | None]) -> list[Path] | None:
    found: list[Path] = []
    # Newer Tritons call the parts `d.shape.0` and `pair.1`.
    remaining = [str(name).partition(".")[0] for name in names]
    for index, (name, kind) in enumerate(signature.items()):
        count = next((at for at, other in enumerate(remaining) if other != name), len(remaining))
        del remaining[:count]
        leaves = list(_leaves((index,), kind))
        plain = sum(not is_descriptor(leaf) for _, leaf in leaves)
        descriptors = len(leaves) - plain
        width = (count - plain) // descriptors if descriptors else 1
        if plain + descriptors * width != count:
            return None
        for path, leaf in leaves:
            found += [path] * (width if is_descriptor(leaf) else 1)
    return None if remaining else found


def _leaves(path: Path, kind: Any) -> Iterator[tuple[Path, str]]:
    """The parts of a parameter that are passed to the function."""
    if isinstance(kind, (tuple, list)):
        for place, inner in enumerate(kind):
            yield from _leaves((*path, place), inner)
    elif kind != "constexpr":
        yield path, str(kind)


def is_descriptor(kind: str) -> bool:
    """Whether a type of a signature is that of a tensor descriptor."""
    return kind.startswith("tensordesc")


def is_pointer(kind: str) -> bool:
    """Whether memory can be reached through an argument of this type."""
    return kind.startswith("*") or is_descriptor(kind) or kind == "nvTmaDesc"


def _frontend_width(kind: str) -> int:
    """How many arguments the frontend makes of one: a descriptor comes with its shape and strides."""
    shape = re.match(r"tensordesc[^\[]*\[([^\]]*)\]", kind)
    return 1 + 2 * (shape[1].count(",") + 1) if shape else 1


def argument_count(signature: Mapping[str, Any]) -> int:
    """How many arguments the frontend gives the function."""
    return sum(
        _frontend_width(leaf) for index, kind in enumerate(signature.values()) for _, leaf in _leaves((index,), kind)
    )


def pointer_paths(signature: Mapping[str, Any]) -> list[Path]:
    """The paths of the arguments through which memory can be reached."""
    leaves = (leaf for index, kind in enumerate(signature.values()) for leaf in _leaves((index,), kind))
    return [path for path, kind in leaves if is_pointer(kind)]
