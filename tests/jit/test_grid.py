"""Grids: one to three sizes, or a function from the bound arguments to them."""

import enum

import numpy as np
import pytest
import torch

from opgraft.jit.grid import resolve


class Size(enum.IntEnum):
    FOUR = 4


@pytest.mark.parametrize(
    "grid, expected",
    [
        ((4,), (4, 1, 1)),
        ((4, 2), (4, 2, 1)),
        ((4, 2, 3), (4, 2, 3)),
        ([4, 2], (4, 2, 1)),
        ((0,), (0, 1, 1)),
        ((np.int64(4),), (4, 1, 1)),
        ((Size.FOUR, True), (4, 1, 1)),
        ((torch.tensor(4),), (4, 1, 1)),
        (torch.Size([4, 2]), (4, 2, 1)),
        (lambda arguments: (arguments["n"], 2), (7, 2, 1)),
    ],
    ids=lambda value: None if " at 0x" in str(value) else str(value),
)
def test_a_grid_is_three_ints(grid, expected):
    found = resolve("kernel", grid, {"n": 7})
    assert found == expected
    assert all(type(size) is int for size in found)


@pytest.mark.parametrize(
    "grid, error, message",
    [
        (4, TypeError, r"kernel: a grid is a tuple of one to three ints.* got 4 of type int; write kernel\[\(4,\)\]"),
        (None, TypeError, "got None of type NoneType"),
        ("4", TypeError, "got '4' of type str"),
        ((), ValueError, "a grid has one to three axes, got 0"),
        ((1, 2, 3, 4), ValueError, r"a grid has one to three axes, got 4: \(1, 2, 3, 4\)"),
        ((4.0,), TypeError, r"axis 0 of the grid is 4.0 of type float; expected an int, .*triton.cdiv"),
        ((1, None), TypeError, "axis 1 of the grid is None"),
        ((1, -1), ValueError, "-1 programs along axis 1"),
        ((2**31,), ValueError, "2147483648 programs along axis 0"),
        (lambda arguments: 5, TypeError, "got 5 of type int"),
    ],
    ids=lambda value: None if " at 0x" in str(value) else str(value),
)
def test_anything_else_is_refused_with_what_to_write(grid, error, message):
    with pytest.raises(error, match=message):
        resolve("kernel", grid, {})
