"""Reads constants: numbers with their type, `array<...>` and `dense<...>`."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any

from . import floats
from .attributes import DenseArray, DenseElements, Float, Integer
from .cursor import WORD
from .errors import IRError
from .types import F64, FLOAT_WIDTHS, I64, ScalarType, TensorType, Type

if TYPE_CHECKING:
    from .fragments import Fragments

SCALAR = re.compile(rf"(?:[su]?i\d+|index|{'|'.join(FLOAT_WIDTHS)})\b")
NUMBER = re.compile(r"-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*(?:[eE][-+]?\d+)?)?)")


def read_number(cursor: Fragments) -> Any:
    start = cursor.pos
    match = cursor.take(NUMBER)
    if match is None:
        cursor.fail("a number")
    word = match[0]
    is_decimal = "." in word
    type: Type = F64 if is_decimal else I64
    if cursor.accept(":"):
        type = cursor.read_type()
    if not isinstance(type, ScalarType):
        cursor.fail("an integer or float type for a number", start)
    if not type.is_float and is_decimal:
        cursor.fail(f"an integer of type {type}", start)
    value = _scalar(cursor, word, type)
    if isinstance(value, bool):
        return value
    return Float(value, type) if type.is_float else Integer(int(value), type)


def _scalar(cursor: Fragments, word: str, type: ScalarType) -> bool | int | float:
    """The value of a literal of the given type."""
    if type.is_float:
        try:
            if word.startswith("0x"):
                return floats.decode(type.name, int(word, 16))
            return floats.rounded(type.name, float(word))
        except IRError as error:  # a float type whose bits are not known
            raise IRError(str(error), cursor.line()) from None
    value = int(word, 0) if "0x" in word else int(word)
    return bool(value) if type.width == 1 else value


def read_dense_array(cursor: Fragments) -> DenseArray:
    match = cursor.take(SCALAR)
    if match is None:
        cursor.fail("the element type of array<...>")
    type = ScalarType(match[0])
    items: list[Any] = []
    if cursor.accept(":"):
        while True:
            items.append(_element(cursor, type))
            if not cursor.accept(","):
                break
    cursor.expect(">", "at the end of array<...>")
    return DenseArray(items, type)


def _element(cursor: Fragments, type: Type) -> bool | int | float:
    """One element of a dense constant."""
    if not isinstance(type, ScalarType):
        cursor.fail(f"a constant of numbers; {type} elements are not supported")
    match = cursor.take(WORD)
    if match is not None:
        if match[0] not in ("true", "false") or type.width != 1:
            cursor.fail(f"a number of type {type}", match.start())
        return match[0] == "true"
    match = cursor.take(NUMBER)
    if match is None or (not type.is_float and "." in match[0]):
        cursor.fail(f"a number of type {type}", cursor.pos if match is None else match.start())
    return _scalar(cursor, match[0], type)


def read_dense(cursor: Fragments) -> DenseElements:
    # The element type follows the elements: find it first, then read them.
    start = cursor.pos
    cursor.pos -= 1
    cursor.balanced()
    end = cursor.pos
    cursor.expect(":", "after dense<...>")
    type = cursor.read_type()
    if not isinstance(type, TensorType):
        cursor.fail("a tensor type after dense<...>", end)
    after = cursor.pos
    cursor.pos = start
    cursor.skip()
    first = cursor.text[cursor.pos]
    splat: bool | int | float | None = None
    values: list[Any] | tuple[Any, ...] | None = None
    if first == '"':
        values = _raw_elements(cursor, type)
    elif first == "[":
        values = []
        _nested(cursor, type, type.shape, values)
    elif first == ">" and type.size == 0:
        values = []
    else:
        splat = _element(cursor, type.element)
    cursor.expect(">", "at the end of dense<...>")
    if cursor.pos != end:
        cursor.fail("the end of dense<...>")
    cursor.pos = after
    return DenseElements(type, splat, values)


def _nested(cursor: Fragments, type: TensorType, shape: tuple[int, ...], out: list[Any]) -> None:
    start = cursor.pos
    if not shape:
        out.append(_element(cursor, type.element))
        return
    cursor.expect("[", f"in a constant of type {type}")
    for index in range(shape[0]):
        if index and not cursor.accept(","):
            cursor.fail(f"{shape[0]} elements here for {type}", start)
        _nested(cursor, type, shape[1:], out)
    if not cursor.accept("]"):
        cursor.fail(f"{shape[0]} elements here for {type}", start)


def _raw_elements(cursor: Fragments, type: TensorType) -> tuple[Any, ...]:
    """The elements of `dense<"0x...">`: little-endian bytes, one after the other."""
    start = cursor.pos
    word = cursor.read_string()
    element = type.element
    if not isinstance(element, ScalarType) or not re.fullmatch(r"0x(?:[0-9A-Fa-f]{2})*", word):
        cursor.fail("raw elements in hex", start)
    raw = bytes.fromhex(word[2:])
    count, size = type.size, max(element.width // 8, 1)
    if element.width == 1 and len(raw) == (count + 7) // 8 != count:
        return tuple(bool(raw[i // 8] >> i % 8 & 1) for i in range(count))
    if len(raw) != count * size:
        cursor.fail(f"{count * size} bytes for {type}", start)
    if element.width == 1:
        return tuple(bool(byte) for byte in raw)
    code = {1: "B", 2: "H", 4: "I", 8: "Q"}.get(size)
    if code is None:
        cursor.fail(f"raw elements of 1, 2, 4 or 8 bytes, not {element}", start)
    if element.is_float:
        return tuple(floats.decode(element.name, bits) for bits in struct.unpack(f"<{count}{code}", raw))
    return struct.unpack(f"<{count}{code.lower()}", raw)
