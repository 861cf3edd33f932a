"""Compiled kernels against Triton's interpreter, which runs the same source with numpy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from . import cases


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    path = tmp_path_factory.mktemp("interpreter") / "results.pt"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    script = Path(cases.__file__)
    done = subprocess.run([sys.executable, script, path], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return torch.load(path)


@pytest.fixture(scope="module")
def compiled():
    return cases.run("cpu")


NAMES = ["swizzle", "integer_soup", "running", "halves", "products", "bits", "overlapping"]


@pytest.mark.parametrize("name", NAMES)
def test_results_agree(name, compiled, interpreted):
    actual, expected = compiled[name], interpreted[name]
    if actual.dtype is torch.int32:
        assert torch.equal(actual, expected)
        return
    tolerance = {torch.float32: 1e-5, torch.float16: 2e-3}[actual.dtype]
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def test_every_case_is_compared(compiled):
    assert sorted(compiled) == sorted(NAMES)
