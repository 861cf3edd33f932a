"""Types of Triton IR: frozen, hashable and interned (equal types are the same object, so `is` compares them).

`str(type)` is the MLIR text. Construct with the fields: `ScalarType("f32")`, `PointerType(F32)`,
`TensorType((64,), I32)`, `DescriptorType(tensor)`, `FunctionType(inputs, results)`, `OpaqueType(text)`.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, TypeVar

from .errors import IRError

_T = TypeVar("_T", bound="Type")
_INTEGER = re.compile(r"(?:i|si|ui)(\d+)")
FLOAT_WIDTHS = {
    "f8E5M2": 8,
    "f8E4M3": 8,
    "f8E4M3FN": 8,
    "f8E5M2FNUZ": 8,
    "f8E4M3FNUZ": 8,
    "f8E4M3B11FNUZ": 8,
    "f8E3M4": 8,
    "f8E8M0FNU": 8,
    "f6E2M3FN": 6,
    "f6E3M2FN": 6,
    "f4E2M1FN": 4,
    "f16": 16,
    "bf16": 16,
    "tf32": 19,
    "f32": 32,
    "f64": 64,
    "f80": 80,
    "f128": 128,
}


class Type:
    """A type; `text` is how MLIR writes it."""

    __slots__ = ("__weakref__", "_key", "text")
    _pool: ClassVar[dict[tuple[Any, ...], Type]] = {}
    _key: tuple[Any, ...]
    text: str

    @classmethod
    def _interned(cls: type[_T], key: tuple[Any, ...], text: str, fields: dict[str, Any]) -> _T:
        pool_key = (cls, *key)
        found = Type._pool.get(pool_key)
        if found is None:
            made = object.__new__(cls)
            for name, value in fields.items():
                object.__setattr__(made, name, value)
            object.__setattr__(made, "_key", key)
            object.__setattr__(made, "text", text)
            # setdefault is atomic: two threads that make the same type get the same object
            found = Type._pool.setdefault(pool_key, made)
        return found  # type: ignore[return-value]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; make another one instead of setting {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), self._key)

    def __copy__(self: _T) -> _T:
        return self

    def __deepcopy__(self: _T, memo: dict[int, Any]) -> _T:
        return self

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text})"


class ScalarType(Type):
    """An integer, float or index type by its MLIR name: i1, i8, ..., i64, f16, bf16, f32, f64, f8E5M2, ...,
    index.

    `width` is in bits (64 for index); `is_integer` holds for i*, si*, ui* and index.
    """

    __slots__ = ("is_float", "is_integer", "name", "width")
    name: str
    width: int
    is_float: bool
    is_integer: bool

    def __new__(cls, name: str) -> ScalarType:
        width = FLOAT_WIDTHS.get(name)
        is_float = width is not None
        if width is None:
            match = _INTEGER.fullmatch(name)
            if match is None and name != "index":
                raise IRError(f"{name!r} is no scalar type; expected i<width>, index or a float such as f32")
            width = int(match[1]) if match else 64
        fields = {"name": name, "width": width, "is_float": is_float, "is_integer": not is_float}
        return cls._interned((name,), name, fields)


class PointerType(Type):
    """`!tt.ptr<pointee>`: to a scalar, or (block pointers, Triton 3.6 to 3.8) to a tensor. Global memory is
    space 1."""

    __slots__ = ("address_space", "pointee")
    pointee: Type
    address_space: int

    def __new__(cls, pointee: Type, address_space: int = 1) -> PointerType:
        text = f"!tt.ptr<{pointee}>" if address_space == 1 else f"!tt.ptr<{pointee}, {address_space}>"
        fields = {"pointee": pointee, "address_space": address_space}
        return cls._interned((pointee, address_space), text, fields)


class TensorType(Type):
    """`tensor<4x8xf32>`: `shape` () to any rank, `element` a scalar or pointer, `encoding` the text of a
    layout or None."""

    __slots__ = ("element", "encoding", "shape")
    shape: tuple[int, ...]
    element: Type
    encoding: str | None

    def __new__(cls, shape: tuple[int, ...], element: Type, encoding: str | None = None) -> TensorType:
        shape = tuple(shape)
        if any(size < 0 for size in shape):
            raise IRError(f"a Triton tensor has a static shape, got {shape}")
        dims = "".join(f"{size}x" for size in shape)
        text = f"tensor<{dims}{element}>" if encoding is None else f"tensor<{dims}{element}, {encoding}>"
        fields = {"shape": shape, "element": element, "encoding": encoding}
        return cls._interned((shape, element, encoding), text, fields)

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size


class DescriptorType(Type):
    """A tensor descriptor for blocks of type `block`.

    Triton 3.6 to 3.8 write `!tt.tensordesc<tensor<16x32xf32>>`, 3.9 writes `!tt.tensordesc<16x32xf32>`:
    `spelled_as_tensor` keeps which, for printing.
    """

    __slots__ = ("block", "spelled_as_tensor")
    block: TensorType
    spelled_as_tensor: bool

    def __new__(cls, block: TensorType, spelled_as_tensor: bool = True) -> DescriptorType:
        inner = block.text if spelled_as_tensor else block.text.removeprefix("tensor<").removesuffix(">")
        fields = {"block": block, "spelled_as_tensor": spelled_as_tensor}
        return cls._interned((block, spelled_as_tensor), f"!tt.tensordesc<{inner}>", fields)


class FunctionType(Type):
    """`(inputs) -> results`."""

    __slots__ = ("inputs", "results")
    inputs: tuple[Type, ...]
    results: tuple[Type, ...]

    def __new__(cls, inputs: tuple[Type, ...], results: tuple[Type, ...] = ()) -> FunctionType:
        inputs, results = tuple(inputs), tuple(results)
        fields = {"inputs": inputs, "results": results}
        return cls._interned((inputs, results), signature_text(inputs, results), fields)


class OpaqueType(Type):
    """Any other type, by its MLIR text."""

    __slots__ = ()

    def __new__(cls, text: str) -> OpaqueType:
        return cls._interned((text,), text, {})


def signature_text(inputs: tuple[Type, ...], results: tuple[Type, ...]) -> str:
    """MLIR text of a function type: `(i32, f32) -> f32`."""
    left = ", ".join([t.text for t in inputs])
    if len(results) == 1 and not isinstance(results[0], FunctionType):
        return f"({left}) -> {results[0].text}"
    return f"({left}) -> ({', '.join([t.text for t in results])})"


def element_type(type: Type) -> Type:
    """The element of a tensor; any other type itself."""
    return type.element if isinstance(type, TensorType) else type


I1, I8, I16, I32, I64 = (ScalarType(f"i{width}") for width in (1, 8, 16, 32, 64))
F16, BF16, F32, F64 = (ScalarType(name) for name in ("f16", "bf16", "f32", "f64"))
INDEX = ScalarType("index")
