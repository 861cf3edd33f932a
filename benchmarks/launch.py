"""What a launch costs on the host, by every way there is, ours and the peers' in one run.

    python benchmarks/launch.py [--device cpu|cuda|all] [--json FILE] [--markdown FILE] [--plot FILE]

All ways launch the same tiny kernels (see launch_routes.py) and take turns; a time is the median over the
rounds, each of which runs on the core that is fastest when it begins. Times of compiled graphs are per kernel: the
difference of a chain of 40 and of one, over 39. Compare ratios within one run.
"""

import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import triton
import typer
from launch_routes import Route, launch_loop, routes
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

FLOOR = "C extension, 4 tensors"


@dataclass
class Row:
    """One way's time, in microseconds a launch (the median of the rounds), or why it has none."""

    device: str
    group: str
    name: str
    who: str
    us: float | None
    best: float | None = None  # of all rounds
    ratio: float | None = None  # to the C extension
    why_not: str = ""


@dataclass
class Target:
    """A figure that must be reached, as `shared` says it."""

    what: str
    group: str
    name: str
    limit: Callable[["Results"], float]
    shown: str
    peer: str


ALL_CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
Results = dict[tuple[str, str], float]
GRAPH = "per kernel in a compiled graph"
FLOOR_LOOP = ("launch", "loop in C around the driver call or kernel")
TARGETS = {
    "cuda": [
        Target(
            "eager launch, 4 tensors",
            "launch",
            "opgraft kernel[grid](...), 4 tensors",
            lambda r: 1.3 * r["launch", FLOOR],
            "1.3 x the C extension",
            "Triton kernel[grid](...), 4 tensors",
        ),
        Target(
            "eager launch, 19 arguments",
            "launch",
            "opgraft kernel[grid](...), 8 tensors and 11 ints",
            lambda r: 1.5 * r["launch", "C extension, 8 tensors and 11 ints"],
            "1.5 x the C extension",
            "Triton kernel[grid](...), 8 tensors and 11 ints",
        ),
        Target("eager op", "op", "opgraft custom_op", lambda r: 8.0, "8", "torch custom_op"),
        Target("kernel in a graph", GRAPH, "opgraft custom_op", lambda r: 4.2, "4.2", "torch custom_op"),
    ],
    "cpu": [
        Target(
            "eager launch, 4 tensors",
            "launch",
            "opgraft kernel[grid](...), 4 tensors",
            lambda r: 1.5 + r[FLOOR_LOOP],
            "1.5 over the kernel's own time",
            "Triton kernel[grid](...), 4 tensors",
        ),
        Target(
            "kernel in a graph",
            GRAPH,
            "opgraft custom_op",
            lambda r: 0.5 + r[FLOOR_LOOP],
            "0.5 over the kernel's own time",
            "torch custom_op",
        ),
    ],
}


def stay_on_the_quietest_core(trial: Callable[[], float]) -> None:
    """Move to the core on which `trial`, which returns a time, is fastest at the moment, and stay there.

    On shared machines some cores run at half their speed for seconds, probably while others use the same units.
    """
    if not ALL_CORES:
        return
    times = {}
    for core in ALL_CORES:
        os.sched_setaffinity(0, {core})
        trial()
        times[core] = statistics.median(trial() for _ in range(9))
    os.sched_setaffinity(0, {min(ALL_CORES, key=times.__getitem__)})


def python_trial() -> float:
    """A piece of work in Python."""
    start = time.perf_counter_ns()
    sum(range(5000))
    return time.perf_counter_ns() - start


def driver_trial() -> float:
    """The driver's launch call alone, from C. It is most of a launch, and says more of one than work in Python does."""
    torch.cuda.synchronize()
    return launch_loop("cuda", 50)


class Timer:
    """Times calls on one device, in turns."""

    def __init__(self, device: str, rounds: int, seconds: float) -> None:
        self.device, self.rounds, self.seconds = device, rounds, seconds

    def synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def once(self, call: Callable[[], Any], count: int) -> float:
        """Microseconds of one call on the host, over `count` of them, after some that find the caches cold."""
        for _ in range(count // 4):
            call()
        self.synchronize()
        start = time.perf_counter_ns()
        for _ in range(count):
            call()
        end = time.perf_counter_ns()
        self.synchronize()
        return (end - start) / count / 1000

    def count(self, call: Callable[[], Any], kernels: int) -> int:
        """How many calls fill the time of a round, but never more launches than the GPU's queue holds."""
        for _ in range(3):
            call()
        wanted = int(self.seconds * 1e6 / max(self.once(call, 10), 0.01))
        return max(5, min(wanted, 800 // kernels if self.device == "cuda" else 20000))

    def all(self, calls: dict[int, tuple[Callable[[], Any], int, bool]]) -> dict[int, list[float]]:
        """Key -> (call, kernels, whether it times itself) to key -> microseconds of a call in each round."""
        counts = {key: self.count(call, kernels) for key, (call, kernels, _) in calls.items()}
        times: dict[int, list[float]] = {key: [] for key in calls}
        keys = [*calls]
        for number in track(range(self.rounds), f"timing on {self.device}", console=Console(stderr=True)):
            stay_on_the_quietest_core(driver_trial if self.device == "cuda" else python_trial)
            first = number % len(keys)  # each round begins elsewhere: no way always follows the same one
            for key in keys[first:] + keys[:first]:
                call, _, in_c = calls[key]
                self.synchronize()
                times[key].append(call() / 1000 if in_c else self.once(call, counts[key]))
        if ALL_CORES:
            os.sched_setaffinity(0, ALL_CORES)
        return times


def measure(device: str, rounds: int, seconds: float, only: str, best: bool) -> list[Row]:
    """All rows for one device."""
    # Inductor's pool of compiling processes goes on starting after the graphs are there, with an import of torch in
    # each: not beside the clock. So all is compiled in this process.
    torch._inductor.config.compile_threads = 1
    rows: list[tuple[Route, Row]] = []
    calls: dict[int, tuple[Callable[[], Any], int, bool]] = {}
    for route in track([*routes(device)], f"preparing on {device}", console=Console(stderr=True)):
        if only not in f"{route.group}: {route.name}":
            continue
        row = Row(device, route.group, route.name, route.who, None)
        rows.append((route, row))
        try:
            call = route.make()
            call()
            calls[2 * len(rows)] = call, route.kernels, route.timed_in_c
            if route.slope is not None:
                calls[2 * len(rows) + 1] = route.slope(), 1, False
        except Exception as error:
            row.why_not = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            calls.pop(2 * len(rows), None)
    times = Timer(device, rounds, seconds).all(calls)
    for index, (route, row) in enumerate(rows, 1):
        if 2 * index in times:
            row.us, row.best = (
                _per_kernel(route, statistic, times[2 * index], times.get(2 * index + 1))
                for statistic in (statistics.median, min)
            )
    found = [row for _, row in rows]
    if best:
        for row in found:
            row.us = row.best
    floor = next((row.us for row in found if row.name == FLOOR), None)
    for row in found:
        if row.us is not None and floor is not None:
            row.ratio = row.us / floor
    return found


def measure_apart(device: str, rounds: int, seconds: float, only: str, best: bool) -> list[Row]:
    """`measure` in a process of its own, where the CPU is Triton's active device: stock kernels launch on that only."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.json")
        command = [sys.executable, __file__, "--device", device, "--rounds", str(rounds), "--seconds", str(seconds)]
        command += ["--only", only, "--json", str(file), *(["--best"] if best else [])]
        environment = {**os.environ, "TRITON_DEFAULT_BACKEND": "cpu", "CUDA_VISIBLE_DEVICES": ""}
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        return [Row(**row) for row in json.loads(file.read_text())["rows"]]


def _per_kernel(route: Route, statistic: Any, chain: list[float], single: list[float] | None) -> float:
    if single is None:
        return float(statistic(chain))
    return float(statistic(chain) - statistic(single)) / (route.kernels - 1)


def table(rows: list[Row]) -> Table:
    device = rows[0].device
    shown = Table(title=f"Host time of a launch on {device}", caption="ratio: to the C extension, 4 tensors")
    for column in ("way", "us", "ratio"):
        shown.add_column(column, justify="left" if column == "way" else "right")
    group = ""
    for row in rows:
        if row.group != group:
            shown.add_section()
            shown.add_row(f"[bold]{row.group}[/bold]", "", "")
            group = row.group
        style = {"ours": "bold green", "floor": "cyan", "peer": ""}[row.who]
        time_text = "-" if row.us is None else f"{row.us:.2f}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        why_not = f" ({row.why_not})" if row.why_not else ""
        shown.add_row(escape(f"  {row.name}{why_not}"), time_text, ratio, style=style)
    return shown


def verdicts(rows: list[Row]) -> list[dict[str, Any]]:
    """The targets of a device with what was measured."""
    device = rows[0].device
    results = {(row.group, row.name): row.us for row in rows if row.us is not None}
    found = []
    for target in TARGETS[device]:
        us, peer = results.get((target.group, target.name)), results.get((target.group, target.peer))
        try:
            limit = target.limit(results)
        except KeyError:
            limit = None
        met = us <= limit if us is not None and limit is not None else None
        found.append(
            {"device": device, "what": target.what, "us": us, "limit": limit, "says": target.shown, "met": met}
            | {"peer": target.peer, "peer_us": peer}
        )
    return found


def verdict_table(found: list[dict[str, Any]]) -> Table:
    shown = Table(title="Targets")
    for column in ("device", "what", "us", "at most", "", "met", "peer", "us"):
        shown.add_column(column)
    for item in found:
        numbers = ["-" if item[key] is None else f"{item[key]:.2f}" for key in ("us", "limit", "peer_us")]
        shown.add_row(
            item["device"],
            item["what"],
            numbers[0],
            numbers[1],
            item["says"],
            {None: "-", True: "[green]yes[/green]", False: "[red]no[/red]"}[item["met"]],
            escape(item["peer"]),
            numbers[2],
        )
    return shown


def markdown(rows: list[Row], found: list[dict[str, Any]]) -> str:
    """The report as `docs/performance.md` holds it: a table for each device, and the targets."""
    lines = [", ".join(f"{key} {value}" for key, value in setting().items() if value is not None) + "."]
    for device in dict.fromkeys(row.device for row in rows):
        lines += ["", f"| on {device} | us | to the C extension |", "| --- | ---: | ---: |"]
        group = ""
        for row in (row for row in rows if row.device == device):
            if row.group != group:
                group = row.group
                lines.append(f"| *{group}* | | |")
            name = f"**{row.name}**" if row.who == "ours" else row.name
            figures = ("not possible", "") if row.us is None else (f"{row.us:.2f}", f"{row.ratio or 0:.2f}")
            lines.append(f"| {name} | {figures[0]} | {figures[1]} |")
    lines += ["", "| target | measured | at most | peer | measured |", "| --- | ---: | ---: | --- | ---: |"]
    for item in found:
        us, limit, peer = ("-" if item[key] is None else f"{item[key]:.2f}" for key in ("us", "limit", "peer_us"))
        lines.append(
            f"| {item['device']}: {item['what']} | {us} | {limit} ({item['says']}) | {item['peer']} | {peer} |"
        )
    return "\n".join(lines) + "\n"


def setting() -> dict[str, Any]:
    """What was measured where."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "gpu": gpu,
        "cpu": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
    }


def plot(rows: list[Row], path: Path) -> None:
    """A bar for each way, a panel for each device."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    devices = sorted({row.device for row in rows})
    figure, axes = pyplot.subplots(1, len(devices), figsize=(9 * len(devices), 10), squeeze=False)
    colours = {"ours": "tab:green", "floor": "tab:cyan", "peer": "tab:gray"}
    for axis, device in zip(axes[0], devices, strict=True):
        shown = [row for row in rows if row.device == device and row.us is not None][::-1]
        names = [f"{row.name} [graph]" if row.group == GRAPH else row.name for row in shown]
        positions = range(len(shown))
        axis.barh(positions, [row.us for row in shown], color=[colours[row.who] for row in shown])
        axis.set_yticks(positions, names)
        axis.set_xlabel("us on the host, for one launch")
        axis.set_title(device)
    figure.tight_layout()
    figure.savefig(path)


def main(
    device: Annotated[str, typer.Option(help="cpu, cuda or all")] = "all",
    rounds: Annotated[int, typer.Option(help="rounds, of which the median counts")] = 41,
    seconds: Annotated[float, typer.Option(help="time of one way in one round, at most")] = 0.02,
    best: Annotated[bool, typer.Option(help="count the best round instead, for a machine that is busy")] = False,
    only: Annotated[str, typer.Option(help="only ways whose group and name contain this")] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures there")] = None,
    markdown_file: Annotated[Path | None, typer.Option("--markdown", help="write the tables there")] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="draw them there (PNG, SVG, PDF)")] = None,
) -> None:
    """Measure what a launch costs on the host."""
    if device not in ("cpu", "cuda", "all"):
        raise typer.BadParameter(f"--device is cpu, cuda or all, got {device}")
    devices = ["cpu", "cuda"] if device == "all" else [device]
    if not torch.cuda.is_available():
        if device == "cuda":
            sys.exit("--device cuda: torch sees no GPU here")
        devices = ["cpu"]
    console = Console(width=160 if not sys.stdout.isatty() else None)
    console.print(setting())
    rows, found = [], []
    for name in devices:
        apart = name == "cpu" and torch.cuda.is_available()
        measured = (measure_apart if apart else measure)(name, rounds, seconds, only, best)
        console.print(table(measured))
        found += verdicts(measured)
        rows += measured
    console.print(verdict_table(found))
    if json_file is not None:
        data = {"setting": setting(), "rows": [asdict(row) for row in rows], "targets": found}
        json_file.write_text(json.dumps(data, indent=1))
    if markdown_file is not None:
        markdown_file.write_text(markdown(rows, found))
    if plot_file is not None:
        plot(rows, plot_file)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
