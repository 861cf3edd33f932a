"""Torch's own operations in an op's body: what they write must be declared."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

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
    with FakeTensorMode(shape_env=ShapeEnv()):
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
    with pytest.raises(RuntimeError, match=r'message: aten.add_.Tensor .* mutates_args=\("x",\)'):
        op(torch.rand(4), torch.rand(4))
    with FakeTensorMode(), pytest.raises(RuntimeError, match=r'message: aten.add_.Tensor .* mutates_args=\("x",\)'):
        op(torch.empty(4), torch.empty(4))


def shape_of_a_view(x):
    y = x.view(2, 2)
    y.t_()
    return y.unsqueeze_(0).sum()


def a_loop(x):
    return torch._higher_order_ops.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))[1]


@pytest.mark.parametrize("call", [eager, fake, compiled, traced], ids=lambda f: f.__name__)
@pytest.mark.parametrize("work", [shape_of_a_view, a_loop], ids=lambda f: f.__name__)
def test_what_writes_nothing_is_not_refused(work, call):
    torch._dynamo.reset()

    @opgraft.custom_op(f"ogtorchwrites::no_{work.__name__}")
    def op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return work(x) + y

    call(op)


def test_a_body_that_cannot_be_traced_is_not_refused_on_suspicion():
    def shape_of_a_view_by_value(x):
        if x.sum().item() >= 0:
            x.view(2, 2).t_()

    assert define("by_value", shape_of_a_view_by_value)(torch.zeros(4), torch.zeros(4)).eq(1).all()


def test_an_argument_may_have_attributes_of_its_own():
    x = torch.zeros(4)
    x.elem = "a name"
    assert define("attribute", lambda x: None)(x, torch.zeros(4)).eq(1).all()


def test_a_write_of_others_to_the_same_storage_is_not_blamed_on_the_body():
    base = torch.zeros(8)

    @opgraft.custom_op("ogtorchwrites::beside")
    def beside(x: torch.Tensor) -> torch.Tensor:
        if type(x) is torch.Tensor:  # as another thread would, during the call
            base[4:].add_(1)
        return x + 1

    assert beside(base[:4]).eq(1).all()
