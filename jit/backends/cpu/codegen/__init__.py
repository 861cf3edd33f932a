"""The C++ generator: Triton IR in (`opgraft.jit.ir`), the text of one C++ file out.

    generate(module, vector_bytes) -> Kernel(source, symbol, asserts)

`module` writes the file, `function` walks operations, `values` are lazy blocks, `nest` evaluates them in one fused
loop, `sinks` decides what a loop computes, and the rule files say what each operation does.
"""

from .errors import UnsupportedOperation
from .module import Kernel, generate

__all__ = ["Kernel", "UnsupportedOperation", "generate"]
