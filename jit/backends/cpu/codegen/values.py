"""Blocks of values that are not computed yet.

A `Node` says how an element of a block is computed; nothing is emitted until a loop needs it (`nest.py`). Two forms are
kept beside the expression, because loops, addresses and masks need them:

* `Linear`: an integer or pointer block as base + sum of stride * index + further blocks. Loads and stores with a stride
  of 1 become contiguous vectors.
* `Bounds`: a truth block as a conjunction of "index along an axis < limit", scalar conditions and further blocks. A
  loop over a masked block splits into full vectors and one masked tail.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ....ir import Operation, Type, Value
from .polynomial import ZERO, Polynomial


class Buffer(NamedTuple):
    """Elements of a block in memory: C++ name, element type, element strides along the block's axes."""

    name: str
    element: Type
    strides: tuple[int, ...]


class Root(NamedTuple):
    """Where the addresses of a pointer block start: a C++ pointer, and the kernel argument it comes from, if known."""

    text: str
    argument: Value | None


class Linear(NamedTuple):
    root: Root | None
    base: Polynomial
    strides: tuple[Polynomial, ...]
    terms: tuple[Node, ...] = ()

    def same_offsets(self, other: Linear) -> bool:
        return (self.base, self.strides, self.terms) == (other.base, other.strides, other.terms)


Fact = tuple[int, str]  # index along this axis < this limit


class Bounds(NamedTuple):
    limits: frozenset[Fact] = frozenset()
    conditions: frozenset[str] = frozenset()
    rest: tuple[Node, ...] = ()


class When(NamedTuple):
    """The linear form that a block has if a scalar condition holds: `x % n` while x does not pass a multiple of n."""

    condition: str
    linear: Linear


class Tail(NamedTuple):
    """A block in memory of which only a part was computed: elsewhere every element is one scalar."""

    computed: Node  # a truth block
    text: str


@dataclass(eq=False)
class Node:
    """One block.

    kind        operands and data
    uniform     data: C++ expression of the one value
    range       data: first value; one axis
    op          an elementwise operation over operands
    load        operands: pointer, mask or None, other or None
    view        data: ("expand", axis), ("squeeze", axis), ("broadcast",) or ("transpose", order)
    stored      only `buffer`
    """

    kind: str
    shape: tuple[int, ...]
    element: Type
    operands: tuple[Node | None, ...] = ()
    data: Any = None
    op: Operation | None = None
    value: Value | None = None
    linear: Linear | None = None
    when: When | None = None
    bounds: Bounds | None = None
    buffer: Buffer | None = None
    tail: Tail | None = None
    name: str = field(default="x")

    @property
    def size(self) -> int:
        size = 1
        for extent in self.shape:
            size *= extent
        return size


def uniform(text: str, shape: tuple[int, ...], element: Type) -> Node:
    return Node("uniform", shape, element, data=text)


def zero_strides(rank: int) -> tuple[Polynomial, ...]:
    return (ZERO,) * rank


# --------------------------------------------------------------------------------------------------- views
def expand(source: Node, axis: int) -> Node:
    """A new axis of size 1."""
    shape = (*source.shape[:axis], 1, *source.shape[axis:])
    if source.kind == "uniform" and source.buffer is None:
        node = uniform(source.data, shape, source.element)
    else:
        node = Node("view", shape, source.element, (source,), ("expand", axis), name=source.name)
    _carry(node, source, lambda a: a + (a >= axis), lambda term: expand(term, axis))
    return node


def squeeze(source: Node, axis: int) -> Node:
    """Drop an axis of size 1."""
    shape = (*source.shape[:axis], *source.shape[axis + 1 :])
    if source.kind == "uniform" and source.buffer is None:
        node = uniform(source.data, shape, source.element)
    else:
        node = Node("view", shape, source.element, (source,), ("squeeze", axis), name=source.name)
    _carry(node, source, lambda a: a - (a > axis), lambda term: squeeze(term, axis), {axis})
    return node


def broadcast(source: Node, shape: tuple[int, ...]) -> Node:
    """Axes of size 1 become larger."""
    if source.shape == shape:
        return source
    if source.kind == "uniform" and source.buffer is None:
        node = uniform(source.data, shape, source.element)
    else:
        node = Node("view", shape, source.element, (source,), ("broadcast",), name=source.name)
    # A limit along an axis of size 1 holds for its only index: it does not carry over to the larger axis.
    grown = {a for a, (old, new) in enumerate(zip(source.shape, shape, strict=True)) if old != new}
    _carry(node, source, lambda a: a, lambda term: broadcast(term, shape), grown)
    return node


def transpose(source: Node, order: Sequence[int]) -> Node:
    """Axis i of the result is axis order[i] of the source."""
    shape = tuple(source.shape[axis] for axis in order)
    if source.kind == "uniform" and source.buffer is None:
        node = uniform(source.data, shape, source.element)
        _carry(node, source, lambda a: a, lambda term: transpose(term, order))
        return node
    node = Node("view", shape, source.element, (source,), ("transpose", tuple(order)), name=source.name)
    place = {axis: i for i, axis in enumerate(order)}
    _carry(node, source, place.__getitem__, lambda term: transpose(term, order))
    return node


def _carry(node: Node, source: Node, move: Any, view: Any, grown: set[int] | None = None) -> None:
    """Bring the linear form and the bounds of a view's source over to the view's axes."""
    grown = grown or set()

    def moved(linear: Linear) -> Linear:
        strides = [ZERO] * len(node.shape)
        for axis, stride in enumerate(linear.strides):
            if axis not in grown and source.shape[axis] != 1:
                strides[move(axis)] = stride
        return Linear(linear.root, linear.base, tuple(strides), tuple(view(term) for term in linear.terms))

    if source.linear is not None:
        node.linear = moved(source.linear)
    if source.when is not None:
        node.when = When(source.when.condition, moved(source.when.linear))
    if source.bounds is not None and not any(axis in grown for axis, _ in source.bounds.limits):
        limits = frozenset((move(axis), limit) for axis, limit in source.bounds.limits)
        node.bounds = Bounds(limits, source.bounds.conditions, tuple(view(term) for term in source.bounds.rest))


def resolved(linear: Linear, assumed: Collection[str]) -> Linear:
    """The linear form with every term replaced that is linear itself under the conditions that hold."""
    for term in linear.terms:
        if term.when is not None and term.when.condition in assumed:
            others = tuple(other for other in linear.terms if other is not term)
            shift = term.when.linear
            strides = tuple(a + b for a, b in zip(linear.strides, shift.strides, strict=True))
            linear = Linear(linear.root, linear.base + shift.base, strides, others + shift.terms)
    return linear


def source_of(node: Node) -> Node:
    """The block under a chain of views."""
    while node.kind == "view" and node.buffer is None:
        assert node.operands[0] is not None
        node = node.operands[0]
    return node
