"""docs/compatibility.md has a row for every public name of Triton's runtime."""

import pathlib

import pytest
import triton
import triton.compiler.compiler
import triton.runtime.autotuner
import triton.runtime.cache
import triton.runtime.errors
import triton.runtime.jit
from triton import knobs

from .kernels import add

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "compatibility.md").read_text()
# What every group of knobs has.
COMMON = {"copy", "knob_descriptors", "knobs", "reset", "scope", "get_triton_dir"}


def defined_in(module):
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def of_knobs(group):
    return [name for name in dir(type(group)) if not name.startswith("_") and name not in COMMON]


NAMES = {
    "triton.runtime.jit": defined_in(triton.runtime.jit),
    "triton.runtime.autotuner": defined_in(triton.runtime.autotuner),
    "triton.runtime.cache": defined_in(triton.runtime.cache),
    "triton.runtime.errors": defined_in(triton.runtime.errors),
    "triton.compiler": defined_in(triton.compiler.compiler),
    "triton": [name for name in triton.__all__ if name != "runtime"],
    "kernels": [name for name in dir(triton.jit(add.fn)) if not name.startswith("__") and name != "_is_protocol"],
    "knobs.runtime": of_knobs(knobs.runtime),
    "knobs.compilation": of_knobs(knobs.compilation),
    "knobs.autotuning": of_knobs(knobs.autotuning),
    "knobs.cache": of_knobs(knobs.cache),
}


@pytest.mark.parametrize("group", NAMES)
def test_every_name_has_a_row(group):
    rows = "\n".join(line for line in PAGE.splitlines() if line.startswith(("|", "`")))
    missing = [name for name in NAMES[group] if f"`{name}`" not in rows and f".{name}`" not in rows]
    assert not missing


def test_nothing_but_hardware_and_removals_is_missing():
    refused = [line for line in PAGE.splitlines() if line.startswith("|") and "| not" in line]
    assert len(refused) == 1 and "AMD" in refused[0]
