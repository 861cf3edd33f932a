"""From the first call of an op to its launch: with empty caches, and in a second process that finds them on disk.

    python benchmarks/cold_start.py [--json FILE]

Each figure comes from processes of its own, which import torch and triton before the clock starts; the median of
several. Building the launcher in C, once a machine, is not part of it: a first process has done that.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

# The ops with their arguments, as the encoder calls them for 8 sentences of 128 tokens.
CALLS = {
    "add_layer_norm": "torch.rand(8, 128, 384), torch.rand(8, 128, 384), torch.rand(384), torch.rand(384), 1e-12",
    "bias_gelu": "torch.rand(8, 128, 1536), torch.rand(1536)",
    "masked_softmax": "torch.rand(8, 12, 128, 128), torch.ones(8, 128, dtype=torch.bool), 0.2",
    "mean_pool": "torch.rand(8, 128, 384), torch.ones(8, 128, dtype=torch.long)",
}

CHILD = """
import time
import torch, triton, triton.language, triton.compiler
import encoder_ops
arguments = ({arguments})
start = time.perf_counter()
encoder_ops.{op}(*arguments)
first = time.perf_counter()
encoder_ops.{op}(*arguments)
print(1e3 * (first - start), 1e3 * (time.perf_counter() - first))
"""


def first_call(op: str, folder: str) -> float:
    """Milliseconds that a new process spends in the first call beyond what the second takes."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(op=op, arguments=CALLS[op])],
        env={**os.environ, "TRITON_CACHE_DIR": folder, "PYTHONPATH": str(EXAMPLES)},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the process that calls {op} failed:\n{done.stderr}")
    first, second = map(float, done.stdout.split())
    return first - second


def cold_and_warm(op: str) -> tuple[float, float]:
    """The first call of a process that has to compile the kernel, and of the next process."""
    another = next(name for name in CALLS if name != op)
    with tempfile.TemporaryDirectory() as folder:
        first_call(another, folder)  # builds the launcher
        return first_call(op, folder), first_call(op, folder)


def main(
    repeats: Annotated[int, typer.Option(help="Of how many the median is taken.", min=1)] = 3,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the figures to this file.")] = None,
) -> None:
    """Time the first calls of the sentence encoder's ops."""
    figures = {}
    table = Table(title=f"First call, median ms of {repeats}", title_justify="left")
    table.add_column("op")
    table.add_column("compiled", justify="right")
    table.add_column("from disk", justify="right")
    for op in CALLS:
        cold, warm = (
            statistics.median(times) for times in zip(*(cold_and_warm(op) for _ in range(repeats)), strict=True)
        )
        figures[op] = {"compiled": cold, "from_disk": warm}
        table.add_row(op, f"{cold:.0f}", f"{warm:.1f}")
    Console().print(table)
    if json_file:
        json_file.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
