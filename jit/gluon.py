"""Gluon's kernels on this runtime: the language differs, the life of a call does not."""

from __future__ import annotations

from typing import Any

from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon._runtime import GluonJITFunction as TritonGluonJITFunction

from .function import JITFunction


class GluonJITFunction(JITFunction, TritonGluonJITFunction):  # type: ignore[misc]
    """A kernel in Triton's Gluon language."""

    ASTSource: Any = GluonASTSource

    def is_gluon(self) -> bool:
        return True

    def create_binder(self) -> Any:
        return JITFunction.create_binder(self)
