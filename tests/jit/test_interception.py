"""Launches on tensors that stand for others are offered before anything reads an address."""

import pytest
import torch

# Loading it has others register, which must not happen in the middle of a test.
import torch._dynamo.variables.builder
from torch._subclasses.fake_tensor import FakeTensorMode

from opgraft.jit import interception, jit

from .kernels import fill


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch):
    """Only the interceptors of the test."""
    monkeypatch.setattr(interception, "providers", [])
    monkeypatch.setattr(interception, "_interceptors", [])


@pytest.fixture
def offered():
    """What is offered to an interceptor that takes everything."""
    seen = []

    def take(kernel, grid, arguments, options, warmup):
        seen.append((kernel, grid, arguments, options, warmup))
        return "taken"

    remove = interception.register(take)
    yield seen
    remove()


def test_a_fake_tensor_is_offered_with_bound_arguments(offered):
    with FakeTensorMode():
        fake = torch.empty(64)
    kernel = jit(fill.fn)
    assert kernel[(3,)](fake, 1.0, n=64, num_warps=2) == "taken"
    ((found, grid, arguments, options, warmup),) = offered
    assert found is kernel and grid == (3,) and warmup is False
    assert arguments == {"out": fake, "value": 1.0, "n": 64, "BLOCK": 64}
    assert options["num_warps"] == 2
    assert not kernel.device_caches


def test_a_grid_function_is_handed_on(offered):
    with FakeTensorMode():
        fake = torch.empty(64)
    grid = lambda arguments: (1,)
    fill[grid](fake, 1.0, 64)
    assert offered[0][1] is grid


def test_any_launch_under_a_dispatch_mode_is_offered(offered):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    out = torch.zeros(64)
    for _ in range(3):
        fill[(1,)](out, 1.0, 64)
    with Mode():
        assert fill[(1,)](out, 2.0, 64) == "taken"
    assert len(offered) == 1


def test_a_tensor_of_a_transform_is_offered(offered):
    torch.vmap(lambda x: (fill[(1,)](x, 1.0, 64), x)[1])(torch.zeros(2, 64))
    assert len(offered) == 1


def test_symbolic_numbers_and_tuples_with_special_tensors_are_offered(offered):
    with FakeTensorMode():
        fake = torch.empty(64)

    @jit
    def kernel(pair, n):
        pass

    kernel[(1,)]((1, (fake,)), 3)
    assert len(offered) == 1


def test_plain_launches_are_not_offered(offered):
    out = torch.zeros(64)
    fill[(1,)](out, 1.0, 64)
    fill[(1,)](torch.nn.Parameter(out), 2.0, 64)
    assert not offered and out[0] == 2.0


def test_what_is_left_goes_to_the_next_and_then_to_the_launch():
    order = []

    def leave(name):
        def interceptor(*event):
            order.append(name)
            return NotImplemented

        return interceptor

    removes = [interception.register(leave(name)) for name in ("first", "second")]
    out = torch.zeros(64)
    try:
        with interception.all_launches():
            fill[(1,)](out, 3.0, 64)
    finally:
        for remove in removes:
            remove()
    assert order == ["second", "first"]
    assert out[0] == 3.0
