"""Autotuned kernels inside ops: timed on real tensors only, one launch in a graph, any number of threads."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest
import torch
import triton
import triton.language as tl

import opgraft
from opgraft.jit import autotune, heuristics, jit

timed = []


def stopwatch(launch, quantiles):
    """Notes that a configuration was tried."""
    launch()
    timed.append(1)
    return [1.0, 1.0, 1.0]


CONFIGS = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})]


@autotune(configs=CONFIGS, key=["n"], restore_value=["x"], do_bench=stopwatch)
@jit
def increment_kernel(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


@opgraft.custom_op("ogtuned::increment_", mutates_args=["x"])
def increment_(x: torch.Tensor) -> None:
    increment_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x.numel())


def incremented(x):
    y = x * 1
    increment_(y)
    return y


@pytest.fixture
def untuned(monkeypatch):
    monkeypatch.setattr(increment_kernel, "cache", {})
    timed.clear()


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_graph_holds_one_launch_and_nothing_is_timed(untuned, device, dynamic):
    compiled = torch.compile(incremented, fullgraph=True, dynamic=dynamic)
    for n in (100, 200) if dynamic else (100,):
        assert compiled(torch.zeros(n, device=device)).eq(1).all()
    assert timed == [] and increment_kernel.cache == {}
    captured = opgraft.testing.capture(incremented, torch.zeros(300, device=device))
    assert len(captured.launches) == 1


def test_fake_tensors_time_nothing(untuned):
    increment_(torch.zeros(100, device="meta"))
    assert timed == [] and increment_kernel.cache == {}


def test_a_graph_takes_what_an_eager_call_found(untuned, device, monkeypatch):
    x = torch.zeros(1000, device=device)
    increment_(x)
    assert len(timed) == 2 and x.eq(1).all()
    monkeypatch.setattr(increment_kernel, "cache", dict.fromkeys(increment_kernel.cache, CONFIGS[1]))
    captured = opgraft.testing.capture(incremented, x)
    assert "BLOCK=128" in captured.post_grad[0]


def test_pytorchs_own_check_of_an_op_passes(untuned, device):
    torch.library.opcheck(torch.ops.ogtuned.increment_.default, (torch.zeros(64, device=device),))


def test_threads(untuned, device):
    wrong = []

    def work(number):
        try:
            for n in range(1, 30):
                x = torch.full((16 * n,), number, dtype=torch.float32, device=device)
                increment_(x)
                if not x.eq(number + 1).all():
                    wrong.append((number, n))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert increment_kernel.nargs is None


@heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})
@jit
def sized_kernel(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, 1, mask=at < n)


@pytest.mark.parametrize("wrapped", [increment_kernel, sized_kernel], ids=["autotune", "heuristics"])
def test_what_wraps_a_kernel_is_shared_by_copies_and_pickled_by_name(wrapped):
    assert copy.copy(wrapped) is copy.deepcopy({"held": wrapped})["held"] is wrapped
    assert pickle.loads(pickle.dumps(wrapped)) is wrapped
    assert pickle.loads(pickle.dumps(increment_kernel.fn)) is increment_kernel.fn


def test_a_local_tuner_cannot_be_pickled():
    @autotune(configs=CONFIGS, key=["n"])
    @jit
    def local_kernel(x, n, BLOCK: tl.constexpr):
        tl.store(x, n)

    with pytest.raises((AttributeError, pickle.PicklingError), match="local_kernel"):
        pickle.dumps(local_kernel)


@triton.autotune(configs=CONFIGS, key=["n"], do_bench=stopwatch)
@jit
def tuned_by_triton_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


@opgraft.custom_op("ogtuned::by_triton")
def by_triton(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    tuned_by_triton_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


@pytest.mark.parametrize("dynamic", [False, True])
def test_tritons_own_autotuner_is_refused_where_it_would_time_nothing(device, dynamic, monkeypatch):
    monkeypatch.setattr(tuned_by_triton_kernel, "cache", {})
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: by_triton(x), fullgraph=True, dynamic=dynamic)
    x = torch.zeros(128, device=device)
    wanted = "by_triton: tuned_by_triton_kernel is tuned by triton.autotune.*opgraft.jit.autotune"
    with pytest.raises(Exception, match=wanted):
        compiled(x)
    assert tuned_by_triton_kernel.cache == {}


def test_what_tritons_own_autotuner_found_before_is_used(device):
    torch._dynamo.reset()
    x = torch.zeros(192, device=device)
    assert by_triton(x).eq(1).all()
    timed.clear()
    assert torch.compile(lambda x: by_triton(x), fullgraph=True, dynamic=False)(x).eq(1).all() and not timed
