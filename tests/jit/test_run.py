"""Launches: results, what compiles again, hooks and their payload, on each device."""

import collections
import enum

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.tools.tensor_descriptor import TensorDescriptor

from opgraft.jit import CompiledKernel, Launch, jit, reinterpret

from .kernels import add, apply, fill, plus_one, programs, times_two


@pytest.fixture(autouse=True)
def tensors_on(device):
    """Tensors that a test makes are on the device."""
    with torch.device(device):
        yield


@pytest.fixture
def forgetful():
    """A new kernel object for the test, with nothing compiled: ``forgetful(kernel)``."""
    return lambda kernel: jit(kernel.fn)


@pytest.fixture
def knob(monkeypatch):
    """Set a knob of Triton for the test: ``knob("runtime", "debug", True)``."""

    def set_knob(group, name, value):
        monkeypatch.setattr(getattr(knobs, group), name, value)

    return set_knob


def test_a_launch_computes_and_returns_the_compiled_kernel(device):
    x, y = torch.randn(1000), torch.randn(1000)
    out = torch.empty(1000)
    kernel = add[(16,)](x, y, out, 1000)
    torch.testing.assert_close(out, x + y)
    assert isinstance(kernel, CompiledKernel)
    assert isinstance(kernel, triton.compiler.CompiledKernel)
    assert "tt.load" in kernel.asm["ttir"]
    assert kernel.metadata.target.backend == device


def test_a_grid_may_be_a_function_of_the_arguments():
    x = torch.randn(1000)
    out = torch.empty(1000)
    seen = []

    def grid(arguments):
        seen.append(dict(arguments))
        return (triton.cdiv(arguments["n"], arguments["BLOCK"]),)

    add[grid](x, x, out, n=1000, BLOCK=128)
    torch.testing.assert_close(out, 2 * x)
    assert list(seen[0]) == ["x", "y", "out", "n", "BLOCK"]
    assert seen[0]["BLOCK"] == 128


@pytest.mark.parametrize("grid", [(3,), (3, 4), (3, 4, 2), [3, 4], (np.int64(3), 4)])
def test_each_program_of_a_grid_runs_once(grid):
    out = torch.zeros(24, dtype=torch.int32)
    programs[grid](out, 3, 4)
    count = int(np.prod([int(size) for size in grid]))
    assert out.tolist() == [1] * count + [0] * (24 - count)


@pytest.mark.parametrize("grid", [(0,), (3, 0), lambda arguments: (0,)])
def test_a_grid_of_zero_launches_nothing_and_compiles(grid):
    out = torch.zeros(24, dtype=torch.int32)
    assert isinstance(programs[grid](out, 3, 4), CompiledKernel)
    assert out.sum() == 0


def test_a_kernel_with_its_grid_is_an_object():
    launch = fill[(2,)]
    out = torch.zeros(128)
    launch(out, 3.0, 128)
    assert out.unique().tolist() == [3.0]
    assert "fill" in repr(launch)
    assert repr(Launch(fill, (2,))) == f"{fill!r}[(2,)]"


def test_run_takes_the_grid_as_a_keyword():
    out = torch.zeros(64)
    fill.run(out, 2.0, 64, grid=(1,), warmup=False)
    assert out[5] == 2.0


# -- What compiles again -----------------------------------------------------------------------------------------------


def test_equal_specializations_compile_once(forgetful, compiles):
    kernel = forgetful(add)
    x = torch.randn(4096)
    for n in (48, 64, 1024, 4096):
        kernel[(64,)](x, x, torch.empty(4096), n)
    assert len(compiles) == 1


def test_what_is_specialized_compiles_again(forgetful, compiles):
    kernel = forgetful(add)
    x, out = torch.randn(4096), torch.empty(4096)
    calls = [
        {"n": 64},
        {"n": 63},
        {"n": 1},
        {"n": 64, "BLOCK": 32},
        {"n": 64, "num_warps": 8},
    ]
    for call in calls:
        kernel[(64,)](x, x, out, **call)
    kernel[(64,)](x[1:], x[1:], out, n=64)
    kernel[(64,)](x.double(), x.double(), out.double(), n=64)
    assert len(compiles) == 7
    assert len({event["key"] for event in compiles}) == 7
    for call in calls:
        kernel[(64,)](x, x, out, **call)
    assert len(compiles) == 7


def test_constants_that_python_takes_for_equal_compile_apart(compiles):
    @jit
    def kind(out, VALUE: tl.constexpr):
        if isinstance(VALUE, int):
            tl.store(out, VALUE / 2)
        else:
            tl.store(out, VALUE * 10)

    out = torch.zeros(1)
    found = []
    for value in (1, True, 1.0, True, 1, 1.0):
        kind[(1,)](out, value)
        found.append(out.item())
    assert found == [0.5, 0.5, 10.0, 0.5, 0.5, 10.0]
    assert len(compiles) == 3


def test_the_sign_of_zero_counts(compiles):
    @jit
    def sign(out, VALUE: tl.constexpr):
        tl.store(out, VALUE)

    out = torch.ones(1)
    for value in (0.0, -0.0, 0.0, -0.0):
        sign[(1,)](out, value)
    assert [event["compile"]["constants"][1,] for event in compiles] == [0.0, 0.0]
    assert ["-0.0" in event["key"] for event in compiles] == [False, True]


def test_functions_are_arguments_by_content(forgetful, compiles):
    kernel = forgetful(apply)
    out = torch.ones(64)
    kernel[(1,)](out, 64, plus_one)
    kernel[(1,)](out, 64, times_two)
    kernel[(1,)](out, 64, F=plus_one)
    assert out.unique().tolist() == [5.0]
    assert len(compiles) == 2


def test_do_not_specialize_keeps_one_kernel(compiles):
    kernel = jit(do_not_specialize=["n"])(fill.fn)
    out = torch.zeros(128)
    for n in (1, 16, 17, 100):
        kernel[(2,)](out, 1.0, n)
    assert out.sum() == 100
    assert len(compiles) == 1


# -- Kinds of arguments ------------------------------------------------------------------------------------------------


class Size(enum.IntEnum):
    SMALL = 16


class Mode(enum.Enum):
    ADD = 1
    MULTIPLY = 2


ADD = tl.constexpr(Mode.ADD)

Limits = collections.namedtuple("Limits", "low high")


@pytest.mark.parametrize(
    "value, expected",
    [
        (3, 3.0),
        (1, 1.0),
        (True, 1.0),
        (False, 0.0),
        (2.5, 2.5),
        (np.float32(2.5), 2.5),
        (np.int64(7), 7.0),
        (np.bool_(True), 1.0),
        (Size.SMALL, 16.0),
        (-5, -5.0),
        (2**40, float(2**40)),
        (2**63, float(2**63)),
    ],
    ids=repr,
)
def test_a_scalar_is_what_a_user_expects(value, expected):
    out = torch.zeros(64, dtype=torch.float64)
    fill[(1,)](out, value, 64)
    assert out[3].item() == expected


def test_numpy_scalars_are_constants_too():
    out = torch.zeros(128)
    fill[(2,)](out, 1.0, np.int64(100), BLOCK=np.int32(64))
    assert out.sum() == 100


def test_none_is_no_pointer():
    @jit
    def optional(x, bias, out, n: tl.constexpr):
        i = tl.arange(0, n)
        value = tl.load(x + i)
        if bias is not None:
            value += tl.load(bias + i)
        tl.store(out + i, value)

    x, out = torch.randn(16), torch.empty(16)
    optional[(1,)](x, None, out, 16)
    torch.testing.assert_close(out, x)
    optional[(1,)](x, x, out, 16)
    torch.testing.assert_close(out, 2 * x)


def test_tuples_and_named_tuples_at_any_depth():
    @jit
    def clamp(data, limits, out, n: tl.constexpr):
        i = tl.arange(0, n)
        x = tl.load(data[0] + i) + tl.load(data[1][0] + i) * data[1][1]
        tl.store(out + i, tl.minimum(tl.maximum(x, limits.low), limits.high))

    x, y, out = torch.randn(16), torch.randn(16), torch.empty(16)
    for scale in (1, 2, 2.5):
        clamp[(1,)]((x, (y, scale)), Limits(-1.0, 1), out, 16)
        torch.testing.assert_close(out, (x + y * scale).clamp(-1.0, 1.0))


def test_zero_dimensional_and_empty_tensors_are_pointers():
    x = torch.tensor(3.0)
    out = torch.zeros(())
    add[(1,)](x, x, out, 1)
    assert out == 6.0
    empty = torch.empty(0)
    add[(1,)](empty, empty, empty, 0)


def test_a_torch_dtype_is_a_constant_to_convert_to():
    @jit
    def round_trip(x, out, DTYPE: tl.constexpr, n: tl.constexpr):
        i = tl.arange(0, n)
        tl.store(out + i, tl.load(x + i).to(DTYPE).to(tl.float32))

    x, out = torch.randn(16), torch.empty(16)
    for dtype in (torch.float16, torch.bfloat16, torch.int32):
        round_trip[(1,)](x, out, dtype, 16)
        torch.testing.assert_close(out, x.to(dtype).float())
    round_trip[(1,)](x, out, tl.float16, 16)
    torch.testing.assert_close(out, x.half().float())


def test_an_enum_member_is_a_constant():
    @jit
    def switch(x, MODE: tl.constexpr):
        if MODE == ADD:
            tl.store(x, tl.load(x) + 3)
        else:
            tl.store(x, tl.load(x) * 3)

    x = torch.tensor([2.0])
    switch[(1,)](x, Mode.ADD)
    switch[(1,)](x, Mode.MULTIPLY)
    assert x.item() == 15.0


def test_reinterpreted_tensors_are_read_as_the_other_type():
    x = torch.tensor([1.0, 2.0])
    out = torch.zeros(64, dtype=torch.int32)
    add[(1,)](reinterpret(x, tl.int32), reinterpret(torch.zeros(2), torch.int32), out, 2)
    assert out[:2].tolist() == x.view(torch.int32).tolist()


def test_strided_views_are_what_the_kernel_makes_of_them():
    base = torch.zeros(10, 10)
    fill[(1,)](base[3:, 4:], 1.0, 2)
    assert base.nonzero().tolist() == [[3, 4], [3, 5]]


def test_a_tensor_descriptor_is_an_argument(device):
    @jit
    def copy(source, out, N: tl.constexpr):
        block = source.load([4, 0])
        i = tl.arange(0, 4)[:, None] * N + tl.arange(0, N)[None, :]
        tl.store(out + i, block)

    x = torch.randn(16, 8)
    out = torch.empty(4, 8)
    descriptor = TensorDescriptor.from_tensor(x, [4, 8])
    arguments, specialization, _ = copy.device_caches["cpu"][4](descriptor, out, 8)
    signature = {name: kind for name, (kind, _) in zip(arguments, specialization, strict=True)}
    assert signature["source"] == "tensordesc<fp32[4, 8]>"
    assert "tt.descriptor_load" in copy.variant(GPUTarget("cuda", 90, 32), signature, {"N": 8}).asm["ttir"]
    if device == "cuda":
        copy[(1,)](descriptor, out, 8)
        torch.testing.assert_close(out, x[4:8])


def test_defaults_may_be_functions():
    @jit
    def mapped(x, F: tl.constexpr = plus_one):
        tl.store(x, F(tl.load(x)))

    x = torch.tensor([2.0])
    mapped[(1,)](x)
    mapped[(1,)](x, times_two)
    assert x.item() == 6.0


# -- Edits and globals -------------------------------------------------------------------------------------------------


def test_a_launch_after_a_global_changed_is_refused(make_module):
    module = make_module(
        "with_global",
        "import triton.language as tl\nfrom opgraft.jit import jit\nC = tl.constexpr(1.0)\n"
        "@jit\ndef kernel(x):\n    tl.store(x, C)\n",
    )
    x = torch.zeros(1)
    for _ in range(3):
        module.kernel[(1,)](x)
    module.C = tl.constexpr(2.0)
    for _ in range(2):
        with pytest.raises(
            RuntimeError, match=r"Global variable C has changed since we compiled .*1.0\] to constexpr\[2.0\]"
        ):
            module.kernel[(1,)](x)
    module.C = tl.constexpr(1.0)
    module.kernel[(1,)](x)
    assert x.item() == 1.0


def test_a_helper_bound_anew_is_used(make_module):
    module = make_module(
        "with_helper",
        "import triton.language as tl\nfrom opgraft.jit import jit\n@jit\ndef helper(x): return x + 1\n"
        "@jit\ndef kernel(x):\n    tl.store(x, helper(tl.load(x)))\n",
    )
    x = torch.zeros(1)
    for _ in range(3):
        module.kernel[(1,)](x)
    assert x.item() == 3.0
    module.helper = times_two
    for _ in range(2):
        module.kernel[(1,)](x)
    assert x.item() == 12.0


def test_a_replaced_source_is_used():
    @jit
    def kernel(x):
        tl.store(x, 1.0)

    x = torch.zeros(1)
    kernel[(1,)](x)
    kernel._unsafe_update_src(kernel.src.replace("1.0", "2.0"))
    kernel.device_caches.clear()
    kernel[(1,)](x)
    assert x.item() == 2.0


def test_local_functions_of_one_name_are_not_confused():
    def make(value):
        constant = tl.constexpr(value)

        @jit
        def adder(x):
            return x + constant

        return adder

    ones, tens = make(1), make(10)

    @jit
    def kernel(x, F: tl.constexpr):
        tl.store(x, tens(ones(tl.load(x))) + F[0](F[1](0)))

    x = torch.zeros(1)
    kernel[(1,)](x, (make(100), make(1000)))
    assert x.item() == 1111.0


def test_closures_over_a_loop_variable_hold_what_it_was():
    kernels = []
    for value in (1.0, 2.0, 3.0):

        def make(constant):
            @jit
            def kernel(x):
                tl.store(x, constant)

            return kernel

        kernels.append(make(tl.constexpr(value)))
    found = []
    for kernel in kernels:
        x = torch.zeros(1)
        kernel[(1,)](x)
        found.append(x.item())
    assert found == [1.0, 2.0, 3.0]


# -- Hooks and knobs ---------------------------------------------------------------------------------------------------


def test_pre_run_hooks_see_arguments_and_options(forgetful):
    kernel = forgetful(fill)
    seen = []
    kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append((args, kwargs)))
    out = torch.zeros(64)
    kernel[(1,)](out, 1.0, n=64, num_warps=2)
    kernel.warmup(torch.float32, 1.0, n=64, grid=(1,))
    assert len(seen) == 2
    args, kwargs = seen[0]
    assert args[0] is out and args[1] == 1.0
    assert kwargs["n"] == 64 and kwargs["num_warps"] == 2 and kwargs["debug"] is False
    with pytest.raises(TypeError, match="a pre-run hook is a function, got 3"):
        kernel.add_pre_run_hook(3)


def launches_seen_by(set_hook, launch):
    events = []
    set_hook(lambda metadata: events.append(metadata.get()))
    launch()
    return events


def test_enter_and_exit_hooks_get_tritons_payload(forgetful):
    def describe(grid, metadata, arguments):
        return {"grid": grid, "n": arguments["n"], "warps": metadata.num_warps}

    kernel = jit(launch_metadata=describe)(fill.fn)
    out = torch.zeros(64)
    kernel[(1,)](out, 1.0, 64)
    order = []

    def enter(metadata):
        order.append(("enter", metadata.get()))

    def leave(metadata):
        order.append(("exit", metadata.get()))

    knobs.runtime.launch_enter_hook.add(enter)
    knobs.runtime.launch_exit_hook.add(leave)
    try:
        compiled = kernel[(1,)](out, 1.0, 64)
        forgetful(fill)[(1,)](out, 1.0, 64)
    finally:
        knobs.runtime.launch_enter_hook.remove(enter)
        knobs.runtime.launch_exit_hook.remove(leave)
    assert [when for when, _ in order] == ["enter", "exit"] * 2
    first = order[0][1]
    assert first["name"] == compiled.name
    assert first["function"] == compiled.function
    assert "stream" in first
    assert (first["grid"], first["n"], first["warps"]) == ((1, 1, 1), 64, compiled.metadata.num_warps)
    assert "grid" not in order[2][1]
    kernel[(1,)](out, 1.0, 64)
    assert len(order) == 4


def test_debug_is_an_option_an_argument_of_the_decorator_and_a_knob(knob, compiles):
    out = torch.zeros(64)
    jit(fill.fn)[(1,)](out, 1.0, 64)
    jit(fill.fn)[(1,)](out, 1.0, 64, debug=True)
    jit(debug=True)(fill.fn)[(1,)](out, 1.0, 64)
    knob("runtime", "debug", True)
    kernel = jit(fill.fn)
    kernel[(1,)](out, 1.0, 64)
    assert ["'debug': True" in event["key"] for event in compiles] == [False, True, True, True]


def test_plain_globals_may_be_allowed_and_are_watched(knob, make_module):
    module = make_module(
        "with_plain_global",
        "import triton.language as tl\nfrom opgraft.jit import jit\nC = 3.0\n"
        "@jit\ndef kernel(x):\n    tl.store(x, C)\n",
    )
    knob("compilation", "allow_non_constexpr_globals", True)
    x = torch.zeros(1)
    module.kernel[(1,)](x)
    assert x.item() == 3.0
    module.C = 4.0
    with pytest.raises(
        RuntimeError, match=r"Global variable C has changed since we compiled this kernel, from 3.0 to 4.0"
    ):
        module.kernel[(1,)](x)
    module.kernel.hash = None
    module.kernel.device_caches.clear()
    module.kernel[(1,)](x)
    assert x.item() == 4.0


def test_a_knob_that_is_set_after_a_launch_counts(forgetful, knob, compiles):
    kernel = forgetful(fill)
    out = torch.zeros(64)
    for _ in range(3):
        kernel[(1,)](out, 1.0, 64)
    knob("runtime", "debug", True)
    kernel[(1,)](out, 1.0, 64)
    assert len(compiles) == 2


def test_the_before_hook_may_veto(forgetful, knob):
    kernel = forgetful(fill)
    out = torch.zeros(64)
    knob("runtime", "jit_cache_hook", lambda **event: True)
    assert kernel[(1,)](out, 1.0, 64) is None
    assert out.sum() == 0
    knob("runtime", "jit_cache_hook", None)
    kernel[(1,)](out, 1.0, 64)
    assert out.sum() == 64


def test_a_name_may_be_made_from_the_specialization():
    @jit(repr=lambda specialization: f"fill_{specialization.constants['BLOCK']}_{specialization.signature['out'][1:]}")
    def named(out, BLOCK: tl.constexpr):
        tl.store(out + tl.arange(0, BLOCK), 1.0)

    kernel = named[(1,)](torch.zeros(16), 16)
    assert kernel.name == "fill_16_fp32"


# -- Variants ----------------------------------------------------------------------------------------------------


def test_a_variant_is_the_kernel_that_a_launch_uses(forgetful, compiles, device):
    kernel = forgetful(fill)
    variant = kernel.variant(
        device,
        {"out": "*fp32", "value": "fp32", "n": "i32", "BLOCK": "constexpr"},
        {"BLOCK": 64},
        {(0,): [["tt.divisibility", 16]], (2,): [["tt.divisibility", 16]]},
    )
    out = torch.zeros(64)
    assert kernel[(1,)](out, 1.0, 64) is variant
    assert out.sum() == 64
    assert len(compiles) == 1


def test_a_variant_takes_defaults_and_names_what_is_missing(device):
    signature = {"out": "*fp32", "value": "fp32", "n": "i32", "BLOCK": "constexpr"}
    assert fill.variant(device, signature, {}).src.constants == {(3,): 64}
    with pytest.raises(ValueError, match=r"missing: n, BLOCK, unknown: m"):
        fill.variant(device, {"out": "*fp32", "value": "fp32", "m": "i32"}, {})
    with pytest.raises(KeyError, match="num_wraps was specified but unrecognised; did you mean 'num_warps'"):
        fill.variant(device, signature, {}, options={"num_wraps": 4})

    @jit
    def needs(x, N: tl.constexpr):
        pass

    with pytest.raises(ValueError, match="the constexpr 'N' has no value"):
        needs.variant(device, {"x": "*fp32", "N": "constexpr"}, {})


def test_a_variant_for_a_gpu_needs_none():

    kernel = add.variant(
        GPUTarget("cuda", 90, 32),
        {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        {"BLOCK": 64},
    )
    assert "cubin" in kernel.asm and kernel.metadata.target.arch == 90
