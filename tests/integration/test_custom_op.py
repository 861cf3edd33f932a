"""`opgraft.custom_op`: a body becomes an op: eager, on fake tensors, compiled, differentiated, exported."""

import gc

import pytest
import torch
import triton
import triton.language as tl
from torch._subclasses.fake_tensor import FakeTensorMode

import opgraft
from opgraft.jit import jit
from opgraft.testing import capture


@jit
def scale_add_kernel(x, y, out, n, alpha, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x + offsets, mask=mask) + alpha * tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, total, mask=mask)


@opgraft.custom_op("ogtest::scale_add")
def scale_add(x: torch.Tensor, y: torch.Tensor, alpha: float = 2.0) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    scale_add_kernel[(triton.cdiv(n, 256),)](x, y, out, n, alpha, BLOCK=256)
    return out


def _setup(ctx, inputs, output):
    ctx.alpha = inputs[2]


def _backward(ctx, grad):
    return grad, grad * ctx.alpha, None


scale_add.register_autograd(_backward, setup_context=_setup)


@jit
def increment_kernel(x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(x + offsets, tl.load(x + offsets, mask=mask) + 1, mask=mask)


@opgraft.custom_op("ogtest::increment_", mutates_args=("x",))
def increment_(x: torch.Tensor) -> None:
    increment_kernel[(triton.cdiv(x.numel(), 128),)](x, x.numel(), BLOCK=128)


def pair(device, n=300):
    generator = torch.Generator().manual_seed(n)
    return tuple(torch.randn(n, generator=generator).to(device) for _ in range(2))


def test_it_is_called_like_its_body_and_through_torch_ops(device):
    x, y = pair(device)
    torch.testing.assert_close(scale_add(x, y), x + 2 * y)
    torch.testing.assert_close(scale_add(x, y, alpha=0.5), x + 0.5 * y)
    torch.testing.assert_close(torch.ops.ogtest.scale_add(x, y, 3.0), x + 3 * y)


def test_the_schema_comes_from_the_annotations():
    schema = str(torch.ops.ogtest.scale_add.default._schema)
    assert schema == "ogtest::scale_add(Tensor x, Tensor y, float alpha=2.) -> Tensor"


def test_fake_tensors_get_the_shape_and_launch_nothing():
    with FakeTensorMode() as mode:
        x = mode.from_tensor(torch.randn(7, 5))
        out = scale_add(x, x)
    assert out.shape == (7, 5)
    assert out.dtype == torch.float32


def test_meta_tensors_get_the_shape():
    x = torch.empty(4, 3, device="meta")
    assert scale_add(x, x).shape == (4, 3)


def test_opcheck_accepts_it(device):
    x, y = pair(device, 64)
    torch.library.opcheck(torch.ops.ogtest.scale_add.default, (x.requires_grad_(), y, 2.0))


def test_opcheck_accepts_an_op_that_writes_its_argument(device):
    torch.library.opcheck(torch.ops.ogtest.increment_.default, (torch.randn(64, device=device),))


def test_gradients_are_those_that_are_registered(device):
    x, y = (t.requires_grad_() for t in pair(device))
    scale_add(x, y, 3.0).sum().backward()
    torch.testing.assert_close(x.grad, torch.ones_like(x))
    torch.testing.assert_close(y.grad, torch.full_like(y, 3.0))


@pytest.mark.parametrize(
    "transform",
    [
        lambda f, x: torch.func.grad(lambda a: f(a).sum())(x),
        lambda f, x: torch.func.jacrev(f)(x),
        lambda f, x: torch.vmap(f)(x[None].expand(3, -1)),
        lambda f, x: torch.vmap(torch.func.grad(lambda a: f(a).sum()))(x[None].expand(3, -1)),
        lambda f, x: torch.func.vjp(f, x)[1](torch.ones_like(x))[0],
    ],
    ids=["grad", "jacrev", "vmap", "vmap_grad", "vjp"],
)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_func_transforms_agree_with_torch(transform, compiled, device):
    x, y = pair(device, 16)

    def ours(a):
        return scale_add(y, scale_add(a, a).sin(), 1.5)

    def reference(a):
        return y + 1.5 * (3 * a).sin()

    expected = transform(reference, x)
    run = (lambda f, x: torch.compile(lambda x: transform(f, x), fullgraph=True)(x)) if compiled else transform
    torch._dynamo.reset()
    torch.testing.assert_close(run(ours, x), expected)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor", "opgraft"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_agrees_with_eager(backend, dynamic, device):
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda a, b: scale_add(a.relu(), b).sin(), backend=backend, dynamic=dynamic, fullgraph=True
    )
    for n in (300, 77):
        x, y = pair(device, n)
        torch.testing.assert_close(compiled(x, y), (x.relu() + 2 * y).sin())


@pytest.mark.parametrize("backend", ["inductor", "opgraft"])
def test_compiled_training_agrees_with_eager(backend, device):
    torch._dynamo.reset()

    def loss(a, b):
        return (scale_add(a.sin(), b, 1.5) ** 2).sum()

    gradients = []
    for run in (loss, torch.compile(loss, backend=backend, fullgraph=True)):
        x, y = (t.requires_grad_() for t in pair(device))
        run(x, y).backward()
        gradients.append((x.grad, y.grad))
    torch.testing.assert_close(gradients[1], gradients[0])


def test_an_op_that_writes_its_argument_writes_it_eager_and_compiled(device):
    torch._dynamo.reset()
    x = torch.zeros(200, device=device)
    increment_(x)
    assert x.eq(1).all()
    compiled = torch.compile(lambda t: (increment_(t), t * 2)[1], fullgraph=True)
    torch.testing.assert_close(compiled(x), torch.full((200,), 4.0, device=device))
    assert x.eq(2).all()


def test_writing_bumps_the_version_so_that_a_stale_saved_tensor_is_noticed(device):
    x = torch.ones(8, requires_grad=True, device=device)
    y = x * 2
    z = y.sin()
    increment_(y.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


@pytest.mark.parametrize("strict", [False, True])
def test_export_keeps_the_op_whole_and_decompositions_open_it(strict, device):
    class Model(torch.nn.Module):
        def forward(self, x, y):
            return scale_add(x, y).cos()

    x, y = pair(device, 40)
    exported = torch.export.export(Model(), (x, y), strict=strict)
    targets = [str(n.target) for n in exported.graph.nodes if n.op == "call_function"]
    assert targets == ["ogtest.scale_add.default", "aten.cos.default"]
    torch.testing.assert_close(exported.module()(x, y), (x + 2 * y).cos())


# What an op may write


def test_an_undeclared_write_raises_with_the_declaration_to_add_and_writes_nothing(device):
    @opgraft.custom_op("ogtest::sneaky")
    def sneaky(x: torch.Tensor) -> torch.Tensor:
        increment_kernel[(1,)](x, x.numel(), BLOCK=128)
        return x.clone()

    x = torch.zeros(16, device=device)
    with pytest.raises(RuntimeError, match=r'mutates_args=\("x",\)') as error:
        sneaky(x)
    assert "increment_kernel" in str(error.value)
    assert x.eq(0).all()
    with FakeTensorMode() as mode, pytest.raises(RuntimeError, match=r'mutates_args=\("x",\)'):
        sneaky(mode.from_tensor(x))


def test_an_undeclared_write_through_a_view_raises_too(device):
    @opgraft.custom_op("ogtest::sneaky_view", mutates_args=("y",))
    def sneaky_view(x: torch.Tensor, y: torch.Tensor) -> None:
        increment_kernel[(1,)](x[2:], x.numel() - 2, BLOCK=128)

    with pytest.raises(RuntimeError, match=r'mutates_args=\("x", "y"\)'):
        sneaky_view(torch.zeros(16, device=device), torch.zeros(16, device=device))


def test_reading_an_argument_needs_no_declaration(device):
    x, y = pair(device, 10)
    scale_add(x, y)  # raises if a read counted as a write


# Names and redefinition


@pytest.mark.parametrize("name", ["noname", "a::b::c", "a::", "::b", "a b::c", 3])
def test_a_bad_name_is_refused(name):
    with pytest.raises(ValueError, match="namespace::name"):
        opgraft.custom_op(name, lambda x: x)


def test_missing_annotations_are_refused_with_the_functions_name():
    with pytest.raises(ValueError, match="unannotated"):

        @opgraft.custom_op("ogtest::unannotated")
        def unannotated(x):
            return x


def test_mutates_args_must_name_an_argument():
    with pytest.raises(ValueError, match="nosuch"):

        @opgraft.custom_op("ogtest::nosuch", mutates_args=("nosuch",))
        def f(x: torch.Tensor) -> torch.Tensor:
            return x


def test_defining_a_name_again_replaces_the_op_also_in_compiled_code():
    torch._dynamo.reset()

    def define(factor):
        @opgraft.custom_op("ogtest::redefined")
        def redefined(x: torch.Tensor) -> torch.Tensor:
            return torch.ops.aten.mul(x, factor)

        return redefined

    x = torch.ones(4)
    held = define(2)
    for _ in range(3):
        assert held(x).eq(2).all()
    compiled = torch.compile(lambda x: torch.ops.ogtest.redefined(x) + 1, fullgraph=True)
    holds_it = torch.compile(lambda x: held(x) + 1, fullgraph=True)
    assert compiled(x).eq(3).all() and holds_it(x).eq(3).all()
    define(5)
    assert held(x).eq(5).all() and held(x.clone().requires_grad_()).eq(5).all()
    assert torch.ops.ogtest.redefined(x).eq(5).all()
    assert compiled(x).eq(6).all() and holds_it(x).eq(6).all()
    define(7)
    assert compiled(x).eq(8).all() and holds_it(x).eq(8).all()


def _redefine(factor, extra):
    if extra:

        @opgraft.custom_op("ogtest::held")
        def held(x: torch.Tensor, y: int = 0) -> torch.Tensor:
            return torch.ops.aten.mul(x, factor + y)

    else:

        @opgraft.custom_op("ogtest::held")
        def held(x: torch.Tensor) -> torch.Tensor:
            return torch.ops.aten.mul(x, factor)

    return held


@pytest.mark.parametrize("extra", [False, True], ids=["same schema", "another schema"])
def test_whoever_holds_an_op_calls_the_one_that_replaced_it(extra, monkeypatch):
    """Torch frees what the held objects point to; another op may lie there by then."""
    destroy, junk = torch.library.Library._destroy, []

    def destroy_and_reuse(library):
        destroy(library)
        junk.append(torch.library.Library("ogtest_junk", "FRAGMENT"))
        for i in range(4):
            junk[-1].define(f"junk{len(junk)}_{i}(Tensor x) -> Tensor")

    monkeypatch.setattr(torch.library.Library, "_destroy", destroy_and_reuse)
    x = torch.ones(4)
    holders = []
    for factor in range(2, 7):
        op = _redefine(factor, extra and factor > 2)
        holders += [op, torch.ops.ogtest.held, torch.ops.ogtest.held.default]
        for held in holders:
            assert held(x).eq(factor).all()
            assert held(x.clone().requires_grad_()).eq(factor).all()
    for library in junk:
        destroy(library)


def test_an_op_that_replaced_another_survives_its_collection():
    _redefine(2, False)
    op = _redefine(3, False)
    gc.collect()  # torch forgets an op's name when the library that defined it is collected
    assert torch.ops.ogtest.held.default is op._op
    graph = capture(lambda x: torch.ops.ogtest.held(x), torch.ones(4))
    assert "ogtest.held" not in graph.aot[0] and "aten.mul" in graph.aot[0]


def _no_annotations(x):
    return x


def _infinite(x: torch.Tensor, a: float = float("inf")) -> torch.Tensor:
    return x * a


def _too_large(x: torch.Tensor, a: int = 2**70) -> torch.Tensor:
    return x * a


def _no_ascii(x: torch.Tensor, größe: int = 1) -> torch.Tensor:
    return x * größe


@pytest.mark.parametrize("body", [_no_annotations, _infinite, _too_large, _no_ascii])
def test_a_definition_that_fails_leaves_the_op_as_it_was(body):
    op = _redefine(3, False)
    with pytest.raises(ValueError, match=body.__name__):
        opgraft.custom_op("ogtest::held", body)
    assert op(torch.ones(2)).eq(3).all() and torch.ops.ogtest.held(torch.ones(2)).eq(3).all()
    _redefine(4, False)
    assert op(torch.ones(2)).eq(4).all()


def test_an_exported_program_is_saved_after_its_op_was_replaced(tmp_path):
    _redefine(2, False)
    program = torch.export.export(Holds(), (torch.ones(3),))
    _redefine(3, False)
    torch.export.save(program, tmp_path / "program.pt2")
    assert torch.export.load(tmp_path / "program.pt2").module()(torch.ones(3)).eq(3).all()


class Holds(torch.nn.Module):
    """A module that calls the op by name."""

    def forward(self, x):
        return torch.ops.ogtest.held(x)


def test_without_a_derivative_backward_says_what_to_call():
    @opgraft.custom_op("ogtest::no_derivative")
    def no_derivative(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="register_autograd"):
        no_derivative(x).sum().backward()


def test_lists_optionals_keywords_and_several_outputs(device):
    @opgraft.custom_op("ogtest::many")
    def many(
        xs: list[torch.Tensor],
        bias: torch.Tensor | None,
        *,
        scale: float = 1.0,
        dtype: torch.dtype | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        first = torch.empty_like(xs[0])
        n = first.numel()
        scale_add_kernel[(1,)](xs[0], xs[1], first, n, scale, BLOCK=64)
        second = first.to(dtype) if dtype else first.clone()
        return first, second if bias is None else second + bias

    def setup(ctx, inputs, keyword_only_inputs, output):
        ctx.scale = keyword_only_inputs["scale"]
        ctx.has_bias = inputs[1] is not None

    def backward(ctx, first, second):
        grad = first + second
        return [grad, grad * ctx.scale], second if ctx.has_bias else None

    many.register_autograd(backward, setup_context=setup)
    a, b, bias = (torch.randn(50, requires_grad=True, device=device) for _ in range(3))

    def loss(op):
        first, second = op([a, b], bias, scale=0.5)
        return (first * 2 + second * 3).sum()

    def reference(xs, bias, scale):
        first = xs[0] + scale * xs[1]
        return first, first + bias

    expected = torch.autograd.grad(loss(lambda xs, bias, scale: reference(xs, bias, scale)), (a, b, bias))
    torch.testing.assert_close(torch.autograd.grad(loss(many), (a, b, bias)), expected)
    torch._dynamo.reset()
    compiled = torch.compile(lambda: loss(many), fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(), (a, b, bias)), expected)
