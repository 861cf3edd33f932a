"""In which order the programs of a grid run: neighbours in time had better be neighbours in memory.

Triton promises no order, and the natural one lets axis 0 run first. So a kernel over (rows, blocks of columns) would
walk down a matrix, a block of one row after that of another, where processors fetch ahead along rows: on matrices
larger than the caches GELU took more than twice as long as in the other order.

Entry point: :func:`axes`.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from ....ir import Block, Operation, Value
from .work import constant

# How far an address or an index moves, in elements, when a program's number on each axis grows by one. Infinity: by an
# argument of the kernel, such as the length of a row; it counts as larger than any constant.
_Steps: TypeAlias = "tuple[float, float, float]"

_NOWHERE: _Steps = (0.0, 0.0, 0.0)
# Operations whose result moves as their operand does.
_SAME = frozenset([
    "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans",
    "arith.extsi", "arith.trunci", "arith.index_cast",
])  # fmt: skip
# Operations, one after the other, through which a value is followed.
_DEEPEST = 100
# Programs that wait for each other, or whose sums depend on the order, run in the natural one.
_ORDERED = frozenset(("tt.atomic_rmw", "tt.atomic_cas", "scf.while", "tt.call", "tt.descriptor_store"))


def axes(function: Operation) -> tuple[int, int, int]:
    """The axes of the grid, the one that runs first first: (0, 1, 2) but where stores show that another is better."""
    stored: list[_Steps] = []
    finder = _Finder()
    for op in function.walk():
        if op.name in _ORDERED:
            return 0, 1, 2
        if op.name == "tt.store":
            steps = finder.steps(op.operands[0])
            if steps is None or not steps[0]:
                return 0, 1, 2
            stored.append(steps)
    if not stored:
        return 0, 1, 2
    first, second, third = (max(abs(steps[axis]) for steps in stored) for axis in range(3))
    if 0 < second < first and not 0 < third < second:
        return 1, 0, 2
    return (2, 0, 1) if 0 < third < first else (0, 1, 2)


class _Finder:
    """Finds how values move, each once."""

    def __init__(self) -> None:
        self._found: dict[Value, _Steps | None] = {}
        self._depth = 0

    def steps(self, value: Value) -> _Steps | None:
        """How a value moves with the program; None where that cannot be told."""
        if value not in self._found:
            if self._depth == _DEEPEST:
                return None
            self._found[value] = None  # for a value that depends on itself
            self._depth += 1
            self._found[value] = self._find(value)
            self._depth -= 1
        return self._found[value]

    def _find(self, value: Value) -> _Steps | None:
        if isinstance(value.owner, Block):
            return self._argument(value.owner, value.index)
        op = value.owner
        if op.name == "tt.get_program_id":
            first, second, third = (float(axis == int(op.attributes["axis"])) for axis in range(3))
            return first, second, third
        if op.name == "scf.for":
            return self.steps(op.operands[3 + value.index])
        if op.regions:
            return None
        operands = [self.steps(operand) for operand in op.operands]
        if all(steps == _NOWHERE for steps in operands):
            return _NOWHERE
        known = [steps for steps in operands if steps is not None]
        if len(known) < len(operands):
            return None
        if op.name in _SAME:
            return known[0]
        if op.name in ("arith.addi", "tt.addptr"):
            return _combined(known[0], known[1], 1)
        if op.name == "arith.subi":
            return _combined(known[0], known[1], -1)
        if op.name == "arith.muli":
            left, right = op.operands
            if known[0] == _NOWHERE:
                return _scaled(known[1], constant(left))
            if known[1] == _NOWHERE:
                return _scaled(known[0], constant(right))
        return None

    def _argument(self, block: Block, index: int) -> _Steps | None:
        """Of a value that a block starts with: an argument of the kernel, or what a loop carries, where it starts."""
        region = block.parent
        op = region.parent if region is not None else None
        if op is None or block is not op.regions[0].blocks[0]:
            return None
        if op.name == "tt.func":
            return _NOWHERE
        if op.name == "scf.for":
            return self.steps(op.operands[0 if index == 0 else 2 + index])
        return None


def _combined(left: _Steps, right: _Steps, sign: int) -> _Steps:
    def total(a: float, b: float) -> float:
        return math.inf if math.isinf(a) or math.isinf(b) else a + sign * b

    return total(left[0], right[0]), total(left[1], right[1]), total(left[2], right[2])


def _scaled(steps: _Steps, factor: int | None) -> _Steps:
    def product(step: float) -> float:
        return 0.0 if step == 0 else math.inf if factor is None else abs(step) * abs(factor)

    return product(steps[0]), product(steps[1]), product(steps[2])
