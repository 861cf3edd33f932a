"""Private parts of Triton and torch that the runtime uses: what each is for, and what happens without it.

Looked at on Triton 3.5 to 3.9 and torch 2.11 to 2.13. Nothing here is needed to import the package.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import triton.runtime.jit as triton_jit
from triton import knobs
from triton.backends.compiler import BaseBackend
from triton.runtime import _allocation

# Its classes are public as `triton.AsyncCompileMode` and `triton.FutureKernel`, the context variable is not: the mode
# that is active for Triton's kernels is active for ours.
from triton.runtime._async_compile import AsyncCompileMode as TritonAsyncCompileMode
from triton.runtime._async_compile import FutureKernel as TritonFutureKernel
from triton.runtime._async_compile import active_mode as active_async_mode

__all__ = ["TritonAsyncCompileMode", "TritonFutureKernel", "active_async_mode"]


def function_registry() -> dict[str, Any] | None:
    """Where Triton finds the kernels that are arguments of a preloaded kernel (3.7 on), or None.

    Without it, stock kernels cannot be preloaded with a function of ours as argument; ours use `registry`.
    """
    return getattr(triton_jit, "_triton_jit_function_registry", None)


def descriptor_type(value: Any) -> str | None:
    """The type of a host tensor descriptor of the Triton or Gluon language, None for anything else.

    Triton's own C function writes this text, whose form follows the version (layouts, im2col); the code
    generator of the same version reads it.
    """
    try:
        from triton._C.libtriton import native_specialize_impl
    except ImportError:  # pragma: no cover - all supported versions have it
        return None
    try:
        kind = native_specialize_impl(BaseBackend, value, False, True, True)[0]
    except TypeError:
        return None
    return kind if isinstance(kind, str) and kind.startswith("tensordesc") else None


def implicit_options() -> dict[str, Any]:
    """Compile options that come from knobs rather than from the call, and so are part of every key."""
    found = {}
    for name in ("instrumentation_mode", "fpsan_homomorphic_casts"):
        if hasattr(knobs.compilation, name):
            found[name] = getattr(knobs.compilation, name)
    return found


def knob_variable(group: Any, name: str) -> tuple[dict[Any, Any], Any] | None:
    """Where the environment variable behind a knob is kept: a dictionary and its key there.

    None for a knob that is no longer read from the environment once Triton is loaded. `os.environ._data` is
    how CPython 3.10 to 3.14 keep variables; without it AttributeError is raised.
    """
    descriptor = getattr(group, "knob_descriptors", {}).get(name)
    if descriptor is None:
        return None
    environ: Any = os.environ
    return environ._data, environ.encodekey(descriptor.key)


def stages_inspection() -> tuple[str, str] | None:
    """Key and hash of a custom pass pipeline (``knobs.runtime.add_stages_inspection_hook``), None when not
    set.
    """
    hook = getattr(knobs.runtime, "add_stages_inspection_hook", None)
    if hook is None:
        return None
    found: tuple[str, str] = hook()
    return found


def dispatch_mode_active(torch: Any) -> bool:
    """Whether a ``TorchDispatchMode`` (FakeTensorMode, ...) is entered; False where torch cannot say."""
    depth = getattr(torch._C, "_len_torch_dispatch_stack", None)
    return depth is not None and depth() > 0


def is_wrapped_tensor(torch: Any, tensor: Any) -> bool:
    """Whether a plain-looking tensor is a wrapper of ``torch.func`` or of functionalization."""
    functorch = getattr(torch._C, "_functorch", None)
    if functorch is not None and functorch.is_functorch_wrapped_tensor(tensor):
        return True
    functional = getattr(torch, "_is_functional_tensor", None)
    return functional is not None and bool(functional(tensor))


def scratch_allocators() -> dict[str, Any]:
    """What allocates scratch memory for a launch: objects with ``get() -> allocate(bytes, alignment, stream)``.

    ``"global"`` is what `triton.set_allocator` set, ``"profile"`` what a profiler set.
    """
    return {"global": _allocation._allocator, "profile": _allocation._profile_allocator}


def signed_bytes(run: Any, signature: Mapping[str, Any]) -> Any:
    """The CUDA launcher ``run``, taking negative int8 arguments too.

    Triton's launcher reads a C ``int8_t`` as an unsigned byte until 3.6 and refuses negative numbers ("unsigned byte
    integer is less than minimum"); the byte with the same bits it takes. Later ones take both.
    """
    places = [_LAUNCHER_ARGUMENTS + place for place, kind in enumerate(signature.values()) if kind == "i8"]
    if not places:
        return run

    def launch(*arguments: Any) -> Any:
        values = list(arguments)
        for place in places:
            value = values[place]
            if isinstance(value, int) and -128 <= value < 0:
                values[place] = value + 256
        return run(*values)

    return launch


# What a launcher takes before the kernel's arguments: grid, stream, function, metadata and hooks.
_LAUNCHER_ARGUMENTS = 9
