"""Many threads, and kernels that compile in the background."""

from __future__ import annotations

import collections
import os
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import pytest
import triton
from triton.compiler.errors import CompilationError

from opgraft.jit.async_compile import AsyncCompileMode, FutureKernel, submit_compile
from opgraft.jit.compile import compile
from opgraft.jit.single_flight import SingleFlight

THREADS = 16


def at_once(work, count=THREADS):
    """Run `work(i)` in `count` threads that start together; the results."""
    barrier = threading.Barrier(count)

    def run(index):
        barrier.wait()
        return work(index)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_threads_that_want_the_same_kernel_compile_it_once(cache, kernels, events):
    compiled = at_once(lambda _: compile(kernels.add_source(), kernels.CUDA))
    outcomes = collections.Counter(event.outcome for event in events)
    assert outcomes["compiled"] == 1 and sum(outcomes.values()) == THREADS
    assert len({kernel.kernel for kernel in compiled}) == 1
    assert len({id(kernel) for kernel in compiled}) == THREADS, "each may be loaded on a device of its own"


def test_threads_that_want_different_kernels_get_theirs(cache, kernels, events):
    blocks = [16, 32, 64, 128]
    compiled = at_once(lambda index: compile(kernels.add_source(blocks[index % 4]), kernels.CUDA))
    for index, kernel in enumerate(compiled):
        assert f"tensor<{blocks[index % 4]}xi32>" in kernel.asm["ttir"]
    assert collections.Counter(event.outcome for event in events)["compiled"] == 4


def test_an_error_reaches_every_thread(cache, kernels):
    def attempt(_):
        with pytest.raises(CompilationError, match="undefined_name"):
            compile(kernels.broken_source(), kernels.CUDA)

    at_once(attempt)


def test_a_flight_that_asks_for_itself_does_not_hang():
    flights = SingleFlight()
    assert flights.run("key", lambda: flights.run("key", lambda: 1)[0] + 1) == (2, True)


def test_an_interrupted_thread_leaves_the_work_to_another():
    flights, waiting, interrupted = SingleFlight(), threading.Event(), threading.Event()

    def interrupt():
        waiting.wait()
        raise KeyboardInterrupt

    def first():
        with pytest.raises(KeyboardInterrupt):
            flights.run("key", interrupt)
        interrupted.set()

    def second():
        while "key" not in flights._flights:
            time.sleep(0.001)
        threading.Timer(0.05, waiting.set).start()
        return flights.run("key", lambda: "done")

    with ThreadPoolExecutor(2) as pool:
        leader, follower = pool.submit(first), pool.submit(second)
        leader.result()
        assert follower.result() == ("done", True) and interrupted.is_set()


def test_a_flight_forgets_its_result():
    flights = SingleFlight()
    assert flights.run("key", lambda: 1) == (1, True)
    assert flights.run("key", lambda: 2) == (2, True)


# ---- asynchronous mode ----


def compile_in_mode(kernels, source, log=None, name="kernel"):
    """As the runtime does it: a kernel, or its future."""
    log = [] if log is None else log
    return submit_compile(
        name,
        lambda: str(source.hash()),
        lambda: compile(source, kernels.CUDA),
        lambda kernel: log.append(kernel),
        lambda future: log.append(future),
    )


@pytest.fixture(autouse=True)
def leave_the_mode():
    """Triton's mode stays active when it is left by an error."""
    from opgraft.jit.compat import active_async_mode

    yield
    active_async_mode.set(None)


@pytest.fixture(params=[AsyncCompileMode, triton.AsyncCompileMode], ids=["ours", "triton's"])
def mode(request):
    return request.param


def test_outside_the_mode_a_kernel_is_compiled_at_once(cache, kernels):
    log = []
    kernel = compile_in_mode(kernels, kernels.add_source(), log)
    assert kernel.asm["cubin"] and log == [kernel]


def test_inside_the_mode_futures_come_at_once_and_end_as_kernels(cache, kernels, mode):
    log = []
    gate = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(gate.wait)
        with mode(pool):
            futures = [compile_in_mode(kernels, kernels.add_source(block), log) for block in (16, 32)]
            assert all(isinstance(future, FutureKernel) and future.kernel is None for future in futures)
            assert log == []
            gate.set()
    assert [future.kernel for future in futures] and set(log) == {future.kernel for future in futures}
    assert f"tensor<{16}xi32>" in futures[0].asm["ttir"], "it stands for the kernel"
    assert futures[1].result().name == futures[1].name == "add"


def test_one_compile_however_many_ask(cache, kernels, events, mode):
    log = []
    with ThreadPoolExecutor(4) as pool, mode(pool):
        futures = [compile_in_mode(kernels, kernels.add_source(), log) for _ in range(20)]
    assert len(set(map(id, futures))) == 1 and len(events) == 1
    assert log == [futures[0].kernel] * 20, "each who asked is told"


def test_kernels_compile_side_by_side(cache, kernels):
    running, most = [], []

    def slow(source):
        running.append(source)
        most.append(len(running))
        time.sleep(0.05)
        running.remove(source)
        return compile(kernels.fill_source(), kernels.CUDA)

    with ThreadPoolExecutor(4) as pool, AsyncCompileMode(pool):
        for index in range(8):
            submit_compile("kernel", lambda i=index: str(i), lambda i=index: slow(i), lambda kernel: None)
    assert max(most) == 4


def test_an_error_surfaces_when_the_mode_is_left(cache, kernels, mode):
    log = []
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(CompilationError) as caught,
        mode(pool),
    ):
        future = compile_in_mode(kernels, kernels.broken_source(), log, name="module.broken")
    assert "module.broken" in "".join(traceback.format_exception(caught.value))
    assert log == [future], "and the runtime drops it from its cache"


def test_an_error_surfaces_at_every_use_with_the_name_of_the_kernel(cache, kernels, mode):
    with ThreadPoolExecutor(1) as pool, mode(pool, ignore_errors=True):
        future = compile_in_mode(kernels, kernels.broken_source(), name="module.broken")
    for use in (future.result, lambda: future.asm, lambda: future[(1,)], future.result):
        with pytest.raises(CompilationError, match="undefined_name") as caught:
            use()
        assert "while compiling kernel module.broken" in "".join(traceback.format_exception(caught.value))
    assert future.result(ignore_errors=True) is None


def test_a_kernel_that_failed_is_tried_again_when_asked_for_again(cache, kernels):
    attempts = []

    def flaky():
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError("out of memory")
        return compile(kernels.fill_source(), kernels.CUDA)

    def ask():
        return submit_compile("kernel", lambda: "key", flaky, lambda kernel: None)

    with ThreadPoolExecutor(1) as pool, AsyncCompileMode(pool):
        with pytest.raises(OSError, match="out of memory"):
            ask().result()
        assert ask().result().name == "fill"


def test_the_mode_is_left_also_after_an_error(cache, kernels):
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(CompilationError), AsyncCompileMode(pool):
            compile_in_mode(kernels, kernels.broken_source())
        assert compile_in_mode(kernels, kernels.fill_source()).asm["cubin"]


def test_a_mode_whose_executor_is_gone_compiles_at_once(cache, kernels):
    with ThreadPoolExecutor(1) as pool, pytest.raises(CompilationError), triton.AsyncCompileMode(pool):
        compile_in_mode(kernels, kernels.broken_source())
    assert compile_in_mode(kernels, kernels.fill_source()).asm["cubin"]


def test_an_error_of_the_body_is_not_hidden(cache, kernels):
    with ThreadPoolExecutor(1) as pool, pytest.raises(ZeroDivisionError), AsyncCompileMode(pool):
        compile_in_mode(kernels, kernels.broken_source())
        raise ZeroDivisionError


def test_modes_do_not_nest(mode):
    with ThreadPoolExecutor(1) as pool, mode(pool), pytest.raises(RuntimeError, match="already active"):
        AsyncCompileMode(pool).__enter__()


def test_many_threads_use_one_future(cache, kernels):
    log = []
    with ThreadPoolExecutor(1) as pool, AsyncCompileMode(pool):
        future = compile_in_mode(kernels, kernels.add_source(), log)
        found = at_once(lambda _: future.result())
    assert len(set(map(id, found))) == 1 and log == [found[0]]


def test_a_forked_child_does_not_wait_for_the_threads_of_its_parent(cache, kernels):
    gate = threading.Event()
    reading, writing = os.pipe()
    with ThreadPoolExecutor(1) as pool, AsyncCompileMode(pool):
        pool.submit(gate.wait)
        future = compile_in_mode(kernels, kernels.add_source())
        child = os.fork()
        if child == 0:
            try:
                # A future of the parent, and the mode that was active at the fork.
                fresh = compile_in_mode(kernels, kernels.fill_source())
                os.write(writing, f"{future.result().name} {fresh.name}".encode())
            finally:
                os._exit(0)
        os.close(writing)
        with open(reading) as pipe:
            assert pipe.read() == "add fill"
        os.waitpid(child, 0)
        gate.set()
    assert future.kernel is not None


def test_copies_of_an_unfinished_kernel_do_not_wait(cache, kernels):
    import copy

    gate = threading.Event()
    with ThreadPoolExecutor(1) as pool, AsyncCompileMode(pool):
        pool.submit(gate.wait)
        future = compile_in_mode(kernels, kernels.add_source())
        assert copy.copy(future) is not None and not future.future.done()
        gate.set()
