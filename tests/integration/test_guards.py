"""Constants that a launch makes of sizes hold for those sizes alone, also where compile caches serve the graph."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import sys, torch, triton, triton.language as tl, opgraft
from opgraft.jit import jit

@jit
def mul_kernel(x, w, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * tl.load(w + at, mask=at < n), mask=at < n)

@opgraft.custom_op("ogguards::mul")
def mul(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    mul_kernel[(1,)](x, w, out, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    return out

mul.register_autograd(
    lambda ctx, g: (g * ctx.saved_tensors[1], g * ctx.saved_tensors[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
compiled = torch.compile(lambda x, w: mul(x.sin(), w), fullgraph=True)
for n in map(int, sys.argv[1:]):
    x, w = torch.ones(n, requires_grad=True), torch.ones(n, requires_grad=True)
    y = compiled(x, w)  # the two sizes are found to be equal in the backward alone
    y.sum().backward()
    torch.testing.assert_close(y, x.sin() * w)
    torch.testing.assert_close(x.grad, x.cos() * w)
"""


def test_a_cached_graph_of_a_training_step_is_not_served_for_other_sizes(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("TORCHINDUCTOR_FORCE_DISABLE_CACHES", None)
    for sizes in (["100", "64", "128"], ["100", "200"]):
        done = subprocess.run([sys.executable, str(program), *sizes], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
