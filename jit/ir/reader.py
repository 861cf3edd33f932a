"""Reads Triton IR in MLIR's generic form: `parse(text) -> Module`.

The generic form has one operation a line,

    %r:2 = "dialect.name"(%a, %b)[^bb1, ^bb2] <{properties}> ({regions}) {attributes} : (types) -> (types) loc(#loc1)

so a line splits by one regular expression, and everything behind the operands is read once for each distinct text
(a kernel repeats the same types and properties hundreds of times). Whatever the fast split does not know goes to the
strict reader of `fragments`. Types and counts of operands are checked against their definitions, so what comes back
is either the structure that the text means or an IRError with the line.

The empty block by which `generic_text` obtains the generic form, or a stray `scf.yield` before the real terminator,
is left out.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from .errors import IRError
from .fragments import Cursor
from .locations import UNKNOWN, Location
from .structure import Block, Module, Operation, Region, Value
from .types import Type

_ID = r"%[\w$.-]+"
_HEAD = re.compile(
    rf'[ \t]*(?:({_ID}(?::\d+)?(?:, {_ID}(?::\d+)?)*) = )?"([\w$.-]+)"\(((?:{_ID}(?:#\d+)?(?:, )?)*)\)'
    r"(.*?)(?: loc\((#[\w$-]+)\))?$",
    re.ASCII | re.MULTILINE,
)
_LABEL = re.compile(r"[ \t]*\^([\w$.-]+)", re.ASCII)
_BLOCK_NAME = re.compile(r"\^([\w$.-]+)", re.ASCII)
_ARGUMENT = re.compile(rf"({_ID}):[ ]*", re.ASCII)
_END_OF_LABEL = re.compile(r":[ \t]*(?://[^\n]*)?\n")
_REGION_END = re.compile(r"[ \t]*\}(\)|, \{\n)")
_ALIAS = re.compile(r"^([#!][\w$-]+) = ", re.ASCII | re.MULTILINE)
_BLANK = re.compile(r"(?:[ \t]*(?://[^\n]*)?\n)*[ \t]*")
_ISOLATED = frozenset({"tt.func", "builtin.module"})

# What stands behind the operands: successors, attributes, names of the discardable ones, whether the attributes hold
# lists or dictionaries (then each operation needs its own), operand and result types.
_Tail = tuple[tuple[str, ...], dict[str, Any], frozenset[str], bool, tuple[Type, ...], tuple[Type, ...]]
_NONE: frozenset[str] = frozenset()


def parse(text: str) -> Module:
    """The module that `text` (generic form, with or without locations) describes.

    Raises IRError, with the line and what was expected, for text that is not generic form, is cut off, or has syntax
    that this reader does not know.
    """
    return _Reader(text).module()


class _Scope:
    """The names of one region: values and blocks; used before their definition: `pending`."""

    __slots__ = ("blocks", "isolated", "names", "pending")

    def __init__(self, isolated: bool) -> None:
        self.isolated = isolated
        self.names: list[str] = []
        self.blocks: dict[str, Block] = {}
        self.pending: list[tuple[str, Operation, int, Type, int]] = []


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text if text.endswith("\n") else text + "\n"
        aliases = {match[1]: match.end() for match in _ALIAS.finditer(self.text)}
        self.cursor = Cursor(self.text, aliases)
        self.pos = 0
        self.values: dict[str, Value] = {}
        self.scopes: list[_Scope] = []
        self.tails: dict[str, _Tail] = {}
        self.locations: dict[str, Location] = {}

    def fail(self, expected: str, pos: int | None = None) -> NoReturn:
        self.cursor.fail(expected, self.pos if pos is None else pos)

    # -- the module ------------------------------------------------------------------------------------------

    def module(self) -> Module:
        self._skip_aliases()
        if not self.text.startswith('"builtin.module"', self.pos):
            self.fail('Triton IR in generic form, starting with "builtin.module" (see generic_text)')
        scope = _Scope(isolated=True)
        self.scopes.append(scope)
        op = self._operation(scope)
        self._skip_aliases()
        if self.pos < len(self.text):
            self.fail("the end of the text after the module")
        return Module(op)

    def _skip_aliases(self) -> None:
        """Pass blank lines, comments and alias definitions."""
        while True:
            blank = _BLANK.match(self.text, self.pos)
            assert blank is not None
            self.pos = blank.end()
            match = _ALIAS.match(self.text, self.pos)
            if match is None:
                return
            cursor = self.cursor
            cursor.pos = self.pos
            cursor.pos = match.end(1)
            cursor._alias(match[1], "an alias")  # reads the whole definition, or says what is wrong with it
            self.pos = self.text.index("\n", match.end()) + 1

    # -- regions and blocks ----------------------------------------------------------------------------------

    def _region(self, region: Region, isolated: bool) -> bool:
        """Read up to and including the closing brace; True when another region of the same operation follows."""
        scope = _Scope(isolated)
        outer_values = self.values
        if isolated:
            self.values = {}
        self.scopes.append(scope)
        block: Block | None = None
        text = self.text
        while True:
            while text.startswith("\n", self.pos):
                self.pos += 1
            end = _REGION_END.match(text, self.pos)
            if end is not None:
                break
            label = _LABEL.match(text, self.pos)
            if label is not None:
                block = self._block_label(label, scope)
                region.append(block)
                continue
            if block is None:
                block = region.append(Block())
            op = self._operation(scope)
            op.parent = block
            block.operations.append(op)
        for name, target in scope.blocks.items():
            if target.parent is not region:
                self.fail(f"a definition of the block ^{name} in this region")
        _drop_stray_code(region)
        for target in region.blocks:
            if not target.operations:
                self.fail("operations in each block of this region")
        self.scopes.pop()
        self._leave(scope)
        if isolated:
            self.values = outer_values
        self.pos = end.end()
        return end[1] != ")"

    def _leave(self, scope: _Scope) -> None:
        """Resolve what was used before its definition and forget the names of the region."""
        for name, op, index, type, pos in scope.pending:
            value = self.values.get(name)
            if value is None:
                if scope.isolated:
                    self.fail(f"a definition of {name} in this function", pos)
                self.scopes[-1].pending.append((name, op, index, type, pos))
                continue
            if value.type is not type:
                self.fail(f"{name} to be used with its type {value.type}, not {type}", pos)
            op.set_operand(index, value)
        for name in scope.names:
            del self.values[name]

    def _block_label(self, match: re.Match[str], scope: _Scope) -> Block:
        name = match[1]
        block = scope.blocks.get(name)
        if block is None:
            block = scope.blocks[name] = Block()
        elif block.parent is not None:
            self.fail(f"each block once; ^{name} is defined twice")
        cursor = self.cursor
        cursor.pos = match.end()
        if cursor.text.startswith("(", cursor.pos):
            cursor.pos += 1
            while True:
                argument = cursor.take(_ARGUMENT)
                if argument is None:
                    cursor.fail("a block argument such as %x: i32")
                type = cursor.read_type()
                cursor.skip()
                at_location = cursor.text.startswith("loc(", cursor.pos)
                location = cursor.read_location() if at_location else UNKNOWN
                self._define(argument[1], block.add_argument(type, location), scope, argument.start())
                if cursor.accept(")"):
                    break
                cursor.expect(",", "or ')' between block arguments")
        end = _END_OF_LABEL.match(self.text, cursor.pos)
        if end is None:
            cursor.fail("':' and the end of the line after a block label")
        self.pos = end.end()
        return block

    def _define(self, name: str, value: Value, scope: _Scope, pos: int) -> None:
        if name in self.values:
            self.fail(f"each value once; {name} is already defined", pos)
        self.values[name] = value
        scope.names.append(name)

    # -- operations ------------------------------------------------------------------------------------------

    def _operation(self, scope: _Scope) -> Operation:
        start = self.pos
        match = _HEAD.match(self.text, start)
        if match is None:
            self.fail('an operation in generic form, %r = "dialect.name"(...) ... : (...) -> ..., or "}"')
        result_names, name, operand_text, tail, alias = match.groups()
        if tail.endswith("({") and alias is None:
            return self._operation_with_regions(match, scope)
        self.pos = match.end() + 1
        known = self.tails.get(tail)
        if known is None:
            self.cursor.pos = match.start(4)
            known = self._tail()
            self.tails[tail] = known
            if self.cursor.pos != match.end(4):
                if alias is not None or not self.cursor.text.startswith(" loc(", self.cursor.pos):
                    self.cursor.fail("a location or the end of the line after the operation")
                del self.tails[tail]
        location = self._location(alias, match.end(4), match.end())
        targets, attributes, discardable, nested, operand_types, result_types = known
        op = self._make(name, operand_text, operand_types, match.start(3), scope)
        op.attributes = _own(attributes) if nested else dict(attributes)
        op.discardable = discardable
        op.location = location
        if targets:
            op.targets.extend(self._target(target, scope) for target in targets)
        if result_names is not None or result_types:
            self._results(op, result_names, result_types, scope, match.start())
        return op

    def _location(self, alias: str | None, start: int, end: int) -> Location:
        """The location behind an operation: the alias, or what is written between `start` and `end`."""
        key = self.text[start:end] if alias is None else alias
        found = self.locations.get(key)
        if found is None:
            self.cursor.pos = start
            if alias is None and self.cursor.pos >= end:
                return UNKNOWN
            found = self.cursor.read_location()
            if self.cursor.pos != end:
                self.cursor.fail("the end of the line after the operation's location")
            self.locations[key] = found
        return found

    def _operation_with_regions(self, match: re.Match[str], scope: _Scope) -> Operation:
        result_names, name, operand_text = match[1], match[2], match[3]
        cursor = self.cursor
        cursor.pos = match.start(4)
        targets = self._targets()
        attributes = self._properties()
        cursor.expect("({", "before the regions of an operation")
        if cursor.pos != match.end():
            cursor.fail("the end of the line after '({'")
        self.pos = match.end() + 1
        op = Operation(name)
        isolated = name in _ISOLATED
        while True:
            if not self._region(op.add_region(), isolated):
                break
        cursor.pos = self.pos
        extra = cursor.read_dictionary() if cursor.peek() == "{" else {}
        cursor.expect(":", "and the types of the operation")
        operand_types, result_types = cursor.read_signature()
        line_end = self.text.index("\n", cursor.pos)
        cursor.skip()
        op.location = self._location(None, min(cursor.pos, line_end), line_end)
        self.pos = line_end + 1
        op.operands = self._operands(op, operand_text, operand_types, match.start(3), scope)
        op.attributes = self._merge(attributes, extra)
        op.discardable = frozenset(extra)
        op.targets.extend(self._target(target, scope) for target in targets)
        self._results(op, result_names, result_types, scope, match.start())
        return op

    def _make(
        self, name: str, operand_text: str, types: tuple[Type, ...], pos: int, scope: _Scope
    ) -> Operation:
        op = Operation(name)
        if operand_text or types:
            op.operands = self._operands(op, operand_text, types, pos, scope)
        return op

    def _operands(
        self, op: Operation, text: str, types: tuple[Type, ...], pos: int, scope: _Scope
    ) -> list[Value]:
        names = text.split(", ") if text else []
        if len(names) != len(types):
            self.fail(
                f"as many types as operands; {op.name} has {len(names)} operands and {len(types)} types", pos
            )
        operands = []
        for index, (name, type) in enumerate(zip(names, types, strict=True)):
            value = self.values.get(name)
            if value is None:  # used before its definition: an unplaced value stands for it
                if not name:
                    self.fail("an operand", pos)
                scope.pending.append((name, op, index, type, pos))
                value = Value(type, op, -1)
            elif value.type is not type:
                self.fail(f"{name} to be used with its type {value.type}, not {type}", pos)
            operands.append(value)
        return operands

    def _results(
        self, op: Operation, names: str | None, types: tuple[Type, ...], scope: _Scope, pos: int
    ) -> None:
        op.results = [Value(type, op, index) for index, type in enumerate(types)]
        count = 0
        for group in names.split(", ") if names is not None else ():
            name, _, size = group.partition(":")
            for index in range(int(size or 1)):
                if count == len(types):
                    break
                self._define(f"{name}#{index}" if size else name, op.results[count], scope, pos)
                count += 1
            else:
                continue
            count = -1
            break
        if count != len(types):
            self.fail(f"as many result names as the {len(types)} result types of {op.name}", pos)

    # -- what follows the operands ---------------------------------------------------------------------------

    def _tail(self) -> _Tail:
        targets = self._targets()
        properties = self._properties()
        cursor = self.cursor
        cursor.skip()
        extra = cursor.read_dictionary() if cursor.peek() == "{" else {}
        cursor.expect(":", "and the types of the operation")
        operand_types, result_types = cursor.read_signature()
        attributes = self._merge(properties, extra)
        nested = any(isinstance(value, list | dict) for value in attributes.values())
        discardable = frozenset(extra) if extra else _NONE
        return targets, attributes, discardable, nested, operand_types, result_types

    def _merge(self, properties: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
        both = properties.keys() & extra.keys()
        if both:
            self.cursor.fail(f"{sorted(both)} either as property or as attribute, not both")
        return {**properties, **extra}

    def _targets(self) -> tuple[str, ...]:
        cursor = self.cursor
        if not cursor.text.startswith("[", cursor.pos):
            return ()
        cursor.pos += 1
        names = []
        while True:
            match = cursor.take(_BLOCK_NAME)
            if match is None:
                cursor.fail("a block name such as ^bb1")
            names.append(match[1])
            if cursor.accept("]"):
                return tuple(names)
            cursor.expect(",", "or ']' between successors")

    def _properties(self) -> dict[str, Any]:
        cursor = self.cursor
        cursor.skip()
        if not cursor.text.startswith("<{", cursor.pos):
            return {}
        cursor.pos += 1
        properties = cursor.read_dictionary()
        cursor.expect(">", "after the properties")
        return properties

    def _target(self, name: str, scope: _Scope) -> Block:
        block = scope.blocks.get(name)
        if block is None:
            block = scope.blocks[name] = Block()
        return block


def _own(attributes: dict[str, Any]) -> dict[str, Any]:
    from .structure import copied_attributes

    return copied_attributes(attributes)


def _drop_stray_code(region: Region) -> None:
    """Leave out what was put in to obtain the generic form: an empty last block, an `scf.yield` in mid-block."""
    blocks = region.blocks
    last = blocks[-1] if len(blocks) > 1 else None
    if last is not None and not last.operations and not last.arguments and not last.predecessors:
        blocks.pop().parent = None
    for block in blocks:
        operations = block.operations
        if any(op.name == "scf.yield" and not op.operands for op in operations[:-1]):
            kept = [
                op
                for op in operations
                if op is operations[-1] or op.name != "scf.yield" or op.operands or op.results
            ]
            block.operations[:] = kept
