"""Writes a module in MLIR's generic form: `print_module(module) -> str`; Triton reads and verifies it.

Values keep the names of the user's variables (`%offs_3`), each distinct location stands once at the top.
"""

from __future__ import annotations

from .attributes import dictionary_text
from .locations import UNKNOWN, Location
from .structure import Block, Module, Operation, Region, Value
from .types import Type, signature_text


def print_module(module: Module) -> str:
    """MLIR text of the module, with locations."""
    printer = _Printer()
    printer.operation(module.op, "")
    aliases = [f"{alias} = loc({text})" for text, alias in printer.locations.items()]
    return "\n".join([*aliases, *printer.lines, ""])


def print_operation(op: Operation) -> str:
    """MLIR text of one operation without locations, for messages and debugging."""
    printer = _Printer(with_locations=False)
    printer.operation(op, "")
    return "\n".join(printer.lines)


class _Printer:
    def __init__(self, with_locations: bool = True) -> None:
        self.with_locations = with_locations
        self.lines: list[str] = []
        self.locations: dict[str, str] = {}
        self.names: dict[Value, str] = {}
        self.blocks: dict[Block, str] = {}
        self.counter = 0
        self.signatures: dict[tuple[tuple[Type, ...], tuple[Type, ...]], str] = {}

    def location(self, location: Location) -> str:
        if not self.with_locations:
            return ""
        if location is UNKNOWN:
            return " loc(unknown)"
        alias = self.locations.get(location.text)
        if alias is None:
            alias = self.locations[location.text] = f"#loc{len(self.locations)}"
        return f" loc({alias})"

    def name(self, value: Value) -> str:
        found = self.names.get(value)
        return found if found is not None else self._new_name(value)

    def _fresh(self, value: Value) -> str:
        source = value.name
        self.counter += 1
        if source is not None and source.isascii() and source.isidentifier():
            return f"%{source}_{self.counter}"
        return f"%{self.counter}"

    def _new_name(self, value: Value) -> str:
        """Name a value, at its definition or at a use that comes first."""
        if isinstance(value.owner, Operation) and len(value.owner.results) > 1:
            base = self._fresh(value.owner.results[0])
            for result in value.owner.results:
                self.names[result] = f"{base}#{result.index}"
        else:
            self.names[value] = self._fresh(value)
        return self.names[value]

    def block_name(self, block: Block) -> str:
        found = self.blocks.get(block)
        if found is None:
            found = self.blocks[block] = f"^bb{len(self.blocks)}"
        return found

    def operation(self, op: Operation, indent: str) -> None:
        out = [indent]
        if op.results:
            first = self.name(op.results[0])
            count = len(op.results)
            out.append(f"{first} = " if count == 1 else f"{first.removesuffix('#0')}:{count} = ")
        names = self.names
        operands = ", ".join([names.get(value) or self._new_name(value) for value in op.operands])
        out.append(f'"{op.name}"({operands})')
        if op.targets:
            out.append(f"[{', '.join([self.block_name(block) for block in op.targets])}]")
        extra: dict[str, object] = {}
        if op.attributes:
            properties: dict[str, object] = {}
            for name, value in op.attributes.items():
                target = extra if name in op.discardable or "." in name else properties
                target[name] = value
            if properties:
                out.append(f" <{dictionary_text(properties)}>")
        if op.regions:
            out.append(" (")
            for index, region in enumerate(op.regions):
                out.append("{" if index == 0 else ", {")
                self.lines.append("".join(out))
                self._region(region, indent)
                out = [indent, "}"]
            out.append(")")
        if extra:
            out.append(f" {dictionary_text(extra)}")
        inputs = tuple([value.type for value in op.operands])
        results = tuple([value.type for value in op.results])
        signature = self.signatures.get((inputs, results))
        if signature is None:
            signature = self.signatures[inputs, results] = signature_text(inputs, results)
        out.append(f" : {signature}{self.location(op.location)}")
        self.lines.append("".join(out))

    def _region(self, region: Region, indent: str) -> None:
        for index, block in enumerate(region.blocks):
            if index or block.arguments:  # nothing branches to the first block
                arguments = ", ".join([f"{self.name(a)}: {a.type}{self.location(a.location)}" for a in block.arguments])
                label = self.block_name(block)
                self.lines.append(f"{indent}{label}({arguments}):" if arguments else f"{indent}{label}:")
            for op in block.operations:
                self.operation(op, indent + "  ")
