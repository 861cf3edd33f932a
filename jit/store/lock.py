"""A lock between processes, so that one compiles what many ask for.

It saves work and guards nothing: entries are published atomically, so where a lock cannot be had (a file
system without locks, a folder that cannot be written, a holder that hangs) everybody compiles and the results
are equal.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# A compile can take minutes; a holder that takes longer than this is taken to hang.
PATIENCE = 600.0


@contextlib.contextmanager
def process_lock(path: str, patience: float = PATIENCE) -> Iterator[bool]:
    """Hold the lock file `path` while the body runs; the value says whether it is held.

    Waits for at most `patience` seconds. The system releases the lock of a process that dies.
    """
    descriptor = _acquire(path, patience)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            # The file is not needed once the entry exists. Who waits on the removed file gets that lock,
            # looks, and finds the entry.
            with contextlib.suppress(OSError):
                os.unlink(path)
            os.close(descriptor)


def _acquire(path: str, patience: float) -> int | None:
    try:
        import fcntl

        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except (ImportError, OSError):
        return None
    give_up = time.monotonic() + patience
    pause = 0.002
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EINTR) or time.monotonic() > give_up:
                os.close(descriptor)
                return None
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
