"""From the first call of an op to its launch: with empty caches, and in a second process that finds them on disk.

    python benchmarks/cold_start.py [--json FILE]

Each figure comes from processes of its own, which import torch and triton before the clock starts; the median of
several. The cache folder of the first is empty: it holds neither the launch extension nor the digests of Triton's
files. Python's bytecode of opgraft is there, as in an installed copy. "kernel" calls the body, which launches the
kernel; "op" calls it through PyTorch, which checks at the first call what the kernel writes.
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
import torch, triton, triton.language, triton.compiler.code_generator
import encoder_ops
call, arguments = encoder_ops.{op}, ({arguments})
start = time.perf_counter()
call(*arguments)
first = time.perf_counter()
call(*arguments)
print(1e3 * (first - start), 1e3 * (time.perf_counter() - first))
"""


def first_call(op: str, folder: Path, bytecode: Path) -> float:
    """Milliseconds that a new process spends in the first call beyond what the second takes."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {
        "PYTHONPATH": str(EXAMPLES),
        "PYTHONPYCACHEPREFIX": str(bytecode),
        "TRITON_CACHE_DIR": str(folder),
    }
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(op=op, arguments=CALLS[op.partition(".")[0]])],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the process that calls {op} failed:\n{done.stderr}")
    first, second = map(float, done.stdout.split())
    return first - second


def cold_and_warm(op: str, bytecode: Path) -> tuple[float, float]:
    """The first call of a process that has to compile the kernel, and of the next process."""
    with tempfile.TemporaryDirectory() as folder:
        return first_call(op, Path(folder), bytecode), first_call(op, Path(folder), bytecode)


def main(
    repeats: Annotated[int, typer.Option(help="Of how many the median is taken.", min=1)] = 5,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the figures to this file.")] = None,
) -> None:
    """Time the first calls of the sentence encoder's ops."""
    figures = {}
    table = Table(title=f"First call, median ms of {repeats}", title_justify="left")
    table.add_column("op")
    for column in ("kernel, compiled", "kernel, from disk", "op, compiled", "op, from disk"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory() as bytecode:
        cold_and_warm("mean_pool", Path(bytecode))  # writes the bytecode
        for op in CALLS:
            figures[op] = [
                statistics.median(times)
                for call in (f"{op}.__wrapped__", op)  # the body launches the kernel; the op calls the body
                for times in zip(*(cold_and_warm(call, Path(bytecode)) for _ in range(repeats)), strict=True)
            ]
            table.add_row(op, *(f"{value:.1f}" for value in figures[op]))
    Console().print(table)
    if json_file:
        json_file.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
