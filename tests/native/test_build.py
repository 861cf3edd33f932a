"""The extension is built once and cached; what is found in the cache is loaded only when it is whole and ours."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from opgraft.jit.native import build

# An extension that compiles fast: what is tested here is how it is kept.
SMALL = """
    #include <Python.h>
    static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "opgraft_launch", NULL, 0, NULL};
    PyMODINIT_FUNC PyInit_opgraft_launch(void) {
      PyObject* module = PyModule_Create(&definition);
      PyModule_AddIntConstant(module, "value", %d);
      return module;
    }
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(build, "source", lambda: SMALL % 1)
    return tmp_path


def cached(cache: Path, suffix: str) -> Path:
    (found,) = cache.glob(f"*/opgraft_launch*{suffix}")
    return found


def count_builds(monkeypatch) -> list[str]:
    builds, compile = [], build._compile
    monkeypatch.setattr(build, "_compile", lambda text: builds.append(text) or compile(text))
    return builds


def test_it_is_built_once_and_then_loaded_from_the_cache(cache, monkeypatch):
    builds = count_builds(monkeypatch)
    for _ in range(2):
        assert build.load().value == 1
    assert len(builds) == 1


def test_another_source_is_another_extension(cache, monkeypatch):
    build.load()
    monkeypatch.setattr(build, "source", lambda: SMALL % 2)
    assert build.load().value == 2


def test_it_is_one_translation_unit_whose_lines_name_its_files():
    text = build.source()
    assert '#line 1 "handle.c"' in text
    assert '#include "launch.h"' not in text


@pytest.mark.parametrize("damage", ["cut", "other content", "no checksum", "wrong checksum"])
def test_a_damaged_file_is_rebuilt(cache, monkeypatch, damage):
    build.load()
    builds = count_builds(monkeypatch)
    library, checksum = cached(cache, ".so"), cached(cache, ".sha256")
    if damage == "cut":
        library.write_bytes(library.read_bytes()[:1000])
    elif damage == "other content":
        library.write_bytes(b"\x7fELF" + bytes(5000))
    elif damage == "no checksum":
        checksum.unlink()
    else:
        checksum.write_text("0" * 64)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        build.load()
        build.load()
    assert len(builds) == 1
    expected = [] if damage == "no checksum" else ["the cached launch extension is rebuilt"]
    assert [str(w.message).partition(":")[0] for w in caught] == expected


def test_a_file_that_others_could_have_written_is_rebuilt(cache, monkeypatch):
    build.load()
    builds = count_builds(monkeypatch)
    cached(cache, ".so").chmod(0o777)
    with pytest.warns(UserWarning, match="can be written by everyone"):
        build.load()
    assert len(builds) == 1


def test_a_file_that_does_not_load_is_rebuilt(cache, monkeypatch):
    """Its checksum is right: it was built for another machine, say."""
    import hashlib

    build.load()
    builds = count_builds(monkeypatch)
    content = b"\x7fELF" + bytes(5000)
    cached(cache, ".so").write_bytes(content)
    cached(cache, ".sha256").write_text(hashlib.sha256(content).hexdigest())
    with pytest.warns(UserWarning, match="does not load and is rebuilt"):
        build.load()
    assert len(builds) == 1


def test_a_cache_folder_that_cannot_be_made_costs_a_warning(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(blocked / "cache"))
    monkeypatch.setattr(build, "source", lambda: SMALL % 1)
    with pytest.warns(UserWarning, match="the launch extension cannot be cached"):
        assert build.load().value == 1


def test_two_libraries_from_memory_are_two():
    """The loader would take the second for the first if both came by one path."""
    binaries = [build._compile(SMALL % value) for value in (1, 2)]
    assert [build.load_from_memory("opgraft_launch", binary).value for binary in binaries] == [1, 2]


IN_THE_BACKGROUND = """
import threading, time
import torch, triton.language as tl
from opgraft.jit import jit
from opgraft.jit.native import build

compile, started = build._compile, threading.Event()
def waits(text):
    started.wait()
    return compile(text)
build._compile = waits

@jit
def add_n(x, n):
    tl.store(x, tl.load(x) + n)

x = torch.zeros(4)
for n in range(3):
    add_n[(1,)](x, 1)
print(x[0].item(), build.ready(), add_n._memory.dispatcher)
{end}
"""

THEN_IN_C = """
started.set()
while not build.ready():
    time.sleep(0.01)
for n in range(3):
    add_n[(1,)](x, 1)
print(x[0].item(), type(add_n._memory.dispatcher).__name__)
"""

FORK = """
import os
child = os.fork()
if child == 0:
    started.set()
    build.extension()
    os._exit(0 if build.ready() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
started.set()
"""


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (THEN_IN_C, ["3.0 False None", "6.0 Dispatcher"]),
        ("started.set()  # and the script is over", ["3.0 False None"]),
        (FORK, ["3.0 False None", "0"]),
    ],
    ids=["used when it is there", "the script ends before", "fork"],
)
def test_the_first_launch_does_not_wait_for_it(tmp_path, end, expected):
    script = tmp_path / "script.py"
    script.write_text(IN_THE_BACKGROUND.format(end=end))
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == expected, done.stderr
    assert cached(tmp_path, ".so").stat().st_size > 0


@pytest.mark.skipif(sys.platform != "linux", reason="a thread has a priority of its own on Linux only")
def test_what_is_built_in_the_background_leaves_the_cores_to_others(monkeypatch):
    here, seen = os.getpriority(os.PRIO_PROCESS, 0), []
    monkeypatch.setattr(build, "_compile", lambda text: seen.append(os.getpriority(os.PRIO_PROCESS, 0)) or b"")
    work = build._Build(SMALL % 1, None, None)
    work.start()
    work.join()
    work.run()  # somebody waits for it
    assert seen == [min(here + 10, 19), here] and os.getpriority(os.PRIO_PROCESS, 0) == here


WITHOUT_COMPILER = """
import ctypes, warnings
import torch
from opgraft.jit.native import extension, make_handle

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert extension() is None
    assert extension() is None
messages = [str(w.message) for w in caught if w.category is RuntimeWarning]
assert len(messages) == 1, messages
assert "launch extension could not be built" in messages[0] and "set CC" in messages[0], messages
received = []
KERNEL = ctypes.CFUNCTYPE(None, *[ctypes.c_int32] * 4, ctypes.c_void_p)

@KERNEL
def kernel(x, y, z, threads, args):
    value = ctypes.c_void_p.from_address(args).value
    received.append((x, y, z, ctypes.c_int32.from_address(value).value))

handle = make_handle("cpu", ctypes.cast(kernel, ctypes.c_void_p).value, "i", name="kernel")
handle(None, 7, 1, 2, 3)
assert received == [(1, 2, 3, 7)], received
try:
    make_handle("cuda", 1, "i", name="kernel")
except RuntimeError as error:
    assert "needs a C compiler" in str(error)
else:
    raise AssertionError
print("served")
"""


def test_without_a_compiler_there_is_one_warning_and_python_serves(tmp_path):
    environment = {**os.environ, "CC": "/nonexistent/cc", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", WITHOUT_COMPILER], env=environment, capture_output=True, text=True)
    assert done.stdout == "served\n", done.stderr
