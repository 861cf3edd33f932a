"""Loading a compiled kernel into the process.

Entry point: :func:`load`. The shared object goes through an anonymous file in memory, so that folders mounted
``noexec`` do not matter; where the system has no such files, through a private temporary folder.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import tempfile


def load(name: str, binary: bytes) -> tuple[ctypes.CDLL, int]:
    """The library and the address of its function ``name``. Raises ``RuntimeError`` when it cannot be loaded."""
    library = _open(name, binary)
    try:
        function = getattr(library, name)
    except AttributeError:
        raise RuntimeError(f"compiled kernel does not export {name!r}") from None
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    _libraries[address] = library
    return library, address


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
