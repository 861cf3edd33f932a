"""Tensors that are not contiguous: a kernel sees the strides that its body saw, eager and compiled, and nothing else
is written.
"""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import opgraft
from opgraft.jit import jit


@jit
def flat_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


@jit
def strided_kernel(x, out, rows, cols, row_stride, col_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    value = tl.load(x + row * row_stride + col * col_stride, mask=col < cols)
    tl.store(out + row * cols + col, value * 2, mask=col < cols)


@opgraft.custom_op("ogstrides::flat")
def flat(x: torch.Tensor) -> torch.Tensor:
    """Takes memory as it comes: right for dense tensors, whose elements it gives in the order of memory."""
    out = torch.empty(x.numel(), dtype=x.dtype, device=x.device)
    flat_kernel[(4,)](x, out, x.numel(), BLOCK=32)
    return out


@opgraft.custom_op("ogstrides::strided")
def strided(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    strided_kernel[(x.shape[0],)](x, out, *x.shape, *x.stride(), BLOCK=32)
    return out


@opgraft.custom_op("ogstrides::double_", mutates_args=["x"])
def double_(x: torch.Tensor) -> None:
    strided_double_kernel[(x.shape[0],)](x, *x.shape, *x.stride(), BLOCK=32)


@jit
def strided_double_kernel(x, rows, cols, row_stride, col_stride, BLOCK: tl.constexpr):
    col = tl.arange(0, BLOCK)
    at = x + tl.program_id(0) * row_stride + col * col_stride
    tl.store(at, tl.load(at, mask=col < cols) * 2, mask=col < cols)


VIEWS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t(),
    "every other column": lambda x: x[:, ::2],
    "every other row": lambda x: x[1::2],
    "expanded": lambda x: x[:1].expand(5, -1),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("made_inside", [False, True], ids=["argument", "made inside"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_body_that_passes_strides_reads_any_tensor(device, view, made_inside, compiled):
    x = torch.randn(8, 10, device=device)
    function = (lambda x: strided(VIEWS[view](x + 1))) if made_inside else (lambda x: strided(VIEWS[view](x)))
    if compiled:
        function = torch.compile(function, fullgraph=True)
    torch.testing.assert_close(function(x), 2 * VIEWS[view](x + 1 if made_inside else x))


@pytest.mark.parametrize("made_inside", [False, True], ids=["argument", "made inside"])
def test_a_body_that_ignores_strides_sees_the_same_memory_eager_and_compiled(device, made_inside):
    x = torch.randn(8, 10, device=device)
    before = x.clone()
    function = (lambda x: flat((x + 1).t())) if made_inside else (lambda x: flat(x.t()))
    expected = function(x)
    torch.testing.assert_close(expected, 2 * (x + 1 if made_inside else x).flatten())
    assert torch.compile(function, fullgraph=True)(x).equal(expected)
    assert x.equal(before)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("view", [name for name in VIEWS if name != "expanded"])
def test_only_the_elements_of_a_view_are_written(device, view, compiled):
    x = torch.randn(8, 10, device=device)
    expected = x.clone()
    VIEWS[view](expected).mul_(2)

    def function(x):
        double_(VIEWS[view](x))

    (torch.compile(function, fullgraph=True) if compiled else function)(x)
    torch.testing.assert_close(x, expected)


@pytest.mark.parametrize("calls", [0, 3], ids=["the first call", "a later one"])
@pytest.mark.parametrize("shape", [(5, -1), (5, 1)])
def test_a_written_tensor_that_overlaps_itself_is_refused(device, calls, shape):
    for _ in range(calls):
        double_(torch.ones(4, 4, device=device))
    x = torch.ones(1, 10 if shape[1] == -1 else 1, device=device)
    with pytest.raises(RuntimeError, match=r"ogstrides::double_: writes a tensor .* clone\(\) it first"):
        double_(x.expand(shape))
    assert x.eq(1).all()
    double_(torch.ones(4, 1, device=device).expand(4, 1))


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("inside", [False, True], ids=["expanded before", "expanded in the graph"])
def test_a_written_tensor_that_overlaps_itself_is_refused_in_a_graph(device, inside, dynamic):
    x = torch.ones(1, 10, device=device)
    call = torch.compile(lambda x: double_(x.expand(5, -1) if inside else x), fullgraph=True, dynamic=dynamic)
    with pytest.raises(Exception, match=r"ogstrides::double_: writes a tensor .* clone\(\) it first"):
        call(x if inside else x.expand(5, -1))
    assert x.eq(1).all()
    whole = torch.ones(5, 10, device=device)
    torch.compile(lambda x: double_(x), fullgraph=True, dynamic=dynamic)(whole)
    assert whole.eq(2).all()
