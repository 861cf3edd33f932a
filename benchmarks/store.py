"""The store of compiled kernels under load: time of a load from disk, many threads and processes, damaged entries.

    python benchmarks/store.py [--quick]

Compiles for a CUDA target, which needs no GPU. Everything happens in a temporary folder.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource

TARGET = GPUTarget("cuda", 80, 32)
BLOCKS = (16, 32, 64, 128)


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    tl.store(out + index, tl.load(x + index, mask=mask) + tl.load(y + index, mask=mask), mask=mask)


def source(block: int = 64) -> ASTSource:
    signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    return ASTSource(add, signature, {(4,): block}, {})


# ---- what the child processes do ----


def load(whose: str) -> dict:
    """Milliseconds of the first `compile`, which finds the kernel on disk. Imports are done before."""
    import triton._C.libtriton

    import opgraft.jit.compile

    compile = opgraft.jit.compile.compile if whose == "ours" else triton.compile
    kernel_source = source()
    start = time.perf_counter()
    compile(kernel_source, TARGET)
    return {"ms": 1e3 * (time.perf_counter() - start)}


def race(go: str) -> dict:
    """Compile once `go` exists."""
    from opgraft.jit.compile import compile, on_compile

    seen = []
    on_compile(seen.append)
    while not os.path.exists(go):
        time.sleep(0.002)
    kernel = compile(source(), TARGET)
    return {"outcome": seen[0].outcome, "code": hashlib.sha256(kernel.kernel).hexdigest()}


def survive(seconds: str, expected: str) -> dict:
    """Compile again and again while others damage the store; count outcomes and wrong results."""
    from opgraft.jit.compile import compile, on_compile

    warnings.simplefilter("ignore")
    outcomes: collections.Counter[str] = collections.Counter()
    on_compile(lambda event: outcomes.update([event.outcome]))
    wrong, end = 0, time.monotonic() + float(seconds)
    while time.monotonic() < end:
        kernel = compile(source(), TARGET)
        wrong += hashlib.sha256(kernel.kernel).hexdigest() != expected
    return {"outcomes": outcomes, "wrong": wrong}


def child(*arguments: object, folder: Path) -> subprocess.Popen[str]:
    env = {**os.environ, "TRITON_CACHE_DIR": str(folder), "TRITON_DEFAULT_FP_FUSION": "1"}
    command = [sys.executable, __file__, "--child", *map(str, arguments)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> dict:
    out, err = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"a child process failed:\n{err}")
    return json.loads(out.splitlines()[-1])


# ---- the measurements ----


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith(".") and list(path.glob("__entry__*"))]


def measure_load(folder: Path, repeats: int) -> str:
    figures = {}
    for whose in ("ours", "triton"):
        answer(child("load", whose, folder=folder))
        times = [answer(child("load", whose, folder=folder))["ms"] for _ in range(repeats)]
        figures[whose] = f"{statistics.median(times):.1f} (least {min(times):.1f})"
    return f"first load in a new process, ms: ours {figures['ours']}, triton.compile {figures['triton']}"


def measure_processes(folder: Path, count: int) -> str:
    shutil.rmtree(folder / "race", ignore_errors=True)
    (folder / "race").mkdir()
    shutil.copytree(folder / ".opgraft-digests", folder / "race" / ".opgraft-digests")
    go = folder / "go"
    go.unlink(missing_ok=True)
    running = [child("race", go, folder=folder / "race") for _ in range(count)]
    time.sleep(2.0)
    go.touch()
    results = [answer(process) for process in running]
    outcomes = collections.Counter(result["outcome"] for result in results)
    codes = len({result["code"] for result in results})
    return f"{count} processes, one kernel: {dict(outcomes)}, {codes} result, 0 errors"


def measure_threads(count: int) -> str:
    from opgraft.jit.compile import compile, on_compile

    outcomes: collections.Counter[str] = collections.Counter()
    stop = on_compile(lambda event: outcomes.update([event.outcome]))
    barrier, codes, errors = threading.Barrier(count), collections.defaultdict(set), []

    def work(index: int) -> None:
        barrier.wait()
        try:
            codes[index % 4].add(compile(source(BLOCKS[index % 4]), TARGET, {"num_warps": 2}).kernel)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stop()
    distinct = sum(map(len, codes.values()))
    return f"{count} threads, 4 kernels: {dict(outcomes)}, {distinct} results, {len(errors)} errors"


def damage(path: Path, chance: random.Random) -> None:
    """Spoil one file of an entry, in one of many ways; it may be gone already."""
    kind = chance.choice(["flip", "truncate", "empty", "remove", "extend", "folder", "remove all", "swap"])
    try:
        if kind == "remove all":
            shutil.rmtree(path)
            return
        file = chance.choice(list(path.iterdir()))
        data = file.read_bytes()
        if kind == "flip":
            position = chance.randrange(len(data))
            file.write_bytes(
                data[:position] + bytes([data[position] ^ (1 << chance.randrange(8))]) + data[position + 1 :]
            )
        elif kind == "truncate":
            file.write_bytes(data[: chance.randrange(len(data))])
        elif kind == "empty":
            file.write_bytes(b"")
        elif kind == "extend":
            file.write_bytes(data + b" ")
        elif kind == "swap":
            file.write_bytes(chance.choice(list(path.iterdir())).read_bytes())
        else:
            file.unlink()
            if kind == "folder":
                file.mkdir()
    except (OSError, IndexError, ValueError):
        pass


def measure_faults(folder: Path, count: int, seed: int) -> str:
    from opgraft.jit.compile import compile, on_compile

    outcomes: collections.Counter[str] = collections.Counter()
    expected = compile(source(), TARGET).kernel
    (entry,) = entries(folder)
    stop = on_compile(lambda event: outcomes.update([event.outcome]))
    chance, wrong = random.Random(seed), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(count):
            for _ in range(chance.choice([1, 1, 2, 3])):
                damage(entry, chance)
            kernel = compile(source(), TARGET)
            wrong += kernel.kernel != expected or "tt.func" not in kernel.asm["ttir"]
    stop()
    return f"{count} random faults: {dict(outcomes)}, {wrong} wrong results, 0 errors"


def measure_chaos(folder: Path, processes: int, seconds: float, seed: int) -> str:
    from opgraft.jit.compile import compile

    expected = hashlib.sha256(compile(source(), TARGET).kernel).hexdigest()
    running = [child("survive", seconds, expected, folder=folder) for _ in range(processes)]
    chance, faults = random.Random(seed), 0
    while any(process.poll() is None for process in running):
        for entry in entries(folder):
            damage(entry, chance)
            faults += 1
        time.sleep(0.05)
    results = [answer(process) for process in running]
    outcomes = sum((collections.Counter(result["outcomes"]) for result in results), collections.Counter())
    wrong = sum(result["wrong"] for result in results)
    return (
        f"{processes} processes for {seconds:.0f} s while {faults} faults are injected: {dict(outcomes)},"
        f" {wrong} wrong results, 0 errors"
    )


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        command, *arguments = sys.argv[2:]
        print(json.dumps({"load": load, "race": race, "survive": survive}[command](*arguments)))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of everything")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    share = 5 if given.quick else 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["TRITON_CACHE_DIR"] = name
        os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"
        print(measure_load(folder, max(3, 10 // share)), flush=True)
        print(measure_processes(folder, max(4, 32 // share)), flush=True)
        print(measure_faults(folder, 200 // share, given.seed), flush=True)
        print(measure_threads(max(8, 64 // share)), flush=True)
        print(measure_chaos(folder, 4, 20 / share, given.seed), flush=True)


if __name__ == "__main__":
    main()
