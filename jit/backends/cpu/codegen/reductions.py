"""tt.reduce and tt.scan.

A reduction keeps its partial results in registers: along the vector axis in several vectors that are combined at the
end, across it in one vector for each chunk of the vector axis. Any combine region is lowered lane by lane; the order
in which elements are combined is not promised (nor is it on GPUs).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....ir import Operation, TensorType
from . import cxx, elementwise
from .combine import Combiner
from .elementwise import Operand
from .errors import unsupported
from .function import FunctionGenerator, Rule
from .memory import block_of
from .nest import Nest, Val
from .sinks import cost, loop, materialize
from .values import Buffer, Node, squeeze, uniform

# Independent partial results, to hide the latency of an addition.
COPIES = 4


def reduce(gen: FunctionGenerator, op: Operation) -> None:
    nodes = [block_of(gen, value) for value in op.operands]
    shape = nodes[0].shape
    axis = int(op.attributes["axis"])
    combiner = Combiner(gen, op)
    if shape[axis] == 1:
        for result, node in zip(op.results, nodes, strict=True):
            if len(shape) == 1:
                gen.define(result, f"load({materialize(gen, op, node).name})")
            else:
                gen.set(result, squeeze(node, axis))
        return
    gen.lines.source(op.location)
    kind = _KINDS.get(combiner.single or "", "reduced")
    names = [result.name or f"{node.name}_{kind}" for result, node in zip(op.results, nodes, strict=True)]
    scalar_result = len(shape) == 1
    results: list[Buffer | str] = []
    out_shape = tuple(extent for a, extent in enumerate(shape) if a != axis)
    for result, element, name in zip(op.results, combiner.elements, names, strict=True):
        if scalar_result:
            variable = gen.names.new(name)
            gen.lines.add(f"{cxx.register(element)} {variable};")
            results.append(variable)
        else:
            results.append(gen.buffer(name, out_shape, element))
        del result
    state = _Accumulators(gen, combiner, axis, nodes, results)
    loop(
        gen, op, shape, nodes, state.body,
        order=lambda vector: _order(len(shape), axis, vector),
        copies=state.copies,
        prepare=state.prepare, versions=False,
    )  # fmt: skip
    for result, where, element in zip(op.results, results, combiner.elements, strict=True):
        if isinstance(where, str):
            gen.scalars[result] = where
            continue
        node = Node("stored", out_shape, element)
        node.buffer = where
        gen.set(result, node)


def _order(rank: int, axis: int, vector: int) -> Sequence[int]:
    """Outer axes, then the vector axis, the reduced one innermost."""
    outer = [a for a in range(rank) if a not in (axis, vector)]
    return [*outer, axis] if axis == vector else [*outer, vector, axis]


class _Accumulators:
    """The partial results of one reduction: their variables, updates and final combination."""

    def __init__(
        self, gen: FunctionGenerator, combiner: Combiner, axis: int, nodes: Sequence[Node], results: list[Buffer | str]
    ) -> None:
        self.gen = gen
        self.combiner = combiner
        self.axis = axis
        self.nodes = nodes
        self.results = results
        self.variables: list[list[str]] = []  # for each copy, for each operand
        # A costly element hides the latency of combining by itself.
        price = sum(cost(node, {}) for node in nodes)
        self.copies = 1 if combiner.identity is None or price > 10 else 2 if price > 3 else COPIES

    def prepare(self, nest: Nest) -> None:
        identity = self.combiner.identity
        copies = nest.fit(self.copies)
        for _ in range(copies):
            row = []
            for node in self.nodes:
                name = self.gen.names.new(f"{node.name}_acc")
                start = "{}"
                if identity is not None:
                    vector = nest.vector_axis is not None
                    start = elementwise.splat(identity, node.element, nest.lanes) if vector else identity
                    start = f"= {start}"
                nest.pre.add(f"{self._type(nest, node)} {name} {start};".replace(" {}", "{}"))
                row.append(name)
            self.variables.append(row)
        if nest.vector_axis == self.axis:
            self._finish_along(nest, copies)
        else:
            for copy in range(copies):
                nest.section.copy = copy
                for name, result in zip(self.variables[copy], self.results, strict=True):
                    self._put(nest, result, Val(name, nest.depth, nest.vector_axis is not None))
            nest.section.copy = 0

    def _type(self, nest: Nest, node: Node) -> str:
        if nest.vector_axis is None:
            return cxx.register(node.element)
        return f"vec<{cxx.lane(node.element)}, {nest.lanes}>"

    def _operands(self, names: Sequence[str], vector: bool) -> list[Operand]:
        return [Operand(n, node.element, vector) for n, node in zip(names, self.nodes, strict=True)]

    def body(self, nest: Nest) -> None:
        at = nest.identity()
        vals = [nest.evaluate(node, at) for node in self.nodes]
        if all(self.combiner.is_neutral(val.text) for val in vals):
            return
        vector = nest.vector_axis is not None
        accumulators = self.variables[nest.section.copy]
        texts = [nest.full(val, node.element) for val, node in zip(vals, self.nodes, strict=True)]
        combined = self.combiner.combine(
            self._operands(accumulators, vector),
            self._operands(texts, vector),
            nest.lanes if vector else None,
            nest.section.lines,
        )
        if nest.section.kind == "out" and not any(val.vector for val in vals):
            nest.section.once = self.combiner.idempotent
            if self.combiner.single == "arith.addf":
                nest.section.guard = f"{vals[0].text} != 0"
        if self.combiner.identity is not None:
            nest.line(f"{accumulators[0]} = {combined[0]};")
            return
        # The first element has nothing to be combined with.
        first = f"{nest.index[nest.order[-1]]} == 0"
        staged = [f"{first} ? {text} : {result}" for text, result in zip(texts, combined, strict=True)]
        if len(staged) == 1:
            nest.line(f"{accumulators[0]} = {staged[0]};")
            return
        names = [self.gen.names.new("next") for _ in staged]
        for name, text in zip(names, staged, strict=True):
            nest.line(f"const auto {name} = {text};")
        for accumulator, name in zip(accumulators, names, strict=True):
            nest.line(f"{accumulator} = {name};")

    def _finish_along(self, nest: Nest, copies: int) -> None:
        """Combine the copies, then the lanes."""
        rows = [self._operands(row, True) for row in self.variables]
        while len(rows) > 1:
            half = len(rows) // 2
            for left, right in zip(rows[:half], rows[half:], strict=True):
                combined = self.combiner.combine(left, right, nest.lanes, nest.post)
                for operand, text in zip(left, combined, strict=True):
                    nest.post.add(f"{operand.text} = {text};")
            rows = rows[:half]
        row = self.variables[0]
        if self.combiner.single in _LANE_FUNCTIONS and not cxx.is_bool(self.nodes[0].element):
            self.gen.module.headers.add("reduce.h")
            scalar = f"{_LANE_FUNCTIONS[self.combiner.single]}({row[0]})"
            self._put(nest, self.results[0], Val(scalar, nest.depth))
            return
        scalars = []
        for name, node in zip(row, self.nodes, strict=True):
            scalar = self.gen.names.new(f"{node.name}_lane")
            nest.post.add(f"{cxx.register(node.element)} {scalar} = {_lane(name, '0', node)};")
            scalars.append(scalar)
        with nest.post.block(f"for (int lane = 1; lane < {nest.lanes}; lane++)"):
            others = [_lane(name, "lane", node) for name, node in zip(row, self.nodes, strict=True)]
            named = []
            for text, node in zip(others, self.nodes, strict=True):
                other = self.gen.names.new("other")
                nest.post.add(f"const {cxx.register(node.element)} {other} = {text};")
                named.append(other)
            combined = self.combiner.combine(
                self._operands(scalars, False), self._operands(named, False), None, nest.post
            )
            staged = []
            for text, node in zip(combined, self.nodes, strict=True):
                name = self.gen.names.new("next")
                nest.post.add(f"const {cxx.register(node.element)} {name} = {text};")
                staged.append(name)
            for scalar, name in zip(scalars, staged, strict=True):
                nest.post.add(f"{scalar} = {name};")
        for scalar, result in zip(scalars, self.results, strict=True):
            self._put(nest, result, Val(scalar, nest.depth))

    def _put(self, nest: Nest, result: Buffer | str, val: Val) -> None:
        if isinstance(result, str):
            nest.post.add(f"{result} = {val.text};")
            return
        at = tuple(None if nest.shape[a] == 1 else a for a in range(len(nest.shape)) if a != self.axis)
        nest.write(result, at, val, nest.post)


def _lane(name: str, index: str, node: Node) -> str:
    return f"{name}[{index}] != 0" if cxx.is_bool(node.element) else f"{name}[{index}]"


_LANE_FUNCTIONS = {
    "arith.addf": "sum_lanes", "arith.addi": "sum_lanes", "arith.mulf": "product_lanes", "arith.muli": "product_lanes",
    "arith.maxnumf": "maxnum_lanes", "arith.minnumf": "minnum_lanes", "arith.maximumf": "maximum_lanes",
    "arith.minimumf": "minimum_lanes", "arith.maxsi": "smax_lanes", "arith.minsi": "smin_lanes",
    "arith.maxui": "umax_lanes", "arith.minui": "umin_lanes", "arith.andi": "and_lanes", "arith.ori": "or_lanes",
    "arith.xori": "xor_lanes",
}  # fmt: skip


_KINDS = {
    "arith.addf": "sum", "arith.addi": "sum", "arith.mulf": "product", "arith.muli": "product",
    "arith.maxnumf": "max", "arith.maximumf": "max", "arith.maxsi": "max", "arith.maxui": "max",
    "arith.minnumf": "min", "arith.minimumf": "min", "arith.minsi": "min", "arith.minui": "min",
    "arith.andi": "all", "arith.ori": "any", "arith.xori": "parity",
}  # fmt: skip


def scan(gen: FunctionGenerator, op: Operation) -> None:
    """Running combination along an axis, element by element."""
    nodes = [gen.node(value) for value in op.operands]
    shape = nodes[0].shape
    axis = int(op.attributes["axis"])
    reverse = bool(op.attributes.get("reverse", False))
    combiner = Combiner(gen, op)
    sources = [materialize(gen, op, node) for node in nodes]
    gen.lines.source(op.location)
    outs = [gen.buffer(r.name or "scanned", shape, e) for r, e in zip(op.results, combiner.elements, strict=True)]
    lines = gen.lines
    indices = [f"at{a}" for a in range(len(shape))]

    def place(buffer: Buffer, position: str) -> str:
        offsets = [f"{position if a == axis else indices[a]} * {stride}" for a, stride in enumerate(buffer.strides)]
        return f"{buffer.name} + ({' + '.join(offsets)})"

    depth = lines.depth
    for a, extent in enumerate(shape):
        if a != axis:
            lines.add(f"for (i64 {indices[a]} = 0; {indices[a]} < {extent}; {indices[a]}++) {{")
            lines.depth += 1
    lines.add("{")
    lines.depth += 1
    running = []
    for node in nodes:
        name = gen.names.new("running")
        lines.add(f"{cxx.register(node.element)} {name}{{}};")
        running.append(name)
    with lines.block(f"for (i64 step = 0; step < {shape[axis]}; step++)"):
        position = "at_step"
        lines.add(f"const i64 {position} = {f'{shape[axis] - 1} - step' if reverse else 'step'};")
        items = []
        for source, node in zip(sources, nodes, strict=True):
            name = gen.names.new("item")
            lines.add(f"const {cxx.register(node.element)} {name} = load({place(source, position)});")
            items.append(name)
        left = [Operand(n, node.element) for n, node in zip(running, nodes, strict=True)]
        right = [Operand(n, node.element) for n, node in zip(items, nodes, strict=True)]
        combined = combiner.combine(left, right, None, lines)
        staged = []
        for text, item, node in zip(combined, items, nodes, strict=True):
            name = gen.names.new("next")
            lines.add(f"const {cxx.register(node.element)} {name} = step == 0 ? {item} : {text};")
            staged.append(name)
        for name, value, out in zip(running, staged, outs, strict=True):
            lines.add(f"{name} = {value};")
            lines.add(f"store({place(out, position)}, {value});")
    while lines.depth > depth:
        lines.depth -= 1
        lines.add("}")
    for result, out, node in zip(op.results, outs, nodes, strict=True):
        stored = Node("stored", shape, node.element)
        stored.buffer = out
        gen.set(result, stored)


def map_elementwise(gen: FunctionGenerator, op: Operation) -> None:
    """tt.map_elementwise of single elements: its region is an elementwise function, spread over the blocks."""
    blocks = op.regions[0].blocks
    if int(op.attributes.get("pack", 1)) != 1:
        raise unsupported(op, "with pack > 1 is not supported")
    if len(blocks) != 1:
        raise unsupported(op, "with branches is not supported")
    known = dict(zip(blocks[0].arguments, (gen.node(value) for value in op.operands), strict=True))
    shape = gen.node(op.operands[0]).shape
    *inner, returned = blocks[0].operations
    for step in inner:
        result = step.results[0] if step.results else None
        if result is None or isinstance(result.type, TensorType):
            raise unsupported(step, "in a tt.map_elementwise is not supported")
        if step.name == "arith.constant":
            known[result] = uniform(cxx.literal(step.attributes["value"], result.type), shape, result.type)
            continue
        if not elementwise.is_elementwise(step.name):
            raise unsupported(step, "in a tt.map_elementwise is not supported")
        # Scalars from outside the region (constants, mostly) are the same for every element.
        operands = tuple(
            known[value] if value in known else uniform(gen.scalar(value), shape, value.type) for value in step.operands
        )
        elementwise.expression(step, [Operand("x", node.element, True) for node in operands], 2)
        known[result] = Node("op", shape, result.type, operands, op=step, name=result.name or "mapped")
    for result, value in zip(op.results, returned.operands, strict=True):
        node = known[value] if value in known else uniform(gen.scalar(value), shape, value.type)
        gen.set(result, node if node.value is None else replace(node))


RULES: dict[str, Rule] = {"tt.reduce": reduce, "tt.scan": scan, "tt.map_elementwise": map_elementwise}
