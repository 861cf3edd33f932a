"""The Inductor side of a launch: an extern kernel that writes the direct call.

Private APIs of Inductor (checked on torch 2.13.0 and 2.11.0): ``lowerings`` holds what is lowered
how, ``V.graph.current_node`` the node at hand, ``ir.FallbackKernel`` keeps the
bookkeeping of what is mutated, ``unflatten_args`` gives the op's arguments back,
``wrapper.add_import_once``, ``wrapper.header``, ``write_get_raw_stream`` and ``val_to_arg_str``
write the call. When one is missing, importing this module or compiling a graph with a launch fails
with its name.
"""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings, register_lowering
from torch._inductor.virtualized import V

from . import compat, handles
from .launch_op import pointer_type
from .tokens import INT32, int_token, pointer_token

__all__ = ["DirectLaunch", "register_launch"]


def register_launch(overload: Any, units: str) -> None:
    """Give the launch op ``overload``, whose values have the kinds ``units``, its lowering."""

    @register_lowering(overload, type_promotion_kind=None)  # type: ignore[untyped-decorator]
    def lower(*values: Any, grid: Any, **literals: str) -> tuple[()]:
        compat.settle_guards(V.graph.sizevars.shape_env)
        DirectLaunch.create(overload, *values, grid=list(grid), **literals)
        return ()


class DirectLaunch(ir.FallbackKernel):  # type: ignore[misc]
    """A launch in Inductor's IR."""

    def codegen(self, wrapper: Any) -> None:
        """Write the launch into the wrapper."""
        if V.graph.cpp_wrapper or V.graph.aot_mode:
            super().codegen(wrapper)
            return
        values, launch = self.unflatten_args(self.inputs, self.constant_args)
        launch = {**self.kwargs, **launch}
        overload: Any = self.op_overload
        name, kinds = overload._opname, overload._overloadname
        kinds = "" if kinds == "v" else kinds
        device = self._device()
        request = handles.Request(
            kernel=launch["kernel_id"],
            kinds=kinds,
            tokens=tuple(_token(value, device) for value in values),
            constexprs=launch["constexprs"],
            device=device,
        )
        handles.prepare(request)
        handle = self._handle(wrapper, name, request)
        self.codegen_comment(wrapper)
        stream = "0"
        if device != "cpu":
            stream = wrapper.write_get_raw_stream(int(device.partition(":")[2]), V.graph.name)
        grid = [wrapper.val_to_arg_str(size) for size in launch["grid"]]
        grid += ["1"] * (3 - len(grid))
        arguments = [stream, *(_text(wrapper, value) for value in values), *grid]
        wrapper.writeline(f"{handle}({', '.join(arguments)})")
        self.codegen_unbacked_symbol_defs(wrapper)

    def _device(self) -> str:
        inputs: Any = self.inputs
        device = self.get_device() or next((i.get_device() for i in inputs), None)
        if device is None or device.type == "cpu":
            return "cpu"
        return f"{device.type}:{device.index or 0}"

    @staticmethod
    def _handle(wrapper: Any, name: str, request: handles.Request) -> str:
        """The name of the handle in the wrapper's module, defined in its header at first need."""
        root = getattr(wrapper, "get_root_graph", lambda: wrapper)()
        known = root.__dict__.setdefault("_opgraft_handles", {})
        if request not in known:
            known[request] = f"_{name}_{len(known)}"
            root.add_import_once("from opgraft.integration import handles as _opgraft_handles")
            root.header.writeline(f"{known[request]} = _opgraft_handles.resolve({request.literals()})")
        return str(known[request])


def _register_storage_offset() -> None:
    """Lower ``aten.sym_storage_offset``, as ``sym_size`` is lowered: to what the graph says.

    Functionalization asks for the offset of a written view whose place depends on symbolic sizes (``out[2]``). Inductor
    up to torch 2.13 has no lowering for it, and its fallback answers 0.
    """
    overload = torch.ops.aten.sym_storage_offset.default
    if overload in lowerings:
        return

    @register_lowering(overload, type_promotion_kind=None)  # type: ignore[untyped-decorator]
    def lower(tensor: Any) -> Any:
        offset = V.graph.current_node.meta["val"]
        return offset.node.expr if isinstance(offset, torch.SymInt) else int(offset)


_register_storage_offset()


def _text(wrapper: Any, value: Any) -> str:
    if isinstance(value, ir.IRNode):
        return str(value.codegen_reference())
    return str(wrapper.val_to_arg_str(value))


def _token(value: Any, device: str) -> str:
    """The specialization token of a value in Inductor's IR: what the graph proves about it."""
    if isinstance(value, ir.IRNode):
        return pointer_token(device, pointer_type(value.get_dtype()), _is_aligned(value))
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, float):
        return "fp32"
    expression = sympy.sympify(getattr(getattr(value, "node", None), "expr", value))
    if not expression.is_integer:
        return "fp32"
    return _int_token(expression, device)


def _int_token(expression: sympy.Expr, device: str) -> str:
    if expression.is_Integer:
        return int_token(device, int(expression), True, int(expression) % 16 == 0)
    bounds = V.graph.sizevars.shape_env.bound_sympy(expression)
    fits = bool(bounds.lower >= INT32[0] and bounds.upper <= INT32[1])
    return int_token(device, None, fits, _is_multiple(expression, 16))


def _is_multiple(expression: sympy.Expr, divisor: int) -> bool:
    return bool(V.graph.sizevars.statically_known_multiple_of(expression, divisor))


def _is_aligned(value: ir.IRNode) -> bool:
    layout = value.get_layout()
    offset = sympy.sympify(layout.offset) * layout.dtype.itemsize
    name = value.get_name()
    return _is_multiple(offset, 16) and name not in V.graph.unaligned_buffers
