"""How many programs a thread must get: loops count as often as they run."""

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


def grain(kernel) -> int:
    (line,) = (line for line in kernel.asm["cpp"].splitlines() if "run_grid<" in line)
    return int(line.split("(", 1)[1].split(", ")[4])


def test_a_program_of_many_iterations_is_worth_a_thread():
    x = torch.zeros(1024)
    short, long = (looped[(1,)](x, 3, N) for N in (2, 400))
    assert grain(short) > grain(long) == 1
