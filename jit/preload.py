"""Specialization data: one variant of a kernel as JSON, to compile it in another process before it is needed.

`dump_specialization` writes what the compile hooks hand out, `load_specialization` reads it back; the
runtime's `kernel.preload(data)` compiles what was read. The format is that of Triton 3.7, whose data can be
read too; values that Triton cannot write (tuples, torch dtypes, enum members, constexpr functions, other
classes) have forms of our own. Nothing is pickled: data from another process can name objects, never run code
other than an import.
"""

from __future__ import annotations

import enum
import importlib
import json
from typing import TYPE_CHECKING, Any

from . import compat, registry

if TYPE_CHECKING:
    from triton.backends.compiler import BaseBackend, GPUTarget

    from .hooks import Variant


def qualified_name(kernel: Any) -> str:
    """`module.qualname` of a kernel, the name that specialization data carries."""
    return f"{kernel.fn.__module__}.{kernel.fn.__qualname__}"


def dump_specialization(kernel: Any, variant: Variant) -> str:
    """The JSON text for `variant` of `kernel`.

    A constexpr that JSON cannot hold is written as its repr, and `load_specialization` refuses it by name.
    """
    return json.dumps(
        {
            "name": qualified_name(kernel),
            "signature": variant.signature,
            "constant_keys": [list(path) for path in variant.constexprs],
            "constant_vals": [_encode(value) for value in variant.constexprs.values()],
            "attrs_keys": [list(path) for path in variant.attrs],
            "attrs_vals": list(variant.attrs.values()),
            "options": vars(variant.options),
            "key": variant.key,
            "target": vars(variant.target),
        },
        default=repr,
    )


def is_for_cpu(data: str) -> bool:
    """Whether specialization data was recorded for the CPU; false for what is not such data."""
    try:
        return bool(json.loads(data)["target"]["backend"] == "cpu")
    except (ValueError, KeyError, TypeError):
        return False


def load_specialization(kernel: Any, data: str, target: GPUTarget, backend: BaseBackend, device: int) -> Variant:
    """Read specialization data for `kernel` on `target`.

    Raises RuntimeError when the data is for another kernel or another target, or names an object that cannot
    be found, and ValueError when it is not specialization data.
    """
    from .hooks import Variant

    try:
        read = json.loads(data)
        name = read["name"]
        keys, values = read["constant_keys"], read["constant_vals"]
        attrs = dict(zip(map(tuple, read["attrs_keys"]), read["attrs_vals"], strict=True))
        signature = {name: _tuples(type) for name, type in read["signature"].items()}
        options, key = read["options"], read["key"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"preload of {qualified_name(kernel)}: not specialization data ({error!r});"
            " pass compile['specialization_data'] as a compile hook received it"
        ) from error
    if name != qualified_name(kernel):
        raise RuntimeError(f"Specialization data is for {name} but trying to preload for {qualified_name(kernel)}")
    # Triton 3.6 does not write the target.
    if "target" in read and vars(target) != read["target"]:
        raise RuntimeError(f"Specialization data is for {read['target']} but trying to preload for {target}")
    expected = [parameter.name for parameter in kernel.params]
    if list(signature) != expected:
        raise RuntimeError(
            f"Specialization data is for {name}({', '.join(signature)}) but the kernel is now"
            f" {name}({', '.join(expected)}); record it again"
        )
    constexprs = {}
    for path, value in zip(map(tuple, keys), values, strict=True):
        try:
            constexprs[path] = _decode(value)
        except LookupError as error:
            raise RuntimeError(f"preload of {name}: argument {expected[path[0]]}: {error.args[0]}") from error
    return Variant(
        key=key,
        signature=signature,
        constexprs=constexprs,
        attrs=attrs,
        options=backend.parse_options({name: _tuples(value) for name, value in options.items()}),
        target=target,
        device=device,
    )


def _tuples(value: Any) -> Any:
    """JSON's lists as tuples, at every depth: kernel signatures and options hold no list."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _encode(value: Any) -> Any:
    import triton.language as tl
    from triton.runtime.jit import JITCallable, JITFunction

    if type(value) is str and tl.dtype.is_dtype(value):
        # Triton writes a dtype as its name.
        return {"text": value}
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, enum.Enum):
        return {"enum": _path_of(type(value)), "member": value.name}
    if isinstance(value, tl.dtype):
        return str(value)
    if isinstance(value, tl.constexpr):
        return {"constexpr": _encode(value.value)}
    if isinstance(value, JITFunction):
        return {"jit_function": f"{value.fn.__module__}:{value.fn.__qualname__}"}
    if isinstance(value, JITCallable) and getattr(value, "fn", None) is not None:
        return {"object": _path_of(value.fn)}
    if isinstance(value, tuple):
        encoded = [_encode(item) for item in value]
        if hasattr(value, "_fields"):
            return {"namedtuple": _path_of(type(value)), "fields": list(value._fields), "values": encoded}
        return {"tuple": encoded}
    if isinstance(value, type):
        return {"object": _path_of(value)}
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return {"torch": str(value).removeprefix("torch.")}
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        return {"numpy": type(value).__name__, "value": value.item()}
    return {"unsupported": f"{type(value).__qualname__}: {value!r}"}


def _path_of(thing: Any) -> str:
    return f"{thing.__module__}:{thing.__qualname__}"


def _decode(value: Any) -> Any:
    """The inverse of `_encode`. Raises LookupError with a message when it is not possible."""
    import triton.language as tl

    if isinstance(value, str):
        return tl.dtype(value) if tl.dtype.is_dtype(value) else value
    if isinstance(value, list):
        return tuple(_decode(item) for item in value)
    if not isinstance(value, dict):
        return value
    if "constexpr" in value:
        return tl.constexpr(_decode(value["constexpr"]))
    if "jit_function" in value:
        return _find_kernel(value["jit_function"])
    if "tuple" in value:
        return tuple(_decode(item) for item in value["tuple"])
    if "namedtuple" in value:
        return _find(value["namedtuple"])(*(_decode(item) for item in value["values"]))
    if "enum" in value:
        return _find(value["enum"])[value["member"]]
    if "object" in value:
        return _find(value["object"])
    if "text" in value:
        return value["text"]
    if "numpy" in value:
        import numpy

        return getattr(numpy, value["numpy"])(value["value"])
    if "torch" in value:
        import torch

        return getattr(torch, value["torch"])
    raise LookupError(f"a value that cannot be preloaded ({value.get('unsupported', value)})")


def _find(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise LookupError(f"cannot find {name} in module {module} ({error})") from error
    return found


def _find_kernel(path: str) -> Any:
    """A kernel by `module:qualname`: what the module calls so, else the latest kernel that was made under the name.

    The module may hold an autotuner around it, and a kernel that a function made is held by no module.
    """
    from triton.runtime.jit import JITFunction

    try:
        found = _find(path)
    except LookupError:
        found = None
    if isinstance(found, JITFunction):
        return found
    known = compat.function_registry() or {}
    if path in known:
        return known[path]
    try:
        return registry.find(path)
    except LookupError as error:
        raise LookupError(f"Unable to resolve JITFunction {path} for preload: {error.args[0]}") from error
