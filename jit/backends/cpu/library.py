"""Loading a compiled kernel into the process.

Entry point: :func:`load`. The shared object goes through an anonymous file in memory, so that folders mounted
``noexec`` do not matter; where the system has no such files, through a private temporary folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import re
import sys
import tempfile
from pathlib import Path


def load(name: str, binary: bytes) -> tuple[ctypes.CDLL, int]:
    """The library and the address of its function ``name``. Raises ``RuntimeError`` when it cannot be loaded."""
    _provide_math()
    library = _open(name, binary)
    _provide_threads(library)
    try:
        function = getattr(library, name)
    except AttributeError:
        raise RuntimeError(f"compiled kernel does not export {name!r}") from None
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    _libraries[address] = library
    return library, address


@functools.lru_cache(None)
def _provide_math() -> None:
    """Make libm's functions visible to libraries that name no library of their own."""
    with contextlib.suppress(OSError):  # a C library with libm inside
        ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)


def _provide_threads(library: ctypes.CDLL) -> None:
    """Connect the kernel to the OpenMP runtime of the process: torch's, when torch is loaded."""
    runtime = _openmp("torch" in sys.modules)
    if runtime is None:
        return
    for ours, theirs in (
        ("opgraft_parallel", "GOMP_parallel"),
        ("opgraft_thread", "omp_get_thread_num"),
        ("opgraft_threads", "omp_get_num_threads"),
    ):
        with contextlib.suppress(ValueError):  # a library that has no grid to run
            ctypes.c_void_p.in_dll(library, ours).value = ctypes.cast(getattr(runtime, theirs), ctypes.c_void_p).value


@functools.lru_cache(None)
def _openmp(with_torch: bool) -> ctypes.CDLL | None:
    """libgomp, the copy that is in the process if there is one; None when the system has none."""
    for path in [*(_loaded_gomp() if with_torch else []), "libgomp.so.1"]:
        try:
            runtime = ctypes.CDLL(path)
            runtime.GOMP_parallel  # noqa: B018
        except (OSError, AttributeError):
            continue
        return runtime
    return None


def _loaded_gomp() -> list[str]:
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return []
    return sorted(set(re.findall(r"(/\S*lib(?:gomp|iomp5|omp)\b\S*\.so\S*)", maps)))


_libraries: dict[int, ctypes.CDLL] = {}


def take_fault(address: int) -> str | None:
    """The message of the first assertion that failed in the kernel at ``address`` since the last call, or None."""
    function = _libraries[address].opgraft_take_fault
    function.restype = ctypes.c_char_p
    function.argtypes = []
    message: bytes | None = function()
    return message.decode(errors="replace") if message is not None else None


def _open(name: str, binary: bytes) -> ctypes.CDLL:
    try:
        descriptor = os.memfd_create(name[:200], os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        return _open_from_folder(binary)
    try:
        _write(descriptor, binary)
        return ctypes.CDLL(_unique_path(descriptor))
    except OSError:
        return _open_from_folder(binary)
    finally:
        os.close(descriptor)


_loads = itertools.count()


def _unique_path(descriptor: int) -> str:
    """A path of the descriptor that was never used before.

    The loader knows libraries by path before it looks at the file: a number that was closed and given out again would
    bring back the earlier kernel. The count of loads is written into the path as "/" (0) or "/./" (1) separators.
    """
    digits = "".join("/./" if bit == "1" else "/" for bit in f"{next(_loads):b}")
    return f"/proc/self/fd{digits}{descriptor}"


def _open_from_folder(binary: bytes) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="opgraft-") as folder:
        path = os.path.join(folder, "kernel.so")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o700)
        try:
            _write(descriptor, binary)
        finally:
            os.close(descriptor)
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            raise RuntimeError(f"cannot load a compiled kernel: {error}") from error


def _write(descriptor: int, binary: bytes) -> None:
    view = memoryview(binary)
    while view:
        view = view[os.write(descriptor, view) :]
