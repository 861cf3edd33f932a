"""Inductor lowerings of launch ops, registered when Inductor is there.

Importing Inductor takes seconds, and eager programs never need it: :func:`register` keeps a launch
op until Inductor's lowerings are first imported. The lowering itself is in :mod:`.inductor`.
"""

from __future__ import annotations

import functools
from typing import Any

from ..jit.on_import import when_imported
from .arguments import leaves

__all__ = ["register"]

_LOWERINGS = "torch._inductor.lowering"


def register(overload: Any, kinds: str) -> None:
    """Register the lowering of a launch op, now or when Inductor is imported."""
    when_imported(_LOWERINGS, functools.partial(_register, overload, leaves(kinds)))


def _register(overload: Any, units: str, lowerings: Any) -> None:
    from . import inductor

    inductor.register_launch(overload, units)
