"""Translating one function of a Triton module to C++.

`FunctionGenerator` walks the operations in order. Scalars become C++ variables at once; blocks become lazy `Node`s;
sinks (`sinks.py`) emit loops. What an operation does stands in the rule tables of `elementwise`, `shapes`, `memory`,
`reductions`, `control` and `dot`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ....ir import Block, DenseElements, Operation, PointerType, TensorType, Type, Value
from . import cxx, elementwise
from .elementwise import Operand
from .errors import unsupported
from .polynomial import ONE, ZERO, Polynomial
from .values import Bounds, Buffer, Linear, Node, Root, Tail, When, uniform, zero_strides
from .writer import Lines

Rule = Callable[["FunctionGenerator", Operation], None]

# Blocks of more elements in memory than this move from the stack to memory allocated once for each thread.
STACK_BYTES = 96 * 1024


class FunctionGenerator:
    """State of the translation of one tt.func."""

    def __init__(self, module_generator: Any, function: Operation, vector_bytes: int) -> None:
        self.module = module_generator
        self.function = function
        self.vector_bytes = vector_bytes
        self.names = cxx.Names()
        self.index_names = [self.names.new(name) for name in ("i", "i0", "i1", "i2", "i3", "i4", "i5", "i6", "i7")]
        self.lines = Lines(1)
        self.scalars: dict[Value, str] = {}
        self.nodes: dict[Value, Node] = {}
        self.pointer_roots: dict[Value, Value | None] = {}
        self.loads: list[Node] = []
        self.emitted: set[Operation] = set()
        self.scopes: list[list[Node]] = [[]]
        self.wide_names: set[str] = set(self.index_names)
        self.limits: list[dict[str, str]] = [{}]
        self.assumed: frozenset[str] = frozenset()

    # ------------------------------------------------------------------------------------------ walking
    def operations(self, operations: Sequence[Operation]) -> None:
        for op in operations:
            self.operation(op)

    def operation(self, op: Operation) -> None:
        rule = self.module.rules.get(op.name)
        if rule is not None:
            rule(self, op)
        elif elementwise.is_elementwise(op.name):
            self.elementwise(op)
        else:
            raise unsupported(op)
        self.emitted.add(op)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A region of code that may not run: blocks computed in it are forgotten at its end."""
        self.scopes.append([])
        self.limits.append({})
        self.lines.forget_source()
        yield
        self.limits.pop()
        for node in self.scopes.pop():
            node.buffer = node.tail = None
        self.lines.forget_source()

    def keep(self, node: Node, buffer: Buffer, tail: Tail | None = None) -> None:
        """From here on, the block's elements are read from the buffer, in its tail they are one scalar."""
        node.buffer = buffer
        node.tail = tail
        self.scopes[-1].append(node)

    # ------------------------------------------------------------------------------------------ scalars
    def scalar(self, value: Value) -> str:
        return self.scalars[value]

    def define(self, value: Value, text: str, wish: str | None = None) -> str:
        """A C++ constant for a scalar result."""
        name = self.name(value, wish)
        self.lines.add(cxx.constant(value.type, name, text))
        self.scalars[value] = name
        return name

    def name(self, value: Value, wish: str | None = None) -> str:
        return self.names.new(wish or value.name or _default_name(value))

    def operand(self, value: Value) -> Operand:
        return Operand(self.scalars[value], value.type)

    # ------------------------------------------------------------------------------------------ blocks
    def node(self, value: Value) -> Node:
        """The block of a tensor value."""
        return self.nodes[value]

    def set(self, value: Value, node: Node) -> None:
        node.value = value
        if value.name:
            node.name = value.name
        elif node.name == "x" and value.defining_op is not None:
            node.name = _default_name(value)
        self.nodes[value] = node

    def buffer(self, wish: str, shape: Sequence[int], element: Type, order: Sequence[int] | None = None) -> Buffer:
        """Memory for a block; ``order`` lists the axes from slowest to fastest."""
        strides = [0] * len(shape)
        total = 1
        for axis in reversed(order if order is not None else range(len(shape))):
            strides[axis] = total
            total *= shape[axis]
        name = self.names.new(wish + "_block")
        self.lines.add(self.module.declare_buffer(name, buffer_type(element), total))
        return Buffer(name, element_in_memory(element), tuple(strides))

    def constant(self, op: Operation) -> None:
        value = op.attributes["value"]
        result = op.results[0]
        if not isinstance(result.type, TensorType):
            self.scalars[result] = cxx.literal(value, result.type)
            return
        assert isinstance(value, DenseElements)
        element, shape = result.type.element, result.type.shape
        if not cxx.knows(element):
            raise unsupported(op, f"has elements of type {element}, which the CPU backend does not know")
        if value.splat is not None:
            self.set(result, self.splat_of(cxx.literal(value.splat, element), shape, element, value.splat))
            return
        name = self.names.new((result.name or "table") + "_values")
        items = ", ".join(cxx.literal(item, element) for item in value.values)
        self.lines.add(f"static const {buffer_type(element)} {name}[] = {{{items}}};")
        strides: list[int] = []
        total = 1
        for extent in reversed(shape):
            strides.insert(0, total)
            total *= extent
        node = Node("stored", shape, element)
        node.buffer = Buffer(name, element_in_memory(element), tuple(strides))
        self.set(result, node)

    def splat_of(self, text: str, shape: tuple[int, ...], element: Type, number: object = None) -> Node:
        """A block of one value; integers keep their linear form, truth values their condition."""
        node = uniform(text, shape, element)
        if isinstance(element, PointerType):
            node.linear = Linear(Root(text, None), ZERO, zero_strides(len(shape)))
        elif cxx.is_bool(element):
            if text not in ("true", "false"):
                node.bounds = Bounds(conditions=frozenset([text]))
            elif text == "true":
                node.bounds = Bounds()
        elif not cxx.is_float(element):
            base = Polynomial.of(number) if isinstance(number, int) else Polynomial.of(text)
            node.linear = Linear(None, base, zero_strides(len(shape)))
        return node

    # ------------------------------------------------------------------------------------------ elementwise
    def elementwise(self, op: Operation) -> None:
        result = op.results[0]
        self.lines.source(op.location)
        if not isinstance(result.type, TensorType):
            operands = [self.operand(value) for value in op.operands]
            text = elementwise.expression(op, operands, None)
            if text in (operand.text for operand in operands):
                self.scalars[result] = text
            else:
                self.define(result, text)
            if isinstance(result.type, PointerType):
                self.pointer_roots[result] = self._root_through(op)
            return
        if self._is_undone(op):
            return
        operands_ = [self.node(v) if isinstance(v.type, TensorType) else self._scalar_node(v) for v in op.operands]
        if len(op.results) == 1 and all(n.kind == "uniform" and n.buffer is None for n in operands_):
            self._uniform(op, operands_)
            return
        # Refuses now, with the operation at hand, what the loops could not emit later.
        elementwise.expression(op, [Operand("x", n.element, True) for n in operands_], 2)
        node = Node("op", result.type.shape, result.type.element, tuple(operands_), op=op)
        node.linear = self._linear(op, operands_)
        node.when = self._when(op, operands_)
        node.bounds = self._bounds(op, operands_)
        self.set(result, node)

    def _is_undone(self, op: Operation) -> bool:
        """A truth block widened and compared with zero again is the block itself (tl.load of bool, `x & y != 0`)."""
        if op.name != "arith.cmpi" or int(op.attributes["predicate"]) != 1:
            return False
        wide, zero = op.operands
        source = wide.defining_op
        if source is None or source.name not in ("arith.extui", "arith.extsi"):
            return False
        node = self.nodes.get(source.operands[0])
        if node is None or not cxx.is_bool(node.element) or self.node(zero).data not in ("0", "i8(0)", "i64(0)"):
            return False
        self.nodes[op.results[0]] = node
        return True

    def _scalar_node(self, value: Value) -> Node:
        return uniform(self.scalars[value], (), value.type)

    def _uniform(self, op: Operation, operands: Sequence[Node]) -> None:
        """An operation over blocks of one value each: computed once, as a scalar."""
        result = op.results[0]
        assert isinstance(result.type, TensorType)
        texts = [Operand(node.data, node.element) for node in operands]
        text = elementwise.expression(op, texts, None)
        if text not in (operand.text for operand in texts):
            name = self.name(result)
            self.lines.add(cxx.constant(result.type.element, name, text))
            text = name
        self.set(result, self.splat_of(text, result.type.shape, result.type.element))

    def _root_through(self, op: Operation) -> Value | None:
        if op.name in ("tt.bitcast", "tt.addptr"):
            return self.pointer_roots.get(op.operands[0])
        return None

    # ------------------------------------------------------------------------------------------ addresses
    def addptr(self, op: Operation) -> None:
        result = op.results[0]
        self.lines.source(op.location)
        if not isinstance(result.type, TensorType):
            base, offset = (self.scalars[value] for value in op.operands)
            self.define(result, f"{base} + {offset}")
            self.pointer_roots[result] = self._root_through(op)
            return
        pointer, offset_ = self.node(op.operands[0]), self.node(op.operands[1])
        node = Node("op", result.type.shape, result.type.element, (pointer, offset_), op=op)
        node.linear = self.offset(pointer, offset_)
        if node.linear is None:
            raise unsupported(op, "on blocks of addresses that are not a pointer plus offsets is not supported")
        self.set(result, node)

    def offset(self, pointer: Node, offset: Node) -> Linear | None:
        """The linear form of pointer + offset."""
        linear = pointer.linear
        if linear is None:
            return None
        shift = offset.linear if offset.linear is not None and offset.buffer is None else None
        if shift is None:
            shift = Linear(None, ZERO, zero_strides(len(offset.shape)), (offset,))
        return add(linear, shift)

    def _linear(self, op: Operation, operands: Sequence[Node]) -> Linear | None:
        """The linear form of an integer operation, if it has one."""
        if op.name == "tt.bitcast" and isinstance(operands[0].element, PointerType):
            return self._recast(op, operands[0])
        if cxx.is_bool(operands[0].element) or op.name not in _LINEAR:
            return None
        forms = [node.linear if node.buffer is None else None for node in operands]
        if op.name in ("arith.extsi", "arith.index_cast"):
            return forms[0]
        first, second = forms
        rank = len(operands[0].shape)
        if op.name in ("arith.addi", "arith.subi"):
            # One side may be any block: it becomes a term of an address.
            if first is None and second is None:
                return None
            if op.name == "arith.subi" and second is None:
                return None
            first = first or Linear(None, ZERO, zero_strides(rank), (operands[0],))
            second = second or Linear(None, ZERO, zero_strides(rank), (operands[1],))
            if op.name == "arith.subi":
                if second.terms:
                    return None
                second = scale(second, Polynomial.of(-1))
            return add(first, second)
        if first is None or second is None:
            return None
        for form, factor in ((first, second), (second, first)):
            if factor.terms or any(factor.strides):
                continue
            if form.terms:
                continue
            if op.name == "arith.muli":
                return scale(form, factor.base)
            constant = factor.base.constant
            if op.name == "arith.shli" and form is first and constant is not None and 0 <= constant < 32:
                return scale(form, Polynomial.of(1 << constant))
        return None

    def _when(self, op: Operation, operands: Sequence[Node]) -> When | None:
        """A remainder is linear while its argument stays between two multiples of the divisor."""
        if op.name in _LINEAR:
            conditions = {node.when.condition for node in operands if node.when is not None}
            if len(conditions) != 1:
                return None
            changed = [replace(n, linear=n.when.linear, buffer=None) if n.when is not None else n for n in operands]
            linear = self._linear(op, changed)
            return When(conditions.pop(), linear) if linear is not None else None
        if op.name not in ("arith.remsi", "arith.remui"):
            return None
        index, divisor = (node.linear for node in operands)
        if index is None or divisor is None or index.terms or divisor.terms or any(divisor.strides):
            return None
        axes = [axis for axis, stride in enumerate(index.strides) if stride]
        if len(axes) != 1 or index.strides[axes[0]] != ONE:
            return None
        extent = operands[0].shape[axes[0]]
        self.lines.source(op.location)
        first, whole = self.names.new("first"), self.names.new("unwrapped")
        bound = self.poly(divisor.base)
        self.wide_names.add(first)
        self.lines.add(f"const i64 {first} = remainder(i64({self.poly(index.base)}), i64({bound}));")
        self.lines.add(f"const bool {whole} = {first} >= 0 && {first} + {extent} <= {bound};")
        return When(whole, Linear(None, Polynomial.of(first), index.strides))

    def _recast(self, op: Operation, pointer: Node) -> Linear | None:
        """Pointers to another type of the same size keep their offsets."""
        result = op.results[0].type
        assert isinstance(result, TensorType) and isinstance(result.element, PointerType)
        assert isinstance(pointer.element, PointerType)
        linear = pointer.linear
        if linear is None or linear.root is None:
            return None
        if cxx.bytes_of(result.element.pointee) != cxx.bytes_of(pointer.element.pointee):
            raise unsupported(op, f"from {pointer.element} to {result.element} changes the size of the elements")
        text = f"reinterpret_cast<{cxx.storage(result.element)}>({linear.root.text})"
        return Linear(Root(text, linear.root.argument), linear.base, linear.strides, linear.terms)

    def _bounds(self, op: Operation, operands: Sequence[Node]) -> Bounds | None:
        """The limits that a truth block stands for, if its operation is a comparison with one or a conjunction."""
        if op.name == "arith.andi" and cxx.is_bool(operands[0].element):
            a, b = operands
            if a.bounds is None and b.bounds is None:
                return None
            first = a.bounds or Bounds(rest=(a,))
            second = b.bounds or Bounds(rest=(b,))
            return Bounds(first.limits | second.limits, first.conditions | second.conditions, first.rest + second.rest)
        if op.name != "arith.cmpi":
            return None
        predicate = int(op.attributes["predicate"])
        small, large = operands
        if predicate in (4, 5):  # a > b is b < a
            small, large, predicate = large, small, predicate - 2
        if predicate not in (2, 3) or small.buffer is not None or large.buffer is not None:
            return None
        index, limit = small.linear, large.linear
        if index is None or limit is None or index.terms or limit.terms or any(limit.strides):
            return None
        axes = [axis for axis, stride in enumerate(index.strides) if stride]
        if len(axes) != 1 or index.strides[axes[0]] != ONE:
            return None
        value = limit.base - index.base + Polynomial.of(1 if predicate == 3 else 0)
        return Bounds(limits=frozenset([(axes[0], self._limit(value, op))]))

    def _limit(self, value: Polynomial, op: Operation) -> str:
        """The name of a limit's value."""
        text = self.poly(value)
        if value.constant is not None:
            return text
        for known in self.limits:
            if text in known:
                return known[text]
        name = self.limits[-1][text] = self.names.new("limit")
        self.wide_names.add(name)
        self.lines.source(op.location)
        self.lines.add(f"const i64 {name} = {text};")
        return name

    def poly(self, value: Polynomial) -> str:
        """A polynomial as C++, computed in 64 bits."""
        return value.text(self.wide_names)


_LINEAR = {"arith.addi", "arith.subi", "arith.muli", "arith.shli", "arith.extsi", "arith.index_cast"}


def add(a: Linear, b: Linear) -> Linear:
    strides = tuple(x + y for x, y in zip(a.strides, b.strides, strict=True))
    return Linear(a.root or b.root, a.base + b.base, strides, a.terms + b.terms)


def scale(form: Linear, factor: Polynomial) -> Linear:
    return Linear(form.root, form.base * factor, tuple(stride * factor for stride in form.strides), ())


def element_in_memory(element: Type) -> Type:
    """Buffers hold small floats as f32."""
    from ....ir import ScalarType

    return ScalarType("f32") if cxx.is_small_float(element) else element


def buffer_type(element: Type) -> str:
    return cxx.storage(element_in_memory(element))


def _default_name(value: Value) -> str:
    op = value.defining_op
    if op is None:
        return "x"
    return _SHORT.get(op.name, op.name.split(".")[-1])


_SHORT = {
    "arith.addf": "sum", "arith.addi": "sum", "arith.subf": "difference", "arith.subi": "difference",
    "arith.mulf": "product", "arith.muli": "product", "arith.divf": "quotient", "arith.divsi": "quotient",
    "arith.remsi": "rest", "arith.cmpi": "holds", "arith.cmpf": "holds", "arith.andi": "holds",
    "arith.select": "chosen",
    "tt.addptr": "pointer", "tt.load": "loaded", "tt.get_program_id": "pid", "tt.reduce": "reduced",
}  # fmt: skip


def is_terminator(block: Block, op: Operation) -> bool:
    return bool(block.operations) and block.operations[-1] is op
