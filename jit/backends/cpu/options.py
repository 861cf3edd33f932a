"""The options that a kernel compiled for the CPU takes.

Most exist because kernels written for GPUs pass them (``num_warps``, ``num_stages``, ...): they are accepted and change
nothing. What matters here: ``enable_fp_fusion`` (contract a * b + c), ``debug`` (keep ``tl.device_assert``),
``sanitize_overflow`` and ``arch`` (the compiler's ``-march``).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class CPUOptions:
    num_warps: int = 4
    num_ctas: int = 1
    num_stages: int = 1
    warp_size: int = 1
    maxnreg: int | None = None
    cluster_dims: tuple[int, ...] = (1, 1, 1)
    ir_override: str | None = None
    enable_fp_fusion: bool = True
    launch_cooperative_grid: bool = False
    launch_cluster: bool = False
    launch_pdl: bool = False
    supported_fp8_dtypes: tuple[str, ...] = ("fp8e4nv", "fp8e5")
    deprecated_fp8_dot_operand_dtypes: tuple[str, ...] = ()
    default_dot_input_precision: str = "ieee"
    allowed_dot_input_precisions: tuple[str, ...] = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
    max_num_imprecise_acc_default: int = 0
    extern_libs: tuple[tuple[str, str], ...] = ()
    debug: bool = False
    backend_name: str = "cpu"
    sanitize_overflow: bool = False
    arch: str = "native"
    instrumentation_mode: str = ""
    fpsan_homomorphic_casts: bool = False

    def __post_init__(self) -> None:
        assert self.num_warps > 0 and (self.num_warps & (self.num_warps - 1)) == 0, (
            f"num_warps must be a power of 2, got {self.num_warps}"
        )

    def hash(self) -> str:
        text = "_".join(f"{field.name}-{getattr(self, field.name)}" for field in fields(self))
        return hashlib.sha256(text.encode()).hexdigest()


def parse_options(given: dict[str, Any], arch: str, fp_fusion: bool) -> CPUOptions:
    """Options from a launch's keywords. Unknown ones are dropped: newer Tritons and other backends inject their own."""
    known = {field.name for field in fields(CPUOptions)}
    values = {name: value for name, value in given.items() if name in known and value is not None}
    values["arch"] = arch if str(values.get("arch", "native")).startswith(("sm", "gfx")) else values.get("arch", arch)
    values.setdefault("enable_fp_fusion", fp_fusion)
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = tuple(value)
        elif isinstance(value, dict):
            values[name] = tuple(sorted(value.items()))
    # Never on by itself: Triton asks for it together with `debug`, and integer wrap-around is what kernels mean.
    return CPUOptions(**values)
