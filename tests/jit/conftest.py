"""What tests of the runtime share: compiles as hooks report them, and modules written on the spot."""

import pytest
from triton import knobs


@pytest.fixture
def compiles():
    """The specializations that the test compiles, as the after hook reports them."""
    seen = []

    def note(**event):
        seen.append(event)

    before = knobs.runtime.jit_post_compile_hook
    knobs.runtime.jit_post_compile_hook = note
    yield seen
    knobs.runtime.jit_post_compile_hook = before


@pytest.fixture
def make_module(tmp_path, monkeypatch):
    """Write a module with kernels and import it: ``make_module(name, source)``."""
    import importlib
    import sys

    monkeypatch.syspath_prepend(str(tmp_path))
    made = []

    def make(name, source):
        (tmp_path / f"{name}.py").write_text(source)
        sys.modules.pop(name, None)
        importlib.invalidate_caches()
        made.append(name)
        return importlib.import_module(name)

    yield make
    for name in made:
        sys.modules.pop(name, None)
