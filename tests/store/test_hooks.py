"""The hooks around a compile, and preloading from what they hand out."""

from __future__ import annotations

import json

import numpy
import pytest
import torch
import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget

from opgraft.jit import jit
from opgraft.jit.drivers import backend_for
from opgraft.jit.hooks import Variant
from opgraft.jit.preload import dump_specialization, load_specialization


@pytest.fixture(autouse=True)
def own_settings(cache):
    with knobs.runtime.scope():
        yield


@pytest.fixture
def kernel(kernels):
    """A new kernel of our runtime, without variants."""
    return jit(kernels.add.fn)


SIGNATURE = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
ATTRIBUTES = {(0,): [["tt.divisibility", 16]]}


def compile_variant(kernel, kernels, block=64, **options):
    return kernel.variant(kernels.CUDA, SIGNATURE, {"BLOCK": block}, ATTRIBUTES, options)


def record_calls(answer=None):
    calls = []

    def hook(**kwargs):
        calls.append(kwargs)
        return answer

    return calls, hook


def test_both_hooks_get_the_payload_of_tritons_runtime(kernel, kernels):
    before, knobs.runtime.jit_cache_hook = record_calls()
    after, knobs.runtime.jit_post_compile_hook = record_calls()
    compile_variant(kernel, kernels, num_warps=2)
    (call,), (second,) = before, after
    assert call == second
    assert set(call) == {"key", "repr", "fn", "compile", "is_manual_warmup", "already_compiled"}
    assert call["already_compiled"] is False and call["is_manual_warmup"] is True
    assert (call["fn"].module, call["fn"].name) == ("store_kernels", "add")
    assert call["fn"].jit_function is kernel
    info = call["compile"]
    assert set(info) == {
        "key",
        "signature",
        "device",
        "constants",
        "num_warps",
        "num_ctas",
        "num_stages",
        "enable_fp_fusion",
        "launch_cooperative_grid",
        "extern_libs",
        "configs",
        "specialization_data",
        "is_warmup",
    }
    assert info["key"] == call["key"] and info["signature"] == SIGNATURE
    assert info["constants"] == {(4,): 64} and info["configs"] == [ATTRIBUTES]
    assert (info["num_warps"], info["num_ctas"], info["num_stages"]) == (2, 1, 3)


def test_the_repr_shows_options_and_argument_types(kernel, kernels):
    calls, knobs.runtime.jit_cache_hook = record_calls()
    compile_variant(kernel, kernels)
    assert calls[0]["repr"] == (
        "add[num_warps=4, num_ctas=1, num_stages=3, enable_fp_fusion=True, launch_cooperative_grid=False]"
        "(x: *fp32, y: *fp32, out: *fp32, n: i32, BLOCK: constexpr)"
    )


def test_a_true_answer_of_the_before_hook_is_a_veto(kernel, kernels, events):
    _, knobs.runtime.jit_cache_hook = record_calls(True)
    after, knobs.runtime.jit_post_compile_hook = record_calls()
    assert compile_variant(kernel, kernels) is None
    assert events == [] and after == []
    knobs.runtime.jit_cache_hook = None
    assert compile_variant(kernel, kernels).asm["cubin"], "a veto is not remembered"


def test_hooks_are_called_once_for_each_variant(kernel, kernels):
    calls, knobs.runtime.jit_cache_hook = record_calls()
    for block in (64, 64, 128):
        compile_variant(kernel, kernels, block)
    assert [call["compile"]["constants"] for call in calls] == [{(4,): 64}, {(4,): 128}]


# ---- specialization data ----


def recorded(kernel, kernels, **options):
    """Specialization data as a hook receives it."""
    with knobs.runtime.scope():
        calls, knobs.runtime.jit_cache_hook = record_calls(True)
        compile_variant(kernel, kernels, **options)
    return calls[0]["compile"]["specialization_data"]


def load(kernel, data, kernels, target=None):
    target = target or kernels.CUDA
    return load_specialization(kernel, data, target, backend_for(target), 0)


def test_the_data_has_the_fields_of_tritons(kernel, kernels):
    data = json.loads(recorded(kernel, kernels))
    assert data["name"] == "store_kernels.add"
    assert data["signature"] == SIGNATURE
    assert (data["constant_keys"], data["constant_vals"]) == ([[4]], [64])
    assert (data["attrs_keys"], data["attrs_vals"]) == ([[0]], [[["tt.divisibility", 16]]])
    assert data["target"] == {"backend": "cuda", "arch": 80, "warp_size": 32}
    assert data["options"]["num_warps"] == 4 and isinstance(data["key"], str)


def test_it_reads_back_as_the_same_variant(kernel, kernels):
    variant = load(kernel, recorded(kernel, kernels, num_warps=8), kernels)
    backend = backend_for(kernels.CUDA)
    assert variant.signature == SIGNATURE and variant.constexprs == {(4,): 64}
    assert {path: [list(pair) for pair in attr] for path, attr in variant.attrs.items()} == ATTRIBUTES
    assert variant.options == backend.parse_options({"num_warps": 8, "debug": False})


def test_a_preloaded_variant_is_the_one_that_was_recorded(kernel, kernels, events):
    from opgraft.jit.compile import compile

    data = recorded(kernel, kernels)
    wanted = compile_variant(kernel, kernels)
    variant = load(kernel, data, kernels)
    source = kernel.ASTSource(kernel, variant.signature, variant.constexprs, variant.attrs)
    preloaded = compile(source, variant.target, vars(variant.options))
    assert preloaded.hash == wanted.hash
    assert [event.outcome for event in events] == ["compiled", "stored"]


def test_data_for_another_kernel_is_refused(kernel, kernels):
    other = jit(kernels.fill.fn)
    with pytest.raises(
        RuntimeError,
        match=r"Specialization data is for store_kernels\.add but trying to preload for store_kernels\.fill",
    ):
        load(other, recorded(kernel, kernels), kernels)


def test_data_for_another_target_is_refused(kernel, kernels):
    with pytest.raises(RuntimeError, match=r"Specialization data is for .*80.* but trying to preload for .*90"):
        load(kernel, recorded(kernel, kernels), kernels, GPUTarget("cuda", 90, 32))


def test_data_for_other_parameters_is_refused(kernel, kernels):
    data = json.loads(recorded(kernel, kernels))
    data["signature"] = {"x": "*fp32"}
    with pytest.raises(RuntimeError, match="record it again"):
        load(kernel, json.dumps(data), kernels)


@pytest.mark.parametrize("data", ["", "{}", "[]", "null", '{"name": 1}'])
def test_what_is_not_specialization_data_is_refused(kernel, kernels, data):
    with pytest.raises(ValueError, match="not specialization data"):
        load(kernel, data, kernels)


CONSTANTS = [
    None,
    True,
    7,
    -0.0,
    2**40,
    "text",
    "fp32",
    tl.float16,
    torch.bfloat16,
    numpy.int64(3),
    (1, (2, "x"), None),
    tl.constexpr(5),
    tl.constexpr((1, 2)),
]


@pytest.mark.parametrize("value", CONSTANTS, ids=repr)
def test_a_constant_comes_back_as_it_was(kernels, value):
    found = round_trip(kernels, value)
    assert type(found) is type(value)
    if isinstance(value, tl.constexpr):
        assert type(found.value) is type(value.value) and found.value == value.value
    else:
        assert found == value and repr(found) == repr(value)


def test_named_tuples_enums_functions_and_classes_come_back(kernels):
    pair = kernels.Pair(1, 2.5)
    for value in (pair, kernels.Color.BLUE, kernels.fill, kernels.Plain, (kernels.fill, pair)):
        found = round_trip(kernels, value)
        assert found == value and type(found) is type(value)


def round_trip(kernels, value):
    kernel = kernels.constants
    options = backend_for(kernels.CUDA).parse_options({})
    signature = {"out": "*i32", **dict.fromkeys("ABCDE", "constexpr")}
    variant = Variant("key", signature, {(1,): value}, {}, options, kernels.CUDA, 0)
    return load(kernel, dump_specialization(kernel, variant), kernels).constexprs[1,]


def test_tuple_arguments_come_back_with_their_paths(kernels):
    kernel = kernels.fill
    options = backend_for(kernels.CUDA).parse_options({})
    signature = {"out": ("*i32", ("i32", "constexpr")), "value": "i32"}
    variant = Variant("key", signature, {(0, 1, 1): 4}, {(0, 0): [["tt.divisibility", 16]]}, options, kernels.CUDA, 0)
    found = load(kernel, dump_specialization(kernel, variant), kernels)
    assert found.signature == signature and found.constexprs == {(0, 1, 1): 4} and list(found.attrs) == [(0, 0)]


def test_a_constant_that_cannot_be_written_does_not_fail_the_hook_but_the_preload(kernels):
    with pytest.raises(RuntimeError, match=r"argument A: a value that cannot be preloaded \(Plain: "):
        round_trip(kernels, kernels.Plain(1))


def test_a_function_that_is_gone_is_named(kernels):
    data = json.loads(dump(kernels, kernels.fill))
    data["constant_vals"] = [{"jit_function": "store_kernels:gone"}]
    with pytest.raises(RuntimeError, match="Unable to resolve JITFunction store_kernels:gone"):
        load(kernels.constants, json.dumps(data), kernels)


def dump(kernels, value):
    options = backend_for(kernels.CUDA).parse_options({})
    signature = {"out": "*i32", **dict.fromkeys("ABCDE", "constexpr")}
    return dump_specialization(
        kernels.constants, Variant("key", signature, {(1,): value}, {}, options, kernels.CUDA, 0)
    )


def test_data_that_triton_wrote_can_be_read(kernels):
    """Stock serialization of the same variant, where its arguments are the same."""
    import inspect

    from triton.runtime.jit import serialize_specialization_data

    options = backend_for(kernels.CUDA).parse_options({})
    signature = {"out": "*i32", **dict.fromkeys("ABCDE", "constexpr")}
    values = {(1,): 3, (2,): tl.float16, (3,): tl.constexpr(2.5), (4,): True}
    takes_target = "target" in inspect.signature(serialize_specialization_data).parameters
    last = (kernels.CUDA,) if takes_target else ()
    text = serialize_specialization_data(
        "store_kernels.constants", signature, values, {(0,): [["tt.divisibility", 16]]}, options, "key", *last
    )
    variant = load(kernels.constants, text, kernels)
    assert variant.constexprs[1,] == 3 and variant.constexprs[2,] == tl.float16
    assert variant.constexprs[3,].value == 2.5 and variant.constexprs[4,] is True
    assert variant.options == options


def test_triton_reads_what_we_write(kernels):
    stock = triton.jit(kernels.add.fn)
    ours = json.loads(recorded(jit(kernels.add.fn), kernels))
    assert ours["name"] == stock._fn_name
    assert all(isinstance(ours[field], list) for field in ("constant_keys", "constant_vals", "attrs_keys"))
