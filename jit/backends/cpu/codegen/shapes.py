"""Blocks from scalars and ranges, and operations that only move elements."""

from __future__ import annotations

from ....ir import Operation, TensorType
from . import cxx
from .errors import unsupported
from .function import FunctionGenerator, Rule, buffer_type, element_in_memory
from .memory import block_of
from .polynomial import ONE, Polynomial
from .sinks import fill, loop, materialize
from .values import Buffer, Linear, Node, Root, broadcast, expand, squeeze, transpose, zero_strides


def program_id(gen: FunctionGenerator, op: Operation) -> None:
    gen.lines.source(op.location)
    field = "id" if op.name == "tt.get_program_id" else "grid"
    gen.define(op.results[0], f"program.{field}[{int(op.attributes['axis'])}]")


def constant(gen: FunctionGenerator, op: Operation) -> None:
    gen.constant(op)


def poison(gen: FunctionGenerator, op: Operation) -> None:
    """ub.poison: any value will do."""
    result = op.results[0]
    if isinstance(result.type, TensorType):
        gen.set(result, gen.splat_of(cxx.literal(0, result.type.element), result.type.shape, result.type.element, 0))
    else:
        gen.scalars[result] = cxx.literal(0, result.type)


def splat(gen: FunctionGenerator, op: Operation) -> None:
    result, source = op.results[0], op.operands[0]
    assert isinstance(result.type, TensorType)
    text = gen.scalar(source)
    number = int(text) if text.lstrip("-").isdigit() else None
    node = gen.splat_of(text, result.type.shape, result.type.element, number)
    if node.linear is not None and node.linear.root is not None:
        root = Root(text, gen.pointer_roots.get(source))
        node.linear = Linear(root, node.linear.base, node.linear.strides)
    gen.set(result, node)


def make_range(gen: FunctionGenerator, op: Operation) -> None:
    result = op.results[0]
    assert isinstance(result.type, TensorType)
    start = int(op.attributes["start"])
    node = Node("range", result.type.shape, result.type.element, data=start)
    node.linear = Linear(None, Polynomial.of(start), (ONE,))
    gen.set(result, node)


def expand_dims(gen: FunctionGenerator, op: Operation) -> None:
    gen.set(op.results[0], expand(gen.node(op.operands[0]), int(op.attributes["axis"])))


def broadcast_(gen: FunctionGenerator, op: Operation) -> None:
    result = op.results[0]
    assert isinstance(result.type, TensorType)
    source = gen.node(op.operands[0])
    if source.shape == result.type.shape:
        gen.nodes[result] = source
    else:
        gen.set(result, broadcast(source, result.type.shape))


def trans(gen: FunctionGenerator, op: Operation) -> None:
    gen.set(op.results[0], transpose(gen.node(op.operands[0]), [int(axis) for axis in op.attributes["order"]]))


def reshape(gen: FunctionGenerator, op: Operation) -> None:
    """Axes of size 1 come and go as views; anything else goes through memory, in row-major order."""
    result = op.results[0]
    assert isinstance(result.type, TensorType)
    node, shape = gen.node(op.operands[0]), result.type.shape
    if [extent for extent in node.shape if extent != 1] == [extent for extent in shape if extent != 1]:
        for axis in reversed(range(len(node.shape))):
            if node.shape[axis] == 1:
                node = squeeze(node, axis)
        for axis, extent in enumerate(shape):
            if extent == 1:
                node = expand(node, axis)
        if node.value is None:
            gen.set(result, node)
        else:
            gen.nodes[result] = node
        return
    if node.kind == "uniform" and node.buffer is None:
        uniform_node = gen.splat_of(node.data, shape, node.element)
        if node.linear is not None:
            uniform_node.linear = Linear(node.linear.root, node.linear.base, zero_strides(len(shape)))
        gen.set(result, uniform_node)
        return
    if node.linear is not None and node.linear.root is not None:
        _reshape_pointers(gen, op, node, shape)
        return
    source = _row_major(gen, op, node)
    gen.set(result, _stored(Buffer(source.name, source.element, _row_major_strides(shape)), shape, node))


def _reshape_pointers(gen: FunctionGenerator, op: Operation, node: Node, shape: tuple[int, ...]) -> None:
    raise unsupported(op, "on a block of pointers is not supported")


def _row_major_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    total = 1
    for extent in reversed(shape):
        strides.insert(0, total)
        total *= extent
    return tuple(strides)


def _row_major(gen: FunctionGenerator, op: Operation, node: Node) -> Buffer:
    """The block in memory in row-major order."""
    wanted = _row_major_strides(node.shape)
    if node.buffer is not None and node.tail is None:
        strides = node.buffer.strides
        if all(extent == 1 or a == b for extent, a, b in zip(node.shape, strides, wanted, strict=True)):
            return node.buffer
        buffer = gen.buffer(node.name, node.shape, node.element)
        fill(gen, op, node, buffer)
        return buffer
    return materialize(gen, op, node)


def _stored(buffer: Buffer, shape: tuple[int, ...], like: Node) -> Node:
    node = Node("stored", shape, like.element, name=like.name)
    node.buffer = buffer
    return node


def join(gen: FunctionGenerator, op: Operation) -> None:
    """Two blocks side by side along a new last axis."""
    result = op.results[0]
    assert isinstance(result.type, TensorType)
    shape = result.type.shape
    whole = gen.buffer(result.name or "joined", shape, result.type.element)
    for number, operand in enumerate(op.operands):
        part = Buffer(_offset(whole.name, number), whole.element, whole.strides[:-1])
        fill(gen, op, gen.node(operand), part)
    gen.set(result, _stored(whole, shape, gen.node(op.operands[0])))


def split(gen: FunctionGenerator, op: Operation) -> None:
    source = gen.node(op.operands[0])
    buffer = materialize(gen, op, source)
    for number, result in enumerate(op.results):
        part = Buffer(_offset(buffer.name, number * buffer.strides[-1]), buffer.element, buffer.strides[:-1])
        gen.set(result, _stored(part, source.shape[:-1], source))


def cat(gen: FunctionGenerator, op: Operation) -> None:
    result = op.results[0]
    assert isinstance(result.type, TensorType)
    whole = gen.buffer(result.name or "joined", result.type.shape, result.type.element)
    start = 0
    for operand in op.operands:
        node = gen.node(operand)
        fill(gen, op, node, Buffer(_offset(whole.name, start * whole.strides[0]), whole.element, whole.strides))
        start += node.shape[0]
    gen.set(result, _stored(whole, result.type.shape, gen.node(op.operands[0])))


def _offset(name: str, elements: int) -> str:
    return name if elements == 0 else f"({name} + {elements})"


def unsplat(gen: FunctionGenerator, op: Operation) -> None:
    buffer = materialize(gen, op, gen.node(op.operands[0]))
    gen.define(op.results[0], f"load({buffer.name})")


def gather(gen: FunctionGenerator, op: Operation) -> None:
    """result[..., i, ...] = source[..., index[..., i, ...], ...] along one axis."""
    result = op.results[0]
    assert isinstance(result.type, TensorType)
    axis = int(op.attributes["axis"])
    source, index = gen.node(op.operands[0]), gen.node(op.operands[1])
    memory = materialize(gen, op, source)
    out = gen.buffer(result.name or "gathered", index.shape, source.element)

    def body(nest):  # type: ignore[no-untyped-def]
        at = nest.identity()
        where = nest.evaluate(index, at)
        offset = " + ".join(
            f"i64({where.text}) * {stride}" if a == axis else f"{nest.index[a]} * {stride}"
            for a, stride in enumerate(memory.strides)
        )
        name = gen.names.new(source.name)
        nest.line(f"const {cxx.register(memory.element)} {name} = load({memory.name} + ({offset}));")
        nest.write(out, at, type(where)(name, nest.depth))

    loop(gen, op, index.shape, [index], body, scalar=True)
    gen.set(result, _stored(out, index.shape, source))


def histogram(gen: FunctionGenerator, op: Operation) -> None:
    """Counts of 0, 1, ... among integers; others are ignored."""
    result = op.results[0]
    assert isinstance(result.type, TensorType)
    source = gen.node(op.operands[0])
    mask = block_of(gen, op.operands[1]) if len(op.operands) > 1 else None
    bins = result.type.shape[0]
    out = gen.buffer(result.name or "counts", result.type.shape, result.type.element)
    gen.lines.add(f"for (i64 bin = 0; bin < {bins}; bin++) {out.name}[bin] = 0;")

    def body(nest):  # type: ignore[no-untyped-def]
        at = nest.identity()
        value = nest.evaluate(source, at)
        guard = "" if mask is None else f"{nest.evaluate(mask, at).text} && "
        nest.line(f"if ({guard}u64({value.text}) < {bins}) {out.name}[{value.text}]++;")

    loop(gen, op, source.shape, [source, *([mask] if mask is not None else [])], body, scalar=True)
    node = Node("stored", result.type.shape, result.type.element)
    node.buffer = out
    gen.set(result, node)


def addptr(gen: FunctionGenerator, op: Operation) -> None:
    gen.addptr(op)


__all__ = ["RULES", "buffer_type", "element_in_memory"]

RULES: dict[str, Rule] = {
    "tt.get_program_id": program_id,
    "tt.get_num_programs": program_id,
    "arith.constant": constant,
    "ub.poison": poison,
    "tt.splat": splat,
    "tt.unsplat": unsplat,
    "tt.make_range": make_range,
    "tt.expand_dims": expand_dims,
    "tt.broadcast": broadcast_,
    "tt.trans": trans,
    "tt.reshape": reshape,
    "tt.join": join,
    "tt.split": split,
    "tt.cat": cat,
    "tt.gather": gather,
    "tt.histogram": histogram,
    "tt.addptr": addptr,
}
LAZY = frozenset(
    [
        "arith.constant",
        "tt.splat",
        "tt.make_range",
        "tt.expand_dims",
        "tt.broadcast",
        "tt.trans",
        "tt.addptr",
        "tt.load",
    ]
)
