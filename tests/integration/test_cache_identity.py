"""Compile caches on disk: an edit is never followed by an old result, an unchanged program always hits.

Each step runs in a process of its own; all share one cache folder.
"""

import multiprocessing
import os
import textwrap

import pytest

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
    import importlib.util

    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
    os.environ["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] = "0"
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
    path = os.path.join(folder, "program.py")
    with open(path, "w") as file:
        file.write(textwrap.dedent(PROGRAM.format(**values)))
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["program"] = program
    spec.loader.exec_module(program)

    import torch
    from torch._dynamo.utils import counters

    x = torch.zeros(100, requires_grad=True)
    result = torch.compile(program.shift, backend=backend, fullgraph=True)(x)
    result.sum().backward()
    counts = {**counters["aot_autograd"], **counters["inductor"]}
    channel.send((result[0].item(), x.grad[0].item(), {k: v for k, v in counts.items() if "cache" in k}))


@pytest.fixture(scope="module")
def processes():
    """Starts processes that have torch's compiler imported and none of its state."""
    disabled = os.environ.pop("TORCHINDUCTOR_FORCE_DISABLE_CACHES", None)  # the test run's, see conftest.py
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._inductor.compile_fx", "triton", "opgraft.integration"])
    warm = context.Process(target=int)  # starts the server with this environment
    warm.start()
    warm.join()
    if disabled is not None:
        os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = disabled
    return context


def run(processes, folder, values, backend="inductor"):
    receive, send = processes.Pipe(duplex=False)
    process = processes.Process(target=run_program, args=(str(folder), values, backend, send))
    process.start()
    send.close()
    try:
        return receive.recv()
    except EOFError:
        pytest.fail("the program raised, see its output")
    finally:
        process.join()


@pytest.mark.parametrize("backend", ["inductor", "opgraft"])
def test_an_unchanged_program_hits_and_every_edit_is_seen(processes, tmp_path, backend):
    forward, backward, counts = run(processes, tmp_path, BASE, backend)
    assert (forward, backward) == expected(BASE)
    assert counts.get("autograd_cache_miss") == 1
    assert counts.get("autograd_cache_saved") == 1

    forward, backward, counts = run(processes, tmp_path, BASE, backend)
    assert (forward, backward) == expected(BASE)
    assert counts.get("autograd_cache_hit") == 1
    assert "autograd_cache_miss" not in counts

    edits = BASE if backend == "inductor" else ["kernel"]
    for edit in edits:
        values = {**BASE, edit: BASE[edit] + 2}
        forward, backward, counts = run(processes, tmp_path, values, backend)
        assert (forward, backward) == expected(values), f"an edit of the {edit} was not seen"
        assert "autograd_cache_hit" not in counts
