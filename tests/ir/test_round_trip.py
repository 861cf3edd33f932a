"""Reading the generic form and writing it back loses nothing: Triton sees the same module."""

import pytest

from opgraft.jit.ir import generic_text, parse, print_module

from .frontend import triton_compile, triton_module, triton_parse
from .kernels import CASES

each_kernel = pytest.mark.parametrize("case", CASES, ids=str)


def _module(case, **how):
    return triton_module(case.kernel, case.signature, case.constants, aligned=case.aligned, **how)


@each_kernel
def test_the_kernel_emits_the_operations_it_is_here_for(case):
    module = parse(generic_text(*_module(case, debug=True)))
    assert set(case.operations) <= {op.name for op in module.walk()}


@each_kernel
@pytest.mark.parametrize("passes", [False, True], ids=["frontend", "ttir"])
def test_triton_reads_back_the_same_module(case, passes, tmp_path):
    """Verified, and equal in Triton's own print, source locations and argument names included."""
    module, context = _module(case, passes=passes, debug=True)
    before = str(module)
    text = print_module(parse(generic_text(module, context)))
    assert str(module) == before, "generic_text left its mark on the module"
    again = triton_parse(text, tmp_path)
    assert again.verify()
    assert str(again) == before
    assert print_module(parse(text)) == text


QUICK = ("add", "early_returns", "nested")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=str(case), marks=() if str(case) in QUICK else pytest.mark.slow)
        for case in CASES
        if case.compiles
    ],
)
def test_the_rewritten_text_compiles_to_a_cubin(case, tmp_path):
    module, context = _module(case, passes=True)
    compiled = triton_compile(print_module(parse(generic_text(module, context))), tmp_path)
    assert len(compiled.asm["cubin"]) > 0
    # the reader is made for TTIR; TTGIR has layouts, and the same grammar
    (tmp_path / "ttgir").mkdir()
    lower = triton_parse(compiled.asm["ttgir"], tmp_path / "ttgir")
    again = triton_parse(print_module(parse(generic_text(lower, lower.context))), tmp_path / "ttgir")
    assert str(again) == str(lower)
