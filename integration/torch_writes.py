"""Which arguments of an op are written by operations of torch in its body: `x.add_(1)`, `torch.mul(y, z, out=x)`.

On tensors that stand for others while a graph is traced, a dispatch mode reads each operation's schema before it runs.
A tensor with memory counts its writes (`Tensor._version`), which costs an op's body nothing, but so do its views, in
whatever thread, and changes of a view's shape count, too. So a count is a suspicion: the body then runs on fakes.
A kernel of Triton's own runtime counts nothing; our launches are checked before they run (:mod:`.body`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..jit import interception
from . import compat
from .schema import argument_at, written_positions

__all__ = ["count_write", "tensors_of", "watched"]

Report = Callable[[torch.Tensor, str], None]


@contextmanager
def watched(
    tensors: Sequence[torch.Tensor],
    undeclared: Callable[[torch.Tensor], object],
    report: Report,
    trace: Callable[[], None],
) -> Iterator[None]:
    """While this is entered, ``report(tensor, operation)`` is called before an operation of torch writes a tensor.

    That is so where ``tensors`` stand for others. Where they have memory, ``trace()`` is called when the context is
    left without an exception and one of them that is ``undeclared`` seems to have been written.
    """
    if not interception.plain(tensors, {}):
        with _WritesReported(report):
            yield
        return
    counted = [(tensor, tensor._version) for tensor in tensors if not tensor.is_inference()]
    yield
    if any(tensor._version != version and undeclared(tensor) for tensor, version in counted):
        trace()


class _WritesReported(compat.TorchDispatchMode):  # type: ignore[misc]
    """Calls ``report`` with each tensor that the next operation writes."""

    supports_higher_order_operators = True  # which have no schema, and write nothing themselves

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = getattr(func, "_schema", None)
        if schema is not None and schema.is_mutable and torch.Tag.inplace_view not in func.tags:
            for position in written_positions(schema):
                for tensor in tensors_of(argument_at(schema, position, args, kwargs)):
                    self.report(tensor, str(func))
        return func(*args, **kwargs)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors of an op's argument: a tensor, or those of a list."""
    items = value if isinstance(value, (list, tuple)) else (value,)
    return [item for item in items if isinstance(item, torch.Tensor)]


def count_write(value: Any) -> None:
    """Move the version counters of an argument that an op has written, so that a backward that saved it notices."""
    for tensor in tensors_of(value):
        torch.autograd.graph.increment_version(tensor)
