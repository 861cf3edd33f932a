"""Bits of floats against torch, every pattern of the formats that have up to 16 bits."""

import itertools
import math
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opgraft.jit.ir import IRError
from opgraft.jit.ir.floats import decode, encode, rounded

DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f8E5M2": torch.float8_e5m2,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2FNUZ": torch.float8_e5m2fnuz,
    "f8E4M3FNUZ": torch.float8_e4m3fnuz,
}
each_format = pytest.mark.parametrize("name", DTYPES)


def _patterns(name):
    dtype = DTYPES[name]
    width = torch.finfo(dtype).bits
    bits = torch.arange(2**width, dtype=torch.int64)
    integer = torch.uint8 if width == 8 else torch.int16
    return bits.tolist(), bits.to(integer).view(dtype).to(torch.float64).tolist()


@each_format
def test_every_bit_pattern_has_the_value_that_torch_gives(name):
    for bits, value in zip(*_patterns(name), strict=True):
        found = decode(name, bits)
        assert found == value or (math.isnan(found) and math.isnan(value)), hex(bits)
        assert math.isnan(value) or math.copysign(1, found) == math.copysign(1, value), hex(bits)


@each_format
def test_every_value_has_its_bit_pattern(name):
    for bits, value in zip(*_patterns(name), strict=True):
        if not math.isnan(value):
            assert encode(name, value) == bits
    assert math.isnan(decode(name, encode(name, math.nan)))


@each_format
def test_between_two_values_the_nearer_is_taken_and_the_even_one_at_the_middle(name):
    finite = sorted({value for value in _patterns(name)[1] if math.isfinite(value)})
    pairs = list(itertools.pairwise(finite))
    for low, high in pairs[:: 1 + len(pairs) // 4000]:
        middle = (low + high) / 2
        assert rounded(name, math.nextafter(middle, -math.inf)) == low
        assert rounded(name, math.nextafter(middle, math.inf)) == high
        even = low if encode(name, low) % 2 == 0 else high
        assert rounded(name, middle) == even


@settings(deadline=None)
@given(st.floats(width=64))
def test_float32_rounds_like_the_hardware(value):
    try:
        expected = struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        expected = 0x7F800000 if value > 0 else 0xFF800000
    assert encode("f32", value) == expected


@settings(deadline=None)
@given(st.floats(width=64))
def test_float64_is_kept(value):
    assert struct.pack("<d", decode("f64", encode("f64", value))) == struct.pack("<d", value)


def test_beyond_the_largest_value():
    """IEEE formats have infinity; the others only NaN (LLVM's APFloat)."""
    assert decode("f8E5M2", encode("f8E5M2", 1e9)) == math.inf
    assert rounded("f16", 65519.0) == 65504.0 and rounded("f16", 65520.0) == math.inf
    assert math.isnan(rounded("f8E4M3FN", 1e9)) and rounded("f8E4M3FN", 464.0) == 448.0
    assert math.isnan(rounded("f8E4M3FNUZ", -math.inf))


def test_a_format_that_is_not_known():
    with pytest.raises(IRError, match="tf32"):
        decode("tf32", 0)
