"""One kernel in many threads, in forked children, in new processes."""

import concurrent.futures
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading

import pytest
import torch
import triton.language as tl

from opgraft.jit import jit

from .kernels import add, fill


def at_once(count, function):
    """Results of ``function(index)`` in ``count`` threads that start together."""
    barrier = threading.Barrier(count)

    def run(index):
        barrier.wait()
        return function(index)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return [future.result(60) for future in [pool.submit(run, index) for index in range(count)]]


def test_threads_that_come_first_together_compile_once(compiles):
    kernel = jit(fill.fn)
    outs = [torch.zeros(64) for _ in range(16)]
    found = at_once(16, lambda index: kernel[(1,)](outs[index], float(index), 64))
    assert [out.unique().item() for out in outs] == [float(index) for index in range(16)]
    assert len(set(map(id, found))) == 1
    assert len(compiles) == 1


def test_threads_with_different_specializations_do_not_mix():
    kernel = jit(add.fn)

    def work(index):
        dtype = (torch.float32, torch.float64, torch.int32)[index % 3]
        x = torch.full((100,), index, dtype=dtype)
        for n in (1, 16, 33, 100):
            out = torch.zeros(100, dtype=dtype)
            kernel[(4,)](x, x, out, n, BLOCK=32)
            if out.tolist() != [2 * index] * n + [0] * (100 - n):
                return index, n
        return None

    assert at_once(12, work) == [None] * 12


def test_threads_hammer_many_kernels():
    kernels = [jit(fill.fn) for _ in range(4)]

    def work(index):
        out = torch.zeros(64)
        for step in range(200):
            kernels[(index + step) % 4][(1,)](out, float(step), 64)
            if out[63] != step:
                return step
        return None

    assert at_once(8, work) == [None] * 8


def test_threads_that_meet_an_error_all_hear_of_it():
    @jit
    def wrong(x):
        tl.store(x, x.nosuch)

    def work(index):
        try:
            wrong[(1,)](torch.zeros(1))
        except Exception as error:
            return type(error).__name__

    assert at_once(8, work) == ["CompilationError"] * 8


def test_threads_in_variant_get_one_kernel(compiles):
    kernel = jit(fill.fn)
    signature = {"out": "*fp32", "value": "fp32", "n": "i32", "BLOCK": "constexpr"}
    found = at_once(8, lambda index: kernel.variant("cpu", signature, {"BLOCK": 16}))
    assert len(set(map(id, found))) == 1 and len(compiles) == 1


def test_a_hook_may_launch_the_kernel_that_is_compiled():
    from triton import knobs

    kernel = jit(fill.fn)
    out = torch.zeros(64)
    before = knobs.runtime.jit_post_compile_hook
    knobs.runtime.jit_post_compile_hook = lambda **event: kernel[(1,)](out, 5.0, 64)
    try:
        kernel[(1,)](torch.zeros(64), 1.0, 64)
    finally:
        knobs.runtime.jit_post_compile_hook = before
    assert out[0] == 5.0


# -- Fork --------------------------------------------------------------------------------------------------------------


def in_a_fork(function):
    """What ``function()`` returns in a forked child."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(False)

    def run():
        sender.send(function())

    child = context.Process(target=run)
    child.start()
    assert receiver.poll(60), "the child does not answer"
    result = receiver.recv()
    child.join(60)
    assert child.exitcode == 0
    return result


def launch(kernel, value):
    out = torch.zeros(64)
    kernel[(1,)](out, value, 64)
    return out.unique().tolist()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_launches_what_the_parent_never_did():
    assert in_a_fork(lambda: launch(jit(fill.fn), 2.0)) == [2.0]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_launches_what_the_parent_did():
    kernel = jit(fill.fn)
    assert launch(kernel, 1.0) == [1.0]
    assert in_a_fork(lambda: launch(kernel, 2.0)) == [2.0]
    assert in_a_fork(lambda: launch(jit(add.fn.__globals__["fill"].fn), 3.0)) == [3.0]
    assert launch(kernel, 4.0) == [4.0]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_another_thread_compiles_does_not_block_the_child():
    from triton import knobs

    kernel = jit(fill.fn)
    compiling, go_on = threading.Event(), threading.Event()

    def wait(**event):
        if os.getpid() == parent:
            compiling.set()
            go_on.wait(60)

    parent = os.getpid()
    before = knobs.runtime.jit_cache_hook
    knobs.runtime.jit_cache_hook = wait
    thread = threading.Thread(target=launch, args=(kernel, 1.0))
    try:
        thread.start()
        assert compiling.wait(60)
        assert in_a_fork(lambda: launch(kernel, 2.0)) == [2.0]
    finally:
        go_on.set()
        thread.join(60)
        knobs.runtime.jit_cache_hook = before
    assert launch(kernel, 3.0) == [3.0]


# -- New processes ---------------------------------------------------------------------------------------------------

MODULE = """
import torch, triton.language as tl
from opgraft.jit import jit

@jit
def kernel(x):
    tl.store(x, 7.0)

def work(pickled):
    import pickle
    found = pickle.loads(pickled)
    assert found is kernel
    x = torch.zeros(1)
    found[(1,)](x)
    return x.item()
"""


def test_a_kernel_is_sent_to_a_new_process_by_name(make_module, tmp_path):
    module = make_module("sent", MODULE)
    code = f"import sent, sys; print(sent.work(bytes.fromhex({pickle.dumps(module.kernel).hex()!r})))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)}
    )
    assert result.stdout == "7.0\n", result.stderr


def test_a_local_kernel_is_found_in_its_own_process_only():
    @jit
    def local(x):
        tl.store(x, 1.0)

    assert pickle.loads(pickle.dumps(local)) is local
    code = f"import pickle; pickle.loads(bytes.fromhex({pickle.dumps(local).hex()!r}))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()}
    )
    assert "LookupError" in result.stderr and "local" in result.stderr


def test_threads_build_syntax_trees_together():
    """CPython may fail in that; kernels do not."""
    source = "def kernel(x):\n" + "".join(f"    x = (x + {i}) * ({i} - x)\n" for i in range(200))
    kernels = []
    for _ in range(8):
        kernels.append(jit(fill.fn))
        kernels[-1]._unsafe_update_src(source)

    def work(index):
        return {len(kernels[index].parse().body[0].body) for _ in range(30)}

    assert at_once(8, work) == [{200}] * 8
