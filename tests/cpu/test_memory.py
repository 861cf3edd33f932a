"""Loads and stores: masks, strides, gathers, large offsets, in-place updates, pointers from anywhere."""

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st


@triton.jit
def copy_2d_kernel(x_ptr, out_ptr, rows, cols, sxr, sxc, sor, soc, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.program_id(1) * C + tl.arange(0, C)
    mask = (r[:, None] < rows) & (c[None, :] < cols)
    x = tl.load(x_ptr + r[:, None] * sxr + c[None, :] * sxc, mask=mask)
    tl.store(out_ptr + r[:, None] * sor + c[None, :] * soc, x, mask=mask)


@settings(deadline=None, max_examples=40)
@given(rows=st.integers(1, 70), cols=st.integers(1, 70), x_t=st.booleans(), out_t=st.booleans(), step=st.integers(1, 3))
def test_blocks_of_any_layout_copy_exactly(rows, cols, x_t, out_t, step):
    x = torch.randn(cols, rows * step).t()[::step] if x_t else torch.randn(rows, cols * step)[:, ::step]
    guard = torch.full((rows + 1, cols + 1), 7.0)
    out = (guard.t().contiguous().t() if out_t else guard)[:rows, :cols]
    grid = (triton.cdiv(rows, 16), triton.cdiv(cols, 32))
    copy_2d_kernel[grid](x, out, rows, cols, *x.stride(), *out.stride(), R=16, C=32)
    assert torch.equal(out, x)
    whole = out.as_strided((rows + 1, cols + 1), out.stride())
    assert (whole[rows] == 7).all() and (whole[:, cols] == 7).all()


DTYPES = [torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
          torch.float32, torch.float64]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_is_copied_with_a_masked_tail(dtype):
    x = torch.randint(0, 2, (61,)).to(dtype) if dtype is torch.bool else (torch.randn(61) * 50).to(dtype)
    out = torch.zeros(64, dtype=dtype)
    copy_2d_kernel[(1, 2)](x, out, 1, 61, 61, 1, 61, 1, R=1, C=32)
    assert torch.equal(out[:61], x) and not out[61:].any()


@triton.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, n, other, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    index = tl.load(index_ptr + i, mask=i < n, other=-1)
    x = tl.load(x_ptr + index, mask=index >= 0, other=other)
    tl.store(out_ptr + i, x, mask=i < n)


@triton.jit
def scatter_kernel(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    index = tl.load(index_ptr + i, mask=i < n, other=-1)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + index, x, mask=index >= 0)


@pytest.mark.parametrize("index_type", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d is not torch.bool])
def test_gather_and_scatter(dtype, index_type):
    n = 100
    x = (torch.randn(n) * 50).to(dtype)
    index = torch.randperm(n).to(index_type)
    index[::7] = -1
    out = torch.empty_like(x)
    gather_kernel[(1,)](x, index, out, n, 5, BLOCK=128)
    expected = torch.where(index >= 0, x[index.clamp(min=0).long()], torch.tensor(5).to(dtype))
    assert torch.equal(out, expected)
    out = torch.zeros_like(x)
    scatter_kernel[(1,)](x, index, out, n, BLOCK=128)
    expected = torch.zeros_like(x)
    expected[index[index >= 0].long()] = x[index >= 0]
    assert torch.equal(out, expected)


@triton.jit
def far_kernel(x_ptr, out_ptr, row, stride, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    far = row.to(tl.int64) * stride
    tl.store(out_ptr + i, tl.load(x_ptr + far + i))
    tl.store(out_ptr + BLOCK + i, tl.load(x_ptr + (far + (BLOCK - 1 - i).to(tl.int64))))


def test_offsets_beyond_2_31():
    rows, stride = 3, 2**31 - 8
    x = torch.empty(rows * stride, dtype=torch.int8)  # never touched but at the end: pages are not committed
    x[2 * stride : 2 * stride + 16] = torch.arange(16, dtype=torch.int8)
    out = torch.empty(32, dtype=torch.int8)
    far_kernel[(1,)](x, out, 2, stride, BLOCK=16)
    assert out.tolist() == [*range(16), *range(15, -1, -1)]


@triton.jit
def masked_everywhere_kernel(x_ptr, out_ptr, n, low, high, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=(i >= low) & (i < high) & (i % 3 != 0), other=-1.0)
    tl.store(out_ptr + i, x, mask=i < n)


@settings(deadline=None, max_examples=40)
@given(n=st.integers(0, 128), low=st.integers(-5, 140), high=st.integers(-5, 140))
def test_masks_that_are_no_prefix(n, low, high):
    x, out = torch.randn(128), torch.full((128,), 9.0)
    masked_everywhere_kernel[(1,)](x, out, n, low, high, BLOCK=128)
    i = torch.arange(128)
    expected = torch.where((i >= low) & (i < high) & (i % 3 != 0), x, torch.tensor(-1.0))
    assert torch.equal(out, torch.where(i < n, expected, torch.tensor(9.0)))


@triton.jit
def guarded_kernel(x_ptr, out_ptr, flag, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x_ptr, mask=flag != 0, other=3.0)
    row = tl.load(x_ptr + i * 0, mask=i < n, other=2.0)
    tl.store(out_ptr + i, value + row)


@pytest.mark.parametrize("n", [0, 5, 32])
@pytest.mark.parametrize("flag", [0, 1])
def test_masked_loads_do_not_touch_memory(n, flag):
    """The pointer is null when nothing may be loaded."""
    out = torch.empty(32)
    x = torch.tensor([5.0]) if flag or n else None
    guarded_kernel[(1,)](x if x is not None else torch.empty(0), out, flag, n, BLOCK=32)
    expected = torch.full((32,), 5.0 if flag else 3.0)
    expected += torch.where(torch.arange(32) < n, 5.0, 2.0)
    assert torch.equal(out, expected)


# ------------------------------------------------------------------------------------------- reads before writes
@triton.jit
def shift_kernel(x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(x_ptr + i + 1, x)


@triton.jit
def flip_kernel(x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + (BLOCK - 1 - i)) * 2)


@triton.jit
def transpose_kernel(x_ptr, N: tl.constexpr):
    r = tl.arange(0, N)[:, None]
    c = tl.arange(0, N)[None, :]
    tl.store(x_ptr + r * N + c, tl.trans(tl.load(x_ptr + r * N + c)))


@triton.jit
def swap_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    tl.store(x_ptr + i, y)
    tl.store(y_ptr + i, x)


@triton.jit
def broadcast_first_kernel(x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    first = tl.load(x_ptr)
    whole = tl.load(x_ptr + i)
    tl.store(x_ptr + i, whole + first)
    tl.store(x_ptr + BLOCK + i, whole - first)


def test_a_block_is_read_whole_before_the_same_memory_is_written():
    x = torch.arange(65.0)
    shift_kernel[(1,)](x, BLOCK=64)
    assert x.tolist() == [0.0, *range(64)]
    x = torch.arange(64.0)
    flip_kernel[(1,)](x, BLOCK=64)
    assert torch.equal(x, torch.arange(63.0, -1, -1) * 2)
    x = torch.randn(32, 32)
    expected = x.t().clone()
    transpose_kernel[(1,)](x, N=32)
    assert torch.equal(x, expected)
    x, y = torch.randn(64), torch.randn(64)
    a, b = x.clone(), y.clone()
    swap_kernel[(1,)](x, y, BLOCK=64)
    assert torch.equal(x, b) and torch.equal(y, a)
    x = torch.cat([torch.arange(1.0, 65.0), torch.zeros(64)])
    broadcast_first_kernel[(1,)](x, BLOCK=64)
    assert torch.equal(x, torch.cat([torch.arange(2.0, 66.0), torch.arange(0.0, 64.0)]))


@triton.jit
def pending_kernel(x_ptr, out_ptr, flag, n, BLOCK: tl.constexpr):
    """x is loaded before every write and used after each."""
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    if flag:
        tl.store(x_ptr + i, x * 0)
    for k in range(n):
        tl.store(x_ptr + i, x + k)
    tl.store(x_ptr, 100.0)
    tl.atomic_add(x_ptr + i, x)
    tl.store(out_ptr + i, x)


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_load_keeps_its_place_among_writes(flag, n):
    x = torch.randn(64)
    before, out = x.clone(), torch.empty(64)
    pending_kernel[(1,)](x, out, flag, n, BLOCK=64)
    assert torch.equal(out, before)
    expected = before * 0 if flag else before
    if n:
        expected = before + (n - 1)
    expected = expected.clone()
    expected[0] = 100.0
    torch.testing.assert_close(x, expected + before)


@triton.jit
def pointers_kernel(table_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Pointers that lie in memory as integers."""
    row = tl.program_id(0)
    at = tl.load(table_ptr + row).to(tl.pointer_type(tl.float32))
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + row * n + i, tl.load(at + i, mask=i < n, other=0.0), mask=i < n)


def test_pointers_loaded_from_memory():
    rows = [torch.randn(20) for _ in range(3)]
    table = torch.tensor([row.data_ptr() for row in rows])
    out = torch.empty(3, 20)
    pointers_kernel[(3,)](table, out, 20, BLOCK=32)
    assert torch.equal(out, torch.stack(rows))


@triton.jit
def chosen_pointer_kernel(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    if row % 2 == 0:  # noqa: SIM108
        at = a_ptr
    else:
        at = b_ptr
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + row * n + i, tl.load(at + i, mask=i < n), mask=i < n)


def test_a_pointer_chosen_by_a_branch():
    a, b, out = torch.randn(20), torch.randn(20), torch.empty(2, 20)
    chosen_pointer_kernel[(2,)](a, b, out, 20, BLOCK=32)
    assert torch.equal(out, torch.stack([a, b]))


@triton.jit
def descriptor_kernel(x_ptr, out_ptr, rows, cols, R: tl.constexpr, C: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, [rows, cols], [cols, 1], [R, C])
    target = tl.make_tensor_descriptor(out_ptr, [rows, cols], [cols, 1], [R, C])
    r, c = tl.program_id(0) * R, tl.program_id(1) * C
    target.store([r, c], source.load([r, c]) + 1)


def test_tensor_descriptors_made_in_the_kernel():
    x = torch.randn(50, 72)
    out = torch.empty_like(x)
    descriptor_kernel[(4, 3)](x, out, 50, 72, R=16, C=32)
    assert torch.equal(out, x + 1)


@triton.jit
def block_pointer_kernel(x_ptr, out_ptr, rows, cols, R: tl.constexpr, C: tl.constexpr):
    at = tl.make_block_ptr(x_ptr, (rows, cols), (cols, 1), (tl.program_id(0) * R, 0), (R, C), (1, 0))
    to = tl.make_block_ptr(out_ptr, (rows, cols), (cols, 1), (tl.program_id(0) * R, 0), (R, C), (1, 0))
    for _ in range(0, cols, C):
        tl.store(to, tl.load(at, boundary_check=(0, 1)) * 2, boundary_check=(0, 1))
        at = tl.advance(at, (0, C))
        to = tl.advance(to, (0, C))


@pytest.mark.skipif(not hasattr(tl, "make_block_ptr"), reason="this Triton has no block pointers")
def test_block_pointers():
    x = torch.randn(50, 72)
    out = torch.empty_like(x)
    block_pointer_kernel[(4,)](x, out, 50, 72, R=16, C=32)
    assert torch.equal(out, x * 2)
