"""Warm up the kernels of a graph while it is compiled.

Each launch in the post-grad graph is specialized from its fake tensors and symbolic sizes, and its
kernel starts compiling in the background. Inductor's lowering comes to the same specialization
later; by then the kernel is there or on its way.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ..integration import handles
from ..integration.launch_op import pointer_type
from ..integration.tokens import INT32, int_token, pointer_token
from .graph_pass import GraphPass
from .launches import LaunchNode, launches

__all__ = ["Warmup", "request_of"]


class Warmup(GraphPass):
    """Start compiling the kernels of a graph; the graph is left as it is."""

    def run(self, graph: torch.fx.Graph) -> int:
        """The number of launches whose kernels were asked for."""
        count = 0
        for launch in launches(graph):
            request = request_of(launch)
            if request is not None:
                handles.prepare(request)
                count += 1
        return count


def request_of(launch: LaunchNode) -> handles.Request | None:
    """What the launch needs compiled; None where the graph has lost the value of an argument."""
    values = launch.values
    if any(value is None for value in values):
        return None
    device = next((_device(v) for v in values if isinstance(v, torch.Tensor)), "cpu")
    return handles.Request(
        kernel=launch.arguments["kernel_id"],
        kinds=launch.kinds,
        tokens=tuple(_token(value, device) for value in values),
        constexprs=launch.arguments["constexprs"],
        device=device,
    )


def _device(tensor: torch.Tensor) -> str:
    return "cpu" if tensor.device.type == "cpu" else f"{tensor.device.type}:{tensor.device.index or 0}"


def _token(value: Any, device: str) -> str:
    if isinstance(value, torch.Tensor):
        offset = value.storage_offset() * value.element_size()
        return pointer_token(device, pointer_type(value.dtype), statically_known_true(offset % 16 == 0))
    if isinstance(value, (bool, torch.SymBool)):
        return "u1"
    if isinstance(value, (float, torch.SymFloat)):
        return "fp32"
    if isinstance(value, int):
        return int_token(device, value, True, value % 16 == 0)
    bounds = value.node.shape_env.bound_sympy(value.node.expr)
    fits = bool(bounds.lower >= INT32[0] and bounds.upper <= INT32[1])
    if value.node.expr.is_Integer:
        constant = int(value.node.expr)
        return int_token(device, constant, True, constant % 16 == 0)
    return int_token(device, None, fits, statically_known_true(value % 16 == 0))
