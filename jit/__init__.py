"""The JIT runtime: kernels written in the Triton language, compiled and launched on CUDA and on the CPU.

``jit`` decorates a kernel (or takes over an existing ``@triton.jit`` function); ``kernel[grid](...)``
launches it. Names are loaded when they are first used: importing this package imports neither torch nor
triton.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .async_compile import AsyncCompileMode as AsyncCompileMode
    from .async_compile import FutureKernel as FutureKernel
    from .callable import JITCallable as JITCallable
    from .compile_time import ConstexprFunction as ConstexprFunction
    from .compile_time import constexpr_function as constexpr_function
    from .compiled import CompiledKernel as CompiledKernel
    from .decorator import jit as jit
    from .events import CompileEvent as CompileEvent
    from .events import on_compile as on_compile
    from .function import JITFunction as JITFunction
    from .launch import KernelInterface as KernelInterface
    from .launch import Launch as Launch
    from .locations import get_jit_fn_file_line as get_jit_fn_file_line
    from .params import KernelParam as KernelParam
    from .tensor_wrapper import TensorWrapper as TensorWrapper
    from .tensor_wrapper import reinterpret as reinterpret
    from .tuning import Autotuner as Autotuner
    from .tuning import Config as Config
    from .tuning import Heuristics as Heuristics
    from .tuning import autotune as autotune
    from .tuning import heuristics as heuristics
    from .warmup import MockTensor as MockTensor

# Public name -> the module that defines it.
_HOMES = {
    "AsyncCompileMode": "async_compile",
    "Autotuner": "tuning",
    "CompileEvent": "events",
    "CompiledKernel": "compiled",
    "Config": "tuning",
    "ConstexprFunction": "compile_time",
    "FutureKernel": "async_compile",
    "Heuristics": "tuning",
    "JITCallable": "callable",
    "JITFunction": "function",
    "KernelInterface": "launch",
    "KernelParam": "params",
    "Launch": "launch",
    "MockTensor": "warmup",
    "TensorWrapper": "tensor_wrapper",
    "autotune": "tuning",
    "constexpr_function": "compile_time",
    "get_jit_fn_file_line": "locations",
    "heuristics": "tuning",
    "jit": "decorator",
    "on_compile": "events",
    "reinterpret": "tensor_wrapper",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f".{home}", __name__), name)
    except ModuleNotFoundError as error:
        from .requirements import explain

        raise explain(error) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
