"""Types and keys of arguments: what Triton gives for every value it takes, and more where it refuses."""

import enum
from collections import namedtuple

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import BaseBackend
from triton.tools.tensor_descriptor import TensorDescriptor

from opgraft.jit import constexpr_function, jit, reinterpret
from opgraft.jit.binder import make_binder

native = pytest.importorskip("triton._C.libtriton").native_specialize_impl


class Backend(BaseBackend):
    """The default rules, which backends inherit."""

    supports_target = staticmethod(lambda target: True)
    hash = parse_options = add_stages = load_dialects = get_module_map = None

    def __init__(self):
        pass


BACKEND = Backend()
Point = namedtuple("Point", "x y")
BUFFER = torch.zeros(4096, dtype=torch.uint8)
ALIGNED = BUFFER[-BUFFER.data_ptr() % 64 :]


class Color(enum.IntEnum):
    ONE = 1
    SIXTEEN = 16


class Plain(enum.Enum):
    A = 1


class Word(str, enum.Enum):
    A = "a"


class Pointer:
    """Something with an address that is no tensor."""

    dtype = torch.float16

    def __init__(self, address):
        self.address = address

    def data_ptr(self):
        return self.address


@jit
def helper(x):
    return x


@constexpr_function
def twice(x):
    return 2 * x


def specialize(value, option=None, annotation=None):
    def kernel(a):
        pass

    if annotation is not None:
        kernel.__annotations__["a"] = annotation
    options = {option: ["a"]} if option else {}
    made = jit(**options)(kernel)
    binder = make_binder("kernel", made.signature, made.params, BACKEND)
    return binder(value)[1][0]


def tensor(dtype, offset=0):
    return (
        ALIGNED[offset : offset + 64].view(torch.uint8).view(dtype) if offset % 8 == 0 else ALIGNED[offset:].view(dtype)
    )


DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.uint16,
    torch.int32,
    torch.uint32,
    torch.int64,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]

VALUES = [
    None,
    True,
    False,
    0,
    1,
    -1,
    16,
    17,
    -16,
    2**31 - 1,
    2**31,
    -(2**31),
    -(2**31) - 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
    0.0,
    1.0,
    float("nan"),
    Color.ONE,
    Color.SIXTEEN,
    np.float64(2.5),
    tl.constexpr(4),
    helper,
    twice,
    triton.cdiv,
    (),
    (1, 2),
    (1, (None, 16.0, (True,))),
    Point(16, None),
    Point(Point(1, 2), (3,)),
    torch.Size([1, 2]),
    *[tensor(dtype) for dtype in DTYPES],
    *[tensor(dtype, 8) for dtype in DTYPES],
    torch.zeros(()),
    torch.zeros(0),
    torch.nn.Parameter(tensor(torch.float32)),
    (tensor(torch.float32), Point(tensor(torch.int8, 8), 3)),
    Pointer(32),
    Pointer(8),
    triton.MockTensor(torch.float32),
    reinterpret(tensor(torch.int32), tl.float32),
    triton.reinterpret(tensor(torch.int32), tl.float32),
    TensorDescriptor.from_tensor(tensor(torch.float32)[:16].view(4, 4), [4, 4]),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}:{value!r}"[:50])
@pytest.mark.parametrize("option", [None, "do_not_specialize", "do_not_specialize_on_alignment"])
@pytest.mark.parametrize("annotation", [None, tl.const])
def test_type_and_key_are_those_of_triton(value, option, annotation):
    expected = native(
        BaseBackend,
        value,
        annotation is tl.const,
        option != "do_not_specialize",
        option != "do_not_specialize_on_alignment",
    )
    found = specialize(value, option, annotation)
    assert found == expected
    assert type(found[0]) is type(expected[0])


def test_gluons_descriptors_have_the_type_that_triton_gives():
    hopper = pytest.importorskip("triton.experimental.gluon.nvidia.hopper")
    from triton.experimental.gluon import language as ttgl

    layout = ttgl.NVMMASharedLayout.get_default_for([16, 32], ttgl.float16)
    value = hopper.TensorDescriptor.from_tensor(tensor(torch.float16)[:0].new_zeros(64, 64), [16, 32], layout)
    found = specialize(value)
    assert found == native(BaseBackend, value, False, True, True)
    assert found[0].startswith("tensordesc<fp16[16, 32],NVMMASharedLayout(")


leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.sampled_from([ALIGNED, ALIGNED[1:]])
)
trees = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.builds(Point, inner, inner), max_leaves=8
)


@hypothesis.given(trees)
@hypothesis.settings(max_examples=200, deadline=None)
def test_any_nesting_is_specialized_as_triton_does(value):
    assert repr(specialize(value)) == repr(native(BaseBackend, value, False, True, True))


@pytest.mark.parametrize(
    "value, expected",
    [
        (np.int64(16), ("i32", "D")),
        (np.int32(1), ("constexpr", 1)),
        (np.uint64(2**63), ("u64", "D")),
        (np.int8(-3), ("i32", "")),
        (np.float32(0.5), ("fp32", None)),
        (np.float16(0.5), ("fp32", None)),
        (np.bool_(True), ("u1", None)),
        ((np.int64(16), (np.bool_(False),)), (("i32", ("u1",)), ("D", (None,)))),
    ],
    ids=repr,
)
def test_numpy_scalars_are_python_numbers(value, expected):
    assert specialize(value) == expected


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**30])
def test_an_int_beyond_64_bits_is_refused_by_name(value):
    with pytest.raises(OverflowError, match=r"argument 'a': integer to be specialized too large to represent"):
        specialize(value)


@pytest.mark.parametrize(
    "value, advice",
    [
        ([1, 2], "pass a tuple"),
        ({}, "expected a tensor, int, float"),
        ("text", "annotate the parameter as tl.constexpr"),
        (1j, "expected a tensor"),
        (object(), "expected a tensor"),
        (torch.float32, r"annotate the parameter as tl.constexpr .*a: tl.constexpr"),
        (tl.float32, "annotate the parameter as tl.constexpr"),
        (Plain.A, "annotate the parameter as tl.constexpr"),
        (Word.A, "annotate the parameter as tl.constexpr"),
        (int, "annotate the parameter as tl.constexpr"),
        (lambda x: x, "decorate the function with jit"),
        ((1, [2]), "pass a tuple"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_anything_else_is_refused_by_name_with_advice(value, advice):
    with pytest.raises(TypeError, match=rf"argument 'a': failed to specialize argument of type: .*{advice}"):
        specialize(value)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_a_tensor_of_a_type_that_triton_lacks_is_refused(dtype):
    with pytest.raises(TypeError, match=rf"argument 'a': tensors of {dtype} cannot be passed to a kernel"):
        specialize(torch.zeros(4, dtype=dtype))


def test_an_address_without_a_type_is_refused():
    class Untyped:
        def data_ptr(self):
            return 0

    with pytest.raises(TypeError, match=r"argument 'a': Untyped has data_ptr.* but no dtype"):
        specialize(Untyped())


# -- Annotated parameters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation, value, expected",
    [
        ("i64", 3, ("i64", "")),
        ("i64", 16, ("i64", "D")),
        ("i64", 1, ("i64", "")),
        ("u8", 255, ("u8", "")),
        (tl.int16, -(2**15), ("i16", "D")),
        ("fp32", 1.0, ("fp32", None)),
        ("fp64", 3, ("fp64", None)),
        ("bf16", 1.0, ("bf16", None)),
        ("u1", True, ("u1", None)),
        ("*fp32", ALIGNED, ("*fp32", "D")),
        ("const fp16*", ALIGNED[1:], ("*kfp16", "")),
        ("*fp32", None, ("*fp32", None)),
    ],
)
def test_an_annotated_type_holds(annotation, value, expected):
    assert specialize(value, annotation=annotation) == expected


def test_an_annotated_number_is_not_specialized_when_it_is_not_to_be():
    assert specialize(16, "do_not_specialize", "i64") == ("i64", None)
    assert specialize(16, "do_not_specialize_on_alignment", "i64") == ("i64", "")
    assert specialize(ALIGNED, "do_not_specialize", "*fp32") == ("*fp32", None)


@pytest.mark.parametrize(
    "annotation, value, error",
    [
        ("i32", 2**31, OverflowError),
        ("u8", -1, OverflowError),
        ("i32", 1.5, TypeError),
        ("i32", None, TypeError),
        ("fp32", "1", TypeError),
        ("fp32", ALIGNED, TypeError),
    ],
)
def test_a_value_that_does_not_fit_its_annotation_is_refused_by_name(annotation, value, error):
    with pytest.raises(error, match=f"argument 'a' is annotated as {annotation}"):
        specialize(value, annotation=annotation)


# -- Constants -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [1, True, 1.5, "s", (1, 2), Plain.A, Color.ONE, helper, tl.float16, None, object()],
    ids=lambda value: None if " at 0x" in repr(value) else repr(value),
)
def test_a_constexpr_is_what_was_passed(value):
    kind, key = specialize(value, annotation=tl.constexpr)
    assert kind == "constexpr" and key is value


def test_a_numpy_scalar_as_constexpr_is_a_python_number():
    _, key = specialize(np.int64(64), annotation=tl.constexpr)
    assert type(key) is int and key == 64


def test_a_torch_dtype_as_constexpr_is_a_type_in_the_kernel_and_equals_torchs():
    _, key = specialize(torch.float16, annotation=tl.constexpr)
    assert isinstance(key, tl.dtype)
    assert key == tl.float16 and key == torch.float16 and torch.float16 == key
    assert key != torch.float32 and key != tl.float32
    assert key.is_floating_point and key.itemsize == 2
    _, flag = specialize(torch.bool, annotation=tl.constexpr)
    assert flag == tl.int1 and flag == torch.bool


def test_a_tensor_as_constexpr_is_refused_by_name():
    with pytest.raises(TypeError, match=r"argument 'a' is a tl.constexpr and got a tensor.*tensor.item\(\)"):
        specialize(torch.tensor(3), annotation=tl.constexpr)


# -- Backends ----------------------------------------------------------------------------------------------------------


def test_a_backend_may_have_rules_of_its_own(monkeypatch):
    monkeypatch.setattr(Backend, "supports_native_tensor_specialization", False, raising=False)
    monkeypatch.setattr(Backend, "get_tensor_specialization", staticmethod(lambda arg, **kwargs: "S"))
    assert specialize(ALIGNED) == ("*u8", "S")
    assert specialize((ALIGNED, 16)) == (("*u8", "i32"), ("S", "D"))


# -- Tensors without memory --------------------------------------------------------------------------------------------


def test_a_fake_tensor_is_refused_by_name():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(64, dtype=torch.float32)
    with pytest.raises(TypeError, match=r"argument 'a': FakeTensor has no memory.*kernel.warmup"):
        specialize(fake)


def test_a_tensor_subclass_without_memory_is_refused_by_name():
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls):
            return torch.Tensor._make_wrapper_subclass(cls, (4,), dtype=torch.float32)

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise NotImplementedError

    with pytest.raises(TypeError, match="argument 'a': Wrapper has no memory"):
        specialize(Wrapper())
