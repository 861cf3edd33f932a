"""A text for any Python value that says what it holds, and nothing else.

``text(value)`` is equal for equal contents in every process: it uses no ``id()``, no hash order and no
default ``repr``. Values that Python takes for equal but that compile differently (``1``, ``True``, ``1.0``;
``0.0`` and ``-0.0``) have different texts. Cache keys are made of it.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import types
from typing import Any

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, type(Ellipsis)})


def text(value: object) -> str:
    """The content of ``value`` as a text; two values with equal texts compile to the same code."""
    if value.__class__ in _PLAIN:
        return repr(value)
    return _text(value, ())


def type_name(kind: type) -> str:
    """``module.qualname`` of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _text(value: Any, parents: tuple[int, ...]) -> str:
    kind = value.__class__
    if kind in _PLAIN:
        return repr(value)
    if id(value) in parents:
        # The distance to the value that holds itself, rather than its address.
        return f"<cycle {len(parents) - parents.index(id(value))}>"
    inner = (*parents, id(value))

    if isinstance(value, enum.Enum):
        return f"{type_name(kind)}.{value.name}={_text(value.value, inner)}"
    if isinstance(value, tuple):
        items = [_text(item, inner) for item in value]
        if hasattr(kind, "_fields"):
            items = [f"{field}={item}" for field, item in zip(kind._fields, items, strict=True)]
        return f"{'' if kind is tuple else type_name(kind)}({', '.join(items)},)"
    if isinstance(value, list):
        return f"{'' if kind is list else type_name(kind)}[{', '.join(_text(item, inner) for item in value)}]"
    if isinstance(value, dict):
        pairs = sorted(f"{_text(key, inner)}: {_text(item, inner)}" for key, item in value.items())
        return f"{'' if kind is dict else type_name(kind)}{{{', '.join(pairs)}}}"
    if isinstance(value, (set, frozenset)):
        return f"{type_name(kind)}{{{', '.join(sorted(_text(item, inner) for item in value))}}}"
    if isinstance(value, type):
        return f"class {type_name(value)}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, (types.BuiltinFunctionType, types.MethodDescriptorType)):
        return f"builtin {getattr(value, '__module__', None)}.{value.__qualname__}"
    if isinstance(value, types.FunctionType):
        return _function_text(value, inner)
    if isinstance(value, types.MethodType):
        return f"method {_text(value.__func__, inner)} of {_text(value.__self__, inner)}"
    if isinstance(value, types.CodeType):
        return _code_text(value, inner)
    if isinstance(value, functools.partial):
        return f"partial {_text((value.func, value.args, value.keywords), inner)}"
    return _object_text(value, inner)


def _object_text(value: Any, inner: tuple[int, ...]) -> str:
    kind = value.__class__
    # Triton's constexpr: known by name, so that this module needs no import of Triton.
    if kind.__name__ == "constexpr" and hasattr(value, "value"):
        return f"constexpr[{_text(value.value, inner)}]"
    key = getattr(value, "cache_key", None)
    if isinstance(key, str):
        return f"{type_name(kind)}:{key}"
    if kind.__name__ == "dtype":
        # torch.float16, tl.float16, dtype('float16') of numpy: their texts name the type.
        return f"{kind.__module__}:{value}"
    if isinstance(value, (bool, int, float, str, bytes)):
        for base in (int, float, str, bytes):
            if isinstance(value, base):
                return f"{type_name(kind)}({base.__repr__(value)})"
    if isinstance(value, (bytearray, memoryview)):
        return f"{type_name(kind)}({bytes(value)!r})"
    if hasattr(value, "data_ptr") or hasattr(value, "__array_interface__"):
        return _array_text(value)
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:
        state = getattr(value, "__dict__", None)
        return f"{type_name(kind)}{_text(state, inner) if state else ''}"
    if isinstance(reduced, str):
        return f"global {kind.__module__}.{reduced}"
    parts = [list(part) if index in (3, 4) and part is not None else part for index, part in enumerate(reduced)]
    return f"{type_name(kind)}{_text(parts[1:], inner)}"


def _array_text(value: Any) -> str:
    """An array or a tensor by type, shape and, where it lies in host memory, by its bytes."""
    described = f"{type_name(value.__class__)}({getattr(value, 'dtype', None)}, {tuple(getattr(value, 'shape', ()))}"
    try:
        array = value if hasattr(value, "tobytes") else value.detach().numpy()
        return f"{described}, {hashlib.sha256(array.tobytes()).hexdigest()})"
    except Exception:
        return f"{described})"


def _function_text(function: types.FunctionType, inner: tuple[int, ...]) -> str:
    cells = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    rest = _text([function.__defaults__, function.__kwdefaults__, cells], inner)
    name = f"{function.__module__}.{function.__qualname__}"
    return f"function {name} {_code_text(function.__code__, inner)} {rest}"


def _code_text(code: types.CodeType, inner: tuple[int, ...]) -> str:
    constants = ", ".join(_text(constant, inner) for constant in code.co_consts)
    digest = hashlib.sha256(code.co_code)
    digest.update(f"{code.co_names}{code.co_varnames}{code.co_freevars}({constants})".encode())
    return digest.hexdigest()


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
