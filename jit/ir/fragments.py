"""Reads the pieces of MLIR text that stand inside an operation: types, attributes and locations.

`Fragments(text, aliases)` walks over the whole text; each `read_*` method reads one piece at `pos`, strictly,
and leaves `pos` behind it. Grammar: the MLIR language reference (types, attributes, locations).
"""

from __future__ import annotations

import re
from typing import Any

from .attributes import UNIT, Opaque, SymbolRef, attribute_text
from .constants import SCALAR, read_dense, read_dense_array, read_number
from .cursor import WORD, Cursor
from .locations import UNKNOWN, Frame, Location, call_site, make_location, named, source_location
from .types import (
    DescriptorType,
    FunctionType,
    OpaqueType,
    PointerType,
    ScalarType,
    TensorType,
    Type,
)

_DIMENSION = re.compile(r"(\d+|\?)x")
_DIALECT_NAME = re.compile(r"[!#][A-Za-z_][\w$.-]*", re.ASCII)
_ALIAS_NAME = re.compile(r"[!#][\w$-]+(?![\w$.-])", re.ASCII)
_STRING_OR_ALIAS = re.compile(r'"(?:[^"\\\n]|\\.)*"|[!#][\w$-]+(?!\.)\b', re.ASCII)
_RANGE = re.compile(r"to (?:\d+)?:\d+")
# The text of most types, to look them up; it names no alias, so it means the same in every module.
_TYPE_TEXT = re.compile(r"tensor<(?:\d+x)*(?:{0}|!tt\.ptr<{0}>)>|!tt\.ptr<{0}>|{0}".replace("{0}", SCALAR.pattern))
_KNOWN_TYPES: dict[str, Type] = {}
_SIGNATURE = re.compile(r"\(([^()]*)\) -> (?:\(([^()]*)\)|([^()\s]+))")
# Likewise for attributes that are one short word, and the usual forms of locations.
_ENTRY = re.compile(r"([A-Za-z_][\w$.]*) = (-?[\w.+-]+(?: : \w+)?|#[\w-]+\.[\w$.-]+<\w+>|@[\w$.]+)(?=[,}])", re.ASCII)
_KNOWN_ATTRIBUTES: dict[str, Any] = {}
_ALIAS_LOCATION = re.compile(r"loc\((#[\w$-]+)\)", re.ASCII)
_FILE_LOCATION = re.compile(r'loc\("([^"\\\n]*)":(\d+):(\d+)\)')
_NAME_LOCATION = re.compile(r'loc\("([^"\\\n]*)"\((#[\w$-]+)\)\)', re.ASCII)
_OTHER_TYPES = frozenset({"none", "complex", "tuple", "vector", "memref", "token"})
_OTHER_ATTRIBUTES = frozenset({"affine_map", "affine_set", "strided", "dense_resource", "distinct"})


class Fragments(Cursor):
    """A position in the text. `aliases` maps `#name` and `!name` to where their definition starts."""

    def __init__(self, text: str, aliases: dict[str, int] | None = None) -> None:
        super().__init__(text)
        self.aliases = {} if aliases is None else aliases
        self._signatures: dict[str, tuple[tuple[Type, ...], tuple[Type, ...]]] = {}
        self._resolved: dict[str, Any] = {}
        self._resolving: set[str] = set()

    def _text_from(self, start: int) -> str:
        """The text from `start` to here with the aliases in it written out, so that it stands for itself."""
        end = self.pos
        text = self.text[start:end]

        def written_out(match: re.Match[str]) -> str:
            name = match[0]
            return name if name[0] == '"' or name not in self.aliases else attribute_text(self._alias(name, "a type"))

        if "#" in text or "!" in text:
            text = _STRING_OR_ALIAS.sub(written_out, text)
            self.pos = end
        return text

    def _alias(self, name: str, kind: str) -> Any:
        """What the alias `name` stands for."""
        if name in self._resolved:
            return self._resolved[name]
        if name not in self.aliases:
            self.fail(f"{kind}; {name} is not defined in this text", self.pos - len(name))
        if name in self._resolving:
            self.fail(f"a definition of {name} that does not use itself", self.aliases[name])
        self._resolving.add(name)
        back, self.pos = self.pos, self.aliases[name]
        value: Any
        if self.text.startswith("loc(", self.pos):
            value = self.read_location()
        else:
            value = self.read_type() if name[0] == "!" else self.read_attribute()
        if self.pos < len(self.text) and self.text[self.pos] != "\n":
            self.fail(f"the end of the definition of {name}")
        self.pos = back
        self._resolving.discard(name)
        self._resolved[name] = value
        return value

    # -- types -----------------------------------------------------------------------------------------------

    def read_type(self) -> Type:
        self.skip()
        start = self.pos
        match = _TYPE_TEXT.match(self.text, start)
        if match is None:
            return self._read_type()
        known = _KNOWN_TYPES.get(match[0])
        if known is not None:
            self.pos = match.end()
            return known
        known = self._read_type()
        if self.pos == match.end():
            _KNOWN_TYPES[match[0]] = known
        return known

    def _read_type(self) -> Type:
        first = self.text[self.pos : self.pos + 1]
        if first == "!":
            return self._dialect_type()
        if first == "(":
            inputs, results = self.read_signature()
            return FunctionType(inputs, results)
        match = self.take(SCALAR)
        if match is not None:
            return ScalarType(match[0])
        match = WORD.match(self.text, self.pos)
        if match is None:
            self.fail("a type")
        if match[0] == "tensor":
            self.pos = match.end()
            return self._tensor_type()
        if match[0] in _OTHER_TYPES:
            start, self.pos = self.pos, match.end()
            if self.text.startswith("<", self.pos):
                self.balanced()
            return OpaqueType(self._text_from(start))
        self.fail("a type")

    def _tensor_type(self) -> TensorType:
        self.expect("<", "after tensor")
        type = self._tensor_body()
        self.expect(">", "at the end of the tensor type")
        return type

    def _tensor_body(self) -> TensorType:
        shape = []
        while (match := self.take(_DIMENSION)) is not None:
            if match[1] == "?":
                self.fail("a static dimension (a Triton tensor has no dynamic ones)", match.start())
            shape.append(int(match[1]))
        element = self.read_type()
        encoding = None
        if self.accept(","):
            value = self.read_attribute()
            if not isinstance(value, Opaque):
                self.fail("a tensor encoding such as #ttg.blocked<...>")
            encoding = str(value)
        return TensorType(tuple(shape), element, encoding)

    def _dialect_type(self) -> Type:
        start = self.pos
        match = _DIALECT_NAME.match(self.text, start)
        if match is None:
            self.fail("a type name after '!'")
        name = match[0]
        self.pos = match.end()
        if name in self.aliases:
            found = self._alias(name, "a type")
            assert isinstance(found, Type)
            return found
        if "." not in name:
            self.fail(f"a type; {name} is not defined in this text", start)
        if name == "!tt.ptr":
            self.expect("<", "after !tt.ptr")
            pointee = self.read_type()
            space = self.read_integer("the address space of the pointer") if self.accept(",") else 1
            self.expect(">", "at the end of the pointer type")
            return PointerType(pointee, space)
        if name == "!tt.tensordesc":
            self.expect("<", "after !tt.tensordesc")
            self.skip()
            spelled = self.text.startswith("tensor<", self.pos)
            if spelled:
                block = self.read_type()
                assert isinstance(block, TensorType)
            else:
                block = self._tensor_body()
            self.expect(">", "at the end of the descriptor type")
            return DescriptorType(block, spelled)
        if self.text.startswith("<", self.pos):
            self.balanced()
        return OpaqueType(self._text_from(start))

    def read_signature(self, end: int | None = None) -> tuple[tuple[Type, ...], tuple[Type, ...]]:
        """`(i32, f32) -> f32` as (inputs, results); `end`, where it should end, is for looking it up."""
        self.skip()
        if end is not None:
            found = self._known_signature(end)
            if found is not None:
                self.pos = end
                return found
        return self._read_signature()

    def _known_signature(self, end: int) -> tuple[tuple[Type, ...], tuple[Type, ...]] | None:
        """The signature between `pos` and `end` where all of its types are known by their text; else None."""
        text = self.text[self.pos : end]
        found = self._signatures.get(text)
        if found is not None:
            return found
        match = _SIGNATURE.fullmatch(text)
        if match is None:
            return None
        left, many, one = match.groups()
        right = one or many
        try:
            inputs = tuple([_KNOWN_TYPES[word] for word in left.split(", ")]) if left else ()
            results = tuple([_KNOWN_TYPES[word] for word in right.split(", ")]) if right else ()
        except KeyError:
            return None
        self._signatures[text] = inputs, results
        return inputs, results

    def _read_signature(self) -> tuple[tuple[Type, ...], tuple[Type, ...]]:
        inputs = self._type_list()
        self.expect("->", "in the function type")
        results = self._type_list() if self.peek() == "(" else (self.read_type(),)
        return inputs, results

    def _type_list(self) -> tuple[Type, ...]:
        self.expect("(", "before the types")
        types: list[Type] = []
        if self.accept(")"):
            return ()
        while True:
            types.append(self.read_type())
            if self.accept(")"):
                return tuple(types)
            self.expect(",", "or ')' between types")

    # -- attributes ------------------------------------------------------------------------------------------

    def read_attribute(self) -> Any:
        self.skip()
        first = self.text[self.pos : self.pos + 1]
        if first == '"':
            text = self.read_string()
            if self.accept(":"):  # a typed string: nothing in Triton has one
                self.fail("no type after a string attribute")
            return text
        if first == "[":
            return self._array()
        if first == "{":
            return self.read_dictionary()
        if first == "@":
            return self._symbol()
        if first == "#":
            return self._dialect_attribute()
        if first in ("!", "("):
            return self.read_type()
        if first == "-" or first.isdigit():
            return read_number(self)
        match = WORD.match(self.text, self.pos)
        if match is None:
            self.fail("an attribute")
        word = match[0]
        if word in ("true", "false", "unit"):
            self.pos = match.end()
            return UNIT if word == "unit" else word == "true"
        if word in ("dense", "array") and self.text.startswith("<", match.end()):
            self.pos = match.end() + 1
            return read_dense(self) if word == "dense" else read_dense_array(self)
        if word == "loc" and self.text.startswith("(", match.end()):
            return self.read_location()
        if word in _OTHER_ATTRIBUTES:
            start, self.pos = self.pos, match.end()
            if self.peek() in ("<", "["):
                self.balanced()
                if self.text.startswith("<", self.pos):
                    self.balanced()
            return Opaque(self._text_from(start))
        return self.read_type()

    def read_dictionary(self) -> dict[str, Any]:
        """`{a = 1 : i32, b}`."""
        self.expect("{", "before the attributes")
        entries: dict[str, Any] = {}
        if self.accept("}"):
            return entries
        while True:
            self.skip()
            start = self.pos
            match = _ENTRY.match(self.text, start)
            if match is not None:
                name, word = match.groups()
                self.pos = match.end()
                value = _KNOWN_ATTRIBUTES.get(word)
                if value is None:
                    self.pos = match.start(2)
                    value = self.read_attribute()
                    if self.pos == match.end() and word[0] != "@":
                        _KNOWN_ATTRIBUTES[word] = value
            else:
                name = self._attribute_name()
                value = self.read_attribute() if self.accept("=") else UNIT
            if name in entries:
                self.fail(f"each attribute once; {name!r} comes twice", start)
            entries[name] = value
            if self.text.startswith(", ", self.pos):  # how MLIR prints it
                self.pos += 2
                continue
            if self.accept("}"):
                return entries
            self.expect(",", "or '}' between attributes")

    def _attribute_name(self) -> str:
        if self.peek() == '"':
            return self.read_string()
        match = self.take(WORD)
        if match is None:
            self.fail("the name of an attribute")
        return match[0]

    def _array(self) -> list[Any]:
        self.expect("[", "")
        items: list[Any] = []
        if self.accept("]"):
            return items
        while True:
            items.append(self.read_attribute())
            if self.accept("]"):
                return items
            self.expect(",", "or ']' between the elements of an array")

    def _symbol(self) -> SymbolRef:
        names = []
        while True:
            self.expect("@", "before a symbol name")
            if self.peek() == '"':
                names.append(self.read_string())
            else:
                match = self.take(WORD)
                if match is None:
                    self.fail("a symbol name after '@'")
                names.append(match[0])
            if not self.text.startswith("::@", self.pos):
                return SymbolRef("::".join(names))
            self.pos += 2

    def _dialect_attribute(self) -> Any:
        start = self.pos
        match = _ALIAS_NAME.match(self.text, start)
        if match is not None and match[0] in self.aliases:
            self.pos = match.end()
            return self._alias(match[0], "an attribute")
        match = _DIALECT_NAME.match(self.text, start)
        if match is None or "." not in match[0]:
            self.fail("an attribute such as #dialect.name<...>; this alias is not defined in this text", start)
        self.pos = match.end()
        if self.text.startswith("<", self.pos):
            self.balanced()
        return Opaque(self._text_from(start))

    # -- locations -------------------------------------------------------------------------------------------

    def read_location(self) -> Location:
        """`loc(...)`."""
        match = _ALIAS_LOCATION.match(self.text, self.pos)
        if match is not None:
            self.pos = match.end(1)
            found = self._alias(match[1], "a location")
            if not isinstance(found, Location):
                self.fail(f"a location; {match[1]} is none", match.start(1))
            self.pos = match.end()
            return found
        match = _FILE_LOCATION.match(self.text, self.pos)
        if match is not None:
            self.pos = match.end()
            return source_location(match[1], int(match[2]), int(match[3]))
        match = _NAME_LOCATION.match(self.text, self.pos)
        if match is not None:
            self.pos = match.end(2)
            inner = self._alias(match[2], "a location")
            if isinstance(inner, Location):
                self.pos = match.end()
                return named(inner, match[1])
            self.pos = match.start()
        self.expect("loc(", "for a location")
        location = self._location()
        self.expect(")", "at the end of the location")
        return location

    def _location(self) -> Location:
        first = self.peek()
        start = self.pos
        if first == "#":
            match = self.take(_ALIAS_NAME)
            if match is None:
                self.fail("a location alias")
            found = self._alias(match[0], "a location")
            if not isinstance(found, Location):
                self.fail(f"a location; {match[0]} is none", start)
            return found
        if first == '"':
            return self._file_or_name()
        match = self.take(WORD)
        word = match[0] if match is not None else ""
        if word == "unknown":
            return UNKNOWN
        if word == "callsite":
            self.expect("(", "after callsite")
            callee = self._location()
            self.expect("at", "between callee and caller")
            caller = self._location()
            self.expect(")", "at the end of callsite")
            return call_site(callee, caller)
        if word == "fused":
            at = self.pos
            if self.text.startswith("<", at):
                self.balanced()
            metadata = self._text_from(at)
            self.expect("[", "after fused")
            parts = [self._location()]
            while self.accept(","):
                parts.append(self._location())
            self.expect("]", "at the end of fused")
            text = f"fused{metadata}[{', '.join([part.text for part in parts])}]"
            # the first part that is known stands for all
            chosen = next((part for part in parts if part.frames), parts[0])
            return make_location(text, chosen.frames, chosen.names)
        self.fail("a location", start)

    def _file_or_name(self) -> Location:
        start = self.pos
        word = self.read_string()
        if not self.text.startswith(":", self.pos):
            if not self.accept("("):
                return named(UNKNOWN, word)
            inner = self._location()
            self.expect(")", "at the end of the named location")
            return named(inner, word)
        self.pos += 1
        line = self.read_integer("a line number")
        column = 0
        if self.text.startswith(":", self.pos):
            self.pos += 1
            column = self.read_integer("a column number")
        match = self.take(_RANGE)
        if match is not None:
            return make_location(self.text[start : self.pos], (Frame(word, line, column),), ())
        return source_location(word, line, column)
