"""A failed tl.device_assert on the CPU is an error also where Inductor's code launches the kernel."""

import pytest
import torch
import triton
import triton.language as tl

import opgraft
from opgraft.jit import jit
from opgraft.jit.backends.cpu.launcher import DeviceAssertionError


@jit
def checked_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.device_assert(x < 5.0, "x is too large")
    tl.store(out_ptr + i, x * 2, mask=i < n)


@jit(debug=True)
def always_checked_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.device_assert(x < 5.0, "x is too large")
    tl.store(out_ptr + i, x * 2, mask=i < n)


def launch(x, kernel=checked_kernel, **options):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 32),)](x, out, x.numel(), BLOCK=32, **options)
    return out


def launch_with_option(x):
    return launch(x, debug=True)


def launch_of_a_kernel_with_debug(x):
    return launch(x, always_checked_kernel)


@opgraft.custom_op("device_assert::with_option")
def op_with_option(x: torch.Tensor) -> torch.Tensor:
    return launch(x, debug=True)


@opgraft.custom_op("device_assert::of_a_kernel_with_debug")
def op_of_a_kernel_with_debug(x: torch.Tensor) -> torch.Tensor:
    return launch(x, always_checked_kernel)


@opgraft.custom_op("device_assert::plain")
def op(x: torch.Tensor) -> torch.Tensor:
    return launch(x)


def good_and_bad():
    good = torch.rand(70)
    bad = good.clone()
    bad[40] = 9
    return good, bad


def check(function):
    """It fails as often as it is called with what does not hold, and only then."""
    good, bad = good_and_bad()
    for _ in range(2):
        assert torch.equal(function(good), good * 2 + 1)
        with pytest.raises(
            DeviceAssertionError, match=r"(?s)test_device_assert\.py:\d+.*x is too large.*program 1, 0, 0"
        ):
            function(bad)
    assert torch.equal(function(good), good * 2 + 1)


WAYS = [launch_with_option, launch_of_a_kernel_with_debug, op_with_option, op_of_a_kernel_with_debug]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: getattr(way, "__name__", None) or str(way))
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_failed_assertion_is_an_error_of_the_compiled_function(way, backend):
    torch.compiler.reset()
    check(torch.compile(lambda x: way(x) + 1, fullgraph=True, backend=backend))


@pytest.mark.parametrize("way", [launch, op], ids=["launch", "op"])
def test_the_knob_that_triton_debug_sets_counts_as_it_is_when_the_function_is_compiled(way, monkeypatch):
    _, bad = good_and_bad()
    for debug in (False, True, False):
        torch.compiler.reset()
        monkeypatch.setattr(triton.knobs.runtime, "debug", debug)
        compiled = torch.compile(lambda x: way(x) + 1, fullgraph=True)
        if debug:
            check(compiled)
        else:
            assert torch.equal(compiled(bad), bad * 2 + 1)


def test_an_op_that_is_called_eagerly():
    check(lambda x: op_with_option(x) + 1)


def test_a_failed_assertion_does_not_stop_other_kernels():
    torch.compiler.reset()
    good, bad = good_and_bad()
    compiled = torch.compile(lambda x: op_with_option(x) + launch_with_option(x), fullgraph=True)
    with pytest.raises(DeviceAssertionError):
        compiled(bad)
    assert torch.equal(launch_with_option(good), good * 2)
    assert torch.equal(op_of_a_kernel_with_debug(good), good * 2)
    assert torch.equal(compiled(good), good * 4)
