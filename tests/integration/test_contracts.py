"""What an op promises, and what happens where a body or a caller breaks it."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl
from torch.fx.experimental.proxy_tensor import make_fx

import opgraft
from opgraft.jit import jit


@jit
def scale_kernel(x, out, n, a, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * a, mask=at < n)


@jit
def axpy_kernel(x, y, n, a, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(y + at, mask=at < n) + a * tl.load(x + at, mask=at < n), mask=at < n)


@opgraft.custom_op("ogcontract::triple")
def triple(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), 3.0, BLOCK=64)
    return out


triple.register_autograd(lambda ctx, grad: triple(grad))


@opgraft.custom_op("ogcontract::axpy_", mutates_args=["y"])
def axpy_(x: torch.Tensor, y: torch.Tensor, a: float) -> None:
    axpy_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), a, BLOCK=64)


# -- Derivatives inside derivatives ----------------------------------------------------------------------------------


def plain(x):
    return 3 * x


NESTINGS = {
    "grad of grad": lambda op: torch.func.grad(lambda x: torch.func.grad(lambda y: (op(y) ** 2).sum())(x).sum()),
    "grad of grad, of the outer variable": lambda op: torch.func.grad(
        lambda x: torch.func.grad(lambda y: (op(x) * y).sum())(torch.ones_like(x)).sum()
    ),
    "jacrev of grad": lambda op: torch.func.jacrev(torch.func.grad(lambda y: (op(y) ** 2).sum())),
    "vmap of grad of grad": lambda op: torch.func.vmap(
        torch.func.grad(lambda x: torch.func.grad(lambda y: op(y) ** 3)(x))
    ),
    "grad of vmap of grad": lambda op: torch.func.grad(
        lambda x: torch.func.vmap(torch.func.grad(lambda y: op(y) ** 3))(x).sum()
    ),
    "vjp in grad": lambda op: torch.func.grad(
        lambda x: torch.func.vjp(lambda y: op(y) ** 2, x)[1](torch.ones_like(x))[0].sum()
    ),
    "grad under no_grad": lambda op: torch.no_grad()(torch.func.grad(lambda x: (op(x) ** 2).sum())),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("nesting", NESTINGS)
def test_derivatives_inside_derivatives(device, nesting, compiled):
    x = torch.tensor([1.0, 2.0, -0.5], device=device)
    function = NESTINGS[nesting](triple)
    if compiled:
        function = torch.compile(function, backend="aot_eager")
    torch.testing.assert_close(function(x), NESTINGS[nesting](plain)(x))


def test_autograd_over_a_functional_derivative(device):
    x = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
    torch.func.grad(lambda y: (triple(y) ** 2).sum())(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 18.0))


# -- Ops that write --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("needing", ["x", "y"])
def test_a_derivative_through_a_write_is_refused(device, needing):
    tensors = {name: torch.ones(4, device=device, requires_grad=name == needing) for name in "xy"}
    with pytest.raises(RuntimeError, match=rf"writes y, and {needing} requires grad.*no_grad"):
        axpy_(tensors["x"], tensors["y"], 2.0)
    assert tensors["y"].eq(1).all()
    with torch.no_grad():
        axpy_(tensors["x"], tensors["y"], 2.0)
    assert tensors["y"].eq(3).all()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_two_arguments_that_are_one_tensor(device, compiled):
    """A promise to write one is a promise to write the other."""
    function = torch.compile(axpy_, backend="aot_eager") if compiled else axpy_
    x = torch.ones(8, device=device)
    function(x, x, 2.0)
    assert x.eq(3).all()


# -- Bodies that do not keep the contract ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (lambda x: None, TypeError, "returned None.*is a return missing"),
        (lambda x: x, RuntimeError, "returned its argument 'x'.*clone"),
        (lambda x: x.contiguous(), RuntimeError, "returned its argument 'x'.*clone"),
        (lambda x: x[1:], RuntimeError, "returned its argument 'x', or a view of it"),
    ],
    ids=["no return", "an argument", "an argument that was contiguous", "a view"],
)
def test_a_body_that_returns_no_new_tensor(body, error, message):
    body.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
    op = opgraft.custom_op("ogcontract::broken", body)
    with pytest.raises(error, match=rf"ogcontract::broken: the body {message}"):
        op(torch.ones(4))
    with pytest.raises(Exception, match=message):
        torch.compile(op, fullgraph=True, backend="aot_eager")(torch.ones(4))


def stock(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


STOCK = triton.jit(stock)
STOCK_KERNELS = {
    "jit": (STOCK, {"BLOCK": 64}),
    "heuristics": (triton.heuristics({"BLOCK": lambda arguments: 64})(STOCK), {}),
    "autotune": (triton.autotune([triton.Config({"BLOCK": 64})], key=[])(STOCK), {}),
}


@pytest.mark.parametrize("kind", STOCK_KERNELS)
@pytest.mark.parametrize("trace", ["compile", "make_fx", pytest.param("meta", marks=pytest.mark.cpu_active)])
def test_a_kernel_of_tritons_own_runtime_is_refused_by_name_where_it_would_be_traced(device, kind, trace):
    kernel, options = STOCK_KERNELS[kind]

    @opgraft.custom_op(f"ogcontract::stock_{kind}_{trace}_{device}")
    def op(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel[(2,)](x, out, x.numel(), **options)
        return out

    x = torch.randn(100, device=device)
    with pytest.raises(
        Exception, match=r"launches stock, a kernel of triton\.jit.* stock = opgraft\.jit\.jit\(stock\)"
    ):
        if trace == "compile":
            torch.compile(op, fullgraph=True)(x)
        elif trace == "make_fx":
            make_fx(op, tracing_mode="fake")(x)
        else:
            op(x.to("meta"))


def test_the_decorator_without_a_name():
    with pytest.raises(TypeError, match=r"custom_op\(\"namespace::name\"\), got <function"):

        @opgraft.custom_op
        def nameless(x: torch.Tensor) -> torch.Tensor:
            return x.clone()


# -- Copies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["aten::relu", "aten::add", "ogforeign::op"])
def test_the_name_of_an_op_of_others_is_refused(name):
    library = torch.library.Library("ogforeign", "FRAGMENT")
    library.define("op(Tensor x) -> Tensor")
    with pytest.raises(ValueError, match=rf"{name} is an op of torch or of another library already"):
        opgraft.custom_op(name, triple.__wrapped__)
    library._destroy()


@pytest.mark.parametrize("names", ["unknown", ["x", "y"], {"out"}])
def test_a_promise_to_write_what_is_no_parameter(names):
    with pytest.raises(ValueError, match=r"triple: mutates_args names '\w+', and the body's parameters are 'x'"):
        opgraft.custom_op("ogcontract::promise", triple.__wrapped__, mutates_args=names)


def test_copies_and_pickles_of_an_op_are_the_op():
    assert copy.copy(triple) is copy.deepcopy(triple) is pickle.loads(pickle.dumps(triple)) is triple
    module = torch.nn.Module()
    module.activation = triple
    assert copy.deepcopy(module).activation is triple
    lost = pickle.dumps(triple).replace(b"ogcontract::triple", b"ogcontract::tripel")
    with pytest.raises(LookupError, match="no op ogcontract::tripel is defined"):
        pickle.loads(lost)


# -- The first use ---------------------------------------------------------------------------------------------------

FIRST_USE = """
import torch, triton, triton.language as tl
import opgraft
from opgraft.jit import jit
from opgraft.jit.native import compat, extension

@jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

@opgraft.custom_op("ogcontract::double")
def double(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    double_kernel[(1,)](x, out, x.numel(), BLOCK=64)
    return out

double.register_autograd(lambda ctx, grad: double(grad))

{use}
assert torch.compile(lambda x: double(x) + 1, fullgraph=True)(torch.ones(3, device="cpu")).eq(3).all()
x, out = torch.ones(8, device="cpu"), torch.ones(8, device="cpu")
extension()
for _ in range(5):
    double_kernel[(1,)](x, out, 8, BLOCK=64)
assert double_kernel._memory.dispatcher.launch((1,), (x, out, 8), dict(BLOCK=64)) is not NotImplemented
print("all right")
"""

USES = {
    "under torch.func": "torch.vmap(torch.func.grad(lambda x: (double(x) ** 2).sum()))(torch.ones(3, 4))",
    "with a default device": 'torch.set_default_device("meta")\nextension()',
    "under a mode": """
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    double(torch.ones(3))
    extension()
""",
}


@pytest.mark.parametrize("use", USES)
def test_the_first_use_on_a_machine(tmp_path, use):
    """The extension is tried on tensors that no transform, mode or default device of the user reaches."""
    script = tmp_path / "script.py"
    script.write_text(FIRST_USE.format(use=USES[use]))
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", str(script)],
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.stdout.splitlines()[-1:] == ["all right"], done.stderr
