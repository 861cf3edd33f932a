"""Values as a kernel takes them: numpy scalars, and torch's dtypes as constants.

``plain(name, value)`` and ``constant(name, value)`` return the value that is specialized and launched for an
argument and for a constexpr parameter. Most classes need no change: those are collected in ``PLAIN`` and
``CONSTANT`` as they are met, and a binder asks only about the others.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

PLAIN: set[type] = {int, float, bool, type(None)}
CONSTANT: set[type] = {int, float, bool, type(None), str, bytes}


def plain(name: str, value: Any) -> Any:
    """The value of a parameter that is passed when the kernel runs."""
    kind = value.__class__
    if kind in PLAIN:
        return value
    if isinstance(value, tuple):
        return _tuple(plain, name, value)
    if _is_numpy_scalar(value):
        return value.item()
    if kind.__hash__ is not None:
        PLAIN.add(kind)
    return value


def constant(name: str, value: Any) -> Any:
    """The value of a constexpr parameter.

    Raises TypeError for a tensor, which has no value at compile time.
    """
    kind = value.__class__
    if kind in CONSTANT:
        return value
    if isinstance(value, tuple):
        return _tuple(constant, name, value)
    if _is_numpy_scalar(value):
        return value.item()
    torch = sys.modules.get("torch")
    if torch is not None:
        if isinstance(value, torch.dtype):
            return _dtype_constant(value)
        if isinstance(value, torch.Tensor):
            raise TypeError(
                f"argument {name!r} is a tl.constexpr and got a tensor, which has no value at compile time;"
                " pass a Python number, for instance tensor.item()"
            )
    CONSTANT.add(kind)
    return value


def _tuple(convert: Any, name: str, value: tuple[Any, ...]) -> tuple[Any, ...]:
    items = [convert(name, item) for item in value]
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    kind = type(value)
    if hasattr(kind, "_fields"):
        return kind(*items)
    return tuple(items)


def _is_numpy_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


@functools.cache
def _dtype_class() -> type:
    import triton.language as tl

    class dtype(tl.dtype):  # type: ignore[misc]
        """A Triton type that also equals the torch type it was made from."""

        def __init__(self, name: str, origin: Any) -> None:
            super().__init__(name)
            self.origin = origin

        def __eq__(self, other: object) -> bool:
            other = getattr(other, "value", other)
            return other is self.origin or bool(super().__eq__(other))

        def __ne__(self, other: object) -> bool:
            return not self == other

        __hash__ = tl.dtype.__hash__

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__") or name == "origin":
                raise AttributeError(name)
            return getattr(self.origin, name)

    return dtype


@functools.cache
def _dtype_constant(value: Any) -> Any:
    """A torch dtype as a constant that kernels can convert to (``x.to(DTYPE)``) and compare with torch's."""
    import triton.language as tl

    from .specialization import pointer_type

    try:
        kind = pointer_type(value)
    except KeyError:
        return value
    names = {str(getattr(tl, name).name) for name in dir(tl) if isinstance(getattr(tl, name), tl.dtype)}
    for candidate in (kind, kind.replace("u1", "int1"), kind.replace("i", "int"), kind.replace("u", "uint")):
        if candidate in names:
            return _dtype_class()(candidate, value)
    return value
