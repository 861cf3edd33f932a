"""Which arguments of a kernel it writes, without compiling it: the frontend's IR is enough.

`written_paths` answers for one specialization by the paths of its arguments, ``(index,)`` or
``(index, place in tuple, ...)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
        device: device type, ``"cpu"`` or ``"cuda"``. For CUDA no GPU is needed.
        options: compile options by name.

    Raises what the frontend raises for the kernel.
    """
    from triton._C.libtriton import ir
    from triton.compiler.compiler import ASTSource, filter_traceback

    from .compat import implicit_options
    from .drivers import backend_for
    from .ir import generic_text, parse
    from .ir.written import written_arguments

    target = _target(device)
    backend: Any = backend_for(target)
    given = {**implicit_options(), "debug": bool(kernel.debug), **dict(options or {})}
    parsed = backend.parse_options(given)
    source = ASTSource(kernel, dict(signature), dict(constexprs), dict(attrs))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    try:
        module = source.make_ir(
            target, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context
        )
    except Exception as error:
        filter_traceback(error)
        raise
    written = written_arguments(parse(generic_text(module, context)))
    paths = [path for index, kind in enumerate(signature.values()) for path in _paths((index,), kind)]
    return frozenset(path for position, path in enumerate(paths) if position in written)


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

    return of_kind(device.partition(":")[0], None).target()


def _paths(path: tuple[int, ...], kind: Any) -> Iterator[tuple[int, ...]]:
    """The paths of the arguments that the compiled function has, in its order."""
    if isinstance(kind, tuple):
        for place, inner in enumerate(kind):
            yield from _paths((*path, place), inner)
    elif kind != "constexpr":
        yield path
