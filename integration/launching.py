"""Launches that are not plain: on fake tensors, while a graph is traced, under a dispatch mode.

The runtime offers such a launch to :func:`intercept` before it reads an address. It becomes a call
of the launch op (:mod:`.launch_op`), which the tracer records, which a mode sees, and which does
nothing for fake tensors. A launch on plain tensors inside a body that is being checked passes on to
the runtime once it is checked.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch

from ..jit import interception
from .body import check_launch, refuse_timing
from .launch_op import plan

__all__ = ["grid_of", "install", "intercept"]


@functools.cache
def install() -> None:
    """Have the runtime offer its launches here; idempotent."""
    interception.register(intercept)


def intercept(kernel: Any, grid: Any, bound: Mapping[str, Any], options: Mapping[str, Any], warmup: bool) -> Any:
    """Take over a launch that is not plain, NotImplemented for one that the runtime should run."""
    if warmup:
        return NotImplemented
    call = plan(kernel, bound, _given(options))
    check_launch(kernel.fn.__name__, call.labels, call.values, call.written)
    if interception.plain(call.values, {}):
        return NotImplemented
    refuse_timing(kernel.fn.__name__)
    call(grid_of(grid, bound))
    return None


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without those that the runtime adds to every call and that say nothing."""
    return {k: v for k, v in options.items() if v or k not in ("debug", "instrumentation_mode")}


def grid_of(grid: Any, bound: Mapping[str, Any]) -> tuple[Any, ...]:
    """The grid as a tuple of one to three sizes, from a tuple, a list, an int or a callable."""
    if callable(grid):
        grid = grid(dict(bound))
    sizes = tuple(grid) if isinstance(grid, (tuple, list, torch.Size)) else (grid,)
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"a grid has one to three axes, got {len(sizes)}: {grid!r}")
    return sizes
