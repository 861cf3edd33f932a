"""Launches that write a part of a tensor, in bodies of ops: compiled as in eager mode."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import opgraft
from opgraft.jit import jit


@jit
def add_one_kernel(x, n, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < n
    tl.store(x + at * stride, tl.load(x + at * stride, mask=inside) + 1, mask=inside)


def add_one(x):
    add_one_kernel[(1,)](x, x.numel(), x.stride(-1), BLOCK=16)


PARTS = {
    "tail": lambda x: [x.view(-1)[3:]],
    "row": lambda x: [x[1]],
    "rows": lambda x: [x[0], x[2]],
    "column": lambda x: [x[:, 1]],
    "part of a part": lambda x: [x[1:][0][1:]],
    "same part twice": lambda x: [x[1], x[1]],
}


def define(name):
    @opgraft.custom_op(f"ogparts::{name.replace(' ', '_')}")
    def op(x: torch.Tensor) -> torch.Tensor:
        out = x.clone()
        for part in PARTS[name](out):
            add_one(part)
        return out

    op.register_autograd(lambda ctx, grad: grad)
    return op


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor", "opgraft"])
@pytest.mark.parametrize("name", PARTS)
def test_compiled_as_in_eager_mode(name, backend, training, device):
    torch._dynamo.reset()
    op = define(name)
    x = torch.arange(12.0, device=device).view(3, 4).requires_grad_(training)
    expected = x.detach().clone() * 1
    for part in PARTS[name](expected):
        part += 1
    torch.testing.assert_close(op(x * 1), expected)
    compiled = torch.compile(lambda x: op(x * 1), fullgraph=True, backend=backend, dynamic=False)
    result = compiled(x)
    torch.testing.assert_close(result, expected)
    if training:
        result.sum().backward()
        assert x.grad.eq(1).all()


@pytest.mark.parametrize("bare", [False, True], ids=["op", "bare launch"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", PARTS)
def test_where_a_part_begins_may_depend_on_dynamic_sizes(name, backend, bare, device):
    torch._dynamo.reset()
    op = define(name)

    def launches(x):
        out = x.clone()
        for part in PARTS[name](out):
            add_one(part)
        return out

    compiled = torch.compile(launches if bare else (lambda x: op(x)), fullgraph=True, backend=backend, dynamic=True)
    for shape in ((3, 10), (4, 7)):
        x = torch.zeros(shape, device=device)
        expected = x.clone()
        for part in PARTS[name](expected):
            part[:16] += 1  # the kernel's block
        torch.testing.assert_close(compiled(x), expected)
