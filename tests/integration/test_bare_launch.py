"""Kernels launched bare in a compiled function: what Dynamo traces, and what it refuses by name."""

import pytest
import torch
import triton
import triton.language as tl

from opgraft.jit import jit


@jit
def affine_kernel(x, out, n, scale, shift, BLOCK: tl.constexpr, NEGATE: tl.constexpr = False):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask) * scale
    if shift is not None:
        value += tl.load(shift + offsets, mask=mask)
    if NEGATE:
        value = -value
    tl.store(out + offsets, value, mask=mask)


@jit
def pair_kernel(pair, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(pair[1] + offsets, tl.load(pair[0] + offsets, mask=mask) + 1, mask=mask)


@jit
def double(v):
    return v * 2


@jit
def apply_kernel(x, out, n, FN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, FN(tl.load(x + offsets, mask=mask)), mask=mask)


def grid_function(x, scale=2.0, shift=None, **options):
    out = torch.empty_like(x)
    n = x.numel()
    affine_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, scale, shift, BLOCK=128, **options)
    return out


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor", "opgraft"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_launch_with_a_grid_function_traces_into_one_graph(backend, dynamic, device):
    compiled = torch.compile(lambda x: grid_function(x) + 1, backend=backend, dynamic=dynamic, fullgraph=True)
    for n in (300, 77):
        x = torch.randn(n, device=device)
        torch.testing.assert_close(compiled(x), 2 * x + 1)


def test_none_and_tensor_arguments_are_told_apart(device):
    compiled = torch.compile(grid_function, fullgraph=True)
    x, shift = torch.randn(64, device=device), torch.randn(64, device=device)
    torch.testing.assert_close(compiled(x), 2 * x)
    torch.testing.assert_close(compiled(x, shift=shift), 2 * x + shift)


def test_defaults_and_options_reach_the_kernel(device):
    compiled = torch.compile(lambda x: grid_function(x, NEGATE=True, num_warps=2), fullgraph=True)
    x = torch.randn(64, device=device)
    torch.testing.assert_close(compiled(x), -2 * x)


def test_a_kernel_with_its_grid_may_come_from_outside(device):
    launch = affine_kernel[(3,)]

    def f(x):
        out = torch.empty_like(x)
        launch(x, out, x.numel(), 2.0, None, BLOCK=128)
        return out + 1

    x = torch.randn(300, device=device)
    torch.testing.assert_close(torch.compile(f, fullgraph=True)(x), 2 * x + 1)


def test_tuples_of_tensors_are_opened(device):
    def f(x):
        out = torch.empty_like(x)
        pair_kernel[(1,)]((x, out), x.numel(), BLOCK=64)
        return out

    x = torch.randn(50, device=device)
    torch.testing.assert_close(torch.compile(f, fullgraph=True)(x), x + 1)


def test_a_kernel_as_constexpr_reaches_the_kernel(device):
    def f(x):
        out = torch.empty_like(x)
        apply_kernel[(1,)](x, out, x.numel(), FN=double, BLOCK=64)
        return out

    x = torch.randn(50, device=device)
    torch.testing.assert_close(torch.compile(f, fullgraph=True)(x), x * 2)


def test_a_float_argument_is_no_constant_of_the_kernel(device):
    compiled = torch.compile(grid_function, fullgraph=True)
    x = torch.randn(64, device=device)
    for scale in (1.5, 2.5, 3.5):
        torch.testing.assert_close(compiled(x, scale=scale), x * scale)


def test_writing_an_input_or_a_view_of_it_writes_the_input(device):
    def f(x, buffer):
        affine_kernel[(1,)](x, buffer[2 : 2 + x.numel()], x.numel(), 3.0, None, BLOCK=64)
        return buffer.sum()

    x, buffer = torch.randn(40, device=device), torch.zeros(60, device=device)
    total = torch.compile(f, fullgraph=True)(x, buffer)
    torch.testing.assert_close(buffer[2:42], 3 * x)
    torch.testing.assert_close(total, buffer.sum())


def test_the_same_tensor_read_and_written_is_right(device):
    def f(x):
        y = x.clone()
        affine_kernel[(1,)](y, y, y.numel(), 3.0, None, BLOCK=64)
        return y

    x = torch.randn(40, device=device)
    torch.testing.assert_close(torch.compile(f, fullgraph=True)(x), 3 * x)


def test_a_grid_of_four_axes_is_refused(device):
    def f(x):
        affine_kernel[(1, 1, 1, 1)](x, x, x.numel(), 1.0, None, BLOCK=64)
        return x

    with pytest.raises(Exception, match="one to three axes"):
        torch.compile(f, fullgraph=True)(torch.randn(8, device=device))


def test_a_missing_argument_is_refused_by_name(device):
    def f(x):
        affine_kernel[(1,)](x, x, BLOCK=64)
        return x

    with pytest.raises(Exception, match="misses its argument 'n'"):
        torch.compile(f, fullgraph=True)(torch.randn(8, device=device))


def test_another_value_of_a_launch_option_is_another_graph_not_a_stale_one(device):
    def f(x, negate):
        return grid_function(x, NEGATE=negate)

    compiled = torch.compile(f, fullgraph=True)
    x = torch.randn(64, device=device)
    torch.testing.assert_close(compiled(x, True), -2 * x)
    torch.testing.assert_close(compiled(x, False), 2 * x)


def test_under_grad_a_bare_launch_raises_rather_than_give_zeros(device):
    x = torch.randn(64, device=device)
    with pytest.raises(RuntimeError, match="register_autograd"):
        torch.func.grad(lambda t: grid_function(t).sum())(x)


def test_under_vmap_a_bare_launch_raises(device):
    with pytest.raises(RuntimeError, match="cannot be vmapped"):
        torch.vmap(grid_function)(torch.randn(3, 64, device=device))
