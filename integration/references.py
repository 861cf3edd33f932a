"""References to kernels that a graph or a generated wrapper can hold: ``module:qualname@key``.

The key covers the kernel's cache key and this build of opgraft, so that a graph made from another
version of either never finds this kernel. :func:`reference` writes a reference, :func:`kernel`
resolves it among the kernels that live in this process.
"""

from __future__ import annotations

import hashlib
from typing import Any

from ..jit import registry
from .build import build_identity

__all__ = ["KEY_LENGTH", "kernel", "reference"]

KEY_LENGTH = 16
"""Hexadecimal digits of the key in a reference: 64 bits."""


def reference(kernel: Any) -> str:
    """The reference to a kernel, a :class:`triton.runtime.jit.JITFunction`."""
    return f"{registry.qualified_name(kernel)}@{_key(kernel)}"


def kernel(reference: str) -> Any:
    """The live kernel that ``reference`` names.

    Raises LookupError when no module of this process defines it, or only another version of it.
    """
    name, _, key = reference.rpartition("@")
    for kernel in registry.candidates(name):
        if _key(kernel) == key:
            return kernel
    raise LookupError(
        f"kernel {name}: the graph was made with version {key}, and this process holds another; "
        "its source, that of what it calls, or opgraft has changed: compile the graph anew"
    )


def _key(kernel: Any) -> str:
    return hashlib.sha256(f"{kernel.cache_key} {build_identity()}".encode()).hexdigest()[:KEY_LENGTH]
