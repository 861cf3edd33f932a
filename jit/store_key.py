"""The key of a compile in the store: everything that the code depends on, in readable parts.

`store_key(...)` returns plain JSON data. It holds contents and never a path, an address or a time, so that
equal programs hit on every machine and an edit never does. `store.explain` reads it back from an entry.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton import knobs
from triton.compiler.compiler import ASTSource
from triton.runtime.cache import get_override_manager

from . import compat, content
from .preload import qualified_name
from .store.digests import file_digest
from .store.place import DIGESTS, cache_folder
from .store.record import key_hash
from .toolchain import is_cuda_options, toolchain_identity

if TYPE_CHECKING:
    from triton.backends.compiler import BaseBackend, GPUTarget

# Raised when the artefacts of an equal key change their meaning.
_FORMAT = 2


def store_key(
    src: Any, target: GPUTarget, backend: BaseBackend, options: Any, env_vars: dict[str, Any]
) -> dict[str, Any]:
    """The parts of the key for compiling `src` with parsed `options`."""
    folder = digest_folder()
    key: dict[str, Any] = {
        "format": _FORMAT,
        # Without its module: a kernel is the same when its file is run and when it is imported.
        "kernel": src.name,
        "stage": src.ext,
        "target": f"{target.backend}:{target.arch}:{target.warp_size}",
        "toolchain": toolchain_identity(backend, folder),
        "options": _options(options, folder),
        "environment": {name: str(value) for name, value in sorted(env_vars.items())},
        **_source(src),
    }
    pipeline = compat.stages_inspection()
    if pipeline is not None:
        key["pipeline"] = str(pipeline[0])
    overrides = _overrides(src, folder)
    if overrides:
        key["overrides"] = overrides
    return key


def store_hash(src: Any, target: GPUTarget, backend: BaseBackend, options: Any, env_vars: dict[str, Any]) -> str:
    """The hash of `store_key`: equal for compiles with the same result."""
    return key_hash(store_key(src, target, backend, options, env_vars))


def kernel_name(src: Any) -> str:
    """The name of what is compiled: `module.qualname` of a kernel function, else the source's own."""
    return qualified_name(src.fn) if isinstance(src, ASTSource) else str(src.name)


def parameter_name(names: list[str], path: tuple[int, ...]) -> str:
    """How the argument at `path` (index, then indices into tuples) is called: `n`, `shape[0]`."""
    return names[path[0]] + "".join(f"[{index}]" for index in path[1:])


def _source(src: Any) -> dict[str, Any]:
    if not isinstance(src, ASTSource):
        return {"source": src.hash()}
    names = src.fn.arg_names
    parts: dict[str, Any] = {
        "function": src.fn.cache_key,
        "signature": {name: _type_text(kind) for name, kind in src.signature.items()},
        "constexprs": {parameter_name(names, path): content.text(value) for path, value in src.constants.items()},
        "attributes": {parameter_name(names, path): content.text(value) for path, value in src.attrs.items()},
    }
    if type(src).hash is not ASTSource.hash:
        # A source of another class may depend on more.
        parts["source"] = src.hash()
    return parts


def _type_text(kind: Any) -> str:
    return kind if isinstance(kind, str) else content.text(kind)


def _options(options: Any, folder: str) -> dict[str, str]:
    """Each option as a text, files by their content, and what the backend makes of all (its own hash)."""
    found = {}
    for name, value in sorted(vars(options).items()):
        if name == "extern_libs" and value:
            found[name] = content.text([(library, file_digest(path, folder)) for library, path in sorted(value)])
        elif name == "ir_override" and value:
            # Triton's hash covers its name only.
            found[name] = file_digest(value, folder)
        else:
            found[name] = content.text(value)
    if not is_cuda_options(options):
        # It may cover more than the fields. Triton's own for CUDA covers them, and reads libdevice to do so.
        found["hash"] = str(options.hash())
    return found


def _overrides(src: Any, folder: str) -> dict[str, str]:
    """Name and digest of the files that override stages of this source, where overriding is switched on."""
    if not knobs.compilation.override:
        return {}
    path = getattr(get_override_manager(src.hash()), "cache_dir", None)
    if path is None or not os.path.isdir(path):
        return {}
    return {name: file_digest(os.path.join(path, name), folder) for name in sorted(os.listdir(path))}


def digest_folder() -> str:
    """Where digests of large files are kept: in the cache folder, or in the user's temporary one."""
    base = cache_folder()
    nearest = Path(base)
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if os.access(nearest, os.W_OK) or os.path.isdir(os.path.join(base, DIGESTS)):
        return os.path.join(base, DIGESTS)
    return os.path.join(tempfile.gettempdir(), f"opgraft-digests-{os.geteuid()}")
