"""The schema of an op from the body's annotations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

__all__ = ["argument_at", "check_name", "op_schema", "written_positions"]

_NAME = re.compile(r"^([A-Za-z_]\w*)::([A-Za-z_]\w*)$")


def check_name(name: str) -> tuple[str, str]:
    """Namespace and name of ``"namespace::name"``; ValueError for anything else."""
    match = _NAME.match(name) if isinstance(name, str) else None
    if match is None:
        raise ValueError(f'an op is named "namespace::name", got {name!r}; for example "mylib::rms_norm"')
    return match.group(1), match.group(2)


def op_schema(fn: Callable[..., Any], namespace: str, name: str, mutates_args: tuple[str, ...]) -> str:
    """``name(Tensor x, ...) -> Tensor``, by the rules of :func:`torch.library.infer_schema`.

    Raises ValueError, naming the function, when annotations are missing or have no schema type, or
    when ``mutates_args`` names something that is no tensor argument, or a default or a name has no
    form in a schema.
    """
    parameters = inspect.signature(fn).parameters
    strangers = [item for item in mutates_args if item not in parameters]
    if strangers:
        raise ValueError(
            f"{fn.__module__}.{fn.__qualname__}: mutates_args names {', '.join(map(repr, strangers))}, and the body's"
            f" parameters are {', '.join(map(repr, parameters)) or 'none'}; name the tensors that it writes, or leave"
            " it out"
        )
    try:
        schema: str = torch.library.infer_schema(fn, op_name=name, mutates_args=mutates_args)
    except ValueError as error:
        raise ValueError(f"{fn.__module__}.{fn.__qualname__}: {error}") from error
    try:
        torch._C.parse_schema(f"{namespace}::{schema}")
    except Exception as error:
        reason = "".join(f" ({line})" for line in str(error).splitlines()[:1])
        raise ValueError(
            f"{fn.__module__}.{fn.__qualname__}: torch cannot read the schema {schema}{reason};"
            " choose other names or defaults for its parameters"
        ) from error
    return schema


def written_positions(schema: Any) -> tuple[int, ...]:
    """The positions of the arguments that an op with this schema writes."""
    return tuple(i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write)


def argument_at(schema: Any, position: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What was passed for the argument at a position of the schema; None where it was left at its default."""
    return args[position] if position < len(args) else kwargs.get(schema.arguments[position].name)
