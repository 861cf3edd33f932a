"""Asynchronous compile mode: inside `with AsyncCompileMode(executor):` kernels compile in the background.

`submit_compile` is what the runtime calls to compile a variant. Outside the mode it compiles and returns the
kernel; inside it returns a `FutureKernel` at once, which stands for the kernel until `result()` is asked for,
as a launch does. The mode is that of Triton (`triton.AsyncCompileMode` and its context variable): either
class works for either runtime.
"""

from __future__ import annotations

import contextvars
import copy
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from . import forks
from .compat import TritonAsyncCompileMode, TritonFutureKernel, active_async_mode

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future
    from types import TracebackType

    from .compiled import CompiledKernel

_lock = forks.rlock()


class FutureKernel(TritonFutureKernel):  # type: ignore[misc]
    """A kernel that is being compiled. Attributes are those of the kernel, and wait for it.

    When the compile failed every use raises its error, with the name of the kernel in a note.
    """

    def __init__(self, kernel_name: str, compile: Callable[[], CompiledKernel], future: Future[CompiledKernel]) -> None:
        self.kernel_name = kernel_name
        self.future: Any = future
        self.kernel: CompiledKernel | None = None
        self._compile: Any = compile
        self._error: BaseException | None = None
        self._watchers: list[tuple[Callable[[CompiledKernel], None], Callable[[FutureKernel], None]]] = []
        self._owner = os.getpid()
        self._settle_lock = threading.RLock()

    def watch(self, finalize: Callable[[CompiledKernel], None], cleanup: Callable[[FutureKernel], None]) -> None:
        """Call `finalize(kernel)` when the kernel is first used, `cleanup(self)` when its compile failed."""
        with self._settle_lock:
            if self.kernel is None and self._error is None:
                self._watchers.append((finalize, cleanup))
                return
        if self.kernel is not None:
            finalize(self.kernel)
        else:
            cleanup(self)

    @property
    def failed(self) -> bool:
        """Whether its error was seen."""
        return self._error is not None

    def result(self, ignore_errors: bool = False) -> CompiledKernel | None:
        """The kernel, waiting for it. With `ignore_errors` None in place of an error."""
        if self.kernel is None and self._error is None:
            self._settle()
        if self._error is not None and not ignore_errors:
            raise with_kernel_name(self._error, self.kernel_name)
        return self.kernel

    def _settle(self) -> None:
        orphaned = self._owner != os.getpid()
        if orphaned:
            # A forked child has neither the threads that compile nor those that may have held the lock.
            self._owner, self._settle_lock = os.getpid(), threading.RLock()
        with self._settle_lock:
            if self.kernel is not None or self._error is not None:
                return
            try:
                lost = orphaned and not self.future.done()
                kernel = self._compile() if lost else self.future.result()
            except Exception as error:
                self._error = error.with_traceback(None)
            else:
                self.kernel = kernel
            # A future keeps the frames of a failed compile alive.
            self.future = self._compile = None
            watchers, self._watchers = self._watchers, []
        for finalize, cleanup in watchers:
            if self.kernel is None:
                cleanup(self)
            else:
                finalize(self.kernel)

    def __getattr__(self, name: str) -> Any:
        # Copying and pickling look for methods on objects that have no state yet; they must not wait for a
        # compile.
        if name.startswith("__") or "_settle_lock" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.result(), name)

    def __getitem__(self, grid: Any) -> Any:
        kernel = self.result()
        assert kernel is not None
        return kernel[grid]


def with_kernel_name(error: BaseException, kernel: str) -> BaseException:
    """A copy of `error` that says which kernel it is about; the original collects no tracebacks."""
    try:
        raised = copy.deepcopy(error)
        raised.__cause__, raised.__suppress_context__ = error.__cause__, error.__suppress_context__
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
    """Compile in the background on `executor`, a `concurrent.futures.Executor` of threads.

    Leaving the mode waits for every compile, calls the hooks, and raises the first error unless
    `ignore_errors`.
    """

    def __init__(self, executor: Executor, *, ignore_errors: bool = False) -> None:
        super().__init__(executor, ignore_errors=ignore_errors)
        self.raw_futures: list[Any] = []
        self.future_kernels: dict[str, Any] = {}

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        active_async_mode.set(None)
        pending, self.raw_futures, self.future_kernels = list(self.future_kernels.values()), [], {}
        first: BaseException | None = None
        for kernel in pending:
            try:
                kernel.result(self.ignore_errors)
            except Exception as error:
                first = first or error
        # An error of the body is not hidden by one of a compile.
        if first is not None and exc_type is None:
            raise first


def submit_compile(
    kernel_name: str,
    cache_key: Callable[[], str],
    compile: Callable[[], CompiledKernel],
    finalize: Callable[[CompiledKernel], None],
    cleanup: Callable[[FutureKernel], None] = lambda future: None,
) -> Any:
    """Run `compile` now, or hand it to the active mode.

    Outside an AsyncCompileMode: returns the kernel after `finalize(kernel)`. Inside: returns a future, on
    which `finalize` is called when it is resolved and `cleanup` when the compile failed. `cache_key()`
    identifies the result among all kernels and targets: equal keys compile once. It is asked for inside the
    mode only.
    """
    mode: Any = active_async_mode.get()
    if mode is not None and _is_alive(mode):
        waiting = _submit(mode, kernel_name, cache_key(), compile)
        if waiting is not None:
            waiting.watch(finalize, cleanup)
            return waiting
    kernel = compile()
    finalize(kernel)
    return kernel


def _submit(mode: Any, kernel_name: str, key: str, compile: Callable[[], CompiledKernel]) -> FutureKernel | None:
    """The future for `key` in `mode`; None when its executor was shut down.

    Triton's own mode stays active when it is left by an error.
    """
    with _lock:
        waiting: FutureKernel | None = mode.future_kernels.get(key)
        if waiting is None or waiting.failed:
            # What the caller knows of the launch, to explain the compile, goes along.
            try:
                future = mode.executor.submit(contextvars.copy_context().run, compile)
            except RuntimeError:
                return None
            future._key = key
            waiting = FutureKernel(kernel_name, compile, future)
            mode.raw_futures.append(future)
            mode.future_kernels[key] = waiting
    return waiting


def _is_alive(mode: Any) -> bool:
    """Whether the mode was entered in this process: a forked child inherits it without its threads."""
    owner: int = mode.__dict__.setdefault("_opgraft_owner", os.getpid())
    return owner == os.getpid()
