"""Which arguments of a kernel it writes, without compiling it: the frontend's IR is enough.

`written_paths` answers for one specialization by the paths of its arguments, ``(index,)`` or
``(index, place in tuple, ...)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["written_paths"]


def written_paths(
    kernel: Any,
    signature: Mapping[str, Any],
    constexprs: Mapping[tuple[int, ...], Any],
    attrs: Mapping[tuple[int, ...], Any],
    device: str,
    options: Mapping[str, Any] | None = None,
) -> frozenset[tuple[int, ...]]:
    """The paths of the arguments that the kernel may write.

    Args:
        kernel: a `JITFunction`.
        signature: parameter name to type, see `JITFunction.variant`.
        constexprs: path to value.
        attrs: path to attributes.
        device: device type, ``"cpu"``, ``"cuda"`` or ``"meta"``. For CUDA no GPU is needed.
        options: compile options by name.

    Raises what the frontend raises for the kernel.
    """
    from triton.compiler.compiler import ASTSource

    from .analysis import written_by
    from .argument_paths import argument_paths, pointer_paths
    from .compat import implicit_options

    given = {**implicit_options(), "debug": bool(kernel.debug), **dict(options or {})}
    source = ASTSource(kernel, dict(signature), dict(constexprs), dict(attrs))
    written = written_by(source, _target(device), given)
    paths = argument_paths(signature, written.names)
    if paths is None:
        return frozenset(pointer_paths(signature))
    return frozenset(paths[index] for index in written.written)


def _target(device: str) -> Any:
    from triton.backends.compiler import GPUTarget

    if device.startswith("cuda"):
        try:
            import torch

            if torch.cuda.is_available():
                major, minor = torch.cuda.get_device_capability()
                return GPUTarget("cuda", 10 * major + minor, 32)
        except ImportError:
            pass
        return GPUTarget("cuda", 90, 32)  # what the frontend does for a kernel differs little between GPUs
    from .device import of_kind

    return of_kind("cpu", None).target()  # CPU tensors, and meta tensors, which no kernel ever runs on
