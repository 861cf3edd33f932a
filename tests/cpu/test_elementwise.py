"""Arithmetic, comparisons, casts, mathematical functions, element by element, against float64 and Python integers."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

N = 256
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.7, -3.7, 1e-3, 88.0, -88.0, 100.0, -104.0, 1e10, -1e10, 3e38,
          float("inf"), -float("inf"), float("nan"), 1e-40, -1e-40, 1e-45, 2.0**31, -(2.0**31), 2.0**63, 65504.0,
          65520.0, 65536.0, 448.0, 464.0, 57344.0, 61440.0, 0.1, 1 / 3]  # fmt: skip


def floats():
    values = torch.tensor(FLOATS, dtype=torch.float32)
    torch.manual_seed(0)
    return torch.cat([values, torch.randn(N - len(values)) * 10])


def integers(dtype):
    info = torch.iinfo(dtype)
    edges = torch.tensor([0, 1, 2, 3, 7, 100, info.max, info.max - 1, info.min, info.min + 1], dtype=torch.int64)
    edges = torch.cat([edges, -edges[1:6]]) if info.min < 0 else edges
    torch.manual_seed(1)
    rest = torch.randint(max(info.min, -(2**40)), min(info.max, 2**40), (N - len(edges),), dtype=torch.int64)
    return torch.cat([edges, rest]).to(dtype)


@triton.jit
def integer_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask)
    y = tl.load(y_ptr + i, mask=mask)
    tl.store(out_ptr + i, x + y, mask=mask)
    tl.store(out_ptr + n + i, x - y, mask=mask)
    tl.store(out_ptr + 2 * n + i, x * y, mask=mask)
    tl.store(out_ptr + 3 * n + i, x // y, mask=mask)
    tl.store(out_ptr + 4 * n + i, x % y, mask=mask)
    tl.store(out_ptr + 5 * n + i, x & y, mask=mask)
    tl.store(out_ptr + 6 * n + i, x | y, mask=mask)
    tl.store(out_ptr + 7 * n + i, x ^ y, mask=mask)
    tl.store(out_ptr + 8 * n + i, tl.minimum(x, y), mask=mask)
    tl.store(out_ptr + 9 * n + i, tl.maximum(x, y), mask=mask)
    tl.store(out_ptr + 10 * n + i, ~x, mask=mask)
    tl.store(out_ptr + 11 * n + i, (x < y).to(x.dtype), mask=mask)
    tl.store(out_ptr + 12 * n + i, (x >= y).to(x.dtype), mask=mask)
    tl.store(out_ptr + 13 * n + i, (x == y).to(x.dtype), mask=mask)
    tl.store(out_ptr + 14 * n + i, tl.where(x != y, x, y), mask=mask)
    tl.store(out_ptr + 15 * n + i, x << (y & 7), mask=mask)
    tl.store(out_ptr + 16 * n + i, x >> (y & 7), mask=mask)
    tl.store(out_ptr + 17 * n + i, tl.abs(x), mask=mask)


INTEGER_TYPES = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
UNSIGNED = {torch.uint8: np.uint8, torch.uint16: np.uint16, torch.uint32: np.uint32, torch.uint64: np.uint64}


def wrapped(values, dtype):
    """Python integers as the type has them: modulo 2^bits."""
    bits = torch.iinfo(dtype).bits
    result = []
    for value in values:
        value &= (1 << bits) - 1
        result.append(value - (1 << bits) if torch.iinfo(dtype).min < 0 and value >> (bits - 1) else value)
    return result


def c_divide(a, b):
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


@pytest.mark.parametrize("dtype", INTEGER_TYPES)
def test_integer_arithmetic(dtype):
    x, y = integers(dtype), integers(dtype).roll(37)
    y[y == 0] = 3
    out = torch.empty(18 * N, dtype=dtype)
    integer_kernel[(1,)](x, y, out, N, BLOCK=N)
    rows = out.view(18, N).tolist()
    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    expected = {
        "add": [a + b for a, b in pairs],
        "sub": [a - b for a, b in pairs],
        "mul": [a * b for a, b in pairs],
        "div": [c_divide(a, b) for a, b in pairs],
        "rem": [a - c_divide(a, b) * b for a, b in pairs],
        "and": [a & b for a, b in pairs],
        "or": [a | b for a, b in pairs],
        "xor": [a ^ b for a, b in pairs],
        "min": [min(p) for p in pairs],
        "max": [max(p) for p in pairs],
        "not": [~a for a, _ in pairs],
        "lt": [int(a < b) for a, b in pairs],
        "ge": [int(a >= b) for a, b in pairs],
        "eq": [int(a == b) for a, b in pairs],
        "where": [a if a != b else b for a, b in pairs],
        "shl": [a << (b & 7) for a, b in pairs],
        "shr": [a >> (b & 7) for a, b in pairs],
        "abs": [abs(a) for a, _ in pairs],
    }
    for row, (name, values) in zip(rows, expected.items(), strict=True):
        assert row == wrapped(values, dtype), name


@triton.jit
def unsigned_kernel(x_ptr, y_ptr, out_ptr, f_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    tl.store(out_ptr + i, x // y)
    tl.store(out_ptr + BLOCK + i, x % y)
    tl.store(out_ptr + 2 * BLOCK + i, tl.minimum(x, y))
    tl.store(out_ptr + 3 * BLOCK + i, tl.maximum(x, y))
    tl.store(out_ptr + 4 * BLOCK + i, x >> 3)
    tl.store(out_ptr + 5 * BLOCK + i, (x < y).to(x.dtype))
    tl.store(out_ptr + 6 * BLOCK + i, tl.umulhi(x, y))
    tl.store(f_ptr + i, x.to(tl.float32))


@pytest.mark.parametrize("dtype", [torch.uint32, torch.uint64])
def test_unsigned_arithmetic(dtype):
    signed = torch.int32 if dtype is torch.uint32 else torch.int64
    x, y = integers(signed).view(dtype), integers(signed).roll(37)
    y[y == 0] = 3
    y = y.view(dtype)
    out, f = torch.empty(7 * N, dtype=dtype), torch.empty(N)
    unsigned_kernel[(1,)](x, y, out, f, BLOCK=N)
    bits = torch.iinfo(dtype).bits
    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    rows = out.view(signed).view(7, N).numpy().view(UNSIGNED[dtype]).tolist()
    assert rows[0] == [a // b for a, b in pairs]
    assert rows[1] == [a % b for a, b in pairs]
    assert rows[2] == [min(p) for p in pairs]
    assert rows[3] == [max(p) for p in pairs]
    assert rows[4] == [a >> 3 for a, _ in pairs]
    assert rows[5] == [int(a < b) for a, b in pairs]
    assert rows[6] == [(a * b) >> bits for a, b in pairs]
    np.testing.assert_array_equal(f.numpy(), np.array([a for a, _ in pairs], dtype=UNSIGNED[dtype]).astype(np.float32))


@triton.jit
def division_by_zero_kernel(x_ptr, y_ptr, out_ptr, a, b, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    tl.store(out_ptr + i, tl.where(y == 0, 0, x // y + x % y))
    tl.store(out_ptr + BLOCK, (a // b) * 0)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_division_by_zero_does_not_trap(dtype):
    x, y = integers(dtype), torch.tensor([0, -1] * (N // 2), dtype=dtype)
    out = torch.empty(N + 1, dtype=dtype)
    division_by_zero_kernel[(1,)](x, y, out, 5, 0, BLOCK=N)
    expected = [0 if b == 0 else -a for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert out[:N].tolist() == wrapped(expected, dtype)


@triton.jit
def float_kernel(x_ptr, y_ptr, out_ptr, b_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    tl.store(out_ptr + i, x + y)
    tl.store(out_ptr + BLOCK + i, x - y)
    tl.store(out_ptr + 2 * BLOCK + i, x * y)
    tl.store(out_ptr + 3 * BLOCK + i, x / y)
    tl.store(out_ptr + 4 * BLOCK + i, tl.maximum(x, y))
    tl.store(out_ptr + 5 * BLOCK + i, tl.minimum(x, y))
    tl.store(out_ptr + 6 * BLOCK + i, tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out_ptr + 7 * BLOCK + i, tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out_ptr + 8 * BLOCK + i, -x)
    tl.store(out_ptr + 9 * BLOCK + i, tl.abs(x))
    tl.store(out_ptr + 10 * BLOCK + i, tl.clamp(x, -1.0, 2.0))
    tl.store(b_ptr + i, x < y)
    tl.store(b_ptr + BLOCK + i, x <= y)
    tl.store(b_ptr + 2 * BLOCK + i, x > y)
    tl.store(b_ptr + 3 * BLOCK + i, x >= y)
    tl.store(b_ptr + 4 * BLOCK + i, x == y)
    tl.store(b_ptr + 5 * BLOCK + i, x != y)
    tl.store(b_ptr + 6 * BLOCK + i, (x < y) & (x > 0) | ~(y < 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_float_arithmetic_and_comparisons(dtype):
    x, y = floats().to(dtype), floats().roll(17).to(dtype)
    out, b = torch.empty(11, N, dtype=dtype), torch.empty(7, N, dtype=torch.bool)
    float_kernel[(1,)](x, y, out, b, BLOCK=N)
    # fp16 and bf16 round after every operation: torch's own operators do the same.
    expected = [
        x + y, x - y, x * y, x / y, torch.fmax(x, y), torch.fmin(x, y), torch.maximum(x, y), torch.minimum(x, y),
        -x, x.abs(),
    ]  # fmt: skip
    for row, (actual, wanted) in enumerate(zip(out, expected, strict=False)):
        torch.testing.assert_close(actual, wanted, rtol=0, atol=0, equal_nan=True, msg=f"row {row}")
    clamped = torch.fmin(torch.fmax(x, torch.tensor(-1.0, dtype=dtype)), torch.tensor(2.0, dtype=dtype))
    torch.testing.assert_close(out[10], clamped, rtol=0, atol=0)
    for row, wanted in enumerate([x < y, x <= y, x > y, x >= y, x == y, x != y, (x < y) & (x > 0) | ~(y < 1)]):
        assert torch.equal(b[row], wanted), row


@triton.jit
def cast_kernel(x_ptr, outs, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    for k in tl.static_range(len(outs)):
        tl.store(outs[k] + i, x.to(outs[k].dtype.element_ty))


def casts(x, dtypes):
    """x as each of the types, by one kernel."""
    outs = tuple(torch.empty(len(x), dtype=dtype) for dtype in dtypes)
    cast_kernel[(1,)](x, outs, BLOCK=len(x))
    return dict(zip(dtypes, outs, strict=True))


def cast(x, dtype):
    return casts(x, [dtype])[dtype]


FLOAT_TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("source", FLOAT_TYPES)
def test_casts_between_floats_round_to_nearest_even(source):
    x = floats().double()
    x = torch.cat([x, x * (1 + 2.0**-9), x * (1 + 2.0**-30), x * 2.0**-20]).to(source)
    for target, actual in casts(x, FLOAT_TYPES).items():
        torch.testing.assert_close(actual, x.to(target), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("source", INTEGER_TYPES)
def test_casts_from_integers_round_once(source):
    x = integers(source)
    exact = torch.tensor([float(v) for v in x.tolist()], dtype=torch.float64)
    for target, actual in casts(x, FLOAT_TYPES).items():
        if target in (torch.float16, torch.bfloat16):
            # torch goes through fp32: the nearest of all values is what one rounding gives.
            nearest = exact.to(target)
            as_near = (actual.double() - exact).abs() <= (nearest.double() - exact).abs()
            assert (as_near | (actual == nearest)).all()
        else:
            torch.testing.assert_close(actual, x.to(target), rtol=0, atol=0)


@pytest.mark.parametrize("source", FLOAT_TYPES)
def test_casts_to_integers_truncate_and_saturate(source):
    x = floats().to(source)
    for target, actual in casts(x, [torch.int32, torch.int64]).items():
        info = torch.iinfo(target)
        expected = []
        for value in x.double().tolist():
            if value != value:
                expected.append(0)
            else:
                expected.append(info.max if value >= info.max else info.min if value <= info.min else int(value))
        assert actual.tolist() == expected


@pytest.mark.parametrize("source", INTEGER_TYPES)
def test_casts_between_integers_wrap(source):
    x = integers(source)
    for target, actual in casts(x, INTEGER_TYPES).items():
        assert actual.tolist() == x.to(target).tolist()


FLOAT8 = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}


@pytest.mark.parametrize("dtype", FLOAT8)
def test_fp8_is_read_exactly(dtype):
    x = torch.arange(256, dtype=torch.uint8).view(dtype)
    torch.testing.assert_close(cast(x, torch.float32), x.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("source", [torch.float32, torch.float16])
def test_fp8_rounds_to_nearest_even_and_saturates(dtype, source):
    """Beyond the largest finite value: that value (as cvt.satfinite on NVIDIA GPUs)."""
    x = torch.cat([floats(), floats() * 2.0**-8, torch.arange(256, dtype=torch.uint8).view(dtype).float() * 1.0625])
    x = torch.cat([x, torch.zeros(1024 - len(x))]).to(source)
    limit = FLOAT8[dtype]
    wanted = x.float().clamp(-limit, limit).to(dtype)
    actual = cast(x, dtype)
    nan = x.isnan()
    assert actual[nan].float().isnan().all()
    torch.testing.assert_close(actual[~nan].float(), wanted[~nan].float(), rtol=0, atol=0)


@triton.jit
def bits_kernel(x_ptr, i_ptr, back_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    bits = tl.load(x_ptr + i).to(i_ptr.dtype.element_ty, bitcast=True)
    tl.store(i_ptr + i, bits)
    tl.store(back_ptr + i, (bits ^ 1).to(back_ptr.dtype.element_ty, bitcast=True))


@pytest.mark.parametrize(
    ("float_type", "int_type"),
    [
        (torch.float32, torch.int32),
        (torch.float64, torch.int64),
        (torch.float16, torch.int16),
        (torch.bfloat16, torch.int16),
    ],
)
def test_bitcasts(float_type, int_type):
    x = floats()[~floats().isnan()][:128].to(float_type)
    bits, back = torch.empty(128, dtype=int_type), torch.empty(128, dtype=float_type)
    bits_kernel[(1,)](x, bits, back, BLOCK=128)
    assert torch.equal(bits, x.view(int_type))
    expected = (x.view(int_type) ^ 1).view(float_type)
    torch.testing.assert_close(back, expected, rtol=0, atol=0, equal_nan=True)


@triton.jit
def math_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr, PRECISE: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, tl.exp(x))
    tl.store(out_ptr + BLOCK + i, tl.exp2(x))
    tl.store(out_ptr + 2 * BLOCK + i, tl.log(x))
    tl.store(out_ptr + 3 * BLOCK + i, tl.log2(x))
    tl.store(out_ptr + 4 * BLOCK + i, tl.sin(x))
    tl.store(out_ptr + 5 * BLOCK + i, tl.cos(x))
    tl.store(out_ptr + 6 * BLOCK + i, tl.sqrt(x))
    tl.store(out_ptr + 7 * BLOCK + i, tl.rsqrt(x))
    tl.store(out_ptr + 8 * BLOCK + i, tl.erf(x))
    tl.store(out_ptr + 9 * BLOCK + i, tl.floor(x))
    tl.store(out_ptr + 10 * BLOCK + i, tl.ceil(x))
    tl.store(out_ptr + 11 * BLOCK + i, tl.fma(x, x, x))
    tl.store(out_ptr + 12 * BLOCK + i, tl.sigmoid(x))
    if PRECISE:  # these take fp32 only
        tl.store(out_ptr + 13 * BLOCK + i, tl.sqrt_rn(x))
        tl.store(out_ptr + 14 * BLOCK + i, tl.div_rn(x, x + 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mathematical_functions(dtype):
    x = floats().to(dtype)
    rows = 15 if dtype is torch.float32 else 13
    out = torch.empty(rows, N, dtype=dtype)
    math_kernel[(1,)](x, out, BLOCK=N, PRECISE=rows == 15)
    d = x.double()
    expected = [
        d.exp(), d.exp2(), d.log(), d.log2(), d.sin(), d.cos(), d.sqrt(), d.rsqrt(), d.erf(), d.floor(), d.ceil(),
        d * d + d, d.sigmoid(), d.sqrt(), d / (x + 1).double(),
    ]  # fmt: skip
    tolerance = 5e-7 if dtype is torch.float32 else 1e-14
    for row, (actual, wanted) in enumerate(zip(out, expected, strict=False)):
        wanted = wanted.to(dtype)
        absolute = tolerance if row in (4, 5, 11, 14) else 0
        tiny = wanted.abs() < torch.finfo(dtype).tiny
        torch.testing.assert_close(
            actual[~tiny],
            wanted[~tiny],
            rtol=tolerance,
            atol=absolute,
            equal_nan=True,
            msg=lambda m, r=row: f"{r}: {m}",
        )
        torch.testing.assert_close(actual[tiny], wanted[tiny], rtol=0, atol=1e-37)


@triton.jit(do_not_specialize=["i", "j", "u", "flag"])
def scalar_kernel(out_ptr, f, d, i, j, u, flag):
    tl.store(out_ptr, tl.exp(f))
    tl.store(out_ptr + 1, (d * 2).to(tl.float32))
    tl.store(out_ptr + 2, (i // j + i % j).to(tl.float32))
    tl.store(out_ptr + 3, tl.where(flag, f, -f))
    tl.store(out_ptr + 4, tl.maximum(f, 2.0))
    tl.store(out_ptr + 5, (u >> 1).to(tl.float32))
    tl.store(out_ptr + 6, tl.sqrt(f) + tl.erf(f) + tl.sin(f))
    tl.store(out_ptr + 7, tl.cdiv(i, 7).to(tl.float32))


@settings(deadline=None, max_examples=30)
@given(
    f=st.floats(0.125, 50, width=32), i=st.integers(-(2**31), 2**31 - 1), j=st.integers(1, 2**31 - 1),
    u=st.integers(2**63, 2**64 - 1), flag=st.booleans(),
)  # fmt: skip
def test_scalar_arguments(f, i, j, u, flag):
    out = torch.empty(8)
    scalar_kernel[(1,)](out, f, f, i, j, u, flag)
    d = torch.tensor(f, dtype=torch.float64)
    quotient = c_divide(i, j)
    total = wrapped([quotient + i - quotient * j], torch.int32)[0]
    expected = [d.exp(), 2 * d, total, f if flag else -f, max(f, 2.0), u >> 1, d.sqrt() + d.erf() + d.sin()]
    for actual, wanted in zip(out.tolist(), expected, strict=False):
        assert actual == pytest.approx(float(wanted), rel=1e-6)
