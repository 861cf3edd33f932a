"""Where an entry is kept: a folder of Triton's cache, or whatever cache manager the user chose.

`place_for(hash)` gives the place of one entry. Both kinds read files by name and write an entry so that its
record appears last or together with its files. Neither verifies anything: see `lookup.py`.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import shutil
import stat
import time
import uuid
from typing import TYPE_CHECKING, Any, Protocol

from triton import knobs
from triton.runtime.cache import FileCacheManager, get_cache_manager

from .record import Damaged, record_name
from .trust import why_untrusted, why_writable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Folders that are being filled, or emptied, begin with this.
TEMPORARY = ".opgraft-tmp-"
LOCKS = ".opgraft-locks"
DIGESTS = ".opgraft-digests"
# The time stamp of a record says when the entry was last used, to within this many seconds.
_USE_GRANULARITY = 6 * 3600.0


class Place(Protocol):
    """The place of one entry."""

    @property
    def label(self) -> str:
        """What to call it in a message."""
        ...

    @property
    def lock_path(self) -> str | None:
        """Where processes that write it exclude one another, if they share a folder."""
        ...

    def read(self, metadata_name: str) -> Contents | None:
        """Open what is stored, or None when nothing is. Raises Damaged or OSError."""
        ...

    def write(self, files: Mapping[str, bytes], metadata_name: str, record: bytes) -> dict[str, str]:
        """Store an entry in place of what is there; the paths of its files. Raises OSError."""
        ...


class Contents(Protocol):
    """The files of a stored entry."""

    record: bytes

    def load(self, names: Iterable[str]) -> dict[str, bytes]:
        """The named files. Raises Damaged when one is missing."""
        ...

    def paths(self, names: Iterable[str]) -> dict[str, str]: ...

    def why_untrusted(self, names: Iterable[str]) -> str | None:
        """Why the named files may not be loaded as code; None when they may."""
        ...

    def close(self) -> None: ...


def place_for(hash: str) -> Place:
    """The place of the entry with this hash, as Triton's settings say."""
    manager_class = knobs.cache.manager_class
    if manager_class is None or manager_class is FileCacheManager:
        return FolderPlace(os.path.join(cache_folder(), folder_name(hash)))
    return ManagerPlace(hash, get_cache_manager(hash))


def cache_folder() -> str:
    """Triton's cache folder."""
    folder: str = knobs.cache.dir
    if not folder:
        raise RuntimeError("Could not create or locate cache dir: TRITON_CACHE_DIR is empty")
    return folder


def folder_name(hash: str) -> str:
    """The name of an entry's folder, as Triton names it: the hash in base 32."""
    return base64.b32encode(bytes.fromhex(hash)).decode().rstrip("=")


# ---- a folder ----


class FolderPlace:
    """An entry in a folder of its own, which a rename puts in place whole."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.label = path

    @property
    def lock_path(self) -> str:
        base, name = os.path.split(self.path)
        return os.path.join(base, LOCKS, name)

    def read(self, metadata_name: str) -> FolderContents | None:
        try:
            folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            if not os.path.lexists(self.path):
                # The cache folder itself is none; writing to it will say so.
                return None
            raise Damaged("it is not a folder") from None
        return FolderContents(self.path, folder, record_name(metadata_name))

    def write(self, files: Mapping[str, bytes], metadata_name: str, record: bytes) -> dict[str, str]:
        base = os.path.dirname(self.path)
        os.makedirs(base, exist_ok=True)
        temporary = os.path.join(base, f"{TEMPORARY}{os.getpid()}-{uuid.uuid4().hex}")
        # Not writable by others, whatever the umask; readable by others where the umask allows it.
        os.mkdir(temporary, 0o755)
        try:
            for name, data in files.items():
                _write_file(os.path.join(temporary, name), data)
            _write_file(os.path.join(temporary, record_name(metadata_name)), record)
            _move_into_place(temporary, self.path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return {name: os.path.join(self.path, name) for name in files}


def _write_file(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        # An entry that a crash left half-written would be noticed, but warned about and compiled anew.
        os.fsync(file.fileno())


def _move_into_place(temporary: str, path: str) -> None:
    """Rename the folder `temporary` to `path`, in place of what is there."""
    for _ in range(8):
        try:
            os.rename(temporary, path)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        remove(path)
    raise OSError(errno.EBUSY, "other processes keep writing this entry", path)


def remove(path: str) -> bool:
    """Delete an entry's folder at one stroke; false when there is none. Raises OSError when it may not be."""
    aside = os.path.join(os.path.dirname(path), f"{TEMPORARY}{os.getpid()}-{uuid.uuid4().hex}")
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return False
    if os.path.isdir(aside) and not os.path.islink(aside):
        shutil.rmtree(aside, ignore_errors=True)
    else:
        os.unlink(aside)
    return True


class FolderContents:
    """An opened entry folder: what is read belongs together, also when the entry is replaced meanwhile."""

    def __init__(self, path: str, folder: int, record_file: str) -> None:
        self._path = path
        self._folder = folder
        self._status: dict[str, os.stat_result] = {}
        try:
            self.record = self._load(record_file)
            self._touch(record_file)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def __del__(self) -> None:
        self.close()

    def load(self, names: Iterable[str]) -> dict[str, bytes]:
        return {name: self._load(name) for name in names}

    def paths(self, names: Iterable[str]) -> dict[str, str]:
        return {name: os.path.join(self._path, name) for name in names}

    def why_untrusted(self, names: Iterable[str]) -> str | None:
        places = [(os.fstat(self._folder), self._path)]
        places += ((self._status[name], os.path.join(self._path, name)) for name in self._status)
        return next((reason for place in places if (reason := why_writable(*place))), None)

    def _load(self, name: str) -> bytes:
        try:
            # A link could lead out of the folder whose owner is checked.
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self._folder)
        except FileNotFoundError:
            raise Damaged(f"{name} is missing") from None
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Damaged(f"{name} is not a file")
            self._status[name] = status
            return file.read()

    def _touch(self, record_file: str) -> None:
        """Note that the entry is used, for `clear` and the size limit. Coarse: a hit rarely writes."""
        if self._status[record_file].st_mtime < time.time() - _USE_GRANULARITY:
            with contextlib.suppress(OSError):
                os.utime(record_file, dir_fd=self._folder)


# ---- a cache manager ----


class ManagerPlace:
    """An entry behind a cache manager of Triton's interface (a remote cache, a manager of the user's)."""

    lock_path = None

    def __init__(self, hash: str, manager: Any) -> None:
        self._manager = manager
        self.label = f"{type(manager).__name__} entry {folder_name(hash)}"

    def read(self, metadata_name: str) -> ManagerContents | None:
        path = self._manager.get_file(record_name(metadata_name))
        if path is None:
            return None
        group = self._manager.get_group(metadata_name) or {}
        return ManagerContents(path, group)

    def write(self, files: Mapping[str, bytes], metadata_name: str, record: bytes) -> dict[str, str]:
        # Managers publish file by file: the record goes last, so what has a record is complete.
        paths = {name: self._manager.put(data, name) for name, data in files.items()}
        self._manager.put_group(metadata_name, paths)
        self._manager.put(record, record_name(metadata_name))
        return paths


class ManagerContents:
    def __init__(self, record_path: str, group: dict[str, str]) -> None:
        with open(record_path, "rb") as file:
            self.record = file.read()
        self._group = group

    def close(self) -> None:
        pass

    def load(self, names: Iterable[str]) -> dict[str, bytes]:
        found = {}
        for name in names:
            path = self._group.get(name)
            if path is None:
                raise Damaged(f"{name} is missing")
            try:
                with open(path, "rb") as file:
                    found[name] = file.read()
            except FileNotFoundError:
                raise Damaged(f"{name} is missing") from None
        return found

    def paths(self, names: Iterable[str]) -> dict[str, str]:
        return {name: self._group[name] for name in names}

    def why_untrusted(self, names: Iterable[str]) -> str | None:
        return next((reason for name in names if (reason := why_untrusted(self._group[name]))), None)
