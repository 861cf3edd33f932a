"""Which arguments of an op are written by operations of torch in its body: `x.add_(1)`, `torch.mul(y, z, out=x)`.

A tensor with memory counts its writes (`Tensor._version`), which costs an op's body nothing. Tensors that stand for
others while a graph is traced do not; there a dispatch mode reads each operation's schema before it runs. A kernel of
Triton's own runtime does neither; our launches are checked before they run (:mod:`.body`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..jit import interception
from . import compat

__all__ = ["tensors_of", "watched"]

Report = Callable[[torch.Tensor, str], None]


@contextmanager
def watched(tensors: Sequence[torch.Tensor], report: Report) -> Iterator[None]:
    """While this is entered, ``report(tensor, operation)`` is called for tensors that operations of torch write.

    Where ``tensors`` have memory, it is called for those of them that were written, when the context is left without
    an exception. Otherwise it is called before each operation that writes, with whatever that writes.
    """
    if not interception.plain(tensors, {}):
        with _WritesReported(report):
            yield
        return
    versions = [tensor._version for tensor in tensors if not tensor.is_inference()]
    yield
    counted = (tensor for tensor in tensors if not tensor.is_inference())
    for tensor, version in zip(counted, versions, strict=True):
        if tensor._version != version:
            report(tensor, "an operation of torch")


class _WritesReported(compat.TorchDispatchMode):  # type: ignore[misc]
    """Calls ``report`` with each tensor that the next operation writes."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            for position, argument in enumerate(func._schema.arguments):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    value = args[position] if position < len(args) else kwargs.get(argument.name)
                    for tensor in tensors_of(value):
                        self.report(tensor, str(func))
        return func(*args, **kwargs)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors of an op's argument: a tensor, or those of a list."""
    items = value if isinstance(value, (list, tuple)) else (value,)
    return [item for item in items if isinstance(item, torch.Tensor)]
