"""The benchmarks of the example's ops run; what they measure is not judged here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

pytestmark = pytest.mark.slow


def run(script: str, *options: str) -> str:
    command = [sys.executable, str(BENCHMARKS / script), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_subgraphs_prints_a_table_and_writes_its_rows(tmp_path: Path) -> None:
    figures, plot = tmp_path / "figures.json", tmp_path / "plot.png"
    output = run("subgraphs.py", "--rounds", "1", "--only", "mean_pool", "--json", str(figures), "--plot", str(plot))
    assert "mean_pool" in output
    rows = json.loads(figures.read_text())
    assert [row["tokens"] for row in rows] == [16, 128, 512]
    assert all(row["opgraft_all_threads"] > 0 for row in rows)
    assert plot.stat().st_size > 0


def test_cold_start_finds_on_disk_what_the_process_before_compiled(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    run("cold_start.py", "--repeats", "1", "--json", str(figures))
    for compiled, from_disk, op_compiled, op_from_disk in json.loads(figures.read_text()).values():
        assert from_disk < compiled
        assert op_from_disk < op_compiled
