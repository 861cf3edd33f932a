"""What must hold of an operation for its structure to mean something: `broken(op) -> str | None`.

The reader asks for each operation with regions, successors or operand segments. Triton's verifier checks far more; this
is what the analyses and code generators rely on when they index operands, regions and block arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from .structure import Block, Operation, Region, Value
from .types import FunctionType, Type

# Operations with this many regions, each of one block (or empty, where an `scf.if` has no else)
REGIONS = {
    "scf.for": 1,
    "scf.if": 2,
    "scf.while": 2,
    "tt.map_elementwise": 1,
    "tt.reduce": 1,
    "tt.scan": 1,
}
# How the names of operations that end a block end
_TERMINATORS = (
    "return",
    "yield",
    ".br",
    ".cond_br",
    ".condition",
    ".partitions",
    ".switch",
    "terminator",
    "unreachable",
)


def broken(op: Operation) -> str | None:
    """What is expected of `op`, where it does not hold."""
    count = REGIONS.get(op.name)
    if count is not None:
        if len(op.regions) != count:
            return f"{count} region(s) of {op.name}, not {len(op.regions)}"
        for index, region in enumerate(op.regions):
            if len(region.blocks) != 1 and not (op.name == "scf.if" and index == 1 and not region.blocks):
                return f"one block in region {index} of {op.name}, not {len(region.blocks)}"
    if op.name == "tt.func":
        return _broken_function(op)
    if op.name in ("scf.for", "scf.while", "scf.if"):
        return _broken_control_flow(op)
    sizes = op.attributes.get("operandSegmentSizes")
    if isinstance(sizes, list) and (sum(sizes) != len(op.operands) or min(sizes, default=0) < 0):
        return f"operandSegmentSizes of {op.name} for {len(op.operands)} operands, not {list(sizes)}"
    return None


def _broken_control_flow(op: Operation) -> str | None:
    """The values that enter and leave the regions must match in number and type."""
    blocks = [region.blocks[0] for region in op.regions if region.blocks]
    ends = [block.operations[-1].operands for block in blocks]
    matches: list[tuple[str, Sequence[Value], Sequence[Value]]]
    if op.name == "scf.if":
        matches = [("yielded values", end, op.results) for end in ends]
        if len(blocks) == 1 and op.results:
            return "an else region of scf.if, which has results"
    elif op.name == "scf.for":
        carried = op.operands[3:]
        matches = [
            ("results", op.results, carried),
            ("carried arguments", blocks[0].arguments[1:], carried),
            ("yielded values", ends[0], carried),
        ]
    else:
        matches = [
            ("arguments", blocks[0].arguments, op.operands),
            ("arguments of the body", blocks[1].arguments, op.results),
            ("values of scf.condition", ends[0][1:], op.results),
            ("yielded values", ends[1], op.operands),
        ]
    return next((found for what, a, b in matches if (found := _differ(f"{what} of {op.name}", a, b))), None)


def broken_branches(region: Region) -> str | None:
    """What is expected of the ends of the region's blocks, where it does not hold: each ends with its only
    terminator, and a branch passes what the block takes."""
    for block in region.blocks:
        for op in block.operations[:-1]:
            if op.name.endswith(_TERMINATORS):
                return f"a block to end after its terminator {op.name}"
        if not block.operations or not block.operations[-1].name.endswith(_TERMINATORS):
            return "a terminator (a branch, yield or return) at the end of each block of this region"
        last = block.operations[-1]
        if last.name == "cf.cond_br" and len(last.attributes.get("operandSegmentSizes", ())) != 3:
            return "three operandSegmentSizes of cf.cond_br"
        if last.name in ("cf.br", "cf.cond_br"):
            for target, operands in last.successors:
                problem = _differ(f"arguments of a block that {last.name} leads to", target.arguments, operands)
                if problem is not None:
                    return problem
    return None


def _broken_function(op: Operation) -> str | None:
    signature = op.attributes.get("function_type")
    if not isinstance(signature, FunctionType) or not isinstance(op.attributes.get("sym_name"), str):
        return "function_type and sym_name of tt.func"
    if len(op.regions) != 1:
        return f"one region of tt.func, not {len(op.regions)}"
    if not op.regions[0].blocks:
        return None
    entry: Block = op.regions[0].blocks[0]
    if tuple(argument.type for argument in entry.arguments) != signature.inputs:
        return f"arguments of {op.attributes['sym_name']} as in its type {signature}"
    described = op.attributes.get("arg_attrs")
    if described is not None and len(described) != len(signature.inputs):
        return f"arg_attrs for {len(signature.inputs)} arguments, not {len(described)}"
    return None


def _differ(what: str, values: Sequence[Value], others: Sequence[Value]) -> str | None:
    left, right = _types(values), _types(others)
    if left == right:
        return None
    return f"{what} of types ({', '.join(map(str, right))}), not ({', '.join(map(str, left))})"


def _types(values: Sequence[Value]) -> list[Type]:
    return [value.type for value in values]
