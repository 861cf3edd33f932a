"""The kernels that live in this process, by name, so that generated code and stored data can refer to them.

``find("module:qualname", key)`` returns a kernel. Kernels are held weakly: one that a user dropped is gone.
"""

from __future__ import annotations

import importlib
import weakref
from typing import Any

from . import forks

_kernels: dict[str, list[weakref.ref[Any]]] = {}
_lock = forks.rlock()


def qualified_name(kernel: Any) -> str:
    """``module:qualname`` of a kernel's Python function."""
    return f"{kernel.fn.__module__}:{kernel.fn.__qualname__}"


def add(kernel: Any) -> None:
    """Make a kernel findable; done for every `JITFunction`."""
    name = qualified_name(kernel)
    with _lock:
        alive = [ref for ref in _kernels.get(name, ()) if ref() is not None]
        alive.append(weakref.ref(kernel))
        _kernels[name] = alive


def find(name: str, cache_key: str = "") -> Any:
    """The live kernel ``name``, whose cache key starts with ``cache_key``; the latest one, if there are
    several.

    Imports the module when it is not yet imported. Raises LookupError when there is no such kernel, or only
    other versions of it.
    """
    found = candidates(name)
    for kernel in found:
        if kernel.cache_key.startswith(cache_key):
            return kernel
    keys = ", ".join(kernel.cache_key[: max(len(cache_key), 8)] for kernel in found)
    raise LookupError(
        f"kernel {name}: wanted the version with key {cache_key}, found {keys}; its source, or that of what"
        " it calls, has changed"
    )


def candidates(name: str) -> list[Any]:
    """The live kernels called ``name``, the latest first.

    Imports the module when it is not yet imported. Raises LookupError when there is none.
    """
    found = _candidates(name)
    if not found:
        module = name.partition(":")[0]
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise LookupError(f"kernel {name}: its module cannot be imported: {error}") from error
        found = _candidates(name)
    if not found:
        raise LookupError(f"kernel {name}: no kernel of that name lives in this process")
    return found[::-1]


def _candidates(name: str) -> list[Any]:
    with _lock:
        refs = list(_kernels.get(name, ()))
    return [kernel for ref in refs if (kernel := ref()) is not None]
