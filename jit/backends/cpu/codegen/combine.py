"""The combine region of a reduction or scan, written out over scalars or vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....ir import Operation, Type, Value
from . import cxx, elementwise
from .elementwise import Operand
from .errors import unsupported
from .function import FunctionGenerator
from .writer import Lines

# Identity elements of the operations that make a whole region, for floats and integers.
_IDENTITY: dict[str, Callable[[Type], str]] = {
    "arith.addf": lambda t: cxx.literal(-0.0, t),
    "arith.mulf": lambda t: cxx.literal(1.0, t),
    # Not an infinity: the maximum of nothing but NaN is NaN.
    "arith.maxnumf": lambda t: cxx.literal(float("nan"), t),
    "arith.minnumf": lambda t: cxx.literal(float("nan"), t),
    "arith.maximumf": lambda t: cxx.literal(float("-inf"), t),
    "arith.minimumf": lambda t: cxx.literal(float("inf"), t),
    "arith.addi": lambda t: cxx.literal(0, t),
    "arith.muli": lambda t: cxx.literal(1, t),
    "arith.ori": lambda t: cxx.literal(0, t),
    "arith.xori": lambda t: cxx.literal(0, t),
    "arith.andi": lambda t: cxx.literal(-1, t),
    "arith.maxsi": lambda t: cxx.literal(_smallest(t), t),
    "arith.minsi": lambda t: cxx.literal(-_smallest(t) - 1, t),
    "arith.maxui": lambda t: cxx.literal(0, t),
    "arith.minui": lambda t: cxx.literal(-1, t),
}
# Adding one of these values changes nothing.
_NEUTRAL = {"arith.addf": ("-0.0f", "0.0f", "0.0", "-0.0")}


def _smallest(type: Type) -> int:
    return -(2 ** (getattr(type, "width", 32) - 1)) if not cxx.is_bool(type) else 0


class Combiner:
    """``op``: a tt.reduce or tt.scan. Its region takes two values for each operand and gives one."""

    def __init__(self, gen: FunctionGenerator, op: Operation) -> None:
        self.gen = gen
        self.op = op
        blocks = op.regions[0].blocks
        if len(blocks) != 1:
            raise unsupported(op, "with branches in its combine function is not supported")
        self.block = blocks[0]
        self.count = len(self.block.arguments) // 2
        self.elements: list[Type] = [argument.type for argument in self.block.arguments[: self.count]]
        self.single = self._single()
        for inner in self.block.operations[:-1]:
            if inner.name != "arith.constant" and not elementwise.is_elementwise(inner.name):
                raise unsupported(inner, f"in the combine function of a {op.name} is not supported")

    def _single(self) -> str | None:
        """The one operation that is the whole region, when it is commutative with a known identity."""
        operations = self.block.operations
        if self.count != 1 or len(operations) != 2:
            return None
        inner = operations[0]
        whole = set(inner.operands) == set(self.block.arguments) and list(operations[1].operands) == inner.results
        return inner.name if whole and inner.name in _IDENTITY else None

    @property
    def identity(self) -> str | None:
        """The literal that changes nothing when combined, if one is known."""
        if self.single is None or (cxx.is_bool(self.elements[0]) and self.single not in _BOOL_KINDS):
            return None
        return _IDENTITY[self.single](self.elements[0])

    @property
    def idempotent(self) -> bool:
        """Whether combining with a value once is as good as many times."""
        return self.single in _IDEMPOTENT

    def is_neutral(self, text: str) -> bool:
        """Whether combining with this literal changes nothing."""
        if self.single is None:
            return False
        return text == self.identity or text in _NEUTRAL.get(self.single, ())

    def combine(self, left: Sequence[Operand], right: Sequence[Operand], lanes: int | None, out: Lines) -> list[str]:
        """Emit the region's operations; returns the texts of its results (the last ones not named)."""
        known = dict(zip(self.block.arguments, (*left, *right), strict=True))
        returned = self.block.operations[-1]
        for inner in self.block.operations[:-1]:
            result = inner.results[0]
            if inner.name == "arith.constant":
                known[result] = Operand(cxx.literal(inner.attributes["value"], result.type), result.type)
                continue
            operands = [self._operand(value, known) for value in inner.operands]
            vector = any(operand.vector for operand in operands)
            text = elementwise.expression(inner, operands, lanes)
            if self.single is None and text not in [operand.text for operand in operands]:
                name = self.gen.names.new(result.name or "c")
                out.add(f"const auto {name} = {text};")
                text = name
            known[result] = Operand(text, result.type, vector)
        return [self._operand(value, known).text for value in returned.operands]

    def _operand(self, value: Value, known: dict[Value, Operand]) -> Operand:
        """A value of the region; scalars from outside it (hoisted constants) are the same for every element."""
        return known[value] if value in known else self.gen.operand(value)


_IDEMPOTENT = {
    "arith.maxnumf", "arith.minnumf", "arith.maximumf", "arith.minimumf", "arith.maxsi", "arith.minsi", "arith.maxui",
    "arith.minui", "arith.andi", "arith.ori",
}  # fmt: skip
_BOOL_KINDS = {"arith.ori", "arith.andi", "arith.xori"}
