"""TRITON_INTERPRET=1: ops whose kernels run as Python, eager, fake, compiled and differentiated."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import torch, triton.language as tl
from torch._subclasses.fake_tensor import FakeTensorMode
import opgraft
from opgraft.jit import jit

launched = []

@jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

double_kernel.add_pre_run_hook(lambda *args, **kwargs: launched.append(type(args[0]).__name__))

@opgraft.custom_op("oginterpret::double")
def double(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    double_kernel[(2,)](x, out, x.numel(), BLOCK=16)
    return out

@opgraft.custom_op("oginterpret::double_", mutates_args=["x"])
def double_(x: torch.Tensor) -> None:
    double_kernel[(2,)](x, x, x.numel(), BLOCK=16)

double.register_autograd(lambda ctx, grad: double(grad))

x = torch.randn(20)
assert double(x).equal(2 * x)
assert launched == ["Tensor"], launched

with FakeTensorMode():
    assert double(torch.empty(20)).shape == (20,)
assert double(torch.empty(20, device="meta")).is_meta
assert launched == ["Tensor"], "nothing runs without memory"

def function(x):
    y = double(x) + 1
    double_(y)
    return y

for backend in ("inductor", "opgraft", "aot_eager"):
    torch._dynamo.reset()
    launched.clear()
    assert torch.compile(function, fullgraph=True, backend=backend)(x).equal(2 * (2 * x + 1)), backend
    assert len(launched) == 2, (backend, launched)

leaf = x.clone().requires_grad_()
double(leaf).sum().backward()
assert leaf.grad.eq(2).all()
torch.library.opcheck(torch.ops.oginterpret.double.default, (x,))
print("all right")
"""


def test_ops_on_the_interpreter(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1:] == ["all right"], done.stderr
