"""The benchmark of launches runs, and reports every way in every form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "launch.py"


@pytest.mark.slow
@pytest.mark.cpu_active
def test_it_reports_ours_and_the_peers(tmp_path):
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--rounds", "2", "--seconds", "0.0005"]
    files = {name: tmp_path / f"launch.{name}" for name in ("json", "markdown", "plot")}
    files["plot"] = files["plot"].with_suffix(".png")
    for name, path in files.items():
        command += [f"--{name}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads(files["json"].read_text())["rows"]
    failed = {row["name"]: row["why_not"] for row in rows if row["us"] is None}
    assert failed == {}
    assert {"floor", "ours", "peer"} == {row["who"] for row in rows}
    assert "| **opgraft kernel[grid](...), 4 tensors** |" in files["markdown"].read_text()
    assert files["plot"].read_bytes().startswith(b"\x89PNG")
    assert "Targets" in done.stdout
