"""The torch.compile backend `opgraft`: Inductor, the user's passes, then ours."""

import torch
import triton
import triton.language as tl

import opgraft
from opgraft.fx_passes.launches import launches
from opgraft.fx_passes.passes import Combined, post_grad_passes
from opgraft.jit import jit


@jit
def negate_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, -tl.load(x + offsets, mask=mask), mask=mask)


@opgraft.custom_op("ogbackend::negate")
def negate(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    negate_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out


def test_torch_compile_knows_the_backend_by_name():
    assert "opgraft" in torch._dynamo.list_backends()


def test_options_and_modes_reach_inductor():
    torch._dynamo.reset()
    x = torch.randn(100)
    for settings in ({"options": {"max_autotune": False}}, {"mode": "default"}, {"mode": "max-autotune-no-cudagraphs"}):
        compiled = torch.compile(lambda x: negate(x) * 2, backend="opgraft", fullgraph=True, **settings)
        torch.testing.assert_close(compiled(x), -2 * x)


def test_a_users_pass_still_runs():
    from torch._inductor import config

    torch._dynamo.reset()
    seen = []

    def count(graph):
        seen.append(len(list(launches(graph))))

    with config.patch(post_grad_custom_post_pass=count, force_disable_caches=True):
        torch.compile(lambda x: negate(negate(x)), backend="opgraft", fullgraph=True)(torch.randn(10))
    assert seen == [2]


def test_the_identity_of_the_passes_covers_the_users_and_is_stable():
    class User:
        def __init__(self, identity):
            self.identity = identity

        def __call__(self, graph):
            pass

        def uuid(self):
            return self.identity

    def identity(*users):
        return Combined(list(users), post_grad_passes()).uuid()

    assert identity() == identity()
    assert identity(User("a")) == identity(User("a"))
    assert len({identity(), identity(User("a")), identity(User("b"))}) == 3
    assert identity(lambda graph: None) is None
