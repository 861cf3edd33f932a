"""The code in the documents does what they say."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"


def test_the_code_in_the_readme_passes_its_own_test(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", README.read_text("utf-8"), flags=re.M | re.S)
    assert [name for name, _ in blocks] == ["norms.py", "test_norms.py"]
    for name, code in blocks:
        (tmp_path / name).write_text(code, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_norms.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_op_that_moved_computes_differentiates_and_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "docs/ops.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n# moved.py\n(.*?)^```$", text, flags=re.M | re.S)
    (tmp_path / "moved.py").write_text(code, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    square = importlib.import_module("moved").square
    x = torch.randn(1000, requires_grad=True)
    for call in (square, torch.compile(square, fullgraph=True)):
        (grad,) = torch.autograd.grad(call(x).sum(), x)
        torch.testing.assert_close(call(x), x * x)
        torch.testing.assert_close(grad, 2 * x)
