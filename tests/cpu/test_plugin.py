"""The backend as a Triton plugin: light to load, never in the way, and what it changes for torch."""

import os
import subprocess
import sys
import textwrap

import pytest


def run(code, tmp_path, env=None, **kwargs):
    """Run Python code from a file (kernels need one) in a new process; returns its output."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(code))
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache"), **(env or {})}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=600, env=environment, **kwargs
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


NO_TORCH = """
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch" or name.startswith("torch."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

import sys
sys.meta_path.insert(0, NoTorch())
"""
LIGHT = """
import sys
import triton
from triton.backends import backends
assert backends["cpu"].compiler.__module__ == "opgraft.jit.backends.cpu.compiler"
backend = sorted(name for name in sys.modules if name.startswith("opgraft.jit.backends.cpu."))
assert backend == ["opgraft.jit.backends.cpu.compiler", "opgraft.jit.backends.cpu.driver"], backend
heavy = ("opgraft.integration.", "opgraft.fx_passes.", "opgraft.jit.ir")
assert not any(name.startswith(heavy) for name in sys.modules)
assert "torch" not in sys.modules
print("light")
"""


@pytest.mark.parametrize("prelude", ["", NO_TORCH], ids=["with torch", "without torch"])
def test_import_triton_loads_only_the_plugin_itself(prelude, tmp_path):
    assert run(prelude + LIGHT, tmp_path) == "light\n"


def test_without_torch_the_driver_is_active_and_compiles(tmp_path):
    code = f"""
{NO_TORCH}
import triton, triton.language as tl
from triton.compiler import ASTSource
from triton.runtime.driver import driver

@triton.jit
def kernel(x_ptr):
    tl.store(x_ptr, 1.0)

assert driver.active.get_current_target().backend == "cpu"
compiled = triton.compile(ASTSource(kernel, {{"x_ptr": "*fp32"}}, {{}}))
print("store" in compiled.asm["cpp"])
"""
    assert run(code, tmp_path) == "True\n"


def test_the_driver_yields_to_a_gpu_and_obeys_the_environment(monkeypatch):
    from triton.backends import backends

    from opgraft.jit.backends.cpu.driver import CPUDriver

    monkeypatch.delenv("TRITON_DEFAULT_BACKEND", raising=False)
    others = [backend.driver for backend in backends.values() if backend.driver is not CPUDriver]
    for driver in others:
        monkeypatch.setattr(driver, "is_active", staticmethod(lambda: False))
    assert CPUDriver.is_active()

    def broken():
        raise OSError("no driver library")

    monkeypatch.setattr(others[0], "is_active", staticmethod(broken))
    assert CPUDriver.is_active()
    monkeypatch.setattr(others[0], "is_active", staticmethod(lambda: True))
    assert not CPUDriver.is_active()
    monkeypatch.setenv("TRITON_DEFAULT_BACKEND", "cpu")
    assert CPUDriver.is_active()
    monkeypatch.setenv("TRITON_DEFAULT_BACKEND", "nvidia")
    assert not CPUDriver.is_active()


def test_in_tree_backends_only_still_imports(tmp_path):
    code = """
        import triton
        from triton.backends import backends
        print("cpu" in backends)
    """
    assert run(code, tmp_path, env={"TRITON_BACKENDS_IN_TREE": "1"}) == "False\n"


KERNEL = """
    import torch, triton, triton.language as tl

    @triton.jit
    def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)

    def double(x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out

    x = torch.randn(1000)
"""


def test_benchmarks_and_autotuning(tmp_path):
    code = (
        KERNEL
        + """
    assert triton.testing.do_bench(lambda: double(x), warmup=1, rep=5) > 0
    tuned = triton.autotune([triton.Config({"BLOCK": b}) for b in (64, 512)], key=["n"])(kernel)
    out = torch.empty_like(x)
    tuned[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, out, 1000)
    assert torch.equal(out, x * 2)
    print(tuned.best_config.kwargs["BLOCK"] in (64, 512))
    """
    )
    assert run(code, tmp_path) == "True\n"


def test_torch_sees_triton_on_the_cpu(tmp_path):
    code = """
        import torch
        from torch.utils._triton import has_triton, has_triton_package
        print(has_triton_package(), has_triton())
    """
    assert run(code, tmp_path) == "True True\n"


def test_dynamo_captures_a_stock_kernel_over_cpu_tensors(tmp_path):
    code = (
        KERNEL
        + """
    compiled = torch.compile(lambda x: double(x + 1).sin(), fullgraph=True)
    torch.testing.assert_close(compiled(x), ((x + 1) * 2).sin())
    torch.testing.assert_close(compiled(x[:777]), ((x[:777] + 1) * 2).sin())
    print("right")
    """
    )
    assert run(code, tmp_path, env={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}) == "right\n"


def test_inductor_still_writes_cpp_for_its_own_code(tmp_path):
    code = """
        import torch
        from torch._inductor.utils import run_and_get_code

        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
        x = torch.randn(4, 8)
        with torch.no_grad():
            out, (source, *_) = run_and_get_code(torch.compile(model), x)
        torch.testing.assert_close(out, model(x))
        assert "cpp_fused" in source and "triton_" not in source, source
        print("cpp")
    """
    assert run(code, tmp_path, env={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}) == "cpp\n"


@pytest.mark.slow
def test_aot_inductor_packages_a_cpu_model(tmp_path):
    code = """
        import torch

        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
        x = torch.randn(4, 8)
        with torch.no_grad():
            program = torch.export.export(model, (x,))
            path = torch._inductor.aoti_compile_and_package(program, package_path="model.pt2")
            loaded = torch._inductor.aoti_load_package(path)
            torch.testing.assert_close(loaded(x), model(x))
        print("packaged")
    """
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    assert run(code, tmp_path, env=environment, cwd=tmp_path).endswith("packaged\n")
