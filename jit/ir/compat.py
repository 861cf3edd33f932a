"""Triton's private bindings that `jit.ir` uses.

`ir.builder.create_block_with_parent(region, types)` and `ir.block.erase()` (present in 3.6.0, 3.7.1, 3.8 and
3.9.0). Where one is missing `unverified` raises IRError with the version, and nothing of the IR can be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .errors import IRError


@contextmanager
def unverified(module: Any, context: Any) -> Iterator[None]:
    """Inside, the Triton `ir.module` has an empty block at the end of its first function and so fails
    verification, which makes MLIR print it in generic form. Afterwards the module is as before."""
    import triton
    from triton._C.libtriton import ir

    functions: list[Any] = []
    module.walk(lambda op: functions.append(op) if op.get_name() == "tt.func" else None)
    if not functions:
        raise IRError("the module holds no tt.func")
    try:
        block = ir.builder(context).create_block_with_parent(functions[0].get_region(0), [])
        erase = block.erase
    except AttributeError as error:
        raise IRError(f"Triton {triton.__version__} lacks a binding that reading its IR needs: {error}") from error
    try:
        yield
    finally:
        erase()
