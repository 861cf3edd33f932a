"""A launch in C gives what a launch in Python gives, and steps aside when something unusual is set."""

from __future__ import annotations

import enum
import sys
import threading
from contextlib import contextmanager

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from triton import knobs

from opgraft.jit import interception, jit

FACTOR = tl.constexpr(3)
OTHER = 5


@jit
def kinds(out, x, n, f, small: tl.int8, exact: tl.float64, BLOCK: tl.constexpr, MODE: tl.constexpr = 0, w=7):
    zero = tl.full((), 0.0, tl.float64)
    tl.store(out, zero + BLOCK)
    if x is not None:
        tl.store(out + 1, tl.load(x).to(tl.float64))
    if n is not None:
        tl.store(out + 2, zero + n)
    if f is not None:
        tl.store(out + 3, zero + f)
    tl.store(out + 4, zero + small)
    tl.store(out + 5, exact)
    tl.store(out + 6, zero + w)


@jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["x"])
def loose(out, x, n, step: tl.constexpr = 2):
    tl.store(out + tl.program_id(0), tl.load(x).to(tl.float64) + n + step)


@jit
def add_n(x, n):
    tl.store(x, tl.load(x) + n)


@contextmanager
def in_python(kernel):
    """Every launch goes through Python while this is entered."""
    memory = kernel._memory
    before, memory.dispatcher, memory._wait = memory.dispatcher, None, 10**9
    try:
        yield
    finally:
        memory.dispatcher, memory._wait = before, 0


def moved(values, device):
    """Tensors on a device, at the same offset from an aligned address; other values as they are."""

    def move(value):
        if not isinstance(value, torch.Tensor):
            return value
        offset = value.storage_offset()
        whole = torch.full((16 + offset,), 3, dtype=value.dtype, device=device)[offset:]
        return torch.nn.Parameter(whole) if isinstance(value, torch.nn.Parameter) else whole.as_subclass(type(value))

    if isinstance(values, dict):
        return {name: move(value) for name, value in values.items()}
    return [move(value) for value in values]


def outcome(kernel, grid, args, kwargs, device):
    """What a launch does: the kernel it returns and the memory it leaves, or the error."""
    out = torch.zeros(16, dtype=torch.float64, device=device)
    try:
        compiled = kernel[grid](out, *args, **kwargs)
    except Exception as error:
        return type(error), str(error)
    return compiled, out.tolist()


def is_repeated(kernel, grid, *args, **kwargs) -> bool:
    """Whether such a launch is made in C (it is made)."""
    dispatcher = kernel._memory.dispatcher
    return dispatcher is not None and dispatcher.launch(grid, args, kwargs) is not NotImplemented


class Color(enum.IntEnum):
    RED = 16


def tensor(dtype=torch.float32, offset=0):
    return torch.full((16 + offset,), 3, dtype=dtype)[offset:]


TENSORS = st.sampled_from(
    [
        tensor(),
        tensor(offset=1),
        tensor(torch.int16),
        tensor(torch.float64, 2),
        torch.nn.Parameter(tensor()),
        tensor().as_subclass(type("Subclass", (torch.Tensor,), {})),
        None,
        4096.5,
        "tensor",
    ]
)
NUMBERS = st.sampled_from(
    [0, 1, 5, 16, -16, 2**31, 2**40 + 1, 2**63 - 1, 2**63, 2**64, True, False, 1.5, float("inf"), None]
    + [np.int32(16), np.float32(2.5), Color.RED, "7", torch.float32]
)
SMALL = st.sampled_from([0, 1, 16, -128, 127, 128, 2**40, True, 1.5, None, np.int8(3)])
EXACT = st.sampled_from([0.1, 1, 16, True, float("nan"), None, np.float64(0.1)])
CONSTANTS = st.sampled_from([1, 2, 16, True, 2.5, np.int64(4), None, "text", tl.constexpr(8)])
MODES = st.sampled_from([0, 1, "relu", "".join(["re", "lu"]), torch.float16, tl.float32, (1, 2), None, 1.0, Color.RED])
OPTIONS = [{"num_warps": 2}, {"debug": False}, {"unknown": 1}, {"n": 3}]
GRIDS = [(1,), (2, 1), (1, 1, 1), [1], (0,), lambda arguments: (len(arguments) // len(arguments),)]
WRONG_GRIDS = [(1, 1, 1, 1), (-1,), 1]
REPEATABLE = {int, float, bool, type(None), torch.Tensor, torch.nn.Parameter, torch.dtype, tl.dtype}


@st.composite
def calls(draw):
    """A usual call, in which up to two arguments are drawn anew, and which may be written in several ways."""
    values = {"x": tensor(), "n": 5, "f": 0.5, "small": 3, "exact": 0.25, "BLOCK": 16, "MODE": 0, "w": 7}
    pools = {"x": TENSORS, "n": NUMBERS, "f": NUMBERS, "small": SMALL, "exact": EXACT}
    pools |= {"BLOCK": CONSTANTS, "MODE": MODES, "w": NUMBERS}
    for name in draw(st.lists(st.sampled_from(sorted(pools)), max_size=2)):
        values[name] = draw(pools[name])
    for name in draw(st.sets(st.sampled_from(["MODE", "w"]))):
        del values[name]
    if draw(st.integers(0, 40)) == 40:
        values.pop(draw(st.sampled_from(sorted(values))))
    count = draw(st.integers(0, len(values)))
    args = [values[name] for name in list(values)[:count]]
    kwargs = {name: values[name] for name in draw(st.permutations(list(values)[count:]))}
    kwargs |= draw(st.sampled_from([{}] * 12 + OPTIONS))
    return draw(st.sampled_from(GRIDS * 3 + WRONG_GRIDS)), args, kwargs


def is_usual(value) -> bool:
    """Whether launches with such an argument are repeated in C."""
    if type(value) is int:
        return value < 2**63
    return type(value) in REPEATABLE or (type(value) is str and sys.intern(value) is value)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(calls())
def test_a_launch_in_c_does_what_python_does(device, call):
    grid, args, kwargs = call[0], moved(call[1], device), moved(call[2], device)
    with in_python(kinds):
        expected = outcome(kinds, grid, args, kwargs, device)
    for _ in range(2):
        assert repr(outcome(kinds, grid, args, kwargs, device)) == repr(expected)
    if type(expected[1]) is list and all(map(is_usual, [*args, *kwargs.values()])):
        assert is_repeated(kinds, grid, torch.zeros(16, dtype=torch.float64, device=device), *args, **kwargs)


@pytest.mark.parametrize("small", [-128, -1, 0, 127])
def test_a_signed_byte(device, small):
    with in_python(kinds):
        _, expected = outcome(kinds, (1,), (*moved([tensor(), 5, 0.5], device), small, 0.25), {"BLOCK": 16}, device)
    assert expected[4] == small
    for _ in range(2):
        args = (*moved([tensor(), 5, 0.5], device), small, 0.25)
        assert outcome(kinds, (1,), args, {"BLOCK": 16}, device)[1] == expected


@pytest.mark.parametrize("n", [1, 16, 5, 2**40])
def test_parameters_that_are_not_specialized_share_a_launch(device, n):
    out, x = torch.zeros(4, dtype=torch.float64, device=device), tensor().to(device)
    first = loose[(1,)](out, x, 5)
    assert is_repeated(loose, (3,), out, x[1:], n) is (n < 2**31)
    assert loose[(3,)](out, x[1:], n) is first or n == 2**40
    assert out.tolist() == [5.0 + n] * 3 + [0.0]


def test_an_ordinary_launch_is_repeated_in_c(device):
    x = torch.zeros(4, device=device)
    compiled = add_n[(1,)](x, 5)
    assert is_repeated(add_n, (1,), x, 5)
    assert add_n[(1,)](x, 7) is compiled
    assert x[0].item() == 17
    assert type(add_n[(1,)]).__name__ == "Launcher"
    assert repr(add_n[(1,)]) == f"{add_n!r}[(1,)]"


def test_run_repeats_launches_too(device):
    x = torch.zeros(4, device=device)
    compiled = add_n.run(x, 5, grid=(1,), warmup=False)
    assert add_n.run(x, n=7, grid=(1,), warmup=False) is compiled
    assert x[0].item() == 12


def test_warmup_launches_nothing(device):
    x = torch.zeros(4, device=device)
    compiled = add_n[(1,)](x, 5)
    assert add_n.warmup(x, 5, grid=(1,)) is compiled
    assert x[0].item() == 5


# -- What makes a launch step aside --------------------------------------------------------------------------


@pytest.fixture
def ready(device):
    """`add_n`, repeated in C, and a tensor for it."""
    x = torch.zeros(4, device=device)
    for _ in range(3):
        add_n._memory._wait = 0
        add_n[(1,)](x, 5)
    x.zero_()
    assert is_repeated(add_n, (1,), x, 5)
    x.zero_()
    return x


def test_launch_hooks_are_called(ready):
    seen = []
    enter, leave = (lambda metadata: seen.append("enter")), (lambda metadata: seen.append("exit"))
    knobs.runtime.launch_enter_hook.add(enter)
    knobs.runtime.launch_exit_hook.add(leave)
    try:
        add_n[(1,)](ready, 5)
    finally:
        knobs.runtime.launch_enter_hook.remove(enter)
        knobs.runtime.launch_exit_hook.remove(leave)
    assert seen == ["enter", "exit"]
    assert is_repeated(add_n, (1,), ready, 5)


def test_a_launch_hook_put_in_place_is_called(ready, monkeypatch):
    seen = []
    monkeypatch.setattr(knobs.runtime, "launch_enter_hook", lambda metadata: seen.append(metadata.get()["name"]))
    add_n[(1,)](ready, 5)
    assert seen == ["add_n"]


def test_a_pre_run_hook_is_called(ready):
    seen = []
    add_n.add_pre_run_hook(lambda *args, **kwargs: seen.append(args))
    try:
        add_n[(1,)](ready, 5)
    finally:
        add_n.pre_run_hooks.clear()
    assert seen == [(ready, 5)]


def test_the_debug_knob_makes_another_kernel(ready, monkeypatch):
    ordinary = add_n[(1,)](ready, 5)
    monkeypatch.setattr(knobs.runtime, "debug", True)
    assert add_n[(1,)](ready, 5) is not ordinary
    monkeypatch.undo()
    assert add_n[(1,)](ready, 5) is ordinary


def test_debug_of_the_kernel_makes_another_kernel(ready):
    ordinary = add_n[(1,)](ready, 5)
    add_n.debug = True
    try:
        assert add_n[(1,)](ready, 5) is not ordinary
    finally:
        add_n.debug = None
    assert add_n[(1,)](ready, 5) is ordinary


def test_a_replaced_knobs_object_is_noticed(ready, monkeypatch):
    ordinary = add_n[(1,)](ready, 5)
    other = knobs.runtime.copy()
    other.debug = True
    monkeypatch.setattr(knobs, "runtime", other)
    assert add_n[(1,)](ready, 5) is not ordinary


def test_observers_see_every_launch(ready):
    seen = []

    def interceptor(kernel, grid, arguments, options, warmup):
        seen.append(arguments)
        return NotImplemented

    remove = interception.register(interceptor)
    try:
        with interception.all_launches():
            add_n[(1,)](ready, 5)
    finally:
        remove()
    assert seen == [{"x": ready, "n": 5}]


def test_a_replaced_run_is_called(ready, monkeypatch):
    calls = []
    add_n.run = lambda *args, grid, warmup, **kwargs: calls.append((args, grid))
    try:
        add_n[(1,)](ready, 5)
    finally:
        del add_n.run
    original = type(add_n).run

    def patched(self, *args, **kwargs):
        calls.append("class")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(type(add_n), "run", patched)
    add_n[(1,)](ready, 5)
    assert calls == [((ready, 5), (1,)), "class"]
    assert ready[0].item() == 5


def test_cleared_caches_compile_again(ready):
    compiled = add_n[(1,)](ready, 5)
    add_n.device_caches.clear()
    assert add_n[(1,)](ready, 5) is not compiled


def test_a_kernel_taken_out_of_the_cache_is_compiled_again(ready):
    compiled = add_n[(1,)](ready, 5)
    for kernels, *_ in add_n.device_caches.values():
        kernels.clear()
    assert add_n[(1,)](ready, 5) is not compiled


@jit
def reads_globals(x):
    tl.store(x, tl.load(x) + FACTOR)


def test_a_changed_global_raises(device, monkeypatch):
    x = torch.zeros(4, device=device)
    for _ in range(2):
        reads_globals[(1,)](x)
    assert is_repeated(reads_globals, (1,), x)
    monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(4))
    with pytest.raises(RuntimeError, match="Global variable FACTOR has changed"):
        reads_globals[(1,)](x)
    monkeypatch.undo()
    reads_globals[(1,)](x)
    assert x[0].item() == 12


def test_another_global_may_change(device, monkeypatch):
    x = torch.zeros(4, device=device)
    reads_globals[(1,)](x)
    monkeypatch.setitem(globals(), "OTHER", 6)
    assert is_repeated(reads_globals, (1,), x)


def test_a_changed_closure_variable_raises(device):
    step = tl.constexpr(2)

    @jit
    def reads_closure(x):
        tl.store(x, tl.load(x) + step)

    x = torch.zeros(4, device=device)
    for _ in range(2):
        reads_closure[(1,)](x)
    assert is_repeated(reads_closure, (1,), x)
    step = tl.constexpr(3)
    with pytest.raises(RuntimeError, match="step has changed"):
        reads_closure[(1,)](x)


@jit
def twice(v):
    return v * 2


@jit
def thrice(v):
    return v * 3


@jit
def applies(x, function: tl.constexpr):
    tl.store(x, function(tl.load(x)))


def test_functions_are_constants(device):
    x = torch.ones(4, device=device)
    for function in (twice, thrice, twice, thrice, twice):
        applies[(1,)](x, function)
    assert x[0].item() == 2 * 3 * 2 * 3 * 2
    assert is_repeated(applies, (1,), x, twice)


def test_an_edited_function_is_compiled_again(device):
    @jit
    def helper(v):
        return v + 1

    x = torch.zeros(4, device=device)
    for _ in range(2):
        applies[(1,)](x, helper)
    assert is_repeated(applies, (1,), x, helper)
    x.zero_()
    helper._unsafe_update_src(helper.src.replace("v + 1", "v + 100"))
    applies[(1,)](x, helper)
    assert x[0].item() == 100


def test_torch_dtypes_are_constants(device):
    x, seen = torch.ones(4, device=device), []

    @jit
    def casts(x, DTYPE: tl.constexpr):
        tl.store(x, tl.load(x).to(DTYPE).to(tl.float32))

    def grid(arguments):
        seen.append(arguments["DTYPE"])
        return (1,)

    for _ in range(3):
        casts[grid](x, torch.float16)
    assert is_repeated(casts, (1,), x, torch.float16)
    assert len({repr(value) for value in seen}) == 1
    assert seen[0] == torch.float16 and isinstance(seen[0], tl.dtype)


def test_launches_that_cannot_be_repeated_do_not_try_every_time(device):
    @jit
    def takes_tuple(x, pair):
        tl.store(x, tl.load(x) + pair[0])

    x = torch.zeros(4, device=device)
    for _ in range(20):
        takes_tuple[(1,)](x, (5, 6))
    assert x[0].item() == 100
    assert takes_tuple._memory.dispatcher is None
    assert takes_tuple._memory._failures <= 5


def test_two_threads_launch_many_kernels_at_once(device):
    kernels, results = [], {}
    for _ in range(6):

        @jit
        def local(x, n, STEP: tl.constexpr):
            tl.store(x, tl.load(x) + n * STEP)

        kernels.append(local)

    def work(number):
        x = torch.zeros(4, device=device)
        for i in range(300):
            kernels[i % len(kernels)][(1,)](x, i, STEP=2)
        results[number] = x[0].item()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(results.values()) == {2.0 * sum(range(300))}
    assert len(results) == 8


def test_the_autotuner_launches_through_run(device):
    @triton.autotune(configs=[triton.Config({"STEP": 2}), triton.Config({"STEP": 2}, num_stages=2)], key=["n"])
    @jit
    def tuned(x, n, STEP: tl.constexpr):
        tl.store(x, n * STEP * 1.0)

    x = torch.zeros(4, device=device)
    for n in (5, 7, 5, 7):
        tuned[(1,)](x, n)
        assert x[0].item() == 2 * n


def test_a_subclass_with_memory_is_launched_and_not_offered_to_interceptors(device):
    """It would come back to the launch through torch's dispatcher, for ever."""
    seen = []
    remove = interception.register(lambda *args: seen.append(args) or NotImplemented)
    x = torch.zeros(4, device=device)
    try:
        add_n[(1,)](x.as_subclass(type("Subclass", (torch.Tensor,), {})), 5)
    finally:
        remove()
    assert seen == []
    assert x[0].item() == 5


@pytest.mark.parametrize("constants", [True, False])
def test_a_handle_calls_launch_hooks_too(device, constants):
    """A compiled graph launches by handles, and a profiler wants to see these launches."""
    described = []

    def describe(grid, metadata, arguments):
        described.append((grid, metadata.name, arguments))
        return {"flops": 1}

    @jit(launch_metadata=describe)
    def scaled(x, pair, n, STEP: tl.constexpr):
        tl.store(x, tl.load(x) + pair[0] * n * STEP)

    x, seen = torch.zeros(4, device=device), []
    handle = scaled[(1,)](x, (2, 3), 5, STEP=7).handle(constants=constants)
    stream = torch.cuda.current_stream().cuda_stream if device == "cuda" else 0
    values = (x, 2, 3, 5, 7) if constants else (x, 2, 3, 5)
    enter, leave = (lambda metadata: seen.append(metadata.get())), (lambda metadata: seen.append("exit"))
    knobs.runtime.launch_enter_hook.add(enter)
    knobs.runtime.launch_exit_hook.add(leave)
    try:
        handle(stream, *values, 1, 1, 1)
    finally:
        knobs.runtime.launch_enter_hook.remove(enter)
        knobs.runtime.launch_exit_hook.remove(leave)
    assert seen == [{"name": "scaled", "function": handle.function, "stream": stream, "flops": 1}, "exit"]
    assert described == [((1, 1, 1), "scaled", {"x": x, "pair": (2, 3), "n": 5, "STEP": 7})]
    handle(stream, *values, 1, 1, 1)
    handle.launch(stream, *values, 1, 1, 1)
    assert len(seen) == 2
    assert x[0].item() == 4 * 2 * 5 * 7
