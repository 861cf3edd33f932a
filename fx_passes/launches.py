"""Launches in FX graphs: finding them and reading their arguments.

A launch stands in a post-grad graph as a call of a launch op or, before it is made mutable again,
as ``auto_functionalized(_v2)`` of one. :func:`launches` yields both as :class:`LaunchNode`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch._higher_order_ops.auto_functionalize import auto_functionalized, auto_functionalized_v2

from ..integration.launch_op import NAMESPACE

__all__ = ["LaunchNode", "launches"]


class LaunchNode(NamedTuple):
    """A launch and its arguments by name: fake tensors, symbolic or plain numbers."""

    node: torch.fx.Node
    overload: Any
    arguments: dict[str, Any]

    @property
    def kinds(self) -> str:
        """The kinds of the launch, see :mod:`opgraft.integration.arguments`."""
        name = str(self.overload._overloadname)
        return "" if name == "v" else name

    @property
    def values(self) -> list[Any]:
        """The values of the launch in the order of its schema, without grid and literals."""
        return [self.arguments[a.name] for a in self.overload._schema.arguments if not a.kwarg_only]


def launches(graph: torch.fx.Graph) -> Iterator[LaunchNode]:
    """The launches in ``graph``, in order."""
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if _is_launch(node.target):
            names = [a.name for a in node.target._schema.arguments]
            yield LaunchNode(node, node.target, _values({**dict(zip(names, node.args, strict=False)), **node.kwargs}))
        elif node.target in (auto_functionalized, auto_functionalized_v2) and _is_launch(node.args[0]):
            overload = node.args[0]
            yield LaunchNode(node, overload, _values(_with_bases(overload, dict(node.kwargs))))


def _is_launch(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target.namespace == NAMESPACE


def _with_bases(overload: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The op's own arguments; a written one is given as its base, which has its dtype and device."""
    bases = kwargs.get("_all_bases", ())
    arguments = {}
    for argument in overload._schema.arguments:
        if argument.name in kwargs:
            arguments[argument.name] = kwargs[argument.name]
        else:
            index = kwargs.get(f"_{argument.name}_base_index")
            arguments[argument.name] = None if index is None else bases[index]
    return arguments


def _values(arguments: dict[str, Any]) -> dict[str, Any]:
    def value(item: Any) -> Any:
        return item.meta.get("val") if isinstance(item, torch.fx.Node) else item

    return {
        name: [value(i) for i in item] if isinstance(item, (list, tuple)) else value(item)
        for name, item in arguments.items()
    }
