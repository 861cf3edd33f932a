"""Stand-ins for tensors, to compile a kernel for arguments that do not exist yet.

`wrap(argument)` turns what `kernel.warmup` accepts (dtypes, fake and meta tensors, descriptors over these)
into `MockTensor` where needed and leaves the rest alone. A `MockTensor` holds no storage; its address reads
as 0, so that a variant for 16-byte aligned pointers is built, as Triton does.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from triton.runtime.jit import MockTensor as TritonMockTensor

if TYPE_CHECKING:
    from collections.abc import Sequence


class MockTensor(TritonMockTensor):  # type: ignore[misc]
    """A tensor's dtype, shape, strides and device without the tensor.

    `MockTensor(torch.float32)` has shape `[1]`. `strides` (in elements) are those of a contiguous tensor when
    not given. `device` is needed only to warm up for a device other than the active driver's.
    """

    def __init__(
        self,
        dtype: Any,
        shape: Sequence[Any] | None = None,
        strides: Sequence[Any] | None = None,
        device: Any = None,
    ) -> None:
        self.dtype = dtype
        self.shape = [1] if shape is None else shape
        if strides is not None and len(strides) != len(self.shape):
            raise ValueError(f"MockTensor: {len(strides)} strides for {len(self.shape)} dimensions")
        self._strides = None if strides is None else tuple(strides)
        if device is not None:
            self.device = device

    @staticmethod
    def wrap_dtype(arg: Any) -> Any:
        return wrap(arg)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> Any:
        count: Any = 1
        for size in self.shape:
            count = count * size
        return count

    def size(self, dim: int | None = None) -> Any:
        return tuple(self.shape) if dim is None else self.shape[dim]

    def element_size(self) -> int:
        size: int = self.dtype.itemsize
        return size

    def stride(self, dim: int | None = None) -> Any:
        """Strides in elements; those of a contiguous tensor unless given."""
        if self._strides is None:
            strides: list[Any] = []
            step: Any = 1
            for size in reversed(self.shape):
                strides.append(step)
                step = step * size
            found = tuple(reversed(strides))
        else:
            found = self._strides
        return found if dim is None else found[dim]

    def __repr__(self) -> str:
        return f"MockTensor({self.dtype}, shape={list(self.shape)}, strides={list(self.stride())})"


def wrap(argument: Any) -> Any:
    """`argument` as `kernel.warmup` binds it.

    A `torch.dtype` becomes a one-element MockTensor; a tensor without storage (fake, meta) becomes a
    MockTensor of its dtype, shape, strides and device; tuples and tensor descriptors are searched. Everything
    else is returned as is.
    """
    kind = type(argument)
    if kind.__module__ == "torch" and kind.__name__ == "dtype":
        return MockTensor(argument)
    if isinstance(argument, tuple):
        items = [wrap(item) for item in argument]
        if all(new is old for new, old in zip(items, argument, strict=True)):
            return argument
        return kind(*items) if hasattr(argument, "_fields") else tuple(items)
    if _lacks_storage(argument):
        return MockTensor(argument.dtype, tuple(argument.shape), tuple(argument.stride()), argument.device)
    base = getattr(argument, "base", None)
    if base is not None and dataclasses.is_dataclass(argument) and _lacks_storage(base):
        return dataclasses.replace(argument, base=wrap(base))  # type: ignore[type-var]
    return argument


def _lacks_storage(argument: Any) -> bool:
    """Whether `argument` is a torch tensor whose address cannot be read."""
    import sys

    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(argument, torch.Tensor):
        return False
    if argument.device.type == "meta":
        return True
    # FakeTensor, and wrappers around one (functional tensors, functorch) that answer for it.
    fake: Any = sys.modules.get("torch._subclasses.fake_tensor")
    if fake is None:
        return False
    return isinstance(argument, fake.FakeTensor) or bool(fake.is_fake(argument))
