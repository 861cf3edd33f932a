"""Our kernels under Triton's tools, and Triton's kernels on our runtime."""

import inspect
import os
import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs

from opgraft.jit import Autotuner, CompiledKernel, Config, Heuristics, JITFunction, autotune, heuristics, jit

from .kernels import add, fill

CONFIGS = [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 128}, num_warps=8)]


def quick_bench(launch, quantiles=None):
    launch()
    return [1.0, 1.0, 1.0]


@triton.jit
def stock_fill(out, value, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, value, mask=i < n)


def grid(arguments):
    return (triton.cdiv(arguments["n"], arguments["BLOCK"]),)


# -- Autotuning and heuristics, Triton's and ours ------------------------------------------------------------------


@pytest.fixture(params=[triton.autotune, autotune], ids=["stock", "ours"])
def any_autotune(request):
    return request.param


@pytest.fixture(params=[triton.heuristics, heuristics], ids=["stock", "ours"])
def any_heuristics(request):
    return request.param


@pytest.fixture(
    params=[
        pytest.param(triton.jit, marks=pytest.mark.cpu_active, id="stock_kernel"),
        pytest.param(jit, id="our_kernel"),
    ]
)
def any_fill(request):
    return request.param(stock_fill.fn)


def test_a_tuned_kernel_runs_its_best_configuration(any_autotune, any_fill):
    tuned = any_autotune(CONFIGS, key=["n"], do_bench=quick_bench)(any_fill)
    out = torch.zeros(100)
    tuned[grid](out, 2.0, n=100)
    assert out.unique().tolist() == [2.0]
    assert tuned.best_config in CONFIGS
    assert isinstance(tuned, triton.runtime.Autotuner)
    (timings,) = [tuned.configs_timings]
    assert set(timings) == set(CONFIGS)


def test_tuning_takes_the_fastest(any_autotune):
    times = iter([3.0, 1.0])
    tuned = any_autotune(CONFIGS, key=["n"], do_bench=lambda launch, quantiles: [next(times)] * 3)(jit(stock_fill.fn))
    out = torch.zeros(100)
    tuned[grid](out, 2.0, n=100)
    tuned[grid](out, 3.0, n=100)
    assert tuned.best_config is CONFIGS[1]
    assert out.unique().tolist() == [3.0]


def test_tuning_results_are_kept_on_disk_and_keyed_by_the_kernel(any_autotune, tmp_path, monkeypatch, make_module):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    benched = []

    def bench(launch, quantiles):
        benched.append(1)
        launch()
        return [1.0, 1.0, 1.0]

    def run(kernel):
        tuned = any_autotune(CONFIGS, key=["n"], do_bench=bench, cache_results=True)(kernel)
        out = torch.zeros(100)
        tuned[grid](out, 2.0, n=100)
        assert out.unique().tolist() == [2.0]

    source = "import triton.language as tl\nfrom opgraft.jit import jit\n@jit\n" + inspect.getsource(
        stock_fill.fn
    ).partition("\n")[2].replace("stock_fill", "kernel")
    run(make_module("tuned", source).kernel)
    assert len(benched) == 2
    run(make_module("tuned", source).kernel)
    assert len(benched) == 2
    run(make_module("tuned", source.replace("mask=i < n", "mask=i<n")).kernel)
    assert len(benched) == 4


def test_reset_and_restore_work_around_our_kernels(any_autotune):
    @jit
    def accumulate(out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(out + i, mask=i < n) + 1, mask=i < n)

    tuned = any_autotune(CONFIGS, key=["n"], restore_value=["out"], do_bench=quick_bench)(accumulate)
    out = torch.zeros(100)
    tuned[grid](out, n=100)
    assert out.unique().tolist() == [1.0]


def test_heuristics_compute_arguments(any_heuristics, any_fill):
    kernel = any_heuristics({"BLOCK": lambda arguments: triton.next_power_of_2(arguments["n"])})(any_fill)
    out = torch.zeros(100)
    kernel[(1,)](out, 2.0, n=100)
    assert out.unique().tolist() == [2.0]
    assert isinstance(kernel, triton.runtime.Heuristics)


def test_heuristics_and_tuning_nest(any_autotune, any_heuristics):
    tuned = any_autotune([triton.Config({}, num_warps=w) for w in (1, 2)], key=["n"], do_bench=quick_bench)(
        jit(stock_fill.fn)
    )
    kernel = any_heuristics({"BLOCK": lambda arguments: triton.next_power_of_2(arguments["n"])})(tuned)
    out = torch.zeros(100)
    kernel[(1,)](out, 2.0, n=100)
    assert out.unique().tolist() == [2.0]


def test_a_tuned_kernel_warms_up_every_configuration(any_autotune):
    tuned = any_autotune(CONFIGS, key=["n"])(jit(stock_fill.fn))
    kernels = tuned.warmup(torch.float32, 2.0, 100, grid=(1,))
    assert len(kernels) == 2 and all(isinstance(kernel, CompiledKernel) for kernel in kernels)


def test_our_decorators_have_tritons_parameters():
    assert list(inspect.signature(autotune).parameters) == list(inspect.signature(triton.autotune).parameters)
    assert list(inspect.signature(heuristics).parameters) == list(inspect.signature(triton.heuristics).parameters)
    assert Config is triton.Config
    assert list(inspect.signature(jit).parameters) == list(inspect.signature(triton.jit).parameters)


def test_a_default_benchmark_times_the_arguments_device():
    tuned = autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"])(jit(stock_fill.fn))
    out = torch.zeros(64)
    tuned[grid](out, 2.0, n=64)
    assert all(time > 0 for times in tuned.configs_timings.values() for time in times)


# -- Triton's kernels on our runtime ---------------------------------------------------------------------------------


def test_a_stock_kernel_is_taken_over_with_its_options():
    hook = lambda *args, **kwargs: None
    stock = triton.jit(do_not_specialize=["n"], debug=True, launch_metadata=hook, repr=lambda s: "named")(stock_fill.fn)
    stock.add_pre_run_hook(hook)
    ours = jit(stock)
    assert type(ours) is JITFunction and ours is not stock
    assert ours.fn is stock.fn
    assert ours.params[2].do_not_specialize and ours.debug is True
    assert ours.launch_metadata is hook and ours.pre_run_hooks == [hook] and ours.repr(None) == "named"
    out = torch.zeros(100)
    ours[grid](out, 2.0, 100, 32)
    assert out.unique().tolist() == [2.0]


def test_options_given_anew_replace_the_kernels_own():
    assert jit(debug=True)(triton.jit(stock_fill.fn)).debug is True
    assert jit(noinline=True)(jit(stock_fill.fn)).noinline is True


def test_a_stock_kernel_with_a_replaced_source_keeps_it():
    stock = triton.jit(stock_fill.fn)
    stock._unsafe_update_src(stock.src.replace("value, mask", "value + 1, mask"))
    out = torch.zeros(100)
    jit(stock)[grid](out, 2.0, 100, 32)
    assert out.unique().tolist() == [3.0]


def test_our_own_kernel_is_returned_as_it_is():
    assert jit(add) is add


def test_tuned_stock_kernels_are_taken_over_without_touching_them():
    tuned = triton.autotune(CONFIGS, key=["n"], do_bench=quick_bench)(
        triton.heuristics({"value": lambda arguments: 2.0})(triton.jit(stock_fill.fn))
    )
    ours = jit(tuned)
    assert isinstance(ours, triton.runtime.Autotuner)
    assert type(ours.fn.fn) is JITFunction and type(tuned.fn.fn) is not JITFunction
    out = torch.zeros(100)
    ours[grid](out, n=100)
    assert out.unique().tolist() == [2.0]
    assert not tuned.cache


def test_something_else_cannot_be_taken_over():
    class Strange(triton.runtime.KernelInterface):
        pass

    with pytest.raises(TypeError, match="jit takes a Python function, or a kernel of Triton or Gluon"):
        jit(Strange())


def test_gluons_kernels_are_taken_over():
    from triton.backends.compiler import GPUTarget
    from triton.experimental import gluon
    from triton.experimental.gluon import language as ttgl

    @gluon.jit
    def copy(source, out, N: ttgl.constexpr):
        layout: ttgl.constexpr = ttgl.BlockedLayout([1], [32], [4], [0])
        i = ttgl.arange(0, N, layout=layout)
        ttgl.store(out + i, ttgl.load(source + i))

    ours = jit(copy)
    assert isinstance(ours, JITFunction) and isinstance(ours, type(copy)) and ours.is_gluon()
    kernel = ours.variant(GPUTarget("cuda", 90, 32), {"source": "*fp32", "out": "*fp32", "N": "constexpr"}, {"N": 128})
    assert "ttgir" in kernel.asm and "ttir" not in kernel.asm
    assert "cubin" in kernel.asm


@pytest.mark.gpu
def test_gluons_kernels_run_on_the_gpu():
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    from triton.experimental import gluon
    from triton.experimental.gluon import language as ttgl

    @gluon.jit
    def copy(source, out, N: ttgl.constexpr):
        layout: ttgl.constexpr = ttgl.BlockedLayout([1], [32], [4], [0])
        i = ttgl.arange(0, N, layout=layout)
        ttgl.store(out + i, ttgl.load(source + i))

    source, out = torch.randn(128, device="cuda"), torch.empty(128, device="cuda")
    jit(copy)[(1,)](source, out, 128)
    torch.testing.assert_close(out, source)


# -- Libraries ---------------------------------------------------------------------------------------------------------


def test_torch_wraps_our_kernels():
    wrapped = torch.library.wrap_triton(add)
    assert wrapped is add or wrapped.kernel is add


class Entry(triton.runtime.KernelInterface):
    """A wrapper as kernel libraries have: it keeps compiled kernels by its own keys and launches them itself."""

    def __init__(self, fn):
        self.fn = fn
        self.arg_names = fn.arg_names
        self.kernels = {}

    def run(self, *args, grid, warmup=False, **kwargs):
        jit_function = self.fn
        while not isinstance(jit_function, triton.JITFunction):
            jit_function = jit_function.fn
        constants = [param.name for param in jit_function.params if param.is_constexpr]
        key = tuple(str(getattr(arg, "dtype", type(arg))) for arg in args) + tuple(kwargs[name] for name in constants)
        if key not in self.kernels:
            self.kernels[key] = self.fn.run(*args, grid=grid, warmup=warmup, **kwargs)
            return self.kernels[key]
        kernel = self.kernels[key]
        everything = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        sizes = grid(everything) if callable(grid) else grid
        sizes = (*sizes, 1, 1)[:3]
        kernel[sizes](*(everything[name] for name in jit_function.arg_names))
        return kernel


def test_a_library_may_wrap_run_and_launch_compiled_kernels_itself():
    entry = Entry(jit(stock_fill.fn))
    for value in (1.0, 2.0, 3.0):
        out = torch.zeros(100)
        entry[grid](out, value, 100, BLOCK=32)
        assert out.unique().tolist() == [value]
    assert len(entry.kernels) == 1


def test_a_library_may_replace_run_on_a_kernel(monkeypatch):
    kernel = jit(fill.fn)
    out = torch.zeros(64)
    for _ in range(3):
        kernel[(1,)](out, 1.0, 64)
    seen = []
    original = kernel.run

    def run(*args, **kwargs):
        seen.append(kwargs["grid"])
        return original(*args, **kwargs)

    kernel.run = run
    kernel[(1,)](out, 2.0, 64)
    assert seen == [(1,)] and out[0] == 2.0
    del kernel.run
    kernel[(1,)](out, 3.0, 64)
    assert len(seen) == 1 and out[0] == 3.0


def test_a_library_may_read_the_caches_of_a_device():
    kernel = jit(fill.fn)
    compiled = kernel[(1,)](torch.zeros(64), 1.0, 64)
    (entry,) = kernel.device_caches.values()
    kernels, keys, target, backend, binder = entry
    assert list(kernels.values()) == [compiled]
    assert list(keys.values()) == list(kernels)
    assert target == compiled.metadata.target and backend.target == target
    arguments, specialization, options = binder(torch.zeros(64), 1.0, 64, num_warps=2)
    assert list(arguments) == kernel.arg_names and len(specialization) == 4 and options == {"num_warps": 2}


def test_a_profilers_hooks_see_our_launches_after_many():
    kernel = jit(fill.fn)
    out = torch.zeros(64)
    for _ in range(5):
        kernel[(1,)](out, 1.0, 64)
    names = []
    hook = lambda metadata: names.append(metadata.get()["name"])
    knobs.runtime.launch_enter_hook.add(hook)
    try:
        kernel[(1,)](out, 1.0, 64)
    finally:
        knobs.runtime.launch_enter_hook.remove(hook)
    assert len(names) == 1 and "fill" in names[0]


# -- The interpreter -----------------------------------------------------------------------------------------------

INTERPRETED = """
import torch, triton, triton.language as tl
from triton.runtime.interpreter import InterpretedFunction
from opgraft.jit import jit, constexpr_function

@constexpr_function
def twice(n): return 2 * n

@jit
def helper(x): return x + 1

@jit(do_not_specialize=["n"])
def kernel(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, helper(tl.load(x + i, mask=i < n)) + twice(BLOCK), mask=i < n)

assert isinstance(kernel, InterpretedFunction)
assert jit(kernel) is kernel
x = torch.zeros(8)
kernel[(1,)](x, 5, 8)
assert x.tolist() == [17.0] * 5 + [0.0] * 3, x
print("interpreted")
"""


def test_the_interpreter_is_tritons(tmp_path):
    program = tmp_path / "interpreted.py"
    program.write_text(INTERPRETED)
    result = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, env={**os.environ, "TRITON_INTERPRET": "1"}
    )
    assert result.stdout == "interpreted\n", result.stderr


def test_our_classes_keep_what_tritons_have():
    """Whatever Triton's kernel object has, ours has: attributes and methods of this version."""
    stock, ours = triton.jit(stock_fill.fn), jit(stock_fill.fn)
    missing = [name for name in dir(stock) if not hasattr(ours, name)]
    assert not missing
    assert isinstance(Autotuner, type) and issubclass(Heuristics, triton.runtime.Heuristics)
