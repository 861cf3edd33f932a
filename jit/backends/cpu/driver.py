"""The CPU driver for Triton (entry point group ``triton.backends``, name ``cpu``).

Active when no other backend's driver is, or when ``TRITON_DEFAULT_BACKEND=cpu``. Like ``compiler.py`` this module is
loaded by ``import triton``: it imports only Triton's base classes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

if TYPE_CHECKING:
    import torch

_C_TYPES = {
    "i1": "int8_t", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "u1": "uint8_t", "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
    "fp16": "uint16_t", "bf16": "uint16_t", "fp32": "float", "f32": "float", "fp64": "double",
}  # fmt: skip


class CPUUtils:
    """What Triton's runtime asks of a driver's ``utils``."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        unlimited = 2**30
        return {
            "max_shared_mem": unlimited,
            "multiprocessor_count": os.cpu_count() or 1,
            "max_num_regs": unlimited,
            "warpSize": 1,
            "sm_clock_rate": 0,
            "mem_clock_rate": 0,
            "mem_bus_width": 0,
        }

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[Any, int, int, int, int]:
        """``(module, function address, n_regs, n_spills, n_max_threads)`` of a compiled kernel."""
        from .library import load

        module, address = load(name, binary)
        return module, address, 0, 0, 2**30


class CPUDriver(DriverBase):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.utils = CPUUtils()

    @property
    def launcher_cls(self) -> type:
        from .launcher import CPULauncher

        return CPULauncher

    @classmethod
    def is_active(cls) -> bool:
        selected = os.environ.get("TRITON_DEFAULT_BACKEND")
        if selected:
            return selected == "cpu"
        from triton.backends import backends

        return not any(_is_active(backend.driver) for name, backend in backends.items() if backend.driver is not cls)

    def map_python_to_cpp_type(self, ty: str) -> str:
        return "void*" if ty.startswith("*") else _C_TYPES[ty]

    def get_current_target(self) -> GPUTarget:
        from .toolchain import host_arch

        return GPUTarget("cpu", host_arch(), 1)

    def get_active_torch_device(self) -> torch.device:
        import torch

        return torch.device("cpu")

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        return (0, 0)

    def get_device_interface(self) -> Any:
        from .benchmarking import DeviceInterface

        return DeviceInterface

    def get_benchmarker(self) -> Any:
        from triton.testing import do_bench

        return do_bench

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        import torch

        # Larger than the last-level cache of most servers.
        return torch.empty(64 << 20, dtype=torch.int8)

    def clear_cache(self, cache: torch.Tensor) -> None:
        cache.zero_()

    def assemble_tensormap_to_arg(self, tensormaps_info: Any, args: Any) -> Any:
        return args


def _is_active(driver: Any) -> bool:
    try:
        return bool(driver.is_active())
    except Exception:
        # A driver that cannot even answer (a broken GPU installation) does not keep the CPU from working.
        return False
