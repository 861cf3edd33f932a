"""The passes that the backend runs, in their order."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from .graph_pass import GraphPass
from .warmup import Warmup

__all__ = ["Combined", "post_grad_passes"]


def post_grad_passes() -> list[GraphPass]:
    """New instances of the passes over post-grad graphs."""
    return [Warmup()]


class Combined(GraphPass):
    """The user's pass, if any, and ours, as one; its identity is that of all of them."""

    def __init__(self, users: Any, passes: list[GraphPass]) -> None:
        super().__init__()
        self.users = [] if users is None else list(users) if isinstance(users, (list, tuple)) else [users]
        self.passes = passes

    def run(self, graph: torch.fx.Graph) -> int:
        for user in self.users:
            user(graph)
        before = sum(p.count for p in self.passes)
        for graph_pass in self.passes:
            graph_pass(graph)
        return sum(p.count for p in self.passes) - before

    def uuid(self) -> Any:
        """None when a user's pass has no identity, so that Inductor does not cache the graph."""
        parts = []
        for part in [*self.users, *self.passes]:
            identity = part.uuid() if hasattr(part, "uuid") else None
            if identity is None:
                return None
            parts.append(repr(identity))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()
