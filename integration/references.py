"""References to kernels that a graph or a generated wrapper can hold: ``module:qualname@key``.

The key is the start of the kernel's cache key, so that a graph made from another version of the
kernel never finds this one. :func:`reference` writes a reference, :func:`kernel` resolves it among
the kernels that live in this process.
"""

from __future__ import annotations

from typing import Any

from ..jit import registry

__all__ = ["KEY_LENGTH", "kernel", "reference"]

KEY_LENGTH = 16
"""Hexadecimal digits of the cache key in a reference: 64 bits."""


def reference(kernel: Any) -> str:
    """The reference to a kernel, a :class:`triton.runtime.jit.JITFunction`."""
    return f"{kernel.fn.__module__}:{kernel.fn.__qualname__}@{kernel.cache_key[:KEY_LENGTH]}"


def kernel(reference: str) -> Any:
    """The live kernel that ``reference`` names.

    Raises LookupError when no module of this process defines it, or only another version of it.
    """
    name, _, key = reference.rpartition("@")
    return registry.find(name, key)
