"""The handle in Python, for machines without a C compiler: same call, same checks, same errors, more time.

`PythonHandle` calls the compiled function through ctypes. It is also what tests compare the C handle with.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from typing import Any

from . import errors
from .launch_hooks import launch_with_hooks

# Code -> (C type, lowest and highest value, divisor). The codes are described in scalar.c.
_INTEGERS: dict[str, tuple[Any, int, int, int]] = {}
_signed: list[tuple[str, str, Any, int]] = [
    ("b", "c", ctypes.c_int8, 8),
    ("s", "t", ctypes.c_int16, 16),
    ("i", "I", ctypes.c_int32, 32),
    ("l", "L", ctypes.c_int64, 64),
]
_unsigned: list[tuple[str, str, Any, int]] = [
    ("B", "C", ctypes.c_uint8, 8),
    ("S", "T", ctypes.c_uint16, 16),
    ("w", "W", ctypes.c_uint32, 32),
    ("u", "U", ctypes.c_uint64, 64),
]
for _plain, _divisible, _type, _bits in _signed:
    _INTEGERS[_plain] = (_type, -(2 ** (_bits - 1)), 2 ** (_bits - 1) - 1, 1)
    _INTEGERS[_divisible] = (_type, -(2 ** (_bits - 1)), 2 ** (_bits - 1) - 1, 16)
for _plain, _divisible, _type, _bits in _unsigned:
    _INTEGERS[_plain] = (_type, 0, 2**_bits - 1, 1)
    _INTEGERS[_divisible] = (_type, 0, 2**_bits - 1, 16)
_INTEGERS["o"] = (ctypes.c_uint8, 0, 1, 1)

_NOT_PASSED = object()
_GUARD_FAILED = object()
_parent = os.getpid()


class PythonHandle:
    """See `make_handle`. Serves kernels of the CPU backend; for CUDA, Triton itself needs a C compiler."""

    kind = "cpu"

    def __init__(
        self,
        function: int,
        codes: str,
        name: str,
        argument_names: tuple[str, ...],
        *,
        fallback: Callable[..., object] | None = None,
        owner: object = None,
        after_launch: Callable[[], object] | None = None,
        describe: Callable[..., object] | None = None,
    ) -> None:
        unknown = [code for code in codes if code not in errors.MEANINGS]
        if unknown:
            raise ValueError(f"{name}: unknown argument code '{unknown[0]}' in '{codes}'")
        self.function, self.codes, self.name = function, codes, name
        self.argument_names, self.fallback, self.owner = argument_names, fallback, owner
        self.after_launch, self.describe = after_launch, describe
        self.threads = self.shared = self.num_ctas = 0
        self._call = ctypes.CFUNCTYPE(None, *[ctypes.c_int32] * 4, ctypes.c_void_p)(function)

    def __call__(self, stream: object, *arguments: Any) -> object:
        values = self._pack_all(arguments)
        if values is None:
            assert self.fallback is not None
            return self.fallback(stream, *arguments)
        if self.describe is not None:
            return launch_with_hooks(self, stream, *arguments)
        return self._launch(values, arguments)

    def launch(self, stream: object, *arguments: Any) -> object:
        """The call without launch hooks."""
        values = self._pack_all(arguments)
        if values is None:
            assert self.fallback is not None
            return self.fallback(stream, *arguments)
        return self._launch(values, arguments)

    def _pack_all(self, arguments: tuple[Any, ...]) -> list[Any] | None:
        """The kernel's parameters as ctypes objects; None when the call has to go to the fallback."""
        if len(arguments) != len(self.codes) + 3:
            raise TypeError(
                f"{self.name}: expected a stream, {len(self.codes)} arguments and three grid axes, all positional, "
                f"got {len(arguments) + 1} positional and 0 keyword arguments"
            )
        values = []
        for index, code in enumerate(self.codes):
            value = self._pack(index, code, arguments[index])
            if value is _GUARD_FAILED:
                if self.fallback is not None:
                    return None
                raise errors.guard_error(self, index, arguments[index])
            if value is not _NOT_PASSED:
                values.append(value)
        return values

    def _launch(self, values: list[Any], arguments: tuple[Any, ...]) -> object:
        grid = [self._axis(axis, arguments[len(self.codes) + axis]) for axis in range(3)]
        programs = grid[0] * grid[1] * grid[2]
        if programs:
            pointers = (ctypes.c_void_p * (len(values) or 1))(*[ctypes.addressof(value) for value in values])
            self._call(*grid, _threads(programs), ctypes.addressof(pointers))
            if self.after_launch is not None:
                self.after_launch()
        return None

    def _axis(self, axis: int, value: Any) -> int:
        if not hasattr(value, "__index__"):
            raise TypeError(f"{self.name}: axis {axis} of the grid must be an int, got a {type(value).__name__}")
        number = value.__index__()
        if not 0 <= number < 2**31:
            raise ValueError(f"{self.name}: axis {axis} of the grid must be from 0 to 2147483647, got {value!r}")
        return int(number)

    def _pack(self, index: int, code: str, value: Any) -> Any:
        """The value as a ctypes object, or one of the two marks."""
        if code == "x":
            return _NOT_PASSED
        if code == "N":
            return _NOT_PASSED if value is None else _GUARD_FAILED
        if code in "PA":
            return self._pack_pointer(index, code, value)
        if code in "hgfd":
            if not hasattr(value, "__float__") and not hasattr(value, "__index__"):
                raise errors.guard_error(self, index, value)
            return _pack_float(code, float(value))
        if not hasattr(value, "__index__"):
            raise errors.guard_error(self, index, value)
        number = value.__index__()
        if code == "1":
            return _NOT_PASSED if number == 1 else _GUARD_FAILED
        kind, low, high, divisor = _INTEGERS[code]
        return kind(number) if low <= number <= high and number % divisor == 0 else _GUARD_FAILED

    def _pack_pointer(self, index: int, code: str, value: Any) -> Any:
        if value is None:
            address = 0
        elif isinstance(value, int):
            address = value
        elif hasattr(value, "data_ptr"):
            address = value.data_ptr()
        else:
            raise errors.guard_error(self, index, value)
        if not 0 <= address < 2**64 or (code == "A" and address % 16):
            return _GUARD_FAILED
        return ctypes.c_uint64(address)


def _pack_float(code: str, number: float) -> Any:
    if code == "d":
        return ctypes.c_double(number)
    if code == "f":
        return ctypes.c_float(number)
    if code == "h":
        return ctypes.c_uint16(struct.unpack("<H", struct.pack("<e", number))[0])
    bits = ctypes.c_uint32.from_buffer_copy(bytes(ctypes.c_float(number))).value
    if number != number:
        return ctypes.c_uint16(bits >> 16 | 0x40)
    return ctypes.c_uint16((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def _threads(programs: int) -> int:
    import torch

    if programs == 1 or os.getpid() != _parent:
        return 1
    return min(programs, int(torch.get_num_threads()))
