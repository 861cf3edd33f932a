"""What Triton's runtime calls to launch a compiled kernel on the CPU (``driver.launcher_cls``).

The launch itself is `jit.native`'s: one handle for each compiled kernel. Here stand the arguments' codes, hooks, and
the error of a failed ``tl.device_assert``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...native import make_handle, ready

# Triton's name of an argument's type to the code of `make_handle`.
_CODES = {
    "constexpr": "x",
    "i1": "o", "u1": "o", "i8": "b", "u8": "B", "i16": "s", "u16": "S", "i32": "i", "u32": "w", "i64": "l", "u64": "u",
    "fp16": "h", "f16": "h", "bf16": "g", "fp32": "f", "f32": "f", "fp64": "d", "f64": "d",
}  # fmt: skip


class DeviceAssertionError(RuntimeError):
    """A ``tl.device_assert`` did not hold; the message names the kernel's source line and the program."""


class CPULauncher:
    def __init__(self, src: Any, metadata: Any) -> None:
        self._signature = list(src.signature.values())
        self._nested = any(isinstance(kind, tuple | list) for kind in self._signature)
        kinds = list(flatten(self._signature))
        self._codes = "".join(argument_code(kind) for kind in kinds)
        self._name = metadata.name
        self._asserts = bool(getattr(metadata, "asserts", False))
        names = tuple(str(name) for name in src.signature)
        self._argument_names = names if len(names) == len(kinds) else None
        self._handles: dict[int, Callable[..., object]] = {}

    def __call__(
        self,
        grid0: int,
        grid1: int,
        grid2: int,
        stream: int,
        function: int,
        packed_metadata: Any,
        launch_metadata: Any,
        enter_hook: Callable[[Any], object] | None,
        exit_hook: Callable[[Any], object] | None,
        *arguments: Any,
    ) -> None:
        handle = self._handles.get(function)
        if handle is None:
            final = ready()
            handle = make_handle(
                "cpu", function, self._codes, name=self._name, argument_names=self._argument_names, wait=False
            )
            if final:
                self._handles[function] = handle
        if self._nested:
            arguments = tuple(flatten_like(self._signature, arguments))
        # Triton's CUDA launcher asks the driver whether it can reach an address; here a wrong one ends the process.
        for index, value in enumerate(arguments):
            if not getattr(value, "is_cpu", True):
                raise ValueError(self._elsewhere(index, value))
        if enter_hook is not None:
            enter_hook(launch_metadata)
        handle(stream, *arguments, grid0, grid1, grid2)
        if exit_hook is not None:
            exit_hook(launch_metadata)
        if self._asserts:
            raise_fault(function, self._name)

    def _elsewhere(self, index: int, value: Any) -> str:
        name = f"argument {self._argument_names[index]!r}" if self._argument_names else f"argument {index}"
        return (
            f"{self._name}: {name} is a tensor on {value.device}, and this launch is on the CPU, which is Triton's"
            " active device; move it with .to('cpu'), or launch through opgraft.jit.jit, which goes by the tensors"
        )


def raise_fault(function: int, name: str) -> None:
    """Raise the error of an assertion that failed in the kernel at address ``function``, if one did."""
    from .library import take_fault

    message = take_fault(function)
    if message is not None:
        raise DeviceAssertionError(f"{name}: {message}")


def argument_code(kind: str) -> str:
    """The code of `make_handle` for an argument of Triton type ``kind`` ("*fp32", "i32", "constexpr", ...)."""
    if kind.startswith(("*", "!tt.ptr")):
        return "P"
    if kind not in _CODES:
        raise NotImplementedError(f"the CPU backend cannot pass an argument of type {kind!r} to a kernel")
    return _CODES[kind]


def flatten(kinds: Iterable[Any]) -> Iterator[str]:
    """The leaves of a signature whose tuple arguments are nested tuples of types."""
    for kind in kinds:
        if isinstance(kind, tuple | list):
            yield from flatten(kind)
        else:
            yield kind


def flatten_like(kinds: Iterable[Any], values: Iterable[Any]) -> Iterator[Any]:
    """The values at the leaves of a signature."""
    for kind, value in zip(kinds, values, strict=True):
        if isinstance(kind, tuple | list):
            yield from flatten_like(kind, value)
        else:
            yield value
