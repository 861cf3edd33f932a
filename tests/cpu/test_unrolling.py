"""Loops that gather rows up in blocks do several iterations at once; the results are those of one after the other."""

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

COLS = 100


@triton.jit(do_not_specialize=["start", "stop", "step"])
def weighted_sum_kernel(x_ptr, weight_ptr, out_ptr, start, stop, step, cols, BLOCK: tl.constexpr):
    col = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(start, stop, step):
        x = tl.load(x_ptr + row * cols + col, mask=col < cols, other=float("-inf")).to(tl.float32)
        total += tl.load(weight_ptr + row) * x
    tl.store(out_ptr + col, total)


def iterations_at_once(compiled) -> int:
    return 4 if "// 4 iterations at once" in compiled.asm["cpp"] else 1


@settings(deadline=None, max_examples=40)
@given(
    start=st.integers(0, 9), stop=st.integers(-3, 23), step=st.integers(1, 7), dtype=st.sampled_from(["f32", "bf16"])
)
def test_any_number_of_iterations(start, stop, step, dtype):
    x = torch.randn(23, COLS).to({"f32": torch.float32, "bf16": torch.bfloat16}[dtype])
    weight = torch.rand(23) + 0.5
    out = torch.empty(128)
    compiled = weighted_sum_kernel[(1,)](x, weight, out, start, stop, step, COLS, BLOCK=128)
    rows = list(range(start, stop, step))
    expected = (x[rows].double() * weight[rows].double()[:, None]).sum(0)
    torch.testing.assert_close(out[:COLS], expected.float(), rtol=1e-5, atol=1e-5)
    # Masked elements take part in the loop too.
    assert (out[COLS:] == (-torch.inf if rows else 0)).all()
    assert iterations_at_once(compiled) == 4


@pytest.mark.parametrize(("start", "stop", "step"), [(2, 0, -1), (10, 0, -1), (20, 19, -7), (3, 3, -2), (0, -1, -1)])
def test_a_step_below_zero_makes_no_iteration(start, stop, step):
    x, weight, out = torch.randn(23, COLS), torch.rand(23), torch.full((128,), 7.0)
    compiled = weighted_sum_kernel[(1,)](x, weight, out, start, stop, step, COLS, BLOCK=128)
    assert out.eq(0).all() and iterations_at_once(compiled) == 4


@triton.jit(do_not_specialize=["start", "stop", "step"])
def last_counter_kernel(out_ptr, start, stop, step, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float64)
    for row in range(start, stop, step):
        total += row.to(tl.float64)
    tl.store(out_ptr + tl.arange(0, BLOCK), total)


@pytest.mark.parametrize("span", [(2**31 - 9, 2**31 - 2, 1), (0, 2**31 - 1, 2**30 - 1), (-(2**31), 2**31 - 1, 2**30)])
def test_a_counter_near_the_end_of_its_range(span):
    out = torch.empty(16, dtype=torch.float64)
    start, stop, step = span
    stop = min(stop, 2**31 - 1 - step)
    compiled = last_counter_kernel[(1,)](out, start, stop, step, BLOCK=16)
    assert out.tolist() == [sum(range(start, stop, step))] * 16
    assert iterations_at_once(compiled) == 4


@triton.jit(do_not_specialize=["n"])
def carried_kernel(x_ptr, out_ptr, n, stride, M: tl.constexpr, N: tl.constexpr):
    """Carries blocks that depend on each other, scalars that change places, pointers and a number of steps."""
    m, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    at = x_ptr + m * N + k
    a = tl.zeros((M, N), tl.float32)
    b = tl.full((M, N), 1.0, tl.float32)
    last = tl.full((M, N), -1.0, tl.float32)
    steps = tl.zeros((M, N), tl.int32)
    here = x_ptr
    p, q = 1.0, 2.0
    for i in range(n):
        x = tl.load(at)
        a, b = b * 0.5 + x, a - p * tl.load(here)
        last = x + i
        p, q = q, p + 0.25
        at += stride
        here += stride
        steps += 3
    tl.store(out_ptr + m * N + k, a)
    tl.store(out_ptr + M * N + m * N + k, b)
    tl.store(out_ptr + 2 * M * N + m * N + k, last)
    tl.store(out_ptr + 3 * M * N + m * N + k, steps.to(tl.float32))
    tl.store(out_ptr + 4 * M * N + m * N + k, p - q + tl.zeros((M, N), tl.float32))
    tl.store(out_ptr + 5 * M * N + m * N + k, tl.load(at - stride))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
@pytest.mark.parametrize("shape", [(4, 32), (2, 2), (1, 64), (16, 1)])
def test_values_of_every_kind_that_a_loop_carries(n, shape):
    size = shape[0] * shape[1]
    memory = torch.randn(12 * size)
    x, out = memory[size:], torch.empty(6, *shape)
    compiled = carried_kernel[(1,)](x, out, n, size, *shape)
    a, b, last = torch.zeros(shape).double(), torch.ones(shape).double(), -torch.ones(shape).double()
    p, q = 1.0, 2.0
    for i in range(n):
        row = x[i * size : (i + 1) * size].view(shape).double()
        a, b, last = b * 0.5 + row, a - p * row.flatten()[0], row + i
        p, q = q, p + 0.25
    before = memory[n * size : (n + 1) * size].view(shape).double()
    expected = torch.stack([a, b, last, torch.full(shape, 3.0 * n), torch.full(shape, p - q), before])
    torch.testing.assert_close(out, expected.float(), rtol=1e-5, atol=1e-5)
    assert iterations_at_once(compiled) == 4


@triton.jit(do_not_specialize=["rows"])
def nested_kernel(x_ptr, out_ptr, rows, cols, LAYERS: tl.constexpr, BLOCK: tl.constexpr):
    col = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    for layer in range(LAYERS):
        total = tl.zeros((BLOCK,), tl.float32)
        for row in range(rows):
            x = tl.load(x_ptr + (layer * rows + row) * cols + col, mask=col < cols)
            total += tl.where(x > best, x, 0.5 * x)
        best = tl.maximum(best, total / (1 + layer))
    tl.store(out_ptr + col, best, mask=col < cols)


@pytest.mark.parametrize("rows", [1, 4, 7])
def test_a_loop_inside_another(rows):
    x, out = torch.randn(3, rows, COLS), torch.empty(COLS)
    compiled = nested_kernel[(1,)](x, out, rows, COLS, LAYERS=3, BLOCK=128)
    best = torch.full((COLS,), -torch.inf).double()
    for layer in range(3):
        row = x[layer].double()
        best = best.maximum(torch.where(row > best, row, 0.5 * row).sum(0) / (1 + layer))
    torch.testing.assert_close(out, best.float(), rtol=1e-5, atol=1e-5)
    assert iterations_at_once(compiled) == 4


@triton.jit
def half_sum_kernel(x_ptr, out_ptr, rows, BLOCK: tl.constexpr):
    col = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float16)
    for row in range(rows):
        total += tl.load(x_ptr + row * BLOCK + col)
    tl.store(out_ptr + col, total)


def test_small_floats_are_rounded_after_each_iteration():
    x, out = torch.randn(11, 64).half(), torch.empty(64).half()
    compiled = half_sum_kernel[(1,)](x, out, 11, BLOCK=64)
    total = torch.zeros(64).half()
    for row in x:
        total = total + row
    assert torch.equal(out, total)
    assert iterations_at_once(compiled) == 4


@triton.jit
def fixed_kernel(x_ptr, out_ptr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    col = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(ROWS):
        total += tl.load(x_ptr + row * BLOCK + col)
    tl.store(out_ptr + col, total)


@pytest.mark.parametrize("rows, loops", [(3, 1), (8, 1), (10, 2)])
def test_no_code_for_iterations_that_never_are(rows, loops):
    x, out = torch.randn(rows, 64), torch.empty(64)
    compiled = fixed_kernel[(1,)](x, out, rows, BLOCK=64)
    torch.testing.assert_close(out, x.double().sum(0).float())
    heads = [line for line in compiled.asm["cpp"].splitlines() if line.strip().startswith("for (") and "row" in line]
    assert len(heads) == loops


# ------------------------------------------------------------------------------------ one iteration after the other
@triton.jit
def storing_kernel(x_ptr, out_ptr, rows, BLOCK: tl.constexpr):
    """The running sum goes to where the next iteration loads."""
    col = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        total += tl.load(x_ptr + row * BLOCK + col)
        tl.store(x_ptr + (row + 1) * BLOCK + col, total)
    tl.store(out_ptr + col, total)


def test_a_loop_that_stores_is_not_joined():
    x, out = torch.randn(8, 32), torch.empty(32)
    first = x[0].clone()
    compiled = storing_kernel[(1,)](x, out, 7, BLOCK=32)
    torch.testing.assert_close(out, first * 64)
    assert iterations_at_once(compiled) == 1


@triton.jit
def turning_kernel(x_ptr, out_ptr, rows, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    total = tl.load(x_ptr + at)
    for row in range(rows):
        total = tl.trans(total) + tl.load(x_ptr + at) * row
    tl.store(out_ptr + at, total)


def test_a_block_that_is_read_at_other_indices_is_not_joined():
    x, out = torch.randn(16, 16), torch.empty(16, 16)
    compiled = turning_kernel[(1,)](x, out, 9, N=16)
    total = x.double()
    for row in range(9):
        total = total.T + x.double() * row
    torch.testing.assert_close(out, total.float(), rtol=1e-5, atol=1e-5)
    assert iterations_at_once(compiled) == 1


@triton.jit
def stretches_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(x_ptr + start + i, mask=start + i < n, other=0.0)
    tl.store(out_ptr + i, total)


def test_a_limit_of_each_iteration_still_cuts_its_own_loop():
    x, out = torch.randn(300), torch.empty(64)
    compiled = stretches_kernel[(1,)](x, out, 300, BLOCK=64)
    padded = torch.zeros(320).double()
    padded[:300] = x
    torch.testing.assert_close(out, padded.view(5, 64).sum(0).float())
    assert iterations_at_once(compiled) == 1
