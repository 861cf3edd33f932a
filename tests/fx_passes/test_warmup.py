"""Kernels are compiled while their graph is compiled, and not after."""

import pytest
import torch
import triton
import triton.language as tl

import opgraft
from opgraft.fx_passes.backend import opgraft as compile_graph
from opgraft.jit import jit
from opgraft.jit.events import on_compile


@jit
def row_scale_kernel(x, out, cols, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    tl.store(out + row * cols + col, tl.load(x + row * cols + col, mask=mask) * factor, mask=mask)


@opgraft.custom_op("ogwarm::row_scale")
def row_scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    out = torch.empty_like(x)
    row_scale_kernel[(x.shape[0],)](x, out, x.shape[1], factor, BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


@opgraft.custom_op("ogwarm::fixed_block")
def fixed_block(x: torch.Tensor, factor: float) -> torch.Tensor:
    out = torch.empty_like(x)
    row_scale_kernel[(x.shape[0],)](x, out, x.shape[1], factor, BLOCK=2048)
    return out


class Watch:
    """Compiles a function and tells kernel compiles during graph compilation from those after it."""

    def __init__(self, fn, dynamic):
        torch._dynamo.reset()
        self.graphs = 0
        self.during, self.after = [], []
        self._compiling = False
        self._stop = on_compile(self._seen)
        self._fn = torch.compile(fn, backend=self._backend, dynamic=dynamic, fullgraph=True)

    def _backend(self, gm, inputs, **kwargs):
        self.graphs += 1
        self._compiling = True
        try:
            return compile_graph(gm, inputs, **kwargs)
        finally:
            self._compiling = False

    def _seen(self, event):
        (self.during if self._compiling else self.after).append(event.kernel)

    def __call__(self, *args):
        return self._fn(*args)

    def close(self):
        self._stop()


@pytest.fixture
def watch():
    made = []

    def make(fn, dynamic):
        made.append(Watch(fn, dynamic))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_with_static_sizes_nothing_is_compiled_after_the_graph(watch, device):
    compiled = watch(lambda x: row_scale(x.relu(), 3.0), dynamic=False)
    x = torch.randn(4, 100, device=device)
    torch.testing.assert_close(compiled(x), x.relu() * 3)
    assert compiled.during
    assert compiled.after == []


def test_with_dynamic_sizes_nothing_is_compiled_after_the_graph_whatever_the_size(watch, device):
    compiled = watch(lambda x: fixed_block(x.relu(), 3.0), dynamic=True)
    for rows, cols in ((4, 96), (5, 97), (3, 1000), (16, 1024), (7, 2)):
        x = torch.randn(rows, cols, device=device)
        torch.testing.assert_close(compiled(x), x.relu() * 3)
    assert compiled.graphs == 1
    assert compiled.during
    assert compiled.after == []


def test_a_block_size_from_a_dynamic_size_makes_one_graph_for_each_power_of_two(watch, device):
    compiled = watch(lambda x: row_scale(x.relu(), 3.0), dynamic=True)
    for cols in (33, 50, 64, 65, 100, 128, 129, 40):
        x = torch.randn(4, cols, device=device)
        torch.testing.assert_close(compiled(x), x.relu() * 3)
    assert compiled.graphs == 3
    assert compiled.after == []


def test_the_kernels_of_a_backward_are_compiled_with_its_graph(watch, device):
    def setup(ctx, inputs, output):
        ctx.factor = inputs[1]

    @opgraft.custom_op("ogwarm::trained")
    def trained(x: torch.Tensor, factor: float) -> torch.Tensor:
        out = torch.empty_like(x)
        row_scale_kernel[(x.shape[0],)](x, out, x.shape[1], factor, BLOCK=512)
        return out

    trained.register_autograd(lambda ctx, grad: (trained(grad.contiguous(), ctx.factor), None), setup_context=setup)
    compiled = watch(lambda x: trained(x, 3.0).sum(), dynamic=False)
    x = torch.randn(4, 300, device=device, requires_grad=True)
    loss = compiled(x)
    before = len(compiled.after)
    loss.backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 3))
    assert before == 0


def test_a_size_beyond_the_assumed_range_takes_the_general_variant_that_was_compiled_too(watch):
    """A size of 2**31 and more needs no memory of that size: the grid may be empty of work."""

    @jit
    def first_kernel(x, out, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at) + (n >> 31).to(tl.float32))

    @opgraft.custom_op("ogwarm::beyond")
    def beyond(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        first_kernel[(1,)](x, out, like.shape[0], BLOCK=16)
        return out

    compiled = watch(lambda x, like: beyond(x, like), dynamic=True)
    x = torch.zeros(16)
    small = torch.zeros(1).expand(100)
    large = torch.zeros(1).expand(3 * 2**31)
    assert compiled(x, small).eq(0).all()
    assert compiled(x, large).eq(3).all()
    assert compiled.graphs == 1
    assert compiled.after == []
