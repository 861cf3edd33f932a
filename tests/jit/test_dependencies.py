"""The cache key covers what a kernel's code depends on, by content; changes are followed or refused."""

import enum
import functools
import math
import threading
import types

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from opgraft.jit import constexpr_function, jit

# -- What reaches the key: a module is written twice, and its kernel's key compared ------------------------------

HEADER = """
import enum, math, types
import triton, triton.language as tl
from opgraft.jit import jit, constexpr_function
"""

EDITS = {
    "its own body": ("@jit\ndef kernel(x):\n    tl.store(x, 1)\n", "x, 1)", "x, 2)"),
    "a comment inside": ("@jit\ndef kernel(x):\n    # one\n    tl.store(x, 1)\n", "# one", "# two"),
    "its line": ("\n@jit\ndef kernel(x):\n    tl.store(x, 1)\n", "\n@jit", "\n\n@jit"),
    "a helper": (
        "@jit\ndef helper(x): return x + 1\n@jit\ndef kernel(x):\n    tl.store(x, helper(1))\n",
        "x + 1",
        "x + 2",
    ),
    "a helper of a helper": (
        "@jit\ndef deep(x): return x + 1\n@jit\ndef helper(x): return deep(x)\n"
        "@jit\ndef kernel(x):\n    tl.store(x, helper(1))\n",
        "x + 1",
        "x + 2",
    ),
    "a stock helper": (
        "@triton.jit\ndef helper(x): return x + 1\n@jit\ndef kernel(x):\n    tl.store(x, helper(1))\n",
        "x + 1",
        "x + 2",
    ),
    "our helper of a stock helper": (
        "@jit\ndef deep(x): return x + 1\n@triton.jit\ndef helper(x): return deep(x)\n"
        "@jit\ndef kernel(x):\n    tl.store(x, helper(1))\n",
        "x + 1",
        "x + 2",
    ),
    "our helper of a stock kernel": (
        "@jit\ndef helper(x): return x + 1\n@triton.jit\ndef kernel(x):\n    tl.store(x, helper(1))\n",
        "x + 1",
        "x + 2",
    ),
    "a helper in a module": (
        "@jit\ndef helper(x): return x + 1\nmod = types.ModuleType('mod'); mod.helper = helper\n"
        "@jit\ndef kernel(x):\n    tl.store(x, mod.helper(1))\n",
        "x + 1",
        "x + 2",
    ),
    "a helper in a constexpr branch": (
        "@jit\ndef helper(x): return x + 1\n@jit\ndef kernel(x, N: tl.constexpr):\n"
        "    if N == 1:\n        tl.store(x, helper(1))\n    else:\n        tl.store(x, 1)\n",
        "x + 1",
        "x + 2",
    ),
    "a combine function of a reduction": (
        "@jit\ndef combine(a, b): return a + b\n@jit\ndef kernel(x):\n"
        "    tl.store(x, tl.reduce(tl.load(x + tl.arange(0, 8)), 0, combine))\n",
        "a + b",
        "a * b",
    ),
    "a combine function of a scan": (
        "@jit\ndef combine(a, b): return a + b\n@jit\ndef kernel(x):\n    i = tl.arange(0, 8)\n"
        "    tl.store(x + i, tl.associative_scan(tl.load(x + i), 0, combine))\n",
        "a + b",
        "a * b",
    ),
    "whether a helper is inlined": (
        "@jit(noinline=True)\ndef helper(x): return x + 1\n@jit\ndef kernel(x):\n    tl.store(x, helper(1))\n",
        "noinline=True",
        "noinline=None",
    ),
    "a default that is a function": (
        "@jit\ndef helper(x): return x + 1\n@jit\ndef kernel(x, F: tl.constexpr = helper):\n    tl.store(x, F(1))\n",
        "x + 1",
        "x + 2",
    ),
    "a default computed outside": (
        "SIZE = 4\n@jit\ndef helper(x, N: tl.constexpr = SIZE): return x + N\n"
        "@jit\ndef kernel(x):\n    tl.store(x, helper(1))\n",
        "SIZE = 4",
        "SIZE = 8",
    ),
    "a global constant": ("C = tl.constexpr(1)\n@jit\ndef kernel(x):\n    tl.store(x, C)\n", "(1)", "(2)"),
    "the type of a constant": ("C = tl.constexpr(1)\n@jit\ndef kernel(x):\n    tl.store(x, C)\n", "(1)", "(1.0)"),
    "a constant that is true": ("C = tl.constexpr(1)\n@jit\ndef kernel(x):\n    tl.store(x, C)\n", "(1)", "(True)"),
    "a constant in a module": (
        "mod = types.ModuleType('mod'); mod.C = tl.constexpr(1)\n@jit\ndef kernel(x):\n    tl.store(x, mod.C)\n",
        "(1)",
        "(2)",
    ),
    "a constant of a class": (
        "class Sizes:\n    N = 4\n@jit\ndef kernel(x):\n    tl.store(x, Sizes.N)\n",
        "N = 4",
        "N = 8",
    ),
    "the value of an enum member": (
        "class Mode(enum.Enum):\n    FAST = 4\n@jit\ndef kernel(x):\n    tl.store(x, Mode.FAST.value)\n",
        "= 4",
        "= 8",
    ),
    "a constant that is added to": (
        "C = tl.constexpr(1)\n@jit\ndef kernel(x):\n    C += 1\n    tl.store(x, C)\n",
        "constexpr(1)",
        "constexpr(2)",
    ),
    "a constant read before a local takes its name": (
        "C = tl.constexpr(1)\n@jit\ndef kernel(x):\n    C = C + 1\n    tl.store(x, C)\n",
        "constexpr(1)",
        "constexpr(2)",
    ),
    "a constant hidden by a local in one branch": (
        "C = tl.constexpr(1)\n@jit\ndef kernel(x, N: tl.constexpr):\n    if N == 1:\n        C = 5\n"
        "    tl.store(x, C)\n",
        "constexpr(1)",
        "constexpr(2)",
    ),
    "a closure variable": (
        "def make(value):\n    C = tl.constexpr(value)\n    @jit\n    def kernel(x):\n        tl.store(x, C)\n"
        "    return kernel\nkernel = make(1)\n",
        "make(1)",
        "make(2)",
    ),
    "a constexpr function": (
        "@constexpr_function\ndef double(n): return 2 * n\n@jit\ndef kernel(x):\n    tl.store(x, double(1))\n",
        "2 * n",
        "3 * n",
    ),
    "plain Python behind a constexpr function": (
        "def plain(n): return 2 * n\n@constexpr_function\ndef double(n): return plain(n)\n"
        "@jit\ndef kernel(x):\n    tl.store(x, double(1))\n",
        "2 * n",
        "3 * n",
    ),
    "one function of a recursion": (
        "@jit\ndef odd(x, N: tl.constexpr): return even(x, N - 1) if N else x\n"
        "@jit\ndef even(x, N: tl.constexpr): return odd(x + 1, N - 1) if N else x\n"
        "@jit\ndef kernel(x):\n    tl.store(x, odd(1, 3))\n",
        "x + 1",
        "x + 2",
    ),
    "the field of an aggregate": (
        "from triton.language.core import _aggregate as aggregate\n@aggregate\nclass Pair:\n    a: tl.tensor\n"
        "    @constexpr_function\n    def __init__(self, a): self.a = a\n"
        "    @jit\n    def plus(self, y): return self.a + y\n"
        "@jit\ndef kernel(x):\n    tl.store(x, Pair(tl.load(x)).plus(2))\n",
        "self.a + y",
        "self.a - y",
    ),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_changes_the_key(what, make_module):
    source, old, new = EDITS[what]
    assert old in source
    before = make_module("edited", HEADER + source).kernel.cache_key
    assert make_module("edited", HEADER + source).kernel.cache_key == before
    assert make_module("edited", HEADER + source.replace(old, new)).kernel.cache_key != before


SAME = {
    "a helper that it does not call": ("@jit\ndef other(x): return x + 1\n", "x + 1", "x + 2"),
    "a constant that it does not read": ("D = 1\n", "D = 1", "D = 2"),
    "a global whose name a parameter hides": ("x = 1\n", "x = 1", "x = 2"),
    "a global whose name a local hides": ("y = 7\n", "y = 7", "y = 8"),
    "a global whose name a loop variable hides": ("i = 1\n", "i = 1", "i = 2"),
    "a global whose name a comprehension hides": ("j = 1\n", "j = 1", "j = 2"),
}


@pytest.mark.parametrize("what", SAME)
def test_an_edit_of_something_else_keeps_the_key(what, make_module):
    extra, old, new = SAME[what]
    source = (
        HEADER
        + extra
        + (
            "@jit\ndef kernel(x):\n    y = 1\n    for i in range(4):\n        y = y + i\n"
            "    z = [j for j in (1, 2)]\n    tl.store(x, y + z[0])\n"
        )
    )
    before = make_module("edited", source).kernel.cache_key
    assert make_module("edited", source.replace(old, new)).kernel.cache_key == before


# -- Structure -----------------------------------------------------------------------------------------------------


@jit
def add_one(x):
    return x + 1


@jit
def ping(x, N: tl.constexpr):
    return pong(x, N - 1) if N else x


@jit
def pong(x, N: tl.constexpr):
    return ping(x, N - 1) if N else x


def test_recursion_ends_and_does_not_depend_on_who_was_asked_first():
    keys = ping.cache_key, pong.cache_key
    for first, second in ((pong, ping), (ping, pong)):
        ping.hash = pong.hash = None
        first.cache_key, second.cache_key  # noqa: B018
        assert (ping.cache_key, pong.cache_key) == keys


def test_recursion_between_ours_and_stock_ends():
    scope = types.ModuleType("scope")

    @triton.jit
    def stock(x, N: tl.constexpr):
        return scope.ours(x, N - 1) if N else x

    @jit
    def ours(x, N: tl.constexpr):
        return scope.stock(x, N - 1) if N else x

    scope.stock, scope.ours = stock, ours
    assert len(ours.cache_key) == len(stock.cache_key) == 64


def test_threads_that_ask_for_keys_of_a_recursion_together_do_not_block():
    for _ in range(20):
        ping.hash = pong.hash = None
        found = []
        start = threading.Barrier(4)

        def ask(kernel, found=found, start=start):
            start.wait()
            found.append((kernel.__name__, kernel.cache_key))

        threads = [threading.Thread(target=ask, args=(kernel,)) for kernel in (ping, pong, ping, pong)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert sorted(found) == sorted([("ping", ping.cache_key), ("pong", pong.cache_key)] * 2)


def make_siblings():
    kernels = []
    for value in (1, 2):
        constant = tl.constexpr(value)

        def make(constant):
            @jit
            def sibling(x):
                tl.store(x, constant)

            return sibling

        kernels.append(make(constant))
    return kernels


def test_local_kernels_with_one_name_have_keys_of_their_own():
    first, second = make_siblings()
    assert first.__qualname__ == second.__qualname__
    assert first.cache_key != second.cache_key
    again = make_siblings()
    assert [kernel.cache_key for kernel in again] == [first.cache_key, second.cache_key]


def helpers_of_one_name(decorator, difference):
    """Two functions with one qualified name: v + 1 and v + 2."""

    def of_other_source(add_one):
        if add_one:

            @decorator
            def helper(v):
                return v + 1
        else:

            @decorator
            def helper(v):
                return v + 2

        return helper

    def of_other_closure(add_one):
        step = tl.constexpr(1 if add_one else 2)

        @decorator
        def helper(v):
            return v + step

        return helper

    make = of_other_source if difference == "source" else of_other_closure
    return make(True), make(False)


@pytest.mark.parametrize("difference", ["source", "closure"])
@pytest.mark.parametrize("decorator", [jit, triton.jit], ids=["ours", "stock"])
def test_local_helpers_with_one_name_are_two(decorator, difference):
    first, second = helpers_of_one_name(decorator, difference)

    @jit
    def by_name(x):
        v = tl.load(x)
        tl.store(x, first(v) * 10 + second(v))

    @jit
    def by_constant(x, f: tl.constexpr, g: tl.constexpr):
        v = tl.load(x)
        tl.store(x, f(v) * 10 + g(v))

    @jit
    def through_another(x):
        v = tl.load(x)
        tl.store(x, calls_first(v) * 10 + second(v))

    @decorator
    def calls_first(v):
        return first(v)

    assert first.__qualname__ == second.__qualname__ == first.fn.__qualname__
    for kernel, constants in ((by_name, ()), (by_constant, (first, second)), (through_another, ())):
        x = torch.ones(1)
        kernel[(1,)](x, *constants)
        assert x.item() == 23, kernel.__name__


def test_a_closure_hides_a_global_of_the_same_name():
    shadowed = tl.constexpr(1)

    @jit
    def kernel(x):
        tl.store(x, shadowed)

    (name,) = (name for name, _ in kernel.used_global_vals)
    assert name == "shadowed"
    (value, scope) = next(iter(kernel.used_global_vals.values()))
    assert value.value == 1
    assert scope.get("shadowed") is shadowed


shadowed = tl.constexpr(99)


# -- What it may name ------------------------------------------------------------------------------------------------


def plain_function(x):
    return x


@jit
def calls_plain(x):
    tl.store(x, plain_function(1))


def test_a_plain_python_function_is_refused_by_name():
    with pytest.raises(RuntimeError, match=r"Unsupported function referenced: <function plain_function.*calls_plain"):
        calls_plain.cache_key  # noqa: B018


def test_an_error_is_raised_again_by_the_next_use():
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Unsupported function"):
            calls_plain.cache_key  # noqa: B018


@jit
def uses_what_is_known(x, other: tl.tensor, N: tl.constexpr = math.floor(2.5)):  # noqa: B008
    y = libdevice.exp(tl.load(x)) + math.pi
    y = max(min(len((1, 2)), 3), y) if isinstance(N, int) else float(y)
    tl.static_assert(N > 0)
    tl.store(x, y + tl.cdiv(N, 2))


def test_builtins_math_the_language_and_libdevice_are_known():
    assert len(uses_what_is_known.cache_key) == 64
    assert not uses_what_is_known.used_global_vals


def test_annotations_may_name_anything(make_module):
    source = (
        HEADER
        + "from typing import Optional\n@jit\ndef kernel(x: Optional[int]) -> Optional[int]:\n    tl.store(x, 1)\n"
    )
    assert len(make_module("annotated", source).kernel.cache_key) == 64


def test_a_missing_attribute_of_a_module_is_left_to_the_compiler(make_module):
    kernel = make_module("missing", HEADER + "@jit\ndef kernel(x):\n    tl.store(x, types.nothing(1))\n").kernel
    assert len(kernel.cache_key) == 64


# -- Values that change ----------------------------------------------------------------------------------------------


def test_used_values_are_copies_with_their_scope(make_module):
    module = make_module("values", HEADER + "C = tl.constexpr([1])\n@jit\ndef kernel(x):\n    tl.store(x, C[0])\n")
    ((name, where), (value, scope)) = next(iter(module.kernel.used_global_vals.items()))
    assert (name, where, scope) == ("C", id(vars(module)), vars(module))
    module.C.value.append(2)
    assert value.value == [1]


CHANGES = {
    "a global": ("C = tl.constexpr(1)\n", "C", "C", tl.constexpr(2)),
    "a global of another type": ("C = tl.constexpr(1)\n", "C", "C", tl.constexpr(True)),
    "a global that is deleted": ("C = tl.constexpr(1)\n", "C", "C", None),
    "an attribute of a module": (
        "mod = types.ModuleType('mod'); mod.C = tl.constexpr(1)\n",
        "mod.C",
        "mod.C",
        tl.constexpr(2),
    ),
    "an attribute of a class": (
        "class Base:\n    C = tl.constexpr(1)\nclass Sizes(Base):\n    pass\n",
        "Sizes.C",
        "Base.C",
        tl.constexpr(2),
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_refused_by_name_with_both_values(what, make_module):
    head, read, name, new = CHANGES[what]
    module = make_module("changed", HEADER + head + f"@jit\ndef kernel(x):\n    tl.store(x, {read})\n")
    module.kernel.cache_key  # noqa: B018
    assert module.kernel.check_dependencies()
    *path, name = name.split(".")
    owner = functools.reduce(getattr, path, module)
    if new is None:
        delattr(owner, name)
    else:
        setattr(owner, name, new)
    shown = "no value" if new is None else str(new).replace("[", r"\[")
    with pytest.raises(
        RuntimeError,
        match=rf"Global variable C has changed since we compiled this kernel, from constexpr\[1\] to {shown}",
    ):
        module.kernel.check_dependencies()


def test_a_change_in_place_is_refused(make_module):
    module = make_module("changed", HEADER + "C = tl.constexpr([1])\n@jit\ndef kernel(x):\n    tl.store(x, C[0])\n")
    module.kernel.cache_key  # noqa: B018
    module.C.value[0] = 2
    with pytest.raises(RuntimeError, match="Global variable C has changed since we compiled this kernel"):
        module.kernel.check_dependencies()


def test_a_changed_closure_variable_is_refused():
    def make():
        constant = tl.constexpr(1)

        @jit
        def kernel(x):
            tl.store(x, constant)

        def change(value):
            nonlocal constant
            constant = value

        return kernel, change

    kernel, change = make()
    kernel.cache_key  # noqa: B018
    change(tl.constexpr(2))
    with pytest.raises(
        RuntimeError, match=r"Global variable constant has changed .* from constexpr\[1\] to constexpr\[2\]"
    ):
        kernel.check_dependencies()


def test_an_equal_value_is_no_change(make_module):
    module = make_module("changed", HEADER + "C = tl.constexpr(1)\n@jit\ndef kernel(x):\n    tl.store(x, C)\n")
    module.kernel.cache_key  # noqa: B018
    module.C = tl.constexpr(1)
    assert module.kernel.check_dependencies()


def test_nan_is_no_change(make_module):
    module = make_module(
        "changed", HEADER + "C = tl.constexpr(float('nan'))\n@jit\ndef kernel(x):\n    tl.store(x, C)\n"
    )
    module.kernel.cache_key  # noqa: B018
    assert module.kernel.check_dependencies()


def test_a_value_that_a_helper_reads_counts_too(make_module):
    module = make_module(
        "changed",
        HEADER
        + "C = tl.constexpr(1)\n@jit\ndef helper(x): return x + C\n@jit\ndef kernel(x):\n    tl.store(x, helper(1))\n",
    )
    module.kernel.cache_key  # noqa: B018
    module.C = tl.constexpr(2)
    with pytest.raises(RuntimeError, match="Global variable C has changed"):
        module.kernel.check_dependencies()


TWO_READERS = """
C = tl.constexpr(1)
@{first}
def inner(x): return x + C
@jit
def outer(x):
    tl.store(x, inner(C))
"""


@pytest.mark.parametrize("first", ["jit", "triton.jit"])
def test_two_functions_that_saw_different_values_are_refused(first, make_module):
    module = make_module("readers", HEADER + TWO_READERS.format(first=first))
    module.inner.cache_key  # noqa: B018
    module.C = tl.constexpr(2)
    with pytest.raises(
        RuntimeError,
        match=r"Global variable C has value .* when compiling readers.outer, but inner kernel inner has conflicting",
    ):
        module.outer.cache_key  # noqa: B018


def test_a_stock_kernel_hears_of_a_change_behind_ours(make_module):
    module = make_module(
        "mixed",
        HEADER + "C = tl.constexpr(1)\n@jit\ndef helper(x): return x + C\n"
        "@triton.jit\ndef kernel(x):\n    tl.store(x, helper(1))\n",
    )
    module.kernel.cache_key  # noqa: B018
    (value, scope) = module.kernel.used_global_vals["C", id(vars(module))]
    assert value.value == 1 and scope is vars(module)


def test_a_helper_bound_anew_is_followed(make_module):
    """As when the cell of a notebook that defines it runs again."""
    module = make_module(
        "notebook", HEADER + "@jit\ndef helper(x): return x + 1\n@jit\ndef kernel(x):\n    tl.store(x, helper(1))\n"
    )
    before = module.kernel.cache_key
    old = module.helper

    @jit
    def helper(x):
        return x + 2

    module.helper = helper
    assert not module.kernel.check_dependencies()
    assert module.kernel.cache_key != before
    assert module.kernel.check_dependencies()
    module.helper = old
    assert not module.kernel.check_dependencies()
    assert module.kernel.cache_key == before


def test_an_equal_helper_bound_anew_is_no_change(make_module):
    source = HEADER + "@jit\ndef helper(x): return x + 1\n"
    module = make_module("helpers", source)
    kernel = make_module(
        "user", HEADER + "import helpers\n@jit\ndef kernel(x):\n    tl.store(x, helpers.helper(1))\n"
    ).kernel
    kernel.cache_key  # noqa: B018
    fresh = make_module("helpers", source)
    assert fresh.helper is not module.helper
    module.helper = fresh.helper
    assert kernel.check_dependencies()


class Mode(enum.Enum):
    FAST = 1


@constexpr_function
def with_plain_python(n):
    values = {name: index for index, name in enumerate(sorted(["a", "b"]))}
    try:
        import os as operating_system

        values["c"] = len(operating_system.sep)
    except ImportError as error:
        raise ValueError(error) from error

    def inner(m):
        return m + values["a"]

    return inner(n) + (lambda k: k)(1) + Mode.FAST.value


def test_a_constexpr_function_is_plain_python():
    assert with_plain_python(2) == 4
    assert len(with_plain_python.cache_key) == 64
