"""The order in which the programs of a grid run: all run once, and those side by side in memory run side by side."""

import re

import pytest
import torch
import triton
import triton.language as tl

from opgraft.jit import jit


@triton.jit
def rows_first(out, cols, BLOCK: tl.constexpr):
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    number = tl.program_id(0) * 10000 + tl.program_id(1) * 100 + tl.program_id(2)
    tl.store(out + tl.program_id(0) * cols + at, number, mask=at < cols)


@triton.jit
def columns_first(out, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(1) * cols + at, tl.program_id(1) * 10000 + tl.program_id(0) * 100, mask=at < cols)


@triton.jit
def batches_first(out, rows, cols, BLOCK: tl.constexpr):
    at = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    place = tl.program_id(0).to(tl.int64) * rows * cols + tl.program_id(1) * cols
    number = tl.program_id(0) * 10000 + tl.program_id(1) * 100 + tl.program_id(2)
    tl.store(out + place + at, number, mask=at < cols)


@triton.jit
def tiles(out, stride, M: tl.constexpr, N: tl.constexpr):
    row = tl.program_id(0) * M + tl.arange(0, M)
    col = tl.program_id(1) * N + tl.arange(0, N)
    number = tl.program_id(0) * 10000 + tl.program_id(1) * 100
    tl.store(out + row[:, None] * stride + col[None, :], tl.zeros((M, N), tl.int32) + number)


@triton.jit
def in_a_loop(out, rows, cols, BLOCK: tl.constexpr):
    place = out + tl.program_id(0) * rows * cols + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    for _ in range(rows):
        tl.store(place, tl.program_id(0) * 10000 + tl.program_id(1) * 100 + tl.zeros((BLOCK,), tl.int32))
        place += cols


@triton.jit
def constant_steps(out, BLOCK: tl.constexpr):
    place = tl.program_id(0) * (4 * BLOCK) + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, tl.program_id(0) * 10000 + tl.program_id(1) * 100 + tl.zeros((BLOCK,), tl.int32))


@triton.jit
def anywhere(out, places, BLOCK: tl.constexpr):
    place = tl.load(places + tl.program_id(0)) + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, tl.program_id(0) * 10000 + tl.program_id(1) * 100 + tl.zeros((BLOCK,), tl.int32))


@triton.jit
def in_turn(out, cols, BLOCK: tl.constexpr):
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.program_id(0) * cols + at, tl.program_id(0) * 10000 + tl.program_id(1) * 100, mask=at < cols)


@triton.jit
def one_for_all(out, cols, BLOCK: tl.constexpr):
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * cols + at, tl.program_id(0) * 10000 + tl.program_id(1) * 100, mask=at < cols)
    tl.store(out + cols * tl.num_programs(0), 7)


def three_axes() -> torch.Tensor:
    batch, row, col = torch.meshgrid(torch.arange(2), torch.arange(5), torch.arange(48), indexing="ij")
    return batch * 10000 + row * 100 + col // 16


def numbers(rows: int, cols: int) -> torch.Tensor:
    """What the programs of a grid over rows and blocks of 16 columns write: their numbers."""
    return (torch.arange(rows)[:, None] * 10000 + torch.arange(cols) // 16 * 100).to(torch.int32)


PLACES = torch.arange(5) * 48
# Name -> kernel, grid, arguments after the output, what is written, the axis that runs first.
CASES = {
    "rows by blocks": (rows_first, (5, 3), (48,), numbers(5, 48), 1),
    "the last block cut": (rows_first, (5, 3), (40,), numbers(5, 40), 1),
    "one row": (rows_first, (1, 3), (48,), numbers(1, 48), 1),
    "one block": (rows_first, (5, 1), (16,), numbers(5, 16), 1),
    "blocks by rows": (columns_first, (3, 5), (48,), numbers(5, 48), 0),
    "three axes": (batches_first, (2, 5, 3), (5, 48), three_axes(), 2),
    "tiles": (tiles, (5, 3), (48,), numbers(5, 48).repeat_interleave(2, 0), 1),
    "carried by a loop": (in_a_loop, (5, 3), (2, 48), numbers(5, 48).repeat_interleave(2, 0), 1),
    "constants": (constant_steps, (5, 4), (), numbers(5, 64), 1),
    "places from memory": (anywhere, (5, 3), (PLACES,), numbers(5, 48), 0),
    "atomics": (in_turn, (5, 3), (48,), numbers(5, 48), 0),
    "one place for all": (one_for_all, (5, 3), (48,), torch.cat([numbers(5, 48).flatten(), torch.tensor([7])]), 0),
}


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_every_program_runs_once_in_the_order_of_what_it_stores(case, threads):
    kernel, grid, arguments, expected, first = CASES[case]
    out = torch.zeros_like(expected, dtype=torch.int32)
    blocks = {"M": 2, "N": 16} if kernel is tiles else {"BLOCK": 16}
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        compiled = jit(kernel)[grid](out, *arguments, **blocks)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(out, expected.to(torch.int32))
    assert int(re.search(r"run_grid<\d+, (\d)", compiled.asm["cpp"])[1]) == first


@triton.jit
def far(out, step, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    place = out + tl.program_id(0) * BLOCK
    for _ in tl.static_range(STEPS):
        place += tl.program_id(1) * step
    tl.store(place + tl.arange(0, BLOCK), tl.program_id(1) * 10 + tl.program_id(0) + tl.zeros((BLOCK,), tl.int32))


@pytest.mark.parametrize("steps", [1, 90, 1000])
def test_an_address_of_many_operations_is_not_followed_to_its_end(steps):
    out = torch.zeros(3, steps * 32, dtype=torch.int32)
    jit(far)[(2, 3)](out, 32, STEPS=steps, BLOCK=16)
    expected = torch.arange(3)[:, None] * 10 + torch.arange(32) // 16
    assert torch.equal(out[:, :32], expected.to(torch.int32))
