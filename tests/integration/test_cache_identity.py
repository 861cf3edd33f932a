"""Compile caches on disk: an edit is never followed by an old result, an unchanged program always hits.

Each step runs in a process of its own; all share one cache folder.
"""

import multiprocessing
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the processes import the program by this name

from cache_program import BASE, expected, run_program


@pytest.fixture(scope="module")
def processes():
    """Starts processes that have torch's compiler imported and none of its state."""
    before = dict(os.environ)
    os.environ.pop("TORCHINDUCTOR_FORCE_DISABLE_CACHES", None)  # the test run's, see conftest.py
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the processes are forked, which CUDA does not survive
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._inductor.compile_fx", "triton", "opgraft.integration"])
    warm = context.Process(target=int)  # starts the server with this environment
    warm.start()
    warm.join()
    os.environ.clear()
    os.environ.update(before)
    return context


def run(processes, folder, values, backend="inductor"):
    receive, send = processes.Pipe(duplex=False)
    process = processes.Process(target=run_program, args=(str(folder), values, backend, send))
    process.start()
    send.close()
    try:
        return receive.recv()
    except EOFError:
        pytest.fail("the program raised, see its output")
    finally:
        process.join()


@pytest.mark.parametrize("backend", ["inductor", "opgraft"])
def test_an_unchanged_program_hits_and_every_edit_is_seen(processes, tmp_path, backend):
    forward, backward, counts = run(processes, tmp_path, BASE, backend)
    assert (forward, backward) == expected(BASE)
    assert counts.get("autograd_cache_miss") == 1
    assert counts.get("autograd_cache_saved") == 1

    forward, backward, counts = run(processes, tmp_path, BASE, backend)
    assert (forward, backward) == expected(BASE)
    assert counts.get("autograd_cache_hit") == 1
    assert "autograd_cache_miss" not in counts

    edits = BASE if backend == "inductor" else ["kernel"]
    for edit in edits:
        values = {**BASE, edit: BASE[edit] + 2}
        forward, backward, counts = run(processes, tmp_path, values, backend)
        assert (forward, backward) == expected(values), f"an edit of the {edit} was not seen"
        assert "autograd_cache_hit" not in counts
