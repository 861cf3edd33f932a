"""The example that observes compiles and launches."""

import importlib.util
import pathlib

import pytest
import torch
from triton import knobs


@pytest.fixture
def example():
    path = pathlib.Path(__file__).parents[2] / "examples" / "observe_launches.py"
    spec = importlib.util.spec_from_file_location("observe_launches", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_sees_every_launch_and_each_compile_once(example, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    observer = example.run("cpu")
    assert (observer.launches, observer.compiles) == (4, 2)
    printed = capsys.readouterr().out.splitlines()
    compiles = [line for line in printed if line.startswith("compile")]
    launches = [line for line in printed if line.startswith("launch")]
    assert compiles == ["compile  gated(x: *fp32, gate: *fp32, out: *fp32, n: i32, BLOCK: constexpr)"] * 2
    assert "grid=(4, 1, 1), shapes={'x': (1000,), 'gate': (1000,), 'out': (1000,)}, num_warps=4" in launches[0]
    assert len(launches) == 4
    assert knobs.runtime.jit_cache_hook is None


@pytest.mark.gpu
def test_it_sees_launches_on_the_gpu(example):
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    observer = example.run("cuda")
    assert (observer.launches, observer.compiles) == (4, 2)
