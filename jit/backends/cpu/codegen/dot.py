"""tt.dot: operands in memory, the product by a register-blocked kernel of the header ``dot.h``.

fp16, bf16 and fp8 operands are multiplied and accumulated as fp32 (their products are exact there);
`input_precision` asks for less than that and is ignored. Integers accumulate in i32.
"""

from __future__ import annotations

from ....ir import Block, Operation, TensorType, Value
from . import cxx
from .errors import unsupported
from .function import FunctionGenerator, Rule
from .sinks import fill, materialize
from .values import Buffer, Node

_ACCUMULATORS = {"f32": "f32", "f64": "f64", "f16": "f32", "bf16": "f32", "i32": "i32", "i64": "i64"}


def dot(gen: FunctionGenerator, op: Operation) -> None:
    left, right, accumulator = op.operands
    result = op.results[0]
    assert isinstance(result.type, TensorType)
    for value in op.operands:
        if not cxx.knows(value.type):
            raise unsupported(op, f"on {value.type}, which the CPU backend does not know")
    element = result.type.element
    if cxx.register(element) not in ("f32", "f64", "i32"):
        raise unsupported(op, f"with results of type {element} is not supported")
    a = _inner_contiguous(gen, op, gen.node(left))
    b = _inner_contiguous(gen, op, gen.node(right))
    gen.module.headers.add("dot.h")
    shape = result.type.shape
    m, n = shape[-2:]
    k = gen.node(left).shape[-1]
    c = _accumulator(gen, op, accumulator, result)
    gen.lines.source(op.location)
    batch = shape[0] if len(shape) == 3 else 1
    shift = ["", "", ""]
    if len(shape) == 3:
        gen.lines.add(f"for (i64 batch = 0; batch < {batch}; batch++) {{")
        gen.lines.depth += 1
        shift = [f" + batch * {buffer.strides[0]}" for buffer in (a, b, c)]
    gen.lines.add(
        f"dot<{m}, {n}, {k}>({a.name}{shift[0]}, {a.strides[-2]}, {b.name}{shift[1]}, {b.strides[-2]}, "
        f"{c.name}{shift[2]}, {c.strides[-2]});"
    )
    if len(shape) == 3:
        gen.lines.depth -= 1
        gen.lines.add("}")
    node = Node("stored", shape, element)
    node.buffer = c
    gen.set(result, node)
    if cxx.is_small_float(element):
        # The instruction would round its result.
        _round(gen, c, element, shape)


def _round(gen: FunctionGenerator, c: Buffer, element: object, shape: tuple[int, ...]) -> None:
    size = 1
    for extent in shape:
        size *= extent
    kind = cxx.storage(element)  # type: ignore[arg-type]
    gen.lines.add(f"for (i64 i = 0; i < {size}; i++) {c.name}[i] = round_to<{kind}>({c.name}[i]);")


def _inner_contiguous(gen: FunctionGenerator, op: Operation, node: Node) -> Buffer:
    """The operand in memory, its last axis contiguous."""
    if node.buffer is None or node.tail is not None:
        return materialize(gen, op, node)
    if node.buffer.strides[-1] == 1 and (node.shape[-2] == 1 or node.buffer.strides[-2] >= node.shape[-1]):
        return node.buffer
    buffer = gen.buffer(node.name, node.shape, node.element)
    fill(gen, op, node, buffer)
    return buffer


def _accumulator(gen: FunctionGenerator, op: Operation, value: Value, result: Value) -> Buffer:
    """Where the product is added: in place when nobody else needs what was there."""
    node = gen.node(value)
    in_place = (
        node.buffer is not None
        and node.tail is None
        and len(value.uses) == 1
        and node.buffer.strides[-1] == 1
        and (_is_carried(value, result) or _is_own(value))
    )
    if in_place:
        assert node.buffer is not None
        return node.buffer
    buffer = gen.buffer(result.name or "product", node.shape, node.element)
    fill(gen, op, node, buffer)
    return buffer


def _is_carried(value: Value, result: Value) -> bool:
    """Whether the loop that carries ``value`` gets ``result`` as its next value and nobody else does."""
    block = value.owner
    if not isinstance(block, Block) or len(result.uses) != 1:
        return False
    user, index = result.uses[0]
    loop = block.parent.parent if block.parent is not None else None
    return (
        loop is not None
        and loop.name == "scf.for"
        and user.name == "scf.yield"
        and user.parent is block
        and block.arguments[index + 1] is value
    )


def _is_own(value: Value) -> bool:
    """Whether the value is the result of a dot in the same block, made for this use."""
    op = value.defining_op
    return op is not None and op.name == "tt.dot"


RULES: dict[str, Rule] = {"tt.dot": dot}
