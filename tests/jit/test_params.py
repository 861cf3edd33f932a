"""Annotations in every form, and what may be specialized."""

import pytest
import torch
import triton
import triton.language as tl

from opgraft.jit import jit
from opgraft.jit.params import CANONICAL, normalize_annotation

FORMS = [
    ("*fp32", "*fp32"),
    ("fp32*", "*fp32"),
    (" *fp16 ", "*fp16"),
    ("const fp32*", "*kfp32"),
    ("const *fp32", "*kfp32"),
    ("*kfp32", "*kfp32"),
    ("**fp32", "**fp32"),
    ("tl.int32", "i32"),
    ("triton.language.int32", "i32"),
    ("int32_t", "i32"),
    ("uint8_t", "u8"),
    ("int", "i32"),
    ("float", "fp32"),
    ("bool", "u1"),
    ("half", "fp16"),
    ("double", "fp64"),
    ("bfloat16", "bf16"),
    ("float8e4nv", "fp8e4nv"),
    ("float8_e5m2", "fp8e5"),
    ("'tl.constexpr'", "constexpr"),
    (tl.int32, "i32"),
    (tl.float16, "fp16"),
    (tl.int1, "u1"),
    (tl.pointer_type(tl.float32), "*fp32"),
    (torch.float32, "fp32"),
    (torch.int64, "i64"),
    (int, "i32"),
    (float, "fp32"),
    (bool, "u1"),
    (tl.constexpr, "constexpr"),
    (tl.const, "const"),
    (tl.tensor, "tensor"),
]


@pytest.mark.parametrize("annotation, expected", FORMS, ids=lambda value: str(value))
def test_an_annotation_has_one_canonical_name(annotation, expected):
    assert normalize_annotation(annotation) == expected


def test_names_are_those_of_triton():
    from triton._utils import type_canonicalisation_dict

    assert type_canonicalisation_dict == CANONICAL


def test_const_of_something_that_is_no_pointer_is_refused():
    with pytest.raises(TypeError, match=r"const is for pointers; write 'const i32\*'"):
        normalize_annotation("const i32")


CONST_FLOATS = "const fp32*"
INT64 = "i64"


@jit(do_not_specialize=["a", 1], do_not_specialize_on_alignment=["c"])
def kernel(
    a, b, c: CONST_FLOATS, d: tl.const, e: tl.constexpr, f: INT64 = 3, g: tl.float32 = 1.0, *, h: tl.constexpr = 2
):
    pass


def test_parameters_say_what_was_written():
    assert [p.num for p in kernel.params] == list(range(8))
    assert [p.name for p in kernel.params] == list("abcdefgh")
    assert [p.do_not_specialize for p in kernel.params] == [True, True] + [False] * 6
    assert [p.do_not_specialize_on_alignment for p in kernel.params] == [False, False, True] + [False] * 5
    assert [p.is_constexpr for p in kernel.params] == [False] * 4 + [True, False, False, True]
    assert [p.is_const for p in kernel.params] == [False, False, True, True] + [False] * 4
    assert [p.annotation_type for p in kernel.params] == ["", "", "*kfp32", "", "", "i64", "fp32", ""]
    assert [p.has_default for p in kernel.params] == [False] * 5 + [True] * 3
    assert kernel.params[5].default == 3
    assert all(isinstance(p, triton.runtime.jit.KernelParam) for p in kernel.params)


def test_parameters_agree_with_triton():
    stock = triton.jit(do_not_specialize=["a", 1], do_not_specialize_on_alignment=["c"])(kernel.fn)
    for ours, theirs in zip(kernel.params, stock.params, strict=True):
        for name in (
            "num",
            "name",
            "annotation",
            "annotation_type",
            "is_constexpr",
            "is_const",
            "do_not_specialize",
            "do_not_specialize_on_alignment",
            "has_default",
        ):
            assert getattr(ours, name) == getattr(theirs, name), (ours, name)


def test_postponed_annotations_are_understood(make_module):
    module = make_module(
        "postponed",
        "from __future__ import annotations\nimport triton.language as tl\nfrom opgraft.jit import jit\n"
        "@jit\ndef kernel(x: '*fp32', n: tl.int32, N: tl.constexpr):\n    pass\n",
    )
    assert [p.annotation_type for p in module.kernel.params] == ["*fp32", "i32", ""]
    assert module.kernel.constexprs == [2]


@pytest.mark.parametrize("option", ["do_not_specialize", "do_not_specialize_on_alignment"])
@pytest.mark.parametrize("entry", ["missing", 8, -1, True, 1.0, None])
def test_an_entry_that_is_no_parameter_is_refused(option, entry):
    with pytest.raises(ValueError, match=rf"kernel: {option} has {entry!r}, which is no parameter; .*0: a, 1: b"):
        jit(**{option: [entry]})(kernel.fn)


@pytest.mark.parametrize("option", ["do_not_specialize", "do_not_specialize_on_alignment"])
@pytest.mark.parametrize("entry", ["e", 4])
def test_a_constexpr_that_is_not_to_be_specialized_is_refused(option, entry):
    with pytest.raises(ValueError, match=rf"parameter 'e' is a tl.constexpr, .*{option}"):
        jit(**{option: [entry]})(kernel.fn)


def test_one_entry_needs_no_list():
    assert jit(do_not_specialize="b")(kernel.fn).params[1].do_not_specialize
    assert jit(do_not_specialize=1)(kernel.fn).params[1].do_not_specialize


def test_surplus_keyword_parameters_are_refused():
    def with_rest(x, **rest):
        pass

    with pytest.raises(TypeError, match=r"JIT functions do not support \*\*rest parameters"):
        jit(with_rest)
