"""Building and loading the launch extension: compiled once by the host compiler, kept in Triton's cache.

`extension()` returns the module, or None (after one warning) where it cannot be built; the Python path then
serves. `ready()` is for who can do without it for now: where there is none yet, the first call starts the
compiler in the background, so that the first launch on a machine does not wait for it.

The compiled file is never loaded from the cache folder itself: its bytes are read, compared with the
checksum that was stored beside them and loaded from memory, so that a folder mounted noexec works and a
damaged file is rebuilt.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import itertools
import os
import platform
import sys
import sysconfig
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import forks

_NAME = "opgraft_launch"
_FILES = (
    "launch.h",
    "tensor.c",
    "scalar.c",
    "cuda.c",
    "cpu.c",
    "watch.c",
    "handle.c",
    "key.c",
    "dispatcher.c",
    "launcher.c",
    "plain_call.c",
    "module.c",
)
_FLAGS = ["-O2", "-fvisibility=hidden"]

_lock = forks.lock()
_loads = itertools.count(1)
_loaded: list[ModuleType | None] = []
_pending: _Build | None = None
_actions: list[Callable[[Any], object]] = []


def extension() -> ModuleType | None:
    """The extension, built when there is none yet. None, after one warning, when that is impossible."""
    if _loaded:
        return _loaded[0]
    with _lock:
        if not _loaded:
            _loaded.append(_load_or_warn())
    return _loaded[0]


def when_loaded(action: Callable[[Any], object]) -> None:
    """Call ``action`` with the extension now, or as soon as it is loaded; never where it cannot be."""
    if not _loaded:
        _actions.append(action)
    elif _loaded[0] is not None:
        action(_loaded[0])


def ready() -> bool:
    """Whether `extension()` returns at once. When it has to be built, that goes on in the background from now on."""
    global _pending
    if _loaded:
        return True
    if not _lock.acquire(blocking=False):
        return False  # somebody is waiting for it
    try:
        if not _loaded:
            if _pending is None:
                _pending = _begin()
                if not _pending.is_built():
                    with contextlib.suppress(RuntimeError):  # no more threads: it is built here
                        _pending.start()
            if not _pending.is_alive():
                _loaded.append(_load_or_warn())
        return bool(_loaded)
    finally:
        _lock.release()


class _Build(threading.Thread):
    """The compiler at work. Not a daemon: a script that ends before it leaves the extension to the next one."""

    def __init__(self, text: str, manager: Any, cached: ModuleType | None) -> None:
        super().__init__(name="opgraft-build", daemon=False)
        self._text, self._manager, self._cached = text, manager, cached
        self._binary = b""
        self._error: Exception | None = None
        self._unwritten: OSError | None = None

    def is_built(self) -> bool:
        """Whether the cache had it, so that there is nothing to compile."""
        return self._cached is not None

    def run(self) -> None:
        if threading.current_thread() is self:
            _yield_to_others()
        try:
            self._binary = _compile(self._text)
        except Exception as error:
            self._error = error
            return
        self._unwritten = _write(self._manager, self._binary)

    def module(self) -> ModuleType:
        """Wait, and load what was built. Raises what the compiler or the loader raises."""
        if self._cached is not None:
            return self._cached
        if self.ident is None:
            self.run()
        else:
            self.join()
        if self._error is not None:
            raise self._error
        if self._unwritten is not None:
            warnings.warn(f"the launch extension cannot be cached: {self._unwritten}", stacklevel=6)
        return load_from_memory(_NAME, self._binary)


def _yield_to_others() -> None:
    """What this thread starts runs where others leave time: the first kernel is compiled at the same time."""
    # On Linux each thread has a priority of its own, which its child processes inherit.
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(own + 10, 19))


def source() -> str:
    """The extension as one translation unit; errors of the compiler name the files of this folder."""
    folder = Path(__file__).parent
    parts = []
    for name in _FILES:
        text = (folder / name).read_text(encoding="utf-8").replace('#include "launch.h"\n', "\n")
        parts.append(f'#line 1 "{name}"\n{text}')
    return "".join(parts)


def _load_or_warn() -> ModuleType | None:
    try:
        module = load()
        _configure(module)
    except Exception as error:
        warnings.warn(
            "opgraft's launch extension could not be built, kernels are launched by a slower Python path. It "
            f"needs a C compiler (set CC, or install gcc or clang) and Python's headers. The cause: {error}",
            RuntimeWarning,
            stacklevel=4,
        )
        return None
    return module


def _configure(module: Any) -> None:
    from ..grid import resolve_sizes
    from . import compat, errors, launch_hooks

    module.set_functions(
        cuda_error=errors.cuda_error,
        guard_error=errors.guard_error,
        resolve_grid=resolve_sizes,
        with_hooks=launch_hooks.launch_with_hooks,
    )
    # In a thread of its own, which no dispatch mode, transform or default device of the caller reaches.
    access: list[dict[str, Any]] = []
    probe = threading.Thread(target=lambda: access.append(compat.torch_access()), name="opgraft-probe")
    probe.start()
    probe.join()
    if not access:
        raise RuntimeError("reading torch's tensors could not be tried (the error was printed by its thread)")
    module.configure(**access[0])
    while _actions:
        _actions.pop()(module)


def _key(text: str) -> str:
    parts = [text, *_FLAGS, platform.machine(), platform.system(), sys.version, str(_suffix())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _suffix() -> str:
    return str(sysconfig.get_config_var("EXT_SUFFIX"))


def load() -> ModuleType:
    """The extension, from the cache or built anew. Raises what the compiler or the loader raises."""
    return (_pending or _begin()).module()


def _begin() -> _Build:
    text = source()
    manager = _cache(text)
    return _Build(text, manager, _cached(manager))


def _cached(manager: Any) -> ModuleType | None:
    binary = _read(manager)
    if binary is not None:
        try:
            return load_from_memory(_NAME, binary)
        except ImportError as error:
            warnings.warn(f"the cached launch extension does not load and is rebuilt: {error}", stacklevel=5)
    return None


def _cache(text: str) -> Any:
    """Triton's cache manager for the extension; None, after a warning, where its folder cannot be made."""
    from triton.runtime.cache import get_cache_manager

    try:
        return get_cache_manager(_key(text))
    except OSError as error:
        warnings.warn(f"the launch extension cannot be cached: {error}", stacklevel=6)
        return None


def _write(manager: Any, binary: bytes) -> OSError | None:
    """Put the extension into the cache; returns the error where that is impossible."""
    if manager is not None:
        try:
            manager.put(binary, _NAME + _suffix(), binary=True)
            manager.put(hashlib.sha256(binary).hexdigest(), f"{_NAME}.sha256", binary=False)
        except OSError as error:
            return error
    return None


def _read(manager: Any) -> bytes | None:
    """The cached extension when it is whole and nobody else can have written it."""
    if manager is None:
        return None
    path, checksum = manager.get_file(_NAME + _suffix()), manager.get_file(f"{_NAME}.sha256")
    if path is None or checksum is None:
        return None
    from ..store.trust import why_untrusted

    try:
        reason = why_untrusted(path)
        binary, expected = Path(path).read_bytes(), Path(checksum).read_text()
    except OSError as error:
        reason = str(error)
    else:
        if reason is None and hashlib.sha256(binary).hexdigest() != expected.strip():
            reason = f"{path} has another checksum than the one recorded"
        if reason is None:
            return binary
    warnings.warn(f"the cached launch extension is rebuilt: {reason}", stacklevel=6)
    return None


def _compile(text: str) -> bytes:
    from .compat import build_shared_library

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"{_NAME}.c")
        Path(path).write_text(text, encoding="utf-8")
        return Path(build_shared_library(_NAME, path, folder, ["dl", "pthread"], _FLAGS)).read_bytes()


def load_from_memory(name: str, binary: bytes) -> ModuleType:
    """Import the extension module `name` from the bytes of its shared library. Raises ImportError."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb", closefd=True) as file:
            file.write(binary)
            file.flush()
            return _import_file(name, _unique_path(descriptor))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name + _suffix())
        Path(path).write_bytes(binary)
        return _import_file(name, path)


def _unique_path(descriptor: int) -> str:
    """A path of an open memory file that no library was loaded from before.

    The loader takes two libraries of one path for the same one, whatever their inodes, and the number of a
    closed descriptor is given out again. So the path goes up and down once for each load.
    """
    return f"/proc/self{'/../self' * next(_loads)}/fd/{descriptor}"


def _import_file(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path, loader=_loader(name, path))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _loader(name: str, path: str) -> Any:
    from importlib.machinery import ExtensionFileLoader

    return ExtensionFileLoader(name, path)


def _forget_build() -> None:
    """A forked child does not have the thread."""
    global _pending
    _pending = None


os.register_at_fork(after_in_child=_forget_build)
