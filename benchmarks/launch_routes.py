"""Every way from Python to a kernel that `launch.py` measures, on one device.

`routes(device)` yields them. A `Route` makes its own call when it is asked to (`make`), so that a way that
this machine or this version does not offer is reported, not fatal.
"""

import itertools
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import launch_floor
import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op, triton_op, wrap_triton

import opgraft
from opgraft.jit import jit

# Large enough for a GPU's block, and so small on the CPU that the launch is what takes time: four buffers of 4096 bytes
# would also alias in its caches, and the time of the kernel would depend on where they happen to lie.
ELEMENTS = {"cuda": 1024, "cpu": 64}
CHAIN = 40
INTS = tuple(range(2, 13))
_numbers = itertools.count()


# -- Kernels -------------------------------------------------------------------------------------------------


@triton.jit
def fma_stock(a, b, c, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(a + at, mask=inside) + tl.load(b + at, mask=inside) * tl.load(c + at, mask=inside)
    tl.store(out + at, value, mask=inside)


@triton.jit
def increment_stock(out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(out + at, mask=at < n) + 1.0, mask=at < n)


@triton.jit
def many_stock(a, b, c, d, e, f, g, out, i0, i1, i2, i3, i4, i5, i6, i7, i8, i9, i10, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = i0 + i1 + i2 + i3 + i4 + i5 + i6 + i7 + i8 + i9 + i10
    tl.store(out + at, tl.load(a + at) + total)


fma, increment, many = jit(fma_stock), jit(increment_stock), jit(many_stock)


# -- Ops -----------------------------------------------------------------------------------------------------


@opgraft.custom_op("launch_bench::ours")
def our_op(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    out = torch.empty_like(a)
    fma[(1,)](a, b, c, out, a.numel(), BLOCK=a.numel())
    return out


def our_function(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    out = torch.empty_like(a)
    fma[(1,)](a, b, c, out, a.numel(), BLOCK=a.numel())
    return out


def stock_function(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    out = torch.empty_like(a)
    fma_stock[(1,)](a, b, c, out, a.numel(), BLOCK=a.numel())
    return out


@triton_op("launch_bench::triton_op", mutates_args={})
def stock_triton_op(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    out = torch.empty_like(a)
    wrap_triton(fma_stock)[(1,)](a, b, c, out, a.numel(), BLOCK=a.numel())
    return out


@custom_op("launch_bench::custom_op", mutates_args={})
def stock_custom_op(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return stock_function(a, b, c)


stock_custom_op.register_fake(lambda a, b, c: torch.empty_like(a))


@cache
def library_op() -> Callable[..., Tensor]:
    """A low-level op through torch's dispatcher: define and impl, with the C extension inside."""
    library = torch.library.Library("launch_bench_low", "FRAGMENT")
    library.define("fma(Tensor a, Tensor b, Tensor c, Tensor(a!) out, int n) -> ()")
    extension = floor()

    def implementation(a: Tensor, b: Tensor, c: Tensor, out: Tensor, n: int) -> None:
        kind = a.device.type
        extension.launch(function_of(kind), kind == "cuda", stream_of(kind), 4, a, b, c, out, n)

    for key in ("CPU", "CUDA"):
        library.impl("fma", implementation, key)
    torch.library.register_fake("launch_bench_low::fma", lambda *arguments: None, lib=library)
    op = torch.ops.launch_bench_low.fma.default
    library_op.keep = library  # type: ignore[attr-defined]

    def call(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        out = torch.empty_like(a)
        op(a, b, c, out, a.numel())
        return out

    return call


# -- What the routes share -----------------------------------------------------------------------------------


@cache
def floor() -> Any:
    return launch_floor.build()


@cache
def tensors(device: str, count: int) -> tuple[Tensor, ...]:
    return tuple(torch.randn(ELEMENTS[device], device=device) for _ in range(count))


@cache
def compiled(device: str, which: str) -> Any:
    """Our compiled kernel: its function is launched by the floor and by handles."""
    kernel, size = {"fma": fma, "increment": increment, "many": many}[which], ELEMENTS[device]
    return kernel[(1,)](*arguments(device, which), BLOCK=size)


def arguments(device: str, which: str) -> tuple[Any, ...]:
    if which == "fma":
        return (*tensors(device, 4), ELEMENTS[device])
    if which == "increment":
        return (*tensors(device, 1), ELEMENTS[device])
    return (*tensors(device, 8), *INTS)


def pointers(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.data_ptr() if isinstance(value, Tensor) else value for value in values)


@cache
def function_of(device: str, which: str = "fma") -> int:
    return int(compiled(device, which).function)


def launch_loop(device: str, launches: int) -> float:
    """Nanoseconds of one launch in a loop in C."""
    values = pointers(arguments(device, "fma"))
    return float(floor().loop(function_of(device), device == "cuda", stream_of(device), 4, *values, launches))


def stream_of(device: str) -> int:
    return torch._C._cuda_getCurrentRawStream(0) if device == "cuda" else 0


# -- Routes --------------------------------------------------------------------------------------------------


@dataclass
class Route:
    """A way to launch. `make()` returns the call to time, which launches `kernels` times."""

    name: str
    group: str
    who: str  # "floor", "ours" or "peer"
    make: Callable[[], Callable[[], Any]]
    kernels: int = 1
    timed_in_c: bool = False  # the call itself returns the nanoseconds of one launch
    slope: Callable[[], Callable[[], Any]] | None = None  # the same with one kernel: the difference is per kernel


def routes(device: str) -> Iterator[Route]:
    """All routes on `device`, "cpu" or "cuda"."""
    yield from _floor(device)
    yield from _eager(device)
    yield from _ops(device)
    yield from _graphs(device)
    yield from _torch(device)


def _floor(device: str) -> Iterator[Route]:
    on_cuda = device == "cuda"

    def call(which: str, count: int, *, as_ints: bool) -> Callable[[], Any]:
        function, values, launch = function_of(device, which), arguments(device, which), floor().launch
        values = pointers(values) if as_ints else values
        return lambda: launch(function, on_cuda, stream_of(device), count, *values)

    loop = partial(launch_loop, device, 500)
    yield Route("loop in C around the driver call or kernel", "launch", "floor", lambda: loop, timed_in_c=True)
    yield Route("C extension, addresses as ints", "launch", "floor", lambda: call("fma", 4, as_ints=True))
    yield Route("C extension, 4 tensors", "launch", "floor", lambda: call("fma", 4, as_ints=False))
    yield Route("C extension, 8 tensors and 11 ints", "launch", "floor", lambda: call("many", 8, as_ints=False))


def _eager(device: str) -> Iterator[Route]:
    grid, size = (1,), ELEMENTS[device]

    def launch(kernel: Any, which: str, grid: Any = grid) -> Callable[[], Any]:
        values = arguments(device, which)
        return lambda: kernel[grid](*values, BLOCK=size)

    def fma_launch(kernel: Any) -> Callable[[], Any]:
        a, b, c, out, n = arguments(device, "fma")
        return lambda: kernel[grid](a, b, c, out, n, BLOCK=size)

    def function_grid(kernel: Any) -> Callable[[], Any]:
        a, b, c, out, n = arguments(device, "fma")
        return lambda: kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](a, b, c, out, n, BLOCK=size)

    def handle() -> Callable[[], Any]:
        call = compiled(device, "fma").handle()
        a, b, c, out, n = arguments(device, "fma")
        return lambda: call(stream_of(device), a, b, c, out, n, size, 1, 1, 1)

    def compiled_getitem() -> Callable[[], Any]:
        kernel = fma_stock[grid](*arguments(device, "fma"), BLOCK=size)
        values = (*arguments(device, "fma"), size)
        return lambda: kernel[(1, 1, 1)](*values)

    def compiled_run() -> Callable[[], Any]:
        kernel = fma_stock[grid](*arguments(device, "fma"), BLOCK=size)
        values = (*arguments(device, "fma"), size)
        packed, function, run = kernel.packed_metadata, kernel.function, kernel.run
        return lambda: run(1, 1, 1, stream_of(device), function, packed, None, None, None, *values)

    yield Route("opgraft handle", "launch", "ours", handle)
    for who, name, one, four, nineteen in (
        ("ours", "opgraft", increment, fma, many),
        ("peer", "Triton", increment_stock, fma_stock, many_stock),
    ):
        if who == "peer":
            yield Route("Triton CompiledKernel.run", "launch", who, compiled_run)
            yield Route("Triton CompiledKernel[grid](...)", "launch", who, compiled_getitem)
        launched = f"{name} kernel[grid](...)"
        yield Route(f"{launched}, 1 tensor", "launch", who, partial(launch, one, "increment"))
        yield Route(f"{launched}, 4 tensors", "launch", who, partial(fma_launch, four))
        yield Route(f"{launched}, grid function", "launch", who, partial(function_grid, four))
        yield Route(f"{launched}, 8 tensors and 11 ints", "launch", who, partial(launch, nineteen, "many"))


def _ops(device: str) -> Iterator[Route]:
    def call(make: Callable[[], Callable[..., Tensor]]) -> Callable[[], Any]:
        function = make()
        a, b, c = tensors(device, 4)[:3]
        torch.testing.assert_close(function(a, b, c), a + b * c)
        return lambda: function(a, b, c)

    yield Route("opgraft function: empty_like and launch", "op", "ours", lambda: call(lambda: our_function))
    yield Route("opgraft custom_op", "op", "ours", lambda: call(lambda: our_op))
    yield Route("Triton function: empty_like and launch", "op", "peer", lambda: call(lambda: stock_function))
    yield Route("torch Library op, C extension inside", "op", "peer", lambda: call(library_op))
    yield Route("torch triton_op", "op", "peer", lambda: call(lambda: stock_triton_op))
    yield Route("torch custom_op", "op", "peer", lambda: call(lambda: stock_custom_op))


def _graphs(device: str) -> Iterator[Route]:
    def chained(function: Callable[..., Tensor], length: int, **options: Any) -> Callable[[], Any]:
        def chain(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
            for _ in range(length):
                a = function(a, b, c)
            return a

        # Code of its own: Dynamo counts and limits the graphs of one piece of code.
        code = chain.__code__.replace(co_name=f"chain_{next(_numbers)}")
        own = types.FunctionType(code, globals(), code.co_name, None, chain.__closure__)
        a, b, c = tensors(device, 4)[:3]
        graph = torch.compile(own, fullgraph=True, dynamic=False, **options)
        expected = a
        for _ in range(length):
            expected = expected + b * c
        for _ in range(3):
            found = graph(a, b, c)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        return lambda: graph(a, b, c)

    def route(name: str, who: str, make: Callable[[], Callable[..., Tensor]], **options: Any) -> Route:
        return Route(
            name,
            "per kernel in a compiled graph",
            who,
            lambda: chained(make(), CHAIN, **options),
            CHAIN,
            slope=lambda: chained(make(), 1, **options),
        )

    yield route("opgraft custom_op", "ours", lambda: our_op)
    yield route("opgraft kernel[grid](...)", "ours", lambda: our_function)
    yield route("Inductor's launch of a Triton kernel", "peer", lambda: stock_function)
    yield route("torch Library op (FallbackKernel)", "peer", library_op)
    yield route("torch triton_op", "peer", lambda: stock_triton_op)
    yield route("torch custom_op", "peer", lambda: stock_custom_op)
    if device == "cuda":
        yield route("CUDA graph of opgraft custom_op", "ours", lambda: our_op, mode="reduce-overhead")
        yield route("CUDA graph of Triton kernels", "peer", lambda: stock_function, mode="reduce-overhead")


def _torch(device: str) -> Iterator[Route]:
    a, b, _, out = tensors(device, 4)
    yield Route("torch.add(a, b, out=c)", "torch", "peer", lambda: lambda: torch.add(a, b, out=out))
    yield Route("torch.empty_like", "torch", "peer", lambda: lambda: torch.empty_like(a))
