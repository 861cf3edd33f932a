"""Which arguments of a launch the kernel writes, from the kernel's IR.

:func:`written_leaves` answers for arguments taken apart by :mod:`.arguments`. The question is put
to the general variant of the kernel (nothing known about alignment or values), whose writes
include those of every specialization with the same constexprs; the answer is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .literals import encode
from .specialization import Specialization

__all__ = ["written_leaves"]

_known: dict[tuple[str, str, str, tuple[str, ...], str], tuple[bool, ...]] = {}


def written_leaves(
    kernel: Any, kinds: str, types: tuple[str, ...], literals: Mapping[str, Any], device: str
) -> tuple[bool, ...]:
    """One flag for each leaf: whether the kernel writes through it (False for what is no tensor)."""
    names = [p.name for p in kernel.params]
    constexprs = encode(dict(literals))
    key = (kernel.cache_key, kinds, constexprs, types, device)
    flags = _known.get(key)
    if flags is None:
        general = Specialization.of(names, kinds, types, literals)
        flags = _known[key] = general.written(kernel, device)
    return flags
