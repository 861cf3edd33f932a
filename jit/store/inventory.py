"""What is in the store: list it, explain an entry, delete, keep the size bounded.

These look at the cache folder (`TRITON_CACHE_DIR`); a remote cache is not listed. Folders that other programs
keep there, Triton's own among them, are neither listed nor deleted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import time
from typing import TYPE_CHECKING, Any

from .place import LOCKS, TEMPORARY, cache_folder, folder_name, remove
from .record import Damaged, Record, checksum
from .warn import warn_once

if TYPE_CHECKING:
    from collections.abc import Iterator

_RECORD_PREFIX = "__entry__"
# What a killed process left behind is deleted after this many seconds.
_LEFTOVER_AGE = 3600.0
_DEFAULT_LIMIT = 8 << 30
_CHECK_EVERY = 3600.0

_limit: int | None = None
_written_since_check = 0


@dataclasses.dataclass(frozen=True)
class StoredKernel:
    """One entry of the store.

    `size` in bytes, `created` and `used` (to within six hours) in seconds since the epoch. `record` is None,
    and `fault` says why, where the entry's record cannot be read.
    """

    path: str
    size: int
    used: float
    record: Record | None
    fault: str | None = None

    @property
    def name(self) -> str:
        """`module.qualname` of the kernel, or the name of the folder when the record is damaged."""
        return os.path.basename(self.path) if self.record is None else self.record.name

    @property
    def created(self) -> float:
        return self.used if self.record is None else self.record.created

    def __str__(self) -> str:
        if self.record is None:
            return f"{self.path}: {self.fault}"
        target = self.record.key.get("target", "")
        return f"{self.name} for {target}, {self.size / 1024:.0f} KiB, {self.record.hash[:12]}"

    def check(self) -> str | None:
        """Read every file: what is wrong with the entry, or None when it is as published."""
        if self.record is None:
            return self.fault
        for name, expected in self.record.files.items():
            try:
                with open(os.path.join(self.path, name), "rb") as file:
                    if checksum(file.read()) != expected:
                        return f"{name} does not match its checksum"
            except OSError as error:
                return f"{name}: {error.strerror}"
        if os.path.basename(self.path) != folder_name(self.record.hash):
            return "it was made for another key"
        return None


def entries(folder: str | None = None) -> list[StoredKernel]:
    """The entries in Triton's cache folder (or in `folder`), the most recently used first."""
    found = _scan(cache_folder() if folder is None else folder)
    return sorted(found, key=lambda entry: -entry.used)


def _scan(folder: str) -> Iterator[StoredKernel]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        # Triton's names are base 32; ours that are not entries begin with a dot.
        if name.startswith("."):
            continue
        with contextlib.suppress(OSError):
            stored = _examine(path)
            if stored is not None:
                yield stored


def _examine(path: str) -> StoredKernel | None:
    size, record_file = 0, None
    with os.scandir(path) as files:
        for file in files:
            size += file.stat(follow_symlinks=False).st_size
            if file.name.startswith(_RECORD_PREFIX):
                record_file = file.path
    if record_file is None:
        return None
    used = os.stat(record_file).st_mtime
    try:
        with open(record_file, "rb") as opened:
            return StoredKernel(path, size, used, Record.load(opened.read()))
    except Damaged as fault:
        return StoredKernel(path, size, used, None, str(fault))


def explain(entry: Any) -> dict[str, Any]:
    """What an entry was keyed by, as readable parts.

    `entry`: a `StoredKernel`, a compiled kernel, the path of an entry's folder, or a hash. Raises LookupError
    when there is no such entry, and ValueError when its record is damaged.
    """
    if not isinstance(entry, StoredKernel):
        name = str(getattr(entry, "hash", entry))
        path = name if os.path.isdir(name) else os.path.join(cache_folder(), _as_folder_name(name))
        try:
            stored = _examine(path)
        except OSError:
            stored = None
        if stored is None:
            raise LookupError(f"no entry of the store at {path}")
        entry = stored
    if entry.record is None:
        raise ValueError(f"the entry {entry.path} is damaged: {entry.fault}")
    key: dict[str, Any] = entry.record.key
    return key


def _as_folder_name(hash: str) -> str:
    try:
        return folder_name(hash)
    except ValueError:
        return hash


def clear(
    kernel: str | None = None,
    *,
    unused_for: float | None = None,
    damaged: bool = False,
    folder: str | None = None,
) -> int:
    """Delete entries and return how many.

    All of them, or: those of the kernel called `kernel` (`qualname` or `module.qualname`); those not used for
    `unused_for` seconds; the `damaged` ones (reads every file). Conditions add up. Entries that may not be
    deleted are left.
    """
    base = cache_folder() if folder is None else folder
    deleted = 0
    for entry in _scan(base):
        if kernel is not None and not (entry.name == kernel or entry.name.endswith(f".{kernel}")):
            continue
        if unused_for is not None and entry.used > time.time() - unused_for:
            continue
        if damaged and entry.check() is None:
            continue
        with contextlib.suppress(OSError):
            deleted += remove(entry.path)
    _remove_leftovers(base, 0.0 if kernel is None and unused_for is None and not damaged else _LEFTOVER_AGE)
    return deleted


def _remove_leftovers(base: str, age: float) -> None:
    """Delete what processes that were killed left half-done."""
    oldest = time.time() - max(age, 60.0)
    for folder, prefix in ((base, TEMPORARY), (os.path.join(base, LOCKS), "")):
        try:
            names = [name for name in os.listdir(folder) if name.startswith(prefix)]
        except OSError:
            continue
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                if os.lstat(path).st_mtime > oldest:
                    continue
                if prefix:
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    os.unlink(path)


def set_limit(size: int | None) -> None:
    """Bound the store to `size` bytes; None for the default (`OPGRAFT_STORE_LIMIT`, or 8 GiB).

    The bound is looked after about once an hour and when much was written: the entries that were not used for
    longest go first.
    """
    global _limit
    if size is not None and size < 0:
        raise ValueError(f"set_limit: size must be at least 0 bytes (got {size})")
    _limit = size


def limit() -> int:
    """The bound in bytes."""
    if _limit is not None:
        return _limit
    text = os.environ.get("OPGRAFT_STORE_LIMIT", "")
    try:
        return int(text) if text else _DEFAULT_LIMIT
    except ValueError:
        raise ValueError(f"OPGRAFT_STORE_LIMIT must be a number of bytes (got {text!r})") from None


def keep_within_limit(written: int) -> None:
    """Called after an entry of `written` bytes was stored: now and then, delete down to the limit."""
    global _written_since_check
    _written_since_check += written
    try:
        bound = limit()
    except ValueError as error:
        warn_once("limit", str(error))
        return
    base = cache_folder()
    stamp = os.path.join(base, LOCKS, "size-checked")
    try:
        recent = os.stat(stamp).st_mtime > time.time() - _CHECK_EVERY
    except OSError:
        recent = False
    if recent and _written_since_check < bound // 16:
        return
    _written_since_check = 0
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(stamp), exist_ok=True)
        with open(stamp, "w"):
            pass
        os.utime(stamp)
    prune(base, bound)


def prune(folder: str, size: int) -> int:
    """Delete entries, the longest unused first, until the rest fits in `size` bytes; how many went."""
    found = sorted(_scan(folder), key=lambda entry: entry.used)
    total = sum(entry.size for entry in found)
    deleted = 0
    for entry in found:
        if total <= size:
            break
        with contextlib.suppress(OSError):
            deleted += remove(entry.path)
            total -= entry.size
    _remove_leftovers(folder, _LEFTOVER_AGE)
    return deleted
