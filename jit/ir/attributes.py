"""Attributes of operations as Python values.

| MLIR | Python |
| --- | --- |
| `3 : i32` | `Integer(3)`, an int with `.type` |
| `1.0 : f32` | `Float(1.0)`, a float with `.type` |
| `true` | `True` |
| `unit` (a name alone) | `UNIT` |
| `"text"` | `str` |
| `[a, b]` | `list` |
| `array<i32: 1, 0>` | `DenseArray`, a list with `.element_type` |
| `{a = 1}` | `dict` |
| `dense<...> : tensor<...>` | `DenseElements` |
| `@f` | `SymbolRef` |
| a type | `Type` |
| the rest, `#arith.fastmath<none>` | `Opaque(text)` |

`attribute_text(value)` writes one back. Integers and floats compare and hash as plain numbers. A plain int is
written as i32 (what Triton's attributes nearly always are), a plain float as f32: use `Integer(2, I64)`
otherwise.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from . import floats
from .errors import IRError
from .types import F32, I32, ScalarType, TensorType, Type

_BARE = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)  # what MLIR lets stand without quotes


class Integer(int):
    """An integer with its type."""

    type: ScalarType

    def __new__(cls, value: int, type: ScalarType = I32) -> Integer:
        made = super().__new__(cls, value)
        made.type = type
        return made

    def __getnewargs__(self) -> tuple[int, ScalarType]:  # type: ignore[override]
        return (int(self), self.type)


class Float(float):
    """A float with its type; the value is already rounded to that type."""

    type: ScalarType

    def __new__(cls, value: float, type: ScalarType = F32) -> Float:
        made = super().__new__(cls, value)
        made.type = type
        return made

    def __getnewargs__(self) -> tuple[float, ScalarType]:  # type: ignore[override]
        return (float(self), self.type)


class Unit:
    """The attribute without a value: its presence says all."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNIT"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unit)

    def __hash__(self) -> int:
        return hash(Unit)


UNIT = Unit()


class SymbolRef(str):
    """`@name`; nested references are joined as `outer::inner`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"SymbolRef({str(self)!r})"


class Opaque(str):
    """An attribute that is kept as its MLIR text, e.g. `#arith.fastmath<none>`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Opaque({str(self)!r})"


class DenseArray(list[Any]):
    """`array<i32: 1, 0>`."""

    element_type: ScalarType

    def __init__(self, values: Iterable[Any] = (), element_type: ScalarType = I32) -> None:
        super().__init__(values)
        self.element_type = element_type


class DenseElements:
    """A constant tensor of `type`: `splat` is the value of all elements, or None and then `values` has them.

    Values are bool for i1, int (signed) for other integers, float for floats; `values` is flat, row-major.
    """

    __slots__ = ("_values", "splat", "type")

    def __init__(
        self, type: TensorType, splat: bool | int | float | None = None, values: Sequence[Any] | None = None
    ) -> None:
        if (splat is None) == (values is None):
            raise IRError("DenseElements takes either splat or values")
        if values is not None and len(values) != type.size:
            raise IRError(f"{type} has {type.size} elements, got {len(values)} values")
        if values is not None and not type.shape:
            splat, values = values[0], None
        self.type = type
        self.splat = splat
        self._values = None if values is None else tuple(values)

    @property
    def is_splat(self) -> bool:
        return self.splat is not None

    @property
    def values(self) -> tuple[Any, ...]:
        """All elements, flat and row-major (a splat repeated)."""
        return (self.splat,) * self.type.size if self._values is None else self._values

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DenseElements):
            return NotImplemented
        return attribute_text(self) == attribute_text(other)

    def __hash__(self) -> int:
        return hash((self.type, self.splat, self._values))

    def __repr__(self) -> str:
        return f"DenseElements({attribute_text(self)})"


def quoted(text: str) -> str:
    """MLIR string literal of `text`: what is not printable ASCII becomes the hex of its UTF-8 bytes."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    out = []
    for byte in text.encode("utf-8", "surrogateescape"):
        char = chr(byte)
        if char == "\\":
            out.append("\\\\")
        elif 0x20 <= byte < 0x7F and char != '"':
            out.append(char)
        else:
            out.append(f"\\{byte:02X}")
    return '"' + "".join(out) + '"'


def float_text(value: float, type: ScalarType) -> str:
    """The first form that reads back as the same bits: `1.000000e+00`, with more digits, or the bits in hex."""
    if math.isfinite(value):
        exact = floats.rounded(type.name, value)
        for digits in (6, 8, 16):
            text = f"{value:.{digits}e}"
            if floats.rounded(type.name, float(text)) == exact:
                return text
    return f"0x{floats.encode(type.name, value):0{type.width // 4}X}"


def scalar_text(value: Any, type: Type) -> str:
    """One element of a dense constant, without its type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(type, ScalarType):
        if type.is_float:
            return float_text(float(value), type)
        if type.width == 1:
            return "true" if value else "false"
        return str(int(value))
    raise IRError(f"a dense constant of {type} elements is not supported")


def symbol_text(name: str) -> str:
    parts = name.split("::")
    return "::".join("@" + (part if _BARE.fullmatch(part) else quoted(part)) for part in parts)


def attribute_text(value: Any) -> str:
    """MLIR text of an attribute value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, SymbolRef):
        return symbol_text(value)
    if isinstance(value, Opaque):
        return str(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int):
        kind = value.type if isinstance(value, Integer) else I32
        return scalar_text(value, kind) if kind.width == 1 else f"{int(value)} : {kind}"
    if isinstance(value, float):
        kind = value.type if isinstance(value, Float) else F32
        return f"{float_text(value, kind)} : {kind}"
    if isinstance(value, Type):
        return value.text
    if isinstance(value, DenseArray):
        if not value:
            return f"array<{value.element_type}>"
        items = ", ".join([scalar_text(item, value.element_type) for item in value])
        return f"array<{value.element_type}: {items}>"
    if isinstance(value, list | tuple):
        return f"[{', '.join([attribute_text(item) for item in value])}]"
    if isinstance(value, dict):
        return dictionary_text(value)
    if isinstance(value, DenseElements):
        return _dense_text(value)
    if isinstance(value, Unit):
        return "unit"
    raise IRError(f"{value!r} ({type(value).__name__}) cannot be written as an attribute")


def dictionary_text(attributes: dict[str, Any]) -> str:
    """`{a = 1 : i32, b}`."""
    items = []
    for name, value in attributes.items():
        key = name if _BARE.fullmatch(name) else quoted(name)
        items.append(key if isinstance(value, Unit) else f"{key} = {attribute_text(value)}")
    return "{" + ", ".join(items) + "}"


def _dense_text(dense: DenseElements) -> str:
    element = dense.type.element
    if dense.splat is not None:
        return f"dense<{scalar_text(dense.splat, element)}> : {dense.type}"
    values = [scalar_text(value, element) for value in dense.values]
    if not values:
        return f"dense<> : {dense.type}"
    for extent in reversed(dense.type.shape[1:]):
        values = ["[" + ", ".join(values[i : i + extent]) + "]" for i in range(0, len(values), extent)]
    return f"dense<[{', '.join(values)}]> : {dense.type}"
