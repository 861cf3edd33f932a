"""Triton modules of kernels without a GPU: the frontend alone, or with the passes that make the final TTIR."""

from __future__ import annotations

from typing import Any

import triton
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

from opgraft.jit.ir import Module, generic_text, parse

TARGET = GPUTarget("cuda", 90, 32)


def ast_source(kernel, signature: dict[str, str], constants: dict[str, Any] | None = None, aligned=()) -> ASTSource:
    """`signature` without the constexprs; `aligned` names the arguments that are divisible by 16."""
    index = {name: position for position, name in enumerate(kernel.arg_names)}
    constants = constants or {}
    full = {name: "constexpr" if name in constants else signature[name] for name in kernel.arg_names}
    return ASTSource(
        kernel,
        full,
        {(index[name],): value for name, value in constants.items()},
        {(index[name],): [["tt.divisibility", 16]] for name in aligned},
    )


def triton_module(kernel, signature, constants=None, *, aligned=(), passes=False, debug=False):
    """`(ir.module, ir.context)` of a kernel: as the frontend writes it, or after Triton's TTIR passes."""
    source = ast_source(kernel, signature, constants, aligned)
    backend = make_backend(TARGET)
    options = backend.parse_options({"debug": debug})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    code = backend.get_codegen_implementation(options)
    module = source.make_ir(TARGET, options, code, backend.get_module_map(), context)
    if passes:
        stages: dict[str, Any] = {}
        backend.add_stages(stages, options, source.language)
        module = stages["ttir"](module, {})
    return module, context


def read(kernel, signature, constants=None, **how) -> Module:
    """Our module of a kernel."""
    return parse(generic_text(*triton_module(kernel, signature, constants, **how)))


def triton_parse(text: str, folder):
    """What Triton makes of a text; RuntimeError when it does not accept it."""
    path = folder / "module.ttir"
    path.write_text(text)
    context = ir.context()
    ir.load_dialects(context)
    make_backend(TARGET).load_dialects(context)
    module = ir.parse_mlir_module(str(path), context)
    module.context = context  # keeps it alive
    return module


def triton_compile(text: str, folder):
    """Compile TTIR text for sm_90 (no GPU needed)."""
    path = folder / "kernel.ttir"
    path.write_text(text)
    return triton.compile(str(path), target=TARGET)
