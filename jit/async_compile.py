"""Asynchronous compile mode: inside `with AsyncCompileMode(executor):` kernels compile in the background.

`submit_compile` is what the runtime calls to compile a variant. Outside the mode it compiles and returns the
kernel; inside it returns a `FutureKernel` at once, which stands for the kernel until `result()` is asked for.
The mode is that of Triton (`triton.AsyncCompileMode` and its context variable): either class works for either
runtime.
"""

from __future__ import annotations

import copy
import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol

from triton.runtime._async_compile import AsyncCompileMode as TritonAsyncCompileMode
from triton.runtime._async_compile import FutureKernel as TritonFutureKernel
from triton.runtime._async_compile import active_mode

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future

    from .compiled import CompiledKernel

_lock = threading.RLock()


class _Compile(Protocol):
    def __call__(self) -> CompiledKernel: ...


class FutureKernel(TritonFutureKernel):  # type: ignore[misc]
    """A kernel that is being compiled. Attributes are those of the kernel, and wait for it.

    When the compile failed, every use raises its error, with the kernel's name added as a note.
    """

    def __init__(
        self,
        name: str,
        future: Future[CompiledKernel],
        finalize: Callable[[CompiledKernel], None],
        cleanup: Callable[[FutureKernel], None],
    ) -> None:
        self.name = name
        self.future: Any = future
        self.kernel: CompiledKernel | None = None
        self._finalize = finalize
        self._cleanup = cleanup
        self._error: BaseException | None = None
        self._settle_lock = threading.RLock()

    def result(self, ignore_errors: bool = False) -> CompiledKernel | None:
        """The kernel, waiting for it. With `ignore_errors` None in place of an error."""
        if self.kernel is None:
            self._settle()
        if self._error is not None and not ignore_errors:
            raise named_copy(self._error, self.name)
        return self.kernel

    def _settle(self) -> None:
        with self._settle_lock:
            if self.kernel is not None or self._error is not None:
                return
            try:
                kernel = self.future.result()
            except Exception as error:
                self._error = error.with_traceback(None)
                self.future = None
                self._cleanup(self)
                return
            self.future = None
            self._finalize(kernel)
            self.kernel = kernel

    def __getattr__(self, name: str) -> Any:
        # Not for the machinery of copying and pickling, which must not wait for a compile.
        if name.startswith("__") or "kernel" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.result(), name)


def named_copy(error: BaseException, kernel: str) -> BaseException:
    """A copy of `error` that says which kernel it is about; the original collects no tracebacks."""
    try:
        raised = copy.deepcopy(error)
    except Exception:
        raised = error
    note = f"while compiling kernel {kernel}"
    if sys.version_info >= (3, 11):
        if note not in getattr(raised, "__notes__", ()):
            raised.add_note(note)
    elif raised.args and isinstance(raised.args[0], str) and note not in raised.args[0]:
        raised.args = (f"{raised.args[0]} ({note})", *raised.args[1:])
    return raised


class AsyncCompileMode(TritonAsyncCompileMode):  # type: ignore[misc]
    """Compile in the background on `executor` (any `concurrent.futures.Executor` of threads).

    Leaving the mode waits for every compile and raises the first error, unless `ignore_errors`.
    """

    def __init__(self, executor: Executor, *, ignore_errors: bool = False) -> None:
        super().__init__(executor, ignore_errors=ignore_errors)


def submit_compile(
    name: str,
    cache_key: str,
    compile: _Compile,
    finalize: Callable[[CompiledKernel], None],
    cleanup: Callable[[FutureKernel], None] = lambda future: None,
) -> Any:
    """Run `compile` now, or hand it to the active mode.

    Outside an AsyncCompileMode: returns the kernel after `finalize(kernel)`. Inside: returns a future, on
    which `finalize` is called when it is resolved and `cleanup` when the compile failed. `cache_key`
    identifies the result among all kernels and targets: equal keys compile once.
    """
    mode: Any = active_mode.get()
    if mode is None:
        kernel = compile()
        finalize(kernel)
        return kernel
    with _lock:
        existing = mode.future_kernels.get(cache_key)
        if existing is not None:
            return existing
        future = mode.executor.submit(compile)
        future._key = cache_key
        mode.raw_futures.append(future)
        kernel = FutureKernel(name, future, finalize, cleanup)
        mode.future_kernels[cache_key] = kernel
        return kernel
