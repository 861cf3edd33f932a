"""Locks that a forked child finds free, whoever held them in its parent: the holder is not in the child."""

from __future__ import annotations

import os
import threading


def lock() -> threading.Lock:
    """A lock that lasts as long as the process, and is free in each forked child."""
    made = threading.Lock()
    # Python's own modules (logging, threading) renew their locks by this method; it is there since Python 3.9.
    os.register_at_fork(after_in_child=made._at_fork_reinit)  # type: ignore[attr-defined]
    return made


def rlock() -> threading.RLock:
    """The same, for a thread to enter again."""
    made = threading.RLock()
    os.register_at_fork(after_in_child=made._at_fork_reinit)  # type: ignore[attr-defined]
    return made
