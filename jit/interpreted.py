"""Triton's interpreter for kernels of ours, which ``TRITON_INTERPRET=1`` asks for."""

from __future__ import annotations

from typing import Any

from triton.runtime.interpreter import InterpretedFunction as TritonInterpretedFunction


class InterpretedFunction(TritonInterpretedFunction):  # type: ignore[misc]
    """A kernel that runs as Python code; on tensors without memory it does nothing.

    So the body of an op is its fake implementation here too. A graph holds the op, not the launches inside.
    """

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if any(map(_has_no_memory, args)) or any(map(_has_no_memory, kwargs.values())):
            return None
        return super().run(*args, grid=grid, warmup=warmup, **kwargs)


def _has_no_memory(value: Any) -> bool:
    if not hasattr(value, "data_ptr"):
        return False
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor) or bool(getattr(value, "is_meta", False))
