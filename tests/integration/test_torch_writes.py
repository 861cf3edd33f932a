"""Torch's own operations in an op's body: what they write must be declared."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import opgraft


@opgraft.custom_op("ogtorchwrites::fill_", mutates_args=["x"])
def fill_(x: torch.Tensor) -> None:
    x.fill_(7.0)


def plus(x):
    x += 1


def sliced(x):
    x[1:] = 3.0


def through_a_view(x):
    x.view(-1).t().zero_()


def out_argument(x):
    torch.exp(x, out=x)


def copied(x):
    x.detach().copy_(torch.ones_like(x))


def several(x):
    torch._foreach_add_([torch.zeros(1, device=x.device), x], 1.0)


def another_op(x):
    fill_(x)


WRITES = [plus, sliced, through_a_view, out_argument, copied, several, another_op]


def define(name, write, mutates=()):
    def body(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        own = y.clone()
        own += 1  # the body's own memory
        write(x)
        return own + x

    return opgraft.custom_op(f"ogtorchwrites::{name}", body, mutates_args=mutates)


def eager(op):
    op(torch.rand(4), torch.rand(4))


def fake(op):
    with FakeTensorMode():
        op(torch.empty(4), torch.empty(4))


def compiled(op):
    torch.compile(lambda x, y: op(x, y), fullgraph=True, backend="aot_eager")(torch.rand(4), torch.rand(4))


def traced(op):
    make_fx(lambda x, y: op(x, y), tracing_mode="fake")(torch.rand(4), torch.rand(4))


def derived(op):
    op(torch.rand(4, requires_grad=True), torch.rand(4))


CALLS = [eager, fake, compiled, traced, derived]


@pytest.mark.parametrize("call", CALLS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("write", WRITES, ids=lambda f: f.__name__)
def test_an_undeclared_write_is_refused(write, call):
    op = define(f"undeclared_{write.__name__}", write)
    with pytest.raises(Exception, match=r"writes the argument .{0,2}x.{0,2}, which the op does not declare"):
        call(op)


@pytest.mark.parametrize("write", WRITES, ids=lambda f: f.__name__)
def test_a_declared_write_is_done(write):
    op = define(f"declared_{write.__name__}", write, ["x"])
    x, y = torch.rand(4), torch.rand(4)
    expected = x.clone()
    write(expected)
    for run in (op, torch.compile(lambda x, y: op(x, y), fullgraph=True, backend="aot_eager")):
        for _ in range(2):
            mine = x.clone()
            torch.testing.assert_close(run(mine, y), y + 1 + expected)
            torch.testing.assert_close(mine, expected)


def test_arguments_that_share_memory_are_declared_together():
    base = torch.ones(8)

    @opgraft.custom_op("ogtorchwrites::half_", mutates_args=["x"])
    def half_(x: torch.Tensor, y: torch.Tensor) -> None:
        x.mul_(0.5)

    half_(base[:4], base)  # y sees the write of x, which is declared
    assert base.tolist() == [0.5] * 4 + [1.0] * 4


def test_the_message_says_what_to_declare():
    op = define("message", plus)
    with pytest.raises(RuntimeError, match=r'message: an operation of torch.* mutates_args=\("x",\)'):
        op(torch.rand(4), torch.rand(4))
    with FakeTensorMode(), pytest.raises(RuntimeError, match=r'message: aten.add_.Tensor .* mutates_args=\("x",\)'):
        op(torch.empty(4), torch.empty(4))
