"""The grid of a launch: how many programs run along each of three axes.

``resolve(name, grid, arguments)`` turns what a user wrote between the brackets into three ints.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

_LARGEST = 2**31 - 1


def resolve(name: str, grid: Any, arguments: dict[str, Any]) -> tuple[int, int, int]:
    """The three sizes of ``grid``, a sequence of one to three ints or a function from the bound arguments to
    one.

    Raises TypeError when it is neither, and ValueError when it has no or more than three axes, or a size that
    is negative or beyond int32. A size of zero is allowed: nothing is launched then.
    """
    if callable(grid):
        grid = grid(arguments)
    return resolve_sizes(name, grid)


def resolve_sizes(name: str, grid: Any) -> tuple[int, int, int]:
    """The same for a grid that is no function, or for what such a function returned."""
    if grid.__class__ is tuple and len(grid) == 3 and all(size.__class__ is int for size in grid):
        sizes: tuple[int, ...] = grid
    else:
        sizes = _sizes(name, grid)
    for axis, size in enumerate(sizes):
        if not 0 <= size <= _LARGEST:
            raise ValueError(
                f"{name}: the grid {sizes} has {size} programs along axis {axis}; expected 0 to {_LARGEST}"
            )
    return sizes[0], sizes[1], sizes[2]


def _sizes(name: str, grid: Any) -> tuple[int, ...]:
    if not isinstance(grid, Sequence) or isinstance(grid, (str, bytes)):
        hint = f"; write {name}[({grid},)]" if isinstance(grid, int) else ""
        raise TypeError(
            f"{name}: a grid is a tuple of one to three ints, or a function from the arguments to one; got"
            f" {grid!r} of type {type(grid).__name__}{hint}"
        )
    if not 1 <= len(grid) <= 3:
        raise ValueError(f"{name}: a grid has one to three axes, got {len(grid)}: {tuple(grid)}")
    sizes = []
    for axis, size in enumerate(grid):
        try:
            sizes.append(operator.index(size))
        except TypeError:
            raise TypeError(
                f"{name}: axis {axis} of the grid is {size!r} of type {type(size).__name__}; expected an int,"
                " for instance from triton.cdiv(n, BLOCK)"
            ) from None
    return tuple(sizes) + (1,) * (3 - len(sizes))
