"""A rough guess of how long one program runs, to decide how many threads a grid is worth.

Where a loop's bounds come from the kernel's arguments, the guess is made at each launch. Entry point: :func:`grain`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TypeAlias

from ....ir import Operation, TensorType, Value
from .elementwise import cost

# Nanoseconds of work that are worth a thread, as in launch.h, which guesses where this cannot.
_WORTH = 4000

# Operations, one after the other, that a bound may be made of.
_DEEPEST = 6

# Iterations assumed for a loop whose bounds are not known before the launch.
_TRIPS = 16

# Nanoseconds for each product of numbers of iterations, which are C++ expressions.
_Estimate: TypeAlias = "dict[tuple[str, ...], float]"


def grain(function: Operation, vector_bytes: int, arguments: Mapping[Value, str]) -> str:
    """How many programs are worth a thread, in C++. ``arguments``: the names of a kernel's arguments there."""
    nanoseconds = _estimate(function, vector_bytes, arguments)
    fixed = nanoseconds.pop((), 0.0)
    if not nanoseconds:
        return str(max(1, round(_WORTH / max(fixed, 1.0))))
    terms = [f"{max(1, round(time))} * {' * '.join(trips)}" for trips, time in nanoseconds.items()]
    return f"programs_worth_a_thread({' + '.join([str(round(fixed)), *terms])})"


def _estimate(op: Operation, vector_bytes: int, arguments: Mapping[Value, str]) -> _Estimate:
    """The time for one run of an operation and all inside it."""
    total: _Estimate = defaultdict(float)
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                total[()] += _own(inner, vector_bytes)
                if inner.name in ("tt.reduce", "tt.scan"):
                    continue
                number, text = _trips(inner, arguments)
                for trips, time in _estimate(inner, vector_bytes, arguments).items():
                    total[text + trips] += number * time
    return total


def _trips(op: Operation, arguments: Mapping[Value, str]) -> tuple[int, tuple[str, ...]]:
    """How often the regions of an operation run, as far as that can be guessed: a number, or a C++ expression."""
    if op.name == "scf.while":
        return _TRIPS, ()
    if op.name != "scf.for":
        return 1, ()
    known = trips(op)
    if known is not None:
        return known, ()
    bounds = [_bound(value, arguments) for value in op.operands[:3]]
    if None in bounds:
        return _TRIPS, ()
    return 1, (f"trips({', '.join(map(str, bounds))})",)


def trips(op: Operation) -> int | None:
    """How many iterations an scf.for makes; None when its bounds are not constants."""
    start, stop, step = map(constant, op.operands[:3])
    if start is None or stop is None or not step:
        return None
    return max(0, -((start - stop) // step))


def _bound(value: Value, arguments: Mapping[Value, str], depth: int = 0) -> str | None:
    """A bound of a loop as C++ that is computed at the launch, for the first program; None if it is not known then.

    Nor is one of many operations, whose text could grow without end.
    """
    if depth > _DEEPEST:
        return None
    number = constant(value)
    if number is not None:
        return str(number)
    op = value.defining_op
    if op is None:
        return arguments.get(value)
    if op.name == "tt.get_program_id":
        return "0"
    if op.name == "tt.get_num_programs":
        return f"grid{int(op.attributes['axis'])}"
    if op.name in ("arith.extsi", "arith.index_cast"):
        return _bound(op.operands[0], arguments, depth + 1)
    if op.name not in _OPERATORS or (op.name == "arith.divsi" and (constant(op.operands[1]) or 0) <= 0):
        return None
    left, right = (_bound(operand, arguments, depth + 1) for operand in op.operands)
    return None if left is None or right is None else f"({left} {_OPERATORS[op.name]} {right})"


_OPERATORS = {"arith.addi": "+", "arith.subi": "-", "arith.muli": "*", "arith.divsi": "/"}


def constant(value: Value) -> int | None:
    """The number that an integer is, or all elements of a block are; None when that is not written in the kernel."""
    op = value.defining_op
    if op is not None and op.name == "tt.splat":
        return constant(op.operands[0])
    number = op.attributes["value"] if op is not None and op.name == "arith.constant" else None
    number = getattr(number, "splat", number)
    return number if isinstance(number, int) else None


def _own(op: Operation, vector_bytes: int) -> float:
    sizes = [v.type.size for v in (*op.operands, *op.results) if isinstance(v.type, TensorType)]
    if not sizes:
        return 0.5
    vectors = max(sizes) * 4 / vector_bytes
    if op.name == "tt.dot":
        left = op.operands[0].type
        assert isinstance(left, TensorType)
        result = op.results[0].type
        assert isinstance(result, TensorType)
        return result.size * left.shape[-1] * 4 / vector_bytes / 4
    if op.name in ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.make_range", "tt.addptr", "arith.constant"):
        return 0.0
    return 0.3 * vectors * (8 if op.name in ("tt.scan", "tt.atomic_rmw") else cost(op))
