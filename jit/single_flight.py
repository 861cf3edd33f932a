"""One computation for each key at a time, however many threads ask for it.

`SingleFlight.run(key, compute)`: the first thread computes, those that ask meanwhile wait and get the same
result or error. Nothing is remembered afterwards.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")


class _Flight(Generic[T]):
    def __init__(self) -> None:
        self.landed = threading.Event()
        self.pilot = threading.get_ident()
        self.result: T
        self.error: BaseException | None = None


class SingleFlight(Generic[T]):
    """Safe in threads and in a forked child, where the computations of the parent's threads do not exist."""

    def __init__(self) -> None:
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[Hashable, _Flight[T]] = {}

    def run(self, key: Hashable, compute: Callable[[], T]) -> tuple[T, bool]:
        """The result for `key`, and whether this call computed it. Raises what `compute` raised."""
        while True:
            with self._lock:
                flight = self._flights.get(key)
                if flight is None:
                    own = self._flights[key] = _Flight()
                    break
            if flight.pilot == threading.get_ident():
                # A computation that asks for its own result would wait for ever.
                return compute(), True
            flight.landed.wait()
            if flight.error is None:
                return flight.result, False
            if isinstance(flight.error, Exception):
                raise flight.error
            # The thread was interrupted (KeyboardInterrupt), which is no answer for the others.
        try:
            own.result = compute()
        except BaseException as error:
            own.error = error
            raise
        finally:
            with self._lock:
                self._flights.pop(key, None)
            own.landed.set()
        return own.result, True


_all: weakref.WeakSet[SingleFlight[Any]] = weakref.WeakSet()


def _after_fork() -> None:
    for flights in _all:
        flights._reset()


os.register_at_fork(after_in_child=_after_fork)
