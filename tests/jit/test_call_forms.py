"""Kernels call functions in every way that the language has: equal under Triton's decorator and ours."""

import json
import os
import re
import subprocess
import sys

import pytest

from . import call_forms

# What Triton does wrong: one of two local functions of the same name is compiled twice, the other never.
WRONG_IN_TRITON = {"both_local_siblings"}


@pytest.fixture(scope="module")
def outcomes():
    found = {}
    for decorator in ("stock", "ours"):
        result = subprocess.run(
            [sys.executable, call_forms.__file__],
            capture_output=True,
            text=True,
            env={**os.environ, "CALL_FORMS": decorator},
        )
        assert result.returncode == 0, result.stderr
        found[decorator] = json.loads(result.stdout)
    return found


def normalized(outcome):
    """An outcome without what tells the decorators apart: class paths, what an error adds, names of local functions."""
    text = "\n".join(outcome)
    text = text.replace("opgraft.jit.function.JITFunction", "triton.runtime.jit.JITFunction")
    text = re.sub(r"(outside of the scope of a kernel).*", r"\1", text)
    return re.sub(r"(<locals>\.\w+?)_[0-9a-f]{12}", r"\1", text)


@pytest.mark.parametrize("name", [kernel.__name__ for kernel in call_forms.FORMS])
def test_a_form_has_the_same_outcome(name, outcomes):
    ours, stock = normalized(outcomes["ours"][name]), normalized(outcomes["stock"][name])
    if name in WRONG_IN_TRITON:
        assert ours != stock
    else:
        assert ours == stock


def test_both_local_functions_of_one_name_are_compiled(outcomes):
    status, text = outcomes["ours"]["both_local_siblings"]
    assert status == "ok"
    bodies = re.findall(r"tt.func private @\"[^\"]*adder_[0-9a-f]{12}__.*?arith.constant ([\d.e+]+)", text, re.DOTALL)
    assert sorted(map(float, bodies)) == [2.0, 3.0]
