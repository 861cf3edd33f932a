"""A program loads a block whole before it stores a later one, also where its arguments are the same memory.

Each kernel runs on views of one tensor, laid out at random. What must come out is computed by torch, which gathers all
that is loaded, then scatters what is stored.
"""

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import example, given, settings
from hypothesis import strategies as st

BLOCK = 64
overlaps = settings(deadline=None, max_examples=60)


def stored(memory, where, what, mask=None):
    """The memory after a block is stored; all operands were read before."""
    out, where, what = memory.clone(), where.reshape(-1), what.reshape(-1)
    if mask is not None:
        where, what = where[mask.reshape(-1)], what[mask.reshape(-1)]
    out[where] = what
    return out


# ------------------------------------------------------------------------------------------- one axis
@triton.jit
def line_kernel(x_ptr, out_ptr, row, step, out_step, low, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    x_ptr += tl.program_id(0) * row
    out_ptr += tl.program_id(0) * row
    i = tl.arange(0, BLOCK)
    if KIND == "whole":
        tl.store(out_ptr + i * out_step, tl.load(x_ptr + i * step) + 1)
    elif KIND == "below":
        tl.store(out_ptr + i * out_step, tl.load(x_ptr + i * step, mask=i < n) + 1, mask=i < n)
    else:
        mask = (i >= low) & (i < n) if KIND == "between" else (low < 9) & (i < n)
        tl.store(out_ptr + i * out_step, tl.load(x_ptr + i * step, mask=mask) + 1, mask=mask)


@overlaps
@given(
    shift=st.one_of(st.integers(-20, 20), st.integers(-BLOCK - 1, BLOCK + 1)),
    step=st.sampled_from([1, 1, -1, 2, 0]),
    out_step=st.sampled_from([1, 1, -1, 2]),
    low=st.integers(0, BLOCK),
    n=st.integers(0, BLOCK),
    kind=st.sampled_from(["whole", "below", "between", "sometimes"]),
)
@example(shift=1, step=1, out_step=1, low=0, n=BLOCK, kind="whole")
@example(shift=BLOCK - 1, step=1, out_step=1, low=0, n=BLOCK, kind="whole")
@example(shift=20, step=1, out_step=1, low=0, n=21, kind="below")
@example(shift=1, step=1, out_step=1, low=9, n=BLOCK, kind="sometimes")
@example(shift=0, step=-1, out_step=1, low=0, n=1, kind="between")  # GCC 12 breaks down over it, at first
def test_lines_of_any_shift_and_step(shift, step, out_step, low, n, kind):
    row, programs = 6 * BLOCK, 2
    memory = torch.randn(programs * row)
    x_at, out_at = 2 * BLOCK, 2 * BLOCK + shift
    i = torch.arange(BLOCK)
    mask = {"whole": i >= 0, "below": i < n, "between": (i >= low) & (i < n), "sometimes": (i < n) & (low < 9)}[kind]
    expected = memory
    for program in range(programs):
        x, out = program * row + x_at + i * step, program * row + out_at + i * out_step
        expected = stored(expected, out, memory[x] + 1, mask)
    line_kernel[(programs,)](memory[x_at:], memory[out_at:], row, step, out_step, low, n, KIND=kind, BLOCK=BLOCK)
    assert torch.equal(memory, expected)


@triton.jit
def several_kernel(x_ptr, y_ptr, z_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    y = tl.load(y_ptr + (BLOCK - 1 - i))
    z = tl.load(z_ptr)
    tl.store(out_ptr + i, x + 2 * y + 3 * z, mask=i < n)
    tl.store(out_ptr + BLOCK + i, x - y)


@overlaps
@given(places=st.tuples(*[st.integers(0, 2 * BLOCK)] * 4), n=st.integers(0, BLOCK))
def test_several_loads_and_two_stores(places, n):
    memory = torch.randint(-100, 100, (4 * BLOCK,)).float()
    i = torch.arange(BLOCK)
    x, y, z, out = places
    x = torch.where(i < n, memory[x + i], torch.tensor(0.0))
    y, z = memory[y + i].flip(0), memory[z]
    expected = stored(memory, out + i, x + 2 * y + 3 * z, i < n)
    expected = stored(expected, out + BLOCK + i, x - y)
    several_kernel[(1,)](*(memory[place:] for place in places), n, BLOCK=BLOCK)
    assert torch.equal(memory, expected)


@triton.jit
def loop_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for start in tl.range(0, n, BLOCK):
        mask = start + i < n
        tl.store(out_ptr + start + i, tl.load(x_ptr + start + i, mask=mask) + 1, mask=mask)


@triton.jit
def moving_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Pointers carried from block to block, one as a block and one as a scalar."""
    i = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + i
    for start in tl.range(0, n, BLOCK):
        mask = start + i < n
        tl.store(out_ptr + i, tl.load(x_ptrs, mask=mask) + 1, mask=mask)
        x_ptrs += BLOCK
        out_ptr += BLOCK


@overlaps
@given(
    kernel=st.sampled_from([loop_kernel, moving_kernel]),
    shift=st.integers(-BLOCK - 1, BLOCK + 1),
    n=st.integers(0, 3 * BLOCK),
)
def test_blocks_in_a_loop_see_what_earlier_ones_stored(kernel, shift, n):
    memory = torch.randn(6 * BLOCK)
    x_at, out_at = BLOCK + 2, BLOCK + 2 + shift
    expected = memory
    for start in range(0, n, BLOCK):
        i = torch.arange(start, min(start + BLOCK, n))
        expected = stored(expected, out_at + i, expected[x_at + i] + 1)
    kernel[(1,)](memory[x_at:], memory[out_at:], n, BLOCK=BLOCK)
    assert torch.equal(memory, expected)


# ------------------------------------------------------------------------------------------- tiles
@triton.jit
def tile_kernel(x_ptr, out_ptr, xr, xc, outr, outc, rows, cols, MASKS: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    r, c = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    mask = (r < rows) & (c < cols)
    x = tl.load(x_ptr + r * xr + c * xc, mask=mask if MASKS == "both" else None)
    tl.store(out_ptr + r * outr + c * outc, x * 2, mask=None if MASKS == "none" else mask)


# Dense, transposed, padded, and rows that are the same memory: each element of those is stored many times, equal.
LAYOUTS = [(32, 1), (1, 32), (16, 1), (1, 16), (40, 1), (0, 1), (0, 2)]


@overlaps
@given(
    layouts=st.one_of(st.sampled_from(LAYOUTS).map(lambda one: (one, one)), st.tuples(*[st.sampled_from(LAYOUTS)] * 2)),
    shift=st.one_of(st.just(0), st.integers(-40, 40)),
    rows=st.integers(1, 16),
    cols=st.integers(1, 32),
    masks=st.sampled_from(["both", "store", "none"]),
)
@example(layouts=((16, 1), (16, 1)), shift=0, rows=16, cols=16, masks="store")
def test_tiles_of_any_layout(layouts, shift, rows, cols, masks):
    x, out = layouts
    rows, cols = (16, 32) if masks == "none" else (rows, cols)
    memory = torch.randn(2000)
    r, c = torch.arange(rows)[:, None], torch.arange(cols)[None, :]
    x_where, out_where = 100 + r * x[0] + c * x[1], 100 + shift + r * out[0] + c * out[1]
    what = memory[x_where] * 2
    expected = stored(memory, out_where, what)
    # Where elements with different values go to one place, any of them may be there.
    agree = torch.equal(expected[out_where], what)
    tile_kernel[(1,)](memory[100:], memory[100 + shift :], *x, *out, rows, cols, MASKS=masks, R=16, C=32)
    if agree:
        assert torch.equal(memory, expected)


@triton.jit
def tile_used_later_kernel(x_ptr, out_ptr, copy_ptr, row, cols, R: tl.constexpr, C: tl.constexpr):
    r, c = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    x = tl.load(x_ptr + r * row + c)
    tl.store(out_ptr + r * row + c, x * 2, mask=c < cols)
    tl.store(copy_ptr + r * C + c, x)


@pytest.mark.parametrize("row", [16, -16, 32, 40])
@pytest.mark.parametrize("shift", [0, 1, -1])
def test_a_tile_stored_in_part_and_used_whole_later(row, shift):
    memory, copy = torch.randn(1000), torch.empty(16, 32)
    where = 300 + torch.arange(16)[:, None] * row + torch.arange(32)[None, :]
    before = memory[where]
    expected = stored(memory, where[:, :16] + shift, before[:, :16] * 2)
    tile_used_later_kernel[(1,)](memory[300:], memory[300 + shift :], copy, row, 16, R=16, C=32)
    assert torch.equal(copy, before)
    assert torch.equal(memory, expected)


@triton.jit
def same_argument_kernel(x_ptr, row, col, R: tl.constexpr, C: tl.constexpr):
    at = x_ptr + tl.arange(0, R)[:, None] * row + tl.arange(0, C)[None, :] * col
    tl.store(at, tl.load(at) + 1)


@pytest.mark.parametrize(("row", "col"), [(32, 1), (0, 1), (1, 0), (0, 0), (1, 1), (-1, 1), (16, 1), (1, 16)])
def test_places_that_several_elements_share_are_loaded_before_any_is_stored(row, col):
    memory = torch.zeros(2000)
    where = 500 + torch.arange(16)[:, None] * row + torch.arange(32)[None, :] * col
    same_argument_kernel[(1,)](memory[500:], row, col, R=16, C=32)
    assert torch.equal(memory, stored(torch.zeros(2000), where, torch.ones(16, 32)))


# ------------------------------------------------------------------------------------------- addresses from anywhere
@triton.jit
def indexed_kernel(x_ptr, out_ptr, index_ptr, other_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.load(other_ptr + i), tl.load(x_ptr + tl.load(index_ptr + i)) + 1)


@overlaps
@given(shift=st.integers(-8, 8), seed=st.integers(0, 2**31), loads=st.booleans(), stores=st.booleans())
def test_permutations_from_memory(shift, seed, loads, stores):
    generator = torch.Generator().manual_seed(seed)
    memory, i = torch.randn(4 * BLOCK, generator=generator), torch.arange(BLOCK)
    index = torch.randperm(BLOCK, generator=generator) if loads else i
    other = torch.randperm(BLOCK, generator=generator) if stores else i
    expected = stored(memory, BLOCK + shift + other, memory[BLOCK + index] + 1)
    indexed_kernel[(1,)](memory[BLOCK:], memory[BLOCK + shift :], index, other, BLOCK=BLOCK)
    assert torch.equal(memory, expected)


@triton.jit
def overwritten_index_kernel(index_ptr, out_ptr, x_ptr, BLOCK: tl.constexpr):
    """What is stored may be the indices and the mask that the store itself is made with."""
    i = tl.arange(0, BLOCK)
    mask = tl.load(index_ptr + (BLOCK - 1 - i)) % 3 != 0
    tl.store(out_ptr + tl.load(index_ptr + i), tl.load(x_ptr + i), mask=mask)


@triton.jit
def overwritten_mask_kernel(mask_ptr, out_ptr, x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i), mask=tl.load(mask_ptr + i) % 3 != 0)


@overlaps
@given(
    kernel=st.sampled_from([overwritten_index_kernel, overwritten_mask_kernel]),
    shift=st.integers(-BLOCK, BLOCK),
    seed=st.integers(0, 2**31),
)
def test_indices_and_masks_that_the_store_overwrites(kernel, shift, seed):
    generator = torch.Generator().manual_seed(seed)
    memory = torch.zeros(4 * BLOCK, dtype=torch.int32)
    i = torch.arange(BLOCK)
    index = torch.randperm(BLOCK, generator=generator)
    memory[BLOCK : 2 * BLOCK] = index
    x = torch.randint(0, 100, (BLOCK,), generator=generator, dtype=torch.int32)
    where, mask = (index, index.flip(0) % 3 != 0) if kernel is overwritten_index_kernel else (i, index % 3 != 0)
    expected = stored(memory, BLOCK + shift + where, x, mask)
    kernel[(1,)](memory[BLOCK:], memory[BLOCK + shift :], x, BLOCK=BLOCK)
    assert torch.equal(memory, expected)


@triton.jit
def wrapped_kernel(x_ptr, out_ptr, first, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if KIND == "remainder":
        x = tl.load(x_ptr + (first + i) % n)
    elif KIND == "scaled":
        x = tl.load(x_ptr + (first + i) % n * 3 + 2)
    elif KIND == "quotient":
        x = tl.load(x_ptr + (first + i) // n)
    elif KIND == "in place":
        x = tl.load(x_ptr + i // 3)
    else:
        x = tl.load(x_ptr + (i + (n - i) // 2))
    if KIND == "in place":
        tl.store(x_ptr + i // 3, x + 1)
    elif KIND == "in place, folded":
        tl.store(x_ptr + (i + (n - i) // 2), x + 1)
    else:
        tl.store(out_ptr + i, x + 1)


@overlaps
@given(
    kind=st.sampled_from(["remainder", "scaled", "quotient", "in place", "in place, folded"]),
    shift=st.integers(-2 * BLOCK, 4 * BLOCK),
    first=st.integers(0, 2 * BLOCK),
    n=st.integers(2, 2 * BLOCK).flatmap(lambda n: st.sampled_from([n, n, -n])),
)
def test_addresses_with_remainders_and_quotients(kind, shift, first, n):
    memory, i = torch.randn(12 * BLOCK), torch.arange(BLOCK)
    x_at, out_at = 3 * BLOCK, 3 * BLOCK + shift
    wrapped, quotient = torch.fmod(first + i, n), ((first + i) / n).trunc().long()
    folded = i + ((n - i) / 2).trunc().long()
    x = {"remainder": wrapped, "scaled": wrapped * 3 + 2, "quotient": quotient, "in place": i // 3}.get(kind, folded)
    expected = stored(memory, x_at + x if kind.startswith("in place") else out_at + i, memory[x_at + x] + 1)
    wrapped_kernel[(1,)](memory[x_at:], memory[out_at:], first, n, KIND=kind, BLOCK=BLOCK)
    assert torch.equal(memory, expected)


# ------------------------------------------------------------------------------------------- elements of other types
@triton.jit
def converting_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i).to(out_ptr.dtype.element_ty))


@overlaps
@given(
    dtypes=st.sampled_from(
        [
            (torch.int16, torch.int32),
            (torch.int32, torch.int16),
            (torch.int64, torch.int8),
            (torch.int8, torch.int64),
            (torch.int32, torch.float32),
            (torch.float16, torch.float32),
            (torch.int32, torch.bfloat16),
        ]
    ),
    shift=st.integers(-70, 70),
)
def test_views_of_other_types(dtypes, shift):
    memory = torch.randint(0, 100, (400 * 8,), dtype=torch.int8)
    source, target = dtypes
    x_at, out_at = 100 * 8, 100 * 8 + shift * target.itemsize
    x = memory[x_at : x_at + BLOCK * source.itemsize].view(source)
    out = memory[out_at : out_at + BLOCK * target.itemsize].view(target)
    converted = x.to(target)
    expected = memory.clone()
    expected[out_at : out_at + BLOCK * target.itemsize] = converted.view(torch.int8)
    converting_kernel[(1,)](x, out, BLOCK=BLOCK)
    assert torch.equal(memory, expected)


# ------------------------------------------------------------------------------------------- atomics, later uses
@triton.jit
def atomic_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + i, tl.load(x_ptr + (BLOCK - 1 - i)))


@pytest.mark.parametrize("shift", [0, 1, -1, 17, BLOCK])
def test_what_is_added_by_atomics_is_loaded_before(shift):
    memory = torch.arange(4.0 * BLOCK)
    i = torch.arange(BLOCK)
    what = memory[BLOCK + shift + i] + memory[BLOCK + i].flip(0)
    expected = stored(memory, BLOCK + shift + i, what)
    atomic_kernel[(1,)](memory[BLOCK:], memory[BLOCK + shift :], BLOCK=BLOCK)
    assert torch.equal(memory, expected)


@triton.jit
def replaced_in_part_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Below n, what is stored does not depend on x; x is used after that."""
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(x_ptr + i, tl.where(i < n, 5.0, x))
    tl.store(out_ptr + i, x)


@pytest.mark.parametrize("n", [0, 1, 16, 40, BLOCK])
def test_a_block_used_later_is_what_was_there_before_the_store(n):
    x, out = torch.randn(BLOCK), torch.empty(BLOCK)
    before = x.clone()
    replaced_in_part_kernel[(1,)](x, out, n, BLOCK=BLOCK)
    assert torch.equal(out, before)
    assert torch.equal(x, torch.where(torch.arange(BLOCK) < n, torch.tensor(5.0), before))
