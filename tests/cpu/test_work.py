"""How many programs a thread must get: loops count as often as they run."""

import pytest
import torch
import triton.language as tl

from opgraft.jit import jit


@jit
def looped(x, n, N: tl.constexpr):
    total = tl.zeros((512,), tl.float32)
    for i in range(0, N, 2):
        total += tl.load(x + i + tl.arange(0, 512))
    for i in range(n):
        total += tl.load(x + i + tl.arange(0, 512))
    tl.store(x + tl.arange(0, 512), total)


def grain(kernel) -> str:
    """How many programs get a thread, as the generated code says it."""
    (line,) = (line for line in kernel.asm["cpp"].splitlines() if "run_grid<" in line)
    return line.split("num_threads, ")[1].split(", [=]")[0]


def test_a_program_of_many_iterations_is_worth_a_thread():
    x = torch.zeros(1024)
    short, long = (grain(looped[(1,)](x, 1, N)) for N in (2, 400))
    assert int(short) > int(long) == 1


@jit(do_not_specialize=["cols", "step"])
def bounded(x, rows, cols, step, BLOCK: tl.constexpr):
    i = tl.arange(0, 16)
    total = tl.zeros((16,), tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        for _ in range(0, tl.cdiv(cols, BLOCK), step):
            total += tl.load(x + row + i)
        for _ in range(tl.load(x).to(tl.int32)):
            total += 1
    tl.store(x + i, total)


def test_bounds_that_the_arguments_tell_count_at_each_launch():
    x = torch.zeros(64)
    kernel = bounded[(2,)](x, 5, 100, 3, BLOCK=64)
    text = grain(kernel)
    rows = "trips(0, arg1, grid0)"
    assert f"{rows} * trips(0, ((arg2 + 63) / 64), arg3)" in text
    # What is loaded is not known before; the loop counts as one of 16 iterations, in each of the rows.
    assert text.startswith("programs_worth_a_thread(") and text.count(rows) == 2 and text.count("trips(") == 3
    bounded[(2,)](x, 5, -100, 0, BLOCK=64)  # a step of 0, in a loop that does not run: the guess must not mind


@jit(do_not_specialize=["n"])
def grown(x, n, STEPS: tl.constexpr):
    for _ in tl.static_range(STEPS):
        n = n + n // 2
    total = tl.zeros((16,), tl.float32)
    for _ in range(n):
        total += 1
    tl.store(x + tl.arange(0, 16), total)


@pytest.mark.parametrize("steps", [1, 40, 1000])
def test_a_bound_of_many_operations_is_not_written_out(steps):
    x = torch.ones(16)
    kernel = grown[(1,)](x, 1, STEPS=steps)  # 1 + 1 // 2 is 1
    assert x.eq(1).all()
    assert ("trips(" in grain(kernel)) == (steps == 1) and len(grain(kernel)) < 200
