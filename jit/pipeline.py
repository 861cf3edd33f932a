"""From a source to the artefacts of every stage: the compile itself, without any cache.

`run_pipeline` runs a backend's stages in order, applies the overrides and dumps that Triton's knobs ask for,
and returns the artefacts and the metadata. It reads and writes no cache entry.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import triton
from triton import knobs
from triton._C.libtriton import ir
from triton.compiler.compiler import filter_traceback
from triton.compiler.compiler import parse as parse_artefact
from triton.runtime.cache import get_dump_manager, get_override_manager

if TYPE_CHECKING:
    from collections.abc import Callable

    from triton.backends.compiler import BaseBackend, GPUTarget

# What `TRITON_STORE_BINARY_ONLY` keeps.
_BINARIES = ("cubin", "hsaco", "so")


class CompileTimer:
    """Wall clock of the phases of one compile, reported as Triton's `knobs.CompileTimes` (microseconds)."""

    def __init__(self) -> None:
        self._start = time.time()
        self._ir_end: float | None = None
        self._stage_ends: list[tuple[str, float]] = []

    def finished_ir_initialization(self) -> None:
        self._ir_end = time.time()

    def stage_finished(self, stage: str) -> None:
        self._stage_ends.append((stage, time.time()))

    def end(self) -> knobs.CompileTimes:
        now = time.time()
        begin = now if self._ir_end is None else self._ir_end
        stages, last = [], begin
        for stage, end in self._stage_ends:
            stages.append((stage, int((end - last) * 1e6)))
            last = end
        return knobs.CompileTimes(
            ir_initialization=int((begin - self._start) * 1e6),
            lowering_stages=stages,
            store_results=0 if self._ir_end is None else int((now - last) * 1e6),
        )

    def microseconds(self) -> dict[str, int]:
        """Each phase so far: `ir` for the frontend, then the stages."""
        times = self.end()
        return {"ir": times.ir_initialization, **dict(times.lowering_stages)}


@dataclasses.dataclass
class Artefacts:
    """The result of a compile: file name -> text or bytes, and the metadata as plain data."""

    name: str
    files: dict[str, str | bytes]
    metadata: dict[str, Any]

    @property
    def metadata_name(self) -> str:
        return f"{self.name}.json"

    def contents(self) -> dict[str, bytes]:
        """Every file as bytes, the metadata last."""
        files = {name: data.encode() if isinstance(data, str) else data for name, data in self.files.items()}
        files[self.metadata_name] = shorten_paths(json.dumps(self.metadata, default=vars)).encode()
        return files


# Where Triton is installed, and what stands for it in stored metadata (device libraries are listed by path).
_TRITON_FOLDER = json.dumps(os.path.dirname(os.path.abspath(triton.__file__)))[1:-1]
_TRITON_MARK = "<triton>"


def shorten_paths(metadata: str) -> str:
    """JSON metadata as it is stored: without the path of this installation."""
    return metadata.replace(_TRITON_FOLDER, _TRITON_MARK)


def expand_paths(metadata: str) -> str:
    """JSON metadata as it was compiled, from what is stored."""
    return metadata.replace(_TRITON_MARK, _TRITON_FOLDER)


def file_stem(name: str) -> str:
    """The base name of an entry's files: at most 150 characters, so that temporary names stay below 255."""
    return name[:150]


def _as_file(module: Any) -> str | bytes:
    return module if isinstance(module, bytes) else str(module)


def run_pipeline(
    src: Any,
    context: Any,
    target: GPUTarget,
    backend: BaseBackend,
    options: Any,
    *,
    hash: str,
    env_vars: dict[str, Any],
    timer: CompileTimer,
    on_stage: Callable[[str, Any, Any], None] = lambda stage, module, context: None,
    before_last: Callable[[], None] = lambda: None,
) -> Artefacts:
    """Compile `src` through every stage of `backend`.

    `on_stage(stage, module, context)` is called with the result of each stage, before the next one changes
    it, `before_last()` before the last stage.

    `context` is the MLIR context that an IR file was parsed in, or None. Errors of the frontend and of the
    stages pass through.
    """
    from_ir = context is not None or not hasattr(src, "fn") or hasattr(src, "text")
    metadata: dict[str, Any] = {"hash": hash, "target": target, **vars(options), **env_vars}
    metadata["triton_version"] = triton.__version__
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, src.language)
    if src.ext not in stages:
        raise ValueError(
            f"{src.name}: the backend for {target.backend!r} has no stage {src.ext!r} to start from;"
            f" its stages are {list(stages)}"
        )
    # No pass of the stage that an IR source is written in applies to it.
    remaining = list(stages.items())[list(stages).index(src.ext) + from_ir :]
    if context is None:
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
    codegen_fns = backend.get_codegen_implementation(options)
    module_map = backend.get_module_map()
    try:
        module = src.make_ir(target, options, codegen_fns, module_map, context)
    except Exception as error:
        filter_traceback(error)
        raise
    stem = file_stem(src.name)
    files: dict[str, str | bytes] = {f"{stem}.{src.ext if from_ir else 'source'}": _as_file(module)}
    use_ir_loc = knobs.compilation.use_ir_loc
    if from_ir and use_ir_loc and hasattr(src, "path"):
        module.create_location_snapshot(src.path)
        print(f"Creating new locations for {src.path}")
    timer.finished_ir_initialization()
    if from_ir:
        on_stage(src.ext, module, context)
    # Keyed by the source alone, so that they stay put when the compiler changes.
    overrides = get_override_manager(src.hash()) if knobs.compilation.override else None
    dumps = get_dump_manager(src.hash()) if knobs.compilation.dump_ir else None
    for stage, lower in remaining:
        if stage == remaining[-1][0]:
            before_last()
        lowered = lower(module, metadata)
        file_name = f"{stem}.{stage}"
        override = _override(overrides, metadata, file_name, stage)
        if override is not None:
            lowered = parse_override(override, stage, context)
        if not knobs.compilation.store_binary_only or stage in _BINARIES:
            files[file_name] = _as_file(lowered)
        if dumps is not None:
            dumps.put(_as_file(lowered), file_name)
            if stage == "cubin":
                from triton.tools.disasm import get_sass

                dumps.put(get_sass(lowered), f"{stem}.sass")
        if use_ir_loc == stage:
            _relocate(lowered, files[file_name], file_name)
        module = lowered
        timer.stage_finished(stage)
        on_stage(stage, module, context)
    return Artefacts(stem, files, metadata)


def _override(overrides: Any, metadata: dict[str, Any], file_name: str, stage: str) -> str | None:
    """The file that replaces the result of `stage`, if the user gave one.

    Either a file of that name in the override folder, or `ir_override` among the options (an autotune
    configuration's `ir_override`), which applies where the folder is not in use.
    """
    if overrides is None:
        given: str | None = metadata.get("ir_override")
        return given if given and given.endswith(f".{stage}") else None
    found: str | None = overrides.get_file(file_name)
    if found:
        print(f"\nOverriding kernel with file {found}")
    return found


def parse_override(path: str, stage: str, context: Any) -> Any:
    """The artefact of `stage` in the file `path`: a module, text or bytes. ValueError for unknown stages."""
    if stage in ("cpp",):
        return Path(path).read_text()
    if stage in ("so",):
        return Path(path).read_bytes()
    parsed = parse_artefact(path, stage, context)
    if parsed is None:
        raise ValueError(f"cannot override stage {stage!r} from {path!r}: there is no reader for it")
    return parsed


def _relocate(module: Any, text: str | bytes, file_name: str) -> None:
    """Point the module's debug locations at a file that holds its own text (`USE_IR_LOC`)."""
    import tempfile

    folder = tempfile.mkdtemp(prefix="opgraft-ir-")
    path = os.path.join(folder, file_name)
    Path(path).write_text(str(text))
    module.create_location_snapshot(path)
    print(f"Creating new locations for {path}")
