"""``jit``: the decorator of kernels, and the way to give an existing kernel this runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, overload

from triton import knobs

from .function import JITFunction


@overload
def jit(fn: Callable[..., Any]) -> JITFunction: ...


@overload
def jit(
    *,
    version: Any = None,
    repr: Callable[[Any], str] | None = None,
    launch_metadata: Callable[..., Any] | None = None,
    do_not_specialize: Iterable[int | str] | None = None,
    do_not_specialize_on_alignment: Iterable[int | str] | None = None,
    debug: bool | None = None,
    noinline: bool | None = None,
) -> Callable[[Callable[..., Any]], JITFunction]: ...


def jit(
    fn: Any = None,
    *,
    version: Any = None,
    repr: Callable[[Any], str] | None = None,
    launch_metadata: Callable[..., Any] | None = None,
    do_not_specialize: Iterable[int | str] | None = None,
    do_not_specialize_on_alignment: Iterable[int | str] | None = None,
    debug: bool | None = None,
    noinline: bool | None = None,
) -> Any:
    """Make a kernel of a function written in the Triton language.

    Arguments are those of ``triton.jit``: ``repr`` names the compiled function, ``launch_metadata`` makes
    what profilers show, ``do_not_specialize`` and ``do_not_specialize_on_alignment`` list parameters by name
    or index, ``debug`` keeps device assertions, ``noinline`` keeps the function apart where it is called.

    ``fn`` may be a kernel already: one of Triton or Gluon, also inside ``autotune`` and ``heuristics``. The
    result is the same kernel on this runtime; options given here replace its own. With ``TRITON_INTERPRET=1``
    the result is Triton's interpreter.

    Raises ValueError when the function has no source file or a list names a parameter that does not exist.
    """
    options = {
        "version": version,
        "repr": repr,
        "launch_metadata": launch_metadata,
        "do_not_specialize": do_not_specialize,
        "do_not_specialize_on_alignment": do_not_specialize_on_alignment,
        "debug": debug,
        "noinline": noinline,
    }

    def decorate(function: Any) -> Any:
        from triton.runtime.jit import KernelInterface

        if isinstance(function, KernelInterface):
            from .adoption import adopt

            given = {name: value for name, value in options.items() if value is not None}
            return adopt(function, given)
        if knobs.runtime.interpret:
            from .interpreted import InterpretedFunction

            return InterpretedFunction(function, **options)
        return JITFunction(function, **options)

    return decorate if fn is None else decorate(fn)
