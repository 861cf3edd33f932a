"""The type and the key of an argument: what its value tells the compiler.

``specializer(param, backend)`` makes the function that a binder calls for one parameter: it takes a value and
returns ``(type, key)``. The type is the name of a Triton type (``"i32"``, ``"*fp16"``), a tuple of them, or
``"constexpr"`` for what is known at compile time. The key is what else is assumed: ``"D"`` for a multiple of
16, ``""`` for no assumption, None for what is not specialized, the value itself for a constant.

| value | type | key |
| --- | --- | --- |
| None | ``constexpr`` | None |
| bool | ``u1`` | None |
| int equal to 1 | ``constexpr`` | 1 |
| other int | ``i32``, ``i64`` or ``u64``, the first that holds it | ``"D"`` or ``""`` |
| float | ``fp32`` | None |
| anything with ``data_ptr()``, ``dtype`` | ``*`` and the type, ``*k`` if constant | ``"D"`` or ``""`` |
| a jitted function | ``constexpr`` | its cache key |
| constexpr | ``constexpr`` | itself |
| tuple, named tuple | tuple of types | tuple of keys |
| tensor descriptor | ``tensordesc<type[block shape]>`` | None |
"""

from __future__ import annotations

import enum
import inspect
import reprlib
import sys
from collections.abc import Callable
from typing import Any

from triton.runtime.jit import JITCallable as TritonJITCallable

from . import compat
from .params import CANONICAL, KernelParam

Specialization = tuple[Any, Any]
Specializer = Callable[[Any], Specialization]

_POINTERS: dict[Any, str] = {}
_UNSIGNED = ("u8", "u16", "u32", "u64")


def specializer(param: KernelParam, backend: Any) -> Specializer:
    """The function from a value of ``param`` to its type and key.

    It raises TypeError for a value that cannot be passed to a kernel, and OverflowError for an int that no
    type holds; the messages name the parameter.
    """
    if param.is_constexpr:
        return _constant
    rules = _Rules(
        param.name,
        backend,
        is_const=param.is_const,
        specialize=not param.do_not_specialize,
        align=not param.do_not_specialize_on_alignment,
    )
    annotated = param.annotation_type
    if not annotated:
        return rules.specialize
    if annotated[0] == "*":
        if param.do_not_specialize:
            return lambda value: (annotated, None)
        return lambda value: (annotated, rules.specialize(value)[1])
    if annotated == "u1" or annotated[:2] in ("fp", "bf"):
        return lambda value: rules.annotated_number(value, annotated)
    return lambda value: rules.annotated_int(value, annotated)


def _constant(value: Any) -> Specialization:
    return "constexpr", value


def pointer_type(dtype: Any) -> str:
    """The Triton name of an element type given by torch, numpy, Triton or a text: ``fp32`` for torch.float32.

    Raises KeyError when Triton has no such type.
    """
    known = _POINTERS.get(dtype)
    if known is None:
        known = _POINTERS[dtype] = CANONICAL[str(dtype).split(".")[-1]]
    return known


class _Rules:
    """The rules for one parameter, found by the class of a value."""

    def __init__(self, name: str, backend: Any, *, is_const: bool, specialize: bool, align: bool) -> None:
        self.name = name
        self.is_const = is_const
        self.specialize_value = specialize
        self.align = align
        self.backend = backend
        self.prefix = "*k" if is_const else "*"
        self.native = getattr(type(backend), "supports_native_tensor_specialization", True)
        # Exact class -> rule; other classes are added when they are met.
        self.rules: dict[type, Specializer] = {
            type(None): lambda value: ("constexpr", None),
            bool: lambda value: ("u1", None),
            int: self.int_,
            float: lambda value: ("fp32", None),
            tuple: self.tuple_,
        }

    def specialize(self, value: Any) -> Specialization:
        rule = self.rules.get(value.__class__)
        if rule is None:
            rule = self.rules[value.__class__] = self._find(value)
        return rule(value)

    def _find(self, value: Any) -> Specializer:
        """The rule for a class that was not met before."""
        if isinstance(value, TritonJITCallable):
            return _function
        kind = type(value)
        if kind.__name__ == "constexpr" and kind.__module__.startswith("triton."):
            return _constant
        if isinstance(value, tuple):
            return self.tuple_
        if isinstance(value, enum.Enum) and not isinstance(value, int):
            return self.refuse
        if isinstance(value, int):
            return self.int_
        if isinstance(value, float):
            return self.rules[float]
        if hasattr(value, "block_shape") and hasattr(value, "base"):
            return self.descriptor
        if kind.__name__ in ("FakeTensor", "FunctionalTensor"):
            return self.refuse_fake
        if hasattr(value, "data_ptr"):
            torch = sys.modules.get("torch")
            plain = torch is None or kind in (torch.Tensor, torch.nn.Parameter) or not isinstance(value, torch.Tensor)
            return self.pointer if plain else self.tensor_of_subclass
        return self.refuse

    # -- Rules -----------------------------------------------------------------------------------------------

    def int_(self, value: int) -> Specialization:
        if -0x80000000 <= value <= 0x7FFFFFFF:
            kind = "i32"
        elif -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
            kind = "i64"
        elif 0 < value <= 0xFFFFFFFFFFFFFFFF:
            kind = "u64"
        else:
            raise OverflowError(
                f"argument {self.name!r}: integer to be specialized too large to represent: {value} needs"
                " more than 64 bits"
            )
        if not self.specialize_value:
            return kind, None
        if value == 1:
            return "constexpr", 1
        return kind, self._int_key(value)

    def _int_key(self, value: int) -> Any:
        if self.native:
            return "D" if self.align and value % 16 == 0 else ""
        return self.backend.get_int_specialization(value, align=self.align)

    def pointer(self, value: Any) -> Specialization:
        try:
            kind = self.prefix + pointer_type(value.dtype)
        except KeyError:
            raise TypeError(
                f"argument {self.name!r}: tensors of {value.dtype} cannot be passed to a kernel; pass a view"
                " of a type that Triton has, for instance torch.view_as_real(tensor) for complex numbers"
            ) from None
        except AttributeError:
            raise TypeError(
                f"argument {self.name!r}: {type(value).__name__} has data_ptr() but no dtype, so the type it"
                " points to is not known"
            ) from None
        if not self.specialize_value:
            return kind, None
        if not self.native:
            return kind, self.backend.get_tensor_specialization(value, align=self.align)
        try:
            return kind, "D" if self.align and value.data_ptr() % 16 == 0 else ""
        except RuntimeError as error:
            raise self.without_memory(value) from error

    def tuple_(self, value: tuple[Any, ...]) -> Specialization:
        # The flags of a parameter are about its own value and not about parts of it.
        inner = self if self.plain else _Rules(self.name, self.backend, is_const=False, specialize=True, align=True)
        pairs = [inner.specialize(item) for item in value]
        kinds, keys = (pair[0] for pair in pairs), (pair[1] for pair in pairs)
        kind = type(value)
        if hasattr(kind, "_fields"):
            return kind(*kinds), kind(*keys)
        return tuple(kinds), tuple(keys)

    @property
    def plain(self) -> bool:
        return self.specialize_value and self.align and not self.is_const

    def descriptor(self, value: Any) -> Specialization:
        kind = compat.descriptor_type(value)
        return self.refuse(value) if kind is None else (kind, None)

    def tensor_of_subclass(self, value: Any) -> Specialization:
        # One that only wraps other tensors has a null address.
        if value.data_ptr() == 0 and value.numel() > 0:
            raise self.without_memory(value)
        return self.pointer(value)

    def refuse_fake(self, value: Any) -> Specialization:
        raise self.without_memory(value)

    def without_memory(self, value: Any) -> TypeError:
        return TypeError(
            f"argument {self.name!r}: {type(value).__name__} has no memory that a kernel could use; to compile only,"
            " call kernel.warmup(...); to launch in torch.compile or under a transform, make the launch part of an op"
        )

    def refuse(self, value: Any) -> Specialization:
        raise TypeError(refusal(self.name, value))

    # -- Annotated numbers -----------------------------------------------------------------------------------

    def annotated_number(self, value: Any, kind: str) -> Specialization:
        if isinstance(value, (int, float)):
            return kind, None
        raise TypeError(f"argument {self.name!r} is annotated as {kind}, got {_described(value)}")

    def annotated_int(self, value: Any, kind: str) -> Specialization:
        if not isinstance(value, int):
            raise TypeError(f"argument {self.name!r} is annotated as {kind}, got {_described(value)}")
        bits = int(kind[1:])
        low, high = (0, 2**bits) if kind in _UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        if not low <= value < high:
            raise OverflowError(
                f"argument {self.name!r} is annotated as {kind}, which holds {low} to {high - 1}; got {value}"
            )
        return kind, self._int_key(value) if self.specialize_value else None


def _function(value: Any) -> Specialization:
    check = getattr(value, "check_dependencies", None)
    if check is not None:
        check()
    return "constexpr", value.cache_key


def refusal(name: str, value: Any) -> str:
    """Why ``value`` cannot be passed to a kernel as ``name``, and what to pass instead."""
    advice = "expected a tensor, int, float, bool, None, a tuple of these, or a jitted function"
    kind = type(value)
    if kind.__name__ == "dtype" or isinstance(value, (str, enum.Enum, type)):
        advice = f"annotate the parameter as tl.constexpr to pass it ({name}: tl.constexpr)"
    elif isinstance(value, list):
        advice = "pass a tuple"
    elif inspect.isfunction(value):
        advice = "decorate the function with jit to pass it"
    elif kind.__module__ == "numpy":
        advice = "torch.from_numpy(...) makes it a tensor, on the same memory"
    shown = reprlib.repr(value)
    return f"argument {name!r}: failed to specialize argument of type: {kind.__name__} ({shown}); {advice}"


def _described(value: Any) -> str:
    return f"{value!r} of type {type(value).__name__}"
