"""What can be compiled: a kernel function, a file of IR, or IR text.

`open_source` turns what `compile` was given into an object with Triton's source interface: `name`, `ext` (the
first stage), `language`, `signature`, `hash()`, `make_ir(...)`, `parse_options()`.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton._C.libtriton import ir
from triton.backends.compiler import Language
from triton.compiler.compiler import ASTSource, IRSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from triton.backends.compiler import BaseBackend, GPUTarget


# Stages whose text says all about a kernel.
MODULE_SUFFIXES = (".ttir", ".ttgir", ".glir")


class ModuleSource:
    """IR text (a module with one public function) that is to be compiled from its own stage on.

    `signature` maps parameter names to Triton types (`*fp32`, `i32`, `constexpr`, ...) in the order of the
    function's arguments; the launcher marshals by it. `attrs` maps paths of parameters to attributes such as
    `[["tt.divisibility", 16]]`; `fn` is the kernel whose launch metadata applies, if any.

    Unlike a kernel function, no pass of the stage named `ext` is applied to it.
    """

    def __init__(
        self,
        text: str,
        signature: Mapping[str, Any],
        *,
        name: str,
        ext: str = "ttir",
        constexprs: Mapping[tuple[int, ...], Any] | None = None,
        attrs: Mapping[tuple[int, ...], Any] | None = None,
        fn: Any = None,
    ) -> None:
        self.text = text
        self.ext = ext
        self.language = Language.TRITON
        self.name = name
        self.signature = dict(signature)
        self.constants = dict(constexprs or {})
        self.attrs = dict(attrs or {})
        self.fn = fn

    def hash(self) -> str:
        parts = (self.ext, self.name, str(self.signature), str(self.constants), str(self.attrs), self.text)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def make_ir(self, target: GPUTarget, options: Any, codegen_fns: Any, module_map: Any, context: Any) -> Any:
        return _parse_text(self.text, self.ext, context)

    def parse_options(self) -> dict[str, Any]:
        return {}


def _parse_text(text: str, ext: str, context: Any) -> Any:
    """A Triton module from text: Triton itself parses files only."""
    with tempfile.NamedTemporaryFile("w", suffix=f".{ext}", delete=False) as file:
        file.write(text)
    try:
        module = ir.parse_mlir_module(file.name, context)
    finally:
        os.unlink(file.name)
    module.context = context
    return module


def parse_module(text: str, ext: str, backend: BaseBackend) -> tuple[Any, Any]:
    """The Triton module for IR text of the stage `ext`, and a new context that it lives in."""
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    return _parse_text(text, ext, context), context


def open_source(src: Any, backend: BaseBackend) -> tuple[Any, Any]:
    """The source object for `src` and the MLIR context that it holds (None for a kernel function or text).

    `src` is an `ASTSource` (or a subclass, such as Gluon's), a `ModuleSource`, or the path of an IR file.
    Raises TypeError for anything else, FileNotFoundError when the file does not exist, and ValueError when it
    is of a stage that cannot be started from.
    """
    if isinstance(src, ASTSource | ModuleSource):
        return src, None
    if not isinstance(src, str | os.PathLike):
        raise TypeError(
            f"compile: source must be either AST or a filepath (got {type(src).__name__});"
            " pass an ASTSource, a ModuleSource or the path of a .ttir or .ttgir file"
        )
    path = os.fspath(src)
    if not path.endswith(MODULE_SUFFIXES):
        # What a launch needs to know (shared memory, scratch memory, the name) is computed from the module.
        raise ValueError(
            f"compile: cannot start from {path!r}, only from a module ({', '.join(MODULE_SUFFIXES)});"
            " to replace a later stage of a kernel, override it (ir_override=, or TRITON_KERNEL_OVERRIDE)"
        )
    if not Path(path).is_file():
        raise FileNotFoundError(f"compile: no IR file at {path!r}")
    context = ir.context()
    return IRSource(path, context, backend), context
