"""Loops, conditionals, branches and calls.

Values that change (carried by a loop, chosen by a branch) are C++ variables when scalar and buffers when blocks. A
carried block of pointers or indices that only moves by the same amount everywhere stays lazy: its start plus one
scalar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....ir import Block, Operation, PointerType, Region, TensorType, Value
from . import cxx
from .errors import unsupported
from .function import FunctionGenerator, Rule, add
from .nest import Nest
from .polynomial import Polynomial
from .sinks import KEEP_COST, cost, fill, loop, materialize, reads_memory
from .unrolling import iterations_at_once
from .values import Buffer, Linear, Node, source_of, zero_strides
from .work import trips

_WRITES = frozenset(["tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.call", "tt.descriptor_store"])


def writes_memory(op: Operation) -> bool:
    return any(inner.name in _WRITES for inner in op.walk())


# --------------------------------------------------------------------------------------------- entering a region
def before_region(gen: FunctionGenerator, op: Operation, repeated: bool) -> None:
    """Compute what a region uses and would otherwise compute again and again, or after memory has changed."""
    writes = writes_memory(op)
    inside = set(op.walk())
    used: dict[Node, None] = {}
    for inner in inside:
        for value in inner.operands:
            node = gen.nodes.get(value)
            if node is not None:
                used[source_of(node)] = None
    costs: dict[int, int] = {}
    loads: dict[int, bool] = {}
    for node in used:
        if node.buffer is not None or not node.shape or node.kind in ("uniform", "range", "stored"):
            continue
        if node.linear is not None and not node.linear.terms:
            continue
        heavy = repeated and cost(node, costs) >= KEEP_COST and not isinstance(node.element, PointerType)
        if heavy or (writes and reads_memory(node, loads)):
            _settle(gen, op, node)
            costs.clear()
            loads.clear()
    if writes:
        from .sinks import settle_loads

        settle_loads(gen, op)


def _settle(gen: FunctionGenerator, op: Operation, node: Node) -> None:
    """Put a block, or for addresses the blocks they are made of, into memory."""
    if not isinstance(node.element, PointerType):
        if node.bounds is not None:
            for term in node.bounds.rest:
                _settle(gen, op, source_of(term))
            return
        materialize(gen, op, node)
        return
    for term in node.linear.terms if node.linear is not None else ():
        source = source_of(term)
        if source.buffer is None and source.kind not in ("uniform", "range"):
            materialize(gen, op, source)


# --------------------------------------------------------------------------------------------- variables
class Variable:
    """A value that is assigned more than once."""

    def __init__(self, gen: FunctionGenerator, value: Value, wish: str | None = None) -> None:
        self.value = value
        self.buffer: Buffer | None = None
        self.text = ""
        name = wish or value.name or "carried"
        if isinstance(value.type, TensorType):
            if isinstance(value.type.element, PointerType):
                raise unsupported(
                    value.owner if isinstance(value.owner, Operation) else value.owner.parent.parent,  # type: ignore
                    f"carries the block of pointers {name!r}, which does not only move by a scalar",
                )
            self.buffer = gen.buffer(name, value.type.shape, value.type.element)
        else:
            self.text = gen.names.new(name)
            gen.lines.add(f"{cxx.register(value.type)} {self.text};")

    def read_as(self, gen: FunctionGenerator, value: Value) -> None:
        """Let ``value`` mean the variable's present content."""
        if self.buffer is None:
            gen.scalars[value] = self.text
            if isinstance(value.type, PointerType):
                gen.pointer_roots[value] = None
            return
        assert isinstance(value.type, TensorType)
        node = Node("stored", value.type.shape, value.type.element)
        node.buffer = self.buffer
        gen.set(value, node)


class Moving:
    """A carried block that only moves by the same amount everywhere: where it starts, and how far it has moved."""

    def __init__(self, gen: FunctionGenerator, name: str, start: Node, amounts: Sequence[Value]) -> None:
        self.start = start
        self.amounts = amounts
        self.distance = gen.names.new(f"{name}_moved")
        gen.wide_names.add(self.distance)
        gen.lines.add(f"i64 {self.distance} = 0;")

    def read_as(self, gen: FunctionGenerator, value: Value, distance: str | None = None) -> None:
        """Let ``value`` mean the block, by default moved by the variable's present content."""
        distance = distance or self.distance
        linear = self.start.linear
        assert linear is not None
        node = Node("moved", self.start.shape, self.start.element, (self.start,), distance, name=self.start.name)
        node.linear = add(linear, Linear(None, Polynomial.of(distance), zero_strides(len(self.start.shape))))
        gen.set(value, node)

    def advance(self, gen: FunctionGenerator, distance: str) -> str:
        """A constant with the moved distance after one more iteration."""
        total = Polynomial.of(distance)
        for value in self.amounts:
            linear = gen.node(value).linear
            assert linear is not None
            total = total + linear.base
        name = gen.names.new(f"next_{self.distance}")
        gen.wide_names.add(name)
        gen.lines.add(f"const i64 {name} = {gen.poly(total)};")
        return name


def assign(gen: FunctionGenerator, op: Operation, variables: Sequence[Variable], values: Sequence[Value]) -> None:
    """Assign values to variables as if at once: a value may read the variables' old contents."""
    scalars = [(v, gen.scalar(value)) for v, value in zip(variables, values, strict=True) if v.buffer is None]
    changed = [(v, text) for v, text in scalars if text != v.text]
    if len(changed) > 1:
        for number, (variable, text) in enumerate(changed):
            name = gen.names.new(f"next_{variable.text}")
            gen.lines.add(cxx.constant(variable.value.type, name, text))
            changed[number] = (variable, name)
    blocks = [(v, gen.node(value)) for v, value in zip(variables, values, strict=True) if v.buffer is not None]
    blocks = [(v, node) for v, node in blocks if node.buffer != v.buffer]
    _assign_blocks(gen, op, blocks)
    for variable, text in changed:
        gen.lines.add(f"{variable.text} = {text};")


def _assign_blocks(gen: FunctionGenerator, op: Operation, blocks: Sequence[tuple[Variable, Node]]) -> None:
    targets = {v.buffer.name for v, _ in blocks if v.buffer is not None}
    by_shape: dict[tuple[int, ...], list[tuple[Variable, Node]]] = {}
    staged: list[tuple[Variable, Node]] = []
    for variable, node in blocks:
        assert variable.buffer is not None
        reads = _buffers_read(node, {})
        # In one loop over a shape, each element is read before it is written; other reads need a copy first.
        foreign = {name for name, aligned in reads.items() if name in targets and not aligned}
        others = {v.buffer.name for v, n in blocks if v.buffer is not None and n.shape != node.shape}
        if foreign or (set(reads) & others):
            copy = gen.buffer(f"next_{node.name}", node.shape, node.element)
            fill(gen, op, node, copy)
            stored = Node("stored", node.shape, node.element)
            stored.buffer = copy
            staged.append((variable, stored))
        else:
            by_shape.setdefault(node.shape, []).append((variable, node))
    for group in [*by_shape.values(), *([pair] for pair in staged)]:
        _assign_group(gen, op, group)


def _assign_group(gen: FunctionGenerator, op: Operation, group: Sequence[tuple[Variable, Node]]) -> None:
    nodes = [node for _, node in group]

    def body(nest: Nest) -> None:
        at = nest.identity()
        vals = [nest.evaluate(node, at) for node in nodes]
        for (variable, _), val in zip(group, vals, strict=True):
            assert variable.buffer is not None
            nest.write(variable.buffer, at, val)

    loop(gen, op, nodes[0].shape, nodes, body)


def _buffers_read(node: Node, memo: dict[int, bool], aligned: bool = True) -> dict[str, bool]:
    """Names of the buffers that a block reads, and whether only at the index that is computed."""
    result: dict[str, bool] = {}

    def visit(current: Node, straight: bool) -> None:
        if memo.get(id(current)) is False or memo.get(id(current)) == straight:
            return
        memo[id(current)] = straight
        if current.buffer is not None:
            name = current.buffer.name
            result[name] = result.get(name, True) and straight
            return
        if current.kind == "view":
            straight = straight and all(extent == 1 for extent in current.shape if extent != 1)
            straight = False
        for operand in current.operands:
            if operand is not None:
                visit(operand, straight and (operand.shape == current.shape))
        for term in (
            *(current.linear.terms if current.linear else ()),
            *(current.bounds.rest if current.bounds else ()),
        ):
            visit(term, straight and term.shape == current.shape)

    visit(node, aligned)
    return result


# --------------------------------------------------------------------------------------------- scf
def for_(gen: FunctionGenerator, op: Operation) -> None:
    block = op.regions[0].blocks[0]
    lower, upper, step = (gen.scalar(value) for value in op.operands[:3])
    inits, arguments = list(op.operands[3:]), block.arguments[1:]
    gen.lines.source(op.location)
    before_region(gen, op, repeated=True)
    yields = list(block.operations[-1].operands)
    moving = [_moves(gen, block, argument, result) for argument, result in zip(arguments, yields, strict=True)]
    carried: list[Variable | Moving] = []
    for argument, init, moves in zip(arguments, inits, moving, strict=True):
        if moves is not None and gen.node(init).buffer is None and gen.node(init).linear is not None:
            start = gen.node(init)
            _settle_terms(gen, op, start)
            carried.append(Moving(gen, argument.name or "carried", start, moves))
        else:
            carried.append(Variable(gen, argument))
    kept = [(v, init) for v, init in zip(carried, inits, strict=True) if isinstance(v, Variable)]
    assign(gen, op, [v for v, _ in kept], [init for _, init in kept])
    gen.emitted.add(op)
    counter = gen.names.new(block.arguments[0].name or "k")
    start_text = f"{cxx.register(block.arguments[0].type)} {counter} = {lower}"
    below = f"{counter} < {upper}"
    if op.attributes.get("unsignedCmp"):
        below = f"ult({counter}, {upper})"
    at_once = iterations_at_once(gen, op, [v.value for v, _ in kept if v.buffer is not None])
    if at_once == 1:
        _iterations(gen, block, carried, counter, step, 1, f"for ({start_text}; {below}; {counter} += {step})")
    else:
        gen.lines.add(f"// {at_once} iterations at once: the blocks that they carry stay in registers meanwhile.")
        gen.lines.add(f"{start_text};")
        stride = Polynomial.of(int(step) if step.isdigit() else step)
        last = gen.poly(Polynomial.of(counter) + stride * Polynomial.of(at_once - 1))
        # A step below 0 ends the loop before it begins, and must here too.
        fits = f"{last} < {upper}" if step.isdigit() else f"{below} && {last} < {upper}"
        head = f"for (; {fits}; {counter} += {stride * Polynomial.of(at_once)})"
        _iterations(gen, block, carried, counter, step, at_once, head)
        known = trips(op)
        if known is None or known % at_once:
            _iterations(gen, block, carried, counter, step, 1, f"for (; {below}; {counter} += {step})")
    for variable, result in zip(carried, op.results, strict=True):
        variable.read_as(gen, result)


def _iterations(
    gen: FunctionGenerator,
    block: Block,
    carried: Sequence[Variable | Moving],
    counter: str,
    step: str,
    at_once: int,
    head: str,
) -> None:
    """A loop over the body of an scf.for; each turn does so many iterations before it assigns what they carry."""
    number, *arguments = block.arguments
    *body, last = block.operations
    yields = list(last.operands)
    gen.scalars[number] = counter
    for variable, argument in zip(carried, arguments, strict=True):
        variable.read_as(gen, argument)
    with gen.lines.block(head), gen.scope():
        moved = {v: v.distance for v in carried if isinstance(v, Moving)}
        for iteration in range(at_once):
            if iteration:
                _pass_on(gen, carried, arguments, yields, moved)
                name = gen.names.new(counter)
                gen.lines.add(cxx.constant(number.type, name, f"{gen.scalars[number]} + {step}"))
                gen.scalars[number] = name
            gen.operations(body)
            # The amounts may be carried scalars that are about to change.
            moved = {v: v.advance(gen, distance) for v, distance in moved.items()}
        pairs = [(v, y) for v, y in zip(carried, yields, strict=True) if isinstance(v, Variable)]
        assign(gen, last, [v for v, _ in pairs], [y for _, y in pairs])
        for moving, name in moved.items():
            if name != moving.distance:
                gen.lines.add(f"{moving.distance} = {name};")
        gen.emitted.add(last)


def _pass_on(
    gen: FunctionGenerator,
    carried: Sequence[Variable | Moving],
    arguments: Sequence[Value],
    yields: Sequence[Value],
    moved: Mapping[Moving, str],
) -> None:
    """Let what an iteration yields be what the next one starts from, without assigning it to variables."""
    scalars = {y: gen.scalar(y) for y in yields if not isinstance(y.type, TensorType)}
    blocks = {y: gen.node(y) for y in yields if isinstance(y.type, TensorType)}
    for variable, argument, value in zip(carried, arguments, yields, strict=True):
        if isinstance(variable, Moving):
            variable.read_as(gen, argument, moved[variable])
        elif value in blocks:
            gen.nodes[argument] = blocks[value]
        else:
            gen.scalars[argument] = scalars[value]
            if isinstance(argument.type, PointerType):
                gen.pointer_roots[argument] = None


def _settle_terms(gen: FunctionGenerator, op: Operation, node: Node) -> None:
    """A moving block outlives the point where its parts could be computed lazily."""
    assert node.linear is not None
    costs: dict[int, int] = {}
    for term in node.linear.terms:
        source = source_of(term)
        if source.buffer is None and source.kind not in ("uniform", "range") and cost(source, costs) > 2:
            materialize(gen, op, source)


def _moves(gen: FunctionGenerator, block: Block, argument: Value, result: Value) -> list[Value] | None:
    """The scalar blocks that an iteration adds to a carried block of pointers or integers; None when it does more."""
    if not isinstance(argument.type, TensorType) or cxx.is_float(argument.type.element):
        return None
    if cxx.is_bool(argument.type.element):
        return None
    amounts: list[Value] = []
    value = result
    while value is not argument:
        op = value.defining_op
        if op is None or op.parent is not block or op.name not in ("tt.addptr", "arith.addi"):
            return None
        first, second = op.operands
        if _is_one_value(second):
            value = first
            amounts.append(second)
        elif op.name == "arith.addi" and _is_one_value(first):
            value = second
            amounts.append(first)
        else:
            return None
    return amounts


def _is_one_value(value: Value) -> bool:
    """Whether every element of a block is the same."""
    op = value.defining_op
    if op is None:
        return False
    if op.name == "arith.constant":
        return getattr(op.attributes["value"], "splat", None) is not None
    if op.name in ("tt.broadcast", "tt.expand_dims", "arith.extsi", "tt.trans", "tt.reshape"):
        return _is_one_value(op.operands[0])
    return op.name == "tt.splat"


def if_(gen: FunctionGenerator, op: Operation) -> None:
    gen.lines.source(op.location)
    before_region(gen, op, repeated=False)
    variables = [Variable(gen, result) for result in op.results]
    condition = gen.scalar(op.operands[0])
    _branch(gen, f"if ({condition})", op.regions[0], variables)
    if len(op.regions) > 1 and op.regions[1].blocks:
        block = op.regions[1].blocks[0]
        if len(block.operations) > 1 or variables:
            _branch(gen, "else", op.regions[1], variables)
    for variable, result in zip(variables, op.results, strict=True):
        variable.read_as(gen, result)


def _branch(gen: FunctionGenerator, head: str, region: Region, variables: Sequence[Variable]) -> None:
    block = region.blocks[0]
    with gen.lines.block(head), gen.scope():
        gen.operations(block.operations[:-1])
        last = block.operations[-1]
        assign(gen, last, variables, list(last.operands))
        gen.emitted.add(last)


def while_(gen: FunctionGenerator, op: Operation) -> None:
    """Run the first region; while its condition holds, the second one."""
    gen.lines.source(op.location)
    before_region(gen, op, repeated=True)
    test, body = op.regions[0].blocks[0], op.regions[1].blocks[0]
    carried = [Variable(gen, argument) for argument in test.arguments]
    assign(gen, op, carried, list(op.operands))
    gen.emitted.add(op)
    pairs = zip(body.arguments, op.results, strict=True)
    passed = [Variable(gen, argument, argument.name or result.name) for argument, result in pairs]
    with gen.lines.block("while (true)"), gen.scope():
        for variable, argument in zip(carried, test.arguments, strict=True):
            variable.read_as(gen, argument)
        gen.operations(test.operations[:-1])
        condition = test.operations[-1]
        assign(gen, condition, passed, list(condition.operands[1:]))
        gen.emitted.add(condition)
        gen.lines.add(f"if (!{gen.scalar(condition.operands[0])}) break;")
        for variable, argument in zip(passed, body.arguments, strict=True):
            variable.read_as(gen, argument)
        gen.operations(body.operations[:-1])
        last = body.operations[-1]
        assign(gen, last, carried, list(last.operands))
        gen.emitted.add(last)
    for variable, result in zip(passed, op.results, strict=True):
        variable.read_as(gen, result)


# --------------------------------------------------------------------------------------------- branches
class Body:
    """The blocks of a function: branches become ifs, joins become labels; branches back are refused."""

    def __init__(self, gen: FunctionGenerator, region: Region) -> None:
        self.gen = gen
        # Blocks that nothing reaches are left out: the frontend makes some after a return.
        self.order = self._reachable(region.blocks[0])
        self.predecessors: dict[Block, list[Block]] = {block: [] for block in self.order}
        for block in self.order:
            for target, _ in block.operations[-1].successors:
                self.predecessors[target].append(block)
        self.variables: dict[Block, list[Variable]] = {}
        self.labels: dict[Block, str] = {}
        self.dominator = self._dominators()

    def _reachable(self, entry: Block) -> list[Block]:
        """Reverse post-order."""
        seen: set[Block] = set()
        order: list[Block] = []
        active: set[Block] = set()

        def visit(block: Block) -> None:
            seen.add(block)
            active.add(block)
            for target, _ in block.operations[-1].successors:
                if target in active:
                    raise unsupported(block.operations[-1], "that leads back is not supported")
                if target not in seen:
                    visit(target)
            active.discard(block)
            order.append(block)

        visit(entry)
        return order[::-1]

    def _dominators(self) -> dict[Block, Block]:
        place = {block: number for number, block in enumerate(self.order)}
        result: dict[Block, Block] = {self.order[0]: self.order[0]}
        for block in self.order[1:]:
            first, *others = self.predecessors[block]
            for other in others:
                while first is not other:
                    if place[first] > place[other]:
                        first = result[first]
                    else:
                        other = result[other]
            result[block] = first
        return result

    def emit(self, block: Block) -> None:
        gen = self.gen
        joins = [
            other for other in self.order[1:] if self.dominator[other] is block and len(self.predecessors[other]) > 1
        ]
        gen.operations(block.operations[:-1])
        for join in joins:
            self.labels[join] = gen.names.new("after")
            self.variables[join] = [Variable(gen, argument) for argument in join.arguments]
        self._inside_joins(block, joins)

    def _inside_joins(self, block: Block, joins: list[Block]) -> None:
        """The branch at the block's end, with the blocks where its ways meet again after it."""
        gen = self.gen
        if not joins:
            self._terminator(block.operations[-1])
            return
        *earlier, last = joins
        with gen.lines.block(""), gen.scope():
            self._inside_joins(block, earlier)
        gen.lines.add(f"{self.labels[last]}:;")
        for variable, argument in zip(self.variables[last], last.arguments, strict=True):
            variable.read_as(gen, argument)
        with gen.lines.block(""), gen.scope():
            self.emit(last)

    def _terminator(self, op: Operation) -> None:
        gen = self.gen
        gen.lines.source(op.location)
        if op.name == "tt.return":
            values = list(op.operands)
            for number, value in enumerate(values):
                if isinstance(value.type, TensorType):
                    raise unsupported(op, "of a block from a function that is not inlined is not supported")
                gen.lines.add(f"result{number} = {gen.scalar(value)};")
            gen.lines.add("return;")
        elif op.name == "cf.br":
            self._go(op, *op.successors[0])
        elif op.name == "cf.cond_br":
            condition = gen.scalar(op.operands[0])
            for head, (target, values) in zip((f"if ({condition})", "else"), op.successors, strict=True):
                with gen.lines.block(head), gen.scope():
                    self._go(op, target, values)
        else:
            raise unsupported(op)
        gen.emitted.add(op)

    def _go(self, op: Operation, target: Block, values: Sequence[Value]) -> None:
        gen = self.gen
        if target in self.labels:
            assign(gen, op, self.variables[target], list(values))
            gen.lines.add(f"goto {self.labels[target]};")
            return
        for argument, value in zip(target.arguments, values, strict=True):
            if isinstance(argument.type, TensorType):
                gen.nodes[argument] = gen.node(value)
            else:
                gen.scalars[argument] = gen.scalar(value)
                if isinstance(argument.type, PointerType):
                    gen.pointer_roots[argument] = gen.pointer_roots.get(value)
        self.emit(target)


def call(gen: FunctionGenerator, op: Operation) -> None:
    """A call of a function that was not inlined: scalars and pointers only."""
    from .sinks import settle_loads

    for value in (*op.operands, *op.results):
        if isinstance(value.type, TensorType) or not cxx.knows(value.type):
            raise unsupported(op, f"with a value of type {value.type} is not supported")
    settle_loads(gen, op)
    gen.lines.source(op.location)
    function = gen.module.function_name(str(op.attributes["callee"]))
    arguments = ["program", *(gen.scalar(value) for value in op.operands)]
    for result in op.results:
        name = gen.name(result, result.name or "result")
        gen.lines.add(f"{cxx.register(result.type)} {name};")
        gen.scalars[result] = name
        if isinstance(result.type, PointerType):
            gen.pointer_roots[result] = None
        arguments.append(name)
    gen.lines.add(f"{function}({', '.join([*arguments, *gen.module.scratch_argument()])});")


RULES: dict[str, Rule] = {"scf.for": for_, "scf.if": if_, "scf.while": while_, "tt.call": call}
