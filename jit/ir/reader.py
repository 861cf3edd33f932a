"""Reads Triton IR in MLIR's generic form: `parse(text) -> Module`.

The generic form has one operation a line,

    %r:2 = "dialect.name"(%a, %b)[^bb1] <{properties}> ({regions}) {attrs} : (types) -> (types) loc(#loc1)

so a line splits by one regular expression, and everything behind the operands is read once for each distinct
text (a kernel repeats the same types and properties hundreds of times). Whatever the fast split does not know
goes to the strict reader of `fragments`. Types and counts of operands are checked against their definitions,
so what comes back is either the structure that the text means or an IRError with the line.

The empty block by which `generic_text` obtains the generic form, or a stray `scf.yield` before the real
terminator, is left out.
"""

from __future__ import annotations

import itertools
import re
from typing import Any, NoReturn

from .errors import IRError
from .fragments import Fragments
from .invariants import REGIONS, broken, broken_branches
from .locations import UNKNOWN, Location
from .structure import Block, Module, Operation, Region, Value, copied_attributes
from .types import Type

_ID = r"%[\w$.-]+"
_HEAD = re.compile(rf'\s*(?:({_ID}(?::\d+)?(?:, {_ID}(?::\d+)?)*) = )?"([\w$.-]+)"\(((?:%[^)\n]*)?)\)', re.ASCII)
_USE = re.compile(rf"{_ID}(?:#\d+)?", re.ASCII)
_FIRST = re.compile(r"\s*(\S)")
_LABEL = re.compile(r"\s*\^([\w$.-]+)", re.ASCII)
_BLOCK_NAME = re.compile(r"\^([\w$.-]+)", re.ASCII)
_ARGUMENT = re.compile(rf"({_ID}):[ ]*", re.ASCII)
_END_OF_LABEL = re.compile(r":[ \t]*(?://[^\n]*)?\n")
_REGION_END = re.compile(r"\s*\}(\)|, \{\n)")
_ALIAS = re.compile(r"^([#!][\w$-]+) = ", re.ASCII | re.MULTILINE)
_ALIAS_LINE = re.compile(r"\n([#!][\w$-]+) = ", re.ASCII)  # the same, found ten times faster
_BLANK = re.compile(r"(?:[ \t]*(?://[^\n]*)?\n)*[ \t]*")
_PLAIN_PROPERTIES = re.compile(r'<\{[^{}"\n]*\}>')
_ISOLATED = frozenset({"tt.func", "builtin.module", "ttg.warp_specialize.partitions"})

# What stands behind the operands: successors, attributes, names of the discardable ones, whether the
# attributes hold lists or dictionaries (then each operation needs its own), operand and result types.
_Tail = tuple[tuple[str, ...], dict[str, Any], frozenset[str], bool, tuple[Type, ...], tuple[Type, ...]]
_NONE: frozenset[str] = frozenset()
_NOT_YET = Block()  # the owner of values that are used before their definition


def parse(text: str) -> Module:
    """The module that `text` (generic form, with or without locations) describes.

    Raises IRError, with the line and what was expected, for text that is not generic form, is cut off, or has
    syntax that this reader does not know.
    """
    reader = _Reader(text)
    try:
        return reader.module()
    except RecursionError:
        raise IRError("expected fewer brackets in each other", reader.cursor.line()) from None


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
        aliases: dict[str, int] = {}
        self.cursor = Fragments(self.text, aliases)
        first = _ALIAS.match(self.text)
        for match in itertools.chain((first,) if first is not None else (), _ALIAS_LINE.finditer(self.text)):
            if aliases.setdefault(match[1], match.end()) != match.end():
                self.cursor.fail(f"one definition of {match[1]}; this is another", match.start(1))
        self.pos = 0
        self.values: dict[str, Value] = {}
        self.scopes: list[_Scope] = []
        self.tails: dict[str, _Tail] = {}
        self.locations: dict[str, Location] = {}
        self.properties: dict[str, dict[str, Any]] = {}

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
        """Read through the closing brace; True when another region of the same operation follows."""
        scope = _Scope(isolated)
        outer_values = self.values
        if isolated:
            self.values = {}
        self.scopes.append(scope)
        block: Block | None = None
        text = self.text
        while True:
            first = _FIRST.match(text, self.pos)
            if first is None:
                self.fail("an operation, a block label or '}'", len(text))
            if first[1] == "}":
                end = _REGION_END.match(text, self.pos)
                if end is None:
                    self.fail("'})' or '}, {' at the end of a region")
                break
            if first[1] == "^":
                label = _LABEL.match(text, self.pos)
                if label is None:
                    self.fail("a block label such as ^bb1:")
                block = region.append(self._block_label(label, scope))
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
        assert region.parent is not None
        if region.parent.name != "builtin.module":
            self._check(broken_branches(region), self.pos)
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
        text = self.text
        match = _HEAD.match(text, self.pos)
        if match is None:
            self.fail('an operation in generic form, %r = "dialect.name"(...) ... : (...) -> ..., or "}"')
        start, end = match.end(), text.index("\n", match.end())
        if text.endswith("({", start, end):
            return self._operation_with_regions(match, end, scope)
        self.pos = end + 1
        location_at = text.rfind(" loc(", start, end)
        tail = text[start : location_at if location_at >= 0 else end]
        known = self.tails.get(tail)
        if known is None:
            self.cursor.pos = start
            known = self._tail(start + len(tail))
            if self.cursor.pos == start + len(tail):
                self.tails[tail] = known
            elif text.startswith(" loc(", self.cursor.pos):
                location_at = self.cursor.pos  # the location itself holds " loc("
            else:
                self.cursor.fail("a location or the end of the line after the operation")
        targets, attributes, discardable, nested, operand_types, result_types = known
        result_names, name, operand_text = match.groups()
        op = Operation(
            name,
            self._operands(name, operand_text, operand_types, match.start(3)),
            result_types,
            copied_attributes(attributes) if nested else attributes.copy(),
            (),
            [self._target(target, scope) for target in targets] if targets else (),
            self._location(location_at + 1, end) if location_at >= 0 else UNKNOWN,
            discardable,
        )
        self._note_pending(op, operand_text, match.start(3), scope)
        if result_names is not None or result_types:
            self._name_results(op, result_names, scope, match.start())
        if nested or name in REGIONS or name == "tt.func":
            self._check(broken(op), match.start())
        return op

    def _location(self, start: int, end: int) -> Location:
        """The location written between `start` and `end`, the end of the line."""
        key = self.text[start:end]
        found = self.locations.get(key)
        if found is None:
            cursor = self.cursor
            cursor.pos = start
            found = cursor.read_location()
            if cursor.pos != end:
                cursor.fail("the end of the line after the operation's location")
            self.locations[key] = found
        return found

    def _operation_with_regions(self, match: re.Match[str], end: int, scope: _Scope) -> Operation:
        """An operation whose first line ends, at `end`, with the brace of its first region."""
        result_names, name, operand_text = match.groups()
        cursor = self.cursor
        cursor.pos = match.end()
        targets = self._targets()
        properties = self._properties()
        cursor.expect("({", "before the regions of an operation")
        if cursor.pos != end:
            cursor.fail("the end of the line after '({'")
        self.pos = end + 1
        op = Operation(name)
        isolated = name in _ISOLATED
        while self._region(op.add_region(), isolated):
            pass
        end = self.text.index("\n", self.pos)
        cursor.pos = self.pos
        extra = cursor.read_dictionary() if cursor.peek() == "{" else {}
        cursor.expect(":", "and the types of the operation")
        operand_types, result_types = cursor.read_signature()
        if self.text.startswith(" loc(", cursor.pos):
            op.location = self._location(cursor.pos + 1, end)
        elif cursor.pos != end:
            cursor.fail("a location or the end of the line after the operation")
        self.pos = end + 1
        op.operands = self._operands(name, operand_text, operand_types, match.start(3))
        self._note_pending(op, operand_text, match.start(3), scope)
        op.attributes = copied_attributes(self._merge(properties, extra))
        op.discardable = frozenset(extra) if extra else _NONE
        op.targets.extend([self._target(target, scope) for target in targets])
        op.results = [Value(type, op, index) for index, type in enumerate(result_types)]
        self._name_results(op, result_names, scope, match.start())
        self._check(broken(op), match.start())
        return op

    def _check(self, problem: str | None, pos: int) -> None:
        if problem is not None:
            self.fail(problem, pos)

    def _operands(self, name: str, text: str, types: tuple[Type, ...], pos: int) -> list[Value]:
        """The operands of an operation; an unplaced value stands for one that is defined later (`_note_pending`)."""
        names = text.split(", ") if text else []
        values = self.values
        try:
            operands = [values[used] for used in names]
            if tuple([value.type for value in operands]) == types:
                return operands
        except KeyError:
            pass
        if len(names) != len(types):
            self.fail(f"as many types as operands ({name} has {len(names)} operands, {len(types)} types)", pos)
        operands = []
        for used, type in zip(names, types, strict=True):
            value = values.get(used)
            if value is None:
                if _USE.fullmatch(used) is None:
                    self.fail("operands such as %a, %b#1", pos)
                value = Value(type, _NOT_YET, -1)
            elif value.type is not type:
                self.fail(f"{used} to be used with its type {value.type}, not {type}", pos)
            operands.append(value)
        return operands

    def _note_pending(self, op: Operation, text: str, pos: int, scope: _Scope) -> None:
        """Remember the operands of `op` that are still to be defined."""
        for index, value in enumerate(op.operands):
            if value.owner is _NOT_YET:
                scope.pending.append((text.split(", ")[index], op, index, value.type, pos))

    def _name_results(self, op: Operation, names: str | None, scope: _Scope, pos: int) -> None:
        results = op.results
        if len(results) == 1 and names is not None and ":" not in names and "," not in names:
            self._define(names, results[0], scope, pos)
            return
        keys: list[str] = []
        for group in names.split(", ") if names is not None else ():
            name, _, size = group.partition(":")
            count = min(int(size or 1), len(results) + 1)
            keys.extend([f"{name}#{index}" for index in range(count)] if size else [name])
        if len(keys) != len(results):
            self.fail(
                f"as many result names as results ({op.name} has {len(keys)} names, {len(results)} types)",
                pos,
            )
        for key, value in zip(keys, results, strict=True):
            self._define(key, value, scope, pos)

    # -- what follows the operands ---------------------------------------------------------------------------

    def _tail(self, end: int) -> _Tail:
        targets = self._targets()
        properties = self._properties()
        cursor = self.cursor
        cursor.skip()
        extra = cursor.read_dictionary() if cursor.peek() == "{" else {}
        cursor.expect(":", "and the types of the operation")
        operand_types, result_types = cursor.read_signature(end)
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
        start = cursor.pos
        if not cursor.text.startswith("<{", start):
            return {}
        match = _PLAIN_PROPERTIES.match(self.text, start)
        if match is not None and match[0] in self.properties:
            cursor.pos = match.end()
            return self.properties[match[0]]
        cursor.pos += 1
        properties = cursor.read_dictionary()
        cursor.expect(">", "after the properties")
        if match is not None and match.end() == cursor.pos:
            self.properties[match[0]] = properties
        return properties

    def _target(self, name: str, scope: _Scope) -> Block:
        block = scope.blocks.get(name)
        if block is None:
            block = scope.blocks[name] = Block()
        return block


def _drop_stray_code(region: Region) -> None:
    """Leave out what was put in to get the generic form: an empty last block, an `scf.yield` in mid-block."""
    blocks = region.blocks
    last = blocks[-1] if len(blocks) > 1 else None
    if last is not None and not last.operations and not last.arguments and not last.predecessors:
        blocks.pop().parent = None
    for block in blocks:
        operations = block.operations
        if "scf.yield" not in [op.name for op in operations[:-1]]:
            continue
        for index in reversed(range(len(operations) - 1)):
            if operations[index].name == "scf.yield" and not operations[index].operands:
                operations.pop(index).parent = None
