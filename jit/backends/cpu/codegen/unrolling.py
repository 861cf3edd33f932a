"""Loops that only gather something up in blocks, such as a sum of rows: several of their iterations at once.

A block that a loop carries lies in memory, and an iteration that adds a row to it spends most of its time reading and
writing it. Since blocks are lazy, the blocks that one iteration makes can be those that the next one starts from: then
a single loop over the elements does several iterations, and each element stays in a register meanwhile. Every element
still sees the same operations in the same order.

Entry point: :func:`iterations_at_once`, which says for which loops this can be done and is worth it.
"""

from __future__ import annotations

from collections.abc import Collection

from ....ir import Operation, ScalarType, TensorType, Value, element_type
from . import cxx, elementwise
from .function import FunctionGenerator
from .sinks import is_lazy
from .work import trips

AT_ONCE = 4

# Cost of an iteration, in additions a vector, beyond which reading and writing the carried blocks does not matter.
_MOST_WORK = 12


def iterations_at_once(gen: FunctionGenerator, op: Operation, blocks: Collection[Value]) -> int:
    """How many iterations of an scf.for to do in one: AT_ONCE or 1. ``blocks``: what it carries in memory."""
    block = op.regions[0].blocks[0]
    *body, _ = block.operations
    counter = block.arguments[0].type
    # A counter's next values are compared in 64 bits, where they cannot overflow.
    if not blocks or counter != ScalarType("i32") or op.attributes.get("unsignedCmp"):
        return 1
    # Anything else than scalars and lazy blocks happens in each iteration, after what the one before it did.
    if not all(is_lazy(gen, inner) for inner in body):
        return 1
    known = trips(op)
    if known is not None and known < AT_ONCE:
        return 1
    if not _stay_aligned(body, blocks) or _limits_change(body, block.arguments):
        return 1
    return AT_ONCE if sum(map(_work, body)) <= _MOST_WORK else 1


def _stay_aligned(body: Collection[Operation], blocks: Collection[Value]) -> bool:
    """Whether each element of the carried blocks depends on no other element of theirs."""
    made = set(blocks)
    for op in body:
        if any(value in made for value in op.operands):
            if not elementwise.is_elementwise(op.name):
                return False
            made.update(op.results)
    return True


def _limits_change(body: Collection[Operation], arguments: Collection[Value]) -> bool:
    """Whether masks differ from iteration to iteration: only one of them could cut the loop into full vectors."""
    changing = set(arguments)
    for op in body:
        if any(value in changing for value in op.operands):
            if op.name == "arith.cmpi" and isinstance(op.results[0].type, TensorType):
                return True
            changing.update(op.results)
    return False


def _work(op: Operation) -> int:
    """As `sinks.cost`, of an operation by itself."""
    if not isinstance(op.results[0].type, TensorType):
        return 0
    if op.name == "tt.load":
        return 2 if cxx.is_small_float(element_type(op.results[0].type)) else 1
    return elementwise.cost(op) if elementwise.is_elementwise(op.name) else 0
