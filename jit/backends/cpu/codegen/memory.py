"""Loads, stores, atomic operations, printing and assertions."""

from __future__ import annotations

from ....ir import Operation, PointerType, TensorType, Value
from . import cxx
from .errors import source_text, unsupported
from .function import FunctionGenerator, Rule
from .nest import Nest, Val
from .sinks import loop, settle_loads
from .values import Node, uniform


def parts(op: Operation, count: int) -> list[Value | None]:
    """The operands of an operation with optional ones (pointer, value, mask, other, ...)."""
    sizes = op.attributes.get("operandSegmentSizes")
    operands = list(op.operands)
    if sizes is None:
        return [*operands, *[None] * (count - len(operands))]
    result: list[Value | None] = []
    for size in sizes:
        result.append(operands.pop(0) if size else None)
    return result


def block_of(gen: FunctionGenerator, value: Value) -> Node:
    """The node of a value; a scalar is a block without axes."""
    if isinstance(value.type, TensorType):
        return gen.node(value)
    return uniform(gen.scalar(value), (), value.type)


def load(gen: FunctionGenerator, op: Operation) -> None:
    result = op.results[0]
    if isinstance(op.operands[0].type, PointerType) and isinstance(op.operands[0].type.pointee, TensorType):
        raise unsupported(op, "through a block pointer is not supported")
    pointer, mask, other = parts(op, 3)
    assert pointer is not None
    gen.lines.source(op.location)
    if not cxx.knows(result.type):
        raise unsupported(op, f"gives {result.type}, which the CPU backend does not know")
    if isinstance(result.type, TensorType):
        operands = tuple(None if value is None else block_of(gen, value) for value in (pointer, mask, other))
        node = Node("load", result.type.shape, result.type.element, operands, op=op)
        gen.set(result, node)
        gen.loads.append(node)
        return
    text = f"load({gen.scalar(pointer)})"
    if mask is not None:
        default = gen.scalar(other) if other is not None else f"{cxx.register(result.type)}(0)"
        text = f"{gen.scalar(mask)} ? {text} : {default}"
    gen.define(result, text)
    if isinstance(result.type, PointerType):
        gen.pointer_roots[result] = None


def store(gen: FunctionGenerator, op: Operation) -> None:
    pointer, value, mask = parts(op, 3)
    assert pointer is not None and value is not None
    if not cxx.knows(value.type):
        raise unsupported(op, f"of {value.type}, which the CPU backend does not know")
    if isinstance(pointer.type, PointerType) and isinstance(pointer.type.pointee, TensorType):
        raise unsupported(op, "through a block pointer is not supported")
    if not isinstance(pointer.type, TensorType):
        settle_loads(gen, op)
        gen.lines.source(op.location)
        guard = f"if ({gen.scalar(mask)}) " if mask is not None else ""
        gen.lines.add(f"{guard}store({gen.scalar(pointer)}, {gen.scalar(value)});")
        return
    where, what = gen.node(pointer), gen.node(value)
    mask_node = gen.node(mask) if mask is not None else None

    def body(nest: Nest) -> None:
        at = nest.identity()
        guard = nest.evaluate(mask_node, at) if mask_node is not None else Val("true", 0)
        if not guard.false:
            nest.store(where, at, nest.evaluate(what, at), what.element, guard)

    loop(
        gen, op, where.shape, [what], body,
        mask=mask_node, pointer=where, writes=True, covers_all=False, aside=True,
    )  # fmt: skip


_RMW = {
    1: "and", 2: "or", 3: "xor", 4: "add", 5: "add", 6: "max", 7: "min", 8: "umax", 9: "umin", 10: "exchange",
}  # fmt: skip


def atomic_rmw(gen: FunctionGenerator, op: Operation) -> None:
    pointer, value, mask = parts(op, 3)
    assert pointer is not None and value is not None
    kind = int(op.attributes["atomic_rmw_op"])
    if kind not in _RMW:
        raise unsupported(op, f"of kind {kind} is not supported")
    _atomic(gen, op, pointer, [value], mask, f"atomic_{_RMW[kind]}")


def atomic_cas(gen: FunctionGenerator, op: Operation) -> None:
    pointer, expected, value = op.operands
    _atomic(gen, op, pointer, [expected, value], None, "atomic_cas")


def _atomic(
    gen: FunctionGenerator, op: Operation, pointer: Value, values: list[Value], mask: Value | None, function: str
) -> None:
    result = op.results[0]
    gen.module.headers.add("atomic.h")
    for value in values:
        if not cxx.knows(value.type):
            raise unsupported(op, f"on {value.type}, which the CPU backend does not know")
    if not isinstance(pointer.type, TensorType):
        settle_loads(gen, op)
        gen.lines.source(op.location)
        arguments = ", ".join([gen.scalar(pointer), *(gen.scalar(value) for value in values)])
        text = f"{function}({arguments})"
        if mask is not None:
            text = f"{gen.scalar(mask)} ? {text} : {cxx.register(result.type)}(0)"
        gen.define(result, text)
        return
    where = gen.node(pointer)
    nodes = [gen.node(value) for value in values]
    mask_node = gen.node(mask) if mask is not None else None
    assert isinstance(result.type, TensorType)
    element = result.type.element
    buffer = gen.buffer(result.name or "old", where.shape, result.type.element) if result.uses else None

    def body(nest: Nest) -> None:
        at = nest.identity()
        guard = nest.evaluate(mask_node, at) if mask_node is not None else Val("true", 0)
        if guard.false and buffer is None:
            return
        place, _, _ = nest.address(where, at)
        arguments = ", ".join([place.text, *(nest.evaluate(node, at).text for node in nodes)])
        text = f"{function}({arguments})"
        if buffer is None:
            nest.line(f"{text};" if guard.true else f"if ({guard.text}) {text};")
            return
        register = cxx.register(element)
        name = gen.names.new("old")
        nest.line(f"const {register} {name} = {guard.text} ? {text} : {register}(0);")
        nest.write(buffer, at, Val(name, nest.depth))

    loop(
        gen, op, where.shape, nodes, body,
        mask=mask_node, pointer=where, writes=True, covers_all=buffer is not None, scalar=True, versions=False,
    )  # fmt: skip
    if buffer is not None:
        node = Node("stored", where.shape, result.type.element)
        node.buffer = buffer
        gen.set(result, node)


def barrier(gen: FunctionGenerator, op: Operation) -> None:
    """One thread runs a program, in the order of its text."""


# --------------------------------------------------------------------------------------------- diagnostics
def device_assert(gen: FunctionGenerator, op: Operation) -> None:
    gen.module.headers.add("diagnostics.h")
    gen.module.asserts = True
    file, line = op.location.file or "?", op.location.line or 0
    message = str(op.attributes.get("message", ""))
    text = f"{file}:{line}: device_assert failed{': ' + message if message else ''}"
    code = source_text(file, line)
    if code:
        text += f"\n    {code}"
    statement = f"fail(program, {c_string(text)});"
    condition = op.operands[0]
    gen.lines.source(op.location)
    if not isinstance(condition.type, TensorType):
        gen.lines.add(f"if (!{gen.scalar(condition)}) {statement}")
        return
    node = gen.node(condition)

    def body(nest: Nest) -> None:
        val = nest.evaluate(node, nest.identity())
        if not val.true:
            nest.line(f"if (!({val.text})) {statement}")

    loop(gen, op, node.shape, [node], body, scalar=True)


def device_print(gen: FunctionGenerator, op: Operation) -> None:
    gen.module.headers.add("diagnostics.h")
    prefix = str(op.attributes.get("prefix", ""))
    hexadecimal = "true" if op.attributes.get("hex") else "false"
    signs = list(op.attributes.get("isSigned", []))
    gen.lines.source(op.location)
    if not op.operands:
        gen.lines.add(f"print_text(program, {c_string(prefix)});")
        return
    for number, value in enumerate(op.operands):
        signed = "true" if number >= len(signs) or signs[number] else "false"
        if not cxx.knows(value.type):
            raise unsupported(op, f"of {value.type} is not supported")
        if not isinstance(value.type, TensorType):
            text = (
                f"print_value<{hexadecimal}, {signed}>(program, {c_string(prefix)}, nullptr, 0, {gen.scalar(value)});"
            )
            gen.lines.add(text)
            continue
        node = gen.node(value)

        def body(nest: Nest, node: Node = node, signed: str = signed) -> None:
            val = nest.evaluate(node, nest.identity())
            indices = ", ".join("i32(" + nest.index[axis] + ")" for axis in range(len(node.shape)))
            where = gen.names.new("where")
            nest.line(f"const i32 {where}[] = {{{indices}}};")
            rank = len(node.shape)
            nest.line(
                f"print_value<{hexadecimal}, {signed}>(program, {c_string(prefix)}, {where}, {rank}, {val.text});"
            )

        loop(gen, op, node.shape, [node], body, scalar=True)


def c_string(text: str) -> str:
    """A C++ string literal."""
    out = []
    for byte in text.encode():
        char = chr(byte)
        if char in '"\\?':
            out.append("\\" + char)
        elif 0x20 <= byte < 0x7F:
            out.append(char)
        else:
            out.append(f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


RULES: dict[str, Rule] = {
    "tt.load": load,
    "tt.store": store,
    "tt.atomic_rmw": atomic_rmw,
    "tt.atomic_cas": atomic_cas,
    "gpu.barrier": barrier,
    "ttg.barrier": barrier,
    "tt.assert": device_assert,
    "tt.print": device_print,
}
