"""Reductions and scans along any axis, with any combine function, against torch in float64."""

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st


@triton.jit
def xor_combine(a, b):
    return a ^ b


@triton.jit
def norm_combine(a, b):
    return tl.sqrt(a * a + b * b)


@triton.jit
def reduce_kernel(x_ptr, out_ptr, rows, cols, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr, KIND: tl.constexpr):
    r, c = tl.arange(0, R), tl.arange(0, C)
    x = tl.load(x_ptr + r[:, None] * cols + c[None, :], mask=(r[:, None] < rows) & (c[None, :] < cols), other=0)
    if KIND == "sum":
        y = tl.sum(x, axis=AXIS)
    elif KIND == "max":
        y = tl.max(x, axis=AXIS)
    elif KIND == "min":
        y = tl.min(x, axis=AXIS)
    elif KIND == "argmax":
        y = tl.argmax(x, axis=AXIS)
    elif KIND == "argmin":
        y = tl.argmin(x, axis=AXIS)
    elif KIND == "xor":
        y = tl.xor_sum(x, axis=AXIS)
    elif KIND == "norm":
        y = tl.reduce(x, AXIS, norm_combine)
    if AXIS == 0:
        tl.store(out_ptr + c, y, mask=c < cols)
    else:
        tl.store(out_ptr + r, y, mask=r < rows)


def padded(x, rows, cols):
    """What the kernel sees: zeros outside."""
    out = torch.zeros(rows, cols, dtype=x.dtype)
    out[: x.shape[0], : x.shape[1]] = x
    return out


def expected(x, axis, kind):
    if kind == "sum":
        return x.double().sum(axis) if x.dtype.is_floating_point else x.sum(axis)
    if kind == "max":
        return x.amax(axis)
    if kind == "min":
        return x.amin(axis)
    if kind == "argmax":
        return x.argmax(axis)
    if kind == "argmin":
        return x.argmin(axis)
    if kind == "norm":
        return x.double().norm(dim=axis)
    result = torch.zeros_like(x.select(axis, 0))
    for part in x.unbind(axis):
        result = result ^ part
    return result


@pytest.mark.parametrize("kind", ["sum", "max", "min", "argmax", "argmin", "norm"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (13, 100), (64, 2)])
def test_float_blocks(kind, axis, rows, cols):
    torch.manual_seed(0)
    x = torch.randn(rows, cols)
    shape = triton.next_power_of_2(rows), triton.next_power_of_2(cols)
    result = torch.int64 if kind.startswith("arg") else torch.float32
    out = torch.empty(cols if axis == 0 else rows, dtype=result)
    reduce_kernel[(1,)](x, out, rows, cols, R=shape[0], C=shape[1], AXIS=axis, KIND=kind)
    wanted = expected(padded(x, *shape), axis, kind)[: len(out)]
    torch.testing.assert_close(out.double(), wanted.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.float64])
@pytest.mark.parametrize(("kind", "axis"), [("sum", 0), ("max", 1), ("argmin", 0), ("argmin", 1), ("xor", 1)])
def test_other_types(kind, axis, dtype):
    if kind == "xor" and dtype.is_floating_point:
        pytest.skip("integers only")
    torch.manual_seed(0)
    rows, cols = 16, 64
    x = torch.randint(-100, 100, (rows, cols)).to(dtype)
    out = torch.empty(cols if axis == 0 else rows, dtype=torch.int64 if dtype != torch.float64 else dtype)
    reduce_kernel[(1,)](x, out, rows, cols, R=rows, C=cols, AXIS=axis, KIND=kind)
    wanted = expected(x.long() if not dtype.is_floating_point else x, axis, kind)
    if kind == "sum" and dtype in (torch.int8, torch.int16):
        wanted = wanted.int()  # tl.sum widens to 32 bits
    torch.testing.assert_close(out.double(), wanted.double(), rtol=0, atol=0)


@triton.jit
def whole_columns_kernel(x_ptr, out_ptr, R: tl.constexpr, C: tl.constexpr):
    r, c = tl.arange(0, R), tl.arange(0, C)
    tl.store(out_ptr + c, tl.sum(tl.load(x_ptr + r[:, None] * C + c[None, :]), axis=0))


@pytest.mark.parametrize("arch", ["x86-64", "native"])
@pytest.mark.parametrize(("rows", "cols"), [(2, 8), (2, 16), (2, 32), (4, 16), (4, 64)])
def test_a_short_axis_is_reduced_whole_however_many_vectors_lie_across_it(rows, cols, arch):
    """As many elements along the axis as vectors are handled at once, for some width of vectors."""
    x, out = torch.randn(rows, cols), torch.empty(cols)
    whole_columns_kernel[(1,)](x, out, R=rows, C=cols, arch=arch)
    torch.testing.assert_close(out, x.sum(0))


@triton.jit
def row_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=-float("inf"))
    tl.store(out_ptr, tl.max(x))
    tl.store(out_ptr + 1, tl.sum(tl.where(i < n, x, 0.0)))
    value, index = tl.max(x, axis=0, return_indices=True)
    tl.store(out_ptr + 2, value)
    tl.store(out_ptr + 3, index.to(tl.float32))
    tl.store(out_ptr + 4, tl.sum((x > 0).to(tl.int32)).to(tl.float32))
    tl.store(out_ptr + 5, tl.reduce(x, 0, propagating_max))


@triton.jit
def propagating_max(a, b):
    """Inductor's: NaN wins."""
    mask = a > b
    mask |= a != a
    return tl.where(mask, a, b)


@settings(deadline=None, max_examples=60)
@given(n=st.integers(1, 256), nan=st.sampled_from(["none", "some", "all"]), seed=st.integers(0, 2**31))
def test_rows_of_any_length_and_nan(n, nan, seed):
    torch.manual_seed(seed)
    x = torch.randn(n)
    if nan == "some":
        x[torch.rand(n) < 0.3] = float("nan")
    elif nan == "all":
        x[:] = float("nan")
    out = torch.empty(6)
    row_kernel[(1,)](x, out, n, BLOCK=256)
    finite = x[~x.isnan()]
    # Masked elements are -inf, which a maximum that ignores NaN prefers to NaN.
    top = finite.max() if len(finite) else torch.tensor(float("nan") if n == 256 else -float("inf"))
    torch.testing.assert_close(out[0], top, equal_nan=True)
    torch.testing.assert_close(out[1].double(), x.double().sum(), equal_nan=True, rtol=1e-4, atol=1e-4)
    if not x.isnan().any():
        assert out[2] == x.max() and out[3] == x.argmax()
        assert out[5] == x.max()
    else:
        assert out[5].isnan()
    assert out[4] == (x > 0).sum()


@triton.jit
def three_axes_kernel(x_ptr, out_ptr, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr):
    a = tl.arange(0, A)[:, None, None]
    b = tl.arange(0, B)[None, :, None]
    c = tl.arange(0, C)[None, None, :]
    x = tl.load(x_ptr + (a * B + b) * C + c)
    y = tl.sum(x, axis=AXIS, keep_dims=True) + tl.max(x, axis=AXIS, keep_dims=True)
    tl.store(out_ptr + (a * B + b) * C + c, x - y)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(4, 8, 32), (2, 2, 2), (16, 4, 1), (1, 64, 4)])
def test_three_axes(axis, shape):
    x = torch.randn(shape)
    out = torch.empty_like(x)
    three_axes_kernel[(1,)](x, out, A=shape[0], B=shape[1], C=shape[2], AXIS=axis)
    wanted = x - x.sum(axis, keepdim=True) - x.amax(axis, keepdim=True)
    torch.testing.assert_close(out, wanted, rtol=1e-5, atol=1e-5)


@triton.jit
def scan_kernel(x_ptr, out_ptr, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.cumsum(x, axis=AXIS, reverse=REVERSE))
    tl.store(out_ptr + R * C + at, tl.cumprod(x, axis=AXIS, reverse=REVERSE))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_scans(axis, reverse):
    x = torch.rand(8, 32, dtype=torch.float64) + 0.5
    out = torch.empty(2, 8, 32, dtype=torch.float64)
    scan_kernel[(1,)](x, out, R=8, C=32, AXIS=axis, REVERSE=reverse)
    y = x.flip(axis) if reverse else x
    for row, wanted in enumerate([y.cumsum(axis), y.cumprod(axis)]):
        torch.testing.assert_close(out[row], wanted.flip(axis) if reverse else wanted)


@triton.jit
def first_order(a1, b1, a2, b2):
    """The linear recurrence y = a * y + b, which is associative but does not commute."""
    return a1 * a2, b1 * a2 + b2


@triton.jit
def recurrence_kernel(a_ptr, b_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    _, b = tl.associative_scan((tl.load(a_ptr + i), tl.load(b_ptr + i)), 0, first_order)
    tl.store(out_ptr + i, b)


def test_a_scan_of_two_operands_keeps_the_order():
    a, b, out = torch.rand(64), torch.randn(64), torch.empty(64)
    recurrence_kernel[(1,)](a, b, out, BLOCK=64)
    y = torch.tensor(0.0, dtype=torch.float64)
    wanted = []
    for i in range(64):
        y = a[i].double() * y + b[i].double()
        wanted.append(y)
    torch.testing.assert_close(out.double(), torch.stack(wanted), rtol=1e-5, atol=1e-5)


@triton.jit
def sort_kernel(x_ptr, out_ptr, R: tl.constexpr, C: tl.constexpr, DESCENDING: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(out_ptr + at, tl.sort(tl.load(x_ptr + at), descending=DESCENDING))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_sort(descending, dtype):
    x = (torch.randn(4, 64) * 100).to(dtype)
    out = torch.empty_like(x)
    sort_kernel[(1,)](x, out, R=4, C=64, DESCENDING=descending)
    assert torch.equal(out, x.sort(1, descending=descending).values)


@triton.jit
def scaled_combine(a, b):
    """Uses a constant, which the compiler moves out of the combine function."""
    return tl.maximum(a, b) * 1.0 + tl.where(a > 1e30, 0.5, 0.0)


@triton.jit
def constant_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr, tl.reduce(tl.load(x_ptr + tl.arange(0, BLOCK)), 0, scaled_combine))


def test_combine_functions_may_use_constants():
    x, out = torch.randn(128), torch.empty(1)
    constant_kernel[(1,)](x, out, BLOCK=128)
    assert out.item() == x.max().item()
