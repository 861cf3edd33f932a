"""Nothing stays behind: not after many launches, many handles, many kernels, or launches that fail."""

from __future__ import annotations

import gc
import os
import sys
import weakref

import pytest
import torch
import triton.language as tl

from opgraft.jit import compat, jit, registry
from opgraft.jit.native import make_handle

from .compiled import EchoKernel

PAGE = os.sysconf("SC_PAGE_SIZE")


@jit
def add_n(x, n, STEP: tl.constexpr):
    tl.store(x + tl.program_id(0), tl.load(x + tl.program_id(0)) + n * STEP)


def resident() -> int:
    """Bytes of memory that this process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


def growth(action, count: int) -> int:
    """Bytes by which `count` repetitions make the process grow, once it has warmed up."""
    for _ in range(count // 10):
        action()
    gc.collect()
    before = resident()
    for _ in range(count):
        action()
    gc.collect()
    return resident() - before


def launches(device):
    """One of each way to launch."""
    x = torch.zeros(8, device=device)
    compiled = add_n[(1,)](x, 5, STEP=2)
    add_n[(1,)](x, 5, STEP=2)
    handle = compiled.handle()
    stream = torch.cuda.current_stream().cuda_stream if device == "cuda" else 0

    def launch():
        add_n[(1,)](x, 5, STEP=2)
        add_n[lambda arguments: (2,)](x, n=7, STEP=2)
        add_n.run(x, 9, STEP=2, grid=(1, 1), warmup=False)
        handle(stream, x, 11, 2, 1, 1, 1)

    return launch, [x, compiled, handle, add_n, add_n._memory.dispatcher, None, True, 1]


def assert_balanced(objects, action):
    """`action` leaves the counts of references as they were.

    None and its like are shared by the whole process, whose garbage and other threads change their counts too: a few
    more or less say nothing, and of many it matters whether they come again.
    """
    for _ in range(3):
        gc.collect()
        before = [sys.getrefcount(item) for item in objects]
        action()
        gc.collect()
        after = [sys.getrefcount(item) for item in objects]
        if all(abs(new - old) < 20 for new, old in zip(after, before, strict=True)):
            return
    raise AssertionError(f"references before {before}, after {after}")


def test_references_are_balanced(device):
    launch, objects = launches(device)
    launch()

    def many():
        for _ in range(200):
            launch()

    assert_balanced(objects, many)


def test_memory_does_not_grow_with_launches(device):
    launch, _ = launches(device)
    assert growth(launch, 5000) < 512 * 1024


@pytest.mark.slow
def test_a_million_launches_leave_nothing(device):
    launch, objects = launches(device)
    launch()
    allocated = torch.cuda.memory_allocated() if device == "cuda" else 0
    grown = []
    assert_balanced(objects, lambda: grown.append(growth(launch, 250_000)))
    assert grown[-1] < 1024 * 1024
    if device == "cuda":
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() == allocated


def test_new_tensors_are_let_go(device):
    launch, _ = launches(device)
    launch()
    kept = torch.zeros(8, device=device)
    for _ in range(100):
        add_n[(1,)](torch.zeros(8, device=device), 5, STEP=2)
    gc.collect()
    alive = [item for item in gc.get_objects() if type(item) is torch.Tensor and item.shape == kept.shape]
    assert len(alive) < 20


def test_handles_are_let_go():
    kernel = EchoKernel("Pi")
    x = torch.zeros(4)

    def action():
        inner = make_handle("cpu", kernel.address, "Pi", name="kernel", argument_names=("x", "n"))
        handle = make_handle("cpu", kernel.address, "PI", name="kernel", argument_names=("x", "n"), fallback=inner)
        handle(None, x, 17, 1, 1, 1)

    assert growth(action, 20000) < 512 * 1024


def test_launches_that_fail_leave_nothing():
    kernel = EchoKernel("Ai")
    handle = make_handle("cpu", kernel.address, "Ai", name="kernel", argument_names=("x", "n"))
    x = torch.zeros(8)
    wrong = [(x[1:], 5, 1), (x, 2**40, 1), (x, "text", 1), ("text", 5, 1), (x, 5, -1), (x, 5)]

    def action():
        for *values, grid in wrong:
            with pytest.raises((TypeError, ValueError)):
                handle(None, *values, grid, 1, 1)

    action()
    before = sys.getrefcount(x), sys.getrefcount(handle)
    assert growth(action, 1000) < 512 * 1024
    assert (sys.getrefcount(x), sys.getrefcount(handle)) == before


def test_a_kernel_that_is_dropped_is_collected():
    """With its dispatcher, its handles and everything that these watch."""

    @jit
    def local(x):
        tl.store(x, 1.0)

    x = torch.zeros(4)
    for _ in range(3):
        local[(1,)](x)
    gone = weakref.ref(local)
    assert local._memory.dispatcher is not None
    if (known := compat.function_registry()) is not None:
        del known[registry.qualified_name(local)]  # Triton's own, which never forgets
    del local
    gc.collect()
    assert gone() is None
