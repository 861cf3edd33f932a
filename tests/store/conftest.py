"""A cache folder of its own for each test, and the kernels that the tests compile."""

from __future__ import annotations

import collections
import importlib.util
import shutil
import sys
import warnings
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def kernels():
    """The module `kernels.py`, which the tests' subprocesses import too."""
    name = "store_kernels"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def digests(tmp_path_factory, kernels):
    """Digests of the compiler, made once: hashing it takes seconds."""
    from opgraft.jit.drivers import backend_for
    from opgraft.jit.store.digests import _known
    from opgraft.jit.store.place import DIGESTS
    from opgraft.jit.toolchain import toolchain_identity

    # What tests of other parts computed in this process is not in a folder of ours.
    _known.clear()
    folder = tmp_path_factory.mktemp("digests") / DIGESTS
    toolchain_identity(backend_for(kernels.CUDA), str(folder))
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch, digests):
    """Triton's cache folder, empty but for the digests of the compiler; and nothing known of earlier compiles."""
    from opgraft.jit import explain
    from opgraft.jit.store import lookup, warn

    folder = tmp_path / "cache"
    folder.mkdir()
    shutil.copytree(digests, folder / digests.name)
    for name in ("TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_DUMP_DIR", "TRITON_OVERRIDE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    monkeypatch.setenv("TRITON_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(explain.history, "_keys", {})
    monkeypatch.setattr(explain, "_seen", collections.OrderedDict())
    monkeypatch.setattr(explain, "_warned", set())
    warn.forget()
    lookup._in_memory.clear()
    monkeypatch.setattr(lookup, "_aside", None)
    return folder


@pytest.fixture
def events():
    """The compiles and loads of the test, as they happen."""
    from opgraft.jit.compile import on_compile

    seen = []
    stop = on_compile(seen.append)
    yield seen
    stop()


@pytest.fixture
def store_warnings():
    """The warnings of the store, as a list that grows; nothing else may be warned about by it."""
    from opgraft.jit.store import StoreWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")

        class Messages(list):
            def __call__(self):
                return [str(w.message) for w in caught if issubclass(w.category, StoreWarning)]

        yield Messages()


@pytest.fixture
def entry_folder(cache):
    """The folder of the one entry in the store."""

    def find() -> Path:
        (folder,) = [path for path in cache.iterdir() if not path.name.startswith(".")]
        return folder

    return find
