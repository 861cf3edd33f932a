"""A tensor seen with another element type: ``reinterpret(tensor, dtype)``."""

from __future__ import annotations

from typing import Any

from triton.runtime.jit import TensorWrapper as TritonTensorWrapper


class TensorWrapper(TritonTensorWrapper):  # type: ignore[misc]
    """A tensor (``base``) whose memory a kernel reads as elements of ``dtype``."""

    def __init__(self, base: Any, dtype: Any) -> None:
        self.base = base
        self.dtype = dtype
        self.data = base.data
        self.device = base.device
        self.shape = base.shape

    def data_ptr(self) -> int:
        """The address of the first element."""
        found: int = self.base.data_ptr()
        return found

    def stride(self, *args: Any) -> Any:
        return self.base.stride(*args)

    def element_size(self) -> int:
        found: int = self.base.element_size()
        return found

    def numel(self) -> int:
        found: int = self.base.numel()
        return found

    def cpu(self) -> TensorWrapper:
        return TensorWrapper(self.base.cpu(), self.dtype)

    def to(self, device: Any) -> TensorWrapper:
        return TensorWrapper(self.base.to(device), self.dtype)

    def clone(self) -> TensorWrapper:
        return TensorWrapper(self.base.clone(), self.dtype)

    def copy_(self, other: Any) -> None:
        self.base.copy_(other.base)

    def new_empty(self, sizes: Any) -> TensorWrapper:
        return TensorWrapper(self.base.new_empty(sizes), self.dtype)

    def __str__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base})"


def reinterpret(tensor: Any, dtype: Any) -> Any:
    """``tensor`` for a kernel that reads its memory as elements of ``dtype``.

    Wrapping to the tensor's own type gives the tensor back. Raises TypeError when it is no tensor.
    """
    if isinstance(tensor, TritonTensorWrapper):
        return tensor.base if dtype == tensor.base.dtype else TensorWrapper(tensor.base, dtype)
    if hasattr(tensor, "data_ptr"):
        return TensorWrapper(tensor, dtype)
    raise TypeError(f"Cannot reinterpret a {type(tensor)}.")
