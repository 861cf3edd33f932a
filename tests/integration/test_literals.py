"""Compile-time arguments as text: what is written is read back, and equal values have equal text."""

import enum
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st

from opgraft.integration.literals import decode, encode

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.lists(inner, max_size=3))


class Shade(enum.Enum):
    DARK = "dark"


class Size(enum.IntEnum):
    SMALL = 16


class Tile(NamedTuple):
    rows: int
    columns: int


@given(st.dictionaries(st.from_regex(r"[A-Z][A-Z0-9_]{0,5}", fullmatch=True), values, max_size=4))
def test_plain_values_are_read_back(arguments):
    assert decode(encode(arguments)) == arguments


@pytest.mark.parametrize(
    "value",
    [torch.float16, torch.bfloat16, tl.float32, tl.float8e5, Shade.DARK, Size.SMALL, Tile(4, 8), {"a": (1,)}],
)
def test_values_of_known_kinds_are_read_back(value):
    (read,) = decode(encode({"X": value})).values()
    assert read == value
    assert type(read) is type(value)


def test_infinities_and_nan_are_read_back():
    read = decode(encode({"A": math.inf, "B": -math.inf, "C": math.nan}))
    assert read["A"] == math.inf
    assert read["B"] == -math.inf
    assert math.isnan(read["C"])


def test_numpy_scalars_are_written_as_numbers():
    assert encode({"N": np.int64(64), "E": np.float32(0.5)}) == "N=64, E=0.5"


def test_the_text_is_readable():
    text = encode({"BLOCK": 1024, "ACT": "gelu", "DT": torch.float16, "MASK": None, "num_warps": 4})
    assert text == "BLOCK=1024, ACT='gelu', DT=torch_dtype('float16'), MASK=None, num_warps=4"


def test_an_object_without_a_literal_is_the_same_object_when_read_in_this_process():
    class Thing:
        pass

    thing = Thing()
    assert decode(encode({"X": thing}))["X"] is thing
    assert encode({"X": thing}) == encode({"X": thing})


def test_an_object_of_another_process_is_refused_by_name():
    with pytest.raises(LookupError, match="Thing belongs to another process"):
        decode("X=object('Thing', '1.abc.0')")


@pytest.mark.parametrize("text", ["1 +", "X=__import__('os')", "X=f(1)", "1, 2"])
def test_text_that_is_no_launch_literal_is_refused(text):
    with pytest.raises(ValueError):
        decode(text)
