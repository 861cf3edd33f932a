"""Reads the pieces of MLIR text that stand inside an operation: types, attributes and locations.

`Cursor(text, aliases)` walks over the whole text; each `read_*` method reads one piece at `pos`, strictly,
and leaves `pos` behind it. Grammar: the MLIR language reference (types, attributes, locations).
"""

from __future__ import annotations

import re
import struct
from typing import Any, NoReturn

from . import floats
from .attributes import UNIT, DenseArray, DenseElements, Float, Integer, Opaque, SymbolRef
from .errors import IRError
from .locations import UNKNOWN, Frame, Location, call_site, make_location, named, source_location
from .types import (
    F64,
    FLOAT_WIDTHS,
    I64,
    DescriptorType,
    FunctionType,
    OpaqueType,
    PointerType,
    ScalarType,
    TensorType,
    Type,
)

_SPACE = re.compile(r"[ \t]*")
_BLANKS = frozenset(" \t")
_WORD = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)
_NUMBER = re.compile(r"-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*(?:[eE][-+]?\d+)?)?)")
_INTEGER = re.compile(r"-?\d+")
_DIMENSION = re.compile(r"(\d+|\?)x")
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)")
_SCALAR = re.compile(rf"(?:[su]?i\d+|index|{'|'.join(FLOAT_WIDTHS)})\b")
_DIALECT_NAME = re.compile(r"[!#][A-Za-z_][\w$.-]*", re.ASCII)
_ALIAS_NAME = re.compile(r"[!#][\w$-]+", re.ASCII)
_BALANCED_STEP = re.compile(r'[^"<>(){}\[\]\n-]+|"(?:[^"\\\n]|\\.)*"|->|-|[<>(){}\[\]]')
_PAIRS = {"<": ">", "(": ")", "[": "]", "{": "}"}
_RANGE = re.compile(r"to (?:\d+)?:\d+")
# The text of most types, to look them up; it names no alias, so it means the same in every module.
_TYPE_TEXT = re.compile(r"tensor<(?:\d+x)*(?:{0}|!tt\.ptr<{0}>)>|!tt\.ptr<{0}>|{0}".replace("{0}", _SCALAR.pattern))
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
_SHORT_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


def unescape(body: str) -> str:
    """The text of a string literal's body; escaped bytes are UTF-8."""
    if "\\" not in body:
        return body

    parts = _ESCAPE.split(body)
    out = bytearray()
    for index, part in enumerate(parts):
        if index % 2 == 0:
            out += part.encode("utf-8", "surrogateescape")
        elif len(part) == 2:
            out.append(int(part, 16))
        else:
            out += _SHORT_ESCAPES.get(part, part).encode("utf-8")
    return out.decode("utf-8", "surrogateescape")


class Cursor:
    """A position in the text. `aliases` maps `#name` and `!name` to where their definition starts."""

    def __init__(self, text: str, aliases: dict[str, int] | None = None) -> None:
        self.text = text
        self.pos = 0
        self.aliases = {} if aliases is None else aliases
        self._signatures: dict[str, tuple[tuple[Type, ...], tuple[Type, ...]]] = {}
        self._resolved: dict[str, Any] = {}
        self._resolving: set[str] = set()

    # -- small steps -----------------------------------------------------------------------------------------

    def fail(self, expected: str, pos: int | None = None) -> NoReturn:
        """Raise IRError: `expected`, and what stands there."""
        at = self.pos if pos is None else pos
        line = self.line(at)
        rest = self.text[at:].split("\n", 1)[0]
        found = "the end of the text" if at >= len(self.text) else repr(rest[:60] or "end of line")
        raise IRError(f"expected {expected}, found {found}", line)

    def line(self, pos: int | None = None) -> int:
        """The line of a position, from 1."""
        return self.text.count("\n", 0, self.pos if pos is None else pos) + 1

    def skip(self) -> None:
        if self.text[self.pos : self.pos + 1] in _BLANKS:
            match = _SPACE.match(self.text, self.pos)
            assert match is not None
            self.pos = match.end()

    def accept(self, token: str) -> bool:
        if not self.text.startswith(token, self.pos):
            self.skip()
            if not self.text.startswith(token, self.pos):
                return False
        self.pos += len(token)
        return True

    def expect(self, token: str, context: str) -> None:
        if not self.accept(token):
            self.fail(f"{token!r} {context}")

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.pos)
        if match is None and self.text[self.pos : self.pos + 1] in _BLANKS:
            self.skip()
            match = pattern.match(self.text, self.pos)
        if match is not None:
            self.pos = match.end()
        return match

    def peek(self) -> str:
        self.skip()
        return self.text[self.pos : self.pos + 1]

    def read_integer(self, what: str) -> int:
        match = self.take(_INTEGER)
        if match is None:
            self.fail(what)
        return int(match[0])

    def read_string(self, what: str = "a string") -> str:
        match = self.take(_STRING)
        if match is None:
            self.fail(what)
        return unescape(match[1])

    def balanced(self) -> str:
        """The text from an opening bracket through its closing one."""
        start = self.pos
        stack: list[str] = []
        while True:
            match = _BALANCED_STEP.match(self.text, self.pos)
            if match is None:
                self.fail(f"{stack[-1]!r} to close the bracket" if stack else "a bracket")
            token = match[0]
            if token in _PAIRS:
                stack.append(_PAIRS[token])
            elif token in (">", ")", "]", "}"):
                if not stack or stack[-1] != token:
                    self.fail(repr(stack[-1]) if stack else "an opening bracket")
                stack.pop()
            self.pos = match.end()
            if not stack:
                return self.text[start : self.pos]

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
        match = self.take(_SCALAR)
        if match is not None:
            return ScalarType(match[0])
        match = _WORD.match(self.text, self.pos)
        if match is None:
            self.fail("a type")
        if match[0] == "tensor":
            self.pos = match.end()
            return self._tensor_type()
        if match[0] in _OTHER_TYPES:
            start, self.pos = self.pos, match.end()
            if self.text.startswith("<", self.pos):
                self.balanced()
            return OpaqueType(self.text[start : self.pos])
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
        return OpaqueType(self.text[start : self.pos])

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
            return self._number()
        match = _WORD.match(self.text, self.pos)
        if match is None:
            self.fail("an attribute")
        word = match[0]
        if word in ("true", "false", "unit"):
            self.pos = match.end()
            return UNIT if word == "unit" else word == "true"
        if word in ("dense", "array") and self.text.startswith("<", match.end()):
            self.pos = match.end() + 1
            return self._dense() if word == "dense" else self._dense_array()
        if word == "loc" and self.text.startswith("(", match.end()):
            return self.read_location()
        if word in _OTHER_ATTRIBUTES:
            start, self.pos = self.pos, match.end()
            if self.peek() in ("<", "["):
                self.balanced()
                if self.text.startswith("<", self.pos):
                    self.balanced()
            return Opaque(self.text[start : self.pos])
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
        match = self.take(_WORD)
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
                match = self.take(_WORD)
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
        return Opaque(self.text[start : self.pos])

    def _number(self) -> Any:
        start = self.pos
        match = self.take(_NUMBER)
        if match is None:
            self.fail("a number")
        word = match[0]
        is_decimal = "." in word
        type: Type = F64 if is_decimal else I64
        if self.accept(":"):
            type = self.read_type()
        if not isinstance(type, ScalarType):
            self.fail("an integer or float type for a number", start)
        if not type.is_float and is_decimal:
            self.fail(f"an integer of type {type}", start)
        value = self._scalar(word, type)
        if isinstance(value, bool):
            return value
        return Float(value, type) if type.is_float else Integer(int(value), type)

    def _scalar(self, word: str, type: ScalarType) -> bool | int | float:
        """The value of a literal of the given type."""
        if type.is_float:
            try:
                if word.startswith("0x"):
                    return floats.decode(type.name, int(word, 16))
                return floats.rounded(type.name, float(word))
            except IRError as error:  # a float type whose bits are not known
                raise IRError(str(error), self.line()) from None
        value = int(word, 0) if "0x" in word else int(word)
        return bool(value) if type.width == 1 else value

    def _dense_array(self) -> DenseArray:
        match = self.take(_SCALAR)
        if match is None:
            self.fail("the element type of array<...>")
        type = ScalarType(match[0])
        items: list[Any] = []
        if self.accept(":"):
            while True:
                items.append(self._element(type))
                if not self.accept(","):
                    break
        self.expect(">", "at the end of array<...>")
        return DenseArray(items, type)

    def _element(self, type: Type) -> bool | int | float:
        """One element of a dense constant."""
        if not isinstance(type, ScalarType):
            self.fail(f"a constant of numbers; {type} elements are not supported")
        match = self.take(_WORD)
        if match is not None:
            if match[0] not in ("true", "false") or type.width != 1:
                self.fail(f"a number of type {type}", match.start())
            return match[0] == "true"
        match = self.take(_NUMBER)
        if match is None or (not type.is_float and "." in match[0]):
            self.fail(f"a number of type {type}", self.pos if match is None else match.start())
        return self._scalar(match[0], type)

    def _dense(self) -> DenseElements:
        # The element type follows the elements: find it first, then read them.
        start = self.pos
        self.pos -= 1
        self.balanced()
        end = self.pos
        self.expect(":", "after dense<...>")
        type = self.read_type()
        if not isinstance(type, TensorType):
            self.fail("a tensor type after dense<...>", end)
        after = self.pos
        self.pos = start
        self.skip()
        first = self.text[self.pos]
        splat: bool | int | float | None = None
        values: list[Any] | tuple[Any, ...] | None = None
        if first == '"':
            values = self._raw_elements(type)
        elif first == "[":
            values = []
            self._nested(type, type.shape, values)
        elif first == ">" and type.size == 0:
            values = []
        else:
            splat = self._element(type.element)
        self.expect(">", "at the end of dense<...>")
        if self.pos != end:
            self.fail("the end of dense<...>")
        self.pos = after
        return DenseElements(type, splat, values)

    def _nested(self, type: TensorType, shape: tuple[int, ...], out: list[Any]) -> None:
        start = self.pos
        if not shape:
            out.append(self._element(type.element))
            return
        self.expect("[", f"in a constant of type {type}")
        for index in range(shape[0]):
            if index and not self.accept(","):
                self.fail(f"{shape[0]} elements here for {type}", start)
            self._nested(type, shape[1:], out)
        if not self.accept("]"):
            self.fail(f"{shape[0]} elements here for {type}", start)

    def _raw_elements(self, type: TensorType) -> tuple[Any, ...]:
        """The elements of `dense<"0x...">`: little-endian bytes, one after the other."""
        start = self.pos
        word = self.read_string()
        element = type.element
        if not isinstance(element, ScalarType) or not re.fullmatch(r"0x(?:[0-9A-Fa-f]{2})*", word):
            self.fail("raw elements in hex", start)
        raw = bytes.fromhex(word[2:])
        count, size = type.size, max(element.width // 8, 1)
        if element.width == 1 and len(raw) == (count + 7) // 8 != count:
            return tuple(bool(raw[i // 8] >> i % 8 & 1) for i in range(count))
        if len(raw) != count * size:
            self.fail(f"{count * size} bytes for {type}", start)
        if element.width == 1:
            return tuple(bool(byte) for byte in raw)
        code = {1: "B", 2: "H", 4: "I", 8: "Q"}.get(size)
        if code is None:
            self.fail(f"raw elements of 1, 2, 4 or 8 bytes, not {element}", start)
        if element.is_float:
            return tuple(floats.decode(element.name, bits) for bits in struct.unpack(f"<{count}{code}", raw))
        return struct.unpack(f"<{count}{code.lower()}", raw)

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
        match = self.take(_WORD)
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
            metadata = self.balanced() if self.text.startswith("<", self.pos) else ""
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
