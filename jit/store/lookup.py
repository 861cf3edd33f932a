"""Find an entry, verified, or publish one.

`find(key, ...)` returns the entry that was published for a key, or None; `publish(key, ...)` stores one.
Neither ever raises because of what is on the disk: an entry that is not what was published is a miss with a
warning, and an entry that cannot be written is kept in memory with a warning.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

from triton.runtime.cache import FileCacheManager

from .. import forks
from .inventory import keep_within_limit
from .place import FolderPlace, Place, cache_folder, place_for
from .record import Damaged, Record, checksum, key_hash
from .warn import warn_once

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclasses.dataclass(frozen=True)
class Entry:
    """A stored compile: `files` by name as they were verified, `paths` of the same names, and the record.

    `paths` is empty where nothing could be written.
    """

    record: Record
    files: dict[str, bytes]
    paths: dict[str, str]


# Entries that could not be written, by hash; the oldest go first.
_in_memory: dict[str, Entry] = {}
_MEMORY_ENTRIES = 1024
_memory_lock = forks.lock()


def find(
    key: dict[str, Any], metadata_name: str, *, is_code: Callable[[str], bool], quiet: bool = False
) -> Entry | None:
    """The entry of `key`, or None when there is none that can be used.

    `metadata_name` is the file that holds Triton's metadata. `is_code(name)` says which files are shared
    libraries: these are taken only from a folder and files that nobody but the user and root can write.
    `quiet` leaves out the warning (when the caller will look again).
    """
    hash = key_hash(key)
    try:
        place = place_for(hash)
        entry, fault = _read(place, key, metadata_name, is_code)
        if fault is not None and not isinstance(fault, _Untrusted):
            # It may have been replaced while it was read.
            entry, fault = _read(place, key, metadata_name, is_code)
    except OSError:
        # The folder of a cache manager cannot even be made; `publish` will say so.
        entry, fault = None, None
    if entry is None:
        with _memory_lock:
            entry = _in_memory.get(hash)
    if entry is None and fault is not None and not quiet:
        name = metadata_name.removesuffix(".json")
        warn_once(place.label, f"kernel {name} is compiled anew: its entry {place.label} cannot be used: {fault}")
    return entry


def lock_path(hash: str) -> str | None:
    """The file that processes lock while they compile this entry; None where they share no folder."""
    try:
        return place_for(hash).lock_path
    except OSError:
        return None


class _Untrusted(Exception):
    """An entry with a shared library that another user could have put there."""


def _read(
    place: Place, key: dict[str, Any], metadata_name: str, is_code: Callable[[str], bool]
) -> tuple[Entry | None, Exception | None]:
    try:
        contents = place.read(metadata_name)
        if contents is None:
            return None, None
        try:
            return _verify(contents, key, metadata_name, is_code), None
        finally:
            contents.close()
    except (Damaged, _Untrusted) as fault:
        return None, fault
    except Exception as fault:
        # A disk that fails, a remote cache that is down, a manager with an error of its own.
        return None, fault


def _verify(contents: Any, key: dict[str, Any], metadata_name: str, is_code: Callable[[str], bool]) -> Entry:
    record = Record.load(contents.record)
    if record.key != key:
        raise Damaged(f"it was made for another key ({record.name}, {record.hash[:12]})")
    if metadata_name not in record.files:
        raise Damaged("its record lists no metadata")
    files: dict[str, bytes] = contents.load(record.files)
    for name, data in files.items():
        if checksum(data) != record.files[name]:
            raise Damaged(f"{name} does not match its checksum")
    code = [name for name in files if is_code(name)]
    if code:
        reason = contents.why_untrusted(code)
        if reason is not None:
            raise _Untrusted(f"{reason}, and a shared library is loaded only from where nobody else can write")
    return Entry(record, files, contents.paths(files))


def publish(record: Record, files: Mapping[str, bytes]) -> Entry:
    """Store `files`, whose checksums `record` holds. Where that is not possible the entry stays in memory."""
    stored = dict(files)
    try:
        place = place_for(record.hash)
        paths = place.write(stored, record.metadata_name, record.dump())
        if isinstance(place, FolderPlace):
            keep_within_limit(sum(map(len, stored.values())))
        return Entry(record, stored, paths)
    except Exception as error:
        folder = _folder_label()
        warn_once(
            f"write {folder}",
            f"compiled kernels cannot be stored in {folder} ({_describe(error)}); they stay in memory and are"
            " compiled again by the next process. Set TRITON_CACHE_DIR to a folder that can be written.",
        )
    entry = Entry(record, stored, _write_aside(record.hash, stored))
    with _memory_lock:
        _in_memory[record.hash] = entry
        while len(_in_memory) > _MEMORY_ENTRIES:
            del _in_memory[next(iter(_in_memory))]
    return entry


def _folder_label() -> str:
    from triton import knobs

    manager_class = knobs.cache.manager_class
    if manager_class is not None and manager_class is not FileCacheManager:
        return f"the cache of {manager_class.__name__}"
    try:
        return cache_folder()
    except RuntimeError:
        return "the cache folder"


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}"


_aside_lock = forks.lock()
_aside: tuple[int, str] | None = None


def _write_aside(hash: str, files: Mapping[str, bytes]) -> dict[str, str]:
    """Write `files` to a private folder for the length of the process, for tools that read them by path.

    Empty where even that is not possible.
    """
    global _aside
    with _aside_lock:
        try:
            if _aside is None or _aside[0] != os.getpid():
                _aside = (os.getpid(), tempfile.mkdtemp(prefix="opgraft-kernels-"))
                atexit.register(_remove_aside, *_aside)
            folder = os.path.join(_aside[1], hash[:32])
            os.makedirs(folder, exist_ok=True)
            paths = {}
            for name, data in files.items():
                paths[name] = os.path.join(folder, name)
                with open(paths[name], "wb") as file:
                    file.write(data)
            return paths
        except OSError:
            with contextlib.suppress(OSError, UnboundLocalError):
                shutil.rmtree(folder)
            return {}


def _remove_aside(owner: int, folder: str) -> None:
    # A forked child inherits this; the folder is its parent's.
    if owner == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)
