"""The compilation stages of the CPU backend: Triton IR, C++, shared object."""

from __future__ import annotations

from typing import Any

from . import compat, toolchain
from .options import CPUOptions


def add(stages: dict[str, Any], options: CPUOptions, language: Any) -> None:
    if language is not None and getattr(language, "name", "TRITON") != "TRITON":
        raise NotImplementedError(f"the CPU backend compiles the Triton language only, not {language.name}")
    stages["ttir"] = lambda module, metadata: make_ttir(module)
    stages["cpp"] = lambda module, metadata: make_cpp(module, metadata, options)
    stages["so"] = lambda source, metadata: make_so(source, metadata, options)


def make_ttir(module: Any) -> Any:
    compat.clean_up(module)
    return module


def make_cpp(module: Any, metadata: dict[str, Any], options: CPUOptions) -> str:
    """C++ text of a Triton module. Raises ``UnsupportedOperation`` for what the generator does not know."""
    from ...ir import generic_text, parse
    from .codegen import generate

    kernel = generate(parse(generic_text(module, module.context)), toolchain.vector_bytes(options.arch))
    metadata["name"] = kernel.symbol
    metadata["shared"] = 0
    metadata["tmem_size"] = None
    metadata["global_scratch_size"] = 0
    metadata["global_scratch_align"] = 1
    metadata["profile_scratch_size"] = 0
    metadata["profile_scratch_align"] = 1
    metadata["asserts"] = kernel.asserts
    return kernel.source


def make_so(source: str, metadata: dict[str, Any], options: CPUOptions) -> bytes:
    return toolchain.build(source, options.arch, fp_fusion=options.enable_fp_fusion, name=metadata["name"])
