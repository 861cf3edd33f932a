"""Compile a kernel for a target, or fetch it from the store.

`compile(src, target, options)` is the entry point, with the signature of `triton.compile`.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from triton import knobs
from triton._C.libtriton import get_cache_invalidating_env_vars
from triton.backends.compiler import GPUTarget
from triton.runtime.cache import get_cache_key, get_cache_manager
from triton.runtime.driver import driver

from .compiled import CompiledKernel
from .drivers import backend_for
from .pipeline import CompileTimer, file_stem, run_pipeline
from .sources import open_source

if TYPE_CHECKING:
    from collections.abc import Mapping


def compile(
    src: Any,
    target: GPUTarget | None = None,
    options: Mapping[str, Any] | None = None,
    _env_vars: dict[str, Any] | None = None,
) -> CompiledKernel:
    """Compile `src` for `target`, or fetch the result of an earlier compile.

    `src`: an `ASTSource`, a `ModuleSource` or the path of an IR file. `target`: a `GPUTarget`; that of the
    active driver when None. `options`: compile options (`num_warps`, ...) by name.
    """
    timer = CompileTimer()
    if target is None:
        target = driver.active.get_current_target()
    if not isinstance(target, GPUTarget):
        raise TypeError(f"compile: target must be of GPUTarget type (got {type(target).__name__})")
    backend = backend_for(target)
    src, context = open_source(src, backend)
    parsed = backend.parse_options({**(options or {}), **src.parse_options()})
    env_vars = get_cache_invalidating_env_vars() if _env_vars is None else _env_vars
    key = get_cache_key(src, backend, parsed, env_vars=env_vars)
    if knobs.runtime.add_stages_inspection_hook is not None:
        key += knobs.runtime.add_stages_inspection_hook()[0]
    hash = hashlib.sha256(key.encode()).hexdigest()
    manager = get_cache_manager(hash)
    listener = knobs.compilation.listener
    metadata_name = f"{file_stem(src.name)}.json"
    group = manager.get_group(metadata_name) or {}
    if metadata_name in group and not knobs.compilation.always_compile:
        kernel = CompiledKernel(src, group, hash)
        if listener is not None:
            listener(
                src=src,
                metadata=kernel.metadata._asdict(),
                metadata_group=group,
                times=timer.end(),
                cache_hit=True,
            )
        return kernel
    artefacts = run_pipeline(src, context, target, backend, parsed, hash=hash, env_vars=env_vars, timer=timer)
    contents = artefacts.contents()
    group = {name: manager.put(data, name) for name, data in contents.items()}
    manager.put_group(metadata_name, group)
    if listener is not None:
        listener(
            src=src,
            metadata=artefacts.metadata,
            metadata_group=group,
            times=timer.end(),
            cache_hit=False,
        )
    return CompiledKernel(src, group, hash, contents=contents)
