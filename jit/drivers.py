"""Which Triton backend and driver serve a target, whatever driver happens to be active.

`backend_for(target)` returns the compiler backend and `driver_for(target)` the driver. Triton knows one
active driver for a process; this package launches on CPU and CUDA side by side, so each compiled kernel asks
here for the driver of its own target.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from triton.backends.compiler import BaseBackend, GPUTarget
    from triton.backends.driver import DriverBase

_drivers: dict[str, Any] = {}
_lock = threading.RLock()


def _classes_for(target: GPUTarget) -> tuple[Any, Any]:
    """Backend and driver classes for `target`.

    Raises RuntimeError when no backend, or more than one, supports the target.
    """
    if target.backend == "cpu":
        # Also where Triton did not load plugins (TRITON_BACKENDS_IN_TREE=1).
        from .backends.cpu.compiler import CPUBackend
        from .backends.cpu.driver import CPUDriver

        return CPUBackend, CPUDriver
    from triton.backends import backends

    able = [entry for entry in backends.values() if entry.compiler.supports_target(target)]
    if len(able) != 1:
        found = [entry.compiler.__name__ for entry in able]
        raise RuntimeError(
            f"{len(able)} compatible backends for target ({target.backend}) ({found})."
            " There should only be one."
            f" Installed backends: {sorted(backends)}."
        )
    return able[0].compiler, able[0].driver


def backend_for(target: GPUTarget) -> BaseBackend:
    """A new compiler backend for `target`. Raises RuntimeError when there is not exactly one."""
    backend: BaseBackend = _classes_for(target)[0](target)
    return backend


@contextlib.contextmanager
def activated(driver: DriverBase) -> Iterator[None]:
    """While the body runs `driver` is Triton's active one.

    Triton's CUDA launcher takes the C functions that it needs from the active driver when it is made.
    """
    from triton.runtime.driver import driver as config

    with _lock:
        before = config.active
        if before is driver:
            yield
            return
        config.set_active(driver)
        try:
            yield
        finally:
            config.set_active(before)


def driver_for(target: GPUTarget) -> DriverBase:
    """The driver that loads and launches code for `target`.

    The active driver when it is of the right kind, else an instance kept for the process.
    """
    from triton.runtime.driver import driver

    driver_class = _classes_for(target)[1]
    if target.backend != "cpu" or driver_class.is_active():
        active: DriverBase = driver.active
        # `driver.active` may be a lazy proxy in older versions: ask what it is for, not what class it has.
        if active.get_current_target().backend == target.backend:
            return active
    with _lock:
        found = _drivers.get(target.backend)
        if found is None:
            found = _drivers[target.backend] = driver_class()
    result: DriverBase = found
    return result
