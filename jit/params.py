"""Parameters of a kernel: the type that an annotation names and what may be specialized.

``parameters(signature, do_not_specialize, do_not_specialize_on_alignment)`` makes one `KernelParam` for each
parameter of a kernel's signature; ``normalize_annotation`` gives the canonical name of an annotated type.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from triton.runtime.jit import KernelParam as TritonKernelParam

# Canonical type name -> the spellings that mean it.
_SPELLINGS = {
    "u1": ("bool", "int1", "uint1", "i1"),
    "fp8e4nv": ("float8e4nv", "float8_e4m3fn"),
    "fp8e5": ("float8e5", "float8_e5m2"),
    "fp8e4b15": ("float8e4b15",),
    "fp8e4b8": ("float8e4b8", "float8_e4m3fnuz"),
    "fp8e5b16": ("float8e5b16", "float8_e5m2fnuz"),
    "fp16": ("half", "float16"),
    "bf16": ("bfloat16",),
    "fp32": ("float", "float32"),
    "fp64": ("double", "float64"),
    "i8": ("int8",),
    "i16": ("int16",),
    "i32": ("int", "int32"),
    "i64": ("int64",),
    "u8": ("uint8",),
    "u16": ("uint16",),
    "u32": ("uint32",),
    "u64": ("uint64",),
    "void": (),
}
TYPES = frozenset(_SPELLINGS)
"""Canonical names of scalar types: ``i32``, ``fp16``, ``u1`` (bool), ..."""

CANONICAL = {name: name for name in _SPELLINGS} | {
    spelling: name for name, spellings in _SPELLINGS.items() for spelling in spellings
}
"""Spelling of a scalar type -> its canonical name."""


def normalize_annotation(annotation: Any) -> str:
    """The canonical name of an annotated type.

    Takes ``"*fp32"``, ``"fp32*"``, ``"const fp32*"``, ``"tl.int32"``, ``"int32_t"``, dtype and pointer
    objects of ``triton.language`` or torch, and Python types. A pointer starts with ``*``, a pointer to
    constant data with ``*k``. What is not a type (``constexpr``, ``const``) keeps its name.
    """
    import triton.language as tl

    if isinstance(annotation, str):
        name = annotation.strip().strip("'\"")
        if name.startswith("const "):
            pointer = normalize_annotation(name.removeprefix("const"))
            if not pointer.startswith("*"):
                raise TypeError(f"annotation {annotation!r}: const is for pointers; write 'const {pointer}*'")
            return "*k" + pointer.removeprefix("*k").removeprefix("*")
        if name.endswith("*"):
            return "*" + normalize_annotation(name[:-1])
        if name.startswith("*k") and name[2:] not in CANONICAL and name[1:] not in CANONICAL:
            return "*k" + normalize_annotation(name[2:])
        if name.startswith("*k") and name[2:] in CANONICAL:
            return "*k" + CANONICAL[name[2:]]
        if name.startswith("*"):
            return "*" + normalize_annotation(name[1:])
        for prefix in ("tl.", "triton.language.", "torch."):
            if name.startswith(prefix):
                return normalize_annotation(name.removeprefix(prefix))
    elif isinstance(annotation, tl.pointer_type):
        return ("*k" if annotation.const else "*") + normalize_annotation(annotation.element_ty)
    elif isinstance(annotation, tl.dtype):
        name = annotation.name
    elif isinstance(annotation, type):
        name = annotation.__name__
    else:
        name = str(annotation).removeprefix("torch.")
    return CANONICAL.get(name.replace("_t", ""), name)


class KernelParam(TritonKernelParam):  # type: ignore[misc]
    """One parameter of a kernel: its position, name, annotation and default, and what may be specialized.

    ``num`` is its position, counted from 0. ``annotation`` is the canonical name of what the annotation says,
    ``annotation_type`` the same when it is a type, else ``""``.
    """

    def __init__(
        self,
        num: int,
        param: inspect.Parameter,
        do_not_specialize: bool,
        do_not_specialize_on_alignment: bool,
    ) -> None:
        self.num = num
        self._param = param
        self.do_not_specialize = do_not_specialize
        self.do_not_specialize_on_alignment = do_not_specialize_on_alignment

    @cached_property
    def name(self) -> str:
        return self._param.name

    @cached_property
    def annotation(self) -> str:
        annotation = self._param.annotation
        if annotation is inspect.Parameter.empty or annotation is None or annotation == "":
            return ""
        return normalize_annotation(annotation)

    @cached_property
    def annotation_type(self) -> str:
        scalar = self.annotation.removeprefix("*k").removeprefix("*")
        return self.annotation if scalar in TYPES else ""

    @cached_property
    def is_constexpr(self) -> bool:
        return "constexpr" in self.annotation

    @cached_property
    def is_const(self) -> bool:
        return not self.is_constexpr and ("const" in self.annotation or self.annotation.startswith("*k"))

    @property
    def default(self) -> Any:
        return self._param.default

    @property
    def has_default(self) -> bool:
        return self._param.default is not inspect.Parameter.empty

    def __repr__(self) -> str:
        return f"KernelParam({self.num}, {self._param})"


def parameters(
    owner: str,
    signature: inspect.Signature,
    do_not_specialize: Iterable[int | str] | None,
    do_not_specialize_on_alignment: Iterable[int | str] | None,
) -> list[KernelParam]:
    """The parameters of the kernel named ``owner``.

    Raises ValueError when a do-not-specialize list has a name or an index that the kernel does not have, or
    names a constexpr parameter, which is always specialized.
    """
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            raise TypeError(f"{owner}: JIT functions do not support **{parameter.name} parameters")
    names = list(signature.parameters)
    plain = _positions(owner, "do_not_specialize", names, do_not_specialize)
    alignment = _positions(owner, "do_not_specialize_on_alignment", names, do_not_specialize_on_alignment)
    found = [
        KernelParam(num, param, num in plain, num in alignment)
        for num, param in enumerate(signature.parameters.values())
    ]
    for param in found:
        for option, positions in (
            ("do_not_specialize", plain),
            ("do_not_specialize_on_alignment", alignment),
        ):
            if param.num in positions and param.is_constexpr:
                raise ValueError(
                    f"{owner}: parameter {param.name!r} is a tl.constexpr, which compiles once for each"
                    f" value, and stands in {option}; drop the one or the other"
                )
    return found


def _positions(owner: str, option: str, names: list[str], entries: Iterable[int | str] | None) -> set[int]:
    if entries is None:
        return set()
    if isinstance(entries, (str, int)):
        entries = [entries]
    found = set()
    for entry in entries:
        if isinstance(entry, str) and entry in names:
            found.add(names.index(entry))
        elif isinstance(entry, int) and not isinstance(entry, bool) and 0 <= entry < len(names):
            found.add(entry)
        else:
            raise ValueError(
                f"{owner}: {option} has {entry!r}, which is no parameter; expected a name or an index of"
                f" {', '.join(f'{index}: {name}' for index, name in enumerate(names))}"
            )
    return found
