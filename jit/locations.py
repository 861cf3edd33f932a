"""Where a kernel stands in its file: ``get_jit_fn_file_line(kernel)``."""

from __future__ import annotations

from typing import Any

from triton.runtime.jit import JITCallable as TritonJITCallable


def get_jit_fn_file_line(fn: Any) -> tuple[str, int]:
    """File and line of the ``def`` of a kernel, below its decorators; also for one in an autotuner.

    Raises TypeError when ``fn`` holds no kernel.
    """
    kernel = fn
    while not isinstance(kernel, TritonJITCallable):
        if not hasattr(kernel, "fn"):
            raise TypeError(f"expected a kernel, or an autotuner or heuristics around one, got {fn!r}")
        kernel = kernel.fn
    line: int = kernel.starting_line_number
    for index, text in enumerate(kernel.raw_src):
        if text.lstrip().startswith("def "):
            line += index
            break
    return kernel.fn.__code__.co_filename, line
