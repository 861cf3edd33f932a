"""Binding the arguments of a call to the parameters of a kernel, by a function generated for that kernel.

``make_binder(name, signature, params, backend)`` returns ``binder(*args, **kwargs) -> (arguments,
specialization, options)``: the arguments by name with defaults filled in, one ``(type, key)`` for each (see
`specialization`), and the keywords that are not parameters, which are options of the compiler.
``make_plain_binder(name, signature)`` returns the same without specialization, for those who must not look at
values.
"""

from __future__ import annotations

import difflib
import inspect
import keyword
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import arguments
from .params import KernelParam
from .specialization import specializer

Binder = Callable[..., tuple[dict[str, Any], list[Any], dict[str, Any]]]
PlainBinder = Callable[..., tuple[dict[str, Any], dict[str, Any]]]


def make_binder(name: str, signature: inspect.Signature, params: Sequence[KernelParam], backend: Any) -> Binder:
    """The binder of the kernel ``name``; it raises Python's TypeError for missing and surplus arguments."""

    # A parameter may have any name, so what the function uses itself goes by names that none has.
    def free(wanted: str) -> str:
        while wanted in signature.parameters:
            wanted += "_"
        return wanted

    namespace: dict[str, Any] = {}
    known = {
        False: (free("plain"), free("PLAIN"), arguments.plain, arguments.PLAIN),
        True: (free("constant"), free("CONSTANT"), arguments.constant, arguments.CONSTANT),
    }
    for convert_name, classes_name, convert, classes in known.values():
        namespace[convert_name] = convert
        namespace[classes_name] = classes
    lines = []
    specialized = []
    for param in params:
        convert_name, classes_name, _, _ = known[param.is_constexpr]
        lines.append(f"if {param.name}.__class__ not in {classes_name}:")
        lines.append(f"    {param.name} = {convert_name}({param.name!r}, {param.name})")
        if param.is_constexpr:
            specialized.append(f"('constexpr', {param.name})")
        else:
            specialize_name = free(f"specialize_{param.name}")
            namespace[specialize_name] = specializer(param, backend)
            specialized.append(f"{specialize_name}({param.name})")
    lines.append(f"return {_mapping(signature)}, [{', '.join(specialized)}], {_options_name(signature)}")
    binder: Binder = _define(name, signature, lines, namespace)
    return binder


def make_plain_binder(name: str, signature: inspect.Signature) -> PlainBinder:
    """The binder that only names each argument: ``binder(*args, **kwargs) -> (arguments, options)``."""
    binder: PlainBinder = _define(name, signature, [f"return {_mapping(signature)}, {_options_name(signature)}"], {})
    return binder


def with_hint(error: TypeError, signature: inspect.Signature, given: Iterable[str]) -> TypeError:
    """What a binder raised; where arguments are missing, with the keywords that were probably meant for them."""
    if " missing " not in str(error):
        return error
    open_ = [name for name in signature.parameters if name not in given]
    hints = [
        f"{name!r} is no parameter, did you mean {near[0]!r}?"
        for name in given
        if name not in signature.parameters and (near := difflib.get_close_matches(name, open_, n=1))
    ]
    return TypeError(f"{error}; {' '.join(hints)}") if hints else error


def _mapping(signature: inspect.Signature) -> str:
    return "{" + ", ".join(f"{name!r}: {name}" for name in signature.parameters) + "}"


def _options_name(signature: inspect.Signature) -> str:
    name = "options"
    while name in signature.parameters:
        name += "_"
    return name


def _define(name: str, signature: inspect.Signature, body: list[str], namespace: dict[str, Any]) -> Any:
    head = []
    keyword_only = False
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            head.append(f"*{parameter.name}")
            keyword_only = True
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not keyword_only:
            head.append("*")
            keyword_only = True
        if parameter.default is inspect.Parameter.empty:
            head.append(parameter.name)
        else:
            namespace[f"default_{parameter.name}"] = parameter.default
            head.append(f"{parameter.name}=default_{parameter.name}")
    head.append(f"**{_options_name(signature)}")
    # Python's own messages ("missing 1 required positional argument") then name the kernel.
    function = name if name.isidentifier() and not keyword.iskeyword(name) else "kernel"
    source = f"def {function}({', '.join(head)}):\n" + "".join(f"    {line}\n" for line in body)
    exec(compile(source, f"<binder of {name}>", "exec"), namespace)
    return namespace[function]
