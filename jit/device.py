"""The device that a launch runs on, chosen from the tensors among its arguments.

``choose(name, args, kwargs)`` returns a `Device`: tensors on the CPU run on the CPU backend, also where
Triton's active driver is CUDA; tensors on a GPU run on their GPU; without a tensor the active driver's
current device serves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver as triton_driver

from .drivers import driver_for


class Device:
    """A device and the driver that launches on it.

    ``key`` is its key in ``JITFunction.device_caches``: the index for a device of the active driver, as in
    Triton, else the backend's name, with the index where it is not 0.
    """

    __slots__ = ("driver", "index", "key", "kind")

    def __init__(self, driver: Any, kind: str, index: int, key: int | str) -> None:
        self.driver = driver
        self.kind = kind
        self.index = index
        self.key = key

    def target(self) -> GPUTarget:
        """The compile target of the device."""
        with self.current():
            return self.driver.get_current_target()

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make it the driver's current device for a while."""
        before = self.driver.get_current_device()
        if before == self.index:
            yield
            return
        self.driver.set_current_device(self.index)
        try:
            yield
        finally:
            self.driver.set_current_device(before)

    def is_current(self) -> bool:
        """Whether the driver launches on it now."""
        return bool(self.driver.get_current_device() == self.index)

    def stream(self) -> Any:
        """The device's current stream, as an int."""
        return self.driver.get_current_stream(self.index)

    def __repr__(self) -> str:
        return f"Device({self.kind}:{self.index})"


# (driver, type of torch device, index) -> Device
_known: dict[tuple[Any, str, int | None], Device] = {}


def active() -> Device:
    """The current device of Triton's active driver. Raises RuntimeError when there is none."""
    driver = triton_driver.active
    index: int = driver.get_current_device()
    return Device(driver, driver.get_current_target().backend, index, index)


def by_key(key: int | str) -> Device:
    """The device of a key of ``JITFunction.device_caches``."""
    if isinstance(key, str):
        kind, _, index = key.partition(":")
        return of_kind(kind, int(index or 0))
    driver = triton_driver.active
    return Device(driver, driver.get_current_target().backend, key, key)


def of_kind(kind: str, index: int | None) -> Device:
    """The device of a torch device type (``cpu``, ``cuda``) and index; the current one when that is None.

    Raises RuntimeError when no driver for it can be used.
    """
    active_driver = _active_driver()
    known = _known.get((active_driver, kind, index))
    if known is not None:
        return known
    driver: Any
    try:
        driver = driver_for(GPUTarget(kind, 0, 1 if kind == "cpu" else 32))
    except Exception as error:
        raise RuntimeError(
            f"no Triton backend can launch on {kind!r} tensors here ({error}); to compile without the device,"
            " use kernel.variant(GPUTarget(...), ...)"
        ) from error
    is_active = driver is active_driver
    if kind == "cpu" or index is None:
        position: int = driver.get_current_device()
    else:
        position = index
    key: int | str = position if is_active else (kind if position == 0 else f"{kind}:{position}")
    found = Device(driver, kind, position, key)
    if kind == "cpu" or index is not None:
        _known[active_driver, kind, index] = found
    return found


def _active_driver() -> Any:
    try:
        return triton_driver.active
    except RuntimeError:
        return None


def choose(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], names: Sequence[str] = ()) -> Device:
    """The device for a call of kernel ``name``, whose parameters are called ``names``.

    Raises ValueError when tensors lie on different devices, and TypeError when one is on the meta device.
    """
    found = None
    for value in args:
        if hasattr(value, "data_ptr"):
            device = getattr(value, "device", None)
            if device is not None and device != found:
                if found is not None or device.__class__ is str or device.type == "meta":
                    return _among_several(name, args, kwargs, names)
                found = device
        elif value.__class__ not in _SCALARS:
            return _among_several(name, args, kwargs, names)
    for value in kwargs.values():
        if value.__class__ not in _SCALARS:
            return _among_several(name, args, kwargs, names)
    return active() if found is None else of_kind(found.type, found.index)


_SCALARS = frozenset({int, float, bool, str, type(None)})


def _among_several(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], names: Sequence[str]) -> Device:
    """`choose` for calls with tuples, descriptors, keywords or several devices."""
    labels = [*names[: len(args)], *range(len(names), len(args))]
    tensors = [*_tensors(zip(labels, args, strict=True)), *_tensors(kwargs.items())]
    for at, tensor, device in tensors:
        if device.type == "meta" and hasattr(tensor, "is_meta"):
            raise TypeError(
                f"{name}: argument {at!r} is on the meta device and has no memory that a kernel could use; to compile"
                " only, call kernel.warmup(...)"
            )
    tensors = [entry for entry in tensors if entry[2].type != "meta"]
    devices = {device for _, _, device in tensors}
    if len(devices) > 1:
        # The GPU reads pinned host memory, too.
        devices = {device for _, tensor, device in tensors if not _is_pinned(tensor)} or devices
    if len(devices) > 1:
        shown = ", ".join(f"{at}: {device}" for at, _, device in tensors)
        raise ValueError(
            f"{name}: Pointer argument cannot be accessed from Triton (cpu tensor?): the tensors of one launch must be"
            f" on one device, got {shown}; move them with tensor.to(device)"
        )
    if not devices:
        return active()
    chosen = devices.pop()
    return of_kind(chosen.type, chosen.index)


def _tensors(items: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Label, tensor and device of the tensors among labelled arguments, in tuples and descriptors too."""
    for at, value in items:
        if value.__class__ in _SCALARS:
            continue
        if isinstance(value, tuple):
            yield from _tensors((f"{at}[{place}]", item) for place, item in enumerate(value))
            continue
        tensor = value.base if hasattr(value, "block_shape") and hasattr(value, "base") else value
        device = getattr(tensor, "device", None)
        if device is not None and hasattr(tensor, "data_ptr"):
            if isinstance(device, str):
                import torch

                device = torch.device(device)
            yield at, tensor, device


def _is_pinned(tensor: Any) -> bool:
    return bool(tensor.device.type == "cpu" and hasattr(tensor, "is_pinned") and tensor.is_pinned())
