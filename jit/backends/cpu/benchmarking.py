"""The device interface that ``triton.testing.do_bench`` and Inductor's autotuner time kernels with."""

from __future__ import annotations

import time
from typing import Any


class Event:
    """A point in time, with the methods of ``torch.cuda.Event``; launches on the CPU have ended when they return."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self._time = 0.0

    def record(self, stream: Any = None) -> None:
        self._time = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to ``end``."""
        return (end._time - self._time) * 1e3

    def synchronize(self) -> None:
        pass

    def wait(self, stream: Any = None) -> None:
        pass

    def query(self) -> bool:
        return True


class DeviceInterface:
    """The few members of a torch device interface that benchmarking uses."""

    Event = Event

    @staticmethod
    def synchronize(device: Any = None) -> None:
        pass

    @staticmethod
    def current_stream(device: Any = None) -> int:
        return 0

    @staticmethod
    def current_device() -> int:
        return 0
