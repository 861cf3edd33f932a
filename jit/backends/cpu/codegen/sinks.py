"""Loops that consume lazy blocks, and what is decided before one is emitted.

Entry points: :func:`loop` for any consumer over a shape, :func:`materialize` to put a block into memory.

Before a loop stand three decisions: which blocks it computes on the way are kept in memory because they are costly and
used again (or would be read from memory that the loop writes), along which axis the lanes run, and which mask cuts the
innermost loop.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from ....ir import Operation, ScalarType, Type, Value
from . import cxx, elementwise
from .aliasing import Hazard, guard, hazard, put_back
from .function import FunctionGenerator, element_in_memory
from .nest import Coordinates, Nest, Split, Val
from .polynomial import ONE
from .values import Bounds, Buffer, Node, Tail, resolved

# Cost, in additions a vector, from which a value used again is kept in memory.
KEEP_COST = 6


@dataclass
class Plan:
    """What a loop does besides its own work."""

    keeps: list[Node] = field(default_factory=list)
    before: list[Node] = field(default_factory=list)
    asked: list[tuple[Node, Coordinates]] = field(default_factory=list)  # loads that the loop's store may disturb
    tree: list[tuple[Node, Coordinates]] = field(default_factory=list)


def loop(
    gen: FunctionGenerator,
    op: Operation,
    shape: Sequence[int],
    roots: Sequence[Node],
    body: Callable[[Nest], None],
    *,
    mask: Node | None = None,
    pointer: Node | None = None,
    writes: bool = False,
    covers_all: bool = True,
    order: Callable[[int], Sequence[int]] | None = None,
    copies: int = 1,
    prepare: Callable[[Nest], None] | None = None,
    scalar: bool = False,
    versions: bool = True,
    aside: bool = False,
) -> None:
    """Emit a loop over ``shape`` whose body consumes ``roots``.

    ``mask`` and ``pointer``: of a store, whose mask then cuts the loop. ``writes``: the loop changes memory that
    pending loads may read. ``covers_all``: the body runs for every element, also where the mask is false. ``order``:
    from the vector axis to the axes from outermost to innermost. ``scalar``: one element at a time. ``versions``: the
    loop may be written twice, for addresses that are contiguous under a condition. ``aside``: what the loop writes may
    go to other memory first, see `aliasing`.
    """
    gen.lines.source(op.location)
    shape = tuple(shape)
    everything = [*roots, *(node for node in (mask, pointer) if node is not None)]
    planned = plan(gen, op, shape, everything, pointer if writes else None, writes, aside)
    before = [*planned.before, *(_loaded_parts(mask) if planned.asked and mask is not None else ())]
    for node in before:
        if node.buffer is None:
            materialize(gen, op, node)
    if before:
        planned = plan(gen, op, shape, everything, pointer if writes else None, writes, aside)
    conditions = _conditions(planned.tree) if versions and not planned.keeps and not gen.assumed else frozenset()
    for head, assumed in ((f"if ({' && '.join(sorted(conditions))})", conditions), ("else", frozenset())):
        if not conditions:
            _emit(gen, op, shape, planned, body, mask, pointer, writes, covers_all, order, copies, prepare, scalar)
            return
        with gen.lines.block(head):
            gen.assumed = assumed
            again = plan(gen, op, shape, everything, pointer if writes else None, writes, aside)
            _emit(gen, op, shape, again, body, mask, pointer, writes, covers_all, order, copies, prepare, scalar)
            gen.assumed = frozenset()


def _conditions(tree: Iterable[tuple[Node, Coordinates]]) -> frozenset[str]:
    """Conditions under which an address of the loop becomes contiguous."""
    terms = [term for node, _ in tree if is_address(node) and node.linear is not None for term in node.linear.terms]
    return frozenset(term.when.condition for term in terms if term.when is not None)


def _emit(
    gen: FunctionGenerator,
    op: Operation,
    shape: tuple[int, ...],
    planned: Plan,
    body: Callable[[Nest], None],
    mask: Node | None,
    pointer: Node | None,
    writes: bool,
    covers_all: bool,
    order: Callable[[int], Sequence[int]] | None,
    copies: int,
    prepare: Callable[[Nest], None] | None,
    scalar: bool,
) -> None:
    axis, lanes = vector_axis(gen, shape, planned.tree, pointer)
    if scalar:
        axis, lanes = len(shape) - 1, 1
    axes = list(order(axis)) if order is not None else [a for a in range(len(shape)) if a != axis] + [axis]
    axes = [a for a in axes if a < len(shape) and shape[a] != 1]
    nest = Nest(gen, shape, axis if shape else None, lanes, axes)
    split = choose_split(nest, planned.tree, mask, axes[-1] if axes else None)
    buffers = {id(node): gen.buffer(node.name, shape, node.element, _fastest(shape, axis)) for node in planned.keeps}

    tails: dict[int, Tail] = {}

    def whole_body() -> None:
        if writes:
            # The body may have no use for a block in this section, and then changes what it is loaded from.
            for node in planned.keeps:
                nest.evaluate(node, nest.identity())
        body(nest)
        for node in planned.keeps:
            val = nest.evaluate(node, nest.identity())
            if nest.section.kind == "out" and not val.vector and split is not None:
                text = _tail_value(gen, nest, node, val)
                if text is not None:
                    tails[id(node)] = Tail(_computed_part(node, split), text)
                    continue
            # Every element must be written, whatever the body could leave out.
            nest.section.guard, nest.section.once = "", False
            nest.write(buffers[id(node)], nest.identity(), val)

    if prepare is not None:
        prepare(nest)
    if planned.asked and pointer is not None:
        _store_aside(gen, op, nest, pointer, mask, planned.asked)
    partial = mask is not None and mask.bounds is not None and not covers_all and not planned.keeps
    lines = nest.run(whole_body, split, not partial, copies)
    gen.lines.extend(lines)
    for node in planned.keeps:
        gen.keep(node, buffers[id(node)], tails.get(id(node)))


def _loaded_parts(mask: Node) -> list[Node]:
    """What a mask that holds the same before and after a store must not load again."""
    loads: dict[int, bool] = {}
    return [node for node in (mask.bounds.rest if mask.bounds is not None else (mask,)) if reads_memory(node, loads)]


def _store_aside(
    gen: FunctionGenerator,
    op: Operation,
    nest: Nest,
    pointer: Node,
    mask: Node | None,
    asked: Sequence[tuple[Node, Coordinates]],
) -> None:
    """Let a loop store into memory of its own while that could change what it reads, and put it in its place after."""
    name, places = guard(gen, nest, pointer, mask, asked)
    if put_back(gen, nest, name, places, mask):
        return

    def body(again: Nest) -> None:
        at = again.identity()
        inside = again.evaluate(mask, at) if mask is not None else Val("true", 0)
        place, _, _ = again.address(pointer, at)
        text = f"{name}.put_back({place.text});"
        if not inside.false:
            again.line(text if inside.true else f"if ({inside.text}) {text}")

    everything = [pointer, mask] if mask is not None else [pointer]
    tree = plan(gen, op, nest.shape, everything, None, False).tree
    lines, gen.lines = gen.lines, nest.end
    gen.lines.add(f"if ({name})")
    _emit(gen, op, nest.shape, Plan(tree=tree), body, mask, pointer, False, False, None, 1, None, True)
    gen.lines.add(f"if ({name}) {name}.release();")
    gen.lines = lines


def _tail_value(gen: FunctionGenerator, nest: Nest, node: Node, val: Val) -> str | None:
    """The one scalar that a block holds beyond the limit, as a name known after the loop; None when it may differ."""
    if _LITERAL.fullmatch(val.text) or (val.text in gen.scalars.values() and val.level == 0):
        return val.text
    if nest.depth != 1 or val.level >= nest.depth:
        return None
    name = gen.names.new(f"{node.name}_beyond")
    gen.lines.add(f"{cxx.register(node.element)} {name}{{}};")
    nest.section.head.add(f"{name} = {val.text};")
    return name


_LITERAL = re.compile(r"true|false|-?__builtin_(?:inf|nan)f?\((?:\"\")?\)|-?[\d.]+(?:e[+-]?\d+)?f?|i\d+\(-?\d+\)")


def _computed_part(node: Node, split: Split) -> Node:
    return Node("op", node.shape, ScalarType("i1"), bounds=Bounds(split.facts, split.conditions), name="computed")


def _fastest(shape: Sequence[int], axis: int) -> list[int]:
    return [a for a in range(len(shape)) if a != axis] + ([axis] if shape else [])


def materialize(gen: FunctionGenerator, op: Operation, node: Node, order: Sequence[int] | None = None) -> Buffer:
    """The block in memory; computed now if it is not there yet. ``order``: axes from slowest to fastest."""
    if node.buffer is not None and node.tail is None:
        return node.buffer
    buffer = gen.buffer(node.name, node.shape, node.element, order)
    fill(gen, op, node, buffer)
    gen.keep(node, buffer)
    return buffer


def settle_loads(gen: FunctionGenerator, op: Operation) -> None:
    """Read every block that is loaded before ``op`` and used after it: ``op`` may change the memory."""
    for node in list(gen.loads):
        if node.buffer is None and _pending(gen, op, node, set()):
            materialize(gen, op, node)


def fill(gen: FunctionGenerator, op: Operation, node: Node, buffer: Buffer) -> None:
    """Compute a block into a buffer."""

    def body(nest: Nest) -> None:
        nest.write(buffer, nest.identity(), nest.evaluate(node, nest.identity()))

    loop(gen, op, node.shape, [node], body)


# --------------------------------------------------------------------------------------------------- planning
def plan(
    gen: FunctionGenerator,
    op: Operation,
    shape: tuple[int, ...],
    roots: Sequence[Node],
    store: Node | None,
    writes: bool,
    aside: bool = False,
) -> Plan:
    """Which blocks the loop keeps, which must be in memory before it starts, and which its store may disturb."""
    result = Plan()
    kept: set[int] = set()
    identity: Coordinates = tuple(axis if extent != 1 else None for axis, extent in enumerate(shape))
    costs: dict[int, int] = {}
    loads: dict[int, bool] = {}
    seen: set[tuple[int, Coordinates]] = set()
    innermost = len(shape) - 1

    def visit(node: Node, at: Coordinates) -> None:
        at = tuple(None if extent == 1 else axis for axis, extent in zip(at, node.shape, strict=True))
        if (id(node), at) in seen:
            return
        seen.add((id(node), at))
        result.tree.append((node, at))
        if node.buffer is not None or node.kind in ("uniform", "range", "stored"):
            return
        if node.kind != "view" and not is_address(node):
            price = cost(node, costs)
            heavy = price >= KEEP_COST
            again = (heavy or (writes and reads_memory(node, loads))) and _pending(gen, op, node, kept)
            repeated = heavy and _recomputed(at, shape, innermost) and node.size > 1
            danger = Hazard.NEVER
            if store is not None and node.kind == "load":
                danger = hazard(gen, node, at, store, identity, shape)
            clash = danger is Hazard.BEFORE or (danger is Hazard.ASK and not aside)
            if again or repeated or clash:
                if at == identity and node.shape == shape and not clash:
                    kept.add(id(node))
                    result.keeps.append(node)
                elif node.shape:
                    result.before.append(node)
                    return
            if danger is Hazard.ASK:
                result.asked.append((node, at))
        for child, where in children(node, at, gen.assumed):
            visit(child, where)

    for root in roots:
        visit(root, identity if root.shape == shape else _align(root, identity))
    if writes:
        in_tree = {id(node): at for node, at in result.tree}
        for node in gen.loads:
            if node.buffer is None and id(node) not in kept and _pending(gen, op, node, kept):
                if in_tree.get(id(node)) == identity and node.shape == shape and node not in result.before:
                    kept.add(id(node))
                    result.keeps.append(node)
                elif node not in result.before:
                    result.before.append(node)
    return result


def _align(root: Node, identity: Coordinates) -> Coordinates:
    assert not root.shape, "a sink's operands have its shape or are scalars"
    return ()


def children(node: Node, at: Coordinates, assumed: Collection[str] = ()) -> list[tuple[Node, Coordinates]]:
    """The blocks that evaluating a node at coordinates evaluates, with theirs."""
    if node.bounds is not None:
        return [(term, at) for term in node.bounds.rest]
    if is_address(node):
        assert node.linear is not None
        return [(term, at) for term in resolved(node.linear, assumed).terms]
    if node.kind == "view":
        source = node.operands[0]
        assert source is not None
        return [(source, _through(node, at))]
    if node.kind == "load":
        pointer, mask, other = node.operands
        assert pointer is not None
        return [(block, at) for block in (pointer, mask, other) if block is not None]
    if node.linear is not None and not node.linear.terms:
        return []
    return [(operand, at if operand.shape else ()) for operand in node.operands if operand is not None]


def is_address(node: Node) -> bool:
    """Whether the block is a pointer plus offsets, which accesses use without computing the block."""
    return node.linear is not None and node.linear.root is not None and node.buffer is None


def _through(node: Node, at: Coordinates) -> Coordinates:
    return Nest.through(None, node, at)  # type: ignore[arg-type]


def _recomputed(at: Coordinates, shape: tuple[int, ...], innermost: int) -> bool:
    """Whether a block would be computed again in each iteration of an outer loop that it does not depend on."""
    used = {axis for axis in at if axis is not None}
    return innermost in used and any(shape[axis] > 1 for axis in range(len(shape)) if axis not in used)


def cost(node: Node, memo: dict[int, int]) -> int:
    """Rough cost of computing one vector of a block, in additions."""
    known = memo.get(id(node))
    if known is not None:
        return known
    memo[id(node)] = 0
    price = 0
    if node.buffer is not None:
        price = 1
    elif node.kind == "load":
        pointer, mask, _ = node.operands
        assert pointer is not None
        price = 1 if not cxx.is_small_float(node.element) else 2
        linear = pointer.linear
        if linear is None or linear.terms:
            price += 4 + sum(cost(term, memo) for term in (linear.terms if linear else (pointer,)))
        if mask is not None:
            price += cost(mask, memo)
    elif node.bounds is not None:
        price = sum(cost(term, memo) for term in node.bounds.rest)
    elif node.linear is not None and not node.linear.terms:
        price = 1 if any(node.linear.strides) else 0
    elif node.kind in ("op", "view"):
        price = elementwise.cost(node.op) if node.op is not None else 0
        price += sum(cost(operand, memo) for operand in node.operands if operand is not None)
    memo[id(node)] = price
    return price


def reads_memory(node: Node, memo: dict[int, bool]) -> bool:
    """Whether computing the block would load from memory that kernels can change."""
    known = memo.get(id(node))
    if known is not None:
        return known
    memo[id(node)] = False
    found = False
    if node.buffer is None:
        found = node.kind == "load" or any(reads_memory(o, memo) for o in node.operands if o is not None)
        if not found and node.linear is not None:
            found = any(reads_memory(term, memo) for term in node.linear.terms)
    memo[id(node)] = found
    return found


def _pending(gen: FunctionGenerator, current: Operation, node: Node, kept: set[int]) -> bool:
    """Whether a later sink will compute this block again, other than through kept blocks."""
    return node.value is not None and _used_later(gen, current, node.value, kept, {})


def _used_later(
    gen: FunctionGenerator, current: Operation, value: Value, kept: set[int], memo: dict[Value, bool]
) -> bool:
    known = memo.get(value)
    if known is not None:
        return known
    memo[value] = False
    found = False
    for user, _ in value.uses:
        if user is current:
            continue
        if user in gen.emitted:
            # What it made is still computed from this value unless it is in memory.
            for result in user.results:
                node = gen.nodes.get(result)
                if node is not None and node.buffer is None and node.kind != "uniform" and id(node) not in kept:
                    found = found or _used_later(gen, current, result, kept, memo)
        elif is_lazy(gen, user):
            found = any(_used_later(gen, current, result, kept, memo) for result in user.results)
        else:
            found = True
        if found:
            break
    memo[value] = found
    return found


def is_lazy(gen: FunctionGenerator, op: Operation) -> bool:
    """Whether the operation only makes a node."""
    return op.name in gen.module.lazy or elementwise.is_elementwise(op.name)


# --------------------------------------------------------------------------------------------------- choices
def vector_axis(
    gen: FunctionGenerator, shape: tuple[int, ...], tree: Iterable[tuple[Node, Coordinates]], pointer: Node | None
) -> tuple[int, int]:
    """The axis along which lanes run, and how many."""
    if not shape:
        return 0, 1
    widest = 4
    scores: Counter[int] = Counter()
    for node, at in tree:
        if node.kind == "load" and node.buffer is None:
            _score(scores, node.operands[0], at, 2, gen.assumed)
        elif node.buffer is not None:
            for axis, stride in zip(at, node.buffer.strides, strict=True):
                if axis is not None and stride == 1:
                    scores[axis] += 1
        varies = any(axis is not None for axis in at)
        if varies and node.kind != "view" and node.bounds is None and not is_address(node):
            widest = max(widest, cxx.lane_bytes(_element(node)))
    if pointer is not None:
        _score(scores, pointer, tuple(range(len(shape))), 3, gen.assumed)
    limit = gen.vector_bytes // widest

    def rank(axis: int) -> tuple[int, int, int]:
        lanes = min(shape[axis], limit)
        return (lanes * (1 + 2 * scores[axis]), lanes, axis)

    best = max(range(len(shape)), key=rank)
    return best, min(shape[best], limit)


def _element(node: Node) -> Type:
    return element_in_memory(node.element)


def _score(scores: Counter[int], pointer: Node | None, at: Coordinates, weight: int, assumed: Collection[str]) -> None:
    if pointer is None or pointer.linear is None:
        return
    for axis, stride in zip(at, resolved(pointer.linear, assumed).strides, strict=True):
        if axis is not None and stride == ONE:
            scores[axis] += weight


def choose_split(
    nest: Nest, tree: Iterable[tuple[Node, Coordinates]], mask: Node | None, innermost: int | None
) -> Split | None:
    """The mask that cuts the innermost loop: the store's, else the one met most often."""
    if innermost is None:
        return None
    if mask is not None and mask.bounds is not None:
        facts, conditions = nest.facts_of(mask, nest.identity())
        if facts or conditions:
            return Split(facts, conditions)
    counts: Counter[Split] = Counter()
    for node, at in tree:
        mask_like = node.tail.computed if node.tail is not None else node
        if mask_like.bounds is not None and (node.buffer is None or node.tail is not None):
            facts, conditions = nest.facts_of(mask_like, at)
            if any(axis == innermost for axis, _ in facts):
                counts[Split(facts, conditions)] += 1
    return (
        max(counts, key=lambda split: (counts[split], -len(split.facts), str(sorted(split.facts)))) if counts else None
    )
