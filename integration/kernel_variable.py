"""A kernel of ours in Dynamo's symbolic interpreter.

:func:`wrap` is what Dynamo's type dispatch calls. ``kernel[grid](...)`` binds the arguments as the
runtime does, turns what is a constant into literals, and calls the launch op with the rest, so that
the graph holds an op like any other.

Private APIs of Dynamo (checked on torch 2.13.0 and 2.11.0): ``TritonKernelVariable`` (it knows
``kernel[grid]`` and ``kernel.run``), ``VariableTracker.build``, and the variables for constants,
tensors, symbols, lists and dicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.exc import unimplemented
from torch._dynamo.guards import GuardBuilder
from torch._dynamo.source import AttrSource
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.dicts import ConstDictVariable
from torch._dynamo.variables.functions import TritonKernelVariable
from torch._dynamo.variables.lists import BaseListVariable, ListVariable
from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable

from .arguments import flatten
from .launch_op import describe as describe_value
from .launch_op import plan_flat

__all__ = ["KernelVariable", "wrap", "wrap_launch"]


def wrap(builder: Any, kernel: Any) -> VariableTracker:
    """The variable for a kernel object that a traced function uses."""
    builder.install_guards(GuardBuilder.ID_MATCH)
    return KernelVariable(kernel, None, None, source=builder.source)


def wrap_launch(builder: Any, launch: Any) -> VariableTracker:
    """The variable for a kernel with its grid, ``kernel[grid]``, made outside of the traced function."""
    builder.install_guards(GuardBuilder.ID_MATCH)
    grid = VariableTracker.build(builder.tx, launch.grid, source=AttrSource(builder.source, "grid"))
    return KernelVariable(launch.kernel, None, grid, source=builder.source)


class KernelVariable(TritonKernelVariable):  # type: ignore[misc]
    """A kernel, or a kernel with its grid."""

    def as_python_constant(self) -> Any:
        """The kernel itself, as a constexpr argument of another launch."""
        return self.kernel

    def is_python_constant(self) -> bool:
        return self.grid is None

    def call_function(self, tx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> VariableTracker:
        """Trace a launch."""
        if self.grid is None:
            _refuse(f"{self.kernel.fn.__name__} is launched as kernel[grid](...), not called")
        return self._launch(tx, self.grid, args, kwargs)

    def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        if name == "run":
            kwargs = dict(kwargs)
            grid = kwargs.pop("grid", None)
            warmup = kwargs.pop("warmup", None)
            if grid is None:
                _refuse("kernel.run in a traced function needs grid=")
            if warmup is not None and warmup.as_python_constant():
                _refuse("kernel.warmup in a traced function; call it outside")
            return self._launch(tx, grid, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def _launch(self, tx: Any, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> VariableTracker:
        kernel: Any = self.kernel
        bound, options = _bind(tx, kernel, args, kwargs)
        constexprs = [p.name for p in kernel.params if p.is_constexpr]
        for name in constexprs:
            bound[name] = _constant(bound[name])
        flat = flatten(bound, constexprs, _kind, _items)
        flat = flat._replace(literals={k: _literal(k, v) for k, v in flat.literals.items()})
        settings = {name: _literal(name, value) for name, value in options.items()}
        call = plan_flat(kernel, flat, settings, _describe)
        launch = {
            "grid": ListVariable(_sizes(tx, grid, bound)),
            "constexprs": ConstantVariable.create(call.constexprs),
            "kernel_id": ConstantVariable.create(call.kernel_id),
        }
        VariableTracker.build(tx, call.overload).call_function(tx, list(call.values), launch)
        return ConstantVariable.create(None)


def _bind(
    tx: Any, kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Variables by parameter name with defaults applied, and launch options."""
    params = kernel.params
    name = kernel.fn.__name__
    if len(args) > len(params):
        _refuse(f"{name} takes {len(params)} arguments, got {len(args)}")
    bound = {p.name: value.realize() for p, value in zip(params, args, strict=False)}
    options: dict[str, Any] = {}
    names = {p.name for p in params}
    for keyword, value in kwargs.items():
        if keyword in bound:
            _refuse(f"{name} got argument {keyword!r} twice")
        (bound if keyword in names else options)[keyword] = value.realize()
    ordered = {}
    for param in params:
        if param.name in bound:
            ordered[param.name] = bound[param.name]
        elif param.has_default:
            ordered[param.name] = _default(tx, param.default)
        else:
            _refuse(f"{name} misses its argument {param.name!r}")
    return ordered, options


def _default(tx: Any, value: Any) -> Any:
    try:
        return ConstantVariable.create(value)
    except Exception:
        return VariableTracker.build(tx, value)


def _constant(value: Any) -> Any:
    """A constexpr: a symbolic size becomes the number it has now, with a guard."""
    if isinstance(value, SymNodeVariable):
        return ConstantVariable.create(value.evaluate_expr())
    return value


def _kind(value: Any) -> str:
    if isinstance(value, TensorVariable):
        return "t"
    if isinstance(value, SymNodeVariable):
        symbolic = value.sym_num
        return "b" if isinstance(symbolic, torch.SymBool) else "f" if isinstance(symbolic, torch.SymFloat) else "i"
    if value.is_python_constant():
        constant = value.as_python_constant()
        if isinstance(constant, bool):
            return "b"
        if type(constant) is int:
            return "i"
        if type(constant) is float:
            return "f"
    return "c"


def _items(value: Any) -> Sequence[Any] | None:
    if isinstance(value, BaseListVariable) and not value.is_python_constant():
        return [item.realize() for item in value.items]
    if isinstance(value, BaseListVariable) and value.python_type() is tuple:
        return [item.realize() for item in value.items]
    return None


def _literal(name: str, value: Any) -> Any:
    value = _constant(value)
    if not value.is_python_constant():
        _refuse(
            f"argument {name!r} is a {value.python_type().__name__} that Dynamo does not know as a constant; "
            "pass a number, a string, a dtype, a tuple of these, a tensor or a kernel"
        )
    return value.as_python_constant()


def _describe(kind: str, value: Any) -> str:
    if kind == "t":
        return describe_value(kind, value.proxy.node.meta["example_value"])
    if kind == "i" and value.is_python_constant():
        return describe_value(kind, value.as_python_constant())
    return describe_value(kind, None)


def _sizes(tx: Any, grid: Any, bound: Mapping[str, Any]) -> list[Any]:
    """The grid's sizes as variables, from a list or a function of the bound arguments."""
    grid = grid.realize()
    if not isinstance(grid, BaseListVariable) and not isinstance(grid, (ConstantVariable, SymNodeVariable)):
        meta = ConstDictVariable({ConstantVariable.create(name): value for name, value in bound.items()}, dict)
        grid = grid.call_function(tx, [meta], {}).realize()
    sizes = list(grid.items) if isinstance(grid, BaseListVariable) else [grid]
    if not 1 <= len(sizes) <= 3:
        _refuse(f"a grid has one to three axes, got {len(sizes)}")
    return sizes


def _refuse(why: str) -> None:
    unimplemented(
        gb_type="opgraft kernel launch",
        context="",
        explanation=why,
        hints=[],
    )
