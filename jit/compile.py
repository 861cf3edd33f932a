"""Compile a kernel for a target, or fetch it from the store.

`compile(src, target, options)` is the entry point, with the signature of `triton.compile`;
`on_compile(callback)` has every compile and every load from the store reported, with the reason why it was
needed.

Of many threads, and of many processes that share a cache folder, one compiles and the others get its result.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

from triton import knobs
from triton._C.libtriton import get_cache_invalidating_env_vars
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from . import notes, store
from .compiled import CompiledKernel
from .drivers import backend_for
from .events import CompileEvent, Outcome, on_compile, report
from .pipeline import Artefacts, CompileTimer, file_stem, run_pipeline
from .single_flight import SingleFlight
from .sources import open_source
from .store.lock import process_lock
from .store.record import Record, checksum, key_hash
from .store_key import kernel_name, store_key
from .symbol_name import tell_constants_apart

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CompileEvent", "CompiledKernel", "compile", "on_compile"]

_flights: SingleFlight[_Built] = SingleFlight()


class _Built:
    """What a compile or a look-up gave: an entry, and the artefacts when they were compiled just now."""

    def __init__(self, entry: store.Entry, artefacts: Artefacts | None) -> None:
        self.entry = entry
        self.artefacts = artefacts


def compile(
    src: Any,
    target: GPUTarget | None = None,
    options: Mapping[str, Any] | None = None,
    _env_vars: dict[str, Any] | None = None,
) -> CompiledKernel:
    """Compile `src` for `target`, or fetch the result of an earlier compile.

    `src`: an `ASTSource`, a `ModuleSource` or the path of an IR file. `target`: a `GPUTarget`; that of the
    active driver when None. `options`: compile options (`num_warps`, ...) by name. Each call returns an
    object of its own: a compiled kernel is loaded on one device.
    """
    start = time.perf_counter()
    timer = CompileTimer()
    if target is None:
        target = driver.active.get_current_target()
    if not isinstance(target, GPUTarget):
        raise TypeError(f"compile: target must be of GPUTarget type (got {type(target).__name__})")
    backend = backend_for(target)
    src, context = open_source(src, backend)
    tell_constants_apart(src)
    parsed = backend.parse_options({**(options or {}), **src.parse_options()})
    env_vars = get_cache_invalidating_env_vars() if _env_vars is None else _env_vars
    key = store_key(src, target, backend, parsed, env_vars)
    hash = key_hash(key)
    metadata_name = f"{file_stem(src.name)}.json"
    always = knobs.compilation.always_compile

    def is_code(name: str) -> bool:
        # Code for the processor that we run on; code for a GPU is data to this process.
        return target.backend == "cpu" and name.endswith(f".{backend.binary_ext}")

    def build() -> _Built:
        entry = None if always else store.find(key, metadata_name, is_code=is_code, quiet=True)
        if entry is not None:
            return _Built(entry, None)
        path = store.lock_path(hash)
        with process_lock(path) if path else contextlib.nullcontext():
            # Another process may have stored it while this one waited.
            entry = None if always else store.find(key, metadata_name, is_code=is_code)
            if entry is not None:
                return _Built(entry, None)
            collector = notes.Collector()
            artefacts = run_pipeline(
                src,
                context,
                target,
                backend,
                parsed,
                hash=hash,
                env_vars=env_vars,
                timer=timer,
                on_stage=collector.after_stage,
                before_last=collector.begin,
            )
            files = artefacts.contents()
            record = Record(
                key=json.loads(json.dumps(key)),
                name=kernel_name(src),
                metadata_name=metadata_name,
                files={name: checksum(data) for name, data in files.items()},
                notes=collector.finish(),
                created=time.time(),
                times=timer.microseconds(),
            )
            return _Built(store.publish(record, files), artefacts)

    built, own = _flights.run((hash, always), build)
    entry = built.entry
    compiled_here = own and built.artefacts is not None
    kernel = CompiledKernel(src, entry.paths, hash, contents=entry.files, facts=entry.record.notes)
    listener = knobs.compilation.listener
    if listener is not None:
        listener(
            src=src,
            metadata=built.artefacts.metadata if built.artefacts and own else kernel.metadata._asdict(),
            metadata_group=entry.paths,
            times=timer.end(),
            cache_hit=not compiled_here,
        )
    outcome: Outcome = "compiled" if compiled_here else "stored" if own else "shared"
    report(kernel_name(src), key, hash, target, outcome, time.perf_counter() - start)
    return kernel
