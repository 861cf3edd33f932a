"""The libdevice functions that the CPU has: Triton's names, libdevice's symbols, the functions of ``include/math.h``.

``libdevice.py`` builds its functions from this table, and the code generator looks up symbols in it, so that kernels
which import CUDA's libdevice by name (``__nv_tanhf``) run as well.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Overload:
    """One signature of a function, in Triton's type names."""

    arguments: tuple[str, ...]
    symbol: str
    result: str
    function: str


# Floating point functions of one or two arguments whose name in the headers is the same.
_UNARY = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos", "cosh", "erf", "erfc", "exp", "exp10",
    "exp2", "expm1", "floor", "j0", "j1", "lgamma", "log", "log10", "log1p", "log2", "logb", "rcbrt", "round", "rsqrt",
    "sin", "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc", "y0", "y1",
)  # fmt: skip
_BINARY = ("atan2", "fdim", "fmod", "hypot", "nextafter", "pow")
_RENAMED = {
    "copysign": ("copy_sign", 2),
    "fma": ("fma", 3),
    "nearbyint": ("round_even", 1),
    "remainder": ("ieee_remainder", 2),
    "rint": ("round_even", 1),
}


def _floats(name: str, function: str, arity: int) -> list[Overload]:
    return [
        Overload(("fp32",) * arity, f"__nv_{name}f", "fp32", function),
        Overload(("fp64",) * arity, f"__nv_{name}", "fp64", function),
    ]


TABLE: dict[str, list[Overload]] = {
    **{name: _floats(name, name, 1) for name in _UNARY},
    **{name: _floats(name, name, 2) for name in _BINARY},
    **{name: _floats(name, function, arity) for name, (function, arity) in _RENAMED.items()},
    "abs": [
        Overload(("int32",), "__nv_abs", "int32", "absolute_integer"),
        Overload(("int64",), "__nv_llabs", "int64", "absolute_integer"),
        Overload(("fp32",), "__nv_fabsf", "fp32", "absolute"),
        Overload(("fp64",), "__nv_fabs", "fp64", "absolute"),
    ],
    "brev": [
        Overload(("int32",), "__nv_brev", "int32", "bit_reverse"),
        Overload(("int64",), "__nv_brevll", "int64", "bit_reverse"),
    ],
    "clz": [
        Overload(("int32",), "__nv_clz", "int32", "count_leading_zeros"),
        Overload(("int64",), "__nv_clzll", "int32", "count_leading_zeros"),
    ],
    "ffs": [
        Overload(("int32",), "__nv_ffs", "int32", "find_first_set"),
        Overload(("int64",), "__nv_ffsll", "int32", "find_first_set"),
    ],
    "popc": [
        Overload(("int32",), "__nv_popc", "int32", "population_count"),
        Overload(("int64",), "__nv_popcll", "int32", "population_count"),
    ],
    "mulhi": [
        Overload(("int32", "int32"), "__nv_mulhi", "int32", "multiply_high_signed"),
        Overload(("uint32", "uint32"), "__nv_umulhi", "uint32", "multiply_high"),
        Overload(("int64", "int64"), "__nv_mul64hi", "int64", "multiply_high_signed"),
        Overload(("uint64", "uint64"), "__nv_umul64hi", "uint64", "multiply_high"),
    ],
    "isnan": [
        Overload(("fp32",), "__nv_isnanf", "int32", "is_nan"),
        Overload(("fp64",), "__nv_isnand", "int32", "is_nan"),
    ],
    "isinf": [
        Overload(("fp32",), "__nv_isinff", "int32", "is_infinite"),
        Overload(("fp64",), "__nv_isinfd", "int32", "is_infinite"),
    ],
    "finitef": [Overload(("fp32",), "__nv_finitef", "int32", "is_finite")],
    "isfinited": [Overload(("fp64",), "__nv_isfinited", "int32", "is_finite")],
    "signbit": [
        Overload(("fp32",), "__nv_signbitf", "int32", "sign_bit"),
        Overload(("fp64",), "__nv_signbitd", "int32", "sign_bit"),
    ],
    "saturatef": [Overload(("fp32",), "__nv_saturatef", "fp32", "saturate_unit")],
    "int_as_float": [Overload(("int32",), "__nv_int_as_float", "fp32", "float_of_bits")],
    "float_as_int": [Overload(("fp32",), "__nv_float_as_int", "int32", "bits_of_float")],
    "uint_as_float": [Overload(("uint32",), "__nv_uint_as_float", "fp32", "float_of_bits")],
    "float_as_uint": [Overload(("fp32",), "__nv_float_as_uint", "int32", "bits_of_float")],
    "float2int_rn": [Overload(("fp32",), "__nv_float2int_rn", "int32", "round_to_i32")],
    "float2int_rz": [Overload(("fp32",), "__nv_float2int_rz", "int32", "truncate_to_i32")],
    "float2int_rd": [Overload(("fp32",), "__nv_float2int_rd", "int32", "floor_to_i32")],
    "float2int_ru": [Overload(("fp32",), "__nv_float2int_ru", "int32", "ceil_to_i32")],
    "llrint": [
        Overload(("fp32",), "__nv_llrintf", "int64", "round_to_i64"),
        Overload(("fp64",), "__nv_llrint", "int64", "round_to_i64"),
    ],
    "sqrt_rn": [
        Overload(("fp32",), "__nv_fsqrt_rn", "fp32", "sqrt"),
        Overload(("fp64",), "__nv_dsqrt_rn", "fp64", "sqrt"),
    ],
    "rsqrt_rn": [Overload(("fp32",), "__nv_frsqrt_rn", "fp32", "rsqrt")],
    "div_rn": [
        Overload(("fp32", "fp32"), "__nv_fdiv_rn", "fp32", "quotient"),
        Overload(("fp64", "fp64"), "__nv_ddiv_rn", "fp64", "quotient"),
    ],
    "fma_rn": [
        Overload(("fp32",) * 3, "__nv_fmaf_rn", "fp32", "fma"),
        Overload(("fp64",) * 3, "__nv_fma_rn", "fp64", "fma"),
    ],
    # The fast approximations are the accurate functions here.
    "fast_dividef": [Overload(("fp32", "fp32"), "__nv_fast_fdividef", "fp32", "quotient")],
    "fast_powf": [Overload(("fp32", "fp32"), "__nv_fast_powf", "fp32", "pow")],
    **{
        f"fast_{name}f": [Overload(("fp32",), f"__nv_fast_{name}f", "fp32", name)]
        for name in ("sin", "cos", "log2", "log", "exp", "tan", "exp10", "log10", "tanh")
    },
}

FUNCTIONS: dict[str, str] = {
    overload.symbol: overload.function for overloads in TABLE.values() for overload in overloads
}
