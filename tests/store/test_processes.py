"""Many processes and one cache folder."""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opgraft.jit import store

WORKER = Path(__file__).parent / "worker.py"


def start(*arguments, cache, **environment):
    # Triton 3.9 warns when it has to choose this itself.
    chosen = {"TRITON_CACHE_DIR": str(cache), "TRITON_DEFAULT_FP_FUSION": "1"}
    env = {**os.environ, **chosen, **environment}
    return subprocess.Popen(
        [sys.executable, str(WORKER), *map(str, arguments)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1]), err


@pytest.mark.parametrize("count", [6, pytest.param(32, marks=pytest.mark.slow)])
def test_processes_that_want_the_same_kernel_compile_it_once(cache, tmp_path, count):
    go = tmp_path / "go"
    processes = [start("compile_once", 64, go, cache=cache) for _ in range(count)]
    time.sleep(1.0)
    go.touch()
    results = [finish(process) for process in processes]
    assert {err for _, err in results} == {""}, "no warning, no error"
    assert len({result["code"] for result, _ in results}) == 1
    outcomes = collections.Counter(result["outcome"] for result, _ in results)
    assert outcomes == {"compiled": 1, "stored": count - 1}
    (entry,) = store.entries(str(cache))
    assert entry.check() is None
    leftovers = [path for path in cache.iterdir() if path.name.startswith(".opgraft-tmp")]
    assert leftovers == []


def test_a_process_that_is_killed_while_it_compiles_blocks_nobody(cache, tmp_path, kernels):
    victim = start("compile_once", 64, cache=cache)
    locks = cache / ".opgraft-locks"
    deadline = time.monotonic() + 60
    while not (locks.exists() and any(locks.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate()
    result, err = finish(start("compile_once", 64, cache=cache))
    assert result["outcome"] == "compiled" and err == ""
    (entry,) = store.entries(str(cache))
    assert entry.check() is None


def test_keys_are_equal_between_processes_and_hash_seeds(cache):
    keys = [finish(start("key", cache=cache, PYTHONHASHSEED=seed))[0] for seed in ("0", "1", "12345")]
    assert keys[0] == keys[1] == keys[2]


def test_a_key_does_not_depend_on_where_the_cache_lies(cache, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (cache / ".opgraft-digests").rename(tmp_path / "elsewhere" / ".opgraft-digests")
    moved, _ = finish(start("key", cache=tmp_path / "elsewhere"))
    (tmp_path / "elsewhere" / ".opgraft-digests").rename(cache / ".opgraft-digests")
    here, _ = finish(start("key", cache=cache))
    assert moved == here


def test_a_forked_child_compiles_and_loads(cache, kernels):
    from opgraft.jit.compile import compile

    compile(kernels.add_source(), kernels.CUDA)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            stored = compile(kernels.add_source(), kernels.CUDA)
            fresh = compile(kernels.add_source(128), kernels.CUDA)
            os.write(writing, f"{stored.name} {len(fresh.asm)}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        assert pipe.read() == "add 6"
    os.waitpid(child, 0)
