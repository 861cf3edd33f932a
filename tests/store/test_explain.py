"""Why a kernel was compiled, and warnings about arguments that keep compiling."""

from __future__ import annotations

import warnings

import pytest
from triton.compiler.compiler import ASTSource

from opgraft.jit import explain
from opgraft.jit.compile import compile, on_compile
from opgraft.jit.events import launch_arguments
from opgraft.jit.explain import RecompileWarning, compare, nearest


@pytest.fixture(autouse=True)
def nothing_known(cache):
    """What `cache` forgets."""


def reasons(events):
    return [event.reason for event in events]


def test_the_first_variant_has_nothing_to_compare_with(kernels, events):
    compile(kernels.add_source(), kernels.CUDA)
    (event,) = events
    assert event.reason == "first variant of this kernel in this process"
    assert event.kernel == "store_kernels.add" and event.target == kernels.CUDA
    assert event.outcome == "compiled" and 0 < event.seconds < 60
    assert event.key["constexprs"] == {"BLOCK": "64"} and len(event.hash) == 64
    assert str(event).startswith("store_kernels.add: compiled in ")


def test_a_value_that_is_no_longer_a_multiple_of_16(kernels, events):
    with launch_arguments({"n": 4096}):
        compile(kernels.add_source(), kernels.CUDA)
    with launch_arguments({"n": 17}):
        compile(kernels.add_source(divisible=False), kernels.CUDA)
    assert reasons(events)[1] == "argument n was a multiple of 16, now 17"


def test_without_the_values_the_reason_names_kinds(kernels, events):
    compile(kernels.add_source(), kernels.CUDA)
    compile(kernels.add_source(divisible=False), kernels.CUDA)
    compile(kernels.add_source(n="constexpr"), kernels.CUDA)
    assert reasons(events)[1:] == [
        "argument n was a multiple of 16, now any i32",
        "argument n was any i32, now 1",
    ]


def test_constants_and_types_and_options(kernels, events):
    compile(kernels.add_source(), kernels.CUDA)
    compile(kernels.add_source(block=128), kernels.CUDA)
    compile(kernels.add_source(block=128, pointer="*fp16"), kernels.CUDA)
    compile(kernels.add_source(block=128, pointer="*fp16"), kernels.CUDA, {"num_warps": 8})
    assert reasons(events)[1:] == [
        "constexpr BLOCK was 64, now 128",
        "argument x was *fp32, now *fp16; argument y was *fp32, now *fp16; argument out was *fp32, now *fp16",
        "option num_warps was 4, now 8",
    ]


def test_the_nearest_variant_is_compared_with(kernels, events):
    compile(kernels.add_source(block=64), kernels.CUDA, {"num_warps": 1})
    compile(kernels.add_source(block=128, pointer="*fp16"), kernels.CUDA, {"num_warps": 2})
    compile(kernels.add_source(block=64), kernels.CUDA, {"num_warps": 4})
    assert reasons(events)[2] == "option num_warps was 1, now 4"


def test_a_load_from_the_store_has_a_reason_too(kernels, events):
    compile(kernels.add_source(), kernels.CUDA)
    compile(kernels.add_source(block=128), kernels.CUDA)
    explain.history._keys.clear()
    compile(kernels.add_source(), kernels.CUDA)
    compile(kernels.add_source(block=128), kernels.CUDA)
    assert [event.outcome for event in events] == ["compiled", "compiled", "stored", "stored"]
    assert reasons(events)[3] == "constexpr BLOCK was 64, now 128"


def test_what_changed_since_an_earlier_process_is_asked_of_the_store(kernels, events):
    compile(kernels.add_source(), kernels.CUDA)
    assert events[0].reason_from_store() == "no other variant of this kernel is stored"
    explain.history._keys.clear()
    compile(kernels.add_source(block=128), kernels.CUDA)
    assert events[1].reason == "first variant of this kernel in this process"
    assert events[1].reason_from_store() == "constexpr BLOCK was 64, now 128"


KEY = {
    "function": "f",
    "target": "cuda:80:32",
    "stage": "ttir",
    "toolchain": "t",
    "signature": {"p": "*fp32", "pair[0]": "i32"},
    "constexprs": {},
    "attributes": {"p": "[['tt.divisibility', 16]]"},
    "options": {"hash": "1", "num_warps": "4"},
    "environment": {},
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"function": "g"},
            "the source of the kernel, of a function that it calls or a value that it captures changed",
        ),
        ({"toolchain": "u"}, "the compiler changed"),
        ({"target": "cuda:90:32"}, "the target was cuda:80:32, now cuda:90:32"),
        ({"stage": "ttgir"}, "it was compiled from ttir, now from ttgir"),
        ({"environment": {"A": "1"}}, "environment variable A was not set, now 1"),
        ({"attributes": {}}, "argument p was aligned to 16 bytes, now not aligned to 16 bytes"),
        ({"overrides": {"add.ttgir": "d"}}, "the files that override its IR changed"),
        ({"pipeline": "p"}, "the pass pipeline changed (add_stages_inspection_hook)"),
        ({"options": {"hash": "2", "num_warps": "4"}}, "its options differ in a way that only the backend knows"),
    ],
)
def test_every_part_of_the_key_has_words(change, words):
    assert nearest([KEY], {**KEY, **change}, {}) == words


def test_equal_keys_do_not_differ():
    assert compare(KEY, KEY) == []


def test_callbacks_can_be_removed_and_may_fail(kernels):
    seen = []

    def fails(event):
        raise ZeroDivisionError("in the callback")

    stops = [on_compile(fails), on_compile(seen.append)]
    with pytest.warns(RuntimeWarning, match="in the callback"):
        compile(kernels.add_source(), kernels.CUDA)
    for stop in stops:
        stop()
    compile(kernels.add_source(block=128), kernels.CUDA)
    assert len(seen) == 1


# ---- an argument that keeps compiling ----


def variant(number, **other):
    return {**KEY, "signature": {"n": "constexpr"}, "constexprs": {"n": str(number)}, "attributes": {}, **other}


def watch_all(keys):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for key in keys:
            explain.watch("module.kernel", key)
    return [str(warning.message) for warning in caught if warning.category is RecompileWarning]


def test_an_argument_with_ever_new_values_is_named_once():
    (message,) = watch_all(variant(number) for number in range(100, 130))
    assert message.startswith(
        "kernel module.kernel: 8 variants were compiled that differ only in argument n (100, 101, 102, 103, ..., 107)"
    )
    assert "do_not_specialize" in message


def test_few_values_or_values_that_come_again_are_not():
    assert watch_all([variant(number) for number in range(7)] * 3) == []


def test_block_sizes_are_not():
    assert watch_all(variant(2**power) for power in range(14)) == []


def test_values_that_come_with_other_differences_are_not():
    assert watch_all(variant(number, function=f"f{number}") for number in range(30)) == []


def test_compiles_are_watched(kernels):
    signature = {"out": "*i32", **dict.fromkeys("ABCDE", "constexpr")}
    with pytest.warns(RecompileWarning, match="constants: 8 variants .* argument A "):
        for number in range(8):
            constants = {(1,): number + 100, (2,): 0, (3,): 0, (4,): 0, (5,): 0}
            compile(ASTSource(kernels.constants, signature, constants, {}), kernels.CUDA)
