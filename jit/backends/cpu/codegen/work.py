"""A rough guess of how long one program runs, to decide how many threads a grid is worth."""

from __future__ import annotations

from ....ir import Operation, TensorType, Value
from .elementwise import cost

# Iterations assumed for a loop whose bounds are not constants.
_TRIPS = 16


def estimate(op: Operation, vector_bytes: int) -> float:
    """Nanoseconds for one run of an operation and all inside it."""
    total = 0.0
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                total += _own(inner, vector_bytes)
                if inner.name not in ("tt.reduce", "tt.scan"):
                    total += _trips(inner) * estimate(inner, vector_bytes)
    return total


def _trips(op: Operation) -> int:
    """How often the regions of an operation run, as far as that can be guessed."""
    if op.name == "scf.while":
        return _TRIPS
    if op.name != "scf.for":
        return 1
    known = trips(op)
    return _TRIPS if known is None else known


def trips(op: Operation) -> int | None:
    """How many iterations an scf.for makes; None when its bounds are not constants."""
    start, stop, step = map(_constant, op.operands[:3])
    if start is None or stop is None or not step:
        return None
    return max(0, -((start - stop) // step))


def _constant(value: Value) -> int | None:
    op = value.defining_op
    number = op.attributes["value"] if op is not None and op.name == "arith.constant" else None
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
