"""Operations that move elements: transpose, reshape, broadcast, join, split, cat, gather, histogram."""

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def moves_kernel(x_ptr, out_ptr, A: tl.constexpr, B: tl.constexpr):
    size: tl.constexpr = A * B
    at = tl.arange(0, A)[:, None] * B + tl.arange(0, B)[None, :]
    flat = tl.arange(0, size)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + flat, tl.reshape(tl.trans(x), (size,)))
    tl.store(out_ptr + size + at, tl.reshape(tl.reshape(x, (B, A)) * 2, (A, B)))
    tl.store(out_ptr + 2 * size + flat, tl.ravel(x + 1))
    tl.store(out_ptr + 3 * size + at, tl.flip(x, 1))
    cube = tl.reshape(x, (A, 2, B // 2))
    tl.store(out_ptr + 4 * size + at, tl.reshape(tl.permute(cube, (1, 0, 2)), (A, B)))
    left, right = tl.split(tl.permute(cube, (0, 2, 1)))
    half = tl.arange(0, A)[:, None] * (B // 2) + tl.arange(0, B // 2)[None, :]
    tl.store(out_ptr + 5 * size + half, left - right)
    tl.store(out_ptr + 6 * size + at, tl.reshape(tl.join(left, right), (A, B)))
    tl.store(out_ptr + 7 * size + at, tl.interleave(left, right))
    row = tl.load(x_ptr + tl.arange(0, B))
    tl.store(out_ptr + 8 * size + at, tl.broadcast_to(row[None, :], (A, B)))
    tl.store(out_ptr + 9 * size + tl.arange(0, 2 * B), tl.cat(row, row + 1, can_reorder=True))


@pytest.mark.parametrize("shape", [(4, 32), (16, 16), (2, 64)])
def test_moves(shape):
    a, b = shape
    size = a * b
    x, out = torch.randn(a, b), torch.zeros(9 * size + 2 * b)
    moves_kernel[(1,)](x, out, A=a, B=b)
    rows = out[: 9 * size].view(9, size)
    assert torch.equal(rows[0], x.t().reshape(-1))
    assert torch.equal(rows[1], x.reshape(-1) * 2)
    assert torch.equal(rows[2], x.reshape(-1) + 1)
    assert torch.equal(rows[3], x.flip(1).reshape(-1))
    cube = x.reshape(a, 2, b // 2)
    assert torch.equal(rows[4], cube.permute(1, 0, 2).reshape(-1))
    left, right = cube[:, 0], cube[:, 1]
    assert torch.equal(rows[5, : size // 2], (left - right).reshape(-1))
    assert torch.equal(rows[6], torch.stack([left, right], -1).reshape(-1))
    assert torch.equal(rows[7], torch.stack([left, right], -1).reshape(-1))
    assert torch.equal(rows[8], x[0].expand(a, b).reshape(-1))
    assert torch.equal(out[9 * size :].sort().values, torch.cat([x[0], x[0] + 1]).sort().values)


@triton.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, A: tl.constexpr, B: tl.constexpr, AXIS: tl.constexpr):
    at = tl.arange(0, A)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(out_ptr + at, tl.gather(tl.load(x_ptr + at), tl.load(index_ptr + at), AXIS))


@pytest.mark.parametrize("axis", [0, 1])
def test_gather(axis):
    x = torch.randn(8, 16)
    index = torch.randint(0, x.shape[axis], (8, 16), dtype=torch.int32)
    out = torch.empty_like(x)
    gather_kernel[(1,)](x, index, out, A=8, B=16, AXIS=axis)
    assert torch.equal(out, x.gather(axis, index.long()))


@triton.jit
def histogram_kernel(x_ptr, out_ptr, n, N: tl.constexpr, BINS: tl.constexpr):
    i = tl.arange(0, N)
    counts = tl.histogram(tl.load(x_ptr + i), BINS)
    tl.store(out_ptr + tl.arange(0, BINS), counts)
    masked = tl.histogram(tl.load(x_ptr + i), BINS, mask=i < n)
    tl.store(out_ptr + BINS + tl.arange(0, BINS), masked)


def test_histogram():
    x = torch.randint(0, 8, (128,), dtype=torch.int32)
    out = torch.empty(2, 8, dtype=torch.int32)
    histogram_kernel[(1,)](x, out, 50, N=128, BINS=8)
    assert torch.equal(out[0], torch.bincount(x, minlength=8).int())
    assert torch.equal(out[1], torch.bincount(x[:50], minlength=8).int())


@triton.jit
def top_kernel(x_ptr, out_ptr, N: tl.constexpr, K: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, K), tl.topk(tl.load(x_ptr + tl.arange(0, N)), K))


def test_topk():
    x, out = torch.randn(64), torch.empty(8)
    top_kernel[(1,)](x, out, N=64, K=8)
    assert torch.equal(out, x.topk(8).values)


@triton.jit
def ordered(a, b):
    return tl.minimum(a, b), tl.maximum(a, b) * 2


@triton.jit
def map_kernel(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    low, high = tl.map_elementwise(ordered, tl.load(x_ptr + i), tl.load(y_ptr + i))
    tl.store(out_ptr + i, low)
    tl.store(out_ptr + N + i, high + low)


@pytest.mark.skipif(not hasattr(tl, "map_elementwise"), reason="this Triton has no map_elementwise")
def test_map_elementwise():
    x, y, out = torch.randn(64), torch.randn(64), torch.empty(2, 64)
    map_kernel[(1,)](x, y, out, N=64)
    low = torch.minimum(x, y)
    torch.testing.assert_close(out, torch.stack([low, torch.maximum(x, y) * 2 + low]))
