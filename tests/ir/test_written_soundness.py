"""Random programs that pass pointers around, run step by step: what a run writes or reads is found by the analysis."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from opgraft.jit.ir import parse, written_arguments

POINTERS, CONDITIONS = 4, 3
PTR = "!tt.ptr<f32>"
PARAMETERS = [PTR] * POINTERS + ["i1"] * CONDITIONS + ["f32", "i32", "index"]
NAMES = [f"%p{i}" for i in range(POINTERS)] + [f"%c{i}" for i in range(CONDITIONS)] + ["%v", "%n", "%three"]


class _Program:
    """Text of a module whose functions are drawn statement by statement."""

    def __init__(self, draw, choices):
        self.draw = draw
        self.choices = choices
        self.lines = []
        self.count = 0

    def pick(self, choices):
        return self.draw(st.sampled_from(choices))

    def fresh(self):
        self.count += 1
        return f"%x{self.count}"

    def add(self, line):
        self.lines.append(line)

    def function(self, name, visibility, callees):
        arguments = ", ".join(f"{n}: {t}" for n, t in zip(NAMES, PARAMETERS, strict=True))
        result = f"{PTR}" if visibility == "private" else "()"
        self.add(
            f'"tt.func"() <{{function_type = ({", ".join(PARAMETERS)}) -> {result}, sym_name = "{name}", '
            f'sym_visibility = "{visibility}"}}> ({{'
        )
        self.add(f"^bb0({arguments}):")
        pointers = self.statements(NAMES[:POINTERS], 5, 2, callees)
        if visibility == "private":
            self.add(f'"tt.return"({self.pick(pointers)}) : ({PTR}) -> ()')
        else:
            self.add('"tt.return"() : () -> ()')
        self.add("}) : () -> ()")

    def statements(self, pointers, most, depth, callees):
        """A few statements; returns the pointers that are known after them."""
        pointers = list(pointers)
        kinds = ["store", "load", "offset", "number"]
        if self.choices:
            kinds += ["select", "if", "for"] if depth else ["select"]
        kinds += ["call"] if callees else []
        for _ in range(self.draw(st.integers(1, most))):
            pointers += getattr(self, f"add_{self.pick(kinds)}")(pointers, depth, callees)
        return pointers

    def add_store(self, pointers, depth, callees):
        self.add(f'"tt.store"({self.pick(pointers)}, %v) : ({PTR}, f32) -> ()')
        return []

    def add_load(self, pointers, depth, callees):
        sizes = "operandSegmentSizes = array<i32: 1, 0, 0>"
        self.add(f'{self.fresh()} = "tt.load"({self.pick(pointers)}) <{{{sizes}}}> : ({PTR}) -> f32')
        return []

    def add_select(self, pointers, depth, callees):
        name, condition = self.fresh(), self.pick(NAMES[POINTERS : POINTERS + CONDITIONS])
        operands = f"{condition}, {self.pick(pointers)}, {self.pick(pointers)}"
        self.add(f'{name} = "arith.select"({operands}) : (i1, {PTR}, {PTR}) -> {PTR}')
        return [name]

    def add_offset(self, pointers, depth, callees):
        name = self.fresh()
        self.add(f'{name} = "tt.addptr"({self.pick(pointers)}, %n) : ({PTR}, i32) -> {PTR}')
        return [name]

    def add_number(self, pointers, depth, callees):
        number, name = self.fresh(), self.fresh()
        self.add(f'{number} = "tt.ptr_to_int"({self.pick(pointers)}) : ({PTR}) -> i64')
        self.add(f'{name} = "tt.int_to_ptr"({number}) : (i64) -> {PTR}')
        return [name]

    def add_if(self, pointers, depth, callees):
        name, condition = self.fresh(), self.pick(NAMES[POINTERS : POINTERS + CONDITIONS])
        self.add(f'{name} = "scf.if"({condition}) ({{')
        for end in ("}, {", f"}}) : (i1) -> {PTR}"):
            inner = self.statements(pointers, 3, depth - 1, callees)
            self.add(f'"scf.yield"({self.pick(inner)}) : ({PTR}) -> ()')
            self.add(end)
        return [name]

    def add_for(self, pointers, depth, callees):
        name, a, b, i = self.fresh(), self.fresh(), self.fresh(), self.fresh()
        self.add(f'{name}:2 = "scf.for"(%three, %three, %three, {self.pick(pointers)}, {self.pick(pointers)}) ({{')
        self.add(f"^bb0({i}: index, {a}: {PTR}, {b}: {PTR}):")
        inner = self.statements([a, b, *pointers], 3, depth - 1, callees)
        self.add(f'"scf.yield"({self.pick([a, b, *inner])}, {self.pick(inner)}) : ({PTR}, {PTR}) -> ()')
        self.add(f"}}) : (index, index, index, {PTR}, {PTR}) -> ({PTR}, {PTR})")
        return [f"{name}#0", f"{name}#1"]

    def add_call(self, pointers, depth, callees):
        name = self.fresh()
        operands = [self.pick(pointers) for _ in range(POINTERS)] + NAMES[POINTERS:]
        callee = self.pick(callees)
        self.add(
            f'{name} = "tt.call"({", ".join(operands)}) <{{callee = @{callee}}}> : ({", ".join(PARAMETERS)}) -> {PTR}'
        )
        return [name]


@st.composite
def programs(draw, choices):
    program = _Program(draw, choices)
    program.add('"builtin.module"() ({')
    program.function("inner", "private", [])
    program.function("outer", "private", ["inner"])
    program.function("kernel", "public", ["inner", "outer"])
    program.add("}) : () -> ()")
    return "\n".join(program.lines)


class _Run:
    """Runs a function on pointers that are numbers of arguments, and notes what is accessed."""

    TURNS = 3  # of every loop

    def __init__(self, module):
        self.functions = module.functions
        self.written, self.read = set(), set()

    def call(self, function, arguments):
        block = function.regions[0].blocks[0]
        return self.block(block, dict(zip(block.arguments, arguments, strict=True)))

    def block(self, block, values):
        for op in block.operations:
            operands = [values[value] for value in op.operands]
            if op.name in ("tt.return", "scf.yield"):
                return operands
            values.update(zip(op.results, self.step(op, operands, values), strict=True))
        raise AssertionError("no terminator")

    def step(self, op, operands, values):
        if op.name == "tt.store":
            self.written.add(operands[0])
            return []
        if op.name == "tt.load":
            self.read.add(operands[0])
            return [None]
        if op.name == "arith.select":
            return [operands[1] if operands[0] else operands[2]]
        if op.name in ("tt.addptr", "tt.ptr_to_int", "tt.int_to_ptr"):
            return operands[:1]
        if op.name == "scf.if":
            return self.block(op.regions[0 if operands[0] else 1].blocks[0], values)
        if op.name == "scf.for":
            carried, body = operands[3:], op.regions[0].blocks[0]
            for _ in range(self.TURNS):
                values.update(zip(body.arguments, [None, *carried], strict=True))
                carried = self.block(body, values)
            return carried
        assert op.name == "tt.call"
        return self.call(self.functions[op.attributes["callee"]], operands)


@settings(max_examples=100, deadline=None)
@given(programs(choices=True))
def test_what_a_run_accesses_is_among_what_is_found(text):
    module = parse(text)
    answer = written_arguments(module)
    assert answer.exact, answer.reasons
    run = _Run(module)
    for conditions in itertools.product([False, True], repeat=CONDITIONS):
        run.call(module.entry, [*range(POINTERS), *conditions, None, None, None])
    assert run.written <= set(answer.written)
    assert run.read <= set(answer.read)


@settings(max_examples=100, deadline=None)
@given(programs(choices=False))
def test_without_choices_what_is_found_is_what_a_run_accesses(text):
    module = parse(text)
    run = _Run(module)
    run.call(module.entry, [*range(POINTERS), *[False] * CONDITIONS, None, None, None])
    answer = written_arguments(module)
    assert (set(answer.written), set(answer.read)) == (run.written, run.read)
