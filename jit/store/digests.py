"""Content digests of files that are large and rarely change, remembered on disk.

`file_digest(path)` and `tree_digest(folder, ...)` are SHA-256 digests of contents. Hashing Triton's compiler
library (some 460 MB) takes seconds, so a digest is kept in the cache folder under the file's *stamp*: device,
inode, size, modification time and change time, each in nanoseconds. The kernel sets the change time at every
write, rename and attribute change and no user can set it back, so a file whose stamp is known has the content
that was hashed. What a wheel's RECORD says of its files is not even computed the first time (`wheel_record.py`).
A digest is looked up by stamp, never by path, and what is kept is an optimization only: a
missing, damaged or untrusted record is computed anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from typing import TYPE_CHECKING

from .. import forks
from .trust import is_trusted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_CHUNK = 1 << 20
# Reading a small file costs less than looking its digest up.
_SMALL = 1 << 16
# Seconds after which the stamp of a file is taken to be final.
_SETTLED = 2.0

_lock = forks.lock()
_known: dict[str, str] = {}


def _stamp(path: str) -> tuple[str, float]:
    """The stamp of a file, and the time of its last change in seconds."""
    found = os.stat(path)
    stamp = f"{found.st_dev}-{found.st_ino}-{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}"
    return stamp, found.st_ctime


def _hash_file(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _remembered(folder: str, key: str) -> str | None:
    path = os.path.join(folder, f"{key}.json")
    try:
        if not is_trusted(path):
            return None
        with open(path) as file:
            record = json.load(file)
        digest = record["digest"]
        if record["key"] == key and len(bytes.fromhex(digest)) == 32:
            return str(digest)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _remember(folder: str, key: str, digest: str, what: str) -> None:
    temporary = os.path.join(folder, f".{key}.{os.getpid()}.{threading.get_ident()}")
    try:
        os.makedirs(folder, mode=0o755, exist_ok=True)
        with open(temporary, "w") as file:
            json.dump({"key": key, "digest": digest, "what": what}, file)
        os.chmod(temporary, 0o644)
        os.replace(temporary, os.path.join(folder, f"{key}.json"))
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _digest(folder: str, stamps: str, changed: float, what: str, compute: Callable[[], str]) -> str:
    """The digest under `stamps`: from memory, from `folder`, or computed."""
    key = hashlib.sha256(stamps.encode()).hexdigest()
    # Two writes within one tick of the file system's clock leave the same stamp.
    settled = changed < time.time() - _SETTLED
    with _lock:
        digest = _known.get(key) or _remembered(folder, key)
        if digest is None:
            digest = compute()
            if settled:
                _remember(folder, key, digest, what)
        if settled:
            _known[key] = digest
    return digest


def file_digest(path: str, folder: str) -> str:
    """SHA-256 of the content of a file; `folder` keeps the digests. Raises OSError when it cannot be read."""
    if os.stat(path).st_size < _SMALL:
        return _hash_file(path)
    stamp, changed = _stamp(path)
    return _digest(folder, stamp, changed, os.path.basename(path), lambda: _hash_file(path))


def tree_digest(root: str, parts: Iterable[str], suffixes: tuple[str, ...], folder: str) -> str:
    """SHA-256 over names and contents of the files under `root`/`parts` whose names end in `suffixes`.

    A part is a folder or a file; parts do not overlap. Names are relative to `root`: an equal tree elsewhere
    has an equal digest.
    """
    names: list[str] = []
    for part in parts:
        top = os.path.join(root, part)
        if os.path.isfile(top):
            names.append(part)
        for path, folders, files in os.walk(top):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            relative = path[len(root) :].lstrip(os.sep)
            names += (f"{relative}{os.sep}{name}" for name in files if name.endswith(suffixes))
    names.sort()
    stamps = [_stamp(os.path.join(root, name)) for name in names]
    text = "\n".join(f"{name} {stamp}" for name, (stamp, _) in zip(names, stamps, strict=True))
    changed = max((changed for _, changed in stamps), default=0.0)

    def compute() -> str:
        from .wheel_record import recorded_digests

        known = recorded_digests(root, names)
        contents = "\n".join(f"{name} {known.get(name) or _hash_file(os.path.join(root, name))}" for name in names)
        return hashlib.sha256(contents.encode()).hexdigest()

    return _digest(folder, text, changed, os.path.basename(root), compute)
