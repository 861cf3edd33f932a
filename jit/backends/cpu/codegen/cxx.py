"""How types, constants and names of the IR are written in C++."""

from __future__ import annotations

import functools
import math
import re
import struct
from pathlib import Path
from typing import Any

from ....ir import PointerType, ScalarType, TensorType, Type

# Elements as they lie in memory.
_STORAGE = {
    "i1": "bool", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64", "index": "i64",
    "f32": "f32", "f64": "f64", "f16": "f16", "bf16": "bf16", "f8E5M2": "f8e5m2", "f8E4M3FN": "f8e4m3fn",
}  # fmt: skip
SMALL_FLOATS = frozenset(["f16", "bf16", "f8E5M2", "f8E4M3FN"])

# C++ keywords and functions of the C library: names that generated code must not declare.
_KEYWORDS = re.findall(
    r"\S+",
    """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete
do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
requires return short signed sizeof static static_assert static_cast struct switch template this thread_local throw
true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq linux unix
main opgraft abort free malloc memcpy memmove memset printf
""",
)


@functools.lru_cache(None)
def _reserved() -> frozenset[str]:
    """Keywords, and what the headers define: functions, types and macros."""
    names = set(_KEYWORDS)
    for path in (Path(__file__).parent.parent / "include").glob("*.h"):
        text = path.read_text()
        names.update(re.findall(r"(?:INLINE|inline|static)\b[^;{}()=]*?\b(\w+)\(", text))
        names.update(n for pair in re.findall(r"^#define (\w+)|\b(?:struct|using) (\w+)", text, re.M) for n in pair)
        names.update(re.findall(r"\b[A-Z]+2?\((\w+)[,)]", text))
    return frozenset(name for name in names if len(name) > 1)


def storage(type: Type) -> str:
    """The C++ type of an element in memory; pointers are typed by their pointee."""
    if isinstance(type, PointerType):
        return f"{storage(type.pointee)}*"
    assert isinstance(type, ScalarType), type
    return _STORAGE[type.name]


def knows(type: Type) -> bool:
    """Whether values of this type can be handled at all."""
    if isinstance(type, TensorType):
        return knows(type.element)
    if isinstance(type, PointerType):
        return knows(type.pointee)
    return isinstance(type, ScalarType) and type.name in _STORAGE


def is_small_float(type: Type) -> bool:
    return isinstance(type, ScalarType) and type.name in SMALL_FLOATS


def is_float(type: Type) -> bool:
    return isinstance(type, ScalarType) and type.is_float


def is_bool(type: Type) -> bool:
    return isinstance(type, ScalarType) and type.name == "i1"


def register(type: Type) -> str:
    """The C++ type of an element in registers: fp16, bf16 and fp8 are f32 there."""
    return "f32" if is_small_float(type) else storage(type)


def constant(type: Type, name: str, text: str) -> str:
    """The declaration of a scalar that does not change."""
    kind = register(type)
    return f"{kind} const {name} = {text};" if kind.endswith("*") else f"const {kind} {name} = {text};"


def lane(type: Type) -> str:
    """The C++ type of a lane in a vector: bool is i32, a pointer its address."""
    if isinstance(type, PointerType):
        return "i64"
    return "i32" if is_bool(type) else register(type)


def bytes_of(type: Type) -> int:
    """Bytes of an element in memory."""
    return 8 if not isinstance(type, ScalarType) else max(1, type.width // 8)


def lane_bytes(type: Type) -> int:
    """Bytes of a lane; narrow types count as 4, so that all of a loop's vectors have as many lanes as f32 would."""
    if isinstance(type, PointerType):
        return 8
    return 8 if lane(type) in ("i64", "f64") else 4


def literal(value: Any, type: Type) -> str:
    """A constant of an IR type as a C++ expression of its register type."""
    assert isinstance(type, ScalarType), type
    if is_bool(type):
        return "true" if value else "false"
    if type.is_float:
        return _float_literal(float(value), double=type.name == "f64")
    number = int(value)
    if type.width == 64:
        return f"i64({number})" if -(2**31) < number < 2**31 else f"(i64){number & (2**64 - 1):#x}u"
    if number == -(2**31):
        return "i32(0x80000000)"
    if type.width == 32:
        return str(number)
    return f"i{type.width}({number})"


def _float_literal(value: float, double: bool) -> str:
    suffix = "" if double else "f"
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    text = repr(value) if double else _shortest_f32(value)
    if not re.search(r"[.e]", text):
        text += ".0"
    return text + suffix


def _shortest_f32(value: float) -> str:
    single = struct.unpack("f", struct.pack("f", value))[0]
    for digits in range(6, 10):
        text = f"{single:.{digits}g}"
        if struct.unpack("f", struct.pack("f", float(text)))[0] == single:
            break
    return text


def identifier(name: str) -> str:
    """A legal C++ identifier as close to ``name`` as can be."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    text = re.sub(r"__+", "_", text).strip("_") or "x"
    if text[0].isdigit():
        text = "x" + text
    return text + "_" if text in _reserved() else text


class Names:
    """Gives out identifiers, each once in a function."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def new(self, wish: str) -> str:
        base = identifier(wish)
        count = self._taken.get(base)
        if count is None:
            self._taken[base] = 0
            return base
        while True:
            count += 1
            candidate = f"{base}_{count}"
            if candidate not in self._taken:
                self._taken[base] = count
                self._taken[candidate] = 0
                return candidate
