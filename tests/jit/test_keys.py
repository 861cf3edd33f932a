"""Keys of compiled kernels: equal exactly for calls that compile to the same code."""

import collections
import enum
import inspect

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
import triton
import triton.language as tl

from opgraft.jit import content, jit
from opgraft.jit.keys import compute_cache_key, key_text, unknown_option

Point = collections.namedtuple("Point", "x y")
Other = collections.namedtuple("Other", "x y")


class Mode(enum.Enum):
    A = 1
    B = 2


class Thing:
    def __init__(self, **values):
        self.__dict__.update(values)


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


@jit
def first(x):
    return x


@jit
def second(x):
    return x + 1


@triton.jit
def stock(x):
    return x


def key(value, kind="constexpr", options=None, known=None):
    return compute_cache_key({} if known is None else known, [(kind, value)], options or {})


# All of these are pairwise different, though Python takes some for equal.
DISTINCT = [
    1,
    True,
    1.0,
    0.0,
    -0.0,
    float("nan"),
    None,
    "1",
    b"1",
    1 + 0j,
    (),
    (1,),
    (True,),
    (1, (2,)),
    [1],
    Point(1, 2),
    Other(1, 2),
    (1, 2),
    {1: 2},
    {1: True},
    frozenset({1}),
    {1},
    Mode.A,
    Mode.B,
    int,
    float,
    torch.float16,
    torch.float32,
    tl.float16,
    tl.float32,
    tl.constexpr(1),
    tl.constexpr(True),
    Thing(a=1),
    Thing(a=2),
    Thing(b=1),
    Slotted(1),
    Slotted(2),
    first,
    second,
    stock,
    lambda x: x,
    lambda x: x + 1,
    len,
    max,
    inspect,
    collections,
]


def test_different_contents_have_different_keys_also_in_one_cache():
    known = {}
    found = [key(value, known=known) for value in DISTINCT]
    for index, value in enumerate(DISTINCT):
        twins = [DISTINCT[other] for other, text in enumerate(found) if text == found[index] and other != index]
        assert not twins, (value, twins)


def test_equal_contents_have_equal_keys():
    def make():
        return [
            Thing(a=[1, {2, 3}], b=Thing(c=Mode.A)),
            Slotted((1, 2)),
            {"b": 1, "a": 2},
            {"a": 2, "b": 1},
            tl.constexpr((1, "x")),
            lambda x: x + 2,
        ]

    assert [key(value) for value in make()] == [key(value) for value in make()]
    assert key({"b": 1, "a": 2}) == key({"a": 2, "b": 1})


def test_a_value_that_holds_itself_has_a_key():
    thing = Thing(a=1)
    thing.self = thing
    other = Thing(a=1)
    other.self = other
    assert key(thing) == key(other)


def test_a_changed_object_has_a_new_key():
    known = {}
    thing = Thing(a=1)
    before = key(thing, known=known)
    thing.a = 2
    assert key(thing, known=known) != before


def test_named_and_plain_tuples_of_arguments_differ():
    known = {}
    plain = compute_cache_key(known, [(("i32", "i32"), ("", ""))], {})
    named = compute_cache_key(known, [(Point("i32", "i32"), Point("", ""))], {})
    assert plain != named


def test_the_order_of_options_does_not_matter_and_their_values_do():
    known = {}
    base = key(1, options={"num_warps": 4, "num_stages": 2}, known=known)
    assert key(1, options={"num_stages": 2, "num_warps": 4}, known=known) == base
    assert key(1, options={"num_stages": 3, "num_warps": 4}, known=known) != base
    assert key(1, options={"num_stages": 2, "num_warps": 4, "debug": 1}, known=known) != key(
        1, options={"num_stages": 2, "num_warps": 4, "debug": True}, known=known
    )
    assert key(1, options={"extern_libs": {"a": "b"}}, known=known) != base


def test_a_key_can_be_read():
    text = key_text([("*fp32", "D"), ("i32", ""), ("constexpr", 64)], {"num_warps": 4, "debug": False})
    assert text == "[('*fp32', 'D',), ('i32', '',), ('constexpr', 64,)]{'debug': False, 'num_warps': 4}"


simple = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=3))
values = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.builds(Point, inner, inner),
    ),
    max_leaves=6,
)


def exact(value):
    """A description by type and repr, to compare with: these types have exact reprs."""
    if isinstance(value, dict):
        return type(value), sorted((k, exact(v)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return type(value), [exact(item) for item in value]
    return type(value), repr(value)


@hypothesis.given(values, values)
@hypothesis.settings(max_examples=300, deadline=None)
def test_texts_are_equal_exactly_for_equal_contents(left, right):
    assert (content.text(left) == content.text(right)) == (exact_key(left) == exact_key(right))


def exact_key(value):
    return repr(exact(value))


def test_an_unknown_option_names_the_nearest_ones():
    error = unknown_option("num_wraps", ["num_warps", "num_stages", "BLOCK"])
    assert isinstance(error, KeyError)
    assert "Keyword argument num_wraps was specified but unrecognised" in str(error)
    assert "did you mean 'num_warps'" in str(error)
    assert "known names: BLOCK, num_stages, num_warps" in str(
        unknown_option("zzz", ["num_warps", "num_stages", "BLOCK"])
    )


def test_a_function_whose_globals_changed_is_refused_as_an_argument(make_module):
    module = make_module(
        "argument",
        "import triton.language as tl\nfrom opgraft.jit import jit\n"
        "C = tl.constexpr(1)\n@jit\ndef f(x): return x + C\n",
    )
    known = {}
    key(module.f, known=known)
    module.C = tl.constexpr(2)
    with pytest.raises(RuntimeError, match="Global variable C has changed"):
        key(module.f, known=known)
