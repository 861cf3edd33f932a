"""Kernels made by other decorators, on this runtime: ``adopt(kernel, options)``."""

from __future__ import annotations

import copy
from typing import Any

from triton.runtime.jit import JITFunction as TritonJITFunction

from .function import JITFunction


def adopt(kernel: Any, options: dict[str, Any]) -> Any:
    """The kernel with this runtime: a new object; ``kernel`` stays as it was.

    Takes Triton's and Gluon's jitted functions, autotuners and heuristics around them, and the interpreter's
    functions, which are returned as they are. ``options`` replace the kernel's own (see `jit`).

    Raises TypeError for anything else.
    """
    if isinstance(kernel, JITFunction) and not options:
        return kernel
    if isinstance(kernel, TritonJITFunction):
        return _adopt_function(kernel, options)
    if any(cls.__name__ == "InterpretedFunction" for cls in type(kernel).__mro__):
        return kernel
    inner = getattr(kernel, "fn", None)
    if inner is not None and hasattr(kernel, "arg_names"):
        # An autotuner or heuristics: the same object around an adopted kernel, without shared results.
        outer = copy.copy(kernel)
        outer.fn = adopt(inner, options)
        if isinstance(getattr(outer, "cache", None), dict):
            outer.cache = dict(outer.cache)
        return outer
    raise TypeError(
        f"jit takes a Python function, or a kernel of Triton or Gluon, also within autotune and heuristics;"
        f" got {kernel!r} of type {type(kernel).__name__}"
    )


def _adopt_function(kernel: Any, options: dict[str, Any]) -> JITFunction:
    own = {
        "version": kernel.version,
        "repr": kernel._repr,
        "launch_metadata": kernel.launch_metadata,
        "do_not_specialize": list(kernel.do_not_specialize),
        "do_not_specialize_on_alignment": list(kernel.do_not_specialize_on_alignment),
        "debug": kernel.debug,
        "noinline": kernel.noinline,
    }
    kind = JITFunction
    if kernel.is_gluon():
        from .gluon import GluonJITFunction

        kind = GluonJITFunction
    made = kind(kernel.fn, **{**own, **options})
    if kernel.src != made.src:
        made._unsafe_update_src(kernel.src)
    made.pre_run_hooks = list(kernel.pre_run_hooks)
    return made
