"""Loops, conditionals, early returns and calls."""

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st


@triton.jit
def nested_loops_kernel(x_ptr, out_ptr, n, m, step, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x_ptr + i)
    b = tl.zeros([BLOCK], tl.float32)
    count = 0
    for outer in range(0, n, step):
        for inner in range(m):
            b, a = a, b + outer + inner
            count += 1
        a = a * 0.5
    tl.store(out_ptr + i, a)
    tl.store(out_ptr + BLOCK + i, b + count)


@settings(deadline=None, max_examples=30)
@given(n=st.integers(-3, 7), m=st.integers(0, 4), step=st.integers(1, 3))
def test_nested_loops_that_swap_blocks(n, m, step):
    x = torch.randn(64)
    out = torch.empty(2, 64)
    nested_loops_kernel[(1,)](x, out, n, m, step, BLOCK=64)
    a, b, count = x.clone(), torch.zeros(64), 0
    for outer in range(0, n, step):
        for inner in range(m):
            a, b = b + outer + inner, a
            count += 1
        a = a * 0.5
    torch.testing.assert_close(out[0], a)
    torch.testing.assert_close(out[1], b + count)


@triton.jit
def rotated_kernel(x_ptr, out_ptr, n, N: tl.constexpr):
    """A carried block that is read transposed for its own next value."""
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    y = x * 2
    for _ in range(n):
        x = tl.trans(x) + 1
        y = y + tl.sum(x, axis=0)[None, :]
    tl.store(out_ptr + at, x + y)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_a_carried_block_may_be_read_at_another_index(n):
    x = torch.randn(16, 16)
    out = torch.empty_like(x)
    rotated_kernel[(1,)](x, out, n, N=16)
    y = x * 2
    for _ in range(n):
        x = x.t() + 1
        y = y + x.sum(0)[None]
    torch.testing.assert_close(out, x + y)


@triton.jit
def while_kernel(x_ptr, out_ptr, limit, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    steps = 0
    while tl.max(x) < limit:
        x = x * 2 + 1
        steps += 1
        if steps % 2 == 0:
            x = x - 0.5
    tl.store(out_ptr + i, x)
    tl.store(out_ptr + BLOCK, steps.to(tl.float32))


@pytest.mark.parametrize("limit", [-10.0, 0.5, 10.0, 1e6])
def test_while_over_a_block(limit):
    x = torch.rand(32)
    out = torch.empty(33)
    while_kernel[(1,)](x, out, limit, BLOCK=32)
    steps = 0
    while x.max() < limit:
        x = x * 2 + 1
        steps += 1
        if steps % 2 == 0:
            x = x - 0.5
    torch.testing.assert_close(out[:32], x)
    assert out[32] == steps


@triton.jit
def branch_kernel(x_ptr, out_ptr, kind, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + pid * BLOCK + i)
    scale = 1.0
    if kind == 0:
        y = x + 1
        scale = 2.0
    elif kind == 1:
        y = tl.exp(x)
    else:
        y = x
        if pid > 0:
            y = -x
    tl.store(out_ptr + pid * BLOCK + i, y * scale + x)


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_conditionals_with_results(kind):
    x = torch.randn(2, 32)
    out = torch.empty_like(x)
    branch_kernel[(2,)](x, out, kind, BLOCK=32)
    y = [(x + 1) * 2, x.exp(), torch.stack([x[0], -x[1]])][kind]
    torch.testing.assert_close(out, y + x)


@triton.jit
def early_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    if pid >= n:
        return
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + pid * BLOCK + i)
    if pid == 1:
        tl.store(out_ptr + pid * BLOCK + i, x * 10)
        return
    if tl.sum(x) > 1e9:
        if pid == 0:
            return
        x = x + 1
    tl.store(out_ptr + pid * BLOCK + i, x + pid)


def test_early_returns():
    x, out = torch.randn(5, 16), torch.zeros(5, 16)
    early_kernel[(5,)](x, out, 3, BLOCK=16)
    expected = torch.stack([x[0], x[1] * 10, x[2] + 2, torch.zeros(16), torch.zeros(16)])
    torch.testing.assert_close(out, expected)


@triton.jit(noinline=True)
def collatz(x):
    steps = 0
    while x != 1:
        if x % 2 == 0:  # noqa: SIM108
            x = x // 2
        else:
            x = 3 * x + 1
        steps += 1
    return steps


@triton.jit(noinline=True)
def store_twice(ptr, value):
    tl.store(ptr, value)
    tl.store(ptr + 1, value * 2 + tl.program_id(0))


@triton.jit(noinline=True)
def both(a, b):
    return a + b, a - b


@triton.jit
def call_kernel(x_ptr, out_ptr):
    pid = tl.program_id(0)
    steps = collatz(tl.load(x_ptr + pid))
    s, d = both(steps, pid)
    store_twice(out_ptr + 4 * pid, steps)
    store_twice(out_ptr + 4 * pid + 2, s * d)


def test_functions_that_are_not_inlined():
    x = torch.tensor([1, 7, 27, 97], dtype=torch.int32)
    out = torch.empty(4, 4, dtype=torch.int32)
    call_kernel[(4,)](x, out)
    for pid, steps in enumerate([0, 16, 111, 118]):
        product = (steps + pid) * (steps - pid)
        assert out[pid].tolist() == [steps, 2 * steps + pid, product, 2 * product + pid]


@triton.jit
def grid_kernel(out_ptr):
    a, b, c = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    na, nb, nc = tl.num_programs(0), tl.num_programs(1), tl.num_programs(2)
    tl.store(out_ptr + (a * nb + b) * nc + c, (a * 100 + b * 10 + c) + na * 0)


@pytest.mark.parametrize("grid", [(1,), (3,), (2, 5), (3, 1, 4), (2, 3, 4)])
def test_grids(grid):
    out = torch.full((*grid, *[1] * (3 - len(grid))), -1, dtype=torch.int32)
    grid_kernel[grid](out)
    a, b, c = torch.meshgrid(*(torch.arange(n) for n in out.shape), indexing="ij")
    assert torch.equal(out, (a * 100 + b * 10 + c).int())


def test_a_grid_with_a_zero_axis_runs_nothing():
    out = torch.full((4,), -1, dtype=torch.int32)
    grid_kernel[(2, 0, 2)](out)
    assert (out == -1).all()


@triton.jit
def pointer_loop_kernel(x_ptr, index_ptr, out_ptr, n, stride, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Carried pointers built from loaded indices."""
    rows = tl.load(index_ptr + tl.arange(0, ROWS))
    cols = tl.arange(0, COLS)
    at = x_ptr + rows[:, None] * stride + cols[None, :]
    i = tl.arange(0, COLS)
    total = tl.zeros([ROWS, COLS], tl.float32)
    where = tl.zeros([COLS], tl.int32)
    for _ in range(n):
        total += tl.load(at, mask=(where + i)[None, :] < n * COLS)
        at += COLS
        where += COLS
    tl.store(out_ptr + tl.arange(0, ROWS)[:, None] * COLS + cols[None, :], total)


def test_carried_pointers():
    x = torch.randn(10, 64)
    index = torch.tensor([3, 9, 0, 3], dtype=torch.int32)
    out = torch.empty(4, 16)
    pointer_loop_kernel[(1,)](x, index, out, 4, 64, ROWS=4, COLS=16)
    torch.testing.assert_close(out, x[index.long()].view(4, 4, 16).sum(1))


@triton.jit
def scalar_pointer_loop_kernel(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for _ in range(n):
        total += tl.load(x_ptr + i)
        x_ptr += stride
    tl.store(out_ptr + i, total)


def test_a_carried_scalar_pointer():
    x, out = torch.randn(5, 32), torch.empty(32)
    scalar_pointer_loop_kernel[(1,)](x, out, 5, 32, BLOCK=32)
    torch.testing.assert_close(out, x.sum(0))


@triton.jit
def static_kernel(out_ptr, N: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.zeros([BLOCK], tl.int32)
    for k in tl.static_range(N):
        x = x * 3 + k
    for k in tl.range(0, 8, loop_unroll_factor=4):
        x += k
    tl.store(out_ptr + i, x + i)


def test_unrolled_loops():
    out = torch.empty(32, dtype=torch.int32)
    static_kernel[(1,)](out, N=4, BLOCK=32)
    assert out.tolist() == [(((0 * 3 + 0) * 3 + 1) * 3 + 2) * 3 + 3 + 28 + i for i in range(32)]
