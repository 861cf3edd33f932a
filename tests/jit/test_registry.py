"""Kernels by name: alive, of the right version, or a clear error."""

import gc

import pytest
import triton.language as tl

from opgraft.jit import jit, registry

from .kernels import add


def make(value):
    constant = tl.constexpr(value)

    @jit
    def local(x):
        tl.store(x, constant)

    return local


def test_a_kernel_is_found_by_name_and_key():
    name = registry.qualified_name(add)
    assert name == f"{add.__module__}:add"
    assert registry.find(name, add.cache_key).cache_key == add.cache_key
    assert registry.find(name, add.cache_key[:16]).cache_key == add.cache_key


def test_of_several_with_one_name_the_one_with_the_key_is_found():
    first, second = make(1), make(2)
    name = registry.qualified_name(first)
    assert registry.qualified_name(second) == name
    assert registry.find(name, first.cache_key) is first
    assert registry.find(name, second.cache_key) is second
    assert registry.find(name) is second


def test_another_version_is_refused():
    kernel = make(3)
    with pytest.raises(LookupError, match=r"wanted the version with key 0000, found .*has changed"):
        registry.find(registry.qualified_name(kernel), "0000")


def test_a_module_is_imported_when_needed(make_module, tmp_path):
    (tmp_path / "unseen.py").write_text(
        "import triton.language as tl\nfrom opgraft.jit import jit\n@jit\ndef kernel(x):\n    tl.store(x, 1)\n"
    )
    assert registry.find("unseen:kernel").__name__ == "kernel"


@pytest.mark.parametrize(
    "name, message", [("nowhere:kernel", "cannot be imported"), ("math:kernel", "no kernel of that name")]
)
def test_a_kernel_that_does_not_exist_is_a_lookup_error(name, message):
    with pytest.raises(LookupError, match=message):
        registry.find(name)


def test_a_kernel_that_was_dropped_is_gone():
    kernel = make(4)
    key, name = kernel.cache_key, registry.qualified_name(kernel)
    known = __import__("triton").runtime.jit.__dict__.get("_triton_jit_function_registry", {})
    known.pop(name, None)
    del kernel
    gc.collect()
    with pytest.raises(LookupError):
        registry.find(name, key)
