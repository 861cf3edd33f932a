"""Dynamo: `kernel[grid](...)` in a traced function becomes a call of the launch op.

Dynamo takes our kernels for Triton's, by isinstance, and would launch them the Triton way. An entry
in its type dispatch gives them to :mod:`.kernel_variable` instead. Importing Dynamo takes seconds,
so the package only leaves word: :func:`register` is called when Dynamo's tracer is first imported.

Private API (checked on torch 2.13.0 and 2.11.0): ``VariableBuilder._type_dispatch()``, a table from
type to a method of the builder. Where it is missing nothing is registered, a warning says so, and
Dynamo's own path for Triton kernels serves.
"""

from __future__ import annotations

import warnings
from typing import Any

__all__ = ["register"]


def register(builder: Any) -> None:
    """Have Dynamo trace launches of our kernels as ops; ``builder`` is its module `variables.builder`."""
    from ..jit.function import JITFunction
    from ..jit.launch import Launch
    from ..jit.native import when_loaded
    from . import kernel_variable, launching

    launching.install()
    try:
        table = builder.VariableBuilder._type_dispatch()
    except AttributeError:
        warnings.warn(
            "this version of torch has no type dispatch in Dynamo: bare kernel launches in compiled "
            "functions take Triton's own path",
            stacklevel=2,
        )
        return
    table[JITFunction] = kernel_variable.wrap
    table[Launch] = kernel_variable.wrap_launch
    when_loaded(lambda native: table.__setitem__(native.Launcher, kernel_variable.wrap_launch))
