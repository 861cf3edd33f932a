"""The compiler as the runtime uses it: launches that compile, preload, or wait for the background."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import triton
from triton import knobs
from triton.compiler.errors import CompilationError

from opgraft.jit import AsyncCompileMode, MockTensor, jit, store

WORKER = Path(__file__).parent / "worker.py"


@pytest.fixture(autouse=True)
def own_settings(cache):
    from opgraft.jit.compat import active_async_mode

    with knobs.runtime.scope():
        yield
    active_async_mode.set(None)


def launch_scaled(kernel, helper, factor=3, n=50):
    x, out = torch.randn(64), torch.zeros(64)
    kernel[(1,)](x, (out, factor), helper, n, BLOCK=64)
    torch.testing.assert_close(out[:n], x[:n] * 2 + factor)
    assert not out[n:].any()


def run(*arguments):
    done = subprocess.run([sys.executable, str(WORKER), *arguments], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def recorded(kernels):
    """Specialization data of a launch with a tuple and a function among its arguments."""
    data = []
    with knobs.runtime.scope():
        knobs.runtime.jit_cache_hook = lambda **call: data.append(call["compile"]["specialization_data"])
        launch_scaled(jit(kernels.scaled.fn), kernels.double)
    return data[0]


def test_a_variant_with_a_tuple_and_a_function_is_preloaded_in_another_process(kernels):
    found = run("preload_scaled", recorded(kernels))
    assert found == {"outcomes": ["stored"], "asked": 1, "equal": True}, "the launch itself compiles nothing"


def test_preloading_compiles_what_is_not_stored(cache, kernels, events):
    data = recorded(kernels)
    store.clear()
    events.clear()
    kernel = jit(kernels.scaled.fn)
    assert kernel.preload(data).asm["so"]
    launch_scaled(kernel, kernels.double)
    assert [event.outcome for event in events] == ["compiled"]


def test_preloading_for_another_kernel_is_refused(kernels):
    with pytest.raises(RuntimeError, match=r"is for store_kernels\.scaled but trying to preload for .*\.fill"):
        jit(kernels.fill.fn).preload(recorded(kernels))


def test_a_launch_that_recompiles_says_why(kernels, events):
    kernel = jit(kernels.scaled.fn)
    for n in (64, 50, 1):
        launch_scaled(kernel, kernels.double, n=n)
    assert [event.reason for event in events][1:] == [
        "argument n was a multiple of 16, now 50",
        "argument n was any i32, now 1",
    ]


@pytest.mark.cpu_active
def test_warmup_launches_and_allocates_nothing(kernels, events):
    kernel = jit(kernels.add.fn)
    arguments = [MockTensor(torch.float32, [2**40]), torch.float32, torch.empty(2**40, device="meta")]
    compiled = kernel.warmup(*arguments[:2], torch.float32, 2**20, BLOCK=64, grid=(1,))
    assert compiled.asm["so"] and compiled.function is None
    x, y, out = torch.randn(2048), torch.randn(2048), torch.empty(2048)
    kernel[(32,)](x, y, out, 2048, BLOCK=64)
    torch.testing.assert_close(out, x + y)
    assert len(events) == 1, "the launch is served by what the warmup compiled"


@pytest.mark.cpu_active
@pytest.mark.parametrize("mode", [AsyncCompileMode, triton.AsyncCompileMode], ids=["ours", "triton's"])
def test_kernels_warmed_up_in_the_background_launch_inside_and_after_the_mode(kernels, events, mode):
    kernel = jit(kernels.add.fn)
    blocks = [16, 32, 64, 128]
    x, y, out = torch.randn(1000), torch.randn(1000), torch.empty(1000)
    with ThreadPoolExecutor(4) as pool:
        with mode(pool):
            for block in blocks * 2:
                kernel.warmup(torch.float32, torch.float32, torch.float32, 1000, BLOCK=block, grid=(1,))
            kernel[(63,)](x, y, out, 1000, BLOCK=16)
            torch.testing.assert_close(out, x + y)
        for block in blocks:
            kernel[(triton.cdiv(1000, block),)](x, y, out.zero_(), 1000, BLOCK=block)
            torch.testing.assert_close(out, x + y)
    assert len(events) == len(blocks)


def test_an_error_in_the_background_surfaces_at_the_launch_with_the_kernels_name(kernels):
    kernel = jit(kernels.broken.fn)
    with ThreadPoolExecutor(1) as pool, AsyncCompileMode(pool, ignore_errors=True):
        kernel.warmup(torch.int32, grid=(1,))
        with pytest.raises(CompilationError, match="undefined_name") as caught:
            kernel[(1,)](torch.zeros(1, dtype=torch.int32))
    assert any("broken" in note for note in getattr(caught.value, "__notes__", [str(caught.value)]))
    with pytest.raises(CompilationError, match="undefined_name"):
        kernel[(1,)](torch.zeros(1, dtype=torch.int32))


@pytest.mark.gpu
def test_on_a_gpu_kernels_launch_by_every_route_and_side_by_side_with_the_cpu(kernels, events):
    kernel = jit(kernels.add.fn)
    for device in ("cuda", "cpu"):
        x, y = torch.randn(1024, device=device), torch.randn(1024, device=device)
        for launch in (
            lambda compiled, *args: compiled[(16,)](*args, 1024, 64),
            lambda compiled, *args: compiled.handle()(None if device == "cpu" else stream, *args, 1024, 64, 16, 1, 1),
            lambda compiled, *args: kernel[(16,)](*args, 1024, BLOCK=64),
        ):
            out = torch.empty_like(x)
            stream = torch.cuda.current_stream().cuda_stream
            compiled = kernel[(16,)](x, y, out, 1024, BLOCK=64)
            out.zero_()
            launch(compiled, x, y, out)
            torch.testing.assert_close(out, x + y)
            assert compiled.written_paths == {(2,)}
    assert sorted(event.target.backend for event in events) == ["cpu", "cuda"]
