"""Kinds of launch arguments: what travels through a graph as a value and what as a literal.

A launch op is overloaded by the kinds of its arguments, one letter for each parameter of the
kernel: ``t`` a tensor that is read, ``w`` a tensor that is written, ``i`` an int, ``f`` a float,
``b`` a bool, ``c`` anything known when the graph is made (constexpr, None, dtype, kernel), and
``L`` ... ``J`` around the kinds of a tuple's items. So ``ttwif`` is the overload of a kernel that
reads two tensors, writes a third, and takes an int and a float.

:func:`flatten` takes the bound arguments of a launch apart, :func:`unflatten` puts them together.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Flat", "flatten", "kind_of", "leaves", "literal_labels", "mark_written", "unflatten", "walk"]


class Flat(NamedTuple):
    """Bound arguments taken apart."""

    kinds: str
    """One unit for each parameter, see the module's docstring; nothing is marked as written yet."""
    labels: tuple[str, ...]
    """A name for each value: the parameter's, with ``_0`` ... behind it for a tuple's items."""
    values: tuple[Any, ...]
    """What travels through the graph, in the order of ``labels``."""
    literals: dict[str, Any]
    """What is known when the graph is made: constexprs and None, by parameter (path for an item)."""


def kind_of(value: Any) -> str:
    """The kind letter of a value that is not a tuple."""
    import torch

    if isinstance(value, torch.Tensor):
        return "t"
    if isinstance(value, (bool, torch.SymBool)):
        return "b"
    if isinstance(value, (numbers.Integral, torch.SymInt)):
        return "i"
    if isinstance(value, (numbers.Real, torch.SymFloat)):
        return "f"
    return "c"


def flatten(
    bound: Mapping[str, Any],
    constexpr_names: Sequence[str],
    kind: Callable[[Any], str] = kind_of,
    items: Callable[[Any], Sequence[Any] | None] = lambda v: v if isinstance(v, tuple) else None,
) -> Flat:
    """Take bound arguments apart.

    ``kind`` and ``items`` look into a value; a tracer passes its own for values that it wraps.
    """
    labels: list[str] = []
    values: list[Any] = []
    literals: dict[str, Any] = {}

    def visit(label: str, value: Any) -> str:
        parts = items(value)
        if parts is not None:
            return "L" + "".join(visit(f"{label}_{i}", part) for i, part in enumerate(parts)) + "J"
        letter = kind(value)
        if letter == "c":
            literals[label] = value
        else:
            labels.append(label)
            values.append(value)
        return letter

    kinds = []
    for name, value in bound.items():
        if name in constexpr_names:
            literals[name] = value
            kinds.append("c")
        else:
            kinds.append(visit(name, value))
    return Flat("".join(kinds), tuple(labels), tuple(values), literals)


def leaves(kinds: str) -> str:
    """The kinds of what travels through the graph: ``kinds`` without literals and tuple marks."""
    return "".join(k for k in kinds if k not in "cLJ")


def mark_written(kinds: str, written: Sequence[bool]) -> str:
    """``kinds`` with ``w`` for each tensor whose flag in ``written`` (one a leaf) is set."""
    flags = iter(written)
    return "".join("w" if k not in "cLJ" and next(flags) and k == "t" else k for k in kinds)


def unflatten(kinds: str, names: Sequence[str], values: Sequence[Any], literals: Mapping[str, Any]) -> dict[str, Any]:
    """Put the arguments of a launch together again: parameter name to value.

    ``values`` are the leaves in order, ``literals`` what :func:`flatten` took out (it may hold
    options too, which are left out).
    """
    rest = iter(values)
    return walk(kinds, names, lambda label, kind: literals[label] if kind == "c" else next(rest))


def literal_labels(kinds: str, names: Sequence[str]) -> frozenset[str]:
    """The labels of the literals among the arguments; what else stands with them are options."""
    labels = []
    walk(kinds, names, lambda label, kind: labels.append(label) if kind == "c" else None)
    return frozenset(labels)


def walk(kinds: str, names: Sequence[str], leaf: Callable[[str, str], Any]) -> dict[str, Any]:
    """Build a value for each parameter: ``leaf(label, kind)`` for each leaf, a tuple for a tuple."""
    units = iter(kinds)

    def build(label: str, unit: str) -> Any:
        if unit != "L":
            return leaf(label, unit)
        return tuple(build(f"{label}_{i}", inner) for i, inner in enumerate(_until_end(units)))

    return {name: build(name, next(units)) for name in names}


def _until_end(units: Iterator[str]) -> Iterator[str]:
    for unit in units:
        if unit == "J":
            return
        yield unit
