"""Bit patterns of the floats of Triton IR, and their values as Python floats.

`decode(type name, bits) -> float` and `encode(type name, value) -> bits` (round to nearest, ties to even).
IEEE formats follow IEEE 754; the 8-bit ones follow the LLVM APFloat semantics of the same name.
"""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import NamedTuple

from .errors import IRError


class Format(NamedTuple):
    """Widths in bits and the bias; `special` says how infinities and NaNs are coded.

    "ieee": all-ones exponent is inf or NaN. "fn": no inf, NaN is all ones. "fnuz": no inf, no negative zero,
    NaN is the sign bit alone. "e8m0": exponent only, NaN is all ones.
    """

    exponent: int
    mantissa: int
    bias: int
    special: str


FORMATS = {
    "f16": Format(5, 10, 15, "ieee"),
    "bf16": Format(8, 7, 127, "ieee"),
    "f32": Format(8, 23, 127, "ieee"),
    "f64": Format(11, 52, 1023, "ieee"),
    "f8E5M2": Format(5, 2, 15, "ieee"),
    "f8E4M3": Format(4, 3, 7, "ieee"),
    "f8E3M4": Format(3, 4, 3, "ieee"),
    "f8E4M3FN": Format(4, 3, 7, "fn"),
    "f8E5M2FNUZ": Format(5, 2, 16, "fnuz"),
    "f8E4M3FNUZ": Format(4, 3, 8, "fnuz"),
    "f8E4M3B11FNUZ": Format(4, 3, 11, "fnuz"),
}
_STRUCT = {"f32": ("<f", "<I"), "f64": ("<d", "<Q")}


def _format(name: str) -> Format:
    try:
        return FORMATS[name]
    except KeyError:
        raise IRError(f"constants of type {name} are not supported; expected one of {', '.join(FORMATS)}") from None


def decode(name: str, bits: int) -> float:
    """The value of the bit pattern `bits` of the float type `name`."""
    if name in _STRUCT:
        value, raw = _STRUCT[name]
        return float(struct.unpack(value, struct.pack(raw, bits))[0])
    form = _format(name)
    sign = -1.0 if bits >> (form.exponent + form.mantissa) & 1 else 1.0
    exponent = bits >> form.mantissa & ((1 << form.exponent) - 1)
    fraction = bits & ((1 << form.mantissa) - 1)
    top = (1 << form.exponent) - 1
    if form.special == "ieee" and exponent == top:
        return math.copysign(math.nan, sign) if fraction else sign * math.inf
    if form.special == "fn" and exponent == top and fraction == (1 << form.mantissa) - 1:
        return math.copysign(math.nan, sign)
    if form.special == "fnuz" and sign < 0 and exponent == 0 and fraction == 0:
        return math.nan
    if exponent == 0:
        return sign * math.ldexp(fraction, 1 - form.bias - form.mantissa)
    return sign * math.ldexp(fraction + (1 << form.mantissa), exponent - form.bias - form.mantissa)


def encode(name: str, value: float) -> int:
    """The bits of `value` in float type `name`; out of range becomes inf, or NaN where there is no inf."""
    if name == "f64":
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    form = _format(name)
    top = (1 << form.exponent) - 1
    negative = math.copysign(1.0, value) < 0
    sign = int(negative) << (form.exponent + form.mantissa)
    nan = {
        "ieee": sign | top << form.mantissa | 1 << (form.mantissa - 1),
        "fn": sign | (1 << (form.exponent + form.mantissa)) - 1,
        "fnuz": 1 << (form.exponent + form.mantissa),
    }[form.special]
    if math.isnan(value):
        if name == "f32":  # keeps the payload
            return int(struct.unpack("<I", struct.pack("<f", value))[0])
        return nan
    infinity = sign | top << form.mantissa if form.special == "ieee" else nan
    if math.isinf(value):
        return infinity
    magnitude = abs(value)
    _, exponent = math.frexp(magnitude)
    # the unit in the last place of the format at this magnitude, denormals included
    unit = max(exponent - 1 - form.mantissa, 1 - form.bias - form.mantissa)
    units = round(math.ldexp(magnitude, -unit))  # exact scaling, then ties to even
    if units == 0:
        return 0 if form.special == "fnuz" else sign
    if units >= 1 << (form.mantissa + 1):
        units >>= 1
        unit += 1
    if units < 1 << form.mantissa:
        return sign | units
    field = unit + form.mantissa + form.bias
    bits = field << form.mantissa | units & ((1 << form.mantissa) - 1)
    if bits > _largest(name):
        return infinity
    return sign | bits


@cache
def _largest(name: str) -> int:
    """Bits of the largest finite value."""
    form = _format(name)
    ones = (1 << (form.exponent + form.mantissa)) - 1
    return {"ieee": ones - (1 << form.mantissa), "fn": ones - 1, "fnuz": ones}[form.special]


def rounded(name: str, value: float) -> float:
    """`value` rounded to the float type `name`, as a Python float."""
    if name == "f64":
        return value
    return decode(name, encode(name, value))
