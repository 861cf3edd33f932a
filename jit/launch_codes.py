"""How each argument of a compiled kernel is passed, in the codes that the launcher in C takes.

`launch_codes(src)` gives one character for each argument of a specialization, tuples flattened, and the
arguments' names; `native.make_handle` lists the codes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Type -> code without and with divisibility by 16.
_SCALARS = {
    "i1": "oo",
    "u1": "oo",
    "i8": "bc",
    "i16": "st",
    "i32": "iI",
    "i64": "lL",
    "u8": "BC",
    "u16": "ST",
    "u32": "wW",
    "u64": "uU",
    "fp16": "hh",
    "bf16": "gg",
    "fp32": "ff",
    "f32": "ff",
    "fp64": "dd",
}

Path = tuple[int, ...]


def launch_codes(src: Any) -> tuple[str, tuple[str, ...]]:
    """The codes and names of the arguments of a source (`ASTSource` or `ModuleSource`).

    Raises TypeError for arguments that C code cannot pass, which are tensor descriptors.
    """
    parameters = getattr(getattr(src, "fn", None), "params", None)
    codes, names = [], []
    for index, (name, kind) in enumerate(src.signature.items()):
        declared = parameters is not None and parameters[index].is_constexpr
        for path, leaf in _leaves(kind, (index,)):
            label = str(name) + "".join(f"[{place}]" for place in path[1:])
            codes.append("x" if declared else _code(src, path, leaf, label))
            names.append(label)
    return "".join(codes), tuple(names)


def launched_arguments(src: Any, values: Sequence[Any], *, constants: bool) -> list[Any]:
    """The arguments of a launch, one for each parameter, from the flat values that a handle was called with.

    Without `constants` the handle does not take what is compiled in (see `CompiledKernel.handle`).
    """
    codes, _ = launch_codes(src)
    places, given = iter(codes), iter(values)

    def build(kind: Any, path: Path) -> Any:
        if isinstance(kind, (tuple, list)):
            items = [build(inner, (*path, place)) for place, inner in enumerate(kind)]
            return type(kind)(*items) if hasattr(kind, "_fields") else tuple(items)
        if next(places) in "xN" and not constants:
            return src.constants.get(path)
        return next(given)

    return [build(kind, (index,)) for index, kind in enumerate(src.signature.values())]


def _leaves(kind: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(kind, (tuple, list)):
        for place, inner in enumerate(kind):
            yield from _leaves(inner, (*path, place))
    else:
        yield path, kind


def _code(src: Any, path: Path, kind: str, label: str) -> str:
    if kind == "constexpr":
        # Not declared so: the value that was passed is compiled in.
        value = src.constants.get(path)
        if value is None:
            return "N"
        return "1" if type(value) is int and value == 1 else "x"
    divisible = any(name == "tt.divisibility" and value % 16 == 0 for name, value in src.attrs.get(path, ()))
    if kind.startswith("*"):
        return "A" if divisible else "P"
    if kind not in _SCALARS:
        raise TypeError(
            f"{src.name}: argument {label} of type {kind} cannot be passed by a launch handle;"
            " launch with kernel[grid](...)"
        )
    return _SCALARS[kind][divisible]
