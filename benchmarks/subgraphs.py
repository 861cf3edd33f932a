"""The four pieces of the sentence encoder that opgraft's ops replace, against Inductor's code for them.

    python benchmarks/subgraphs.py [--json FILE] [--plot FILE]

Each piece is compiled alone, by Inductor from its PyTorch form and from the op of examples/encoder_ops.py, once for
one thread and once for all. All shapes are static, which helps Inductor. The ways take turns in one process; a time
is the median over the rounds. The ratio is ours with all threads, which is what a user gets, to Inductor's better
one: below 1 is faster. The machine must be idle: with two threads on a busy machine one waits for the other.
"""

import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import torch
import torch.nn.functional as F
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from encoder_ops import add_layer_norm, bias_gelu, masked_softmax, mean_pool

SENTENCES, HEADS, COLS, INNER, EPS = 8, 12, 384, 1536, 1e-12
SCALE = (COLS // HEADS) ** -0.5
LENGTHS = (16, 128, 512)


@dataclass(frozen=True)
class Piece:
    """A part of the model in two forms, and inputs for a sentence length."""

    name: str
    ours: Callable[..., Tensor]
    plain: Callable[..., Tensor]
    inputs: Callable[[int], tuple[Tensor, ...]]


def words(tokens: int) -> Tensor:
    """A mask [sentences, tokens] of bool: the sentences grow shorter, down to half."""
    lengths = torch.linspace(tokens, tokens / 2, SENTENCES).round()
    return torch.arange(tokens) < lengths[:, None]


def plain_mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    kept = mask.unsqueeze(-1).to(hidden.dtype)
    return F.normalize((hidden * kept).sum(1) / kept.sum(1), dim=-1)


PIECES = (
    Piece(
        "add_layer_norm",
        lambda x, residual, weight, bias: add_layer_norm(x, residual, weight, bias, EPS),
        lambda x, residual, weight, bias: F.layer_norm(x + residual, (COLS,), weight, bias, EPS),
        lambda tokens: (*torch.randn(2, SENTENCES, tokens, COLS), *torch.randn(2, COLS)),
    ),
    Piece(
        "bias_gelu",
        lambda x, bias: bias_gelu(x, bias),
        lambda x, bias: F.gelu(x + bias),
        lambda tokens: (torch.randn(SENTENCES, tokens, INNER), torch.randn(INNER)),
    ),
    Piece(
        "masked_softmax",
        lambda scores, mask: masked_softmax(scores, mask, SCALE),
        lambda scores, mask: torch.where(mask[:, None, None], scores * SCALE, -torch.inf).softmax(-1),
        lambda tokens: (4 * torch.randn(SENTENCES, HEADS, tokens, tokens), words(tokens)),
    ),
    Piece(
        "mean_pool",
        lambda hidden, mask: mean_pool(hidden, mask),
        plain_mean_pool,
        lambda tokens: (torch.randn(SENTENCES, tokens, COLS), words(tokens)),
    ),
)


def keep_freed_memory() -> None:
    """Have the C library keep what is freed, as it does in a process that has used much more memory.

    Otherwise outputs of 25 MB are given back and taken anew, or not, by where in the heap they lie: page faults of
    several milliseconds a call that one way meets and another does not.
    """
    M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries than GNU's lack it
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(M_MMAP_MAX, 0)


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


def compiled(fn: Callable[..., Tensor], inputs: tuple[Tensor, ...], backend: str) -> Callable[..., Tensor]:
    """`fn` for these inputs; called once, so that nothing is left to be compiled."""
    run = torch.compile(fn, fullgraph=True, dynamic=False, backend=backend)
    run(*inputs)
    return run


@dataclass
class Row:
    """Medians in microseconds of one piece at one sentence length."""

    piece: str
    tokens: int
    inductor_one_thread: float
    inductor_all_threads: float
    opgraft_one_thread: float
    opgraft_all_threads: float

    @property
    def ratio(self) -> float:
        """As a user meets it: ours with all threads, to Inductor's better."""
        return self.opgraft_all_threads / min(self.inductor_one_thread, self.inductor_all_threads)


def measure(piece: Piece, tokens: int, all_threads: int, rounds: int) -> Row:
    torch._dynamo.reset()
    torch.manual_seed(tokens)
    inputs = piece.inputs(tokens)
    ways: list[tuple[int, Callable[..., Tensor]]] = []
    for count, fn, backend in (
        (1, piece.plain, "inductor"),
        (all_threads, piece.plain, "inductor"),
        (1, piece.ours, "opgraft"),
        (all_threads, piece.ours, "opgraft"),
    ):
        with threads(count):
            ways.append((count, compiled(fn, inputs, backend)))
    expected = piece.plain(*inputs)
    for count, run in ways:
        with threads(count):
            torch.testing.assert_close(run(*inputs), expected, rtol=1e-4, atol=1e-5)

    seen: list[list[float]] = [[] for _ in ways]
    for _ in range(rounds):
        for times, (count, run) in zip(seen, ways, strict=True):
            with threads(count):
                run(*inputs)  # the threads and the caches come from another way
                start = time.perf_counter()
                for _ in range(5):
                    run(*inputs)
                times.append((time.perf_counter() - start) / 5 * 1e6)
    return Row(piece.name, tokens, *(statistics.median(times) for times in seen))


def plot(rows: list[Row], file: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 4))
    axes.bar([f"{row.piece}\n{row.tokens}" for row in rows], [row.ratio for row in rows])
    axes.axhline(1, color="black", linewidth=1)
    axes.set_ylabel("opgraft / Inductor's better (below 1 is faster)")
    axes.tick_params(axis="x", labelsize=7, rotation=45)
    figure.tight_layout()
    figure.savefig(file, dpi=150)


def main(
    rounds: Annotated[int, typer.Option(help="How often each way is timed.", min=1)] = 60,
    only: Annotated[str, typer.Option(help="Measure the pieces whose names hold this.")] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the rows to this file.")] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Also draw the ratios into this file.")] = None,
) -> None:
    """Time the replaced pieces of the sentence encoder."""
    keep_freed_memory()
    all_threads = torch.get_num_threads()
    table = Table(title=f"{SENTENCES} sentences, float32, median µs of {rounds} rounds", title_justify="left")
    table.add_column("piece")
    table.add_column("tokens", justify="right")
    for compiler in ("Inductor", "opgraft"):
        for count in (1, all_threads):
            table.add_column(f"{compiler}\n{count} thread{'s' * (count > 1)}", justify="right")
    table.add_column("ratio", justify="right")
    rows = []
    with torch.no_grad():
        for piece in PIECES:
            for tokens in LENGTHS if only in piece.name else ():
                row = measure(piece, tokens, all_threads, rounds)
                rows.append(row)
                _, _, *times = asdict(row).values()
                table.add_row(row.piece, str(tokens), *(f"{value:.1f}" for value in times), f"{row.ratio:.2f}")
    Console().print(table)
    if json_file:
        json_file.write_text(json.dumps([{**asdict(row), "ratio": row.ratio} for row in rows], indent=1) + "\n")
    if plot_file:
        plot(rows, plot_file)


if __name__ == "__main__":
    typer.run(main)
