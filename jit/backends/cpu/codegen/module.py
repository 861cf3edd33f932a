"""A Triton module as one C++ file: its functions, the entry that runs the grid, memory for large blocks.

Entry point: :func:`generate`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from ....ir import Module, Operation, TensorType
from . import control, cxx, dot, memory, reductions, shapes
from .errors import unsupported
from .function import STACK_BYTES, FunctionGenerator, Rule
from .order import axes
from .work import grain
from .writer import Lines

_BYTES = {"bool": 1, "i8": 1, "i16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8}
_MATH = re.compile(
    r"\b(exp|exp2|expm1|exp10|log|log2|log10|log1p|logb|sin|cos|tan|asin|acos|atan|atan2|sinh|cosh|tanh|asinh|acosh|atanh|"
    r"erf|erfc|cbrt|rcbrt|pow|fmod|hypot|lgamma|tgamma|j0|j1|y0|y1|round|nextafter|fdim|ieee_remainder|is_nan|is_infinite|"
    r"is_finite|sign_bit|saturate_unit|bits_of_float|float_of_bits|round_to_i64|round_to_i32|truncate_to_i32|floor_to_i32|"
    r"ceil_to_i32|count_leading_zeros|population_count|find_first_set|bit_reverse|quotient|multiply_high_signed)\("
)
_BUFFER = re.compile(r"@buffer (\w+) (\w+) (\d+)@")
# What a C function must not be called, because the library or the loader knows another of that name.
_LIBRARY = re.compile(
    r"(?:main|exp|log|sin|cos|tan|pow|sqrt|floor|ceil|round|trunc|fmod|fma|erf|gamma|abs|printf|malloc|free|memcpy|"
    r"memset|abort|exit|init|fini|_init|_fini|write|read)[fl]?$|^_?opgraft"
)


@dataclass(frozen=True)
class Kernel:
    """Generated code: C++ text, the exported function's name, whether assertions must be looked at after a launch."""

    source: str
    symbol: str
    asserts: bool


def generate(module: Module, vector_bytes: int) -> Kernel:
    """C++ for a Triton module. ``vector_bytes``: of the widest vectors to use (64, 32 or 16).

    Raises ``UnsupportedOperation``, naming the operation and its source line, for what cannot be translated.
    """
    return ModuleGenerator(module, vector_bytes).kernel()


class ModuleGenerator:
    rules: ClassVar[dict[str, Rule]] = {
        **shapes.RULES, **memory.RULES, **reductions.RULES, **control.RULES, **dot.RULES,
    }  # fmt: skip
    lazy: ClassVar[frozenset[str]] = shapes.LAZY

    def __init__(self, module: Module, vector_bytes: int) -> None:
        self.module = module
        self.vector_bytes = vector_bytes
        self.headers: set[str] = {"memory.h", "launch.h"}
        self.asserts = False
        self._names: dict[str, str] = {}
        self._scratch = 0

    def kernel(self) -> Kernel:
        entry = self.module.entry
        for block in (block for region in entry.regions for block in region.blocks):
            for op in block.operations[-1:]:
                if op.name == "tt.return" and op.operands:
                    raise unsupported(op, "of a value ends the kernel: a kernel stores its results and returns nothing")
        name = str(entry.attributes["sym_name"])
        symbol = cxx.identifier(name)
        if _LIBRARY.match(symbol):
            symbol += "_kernel"
        self._names = {
            other: cxx.identifier(other.split(".")[-1]) + ("_program" if op is entry else f"_{number}")
            for number, (other, op) in enumerate(self.module.functions.items())
        }
        bodies = [self._function(op) for op in self._callees_first(entry)]
        body = "\n\n".join(bodies)
        if _MATH.search(body):
            self.headers.add("math.h")
        return Kernel(self._file(entry, symbol, body), symbol, self.asserts)

    def _callees_first(self, entry: Operation) -> list[Operation]:
        order: list[Operation] = []
        active: list[Operation] = []

        def visit(op: Operation) -> None:
            if op in order:
                return
            if op in active:
                raise unsupported(op, "is recursive, which is not supported")
            active.append(op)
            for inner in op.walk():
                if inner.name == "tt.call":
                    visit(self.module.functions[str(inner.attributes["callee"])])
            active.pop()
            order.append(op)

        visit(entry)
        return order

    def function_name(self, callee: str) -> str:
        return self._names[callee]

    def scratch_argument(self) -> list[str]:
        return ["scratch"]

    def declare_buffer(self, name: str, type: str, elements: int) -> str:
        """A line that becomes the declaration of a block once it is known whether it fits the stack."""
        return f"@buffer {name} {type} {elements}@"

    def _function(self, op: Operation) -> str:
        name = str(op.attributes["sym_name"])
        gen = FunctionGenerator(self, op, self.vector_bytes)
        for reserved in ("program", "scratch", "args", self._names[name]):
            gen.names.new(reserved)
        block = op.regions[0].blocks[0]
        parameters = ["const Program& program"]
        for argument in block.arguments:
            if isinstance(argument.type, TensorType) or not cxx.knows(argument.type):
                raise unsupported(op, f"has a parameter of type {argument.type}, which is not supported")
            text = gen.names.new(argument.name or "arg")
            gen.scalars[argument] = text
            gen.pointer_roots[argument] = argument
            parameters.append(f"{cxx.register(argument.type)} {text}")
        for number, type in enumerate(op.attributes["function_type"].results):
            if isinstance(type, TensorType) or not cxx.knows(type):
                raise unsupported(op, f"returns {type}, which is not supported")
            parameters.append(f"{cxx.register(type)}& result{gen.names.new(f'result{number}')[6:]}")
        parameters.append("[[maybe_unused]] u8* scratch")
        body = control.Body(gen, op.regions[0])
        body.emit(body.order[0])
        text = self._place_buffers(str(gen.lines))
        if text.endswith("  return;"):
            text = text[: -len("  return;")].rstrip()
        return f"static void {self._names[name]}({', '.join(parameters)}) {{\n{text}\n}}"

    def _place_buffers(self, text: str) -> str:
        """Declare blocks on the stack, or, when they are too many, in the memory of each thread."""
        sizes = {m[1]: _BYTES[m[2]] * int(m[3]) for m in _BUFFER.finditer(text)}
        on_stack = sum(sizes.values()) <= STACK_BYTES

        def declare(match: re.Match[str]) -> str:
            name, type, count = match.groups()
            if on_stack:
                return f"alignas(64) {type} {name}[{count}];"
            place = self._scratch
            self._scratch += -(-sizes[name] // 64) * 64
            return f"{type}* const {name} = reinterpret_cast<{type}*>(scratch + {place});"

        return _BUFFER.sub(declare, text)

    def _file(self, entry: Operation, symbol: str, body: str) -> str:
        out = Lines()
        block = entry.regions[0].blocks[0]
        program = self._names[str(entry.attributes["sym_name"])]
        where = entry.location
        out.add(f"// Kernel {symbol}" + (f", {where.file}:{where.line}" if where.file else ""))
        out.lines += [f'#include "{header}"' for header in sorted(self.headers)]
        out.lines += ["", "namespace opgraft {", "", body, "", "}  // namespace opgraft", ""]
        export = 'extern "C" __attribute__((visibility("default")))'
        head = f"{export} void {symbol}(int grid0, int grid1, int grid2, int num_threads, void** args)"
        with out.block(head):
            out.add("using namespace opgraft;")
            arguments = []
            for number, argument in enumerate(block.arguments):
                text = f"load(static_cast<{cxx.storage(argument.type)}*>(args[{number}]))"
                name = f"arg{number}"
                out.add(cxx.constant(argument.type, name, text) + f"  // {argument.name or name}")
                arguments.append(name)
            call = f"{program}({', '.join(['program', *arguments, 'scratch'])});"
            worth = grain(entry, self.vector_bytes, dict(zip(block.arguments, arguments, strict=True)))
            first, second, _ = axes(entry)
            if first:
                out.add(f"// Programs along axis {first} run first: what they store lies side by side.")
            with out.block(
                f"run_grid<{self._scratch}, {first}, {second}>(grid0, grid1, grid2, num_threads, {worth}, "
                "[=](const Program& program, [[maybe_unused]] u8* scratch)",
                "});",
            ):
                out.add(call)
        if self.asserts:
            out.add(f"{export} const char* opgraft_take_fault() {{ return opgraft::take_fault(); }}")
        return str(out) + "\n"
