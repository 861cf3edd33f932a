"""A constexpr computed from a dynamic size is a constant of its graph: one graph for each value that is met."""

import torch
import triton
import triton.language as tl

import opgraft
from opgraft.jit import jit


@jit
def negate_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, -tl.load(x + at, mask=at < n), mask=at < n)


@opgraft.custom_op("symbolic_constexpr::negate")
def negate(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    negate_kernel[(1,)](x, out, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    return out


def test_one_graph_for_each_power_of_two() -> None:
    torch._dynamo.reset()
    graphs = []

    def counting(gm: torch.fx.GraphModule, inputs: object) -> object:
        from torch._inductor.compile_fx import compile_fx

        graphs.append(gm)
        return compile_fx(gm, inputs)

    run = torch.compile(negate, dynamic=True, fullgraph=True, backend=counting)
    for size in (5, 6, 7, 8, 20, 31, 32, 6, 25):
        x = torch.randn(size)
        assert torch.equal(run(x), -x)
    assert len(graphs) == 2


def test_torch_checks_of_an_op_with_symbolic_sizes_pass() -> None:
    torch.library.opcheck(torch.ops.symbolic_constexpr.negate.default, (torch.randn(6),))
