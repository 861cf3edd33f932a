"""The program that test_cache_identity.py edits and runs, each time in a process of its own."""

import importlib.util
import os
import sys
import textwrap

PROGRAM = """
import torch, triton, triton.language as tl
import opgraft
from opgraft.jit import jit

GLOBAL = tl.constexpr({constant})
FACTOR = {factor}

@jit
def helper(v):
    return v + {helper}

@jit
def shift_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, helper(tl.load(x + offsets, mask=mask)) + {kernel} + GLOBAL, mask=mask)

def scaled(t):
    return t * FACTOR

@opgraft.custom_op("ogcache::shift")
def shift(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    shift_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return scaled(out) + {body}

shift.register_autograd(lambda ctx, grad: grad * {backward})
"""
BASE = {"constant": 0, "factor": 1, "helper": 0, "kernel": 1, "body": 0, "backward": 1}


def expected(values):
    forward = (values["helper"] + values["kernel"] + values["constant"]) * values["factor"] + values["body"]
    return forward, values["backward"]


def run_program(folder, values, backend, channel):
    """Import the program and train one step on zeros; report result, gradient and cache counters."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
    os.environ["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] = "0"
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
    path = os.path.join(folder, "program.py")
    with open(path, "w") as file:
        file.write(textwrap.dedent(PROGRAM.format(**values)))
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    sys.modules["program"] = program
    spec.loader.exec_module(program)

    import torch
    from torch._dynamo.utils import counters

    x = torch.zeros(100, requires_grad=True)
    result = torch.compile(program.shift, backend=backend, fullgraph=True)(x)
    result.sum().backward()
    counts = {**counters["aot_autograd"], **counters["inductor"]}
    channel.send((result[0].item(), x.grad[0].item(), {k: v for k, v in counts.items() if "cache" in k}))
