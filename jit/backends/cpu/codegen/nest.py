"""One fused loop over a block: evaluates lazy blocks element by element, many lanes at a time.

A sink (store, reduction, buffer) makes a `Nest` over its shape, and passes `run` a body that evaluates what it consumes
and emits what it does with it. The nest decides where each value is computed:

* level 0 stands before the loops, level k inside the k-th one: a value is emitted at the outermost level it may be;
* the innermost loop is cut into sections by the limit of the masks: `full` vectors below it, at most one `part`ly
  masked vector, and, for sinks that need every element, the rest (`out`), where masked loads are known not to happen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ....ir import Operation, ScalarType, Type, element_type
from . import cxx, elementwise
from .elementwise import Operand
from .errors import unsupported
from .polynomial import ONE, Polynomial
from .values import Buffer, Linear, Node, Root, resolved
from .writer import Lines

if TYPE_CHECKING:
    from .function import FunctionGenerator

Coordinates = tuple[int | None, ...]  # for each axis of a block: the loop axis, or None for index 0


class Val(NamedTuple):
    """A computed value: C++ text, the level where it is known, and whether it has lanes."""

    text: str
    level: int
    vector: bool = False

    @property
    def true(self) -> bool:
        return self.text == "true"

    @property
    def false(self) -> bool:
        return self.text == "false"


class Split(NamedTuple):
    """The mask that cuts the innermost loop: facts (loop axis, limit) and scalar conditions."""

    facts: frozenset[tuple[int, str]]
    conditions: frozenset[str]


@dataclass
class Section:
    """A stretch of the innermost loop and what is known in it."""

    kind: str  # full, part, out
    true_facts: frozenset[tuple[int, str]] = frozenset()
    true_conditions: frozenset[str] = frozenset()
    false: Split | None = None
    part: Split | None = None
    part_mask: str = ""
    copy: int = 0
    lines: Lines = field(default_factory=Lines)
    memo: dict[tuple[int, Coordinates, int], Val] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)
    head: Lines = field(default_factory=Lines)  # of `out`: what does not change in it, computed only if it runs
    head_known: dict[str, str] = field(default_factory=dict)
    guard: str = ""  # of `out`: the section need not run when this does not hold
    once: bool = False  # of `out`: one run is as good as all


class Nest:
    def __init__(
        self, gen: FunctionGenerator, shape: Sequence[int], vector_axis: int | None, lanes: int, order: Sequence[int]
    ) -> None:
        self.gen = gen
        self.shape = tuple(shape)
        self.vector_axis = vector_axis if lanes > 1 else None
        self.lanes = lanes if self.vector_axis is not None else 1
        self.order = list(order)
        self.depth = len(self.order)
        self.level_of = {axis: position + 1 for position, axis in enumerate(self.order)}
        self.heads = [Lines() for _ in range(self.depth)]  # hoisted values, by level
        self.hoisted: list[dict[str, str]] = [{} for _ in range(self.depth)]
        self.pre = Lines()
        self.post = Lines()  # after the innermost loop
        self.end = Lines()  # after all loops
        self.instead: dict[int, Linear] = {}  # where stores through a pointer block really go
        single = len(self.shape) == 1
        self.index = {axis: gen.index_names[0 if single else axis + 1] for axis in self.order}
        self.section = Section("full")

    # ------------------------------------------------------------------------------------------ the loops
    def run(self, body: Callable[[], None], split: Split | None, covers_all: bool, copies: int = 1) -> Lines:
        """Emit the loops around ``body``, called once for each section (and unrolled copy).

        ``split``: the mask that cuts the innermost loop. Without ``covers_all`` the body need not run where it is
        false. ``copies``: vectors handled in one iteration of the vector loop.
        """
        innermost = self.order[-1] if self.order else None
        known: set[tuple[int, str]] = set()
        bounds: dict[int, str] = {}
        if split is not None and not covers_all:
            for axis in self.order[:-1]:
                limits = [limit for a, limit in split.facts if a == axis]
                if limits and axis != self.vector_axis:
                    known |= {(axis, limit) for limit in limits}
                    bounds[axis] = self._emit_limit(self._minimum(limits), axis, 0)
        limit = self._inner_limit(split, known, innermost) if split is not None and innermost is not None else None
        vector_inside = innermost is not None and innermost == self.vector_axis
        sections: list[tuple[Section, int, int]] = []  # section, copies, step
        facts = frozenset(known)
        inner_facts = facts | (split.facts if split is not None and limit is not None else frozenset())
        conditions = split.conditions if split is not None and limit is not None else frozenset()
        step = self.lanes if vector_inside else 1
        copies = self.fit(copies)
        if vector_inside:
            if copies > 1:
                sections.append((Section("full", inner_facts, conditions), copies, step))
            if copies == 1 or limit is not None:
                sections.append((Section("full", inner_facts, conditions), 1, step))
            if limit is not None:
                sections.append((Section("part", facts, frozenset(), part=split), 1, step))
        else:
            sections.append((Section("full", inner_facts, conditions), copies, step))
        if limit is not None and covers_all:
            sections.append((Section("out", facts, frozenset(), false=split), 1 if vector_inside else copies, step))
        for section, count, _ in sections:
            self.section = section
            if section.kind == "part":
                assert innermost is not None
                section.part_mask = self.gen.names.new("tail")
                section.lines.add(
                    f"const auto {section.part_mask} = prefix<{self.lanes}>({limit} - {self.index[innermost]});"
                )
            for copy in range(count):
                section.copy = copy
                body()
        return self._assemble(sections, limit, bounds, copies, vector_inside)

    def fit(self, copies: int) -> int:
        """As many of ``copies`` vectors as the vector axis has."""
        if self.vector_axis is None:
            return 1
        while copies > 1 and copies * self.lanes > self.shape[self.vector_axis]:
            copies //= 2
        return copies

    def _inner_limit(self, split: Split, known: set[tuple[int, str]], innermost: int) -> str | None:
        limits = [limit for axis, limit in split.facts if axis == innermost]
        size = self.shape[innermost]
        gates = sorted(split.conditions)
        level = 0
        for axis, limit in sorted(split.facts - known):
            if axis == innermost:
                continue
            if axis == self.vector_axis:
                return None
            gates.append(f"{self.index[axis]} < {limit}")
            level = max(level, self.level_of[axis])
        if not limits and not gates:
            return None
        text = f"clamp_limit({self._minimum(limits)}, {size})" if limits else str(size)
        if gates:
            text = f"({' && '.join(gates)}) ? {text} : 0"
        return self._hoist(level, text, "limit", "i64")

    def _minimum(self, limits: Sequence[str]) -> str:
        text, *others = sorted(limits)
        for other in others:
            text = f"smin({text}, {other})"
        return text

    def _emit_limit(self, text: str, axis: int, level: int) -> str:
        return self._hoist(level, f"clamp_limit({text}, {self.shape[axis]})", "limit", "i64")

    def extent_before(self, axis: int, limits: Sequence[str]) -> str:
        """How many indices along an axis are below all limits, known before the loops."""
        return self._emit_limit(self._minimum(limits), axis, 0) if limits else str(self.shape[axis])

    def base_before(self, linear: Linear, wish: str) -> str:
        """Where a block of addresses starts, known before the loops."""
        assert linear.root is not None
        if not linear.base:
            return linear.root.text
        return self._hoist(0, self._pointer(linear.root.text, self.gen.poly(linear.base)), wish + "_at")

    def _assemble(
        self,
        sections: list[tuple[Section, int, int]],
        limit: str | None,
        bounds: dict[int, str],
        copies: int,
        vector_inside: bool,
    ) -> Lines:
        out = Lines()
        out.add("{")
        out.depth += 1
        for position in range(self.depth - 1):
            out.extend(self.heads[position])
            axis = self.order[position]
            step = self.lanes * copies if axis == self.vector_axis else 1
            name = self.index[axis]
            bound = bounds.get(axis, str(self.shape[axis]))
            advance = f"{name}++" if step == 1 else f"{name} += {step}"
            out.add(f"for (i64 {name} = 0; {name} < {bound}; {advance}) {{")
            out.depth += 1
        if self.depth:
            out.extend(self.heads[self.depth - 1])
        out.extend(self.pre)
        if self.depth == 0:
            out.extend(sections[0][0].lines)
        else:
            self._assemble_inner(out, sections, limit, vector_inside)
        out.extend(self.post)
        for _ in range(self.depth - 1):
            out.depth -= 1
            out.add("}")
        out.extend(self.end)
        out.depth -= 1
        out.add("}")
        return out

    def _assemble_inner(
        self, out: Lines, sections: list[tuple[Section, int, int]], limit: str | None, vector_inside: bool
    ) -> None:
        axis = self.order[-1]
        name, size = self.index[axis], self.shape[axis]
        if limit is None:
            section, count, step = sections[0]
            # Copies lie along the lanes' axis: where that is another one, this axis is walked one by one.
            stride = count * step if vector_inside else 1
            if size == stride:
                out.add(f"{{ const i64 {name} = 0;")
            else:
                advance = f"{name}++" if stride == 1 else f"{name} += {stride}"
                out.add(f"for (i64 {name} = 0; {name} < {size}; {advance}) {{")
            self._close(out, section)
            return
        out.add(f"i64 {name} = 0;")
        for section, count, step in sections:
            stride = count * step if vector_inside else 1
            advance = f"{name}++" if stride == 1 else f"{name} += {stride}"
            if section.kind == "full":
                ahead = f"{name} + {stride} <= {limit}" if stride > 1 else f"{name} < {limit}"
                out.add(f"for (; {ahead}; {advance}) {{")
            elif section.kind == "part":
                if not any(line.strip() for line in section.lines.lines[1:]):
                    continue
                out.add(f"if ({name} < {limit}) {{")
                section.lines.add(f"{name} += {stride};")
            else:
                if not section.lines.lines and not section.head.lines:
                    continue
                out.add(f"if ({name} < {size}) {{")
                out.depth += 1
                out.extend(section.head)
                if section.lines.lines:
                    guard = f"if ({section.guard}) " if section.guard else ""
                    out.add("{" if section.once else f"{guard}for (; {name} < {size}; {advance}) {{")
                    self._close(out, section)
                out.depth -= 1
                out.add("}")
                continue
            self._close(out, section)

    def _close(self, out: Lines, section: Section) -> None:
        out.depth += 1
        out.extend(section.lines)
        out.depth -= 1
        out.add("}")

    # ------------------------------------------------------------------------------------------ emission
    def emit(self, level: int, text: str, wish: str, type: str = "auto") -> str:
        """Name a value at a level; the same text at the same place keeps its name."""
        if level < self.depth:
            return self._hoist(level, text, wish, type)
        known = self.section.known
        name = known.get(text)
        if name is None:
            name = known[text] = self.gen.names.new(wish)
            self.section.lines.add(f"const {type} {name} = {text};")
        return name

    def _hoist(self, level: int, text: str, wish: str, type: str = "auto") -> str:
        for outer in range(level + 1):
            if text in self.hoisted[outer]:
                return self.hoisted[outer][text]
        if self.section.kind == "out":
            name = self.section.head_known.get(text)
            if name is None:
                name = self.section.head_known[text] = self.gen.names.new(wish)
                self.section.head.add(f"const {type} {name} = {text};")
            return name
        name = self.hoisted[level][text] = self.gen.names.new(wish)
        self.heads[level].add(f"const {type} {name} = {text};")
        return name

    def line(self, text: str) -> None:
        """A statement in the innermost loop."""
        self.section.lines.add(text)

    def identity(self) -> Coordinates:
        return tuple(axis if extent != 1 else None for axis, extent in enumerate(self.shape))

    def full(self, val: Val, element: Type) -> str:
        """The value with all lanes, when the nest has lanes."""
        if val.vector or self.vector_axis is None:
            return val.text
        return elementwise.splat(val.text, element, self.lanes)

    # ------------------------------------------------------------------------------------------ evaluation
    def evaluate(self, node: Node, at: Coordinates) -> Val:
        key = (id(node), at, self.section.copy)
        found = self.section.memo.get(key)
        if found is None:
            found = self.section.memo[key] = self._evaluate(node, at)
        return found

    def _evaluate(self, node: Node, at: Coordinates) -> Val:
        at = tuple(None if extent == 1 else axis for axis, extent in zip(at, node.shape, strict=True))
        if node.buffer is not None:
            return self._read(node, at)
        if node.kind == "uniform":
            return Val(node.data, 0)
        if node.bounds is not None:
            return self._mask(node, at)
        if node.kind == "view":
            source = node.operands[0]
            assert source is not None
            return self.evaluate(source, self.through(node, at))
        if node.linear is not None and not node.linear.terms and node.kind != "load":
            return self._linear_value(node, node.linear, at)
        if node.kind == "load":
            return self._load(node, at)
        if node.kind == "moved":
            return self._moved(node, at)
        assert node.op is not None, node.kind
        return self._elementwise(node, at)

    def through(self, node: Node, at: Coordinates) -> Coordinates:
        """Coordinates in the source of a view."""
        source = node.operands[0]
        assert source is not None
        kind = node.data[0]
        if kind == "expand":
            axis = node.data[1]
            return (*at[:axis], *at[axis + 1 :])
        if kind == "squeeze":
            axis = node.data[1]
            return (*at[:axis], None, *at[axis:])
        if kind == "broadcast":
            return tuple(None if extent == 1 else a for a, extent in zip(at, source.shape, strict=True))
        order = node.data[1]
        result: list[int | None] = [None] * len(at)
        for position, axis in enumerate(order):
            result[axis] = at[position]
        return tuple(result)

    def _moved(self, node: Node, at: Coordinates) -> Val:
        """A carried integer block: its start plus a scalar."""
        source = node.operands[0]
        assert source is not None
        start = self.evaluate(source, at)
        type = cxx.lane(node.element)
        return Val(self.emit(start.level, f"{start.text} + {type}({node.data})", node.name), start.level, start.vector)

    def _elementwise(self, node: Node, at: Coordinates) -> Val:
        op = node.op
        assert op is not None
        operands = [operand for operand in node.operands if operand is not None]
        if op.name == "arith.select":
            condition = self.evaluate(operands[0], at if operands[0].shape else ())
            if condition.true or condition.false:
                return self.evaluate(operands[1 if condition.true else 2], at)
        vals = [self.evaluate(operand, at if operand.shape else ()) for operand in operands]
        simple = self._simplify(op.name, vals) or fold(op, vals)
        if simple is not None:
            return simple
        level = max((val.level for val in vals), default=0)
        vector = any(val.vector for val in vals)
        texts = [Operand(v.text, n.element, v.vector) for v, n in zip(vals, operands, strict=True)]
        text = elementwise.expression(op, texts, self.lanes if vector else None)
        if any(text == val.text for val in vals):
            return Val(text, level, vector)
        return Val(self.emit(level, text, node.name), level, vector)

    def _simplify(self, name: str, vals: list[Val]) -> Val | None:
        """Truth values known in this section."""
        if name not in ("arith.andi", "arith.ori", "arith.xori") or len(vals) != 2:
            return None
        for val, other in (vals, vals[::-1]):
            if (name == "arith.andi" and val.true) or (name != "arith.andi" and val.false):
                return Val(other.text, max(val.level, other.level), other.vector)
            if (name == "arith.andi" and val.false) or (name == "arith.ori" and val.true):
                return val
        return None

    def _linear_value(self, node: Node, linear: Linear, at: Coordinates) -> Val:
        """An integer (or address) block of the form base + sum of stride * index."""
        scalar, level, lane_stride = self._scalar_part(linear, at)
        if linear.root is not None:
            base = self.emit(level, self._pointer(linear.root.text, self.gen.poly(scalar)), node.name)
            if lane_stride is None:
                return Val(base, level)
            size = f"i64(sizeof(*{base}))"
            text = f"i64({base}) + iota<i64, {self.lanes}>() * ({size} * ({self.gen.poly(lane_stride)}))"
            level = max(level, self.level_of[self._vector()])
            return Val(self.emit(level, text, node.name), level, True)
        type = cxx.lane(node.element)
        number = scalar.constant
        text = (
            str(number)
            if number is not None and type == "i32" and abs(number) < 2**31
            else f"{type}({self.gen.poly(scalar)})"
        )
        if lane_stride is None:
            if number is None:
                text = self.emit(level, text, node.name)
            return Val(text, level)
        level = max(level, self.level_of[self._vector()])
        lanes = f"iota<{type}, {self.lanes}>()"
        if lane_stride != ONE:
            lanes += f" * {type}({self.gen.poly(lane_stride)})"
        if number != 0:
            lanes = f"{lanes} + {text}"
        return Val(self.emit(level, lanes, node.name), level, True)

    def _vector(self) -> int:
        assert self.vector_axis is not None
        return self.vector_axis

    def _scalar_part(self, linear: Linear, at: Coordinates) -> tuple[Polynomial, int, Polynomial | None]:
        """Base plus all strides times the indices at lane 0, its level, and the stride from lane to lane (or None)."""
        total = linear.base
        level = 0
        lane_stride: Polynomial | None = None
        for axis, stride in zip(at, linear.strides, strict=True):
            if axis is None or not stride:
                continue
            total = total + stride * self.index_value(axis)
            level = max(level, self.level_of[axis])
            if axis == self.vector_axis:
                lane_stride = stride if lane_stride is None else lane_stride + stride
        return total, level, lane_stride

    def index_value(self, axis: int) -> Polynomial:
        """The index along a loop axis, at lane 0 of the current copy."""
        value = Polynomial.of(self.index[axis])
        if axis == self.vector_axis and self.section.copy:
            value = value + Polynomial.of(self.section.copy * self.lanes)
        return value

    # ------------------------------------------------------------------------------------------ masks
    def facts_of(self, node: Node, at: Coordinates) -> tuple[frozenset[tuple[int, str]], frozenset[str]]:
        """The limits of a truth block along loop axes, and its scalar conditions."""
        bounds = node.bounds
        assert bounds is not None
        facts = set()
        conditions = set(bounds.conditions)
        for own, limit in bounds.limits:
            axis = at[own]
            if axis is None:
                conditions.add(f"0 < {limit}")
            else:
                facts.add((axis, limit))
        return frozenset(facts), frozenset(conditions)

    def _mask(self, node: Node, at: Coordinates) -> Val:
        assert node.bounds is not None
        section = self.section
        facts, conditions = self.facts_of(node, at)
        if section.false and facts >= section.false.facts and conditions >= section.false.conditions:
            return Val("false", self.depth)
        open_facts = facts - section.true_facts
        open_conditions = conditions - section.true_conditions
        parts: list[Val] = []
        part = section.part
        if part and open_facts >= part.facts - section.true_facts and open_conditions >= part.conditions:
            parts.append(Val(section.part_mask, self.depth, True))
            open_facts -= part.facts
            open_conditions -= part.conditions
        scalars = sorted(open_conditions)
        level = 0
        for axis, limit in sorted(open_facts):
            if axis == self.vector_axis:
                offset = Polynomial.of(limit) - self.index_value(axis)
                place = self.level_of[axis]
                parts.append(
                    Val(self.emit(place, f"prefix<{self.lanes}>({self.gen.poly(offset)})", "in_bounds"), place, True)
                )
            else:
                scalars.append(f"({self.index[axis]} < {limit})")
                level = max(level, self.level_of[axis])
        if scalars:
            text = " && ".join(scalars)
            parts.append(
                Val(self.emit(level, text, "inside", "bool") if len(scalars) > 1 or "<" in text else text, level)
            )
        parts += [self.evaluate(term, at) for term in node.bounds.rest]
        if any(part.false for part in parts):
            return next(part for part in parts if part.false)
        parts = [part for part in parts if not part.true]
        if not parts:
            return Val("true", self.depth if facts or conditions or node.bounds.rest else 0)
        return self.conjunction(parts, node.name)

    def conjunction(self, parts: Sequence[Val], wish: str) -> Val:
        result = parts[0]
        for part in parts[1:]:
            level = max(result.level, part.level)
            if result.vector and part.vector:
                text = f"{result.text} & {part.text}"
            elif result.vector or part.vector:
                scalar, vector = (part, result) if result.vector else (result, part)
                text = f"both<{self.lanes}>({scalar.text}, {vector.text})"
            else:
                text = f"{result.text} && {part.text}"
            vector_ = result.vector or part.vector
            result = Val(self.emit(level, text, wish), level, vector_)
        return result

    # ------------------------------------------------------------------------------------------ memory
    def address(self, pointer: Node, at: Coordinates) -> tuple[Val, Val | None, bool]:
        """Where a pointer block points: a C++ pointer at lane 0, the lanes' element offsets or None, and whether the
        lanes are contiguous (then the offsets are None)."""
        linear = pointer.linear
        if linear is None or linear.root is None:
            val = self.evaluate(pointer, at)
            if val.vector:
                pointee = cxx.storage(pointer.element)[:-1]
                return Val(f"({pointee}*)nullptr", 0), val, False
            text = val.text
            return Val(text, val.level), None, False
        return self._located(linear, at, pointer.name)

    def _located(self, linear: Linear, at: Coordinates, wish: str) -> tuple[Val, Val | None, bool]:
        assert linear.root is not None
        linear = resolved(linear, self.gen.assumed)
        assert linear.root is not None
        innermost = self.order[-1] if self.order else None
        outer = linear.base
        inner: Polynomial | None = None
        level = 0
        lane_stride: Polynomial | None = None
        for axis, stride in zip(at, linear.strides, strict=True):
            if axis is None or not stride:
                continue
            if axis == self.vector_axis:
                lane_stride = stride if lane_stride is None else lane_stride + stride
            part = stride * self.index_value(axis)
            if axis == innermost:
                inner = part if inner is None else inner + part
            else:
                outer = outer + part
                level = max(level, self.level_of[axis])
        offsets: list[Val] = []
        scalars: list[Val] = []
        for term in linear.terms:
            val = self.evaluate(term, at)
            (offsets if val.vector else scalars).append(val)
        text = self.gen.poly(outer) if outer else ""
        late = ""
        for val in scalars:
            if val.level < self.depth:
                level = max(level, val.level)
                text = f"{text} + {val.text}" if text else f"i64({val.text})"
            else:
                late += f" + {val.text}"
        base = linear.root.text
        if text:
            base = self.emit(level, self._pointer(base, text), wish + "_at")
        if inner is not None:
            level = self.depth
            base = self._pointer(base, self.gen.poly(inner))
        if late:
            level = self.depth
            base += late
        if not offsets:
            if lane_stride is None:
                return Val(base, level), None, False
            if lane_stride == ONE:
                return Val(base, level), None, True
        lanes = self._lane_offsets(lane_stride, offsets, linear)
        return Val(base, level), lanes, False

    def _lane_offsets(self, stride: Polynomial | None, offsets: list[Val], linear: Linear) -> Val:
        level = max([self.level_of[self._vector()], *(val.level for val in offsets)])
        if stride is None and len(offsets) == 1:
            return offsets[0]
        if not offsets:
            assert stride is not None
            small = stride.constant is not None and abs(stride.constant) * self.lanes < 2**31
            type = "i32" if small else "i64"
            return Val(
                self.emit(level, f"iota<{type}, {self.lanes}>() * {type}({self.gen.poly(stride)})", "step"), level, True
            )
        parts = [f"convert<i64>({val.text})" for val in offsets]
        if stride is not None:
            lanes = f"iota<i64, {self.lanes}>()"
            parts.append(lanes if stride == ONE else f"{lanes} * ({self.gen.poly(stride)})")
        return Val(self.emit(level, " + ".join(parts), "offsets"), level, True)

    @staticmethod
    def _pointer(root: str, offset: str) -> str:
        return root if offset in ("", "0") else f"{root} + ({offset})" if " " in offset else f"{root} + {offset}"

    def _load(self, node: Node, at: Coordinates) -> Val:
        pointer, mask_node, other_node = node.operands
        assert pointer is not None
        mask = self.evaluate(mask_node, at) if mask_node is not None else Val("true", 0)
        if mask.false:
            return self._other(node, other_node, at)
        place, offsets, contiguous = self.address(pointer, at)
        many = contiguous or offsets is not None or mask.vector
        level = max(place.level, mask.level, offsets.level if offsets else 0)
        wish = node.name
        if contiguous or offsets is not None or mask.vector:
            level = max(level, self.level_of[self._vector()])
        if mask.true:
            text = self._load_text(place, offsets, contiguous, None, None)
            return Val(self.emit(level, text, wish), level, many)
        other = self._other(node, other_node, at)
        level = max(level, other.level)
        if mask.vector:
            text = self._load_text(place, offsets, contiguous, mask.text, self.full(other, node.element))
        else:
            text = self._load_text(place, offsets, contiguous, None, None)
            text = f"{mask.text} ? {text} : {self.full(other, node.element) if many else other.text}"
        return Val(self.emit(level, text, wish), level, many)

    def _load_text(self, place: Val, offsets: Val | None, contiguous: bool, mask: str | None, other: str | None) -> str:
        tail = f", {mask}, {other}" if mask is not None else ""
        if contiguous:
            return f"load<{self.lanes}>({place.text}{tail})"
        if offsets is not None:
            function = "gather_addresses" if place.text.endswith("nullptr") else "gather"
            return f"{function}<{self.lanes}>({place.text}, {offsets.text}{tail})"
        if mask is not None:
            return f"gather<{self.lanes}>({place.text}, vec<i32, {self.lanes}>{{}}{tail})"
        return f"load({place.text})"

    def _other(self, node: Node, other: Node | None, at: Coordinates) -> Val:
        if other is not None:
            return self.evaluate(other, at)
        if not isinstance(node.element, ScalarType):
            return Val("i64(0)" if self.vector_axis is not None else "nullptr", 0)
        return Val(cxx.literal(0, node.element), 0)

    def _read(self, node: Node, at: Coordinates) -> Val:
        buffer = node.buffer
        assert buffer is not None
        place, offsets, contiguous = self._buffer_address(buffer, at)
        many = contiguous or offsets is not None
        level = max(place.level, offsets.level if offsets else 0, self.level_of[self._vector()] if many else 0)
        if node.tail is not None:
            return self._read_part(node, at, place, offsets, contiguous, level)
        text = self._load_text(place, offsets, contiguous, None, None)
        return Val(self.emit(level, text, node.name), level, many)

    def _read_part(
        self, node: Node, at: Coordinates, place: Val, offsets: Val | None, contiguous: bool, level: int
    ) -> Val:
        """An element of a block that was computed in part. The memory of the rest may be read, but means nothing."""
        assert node.tail is not None
        computed = self.evaluate(node.tail.computed, at)
        if computed.false:
            return Val(node.tail.text, 0)
        many = contiguous or offsets is not None
        text = self._load_text(place, offsets, contiguous, None, None)
        level = max(level, computed.level)
        if not computed.true:
            tail = Val(node.tail.text, 0)
            if computed.vector and not many:
                text = elementwise.splat(text, node.element, self.lanes)
            many = many or computed.vector
            other = self.full(tail, node.element) if many else tail.text
            text = (
                f"select({computed.text}, {text}, {other})"
                if computed.vector
                else f"{computed.text} ? {text} : {other}"
            )
        return Val(self.emit(level, text, node.name), level, many)

    def _buffer_address(self, buffer: Buffer, at: Coordinates) -> tuple[Val, Val | None, bool]:
        strides = tuple(Polynomial.of(stride) for stride in buffer.strides)
        linear = Linear(Root(buffer.name, None), Polynomial(), strides)
        return self._located(linear, at, buffer.name)

    def store(self, pointer: Node, at: Coordinates, val: Val, element: Type, mask: Val) -> None:
        """Emit a store of one element or vector."""
        if mask.false:
            return
        linear = self.instead.get(id(pointer))
        located = self._located(linear, at, pointer.name) if linear is not None else self.address(pointer, at)
        self._store(*located, val, element, mask)

    def write(self, buffer: Buffer, at: Coordinates, val: Val, out: Lines | None = None) -> None:
        """Store into a buffer; the statement goes to ``out``, by default the innermost loop."""
        place, offsets, contiguous = self._buffer_address(buffer, at)
        self._store(place, offsets, contiguous, val, buffer.element, Val("true", 0), out)

    def _store(
        self,
        place: Val,
        offsets: Val | None,
        contiguous: bool,
        val: Val,
        element: Type,
        mask: Val,
        out: Lines | None = None,
    ) -> None:
        out = out or self.section.lines
        if not contiguous and offsets is None:
            if mask.vector or val.vector:
                offsets = Val(f"vec<i32, {self.lanes}>{{}}", 0, True)
            else:
                text = f"store({place.text}, {val.text});"
                out.add(text if mask.true else f"if ({mask.text}) {text}")
                return
        guard = ""
        tail = ""
        if mask.vector:
            tail = f", {mask.text}"
        elif not mask.true:
            guard = f"if ({mask.text}) "
        value = self.full(val, element)
        if contiguous:
            out.add(f"{guard}store<{self.lanes}>({place.text}, {value}{tail});")
        else:
            assert offsets is not None
            function = "scatter_addresses" if place.text.endswith("nullptr") else "scatter"
            out.add(f"{guard}{function}<{self.lanes}>({place.text}, {offsets.text}, {value}{tail});")


_INTEGER = re.compile(r"(?:i\d+\()?(-?\d+)\)?")


def fold(op: Operation, vals: Sequence[Val]) -> Val | None:
    """Comparisons and widenings of constants, which masked elements lead to."""
    if op.name not in ("arith.cmpi", "arith.extui", "arith.extsi") or any(val.vector for val in vals):
        return None
    level = max(val.level for val in vals)
    if op.name != "arith.cmpi":
        if not (vals[0].true or vals[0].false):
            return None
        number = 0 if vals[0].false else (-1 if op.name == "arith.extsi" else 1)
        return Val(cxx.literal(number, element_type(op.results[0].type)), level)
    matches = [_INTEGER.fullmatch(val.text) for val in vals]
    predicate = int(op.attributes["predicate"])
    if matches[0] is None or matches[1] is None or predicate > 5:
        return None
    a, b = int(matches[0][1]), int(matches[1][1])
    holds = (a == b, a != b, a < b, a <= b, a > b, a >= b)[predicate]
    return Val("true" if holds else "false", level)


def refuse_unknown(node: Node) -> None:
    """Raise for blocks whose elements no register can hold."""
    if not cxx.knows(node.element) and node.op is not None:
        raise unsupported(node.op, f"makes elements of type {node.element}, which the CPU backend does not know")
