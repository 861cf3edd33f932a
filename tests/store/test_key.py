"""The key of a compile: everything that the code depends on, and nothing else."""

from __future__ import annotations

import json

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource

from opgraft.jit.drivers import backend_for
from opgraft.jit.store.record import key_hash
from opgraft.jit.store_key import store_hash, store_key


def key_of(source, kernels, target=None, env=None, **options):
    target = target or kernels.CUDA
    backend = backend_for(target)
    return store_key(source, target, backend, backend.parse_options(options), env or {})


@pytest.fixture(autouse=True)
def own_cache(cache):
    pass


def test_it_is_plain_data(kernels):
    key = key_of(kernels.many_constants_source(), kernels)
    assert json.loads(json.dumps(key)) == key


def test_equal_programs_have_equal_keys(kernels):
    assert key_of(kernels.add_source(), kernels) == key_of(kernels.add_source(), kernels)
    assert key_of(kernels.many_constants_source(), kernels) == key_of(kernels.many_constants_source(), kernels)


@pytest.mark.parametrize(
    "change",
    [
        lambda k: key_of(k.add_source(block=128), k),
        lambda k: key_of(k.add_source(pointer="*fp16"), k),
        lambda k: key_of(k.add_source(divisible=False), k),
        lambda k: key_of(k.add_source(n="i64"), k),
        lambda k: key_of(k.fill_source(), k),
        lambda k: key_of(k.add_source(), k, num_warps=8),
        lambda k: key_of(k.add_source(), k, maxnreg=64),
        lambda k: key_of(k.add_source(), k, target=GPUTarget("cuda", 90, 32)),
        lambda k: key_of(k.add_source(), k, env={"TRITON_SETTING": "1"}),
    ],
)
def test_what_changes_the_code_changes_the_key(kernels, change):
    assert key_hash(change(kernels)) != key_hash(key_of(kernels.add_source(), kernels))


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (1, 1.0), (0.0, -0.0), ("1", 1), (None, "None"), (tl.float16, "fp16"), ((1, 2), (1, (2,)))],
)
def test_constants_that_python_takes_for_equal_are_told_apart(kernels, one, other):
    def key(value):
        source = ASTSource(kernels.constants, {"out": "*i32", **dict.fromkeys("ABCDE", "constexpr")}, {(1,): value})
        return key_of(source, kernels)

    assert key(one) != key(other)


def test_arguments_that_trade_places_change_the_key(kernels):
    def key(first, second):
        return key_of(ASTSource(kernels.add, {"x": first, "y": second, "out": "*fp32", "n": "i32"}, {}), kernels)

    assert key("*fp32", "*fp16") != key("*fp16", "*fp32")


def test_a_library_is_known_by_its_content(kernels, tmp_path):
    def key(content, name="library.bc"):
        path = tmp_path / name
        path.write_bytes(content)
        return key_of(kernels.add_source(), kernels, extern_libs={"libdevice": str(path)})

    # Triton remembers the digest of a path for the process: each content under a path of its own.
    first = key(b"one", "1.bc")
    assert key(b"one", "2.bc") == first
    assert key(b"two", "3.bc") != first


def test_the_hash_is_that_of_the_parts(kernels):
    source = kernels.add_source()
    backend = backend_for(kernels.CUDA)
    options = backend.parse_options({})
    parts = store_key(source, kernels.CUDA, backend, options, {})
    assert store_hash(source, kernels.CUDA, backend, options, {}) == key_hash(parts)
    assert len(key_hash(parts)) == 64


def test_a_source_of_another_class_adds_what_it_depends_on(kernels):
    class Extended(ASTSource):
        extra = "1"

        def hash(self):
            return super().hash() + self.extra

    def source(extra):
        made = Extended(kernels.fill, {"out": "*i32", "value": "i32"}, {}, {})
        made.extra = extra
        return made

    assert key_of(source("1"), kernels) != key_of(source("2"), kernels)


def test_an_edit_of_a_helper_is_seen(kernels, tmp_path, monkeypatch):
    import importlib.util

    def load(number):
        path = tmp_path / "edited.py"
        path.write_text(
            "import triton, triton.language as tl\n"
            f"@triton.jit\ndef helper(x):\n    return x + {number}\n"
            "@triton.jit\ndef kernel(out):\n    tl.store(out, helper(1))\n"
        )
        import linecache

        linecache.checkcache()
        spec = importlib.util.spec_from_file_location("edited", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return key_of(ASTSource(module.kernel, {"out": "*i32"}, {}), kernels)

    assert load(1)["function"] != load(22)["function"]


def test_a_kernel_is_the_same_under_another_module_name(kernels, monkeypatch):
    before = key_of(kernels.add_source(), kernels)
    monkeypatch.setattr(kernels.add.fn, "__module__", "__main__")
    assert key_of(kernels.add_source(), kernels) == before


def test_the_version_of_triton_is_in_it(kernels):
    assert key_of(kernels.add_source(), kernels)["toolchain"].startswith(f"triton {triton.__version__} ")
