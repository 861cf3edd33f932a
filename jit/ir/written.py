"""Which arguments a kernel writes and reads: `written_arguments(module) -> WrittenArguments`.

Every value gets the set of its origins: what the memory that it addresses belongs to. An origin is an
argument of the function (its index) or, where that cannot be known, a reason in words. Origins flow along the
uses of values, through pointer arithmetic (the result belongs where the base does), selects, loops, branches
and conversions to integers and back, to a fixed point. Each function is summarized by what it writes, reads
and returns in terms of its own arguments, so that one call does not blur another; summaries are iterated
until recursion is settled.

A write through an address of unknown origin counts as a write to every pointer argument, and `reasons` says
why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..written_arguments import WrittenArguments
from .effects import (
    ACCESSES,
    NO_ADDRESS,
    POINTER_OPERANDS,
    is_pointer,
    is_pure_foreign_code,
    touches_no_memory,
)
from .structure import Module, Operation, Value

# An argument's index, or the reason why the origin is not known.
Origin = int | str
_Origins = frozenset[Origin]
_NOWHERE: _Origins = frozenset()


def written_arguments(module: Module) -> WrittenArguments:
    """Which arguments of `module.entry` are written and which are read."""
    summaries = _summarize(module)
    entry = module.entry
    arguments = entry.regions[0].blocks[0].arguments
    pointers = [argument.index for argument in arguments if is_pointer(argument.type)]
    summary = summaries[entry.attributes["sym_name"]]
    reasons: dict[str, None] = {}
    written, where = _settle(summary.writes, "written", arguments, pointers, reasons)
    read, _ = _settle(summary.reads, "read", arguments, pointers, reasons)
    reasons.update(dict.fromkeys(summary.assumptions))
    names = tuple(argument.name for argument in arguments)
    return WrittenArguments(tuple(sorted(written)), tuple(sorted(read)), tuple(reasons), names, where)


def _summarize(module: Module) -> dict[str, _Summary]:
    """Summaries of all functions that have a body."""
    functions = {name: op for name, op in module.functions.items() if op.regions[0].blocks}
    summaries = {name: _Summary() for name in functions}
    analyses = {name: _Function(function, summaries) for name, function in functions.items()}
    order = _callees_first({name: analysis.callees for name, analysis in analyses.items()})
    _settle_summaries(order, analyses, summaries)
    # What addresses memory and comes from nowhere is unknown. One can tell only now: what comes round a loop, or out
    # of a function that calls itself, arrives late.
    marked = [analysis.mark_unknown() for analysis in analyses.values()]
    if any(marked):
        _settle_summaries(order, analyses, summaries)
    return summaries


def _settle_summaries(order: list[str], analyses: dict[str, _Function], summaries: dict[str, _Summary]) -> None:
    """Run the analyses until no summary changes."""
    waiting = set(order)
    while waiting:
        name = next(name for name in order if name in waiting)
        waiting.discard(name)
        summary = analyses[name].run()
        if not summary.same_as(summaries[name]):
            summaries[name].update(summary)
            waiting.update(caller for caller in order if name in analyses[caller].callees)


def _callees_first(callees: dict[str, set[str]]) -> list[str]:
    """The functions in an order in which each stands behind what it calls, recursion aside."""
    order: dict[str, None] = {}
    entered: set[str] = set()
    stack = [(name, False) for name in callees]
    while stack:
        name, left = stack.pop()
        if left:
            order[name] = None
        elif name not in entered:
            entered.add(name)
            stack.append((name, True))
            stack.extend((callee, False) for callee in sorted(callees[name]))
    return list(order)


def read_arguments(module: Module) -> tuple[int, ...]:
    """Indices of the arguments of `module.entry` whose memory is read."""
    return written_arguments(module).read


def _settle(
    accesses: dict[Origin, str],
    verb: str,
    arguments: Sequence[Value],
    pointers: Sequence[int],
    reasons: dict[str, None],
) -> tuple[set[int], dict[int, str]]:
    """Arguments from origins; an unknown origin stands for all pointers."""
    found: dict[int, str] = {}
    for origin, place in accesses.items():
        if isinstance(origin, int) and is_pointer(arguments[origin].type):
            found[origin] = place
    for origin, place in accesses.items():
        if isinstance(origin, int):
            if is_pointer(arguments[origin].type):
                continue
            name = arguments[origin].name or f"argument {origin}"
            why = f"the integer {name!r} is used as a pointer"
        else:
            why = origin
        reasons[f"memory is {verb} by {place} through an address that cannot be traced: {why}"] = None
        for index in pointers:
            found.setdefault(index, place)
    return set(found), found


def _place(op: Operation) -> str:
    return f"{op.name} at {op.location}"


@dataclass
class _Summary:
    """What a function does in terms of its arguments.

    `writes` and `reads` map an origin to a place in words. `foreign` maps a number among the arguments that
    is given to foreign code to (place, whether that code is pure): it matters when a caller passes an address
    in it."""

    writes: dict[Origin, str] = field(default_factory=dict)
    reads: dict[Origin, str] = field(default_factory=dict)
    foreign: dict[int, tuple[str, bool]] = field(default_factory=dict)
    returns: list[_Origins] = field(default_factory=list)
    assumptions: dict[str, None] = field(default_factory=dict)

    def same_as(self, other: _Summary) -> bool:
        return (
            self.writes.keys() == other.writes.keys()
            and self.reads.keys() == other.reads.keys()
            and self.foreign == other.foreign
            and self.returns == other.returns
            and self.assumptions.keys() == other.assumptions.keys()
        )

    def update(self, other: _Summary) -> None:
        self.writes, self.reads, self.foreign = other.writes, other.reads, other.foreign
        self.returns, self.assumptions = other.returns, other.assumptions


class _Function:
    """Origins of the values of one function."""

    def __init__(self, function: Operation, summaries: dict[str, _Summary]) -> None:
        self.summaries = summaries
        self.operations = list(function.walk())[1:]
        self.arguments = function.regions[0].blocks[0].arguments
        self.callees = {
            op.attributes["callee"]
            for op in self.operations
            if op.name == "tt.call" and op.attributes["callee"] in summaries
        }
        self.origins: dict[Value, _Origins] = {a: frozenset((a.index,)) for a in self.arguments}
        self.summary = _Summary()
        self.changed = False

    def run(self) -> _Summary:
        """Propagate to the fixed point and collect the summary."""
        self._propagate()
        self.summary = _Summary()
        for op in self.operations:
            self._collect(op)
        return self.summary

    def mark_unknown(self) -> bool:
        """Give pointers that come from nowhere the reason as their origin; whether there were any."""
        self.changed = False
        for op in self.operations:
            if op.name == "tt.int_to_ptr":
                if not self.of(op.operands[0]):
                    self._join(op.results, frozenset((f"a pointer made from a number by {_place(op)}",)))
            elif self._is_foreign(op):
                reason = frozenset((f"a value made by {_place(op)}",))
                self._join([r for r in op.results if is_pointer(r.type) or not self.of(r)], reason)
        return self.changed

    def _is_foreign(self, op: Operation) -> bool:
        """Whether the operation is code that cannot be looked into."""
        if op.name == "tt.call":
            return op.attributes["callee"] not in self.summaries
        return op.name not in ACCESSES and not touches_no_memory(op)

    def of(self, value: Value) -> _Origins:
        return self.origins.get(value, _NOWHERE)

    def union(self, values: Iterable[Value]) -> _Origins:
        result = _NOWHERE
        for value in values:
            result |= self.of(value)
        return result

    def _join(self, values: Iterable[Value], origins: _Origins) -> None:
        if not origins:
            return
        for value in values:
            old = self.of(value)
            if not origins <= old:
                self.origins[value] = old | origins
                self.changed = True

    # -- propagation -----------------------------------------------------------------------------------------

    def _propagate(self) -> None:
        self.changed = True
        while self.changed:
            self.changed = False
            for op in self.operations:
                if op.operands or op.results or op.regions:
                    self._transfer(op)

    def _transfer(self, op: Operation) -> None:
        name = op.name
        if op.regions:
            self._through_regions(op)
        elif op.targets:
            self._through_branch(op)
        elif name == "tt.call":
            self._through_call(op)
        elif name in POINTER_OPERANDS:
            self._join(op.results, self.union(op.operands[i] for i in POINTER_OPERANDS[name]))
        elif name in ACCESSES:
            if op.results:
                self._join(op.results, frozenset((f"a pointer loaded from memory by {_place(op)}",)))
        elif name in ("arith.addi", "arith.subi"):
            self._join(op.results, self._sum(op.operands[0], op.operands[1], name))
        elif name not in NO_ADDRESS and op.results:
            self._join(op.results, self.union(op.operands))

    def _sum(self, left: Value, right: Value, name: str) -> _Origins:
        """Address plus or minus offset belongs where the address does; otherwise nothing is known of the
        roles."""
        a, b = self.of(left), self.of(right)
        if self._holds_pointer(a) and not self._holds_pointer(b):
            return a
        if name == "arith.addi" and self._holds_pointer(b) and not self._holds_pointer(a):
            return b
        return a | b

    def _holds_pointer(self, origins: _Origins) -> bool:
        return any(isinstance(o, int) and is_pointer(self.arguments[o].type) for o in origins)

    def _through_branch(self, op: Operation) -> None:
        if op.name in ("cf.br", "cf.cond_br"):
            for block, operands in op.successors:
                for argument, value in zip(block.arguments, operands, strict=True):
                    self._join((argument,), self.of(value))
            return
        everything = self.union(op.operands)
        for block in op.targets:
            self._join(block.arguments, everything)

    def _through_call(self, op: Operation) -> None:
        summary = self.summaries.get(op.attributes["callee"])
        if summary is None:
            self._join(op.results, self.union(op.operands))
            return
        for result, origins in zip(op.results, summary.returns, strict=False):
            self._join((result,), self._at_call(op, origins))

    def _at_call(self, op: Operation, origins: Iterable[Origin]) -> _Origins:
        """Origins in the callee as origins in the caller."""
        result = _NOWHERE
        for origin in origins:
            result |= self.of(op.operands[origin]) if isinstance(origin, int) else frozenset((origin,))
        return result

    def _through_regions(self, op: Operation) -> None:
        name = op.name
        blocks = [region.blocks[0] for region in op.regions if region.blocks]
        yielded = [block.operations[-1].operands for block in blocks if block.operations]
        if name == "scf.for":
            induction, *carried = blocks[0].arguments
            self._join((induction,), self.of(op.operands[0]))
            for source in (op.operands[3:], yielded[0]):
                self._pairwise(carried, source)
                self._pairwise(op.results, source)
        elif name == "scf.if":
            for source in yielded:
                self._pairwise(op.results, source)
        elif name == "scf.while":
            before, after = blocks
            self._pairwise(before.arguments, op.operands)
            self._pairwise(before.arguments, yielded[1])
            self._pairwise(after.arguments, yielded[0][1:])
            self._pairwise(op.results, yielded[0][1:])
        elif name in ("tt.reduce", "tt.scan"):
            arguments, count = blocks[0].arguments, len(op.operands)
            for source in (op.operands, yielded[0]):
                self._pairwise(arguments[:count], source)
                self._pairwise(arguments[count:], source)
                self._pairwise(op.results, source)
        elif name == "ttg.warp_specialize.partitions":  # what it captures are its operands, up to 3.6 its parent's
            parent = op.parent_op
            captured = op.operands or (parent.operands if parent is not None else ())
            for block in blocks:
                self._pairwise(block.arguments, captured)
        else:  # map_elementwise, and whatever is not known: any operand may become any argument or result
            everything = self.union([*op.operands, *(value for values in yielded for value in values)])
            for block in blocks:
                self._join(block.arguments, everything)
            self._join(op.results, everything)

    def _pairwise(self, targets: Sequence[Value], sources: Sequence[Value]) -> None:
        for target, source in zip(targets, sources, strict=False):
            self._join((target,), self.of(source))

    # -- the summary -----------------------------------------------------------------------------------------

    def _collect(self, op: Operation) -> None:
        name = op.name
        access = ACCESSES.get(name)
        if access is not None:
            self._record(self.of(op.operands[access.pointer]), _place(op), access.reads, access.writes)
        elif name == "tt.return":
            returns = self.summary.returns
            if len(returns) < len(op.operands):
                returns.extend([_NOWHERE] * (len(op.operands) - len(returns)))
            for index, value in enumerate(op.operands):
                returns[index] |= self.of(value)
        elif name == "tt.call" and op.attributes["callee"] in self.summaries:
            callee = self.summaries[op.attributes["callee"]]
            for origin, place in callee.writes.items():
                self._record(self._at_call(op, (origin,)), place, False, True)
            for origin, place in callee.reads.items():
                self._record(self._at_call(op, (origin,)), place, True, False)
            for index, (place, pure) in callee.foreign.items():
                self._give_away(op.operands[index], place, pure)
            self.summary.assumptions.update(callee.assumptions)
        elif self._is_foreign(op):
            pure = is_pure_foreign_code(op)
            for value in op.operands:
                self._give_away(value, _place(op), pure)

    def _give_away(self, value: Value, place: str, pure: bool) -> None:
        """`value` goes to code that cannot be looked into, which may access what it points to."""
        for origin in self.of(value):
            if isinstance(origin, int) and not is_pointer(self.arguments[origin].type):
                _, so_far = self.summary.foreign.get(origin, ("", True))
                self.summary.foreign[origin] = (place, pure and so_far)
            elif isinstance(origin, int) or is_pointer(value.type):
                self._record(frozenset((origin,)), place, True, not pure)
                verb = "read" if pure else "read and written"
                self.summary.assumptions[f"what {place} is given a pointer to is assumed {verb}"] = None

    def _record(self, origins: _Origins, place: str, reads: bool, writes: bool) -> None:
        for origin in origins:
            if reads:
                self.summary.reads.setdefault(origin, place)
            if writes:
                self.summary.writes.setdefault(origin, place)
