"""``kernel[grid](*args, **kwargs)``: the interface of everything that launches.

`KernelInterface` gives ``[]`` and ``warmup`` to whatever has ``run``; `Launch` is a kernel with its grid.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from triton.runtime.jit import KernelInterface as TritonKernelInterface

from . import interception

T = TypeVar("T")


class Launch:
    """A kernel and the grid it is to be launched on; calling it launches.

    It changes nothing on the kernel, so that a tracer of Python code can follow the call.
    """

    __slots__ = ("grid", "kernel")

    def __init__(self, kernel: Any, grid: Any) -> None:
        self.kernel = kernel
        self.grid = grid

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Launch; returns the compiled kernel (see `JITFunction.run`)."""
        tracer = interception.tracer
        if tracer is not None and tracer.is_tracing():
            return tracer.launch(self.kernel, self.grid, args, kwargs)
        return self.kernel.run(*args, grid=self.grid, warmup=False, **kwargs)

    def __repr__(self) -> str:
        return f"{self.kernel!r}[{self.grid}]"


class KernelInterface(TritonKernelInterface, Generic[T]):  # type: ignore[misc]
    """Something that can be launched: it has ``run(*args, grid, warmup, **kwargs)``."""

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not implement run")

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Compile for these arguments and launch nothing; dtypes and fake tensors stand for tensors."""
        from .warmup import wrap

        return self.run(*map(wrap, args), grid=grid, warmup=True, **kwargs)

    def __getitem__(self, grid: Any) -> Any:
        return Launch(self, grid)
