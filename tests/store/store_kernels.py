"""Kernels and sources for the tests of the store. Imported by tests and by their subprocesses alike."""

from __future__ import annotations

import enum
from typing import NamedTuple

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource

CUDA = GPUTarget("cuda", 80, 32)
ALIGNED = [["tt.divisibility", 16]]


def cpu_target():
    from opgraft.jit.backends.cpu.driver import CPUDriver

    return CPUDriver().get_current_target()


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    tl.store(out + index, tl.load(x + index, mask=mask) + tl.load(y + index, mask=mask), mask=mask)


@triton.jit
def fill(out, value):
    tl.store(out, value)


@triton.jit
def broken(out):
    tl.store(out, undefined_name)  # noqa: F821


def add_source(block=64, pointer="*fp32", divisible=True, n="i32"):
    signature = {"x": pointer, "y": pointer, "out": pointer, "n": n, "BLOCK": "constexpr"}
    attributes = {(index,): ALIGNED for index in range(4 if divisible else 3) if index < 3 or n == "i32"}
    constants = {(4,): block}
    if n == "constexpr":
        constants[3,] = 1
    return ASTSource(add, signature, constants, attributes)


def fill_source(value="i32", pointer="*i32"):
    return ASTSource(fill, {"out": pointer, "value": value}, {}, {})


def broken_source():
    return ASTSource(broken, {"out": "*i32"}, {}, {})


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    first: int
    second: float


class Plain:
    """An object with the default repr, which names its address."""

    def __init__(self, value):
        self.value = value
        self.names = {"b", "a", "c"}


@triton.jit
def constants(out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, D: tl.constexpr, E: tl.constexpr):
    tl.store(out, 1)


def many_constants_source():
    signature = {"out": "*i32", **dict.fromkeys("ABCDE", "constexpr")}
    values = [Color.BLUE, Pair(1, -0.0), Plain(3), tl.float16, ("text", None, True, fill)]
    return ASTSource(constants, signature, {(index + 1,): value for index, value in enumerate(values)}, {})


@triton.jit
def double(x):
    return x * 2


@triton.jit
def scaled(x, pair, function, n, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    mask = index < n
    tl.store(pair[0] + index, function(tl.load(x + index, mask=mask)) + pair[1], mask=mask)
