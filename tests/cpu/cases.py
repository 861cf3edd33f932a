"""Kernels that run both natively and under Triton's interpreter: ``python cases.py OUTPUT`` saves their results."""

import sys

import torch
import triton
import triton.language as tl


@triton.jit
def swizzle(x_ptr, out_ptr, rows, cols, R: tl.constexpr, C: tl.constexpr):
    pid = tl.program_id(0)
    i, j = tl.swizzle2d(tl.arange(0, R)[:, None], tl.arange(0, C)[None, :], R, C, 2)
    r = pid * R + tl.arange(0, R)
    c = tl.arange(0, C)
    mask = (r[:, None] < rows) & (c[None, :] < cols)
    x = tl.load(x_ptr + r[:, None] * cols + c[None, :], mask=mask, other=1.0)
    y = tl.where(i > j, x * i, x - j) + tl.sum(x * x, axis=1)[:, None] / (1 + tl.max(tl.abs(x), axis=0))[None, :]
    tl.store(out_ptr + r[:, None] * cols + c[None, :], y, mask=mask)


@triton.jit
def integer_soup(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=7)
    h = x.to(tl.uint32, bitcast=True) * 2654435761
    h ^= h >> 15
    h = h * 0x846CA68B
    h ^= h >> 13
    y = (h & 0xFFFF).to(tl.int32) - 30000
    z = tl.where(y % 7 == 0, y // 3, y % 13) + (x < 0).to(tl.int32) * tl.cumsum(tl.abs(x) % 5, 0)
    tl.store(out_ptr + i, z, mask=i < n)


@triton.jit
def running(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """A loop with several carried values, a condition and a reduction."""
    i = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), -1e30, tl.float32)
    where = tl.zeros((BLOCK,), tl.int32)
    total = 0.0
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + start + i, mask=start + i < n, other=-1e30)
        better = x > best
        best = tl.where(better, x, best)
        where = tl.where(better, start + i, where)
        if tl.max(x) > 1.5:
            total += tl.sum(tl.where(x > 1.5, x, 0.0))
    tl.store(out_ptr + i, best)
    tl.store(out_ptr + BLOCK + i, where.to(tl.float32))
    tl.store(out_ptr + 2 * BLOCK, total)


@triton.jit
def halves(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    tl.store(out_ptr + i, (x * y + x).to(out_ptr.dtype.element_ty))
    tl.store(out_ptr + BLOCK + i, (x.to(tl.float32) / (tl.abs(y).to(tl.float32) + 1)).to(out_ptr.dtype.element_ty))


@triton.jit
def products(a_ptr, b_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + n[:, None] * K + k[None, :])
    c = tl.dot(a, tl.trans(b))
    c = tl.dot(tl.softmax(c), b, acc=a)
    tl.store(out_ptr + m[:, None] * K + k[None, :], c)


@triton.jit
def bits(x_ptr, out_ptr, seed, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b, c, d = tl.randint4x(seed, i)
    tl.store(out_ptr + i, a ^ b)
    tl.store(out_ptr + BLOCK + i, tl.umulhi(c, d))
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + 2 * BLOCK + i, x.to(tl.int32, bitcast=True) >> 3)
    tl.store(out_ptr + 3 * BLOCK + i, tl.sort(x).to(tl.int32, bitcast=True))


@triton.jit
def overlapping(x_ptr, y_ptr, out_ptr, n, N: tl.constexpr):
    """The arguments are views of one tensor."""
    i = tl.arange(0, N)
    x = tl.load(x_ptr + (n - 1 - i), mask=i < n, other=0.0)
    tl.store(out_ptr + i, x + tl.load(y_ptr + i), mask=i < n)
    square = i[:, None] * N + i[None, :]
    tl.store(out_ptr + square, tl.trans(tl.load(x_ptr + square)) + tl.load(y_ptr + i)[None, :])


def run(device):
    """Every case's output, by name."""
    generator = torch.Generator().manual_seed(0)

    def randn(*shape):
        return torch.randn(*shape, generator=generator)

    results = {}
    x, out = randn(13, 27), torch.zeros(13, 27)
    swizzle[(4,)](x, out, 13, 27, R=4, C=32)
    results["swizzle"] = out
    x = torch.randint(-(2**31), 2**31, (1000,), generator=generator, dtype=torch.int32)
    out = torch.zeros_like(x)
    integer_soup[(8,)](x, out, 1000, BLOCK=128)
    results["integer_soup"] = out
    x, out = randn(1000), torch.zeros(257)
    running[(1,)](x, out, 1000, BLOCK=128)
    results["running"] = out
    x, y, out = randn(64).half(), randn(64).half(), torch.zeros(128, dtype=torch.float16)
    halves[(1,)](x, y, out, BLOCK=64)  # the interpreter cannot add numbers of bf16
    results["halves"] = out
    a, b, out = randn(16, 32), randn(16, 32), torch.zeros(16, 32)
    products[(1,)](a, b, out, M=16, N=16, K=32)
    results["products"] = out
    x, out = randn(64), torch.zeros(256, dtype=torch.int32)
    bits[(1,)](x, out, 1234, BLOCK=64)
    results["bits"] = out
    x = randn(32 * 32 + 100)
    overlapping[(1,)](x[10:], x[50:], x[13:], 27, N=32)
    results["overlapping"] = x
    return results


if __name__ == "__main__":
    torch.save(run("cpu"), sys.argv[1])
