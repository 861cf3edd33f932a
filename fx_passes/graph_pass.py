"""The base of our passes: a callable on a graph with an identity for the compile caches."""

from __future__ import annotations

import hashlib
import inspect

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass

__all__ = ["GraphPass"]


class GraphPass(CustomGraphPass):  # type: ignore[misc]
    """A pass over a post-grad graph.

    A subclass implements :meth:`run` and counts what it did in :attr:`count`. Its identity, which
    Inductor's caches key by, is a digest of the pass's source file and of :meth:`settings`.
    """

    def __init__(self) -> None:
        self.count = 0
        """How many nodes the pass acted on since it was made."""

    def __call__(self, graph: torch.fx.Graph) -> None:
        self.count += self.run(graph)

    def run(self, graph: torch.fx.Graph) -> int:
        """Act on ``graph``; the number of nodes acted on."""
        raise NotImplementedError

    def settings(self) -> str:
        """What else the pass's result depends on, as text."""
        return ""

    def uuid(self) -> str:
        """The identity of the pass."""
        source = inspect.getsource(inspect.getmodule(type(self)) or type(self))
        return hashlib.sha256(f"{source}\n{self.settings()}".encode()).hexdigest()
