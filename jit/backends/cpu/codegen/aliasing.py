"""Whether storing a block may change what the loop that stores it still reads.

A Triton program loads a block whole before it stores a later one. A loop that loads and stores element by element does
the same only if no element is loaded from where an earlier one was stored. :func:`hazard` says, of one load in the loop
of a store, whether that is so:

* never: both are the same addresses at the same index, no two of which coincide;
* ask: nothing is known, but both sets of addresses can be bounded when the loop starts. :func:`guard` then emits the
  question, and the loop stores into memory of its own while the answer is yes (``aside.h``);
* before: neither, and the block must be loaded before the loop: addresses that come from memory, or one kernel argument
  at two offsets, which mostly does overlap.

So each program of a grid is right however its arguments overlap. What programs do to each other is up to the kernel.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ....ir import PointerType, Type
from . import cxx
from .function import FunctionGenerator
from .nest import Coordinates, Nest
from .polynomial import ONE, ZERO, Polynomial
from .values import Linear, Node, Root, resolved, source_of


class Hazard(enum.Enum):
    NEVER = enum.auto()
    ASK = enum.auto()
    BEFORE = enum.auto()


def hazard(
    gen: FunctionGenerator, load: Node, at: Coordinates, store: Node, identity: Coordinates, shape: Sequence[int]
) -> Hazard:
    """Whether a store at ``identity`` in a loop over ``shape`` could change what ``load`` reads at another index."""
    pointer = load.operands[0]
    assert pointer is not None
    if not any(axis is not None for axis in identity):
        return Hazard.NEVER  # a single element
    if pointer.linear is None or pointer.linear.root is None or store.linear is None or store.linear.root is None:
        return Hazard.BEFORE
    read, written = resolved(pointer.linear, gen.assumed), resolved(store.linear, gen.assumed)
    assert read.root is not None and written.root is not None
    same_text = read.root.text == written.root.text
    in_step = same_text and at == identity and read.same_offsets(written) and not written.terms
    if in_step and _distinct(written.strides, shape):
        return Hazard.NEVER
    if not in_step and (same_text or (read.root.argument and read.root.argument is written.root.argument)):
        return Hazard.BEFORE
    known = all(_interval(gen, term) is not None for term in (*read.terms, *written.terms))
    return Hazard.ASK if known else Hazard.BEFORE


def _distinct(strides: Sequence[Polynomial], extents: Sequence[int]) -> bool:
    """Whether no two indices have the same offset; False where strides are not known or do not nest."""
    axes = [(abs(stride.constant or 0), n) for stride, n in zip(strides, extents, strict=True) if n > 1]
    # A stride must exceed all that the smaller ones reach together.
    return all(
        size > sum(other * (n - 1) for b, (other, n) in enumerate(axes) if b != a and other <= size)
        for a, (size, _) in enumerate(axes)
    )


def _interval(gen: FunctionGenerator, node: Node) -> str | None:
    """Between which numbers the elements of an integer block lie, as C++; None when that is not known."""
    node = source_of(node)
    if node.linear is not None:
        base = gen.poly(node.linear.base)
        parts: list[str | None] = [f"between({base}, {base})"]
        parts += [_along(gen, str(n), s) for s, n in zip(node.linear.strides, node.shape, strict=True) if s]
        parts += [_interval(gen, term) for term in node.linear.terms]
        known = [part for part in parts if part is not None]
        return " + ".join(known) if len(known) == len(parts) else None
    if node.op is None or node.kind != "op" or node.op.name not in _BOUNDED:
        return None
    first, *others = [operand for operand in node.operands if operand is not None]
    if node.op.name == "arith.extsi":
        return _interval(gen, first)
    factor, other = (first, others[0]) if _one_value(first) else (others[0], first)
    if not _one_value(factor) or (factor is first and node.op.name != "arith.muli"):
        return None
    assert factor.linear is not None
    if node.op.name == "arith.remsi":
        return f"below({gen.poly(factor.linear.base)})"
    inner = _interval(gen, other)
    return inner and f"({inner}) {'*' if node.op.name == 'arith.muli' else '/'} i64({gen.poly(factor.linear.base)})"


def _along(gen: FunctionGenerator, extent: str, stride: Polynomial) -> str:
    return f"along({extent}, {gen.poly(stride)})"


_BOUNDED = ("arith.muli", "arith.divsi", "arith.remsi", "arith.extsi")


def _one_value(node: Node) -> bool:
    return node.linear is not None and not node.linear.terms and not any(node.linear.strides)


# --------------------------------------------------------------------------------------------- the question
class Places(NamedTuple):
    """The addresses that a loop accesses through a pointer block, as C++: where they start, and axes of the loop."""

    base: str
    linear: Linear
    element: Type
    strides: dict[int, Polynomial]
    extents: dict[int, str]
    offsets: str


def guard(
    gen: FunctionGenerator, nest: Nest, store: Node, mask: Node | None, loads: Iterable[tuple[Node, Coordinates]]
) -> tuple[str, Places]:
    """Ask, before the loops of ``nest``, whether ``store`` clashes with one of ``loads``, and store aside if so.

    Returns the name of the ``Aside``, from which what was stored is to be put back after the loops, and where to.
    """
    places = _places(gen, nest, store, nest.identity(), mask)
    name, written = gen.names.new("aside"), gen.names.new("written")
    questions: dict[str, None] = {}
    for node, at in loads:
        pointer, load_mask, _ = node.operands
        assert pointer is not None
        questions[_question(gen, nest, written, places, _places(gen, nest, pointer, at, load_mask))] = None
    head = nest.heads[0]
    head.add("// If this overlaps what is yet to be loaded, the block is stored aside until all is loaded.")
    head.add(f"const auto {written} = span({places.base}, {places.offsets});")
    clash = gen.names.new("clash")
    for number, question in enumerate(questions):
        start = "    || " if number else f"const bool {clash} = "
        head.add(f"{start}{question}{';' if number + 1 == len(questions) else ''}")
    head.add(f"const Aside {name}({clash}, {written});")
    target = gen.names.new(f"{store.name}_to")
    head.add(f"auto* const {target} = {name}.of({places.base});")
    nest.instead[id(store)] = Linear(Root(target, None), ZERO, places.linear.strides, places.linear.terms)
    gen.module.headers.add("aside.h")
    return name, places


def _question(gen: FunctionGenerator, nest: Nest, span: str, written: Places, read: Places) -> str:
    """The C++ that is true unless storing an element certainly changes nothing that another one reads."""
    in_step = _in_step(gen, nest, written, read)
    if in_step == [_same_base(written, read)] and written.extents == read.extents:
        ((axis, stride),) = written.strides.items() if len(written.strides) == 1 else ((0, ZERO),)
        if stride == ONE:
            return f"ahead({written.base}, {read.base}, {written.extents[axis]})"
    text = f"overlap({span}, span({read.base}, {read.offsets}))"
    if in_step is None:
        return text
    return f"{text} && !({' && '.join(in_step)})"


def _places(gen: FunctionGenerator, nest: Nest, pointer: Node, at: Coordinates, mask: Node | None) -> Places:
    assert pointer.linear is not None and pointer.linear.root is not None
    linear = resolved(pointer.linear, gen.assumed)
    strides = dict.fromkeys(sorted(nest.order), ZERO)
    for axis, stride in zip(at, linear.strides, strict=True):
        if axis is not None:
            strides[axis] = strides[axis] + stride
    facts = nest.facts_of(mask, at)[0] if mask is not None and mask.bounds is not None else ()
    extents = {axis: nest.extent_before(axis, [limit for a, limit in facts if a == axis]) for axis in strides}
    offsets = [_along(gen, extents[axis], stride) for axis, stride in strides.items() if stride]
    offsets += [_interval(gen, term) or "" for term in linear.terms]  # known, or nobody would ask
    base = nest.base_before(linear, pointer.name)
    return Places(base, linear, pointer.element, strides, extents, " + ".join(offsets) or "along(1, 0)")


def _in_step(gen: FunctionGenerator, nest: Nest, written: Places, read: Places) -> list[str] | None:
    """When every element is read from where it is written itself, and no other is written there; None for never."""
    if written.linear.terms or read.linear.terms or _pointee_bytes(written) != _pointee_bytes(read):
        return None
    conditions = [_same_base(written, read)]
    for axis, stride in written.strides.items():
        if stride == read.strides[axis]:
            continue
        if stride.constant is not None and read.strides[axis].constant is not None:
            return None
        conditions.append(f"{gen.poly(stride)} == {gen.poly(read.strides[axis])}")
    strides, shape = list(written.strides.values()), [nest.shape[axis] for axis in written.strides]
    if not _distinct(strides, shape):
        if all(stride.constant is not None for stride in strides):
            return None
        extents = list(written.extents.values()) if written.extents == read.extents else [str(n) for n in shape]
        axes = [f"{extent}, {gen.poly(stride)}" for extent, stride in zip(extents, strides, strict=True)]
        conditions.append(f"strides_nest({', '.join(axes)})")
    return conditions


def _same_base(written: Places, read: Places) -> str:
    return f"i64({written.base}) == i64({read.base})"


def _pointee_bytes(places: Places) -> int:
    assert isinstance(places.element, PointerType)
    return cxx.bytes_of(places.element.pointee)


def put_back(gen: FunctionGenerator, nest: Nest, name: str, places: Places, mask: Node | None) -> bool:
    """Emit what brings a block back from aside, row by row; False if the mask or the addresses are not that plain."""
    if places.linear.terms or (mask is not None and (mask.bounds is None or mask.bounds.rest)):
        return False
    conditions = sorted(nest.facts_of(mask, nest.identity())[1]) if mask is not None else []
    rows = list(places.strides)
    inner = next((axis for axis in rows if places.strides[axis] == ONE), None)
    end = nest.end
    end.add(f"if ({name}) {{")
    end.depth += 1
    depth = end.depth
    place = places.base
    if conditions:
        end.add(f"if ({' && '.join(conditions)})")
        end.depth += 1
    for axis in rows:
        if axis != inner:
            index = nest.index[axis]
            end.add(f"for (i64 {index} = 0; {index} < {places.extents[axis]}; {index}++)")
            end.depth += 1
            place += f" + {gen.poly(places.strides[axis] * Polynomial.of(index))}" if places.strides[axis] else ""
    end.add(f"{name}.put_back({place}{', ' + places.extents[inner] if inner is not None else ''});")
    end.depth = depth
    end.add(f"{name}.release();")
    end.depth -= 1
    end.add("}")
    return True
