"""The hooks around a compile: `knobs.runtime.jit_cache_hook` before it, `jit_post_compile_hook` after it.

`before_compile` calls the first, whose true answer vetoes the compile, `after_compile` the second. Both
receive the payload that Triton's runtime gives them, with `specialization_data`: JSON from which `preload`
builds the same variant in another process (see `preload.py`).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from triton import knobs
from triton.runtime.jit import JitFunctionInfo

from .preload import dump_specialization

if TYPE_CHECKING:
    from collections.abc import Callable

    from triton.backends.compiler import GPUTarget


@dataclasses.dataclass(frozen=True)
class Variant:
    """One specialization of a kernel, as the runtime asks for it to be compiled.

    `key` is the runtime's key of the variant; `signature` maps parameter names to types; `constexprs` and
    `attrs` map paths of parameters (index, then indices into tuples) to values and to attributes; `options`
    are the backend's parsed options.
    """

    key: str
    signature: dict[str, Any]
    constexprs: dict[tuple[int, ...], Any]
    attrs: dict[tuple[int, ...], Any]
    options: Any
    target: GPUTarget
    device: int


def before_compile(kernel: Any, variant: Variant, *, is_warmup: bool) -> bool:
    """Call the before hook; true when it vetoes the compile."""
    return bool(_call(knobs.runtime.jit_cache_hook, kernel, variant, is_warmup))


def after_compile(kernel: Any, variant: Variant, *, is_warmup: bool) -> None:
    """Call the after hook."""
    _call(knobs.runtime.jit_post_compile_hook, kernel, variant, is_warmup)


def _call(hook: Callable[..., Any] | None, kernel: Any, variant: Variant, is_warmup: bool) -> Any:
    if not hook:
        return None
    function = kernel.fn
    # Options that a backend does not have read as None, so that one hook serves every backend.
    shown = {
        name: getattr(variant.options, name, None)
        for name in (
            "num_warps",
            "num_ctas",
            "num_stages",
            "enable_fp_fusion",
            "launch_cooperative_grid",
            "extern_libs",
        )
    }
    options = ", ".join(f"{name}={value}" for name, value in shown.items() if name != "extern_libs")
    arguments = ", ".join(f"{name}: {type}" for name, type in variant.signature.items())
    return hook(
        key=variant.key,
        repr=f"{function.__qualname__}[{options}]({arguments})",
        fn=JitFunctionInfo(function.__module__, function.__qualname__, kernel),
        compile={
            "key": variant.key,
            "signature": variant.signature,
            "device": variant.device,
            "constants": variant.constexprs,
            **shown,
            "configs": [variant.attrs],
            "specialization_data": dump_specialization(kernel, variant),
            "is_warmup": is_warmup,
        },
        is_manual_warmup=is_warmup,
        already_compiled=False,
    )
