"""tl.dot for every type, shape and layout of its operands."""

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def dot_kernel(
    a_ptr, b_ptr, c_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, OUT: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):  # fmt: skip
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    if TRANSPOSED:
        b = tl.trans(tl.load(b_ptr + n[:, None] * K + k[None, :]))
    else:
        b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    at = m[:, None] * N + n[None, :]
    c = tl.load(c_ptr + at)
    tl.store(out_ptr + at, tl.dot(a, b, c, out_dtype=OUT))
    tl.store(out_ptr + M * N + at, tl.dot(a, b, out_dtype=OUT) + c)


TYPES = {
    torch.float32: (torch.float32, tl.float32, 2e-6),
    torch.float16: (torch.float32, tl.float32, 2e-6),
    torch.bfloat16: (torch.float32, tl.float32, 2e-6),
    torch.float64: (torch.float64, tl.float64, 1e-14),
    torch.int8: (torch.int32, tl.int32, 0),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(64, 32, 16), (4, 8, 2), (1, 16, 32)])
def test_products(dtype, shape):
    check_products(dtype, shape, transposed=False)


@pytest.mark.parametrize("shape", [(16, 16, 16), (32, 128, 64)])
def test_products_with_a_transposed_operand(shape):
    check_products(torch.float32, shape, transposed=True)
    check_products(torch.int8, shape, transposed=True)


def check_products(dtype, shape, transposed):
    torch.manual_seed(0)
    m, n, k = shape
    out_type, out, tolerance = TYPES[dtype]

    def random(*size):
        return torch.randint(-128, 127, size, dtype=dtype) if dtype is torch.int8 else torch.randn(size).to(dtype)

    a, b = random(m, k), random(n, k) if transposed else random(k, n)
    c = torch.randint(-9, 9, (m, n)).to(out_type)
    result = torch.empty(2, m, n, dtype=out_type)
    dot_kernel[(1,)](a, b, c, result, M=m, N=n, K=k, OUT=out, TRANSPOSED=transposed)
    wide = torch.int64 if dtype is torch.int8 else torch.float64
    expected = a.to(wide) @ (b.t() if transposed else b).to(wide) + c.to(wide)
    for row in result:
        error = (row.to(wide) - expected).abs().max() / expected.abs().max().clamp(min=1)
        assert error <= tolerance


@triton.jit
def batched_kernel(a_ptr, b_ptr, out_ptr, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, m, n, k = tl.arange(0, B), tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + (i[:, None, None] * M + m[None, :, None]) * K + k[None, None, :])
    b = tl.load(b_ptr + (i[:, None, None] * K + k[None, :, None]) * N + n[None, None, :])
    tl.store(out_ptr + (i[:, None, None] * M + m[None, :, None]) * N + n[None, None, :], tl.dot(a, b))


def test_batched_products():
    a, b = torch.randn(4, 16, 8), torch.randn(4, 8, 32)
    out = torch.empty(4, 16, 32)
    batched_kernel[(1,)](a, b, out, B=4, M=16, N=32, K=8)
    torch.testing.assert_close(out.double(), a.double() @ b.double(), rtol=1e-5, atol=1e-5)


@triton.jit
def chained_kernel(a_ptr, out_ptr, n, N: tl.constexpr):
    """The accumulator is used again after each product, so that it may not be changed in place."""
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    a = tl.load(a_ptr + at)
    acc = tl.zeros((N, N), tl.float32)
    for _ in range(n):
        product = tl.dot(a, a, acc)
        acc = product + acc * 0.5
    first = tl.dot(a, a)
    second = tl.dot(a, first, first)
    tl.store(out_ptr + at, acc + first * second)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_accumulators_that_are_used_again(n):
    a = torch.randn(16, 16) / 4
    out = torch.empty_like(a)
    chained_kernel[(1,)](a, out, n, N=16)
    d = a.double()
    acc = torch.zeros_like(d)
    for _ in range(n):
        acc = d @ d + acc + acc * 0.5
    first = d @ d
    torch.testing.assert_close(out.double(), acc + first * (d @ first + first), rtol=1e-5, atol=1e-5)


@triton.jit
def fp8_kernel(a_ptr, b_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at)))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_fp8_products(dtype):
    a, b = torch.randn(32, 32).to(dtype), torch.randn(32, 32).to(dtype)
    out = torch.empty(32, 32)
    fp8_kernel[(1,)](a, b, out, N=32)
    torch.testing.assert_close(out.double(), a.double() @ b.double(), rtol=1e-5, atol=1e-4)
