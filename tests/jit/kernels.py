"""Small kernels that several tests launch."""

import triton.language as tl

from opgraft.jit import jit


@jit
def add(x, y, out, n, BLOCK: tl.constexpr = 64):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@jit
def fill(out, value, n, BLOCK: tl.constexpr = 64):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, value, mask=i < n)


@jit
def plus_one(x):
    return x + 1


@jit
def times_two(x):
    return x * 2


@jit
def apply(out, n, F: tl.constexpr, BLOCK: tl.constexpr = 64):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, F(tl.load(out + i, mask=i < n)), mask=i < n)


@jit
def programs(out, WIDTH: tl.constexpr, HEIGHT: tl.constexpr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tl.atomic_add(out + (z * HEIGHT + y) * WIDTH + x, 1)
