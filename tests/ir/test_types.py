"""Types and attributes: interned, written as MLIR writes them, read back as they were."""

import copy
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opgraft.jit.ir import (
    UNIT,
    DenseArray,
    DenseElements,
    DescriptorType,
    Float,
    FunctionType,
    Integer,
    IRError,
    Opaque,
    OpaqueType,
    PointerType,
    ScalarType,
    SymbolRef,
    TensorType,
)
from opgraft.jit.ir.attributes import attribute_text
from opgraft.jit.ir.floats import FORMATS, encode, rounded
from opgraft.jit.ir.fragments import Fragments
from opgraft.jit.ir.types import F32, I1, I32, I64

_INTEGERS = [ScalarType(name) for name in ("i1", "i8", "i16", "i32", "i64", "ui8", "si32", "index")]
_FLOATS = [ScalarType(name) for name in FORMATS]
scalars = st.sampled_from(_INTEGERS + _FLOATS)
pointers = st.builds(PointerType, scalars, st.sampled_from([1, 3]))
shapes = st.lists(st.integers(0, 1024), max_size=4).map(tuple)
encodings = st.sampled_from([None, "#ttg.blocked<{sizePerThread = [1, 4], order = [1, 0]}>"])
tensors = st.builds(TensorType, shapes, scalars | pointers, encodings)
values = (
    scalars
    | pointers
    | tensors
    | st.builds(PointerType, tensors)
    | st.builds(DescriptorType, tensors, st.booleans())
    | st.sampled_from([OpaqueType("!ttg.memdesc<16x32xf32, #ttg.shared<{a = 1}>>"), OpaqueType("vector<4xf32>")])
)
types = values | st.builds(
    FunctionType, st.lists(values, max_size=3).map(tuple), st.lists(values, max_size=3).map(tuple)
)


def _read(text, method):
    cursor = Fragments(text)
    found = getattr(cursor, method)()
    assert cursor.pos == len(text)
    return found


@settings(deadline=None)
@given(types)
def test_a_type_is_read_back_as_the_same_object(type):
    assert _read(str(type), "read_type") is type


@settings(deadline=None)
@given(types)
def test_copies_of_a_type_are_the_type(type):
    assert copy.copy(type) is copy.deepcopy(type) is pickle.loads(pickle.dumps(type)) is type


def test_types_are_written_as_mlir_writes_them():
    block = TensorType((16, 32), F32)
    assert str(PointerType(F32)) == "!tt.ptr<f32>"
    assert str(PointerType(F32, 3)) == "!tt.ptr<f32, 3>"
    assert str(PointerType(block)) == "!tt.ptr<tensor<16x32xf32>>"
    assert str(TensorType((), I1)) == "tensor<i1>"
    assert str(TensorType((64,), PointerType(F32))) == "tensor<64x!tt.ptr<f32>>"
    assert str(FunctionType((I32, F32), (I32,))) == "(i32, f32) -> i32"
    assert str(FunctionType((), ())) == "() -> ()"
    assert str(FunctionType((), (FunctionType((I32,), ()),))) == "() -> ((i32) -> ())"


def test_types_are_frozen():
    with pytest.raises(AttributeError, match="frozen"):
        F32.width = 16
    with pytest.raises(AttributeError, match="frozen"):
        del F32.width


def test_scalars_know_what_they_are():
    assert [(t.width, t.is_integer, t.is_float) for t in (I1, ScalarType("index"), ScalarType("bf16"))] == [
        (1, True, False),
        (64, True, False),
        (16, False, True),
    ]
    assert TensorType((4, 8), F32).size == 32


@pytest.mark.parametrize("name", ["", "f33", "i", "float", "i-1"])
def test_no_scalar(name):
    with pytest.raises(IRError, match="no scalar type"):
        ScalarType(name)


def test_no_dynamic_shape():
    with pytest.raises(IRError, match="static shape"):
        TensorType((4, -1), F32)


# -- attributes ----------------------------------------------------------------------------------------------


@st.composite
def numbers(draw, type=None):
    type = draw(st.sampled_from(_INTEGERS[1:] + _FLOATS)) if type is None else type
    if type.is_float:
        value = draw(st.floats())
        return Float(rounded(type.name, value), type)
    return Integer(draw(st.integers(-(2 ** (type.width - 1)), 2 ** (type.width - 1) - 1)), type)


@st.composite
def dense(draw):
    element = draw(st.sampled_from(_INTEGERS[:5] + _FLOATS))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    type = TensorType(shape, element)
    one = st.booleans() if element is I1 else numbers(element).map(float if element.is_float else int)
    if draw(st.booleans()) and type.size:
        return DenseElements(type, splat=draw(one))
    return DenseElements(type, values=draw(st.lists(one, min_size=type.size, max_size=type.size)))


arrays = st.sampled_from([ScalarType(n) for n in ("i1", "i8", "i32", "i64", "f32", "f64")]).flatmap(
    lambda t: st.lists(st.booleans() if t is I1 else numbers(t), max_size=4).map(lambda v: DenseArray(v, t))
)
simple = (
    st.booleans()
    | numbers()
    | st.text()
    | st.just(UNIT)
    | types
    | arrays
    | dense()
    | st.text(min_size=1).filter(lambda s: ":" not in s).map(SymbolRef)
    | st.just(Opaque("#arith.fastmath<nnan,contract>"))
)
attributes = st.recursive(
    simple,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner, max_size=3),
    max_leaves=6,
)


def _same(a, b):
    """Equal in type and bits (NaN equals NaN, -0.0 differs from 0.0)."""
    assert type(a) is type(b)
    if isinstance(a, list):
        assert len(a) == len(b) and getattr(a, "element_type", None) is getattr(b, "element_type", None)
        if not isinstance(a, DenseArray):
            for left, right in zip(a, b, strict=True):
                _same(left, right)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for name in a:
            _same(a[name], b[name])
    elif isinstance(a, Float):
        assert a.type is b.type and encode(a.type.name, a) == encode(b.type.name, b)
    elif isinstance(a, Integer):
        assert a.type is b.type and a == b
    elif isinstance(a, DenseElements):
        assert (a.type, a.is_splat) == (b.type, b.is_splat)
    else:
        assert a == b
    assert attribute_text(a) == attribute_text(b)


@settings(deadline=None)
@given(attributes)
def test_an_attribute_is_read_back_as_it_was(attribute):
    _same(_read(attribute_text(attribute), "read_attribute"), attribute)


@settings(deadline=None)
@given(numbers())
def test_typed_numbers_survive_copies(number):
    for other in (copy.copy(number), copy.deepcopy(number), pickle.loads(pickle.dumps(number))):
        _same(other, number)


@settings(deadline=None)
@given(st.text())
def test_strings_are_written_in_printable_ascii(text):
    written = attribute_text(text)
    assert written.isascii() and written.isprintable()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3 : i32"),
        (Integer(3, I64), "3 : i64"),
        (True, "true"),
        (1.0, "1.000000e+00 : f32"),
        (0.1, "1.000000e-01 : f32"),
        (float("-inf"), "0xFF800000 : f32"),
        (1 / 3, "3.33333333e-01 : f32"),
        ('say "hi"\n', r'"say \22hi\22\0A"'),
        ("é\\", r'"\C3\A9\\"'),
        (DenseArray([1, 0]), "array<i32: 1, 0>"),
        (DenseArray([], I64), "array<i64>"),
        (DenseElements(TensorType((2, 2), I32), values=[1, 2, 3, 4]), "dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>"),
        (DenseElements(TensorType((4,), F32), splat=0.0), "dense<0.000000e+00> : tensor<4xf32>"),
        (SymbolRef("a.b_c"), "@a.b_c"),
        (SymbolRef("a(b)"), '@"a(b)"'),
        ({"a": UNIT, "b-c": 1}, '{a, "b-c" = 1 : i32}'),
    ],
)
def test_attributes_are_written_as_mlir_writes_them(value, text):
    assert attribute_text(value) == text


def test_raw_elements():
    """What MLIR writes for large constants that are no splat: the bytes, little-endian."""
    found = _read('dense<"0x0100FFFF0200"> : tensor<3xi16>', "read_attribute")
    assert found.values == (1, -1, 2)
    found = _read('dense<"0x0000803F000000C0"> : tensor<2xf32>', "read_attribute")
    assert found.values == (1.0, -2.0)


def test_dense_elements_need_all_their_values():
    with pytest.raises(IRError, match="4 elements, got 3"):
        DenseElements(TensorType((4,), I32), values=[1, 2, 3])
    with pytest.raises(IRError, match="either splat or values"):
        DenseElements(TensorType((4,), I32))


def test_what_is_no_attribute():
    with pytest.raises(IRError, match=r"object\) cannot be written"):
        attribute_text(object())
