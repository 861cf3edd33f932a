"""Operations that work element by element, as C++ expressions over scalars or vectors.

Entry point: :func:`expression`. The functions named here stand in the headers under ``include/`` and take scalars and
vectors alike, so that one table serves both; operands that are scalar beside vectors are splat where C++ asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ....ir import Operation, PointerType, ScalarType, Type, element_type
from . import cxx
from .errors import unsupported


class Operand(NamedTuple):
    """A C++ expression (a name or literal) of an element type; `vector` when it has lanes."""

    text: str
    element: Type
    vector: bool = False


class Context:
    """What a lowering rule sees: the operation, its operands' texts, types, and the number of lanes (None: scalar)."""

    def __init__(self, op: Operation, operands: Sequence[Operand], lanes: int | None) -> None:
        self.op = op
        self.operands = operands
        self.lanes = lanes if any(operand.vector for operand in operands) else None
        self.result: Type = element_type(op.results[0].type)

    def plain(self, index: int) -> str:
        """The operand as it is: a scalar stays one beside vectors (C++ operators accept that)."""
        operand = self.operands[index]
        if self.lanes is not None and not operand.vector and cxx.lane(operand.element) not in _MIXABLE:
            return self.full(index)
        return operand.text

    def full(self, index: int) -> str:
        """The operand with all lanes."""
        operand = self.operands[index]
        if self.lanes is None or operand.vector:
            return operand.text
        return splat(operand.text, operand.element, self.lanes)

    def type_of(self, type: Type) -> str:
        """The C++ type of a value with this element."""
        return cxx.register(type) if self.lanes is None else f"vec<{cxx.lane(type)}, {self.lanes}>"

    def attribute(self, name: str, default: int = 0) -> int:
        return int(self.op.attributes.get(name, default))


_MIXABLE = frozenset(["f32", "f64", "i32", "i64"])
Rule = Callable[[Context], str]


def splat(text: str, element: Type, lanes: int) -> str:
    if cxx.is_bool(element):
        return f"splat_mask<{lanes}>({text})"
    if isinstance(element, PointerType):
        return f"splat<{lanes}>(i64({text}))"
    return f"splat<{lanes}>({text})"


def expression(op: Operation, operands: Sequence[Operand], lanes: int | None) -> str:
    """The C++ expression of an elementwise operation. Raises ``UnsupportedOperation`` when there is no rule for it."""
    rule = RULES.get(op.name)
    if rule is None:
        raise unsupported(op)
    for value in (*op.operands, *op.results):
        if not cxx.knows(value.type):
            raise unsupported(op, f"works on {element_type(value.type)}, which the CPU backend does not know")
    context = Context(op, operands, lanes)
    text = rule(context)
    if cxx.is_small_float(context.result) and op.name in _ROUNDED:
        return f"round_to<{cxx.storage(context.result)}>({text})"
    return text


def cost(op: Operation) -> int:
    """Rough cost for one vector, in additions."""
    return _COSTS.get(op.name, 1)


# ------------------------------------------------------------------------------------------------- rules
def _operator(symbol: str) -> Rule:
    def rule(c: Context) -> str:
        text = f"{c.plain(0)} {symbol} {c.plain(1)}"
        return f"{cxx.register(c.result)}({text})" if c.lanes is None and _promotes(c.result) else text

    return rule


def _promotes(type: Type) -> bool:
    """C++ computes narrow integers and bool as int."""
    return cxx.register(type) in ("bool", "i8", "i16")


def _call(function: str) -> Rule:
    def rule(c: Context) -> str:
        return f"{function}({', '.join(c.full(i) for i in range(len(c.operands)))})"

    return rule


def _swapped(function: str) -> Rule:
    return lambda c: f"{function}({c.full(1)}, {c.full(0)})"


def _integer(op: str, on_bool: str) -> Rule:
    """Addition and subtraction of i1 are exclusive or, multiplication is and."""
    number, truth = _operator(op), _operator(on_bool)
    return lambda c: (truth if cxx.is_bool(c.result) else number)(c)


_CMPI = [
    _call("eq"), _call("ne"), _call("lt"), _call("le"), _call("gt"), _call("ge"),
    _call("ult"), _call("ule"), _swapped("ult"), _swapped("ule"),
]  # fmt: skip


def _both(connective: str, *rules: Rule) -> Rule:
    return lambda c: f" {connective} ".join(rule(c) for rule in rules)


def _negated(rule: Rule) -> Rule:
    return lambda c: f"negate({rule(c)})"


def _constant_truth(value: str) -> Rule:
    return lambda c: value if c.lanes is None else f"splat_mask<{c.lanes}>({value})"


_CMPF = [
    _constant_truth("false"),
    _call("eq"), _call("gt"), _call("ge"), _call("lt"), _call("le"),
    lambda c: f"either({_call('lt')(c)}, {_call('gt')(c)})",
    _call("ordered"),
    lambda c: f"either({_call('unordered')(c)}, {_call('eq')(c)})",
    _negated(_call("le")), _negated(_call("lt")), _negated(_call("ge")), _negated(_call("gt")),
    _call("ne"),
    _call("unordered"),
    _constant_truth("true"),
]  # fmt: skip


def _select(c: Context) -> str:
    condition = c.operands[0]
    if not condition.vector:
        if c.lanes is None:
            return f"{condition.text} ? {c.operands[1].text} : {c.operands[2].text}"
        return f"{condition.text} ? {c.full(1)} : {c.full(2)}"
    return f"select({condition.text}, {c.full(1)}, {c.full(2)})"


# ---------------------------------------------------------------------------------------------- conversions
def _to_float(c: Context, text: str, wide_source: bool) -> str:
    """Integers to a float: small floats through f64 rounded to odd when f32 could round first."""
    if cxx.is_small_float(c.result):
        if wide_source:
            return f"round_to<{cxx.storage(c.result)}>(narrow_to_odd({text.replace('<f32>', '<f64>')}))"
        return f"round_to<{cxx.storage(c.result)}>({text})"
    return text


def _sitofp(c: Context) -> str:
    source = c.operands[0].element
    target = cxx.register(c.result)
    if cxx.is_bool(source):
        return _to_float(c, f"convert<{target}>(mask_to_signed<i32>({c.full(0)}))", False)
    return _to_float(c, f"convert<{target}>({c.full(0)})", _width(source) > 16)


def _uitofp(c: Context) -> str:
    source = c.operands[0].element
    target = cxx.register(c.result)
    if cxx.is_bool(source):
        return _to_float(c, f"convert<{target}>(mask_to_unsigned<i32>({c.full(0)}))", False)
    return _to_float(c, f"from_unsigned<{target}>({c.full(0)})", _width(source) > 16)


def _width(type: Type) -> int:
    assert isinstance(type, ScalarType)
    return type.width


def _fptosi(c: Context) -> str:
    if cxx.is_bool(c.result):
        return f"lowest_bit(saturate<i32>({c.full(0)}))"
    return f"saturate<{cxx.register(c.result)}>({c.full(0)})"


def _fptoui(c: Context) -> str:
    if cxx.is_bool(c.result):
        return f"lowest_bit(saturate<i32>({c.full(0)}))"
    unsigned = cxx.register(c.result).replace("i", "u")
    return f"bits_as<{c.type_of(c.result)}>(saturate<{unsigned}>({c.full(0)}))"


def _extsi(c: Context) -> str:
    target = cxx.register(c.result)
    return f"{'mask_to_signed' if cxx.is_bool(c.operands[0].element) else 'convert'}<{target}>({c.full(0)})"


def _extui(c: Context) -> str:
    target = cxx.register(c.result)
    return f"{'mask_to_unsigned' if cxx.is_bool(c.operands[0].element) else 'zero_extend'}<{target}>({c.full(0)})"


def _trunci(c: Context) -> str:
    if cxx.is_bool(c.result):
        return f"lowest_bit({c.full(0)})"
    return f"convert<{cxx.register(c.result)}>({c.full(0)})"


def _float_to_float(c: Context) -> str:
    source, target = c.operands[0].element, c.result
    if source == target:
        return c.operands[0].text
    # 0 rounds towards zero, 1 to nearest even; only narrowing rounds.
    narrowing = _width(target) < _width(source) or (cxx.is_small_float(target) and cxx.is_small_float(source))
    if narrowing and c.op.attributes.get("rounding") == 0:
        raise unsupported(c.op, "with rounding towards zero is not supported")
    if cxx.is_small_float(target):
        text = c.full(0)
        if cxx.register(source) == "f64":
            text = f"narrow_to_odd({text})"
        return f"round_to<{cxx.storage(target)}>({text})"
    if cxx.register(source) == cxx.register(target):
        return c.operands[0].text
    return f"convert<{cxx.register(target)}>({c.full(0)})"


def _bitcast(c: Context) -> str:
    source, target = c.operands[0].element, c.result
    if isinstance(target, PointerType):
        if isinstance(source, PointerType):
            return c.operands[0].text if c.lanes else f"reinterpret_cast<{cxx.storage(target)}>({c.operands[0].text})"
        raise unsupported(c.op, f"from {source} to {target} is not supported")
    small = cxx.is_small_float(source) or cxx.is_small_float(target)
    if cxx.lane(source) == cxx.lane(target) and not small and cxx.is_bool(source) == cxx.is_bool(target):
        return c.operands[0].text
    if cxx.is_bool(source) or cxx.is_bool(target):
        return _trunci(c) if cxx.is_bool(target) else _extui(c)
    text = c.full(0)
    if cxx.is_small_float(source):
        text = f"to_bits<{cxx.storage(source)}>({text})"
        if not cxx.is_float(target):
            return text
    if cxx.is_small_float(target):
        return f"from_bits<{cxx.storage(target)}>({text})"
    return f"bits_as<{c.type_of(target)}>({text})"


def _int_to_ptr(c: Context) -> str:
    return c.operands[0].text if c.lanes else f"at<{cxx.storage(c.result)[:-1]}>({c.operands[0].text})"


def _ptr_to_int(c: Context) -> str:
    return c.operands[0].text if c.lanes else f"i64({c.operands[0].text})"


def _clamp(c: Context) -> str:
    low, high = ("maximum", "minimum") if c.attribute("propagateNan") else ("maxnum", "minnum")
    return f"{high}({low}({c.full(0)}, {c.full(1)}), {c.full(2)})"


def _extern(c: Context) -> str:
    from ..libdevice_table import FUNCTIONS  # which few kernels need

    symbol = str(c.op.attributes.get("symbol", ""))
    function = FUNCTIONS.get(symbol)
    if function is None:
        raise unsupported(c.op, f"calls {symbol!r}, which the CPU backend does not have")
    return f"{function}({', '.join(c.full(i) for i in range(len(c.operands)))})"


def _negate(c: Context) -> str:
    return f"-{c.full(0)}" if not c.full(0).startswith("-") else f"-({c.full(0)})"


_SAME_NAME = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sqrt", "rsqrt", "cbrt", "floor", "ceil",
    "trunc", "round",
)  # fmt: skip
RULES: dict[str, Rule] = {
    "arith.addf": _operator("+"),
    "arith.subf": _operator("-"),
    "arith.mulf": _operator("*"),
    "arith.divf": _operator("/"),
    "arith.remf": _call("fmod"),
    "arith.negf": _negate,
    "arith.addi": _integer("+", "^"),
    "arith.subi": _integer("-", "^"),
    "arith.muli": _integer("*", "&"),
    "arith.divsi": _call("divide"),
    "arith.divui": _call("udivide"),
    "arith.remsi": _call("remainder"),
    "arith.remui": _call("uremainder"),
    "arith.floordivsi": _call("floor_divide"),
    "arith.ceildivsi": _call("ceil_divide"),
    "arith.andi": _operator("&"),
    "arith.ori": _operator("|"),
    "arith.xori": _operator("^"),
    "arith.shli": _call("shift_left"),
    "arith.shrsi": _call("shift_right_signed"),
    "arith.shrui": _call("shift_right_unsigned"),
    "arith.maxsi": _call("smax"),
    "arith.minsi": _call("smin"),
    "arith.maxui": _call("umax"),
    "arith.minui": _call("umin"),
    "arith.maxnumf": _call("maxnum"),
    "arith.minnumf": _call("minnum"),
    "arith.maximumf": _call("maximum"),
    "arith.minimumf": _call("minimum"),
    "arith.cmpi": lambda c: _CMPI[c.attribute("predicate")](c),
    "arith.cmpf": lambda c: _CMPF[c.attribute("predicate")](c),
    "arith.select": _select,
    "arith.extf": _float_to_float,
    "arith.truncf": _float_to_float,
    "tt.fp_to_fp": _float_to_float,
    "arith.sitofp": _sitofp,
    "arith.uitofp": _uitofp,
    "arith.fptosi": _fptosi,
    "arith.fptoui": _fptoui,
    "arith.extsi": _extsi,
    "arith.extui": _extui,
    "arith.trunci": _trunci,
    "arith.index_cast": _extsi,
    "arith.index_castui": _extui,
    "arith.bitcast": _bitcast,
    "tt.bitcast": _bitcast,
    "tt.int_to_ptr": _int_to_ptr,
    "tt.ptr_to_int": _ptr_to_int,
    "tt.clampf": _clamp,
    "tt.mulhiui": _call("multiply_high"),
    "tt.precise_sqrt": _call("sqrt"),
    "tt.precise_divf": _operator("/"),
    "tt.extern_elementwise": _extern,
    "math.absf": _call("absolute"),
    "math.absi": _call("absolute_integer"),
    "math.fma": _call("fma"),
    "math.copysign": _call("copy_sign"),
    "math.powf": _call("pow"),
    "math.roundeven": _call("round_even"),
    **{f"math.{name}": _call(name) for name in _SAME_NAME},
}

# Results that a small float cannot hold exactly.
_ROUNDED = {
    "arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.remf", "tt.precise_sqrt", "tt.precise_divf",
    "tt.extern_elementwise",
    *(name for name in RULES if name.startswith("math.") and name not in ("math.absf", "math.absi")),
}  # fmt: skip

_COSTS = {
    "arith.divf": 6, "tt.precise_divf": 6, "math.sqrt": 6, "tt.precise_sqrt": 6, "math.rsqrt": 10,
    "math.exp": 12, "math.exp2": 12, "math.log": 14, "math.log2": 14, "math.sin": 20, "math.cos": 20,
    "math.erf": 25, "math.tanh": 25, "tt.extern_elementwise": 25, "arith.divsi": 12, "arith.remsi": 14,
    "arith.divui": 20, "arith.remui": 20, "tt.mulhiui": 5, "arith.maxnumf": 1, "arith.bitcast": 0, "tt.bitcast": 0,
    "arith.extf": 0, "arith.truncf": 2, "tt.fp_to_fp": 4, "arith.select": 1,
}  # fmt: skip


def is_elementwise(name: str) -> bool:
    return name in RULES
