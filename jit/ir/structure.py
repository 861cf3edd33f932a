"""Operations, blocks, regions and values: Triton IR as a mutable SSA structure.

`Module` is the entry: `module.functions`, `module.entry`, `module.walk()`. Rewrites go through the methods,
which keep the uses of values true: `block.insert`, `op.insert_before`, `op.insert_after`, `op.set_operand`,
`value.replace_all_uses_with`, `op.erase`, `op.clone`, `block.add_argument`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .attributes import DenseArray
from .errors import IRError
from .locations import UNKNOWN, Location
from .types import FunctionType, Type

# Loops whose results have the names of their first region's arguments, behind so many others
_CARRIED = {"scf.for": 1, "scf.while": 0}


class Value:
    """A result of an operation or an argument of a block.

    `uses` lists (operation, operand index), in no promised order. `name` is the variable in the user's
    source, when the location carries one.
    """

    __slots__ = ("_location", "_name", "index", "owner", "type", "uses")

    def __init__(self, type: Type, owner: Operation | Block, index: int, location: Location | None = None) -> None:
        self.type = type
        self.owner = owner
        self.index = index
        self.uses: list[tuple[Operation, int]] = []
        self._location = location
        self._name: str | None = None

    @property
    def location(self) -> Location:
        if self._location is not None:
            return self._location
        return self.owner.location if isinstance(self.owner, Operation) else UNKNOWN

    @property
    def name(self) -> str | None:
        if self._name is not None:
            return self._name
        if isinstance(self.owner, Block):
            if self._location is None:
                return None
            names = self._location.names
            is_parameter = self.owner.parent is not None and self.owner.parent.is_function_body
            # `n = parameter` names the parameter once more; its own name is the innermost
            return names[-1] if names and is_parameter else self._location.name
        return _result_name(self.owner, self.index)

    @name.setter
    def name(self, name: str | None) -> None:
        self._name = name

    @property
    def defining_op(self) -> Operation | None:
        """The operation that makes this value; None for a block argument."""
        return self.owner if isinstance(self.owner, Operation) else None

    @property
    def users(self) -> list[Operation]:
        """Operations that use this value, each once."""
        return list(dict.fromkeys(op for op, _ in self.uses))

    def replace_all_uses_with(self, other: Value, except_for: Sequence[Operation] = ()) -> None:
        """Let every user (but `except_for`) use `other`, a value of the same type."""
        if other is self:
            return
        if other.type is not self.type:
            raise IRError(f"cannot replace a value of type {self.type} by one of type {other.type}")
        for op, index in list(self.uses):
            if op not in except_for:
                op.set_operand(index, other)

    def __repr__(self) -> str:
        kind = "argument" if isinstance(self.owner, Block) else self.owner.name
        return f"<Value {self.name or ''} #{self.index} of {kind}: {self.type}>"


def _result_name(op: Operation, index: int) -> str | None:
    if len(op.results) == 1:
        return op.location.name
    lead = _CARRIED.get(op.name)
    if lead is not None and op.regions and op.regions[0].blocks:
        arguments = op.regions[0].blocks[0].arguments
        if lead + index < len(arguments):
            return arguments[lead + index].name
    # Each result that is assigned wraps the location once more, in the order of assignment.
    names = op.location.names[::-1]
    return names[index] if len(names) == len(op.results) else None


class Operation:
    """An operation. `attributes` merges MLIR's properties and discardable attributes; names in `discardable`
    are printed as the latter (as are names with a dot, which belong to a dialect)."""

    __slots__ = (
        "_operands",
        "_targets",
        "attributes",
        "discardable",
        "location",
        "name",
        "parent",
        "regions",
        "results",
    )

    def __init__(
        self,
        name: str,
        operands: Sequence[Value] = (),
        result_types: Sequence[Type] = (),
        attributes: dict[str, Any] | None = None,
        regions: Sequence[Region] = (),
        successors: Sequence[Block] = (),
        location: Location = UNKNOWN,
        discardable: frozenset[str] = frozenset(),
    ) -> None:
        self.name = name
        self.attributes: dict[str, Any] = {} if attributes is None else attributes
        self.discardable = discardable
        self.location = location
        self.parent: Block | None = None
        self._targets: list[Block] = list(successors)
        self._operands: tuple[Value, ...] = tuple(operands)
        for index, value in enumerate(self._operands):
            value.uses.append((self, index))
        self.results: list[Value] = [Value(type, self, index) for index, type in enumerate(result_types)]
        self.regions: list[Region] = []
        for region in regions:
            self.add_region(region)

    # -- reading ---------------------------------------------------------------------------------------------

    @property
    def operands(self) -> tuple[Value, ...]:
        return self._operands

    @operands.setter
    def operands(self, operands: Sequence[Value]) -> None:
        self.drop_operands()
        self._operands = tuple(operands)
        for index, value in enumerate(self._operands):
            value.uses.append((self, index))

    @property
    def result(self) -> Value:
        """The only result."""
        if len(self.results) != 1:
            raise IRError(f"{self.name} has {len(self.results)} results, not one")
        return self.results[0]

    @property
    def targets(self) -> list[Block]:
        """The successor blocks of a branch."""
        return self._targets

    @property
    def successors(self) -> list[tuple[Block, list[Value]]]:
        """Successor blocks, each with the operands that become its arguments."""
        if not self._targets:
            return []
        if len(self._targets) == 1:
            return [(self._targets[0], list(self._operands))]
        sizes = self.attributes.get("operandSegmentSizes")
        if not isinstance(sizes, list) or len(sizes) != len(self._targets) + 1:
            raise IRError(f"{self.name} with {len(self._targets)} successors lacks operandSegmentSizes")
        start = sizes[0]
        pairs = []
        for block, size in zip(self._targets, sizes[1:], strict=True):
            pairs.append((block, list(self._operands[start : start + size])))
            start += size
        return pairs

    def operand_groups(self) -> list[list[Value]]:
        """Operands split by `operandSegmentSizes`; without it, one group with all."""
        sizes = self.attributes.get("operandSegmentSizes")
        if not isinstance(sizes, list):
            return [list(self._operands)]
        groups, start = [], 0
        for size in sizes:
            groups.append(list(self._operands[start : start + size]))
            start += size
        return groups

    @property
    def parent_op(self) -> Operation | None:
        """The operation whose region holds this one."""
        block = self.parent
        if block is None or block.parent is None:
            return None
        return block.parent.parent

    def walk(self) -> Iterator[Operation]:
        """This operation and all inside it, in textual order."""
        yield self
        for region in self.regions:
            for block in region.blocks:
                for op in list(block.operations):
                    yield from op.walk()

    # -- rewriting -------------------------------------------------------------------------------------------

    def set_operand(self, index: int, value: Value) -> None:
        old = self._operands[index]
        old.uses.remove((self, index))
        self._operands = (*self._operands[:index], value, *self._operands[index + 1 :])
        value.uses.append((self, index))

    def append_operand(self, value: Value) -> None:
        value.uses.append((self, len(self._operands)))
        self._operands = (*self._operands, value)

    def drop_operands(self) -> None:
        """Forget the operands (as before an erase)."""
        for index, value in enumerate(self._operands):
            value.uses.remove((self, index))
        self._operands = ()

    def add_region(self, region: Region | None = None) -> Region:
        region = Region() if region is None else region
        if region.parent is not None:
            raise IRError(f"the region already belongs to {region.parent.name}")
        region.parent = self
        self.regions.append(region)
        return region

    def insert_before(self, op: Operation) -> Operation:
        """Put `op` before this one; returns `op`."""
        block = self._placed()
        return block.insert(block.index_of(self), op)

    def insert_after(self, op: Operation) -> Operation:
        """Put `op` after this one; returns `op`."""
        block = self._placed()
        return block.insert(block.index_of(self) + 1, op)

    def _placed(self) -> Block:
        if self.parent is None:
            raise IRError(f"{self.name} stands in no block")
        return self.parent

    def detach(self) -> Operation:
        """Take the operation out of its block, keeping it and its operands."""
        if self.parent is not None:
            del self.parent.operations[self.parent.index_of(self)]
            self.parent = None
        return self

    def erase(self) -> None:
        """Remove the operation and all inside it; raises IRError when a result is still used elsewhere."""
        inside = set(self.walk())
        for op in inside:
            for value in _defined_by(op):
                for user, index in value.uses:
                    if user not in inside:
                        what = f" {value.name!r}" if value.name else ""
                        raise IRError(
                            f"cannot erase {self.name} at {self.location}: its value{what} is operand "
                            f"{index} of {user.name} at {user.location}; replace that use first"
                        )
        self.detach()
        for op in inside:
            op.drop_operands()

    def clone(self, mapping: dict[Value, Value] | None = None) -> Operation:
        """A detached copy with its regions. Operands found in `mapping` are replaced; results and block
        arguments of the copy are added to it."""
        mapping = {} if mapping is None else mapping
        copy = _clone(self, mapping, {})
        for old, new in zip(self.walk(), copy.walk(), strict=True):  # uses that precede their definition in the text
            for index, value in enumerate(old._operands):
                if value in mapping and new._operands[index] is not mapping[value]:
                    new.set_operand(index, mapping[value])
        return copy

    def __repr__(self) -> str:
        return f"<{self.name} at {self.location}>"


class Block:
    """Operations in order; `arguments` are the values it starts with."""

    __slots__ = ("arguments", "operations", "parent")

    def __init__(self, argument_types: Sequence[Type] = ()) -> None:
        self.arguments: list[Value] = []
        self.operations: list[Operation] = []
        self.parent: Region | None = None
        for type in argument_types:
            self.add_argument(type)

    @property
    def terminator(self) -> Operation:
        """The last operation."""
        if not self.operations:
            raise IRError("the block is empty")
        return self.operations[-1]

    @property
    def predecessors(self) -> list[Operation]:
        """Branches of the same region that lead here."""
        if self.parent is None:
            return []
        lasts = [block.operations[-1] for block in self.parent.blocks if block.operations]
        return [op for op in lasts if self in op.targets]

    def add_argument(self, type: Type, location: Location = UNKNOWN, index: int | None = None) -> Value:
        """A new argument, last or at `index`. For a function use `Module.add_argument`."""
        place = len(self.arguments) if index is None else index
        value = Value(type, self, place, location)
        self.arguments.insert(place, value)
        for position, argument in enumerate(self.arguments):
            argument.index = position
        return value

    def index_of(self, op: Operation) -> int:
        for index, candidate in enumerate(self.operations):
            if candidate is op:
                return index
        raise IRError(f"{op.name} does not stand in this block")

    def insert(self, index: int, op: Operation) -> Operation:
        """Put `op` before the operation at `index`; returns `op`."""
        if op.parent is not None:
            raise IRError(f"{op.name} already stands in a block; detach it first")
        op.parent = self
        self.operations.insert(index, op)
        return op

    def append(self, op: Operation) -> Operation:
        return self.insert(len(self.operations), op)


class Region:
    """Blocks, the entry first."""

    __slots__ = ("blocks", "parent")

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.parent: Operation | None = None

    @property
    def is_function_body(self) -> bool:
        return self.parent is not None and self.parent.name == "tt.func"

    def append(self, block: Block) -> Block:
        if block.parent is not None:
            raise IRError("the block already belongs to a region")
        block.parent = self
        self.blocks.append(block)
        return block


class Module:
    """A Triton module around its `builtin.module` operation `op`."""

    __slots__ = ("op",)

    def __init__(self, op: Operation) -> None:
        if op.name != "builtin.module" or len(op.regions) != 1 or len(op.regions[0].blocks) != 1:
            raise IRError(f"expected a builtin.module with one block, got {op.name}")
        self.op = op

    @property
    def body(self) -> Block:
        return self.op.regions[0].blocks[0]

    @property
    def functions(self) -> dict[str, Operation]:
        """`tt.func` operations by symbol name."""
        return {op.attributes["sym_name"]: op for op in self.body.operations if op.name == "tt.func"}

    @property
    def entry(self) -> Operation:
        """The kernel: the one public `tt.func`."""
        public = [op for op in self.functions.values() if op.attributes.get("sym_visibility", "public") == "public"]
        if len(public) != 1:
            names = [op.attributes["sym_name"] for op in public]
            raise IRError(f"expected one public tt.func (the kernel), found {names}")
        return public[0]

    def walk(self) -> Iterator[Operation]:
        """All operations, the module's own first, in textual order."""
        return self.op.walk()

    def clone(self) -> Module:
        return Module(self.op.clone())

    def add_argument(
        self,
        function: Operation,
        type: Type,
        location: Location = UNKNOWN,
        attributes: dict[str, Any] | None = None,
        index: int | None = None,
    ) -> Value:
        """A new parameter of `function`, last or at `index`: adapts its type and argument attributes. The
        callers of a function that is not the kernel must be adapted by whoever calls this."""
        signature = function.attributes["function_type"]
        place = len(signature.inputs) if index is None else index
        value = function.regions[0].blocks[0].add_argument(type, location, place)
        inputs = (*signature.inputs[:place], type, *signature.inputs[place:])
        function.attributes["function_type"] = FunctionType(inputs, signature.results)
        described = function.attributes.get("arg_attrs")
        if described is not None or attributes:
            described = list(described) if described is not None else [{} for _ in signature.inputs]
            described.insert(place, attributes or {})
            function.attributes["arg_attrs"] = described
        return value


def _defined_by(op: Operation) -> Iterator[Value]:
    yield from op.results
    for region in op.regions:
        for block in region.blocks:
            yield from block.arguments


def _clone(op: Operation, mapping: dict[Value, Value], blocks: dict[Block, Block]) -> Operation:
    copy = Operation(
        op.name,
        [mapping.get(value, value) for value in op._operands],
        [value.type for value in op.results],
        copied_attributes(op.attributes),
        (),
        [blocks.get(block, block) for block in op._targets],
        op.location,
        op.discardable,
    )
    for old, new in zip(op.results, copy.results, strict=True):
        new._name = old._name
        mapping[old] = new
    for region in op.regions:
        target = copy.add_region()
        for block in region.blocks:  # all blocks first: branches lead forward
            new_block = blocks[block] = target.append(Block())
            for argument in block.arguments:
                mapping[argument] = new_block.add_argument(argument.type, argument._location or UNKNOWN)
                mapping[argument]._name = argument._name
        for block in region.blocks:
            for inner in block.operations:
                blocks[block].append(_clone(inner, mapping, blocks))
    return copy


def copied_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """A copy that shares no list or dict with the original."""
    return {name: _copied(value) for name, value in attributes.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, DenseArray):
        return DenseArray(value, value.element_type)
    if isinstance(value, list):
        return [_copied(item) for item in value]
    if isinstance(value, dict):
        return copied_attributes(value)
    return value
