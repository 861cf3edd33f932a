"""Compile-time arguments of a launch as one readable literal, and back.

A launch in a graph carries its constexpr arguments and options as a string such as
``"BLOCK=1024, ACT='gelu', DT=dtype('fp16'), num_warps=4"``. A string is what every compile cache
keys by and what a reader of a graph understands. :func:`encode` writes it, :func:`decode` reads it.

Values that have no literal (an object of a user's class) are kept in a table of this process and
written as ``object('name', 'token')``; the token is unique to the process, so that no cache entry
of another process can match it.
"""

from __future__ import annotations

import ast
import enum
import importlib
import itertools
import math
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["decode", "encode"]

_tokens = itertools.count()
_objects: dict[str, Any] = {}
_tokens_of: dict[int, str] = {}
_lock = threading.Lock()


def encode(values: Mapping[str, Any]) -> str:
    """Write ``values`` (argument name to value) as ``"name=literal, ..."`` in their given order."""
    return ", ".join(f"{name}={_literal(value)}" for name, value in values.items())


def decode(text: str) -> dict[str, Any]:
    """Read what :func:`encode` wrote.

    Raises ValueError for a text that it did not write, LookupError when the text names an object
    or a kernel that this process does not hold.
    """
    try:
        call = ast.parse(f"f({text})", mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"not the constexpr arguments of a launch: {text!r}") from error
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError(f"not the constexpr arguments of a launch: {text!r}")
    return {keyword.arg: _value(keyword.value) for keyword in call.keywords if keyword.arg}


def _literal(value: Any) -> str:
    if value is None or (isinstance(value, (bool, str)) and not isinstance(value, enum.Enum)):
        return repr(value)
    if isinstance(value, enum.Enum):
        kind = type(value)
        return f"enum({kind.__module__ + ':' + kind.__qualname__!r}, {value.name!r})"
    if isinstance(value, int):
        return repr(int(value))
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if isinstance(value, tuple):
        items = ", ".join(map(_literal, value))
        if hasattr(value, "_fields"):
            # A named tuple: kernels read its fields by name.
            return f"named({_keep(type(value))}, {_as_tuple(items, len(value))})"
        return _as_tuple(items, len(value))
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in value.items()) + "}"
    return _special(value)


def _as_tuple(items: str, length: int) -> str:
    return f"({items},)" if length == 1 else f"({items})"


def _special(value: Any) -> str:
    import torch
    import triton.language as tl
    from triton.runtime.jit import JITFunction

    if isinstance(value, torch.dtype):
        return f"torch_dtype({str(value).removeprefix('torch.')!r})"
    if isinstance(value, tl.dtype):
        return f"dtype({value.name!r})"
    if isinstance(value, tl.constexpr):
        return f"constexpr({_literal(value.value)})"
    if isinstance(value, JITFunction):
        from . import references

        return f"kernel({references.reference(value)!r})"
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return _literal(value.item())  # a numpy scalar
    return _keep(value)


def _keep(value: Any) -> str:
    name = getattr(value, "__qualname__", type(value).__qualname__)
    with _lock:
        token = _tokens_of.get(id(value))
        if token is None:
            token = f"{os.getpid()}.{os.urandom(4).hex()}.{next(_tokens)}"
            _objects[token] = value  # keeps the value alive, so that its id stays its own
            _tokens_of[id(value)] = token
    return f"object({name!r}, {token!r})"


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Tuple):
        return tuple(map(_value, node.elts))
    if isinstance(node, ast.List):
        return list(map(_value, node.elts))
    if isinstance(node, ast.Dict):
        return {_value(k): _value(v) for k, v in zip(node.keys, node.values, strict=True) if k is not None}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _READERS:
        return _READERS[node.func.id](*map(_value, node.args))
    raise ValueError(f"not a constexpr literal: {ast.unparse(node)}")


def _read_enum(path: str, name: str) -> Any:
    module, _, qualified = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in qualified.split("."):
        found = getattr(found, part)
    return found[name]


def _read_torch_dtype(name: str) -> Any:
    import torch

    return getattr(torch, name)


def _read_dtype(name: str) -> Any:
    import triton.language as tl

    return tl.dtype(name)


def _read_constexpr(value: Any) -> Any:
    import triton.language as tl

    return tl.constexpr(value)


def _read_kernel(reference: str) -> Any:
    from . import references

    return references.kernel(reference)


def _read_object(name: str, token: str) -> Any:
    try:
        return _objects[token]
    except KeyError:
        raise LookupError(
            f"the constexpr object {name} belongs to another process; "
            "pass numbers, strings, dtypes, tuples or kernels to have a launch that can be stored"
        ) from None


_READERS: dict[str, Callable[..., Any]] = {
    "constexpr": _read_constexpr,
    "dtype": _read_dtype,
    "enum": _read_enum,
    "float": float,
    "kernel": _read_kernel,
    "named": lambda kind, items: kind(*items),
    "object": _read_object,
    "torch_dtype": _read_torch_dtype,
}
