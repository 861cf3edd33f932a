"""What is not covered is refused when the kernel is compiled, with the operation and the source line."""

import re

import pytest
import torch
import triton
import triton.language as tl

from opgraft.jit.backends.cpu.codegen import UnsupportedOperation


def refusal(kernel, *arguments, **constexprs):
    with pytest.raises(Exception) as error:
        kernel[(1,)](*arguments, **constexprs)
    found = error.value
    while found is not None and not isinstance(found, UnsupportedOperation):
        found = found.__cause__
    assert isinstance(found, UnsupportedOperation), repr(error.value)
    return str(found)


@triton.jit
def assembly_kernel(x_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    y = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(x_ptr + tl.arange(0, BLOCK), y)


def test_inline_assembly():
    message = refusal(assembly_kernel, torch.zeros(32, dtype=torch.int32), BLOCK=32)
    assert "tt.elementwise_inline_asm" in message
    assert re.search(r"test_refusals\.py:\d+: y = tl\.inline_asm_elementwise", message)


@triton.jit
def scaled_kernel(a_ptr, s_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    a = tl.load(a_ptr + at)
    s = tl.load(s_ptr + tl.arange(0, N)[:, None] * (N // 32) + tl.arange(0, N // 32)[None, :])
    tl.store(out_ptr + at, tl.dot_scaled(a, s, "e5m2", a, s, "e5m2"))


def test_scaled_products():
    a = torch.zeros(64, 64).to(torch.float8_e5m2)
    message = refusal(scaled_kernel, a, torch.zeros(64, 2, dtype=torch.uint8), torch.zeros(64, 64), N=64)
    assert "tt.dot_scaled" in message and re.search(r"test_refusals\.py:\d+: tl\.store.*tl\.dot_scaled", message)


@triton.jit
def towards_zero_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr + tl.arange(0, BLOCK), x.to(tl.bfloat16, fp_downcast_rounding="rtz"))


def test_rounding_towards_zero():
    message = refusal(towards_zero_kernel, torch.zeros(32), torch.zeros(32, dtype=torch.bfloat16), BLOCK=32)
    assert "rounding towards zero" in message and re.search(r"test_refusals\.py:\d+: tl\.store.*rtz", message)


@triton.jit
def moved_pointers_kernel(x_ptr, index_ptr, n, BLOCK: tl.constexpr):
    at = x_ptr + tl.arange(0, BLOCK)
    for _ in range(n):
        tl.store(at, 1.0)
        at += tl.load(index_ptr + tl.arange(0, BLOCK))


def test_carried_pointers_that_move_apart():
    message = refusal(moved_pointers_kernel, torch.zeros(64), torch.zeros(32, dtype=torch.int32), 3, BLOCK=32)
    assert "scf.for" in message and "'at'" in message


def test_an_unknown_function_of_libdevice():
    from triton.language.extra.cuda import libdevice

    @triton.jit
    def kernel(x_ptr, BLOCK: tl.constexpr):
        x = tl.load(x_ptr + tl.arange(0, BLOCK))
        tl.store(x_ptr + tl.arange(0, BLOCK), libdevice.erfinv(x))

    globals()["libdevice"] = libdevice
    message = refusal(kernel, torch.zeros(32), BLOCK=32)
    assert "__nv_erfinvf" in message and "test_refusals.py" in message


def test_the_public_libdevice_says_what_it_lacks():
    from opgraft.jit.backends.cpu import libdevice

    with pytest.raises(AttributeError, match=r"libdevice\.erfinv is not supported on the CPU"):
        libdevice.erfinv  # noqa: B018


def test_num_warps_must_be_a_power_of_two():
    @triton.jit
    def kernel(x_ptr):
        tl.store(x_ptr, 1.0)

    with pytest.raises(AssertionError, match="num_warps must be a power of 2, got 3"):
        kernel[(1,)](torch.zeros(1), num_warps=3)


@triton.jit
def returning_kernel(x_ptr):
    return tl.load(x_ptr)


def test_a_kernel_that_returns_a_value():
    message = refusal(returning_kernel, torch.zeros(4))
    assert re.search(r"tt.return of a value.*stores its results.*test_refusals.py", message)
