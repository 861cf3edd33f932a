"""Wrong calls: each is refused with what was passed, what is expected and what to do, and launches nothing."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from opgraft.jit import interception, jit

from .kernels import add, fill


@pytest.fixture
def x():
    return torch.zeros(64)


def refused(error, message):
    return pytest.raises(error, match=message)


def test_an_unknown_keyword(x):
    with refused(KeyError, r"Keyword argument num_wraps was specified but unrecognised; did you mean 'num_warps'"):
        fill[(1,)](x, 1.0, 64, num_wraps=4)
    with refused(KeyError, r"Keyword argument BLOK was specified but unrecognised; did you mean 'BLOCK'"):
        fill[(1,)](x, 1.0, 64, BLOK=4)
    assert x.sum() == 0


@pytest.mark.parametrize("name", ["device", "device_type", "stream"])
def test_a_keyword_that_triton_dropped(name, x):
    with refused(AssertionError, f"{name} option is deprecated"):
        fill[(1,)](x, 1.0, 64, **{name: 0})


def test_a_missing_argument(x):
    with refused(TypeError, r"fill\(\) missing 2 required positional arguments: 'value' and 'n'"):
        fill[(1,)](x)


def test_a_missing_argument_whose_name_was_misspelled(x):
    message = (
        r"fill\(\) missing 1 required positional argument: 'value'; 'valeu' is no parameter, did you mean 'value'\?"
    )
    with refused(TypeError, message):
        fill[(1,)](x, valeu=1.0, n=10, BLOCK=16)
    with refused(TypeError, message), interception.all_launches():
        fill[(1,)](x, valeu=1.0, n=10, BLOCK=16)


def test_an_argument_too_many(x):
    with refused(TypeError, r"fill\(\) takes .* positional arguments but 5 were given"):
        fill[(1,)](x, 1.0, 64, 64, 5)


@pytest.mark.gpu
def test_tensors_on_two_devices(x):
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    with refused(ValueError, r"cannot be accessed from Triton \(cpu tensor\?\).*x: cpu, y: cuda:0"):
        add[(1,)](x, x.cuda(), x, 64)


def test_a_tensor_of_a_type_that_triton_lacks():
    with refused(TypeError, "argument 'out': tensors of torch.complex64 cannot be passed .*torch.view_as_real"):
        fill[(1,)](torch.empty(4, dtype=torch.complex64), 1.0, 4)


def test_a_tensor_without_memory_of_its_own():
    with refused(TypeError, "argument 'out': Tensor has no memory that a kernel could use"):
        fill[(1,)](torch.zeros(4).to_sparse(), 1.0, 4)


@pytest.mark.parametrize(
    "grid, error, message",
    [
        ((1, 1, 1, 1), ValueError, "a grid has one to three axes, got 4"),
        ((), ValueError, "a grid has one to three axes, got 0"),
        (1, TypeError, r"write .*fill\[\(1,\)\]"),
        ((-1,), ValueError, "-1 programs along axis 0"),
        ((1.0,), TypeError, "axis 0 of the grid is 1.0"),
        (None, TypeError, "got None"),
    ],
)
def test_a_wrong_grid(grid, error, message, x):
    with refused(error, message):
        fill[grid](x, 1.0, 64)
    assert x.sum() == 0


def test_a_kernel_without_source_file():
    namespace = {"tl": tl}
    exec("def kernel(x):\n    tl.store(x, 1)\n", namespace)
    with refused(ValueError, "@jit functions should be defined in a Python file"):
        jit(namespace["kernel"])


def test_a_numpy_array_is_shown_in_short_with_the_way_to_pass_it(x):
    with refused(TypeError, r"argument 'out': .* ndarray \(.{,60}\); torch.from_numpy") as caught:
        fill[(1,)](np.zeros(10_000), 1.0, 64)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", [[1, 2], "text", {}, 1j, torch.float32, object()])
def test_an_argument_that_no_kernel_takes(value, x):
    with refused(TypeError, "argument 'value': failed to specialize argument of type"):
        fill[(1,)](x, value, 64)


def test_an_int_beyond_64_bits(x):
    with refused(OverflowError, "argument 'n': integer to be specialized too large to represent"):
        fill[(1,)](x, 1.0, 2**64)


def test_a_tensor_as_constexpr(x):
    with refused(TypeError, "argument 'BLOCK' is a tl.constexpr and got a tensor"):
        fill[(1,)](x, 1.0, 64, torch.tensor(64))


def test_fake_and_meta_tensors_at_a_launch(monkeypatch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    # Without those who take launches on fake tensors.
    monkeypatch.setattr(interception, "providers", [])
    monkeypatch.setattr(interception, "_interceptors", [])
    kernel = jit(fill.fn)
    with FakeTensorMode():
        fake = torch.empty(64)
    with refused(TypeError, r"argument 'out': FakeTensor has no memory .*kernel.warmup"):
        kernel.run(fake, 1.0, 64, grid=(1,), warmup=False)
    with refused(TypeError, r"argument 'out' is on the meta device .*kernel.warmup"):
        kernel[(1,)](torch.empty(64, device="meta"), 1.0, 64)


def helper(x):
    return x


@jit
def calls_plain_python(x):
    tl.store(x, helper(1.0))


def test_a_plain_python_function_in_a_kernel(x):
    for _ in range(2):
        with refused(RuntimeError, r"Unsupported function referenced: <function helper .*constexpr_function"):
            calls_plain_python[(1,)](x)


LIMIT = 3


@jit
def reads_a_plain_global(x):
    tl.store(x, LIMIT)


def test_a_plain_global_in_a_kernel(x):
    with refused(triton.CompilationError, "Cannot access global variable LIMIT"):
        reads_a_plain_global[(1,)](x)


@jit
def wrong(x):
    tl.store(x, x.nosuch)


def test_an_error_in_a_kernel_names_the_line_and_leaves_no_trace(x):
    for _ in range(2):
        with refused(triton.CompilationError, r"def wrong\(x\):\n    tl.store\(x, x.nosuch\)"):
            wrong[(1,)](x)
    assert not any(kernels for kernels, *_ in wrong.device_caches.values())


@jit
def below(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, 1.0, mask=at < n)


def test_a_tensor_of_no_dimensions_for_a_number(x):
    with refused(triton.CompilationError, r"'n' was passed a tensor of no dimensions.*pass n\.item\(\)"):
        below[(1,)](x, torch.tensor(3), BLOCK=64)
    below[(1,)](x, torch.tensor(3).item(), BLOCK=64)
    assert x.sum() == 3


def test_options_that_a_backend_refuses(x):
    with refused(Exception, "num_warps"):
        fill[(1,)](x, 1.0, 64, num_warps=3)


def test_a_kernel_for_another_target_says_so():
    with refused(RuntimeError, r"no Triton backend can launch on 'nowhere' tensors here"):
        fill.variant("nowhere", {"out": "*fp32", "value": "fp32", "n": "i32", "BLOCK": "constexpr"}, {})
