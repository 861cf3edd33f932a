"""Warnings of the store: one for each fault, however often it is met."""

from __future__ import annotations

import threading
import warnings


class StoreWarning(UserWarning):
    """The store of compiled kernels found something that it cannot use, and went on without it."""


_lock = threading.Lock()
_seen: set[str] = set()


def warn_once(subject: str, message: str) -> None:
    """Warn about `subject` (an entry, a folder), unless this process has done so."""
    with _lock:
        if subject in _seen:
            return
        _seen.add(subject)
    warnings.warn(message, StoreWarning, stacklevel=2)


def forget() -> None:
    """Warn anew about everything."""
    with _lock:
        _seen.clear()
