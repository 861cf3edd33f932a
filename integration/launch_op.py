"""The launch of a kernel as a torch op: what stands in graphs, mutable, with marks from the IR.

``opgraft::<kernel name>.<kinds>(Tensor x, ..., Tensor(a!) out, SymInt n, ..., *, SymInt[] grid,
str constexprs, str kernel_id) -> ()``. One overload for each combination of argument kinds
(:mod:`.arguments`); which tensors carry ``(a!)`` is read from the kernel's IR. ``constexprs``
holds what is known when the graph is made (:mod:`.literals`), ``kernel_id`` names the kernel and its
version (:mod:`.references`), so that every cache which keys by the graph keys by the kernel.

:func:`plan` turns bound arguments into a :class:`LaunchCall`; calling that runs or records it.
Users never call these ops; they define :func:`opgraft.custom_op`.
"""

from __future__ import annotations

import functools
import keyword
import numbers
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from . import compat, lowering, references
from .arguments import Flat, flatten, leaves, literal_labels, mark_written, unflatten
from .literals import decode, encode
from .written import written_leaves

__all__ = ["LaunchCall", "launch_overload", "plan", "plan_flat"]

NAMESPACE = "opgraft"
_SCHEMA_TYPES = {"t": "Tensor", "i": "SymInt", "f": "Scalar", "b": "bool"}
_RESERVED = ("grid", "constexprs", "kernel_id")

_library = torch.library.Library(NAMESPACE, "FRAGMENT")
_overloads: dict[tuple[str, str], Any] = {}
_lock = threading.RLock()


class LaunchCall(NamedTuple):
    """A launch in terms of its op: ``overload(*values, grid=..., constexprs=..., kernel_id=...)``."""

    overload: Any
    values: tuple[Any, ...]
    constexprs: str
    kernel_id: str
    written: tuple[bool, ...]
    """For each value, whether the kernel writes it."""
    labels: tuple[str, ...]

    def __call__(self, grid: Sequence[Any]) -> None:
        self.overload(*self.values, grid=list(grid), constexprs=self.constexprs, kernel_id=self.kernel_id)


def plan(kernel: Any, bound: Mapping[str, Any], options: Mapping[str, Any]) -> LaunchCall:
    """The launch op call for bound arguments (defaults applied) and launch options."""
    constexpr_names = [p.name for p in kernel.params if p.is_constexpr]
    flat = flatten(bound, constexpr_names)
    literals = {label: _constant(value) for label, value in flat.literals.items()}
    flat = flat._replace(values=tuple(map(_number, flat.values)), literals=literals)
    return plan_flat(kernel, flat, {name: _constant(value) for name, value in options.items()}, describe)


def _constant(value: Any) -> Any:
    """What a constexpr must be while a graph is made: a symbolic number becomes the one at hand, by a guard."""
    if isinstance(value, tuple):
        return type(value)(*map(_constant, value)) if hasattr(value, "_fields") else tuple(map(_constant, value))
    if isinstance(value, torch.SymInt):
        return int(value)
    if isinstance(value, torch.SymBool):
        return bool(value)
    return float(value) if isinstance(value, torch.SymFloat) else value


def _number(value: Any) -> Any:
    """A number of a foreign class (numpy's, an enum's) as Python's own, which a schema takes."""
    if type(value) in (bool, int, float) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def plan_flat(kernel: Any, flat: Flat, options: Mapping[str, Any], describe: Callable[[str, Any], str]) -> LaunchCall:
    """Like :func:`plan`, for arguments already taken apart.

    ``describe(kind, value)`` gives the Triton type of a value (``*fp32``, ``i32`` ...).
    """
    units = leaves(flat.kinds)
    types = tuple(describe(kind, value) for kind, value in zip(units, flat.values, strict=True))
    literals = flat.literals
    written = written_leaves(kernel, flat.kinds, types, literals, devices(flat.values))
    overload = launch_overload(kernel.fn.__name__, mark_written(flat.kinds, written), flat.labels)
    text = encode({**literals, **{k: v for k, v in options.items() if v is not None}})
    return LaunchCall(overload, flat.values, text, references.reference(kernel), written, flat.labels)


def describe(kind: str, value: Any) -> str:
    """The Triton type of a runtime value; an int that is symbolic counts as 64 bit."""
    if kind == "t":
        return pointer_type(value.dtype)
    if kind == "i":
        return "i32" if type(value) is int and -(2**31) <= value < 2**31 else "i64"
    return {"f": "fp32", "b": "u1"}[kind]


@functools.cache
def pointer_type(dtype: torch.dtype) -> str:
    """Triton's name for a pointer to ``dtype``: ``*fp32`` for ``torch.float32``."""
    return "*" + compat.triton_type_name(str(dtype).removeprefix("torch."))


def devices(values: Sequence[Any]) -> str:
    """The device type of the first tensor among ``values``, ``"cpu"`` when there is none."""
    for value in values:
        device = getattr(value, "device", None)
        if device is not None:
            return str(device.type)
    return "cpu"


def launch_overload(name: str, kinds: str, labels: Sequence[str]) -> Any:
    """The launch op for a kernel called ``name`` with arguments of ``kinds``, defined at first use.

    Two kernels that share a name and kinds share the op: which kernel is launched is an argument.
    The labels of the first stay in the schema.
    """
    with _lock:
        overload = _overloads.get((name, kinds))
        if overload is None:
            overload = _overloads[name, kinds] = _define(name, kinds, labels)
    return overload


def _define(name: str, kinds: str, labels: Sequence[str]) -> Any:
    parameters, aliases = [], iter("abcdefghijklmnopqrstuvwxyz" * 8)
    for kind, label in zip(leaves(kinds), labels, strict=True):
        if label in _RESERVED or keyword.iskeyword(label) or label.startswith("_"):
            label = f"arg{label.strip('_')}_"
        mark = f"Tensor({next(aliases)}!)" if kind == "w" else _SCHEMA_TYPES[kind]
        parameters.append(f"{mark} {label}")
    parameters += ["*", "SymInt[] grid", "str constexprs", "str kernel_id"]
    overload_name = kinds or "v"
    qualified = f"{name}.{overload_name}"
    _library.define(
        f"{qualified}({', '.join(parameters)}) -> ()",
        tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides),
    )
    implementation = functools.partial(_launch, kinds)
    for key in ("CPU", "CUDA"):
        _library.impl(qualified, implementation, key)
    _library.impl(qualified, functools.partial(_below_autograd, name, overload_name), "Autograd", with_keyset=True)
    _library.impl(qualified, functools.partial(_refuse_vmap, name), "FuncTorchBatched")
    torch.library.register_fake(f"{NAMESPACE}::{qualified}", _fake, lib=_library)
    overload = getattr(getattr(torch.ops.opgraft, name), overload_name)
    lowering.register(overload, kinds)
    return overload


def _launch(kinds: str, *values: Any, grid: Sequence[int], constexprs: str, kernel_id: str) -> None:
    """Run the kernel; reached through the dispatcher (a compiled graph calls a handle instead)."""
    launched = references.kernel(kernel_id)
    known = decode(constexprs)
    names = [p.name for p in launched.params]
    labels = literal_labels(kinds, names)
    bound = unflatten(kinds, names, values, known)
    options = {name: value for name, value in known.items() if name not in labels}
    launched.run(grid=tuple(grid), warmup=False, **bound, **options)


def _fake(*values: Any, **launch: Any) -> None:
    """A launch makes no tensors, so there is nothing to compute from shapes."""


def _below_autograd(name: str, overload_name: str, keyset: Any, *values: Any, **launch: Any) -> None:
    overload = _overloads[name, overload_name if overload_name != "v" else ""]
    if torch._C._are_functorch_transforms_active() and torch._C._any_requires_grad(*values):
        raise RuntimeError(
            f"{name}: a bare kernel launch has no derivative, and inside a torch.func transform its "
            "gradient would silently be zero; launch it in an opgraft.custom_op and call "
            "register_autograd on that"
        )
    with torch._C._AutoDispatchBelowAutograd():
        overload.redispatch(keyset & torch._C._after_autograd_keyset, *values, **launch)
    for value, argument in zip(values, overload._schema.arguments, strict=False):
        if argument.alias_info is not None and isinstance(value, torch.Tensor):
            torch.autograd.graph.increment_version(value)


def _refuse_vmap(name: str, *values: Any, **launch: Any) -> None:
    raise RuntimeError(
        f"{name}: a bare kernel launch cannot be vmapped; launch it in an opgraft.custom_op and vmap that"
    )
