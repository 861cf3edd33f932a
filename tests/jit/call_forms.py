"""Kernels that call functions in every way that the language has.

The decorator is the module's ``jit``: Triton's when ``CALL_FORMS=stock``, else ours. Run as a program it compiles each
kernel to IR for an H200, which needs no GPU, and prints for each what came out, as JSON.
"""

import json
import os
import sys
import types

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language.core import _aggregate as aggregate

if os.environ.get("CALL_FORMS") == "stock":
    jit = triton.jit
    constexpr_function = triton.constexpr_function
else:
    from opgraft.jit import constexpr_function, jit


@jit
def add1(x):
    return x + 1


@jit
def pair(x):
    return x + 1, x * 2


@jit
def combine(a, b):
    return a + b


@jit
def combine_pairs(a0, a1, b0, b1):
    return a0 + b0, a1 * b1


@jit(noinline=True)
def apart(x, n):
    return x + n


@jit
def apply(f: tl.constexpr, x):
    return f(x)


@jit
def apply_plain(f, x):
    return f(x)


@jit
def apply_default(x, f: tl.constexpr = add1):
    return f(x)


@jit
def with_defaults(x, y=3):
    return x * y


@jit
def keyword_only(x, *, scale=2):
    return x * scale


@jit
def variadic(x, *rest):
    return x + rest[0]


@jit
def first_of(fs, x):
    return fs[0](x)


@jit
def early_return(x):
    if tl.program_id(0) == 0:
        return x
    return x + 1


@jit
def nothing(p, o):
    tl.store(p + o, 1.0)


@jit
def recursive(x, N: tl.constexpr):
    if N == 0:
        return x
    else:
        return recursive(x + 1, N - 1)


@jit
def broken(x):
    return x.nosuch()


@constexpr_function
def twice(x):
    return x * 2


@jit
def uses_constexpr_function(x, N: tl.constexpr):
    M: tl.constexpr = twice(N)
    return x + M


@triton.jit
def stock_add1(x):
    return x + 1


@triton.constexpr_function
def stock_twice(x):
    return x * 2


def make_adder(value):
    constant = tl.constexpr(value)

    @jit
    def adder(x):
        return x + constant

    return adder


add2 = make_adder(2)
add3 = make_adder(3)
module = types.ModuleType("module")
module.add1 = add1
module.inner = types.ModuleType("inner")
module.inner.add1 = add1


class Namespace:
    add1 = add1


@aggregate
class Holder:
    v: tl.tensor

    @constexpr_function
    def __init__(self, v):
        self.v = v

    @jit
    def plus(self, y):
        return self.v + y


@aggregate
class JittedHolder:
    v: tl.tensor

    @jit
    def __init__(self, v):
        self.v = v

    @jit
    def plus(self, y):
        return self.v + y


# -- Kernels: each takes a pointer, a block size and, some, a further constant -------------------------------------


@jit
def nested(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, add1(tl.load(p + o)))


@jit
def through_a_module(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, module.add1(tl.load(p + o)))


@jit
def through_a_nested_module(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, module.inner.add1(tl.load(p + o)))


@jit
def through_a_class(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, Namespace.add1(tl.load(p + o)))


@jit
def constexpr_argument(p, B: tl.constexpr, F: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, F(tl.load(p + o)))


@jit
def constexpr_tuple_argument(p, B: tl.constexpr, F: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, F[0](tl.load(p + o)))


@jit
def constexpr_choice(p, B: tl.constexpr, F: tl.constexpr):
    o = tl.arange(0, B)
    g = add1 if F is None else F
    tl.store(p + o, g(tl.load(p + o)))


@jit
def argument_of_a_function(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, apply(add1, tl.load(p + o)))


@jit
def plain_argument_of_a_function(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, apply_plain(add1, tl.load(p + o)))


@jit
def default_argument(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, apply_default(tl.load(p + o)))


@jit
def tuple_result(p, B: tl.constexpr):
    o = tl.arange(0, B)
    a, b = pair(tl.load(p + o))
    tl.store(p + o, a + b)


@jit
def keywords(p, B: tl.constexpr):
    o = tl.arange(0, B)
    x = tl.load(p + o)
    tl.store(p + o, with_defaults(x, y=4) + with_defaults(y=1, x=x) + with_defaults(x))


@jit
def keyword_only_argument(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, keyword_only(tl.load(p + o), scale=3))


@jit
def star_arguments(p, B: tl.constexpr):
    o = tl.arange(0, B)
    x = tl.load(p + o)
    t = (x, x)
    tl.store(p + o, combine(*t))


@jit
def variadic_function(p, B: tl.constexpr):
    o = tl.arange(0, B)
    x = tl.load(p + o)
    tl.store(p + o, variadic(x, x))


@jit
def reduce(p, B: tl.constexpr):
    tl.store(p, tl.reduce(tl.load(p + tl.arange(0, B)), 0, combine))


@jit
def reduce_of_pairs(p, B: tl.constexpr):
    x = tl.load(p + tl.arange(0, B))
    a, b = tl.reduce((x, x), 0, combine_pairs)
    tl.store(p, a + b)


@jit
def reduce_as_a_method(p, B: tl.constexpr):
    tl.store(p, tl.load(p + tl.arange(0, B)).reduce(0, combine))


@jit
def scan(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, tl.associative_scan(tl.load(p + o), 0, combine))


@jit
def map_elementwise(p, B: tl.constexpr):
    o = tl.arange(0, B)
    x = tl.load(p + o)
    tl.store(p + o, tl.map_elementwise(combine, x, x))


@jit
def not_inlined(p, B: tl.constexpr):
    tl.store(p, apart(tl.load(p), 3))


@jit
def not_inlined_with_a_block(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, apart(tl.load(p + o), 3))


@jit
def constexpr_functions(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, uses_constexpr_function(tl.load(p + o), B) + twice(B) + stock_twice(B))


@jit
def tuple_of_functions(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, first_of((add1, combine), tl.load(p + o)))


@jit
def tuple_of_functions_in_a_local(p, B: tl.constexpr):
    o = tl.arange(0, B)
    x = tl.load(p + o)
    fs = (add1, combine)
    tl.store(p + o, fs[0](x) + fs[1](x, x))


@jit
def method_of_an_aggregate(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, Holder(tl.load(p + o)).plus(2))


@jit
def jitted_constructor(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, JittedHolder(tl.load(p + o)).plus(2))


@jit
def returns_early(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, early_return(tl.load(p + o)))


@jit
def without_result(p, B: tl.constexpr):
    nothing(p, tl.arange(0, B))


@jit
def in_loops(p, B: tl.constexpr):
    o = tl.arange(0, B)
    x = tl.load(p + o)
    for _ in tl.static_range(2):
        x = add1(x)
    for _ in range(4):
        x = add1(x)
    tl.store(p + o, x)


@jit
def in_a_condition(p, B: tl.constexpr):
    o = tl.arange(0, B)
    x = tl.load(p + o)
    if tl.program_id(0) > 3:
        x = add1(x)
    tl.store(p + o, x)


@jit
def recursion_over_a_constant(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, recursive(tl.load(p + o), 3))


@jit
def standard_functions(p, B: tl.constexpr):
    o = tl.arange(0, B)
    x = tl.load(p + o)
    tl.store(p + o, tl.softmax(x) + tl.cdiv(B, 3) + tl.sort(x) + tl.cumsum(x, 0))


@jit
def an_error_in_a_helper(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, broken(tl.load(p + o)))


@jit
def too_many_arguments(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, add1(tl.load(p + o), 2))


@triton.jit
def stock_calls_ours(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, add1(tl.load(p + o)) + twice(B))


@triton.jit
def stock_reduces_with_ours(p, B: tl.constexpr):
    tl.store(p, tl.reduce(tl.load(p + tl.arange(0, B)), 0, combine))


@jit
def ours_calls_stock(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, stock_add1(tl.load(p + o)))


@jit
def ours_passes_stock(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, apply(stock_add1, tl.load(p + o)))


@jit
def local_siblings(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, add2(tl.load(p + o)))


@jit
def both_local_siblings(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, add3(add2(tl.load(p + o))))


FORMS = [
    value
    for value in list(globals().values())
    if isinstance(value, triton.JITFunction) and value.arg_names[:2] == ["p", "B"]
]
FURTHER = {
    "constexpr_argument": add1,
    "constexpr_tuple_argument": (add1, combine),
    "constexpr_choice": add1,
}


def ir(kernel):
    """The kernel's first IR for an H200."""
    from triton._C.libtriton import ir as triton_ir
    from triton.compiler.compiler import make_backend

    target = GPUTarget("cuda", 90, 32)
    backend = make_backend(target)
    signature = {"p": "*fp32"} | dict.fromkeys(kernel.arg_names[1:], "constexpr")
    constants = {(1,): 64}
    if len(kernel.arg_names) == 3:
        constants[2,] = FURTHER[kernel.__name__]
    source = ASTSource(kernel, signature, constants, {})
    options = backend.parse_options({})
    context = triton_ir.context()
    triton_ir.load_dialects(context)
    backend.load_dialects(context)
    codegen = backend.get_codegen_implementation(options)
    return source.make_ir(target, options, codegen, backend.get_module_map(), context).str_nodebug()


def outcome(kernel):
    """``["ok", IR]`` or ``["error", type, message]`` with what names the decorator left out."""
    try:
        return ["ok", ir(kernel)]
    except Exception as error:
        while error.__cause__ is not None:
            error = error.__cause__
        message = str(error).strip().splitlines()[-1]
        return ["error", type(error).__name__, message]


if __name__ == "__main__":
    json.dump({kernel.__name__: outcome(kernel) for kernel in FORMS}, sys.stdout)
