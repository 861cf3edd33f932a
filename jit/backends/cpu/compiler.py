"""The CPU backend for Triton's compiler (entry point group ``triton.backends``, name ``cpu``).

``import triton`` loads this module in every process on the machine: it imports nothing but Triton's base class, and
what the backend does stands in modules imported on use.

Stages: ``ttir`` (Triton's own clean-up passes), ``cpp`` (readable C++, ``kernel.asm["cpp"]``), ``so`` (bytes of a
shared object). The shared object exports one function, the kernel's name::

    void name(int32_t grid0, int32_t grid1, int32_t grid2, int32_t num_threads, void** args)

which runs the whole grid; ``args[i]`` points to the value of the i-th flattened argument that is not constexpr.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from triton.backends.compiler import BaseBackend, GPUTarget

if TYPE_CHECKING:
    from types import ModuleType

    from .options import CPUOptions


class CPUBackend(BaseBackend):  # type: ignore[misc]
    binary_ext = "so"

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return bool(target.backend == "cpu")

    def hash(self) -> str:
        from .toolchain import fingerprint

        return f"opgraft-{fingerprint()}-{self.target.arch}"

    def parse_options(self, options: dict[str, Any]) -> CPUOptions:
        from . import compat
        from . import options as cpu_options
        from .toolchain import selected_arch

        arch = selected_arch(compat.override_arch())
        return cpu_options.parse_options(options, arch, compat.default_fp_fusion())

    def pack_metadata(self, metadata: Any) -> tuple[int, int, int]:
        return (metadata.num_warps, metadata.num_ctas, metadata.shared)

    def get_codegen_implementation(self, options: CPUOptions) -> dict[str, Any]:
        return {"min_dot_size": lambda lhs, rhs: (1, 1, 1)}

    def get_module_map(self) -> dict[str, ModuleType]:
        from . import libdevice

        return {"triton.language.extra.libdevice": libdevice}

    def load_dialects(self, context: Any) -> None:
        pass

    def add_stages(self, stages: dict[str, Any], options: CPUOptions, language: Any = None) -> None:
        from . import stages as cpu_stages

        cpu_stages.add(stages, options, language)
