"""An eager call passes by the dispatcher only where nobody can tell; the check in C and the one in Python agree."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import opgraft
from opgraft.jit import jit
from opgraft.jit.native import extension


@jit
def axpy_kernel(x, y, out, a, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) * a + tl.load(y + at, mask=inside), mask=inside)


@opgraft.custom_op("ogeager::axpy")
def axpy(x: torch.Tensor, y: torch.Tensor, a: float = 2.0) -> torch.Tensor:
    out = torch.empty_like(x)
    axpy_kernel[(1,)](x, y, out, a, x.numel(), BLOCK=16)
    return out


@opgraft.custom_op("ogeager::add_", mutates_args=["y"])
def add_(x: torch.Tensor, y: torch.Tensor) -> None:
    axpy_kernel[(1,)](x, y, y, 1.0, x.numel(), BLOCK=16)


def axpy_setup(ctx, inputs, output):
    ctx.a = inputs[2]


axpy.register_autograd(lambda ctx, grad: (grad * ctx.a, grad, None), setup_context=axpy_setup)


@pytest.fixture(params=["C", "Python"])
def op(request, monkeypatch):
    """`axpy`, called before for two dtypes, with the check in C or in Python."""
    if request.param == "C":
        if extension() is None:
            pytest.skip("needs a C compiler")
    else:
        monkeypatch.setattr(axpy, "_use_extension", lambda: None)
        monkeypatch.setattr(axpy, "_eager", axpy._call_in_python)
    for dtype in (torch.float32, torch.float64):
        for _ in range(3):
            axpy(torch.ones(8, dtype=dtype), torch.ones(8, dtype=dtype), 2.0)
    assert (type(axpy._eager).__name__ == "PlainCall") == (request.param == "C")
    return axpy


@pytest.fixture
def dispatched(op):
    """The calls that the dispatcher made: its entry of the op notes them."""
    calls = []
    plain = op._run

    def run(*args, **kwargs):
        calls.append(len(args))
        return plain(*args, **kwargs)

    lib = torch.library.Library("ogeager", "IMPL")
    lib.impl("axpy", run, "CPU", allow_override=True)
    yield calls
    lib._destroy()
    op._lib.impl("axpy", op._run, "CPU", allow_override=True)


def arguments(**options):
    return torch.ones(8, **options), torch.ones(8, **options)


def test_a_plain_call_passes_by_the_dispatcher(op, dispatched):
    assert op(*arguments(), 2.0).eq(3).all()
    assert op(*arguments(dtype=torch.float64), 2.0).eq(3).all()
    assert op(torch.nn.Parameter(arguments()[0], False), arguments()[1], 2.0).eq(3).all()
    with torch.no_grad():
        assert op(torch.nn.Parameter(arguments()[0]), arguments()[1], 2.0).eq(3).all()
    assert dispatched == []
    op(*arguments(), a=2.0)
    op(*arguments(requires_grad=True), 2.0)
    assert len(dispatched) == 2


class Counts:
    """A mode that counts the ops it sees by name."""

    def __init__(self):
        super().__init__()
        self.seen = []


class DispatchCounts(Counts, TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class FunctionCounts(Counts, TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [DispatchCounts, FunctionCounts])
def test_modes_see_the_op(op, mode):
    x, y = arguments()
    with mode() as entered:
        op(x, y, 2.0)
    assert "ogeager.axpy.default" in entered.seen


def test_a_profiler_sees_the_op(op):
    x, y = arguments()
    with torch.profiler.profile() as profile:
        op(x, y, 2.0)
    assert "ogeager::axpy" in {event.key for event in profile.key_averages()}


@pytest.mark.parametrize("which", [0, 1])
def test_derivatives(op, which):
    values = [*arguments()]
    values[which].requires_grad_()
    op(*values, 3.0).sum().backward()
    assert values[which].grad.eq(3 if which == 0 else 1).all()
    with torch.inference_mode():
        assert op(*values, 3.0).eq(4).all()


def test_transforms(op):
    x, y = torch.ones(3, 8), torch.ones(3, 8)
    assert torch.vmap(lambda x, y: op(x, y, 2.0))(x, y).eq(3).all()
    gradient = torch.func.grad(lambda x: op(x, y[0], 2.0).sum())(x[0])
    assert gradient.eq(2).all()


def test_a_forward_derivative_is_not_lost(op):
    x, y = arguments()
    with forward_ad.dual_level(), pytest.raises(Exception, match=r"(?i)forward"):
        op(forward_ad.make_dual(x, torch.ones(8)), y, 2.0)


class Wrapped(torch.Tensor):
    seen: list = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(str(func))
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_subclass_sees_the_op(op):
    Wrapped.seen.clear()
    x, y = arguments()
    assert isinstance(op(x.as_subclass(Wrapped), y, 2.0), Wrapped)
    assert "ogeager.axpy.default" in Wrapped.seen


@pytest.mark.parametrize(
    "value",
    [
        lambda dtype: torch._neg_view(torch.full((8,), 3.0, dtype=dtype)),
        lambda dtype: torch.full((8,), 3j, dtype=dtype.to_complex()).conj().imag.reshape(8, 1)[:, 0],
        lambda dtype: torch.complex(torch.zeros(1, dtype=dtype), torch.full((1,), 3.0, dtype=dtype)).conj().imag,
        lambda dtype: torch._efficientzerotensor(8, dtype=dtype),
    ],
    ids=["negated", "imaginary part of a conjugate", "one element of it", "zeros without memory"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_tensors_whose_memory_does_not_hold_their_values(op, value, dtype):
    @opgraft.custom_op("ogeager::with_strides")
    def with_strides(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.shape, dtype=x.dtype)
        strided_copy_kernel[(1,)](x, out, x.stride(0), x.numel(), BLOCK=16)
        return out

    if type(op._eager).__name__ != "PlainCall":
        with_strides._use_extension = lambda: None
    x = value(dtype)
    for _ in range(3):
        with_strides(torch.ones(8, dtype=dtype))
    torch.testing.assert_close(with_strides(x), x.clone())


@jit
def strided_copy_kernel(x, out, stride, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at * stride, mask=at < n), mask=at < n)


class PlainSubclass(torch.Tensor):
    """A subclass that changes nothing."""


class PlainParameter(torch.nn.Parameter):
    """The same of a parameter."""


@pytest.mark.parametrize("kind", [PlainSubclass, PlainParameter])
def test_the_first_call_with_a_subclass(kind):
    @opgraft.custom_op("ogeager::of_subclass")
    def of_subclass(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(8)
        axpy_kernel[(1,)](x, x, out, 1.0, 8, BLOCK=16)
        return out

    with torch.no_grad():
        assert of_subclass(torch.ones(8).as_subclass(kind)).eq(2).all()
        assert of_subclass(torch.ones(8)).eq(2).all()


@opgraft.custom_op("ogeager::into", mutates_args=["out"])
def into(x: torch.Tensor, *, out: torch.Tensor) -> None:
    axpy_kernel[(1,)](x, x, out, 1.0, x.numel(), BLOCK=16)


def test_a_written_keyword_is_held_to_the_same_rules():
    x = torch.ones(8)
    for _ in range(3):
        out = torch.zeros(8)
        into(x, out=out)
        assert out.eq(2).all() and out._version == 1
        with pytest.raises(RuntimeError, match="several elements share one memory location"):
            into(x, out=torch.zeros(1).expand(8))
        with pytest.raises(RuntimeError, match="out requires grad"):
            into(x, out=torch.zeros(8, requires_grad=True))


def test_a_call_by_keyword_is_checked_once_for_each_kind(monkeypatch):
    @opgraft.custom_op("ogeager::scaled")
    def scaled(x: torch.Tensor, *, a: float = 2.0, y: torch.Tensor | None = None) -> torch.Tensor:
        return x * a if y is None else x * a + y

    checked = []
    run_checked = scaled._run_checked
    monkeypatch.setattr(
        scaled, "_run_checked", lambda *args, **kwargs: checked.append(1) or run_checked(*args, **kwargs)
    )
    x = torch.ones(8)
    for _ in range(3):
        assert scaled(x, a=3.0).eq(3).all()
    assert len(checked) == 1
    for _ in range(3):
        assert scaled(x, a=3.0, y=x.double()).eq(4).all()
    assert len(checked) == 2


def test_a_derivative_for_keyword_only_tensors_is_refused():
    with pytest.raises(NotImplementedError, match=r"into: .*positional tensors only, and out"):
        into.register_autograd(lambda ctx, grad: grad)


@pytest.mark.parametrize(
    "call",
    [
        lambda op, x, y: op(x, y, a=2.0),
        lambda op, x, y: op(x=x, y=y),
        lambda op, x, y: op(x, y, True),
        lambda op, x, y: op(x.to(torch.bfloat16), y.to(torch.bfloat16), 2.0),
    ],
    ids=["keyword", "keywords", "another type", "another dtype"],
)
def test_other_forms_of_a_call(op, call):
    out = call(op, *arguments())
    assert out.to(torch.float32).eq(out[0].item()).all() and out[0].item() in (2, 3)


@pytest.mark.parametrize("args", [(), (1,), (torch.ones(2),), (torch.ones(2), torch.ones(2), 1.0, 5)])
def test_wrong_arguments_are_refused_by_the_dispatcher(op, args):
    with pytest.raises((TypeError, RuntimeError), match=r"axpy"):
        op(*args)


def test_an_error_of_the_body_is_raised_as_it_is(monkeypatch):
    @opgraft.custom_op("ogeager::fails")
    def fails(x: torch.Tensor) -> torch.Tensor:
        if x.numel() > 8:
            raise ValueError("too long")
        return torch.empty_like(x)

    for _ in range(3):
        fails(torch.ones(8))
    with pytest.raises(ValueError, match=r"^too long$"):
        fails(torch.ones(9))


def test_writes_are_counted():
    for _ in range(3):
        add_(*arguments())
    x, y = arguments()
    before = x._version, y._version
    add_(x, y)
    assert y.eq(2).all()
    assert x._version == before[0] and y._version > before[1]


def test_many_kinds_of_arguments(op):
    """More than are kept in C; each is found all the same."""

    @opgraft.custom_op("ogeager::many")
    def many(x: torch.Tensor, a: int | None, b: float | None, c: str | None, d: bool | None) -> torch.Tensor:
        return torch.full_like(x, sum(value is not None for value in (a, b, c, d)))

    import itertools

    choices = ([None, 1], [None, 1.5], [None, "s"], [None, True])
    dtypes = [torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool]
    for _ in range(3):
        for dtype in dtypes:
            for values in itertools.product(*choices):
                out = many(torch.ones(2, dtype=dtype), *values)
                expected = sum(value is not None for value in values)
                assert out.to(torch.int64).eq(min(expected, 1) if dtype == torch.bool else expected).all()
