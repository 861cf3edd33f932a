"""Launches that were seen before and are repeated in C, without this runtime's Python code.

After a launch went through `JITFunction.run`, `Memory.after_launch` gives its compiled kernel to the kernel's
dispatcher (`native.Dispatcher`), which from then on recognizes such calls by their arguments alone. Everything else that the
result of a launch depends on is watched: a dispatcher checks, by identity and before every launch, that nothing of it
changed, and hands the call back to `run` when something did.

| what | watched by |
| --- | --- |
| hooks, debugging and instrumentation knobs, the active driver, `interception.all_launches` | the environment, for all kernels |
| a replaced `run`, pre-run hooks, `debug`, the caches of compiled kernels, an edited source | each entry |
| globals and closure variables that the kernel and what it calls read | each entry |
| torch dispatch modes, `torch.func`, tensor subclasses, tensors without memory | the dispatcher itself, by the arguments |
"""  # noqa: E501 (a table)

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from triton import knobs
from triton.runtime.driver import driver as triton_driver
from triton.runtime.jit import JITCallable as TritonJITCallable

from . import compat, forks, interception
from .dependencies import ABSENT, CellScope
from .native import ready
from .native.launch_hooks import no_hook_watches

# Classes of constants that a dispatcher keys by value.
_BY_VALUE = frozenset({int, bool, float, str, type(None)})
_SUPPORTED_DRIVERS = {"cpu": "opgraft.jit.backends.cpu.driver", "cuda": "triton.backends.nvidia.driver"}

_lock = forks.lock()


class Memory:
    """What one kernel remembers: its dispatcher, once a launch was remembered, and how long not to try again."""

    __slots__ = ("_failures", "_wait", "dispatcher", "kernel")

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.dispatcher: Any = None
        self._failures = 0
        self._wait = 0

    def after_launch(
        self,
        place: Any,
        key: str,
        compiled: Any,
        args: tuple[Any, ...],
        options: Mapping[str, Any],
        arguments: Mapping[str, Any],
    ) -> None:
        """Have a launch that was just made repeated in C, if that is possible.

        Looking into that takes 20 us or more, so after n failures in a row the next 2**n launches are let pass.

        Args:
            place, key: the device of the launch, and the key under which ``compiled`` is cached.
            args, options: the arguments as they were given: positional and by keyword.
            arguments: the same as the kernel takes them, by name.
        """
        if self._wait:
            self._wait -= 1
            return
        if not ready():
            return
        if self._remember(place, key, compiled, args, options, arguments):
            self._failures = 0
        else:
            self._failures = min(self._failures + 1, 12)
            self._wait = 2**self._failures

    def _remember(
        self,
        place: Any,
        key: str,
        compiled: Any,
        args: tuple[Any, ...],
        options: Mapping[str, Any],
        arguments: Mapping[str, Any],
    ) -> bool:
        from .compiled import CompiledKernel
        from .function import ORDINARY_RUN

        kernel = self.kernel
        if type(compiled) is not CompiledKernel:
            return False
        if type(place.driver).__module__ != _SUPPORTED_DRIVERS.get(place.kind):
            return False
        if type(kernel).run is not ORDINARY_RUN or any(compat.implicit_options().values()):
            return False
        if not _environment_is_known():
            return False
        dispatcher = self.dispatcher or _make_dispatcher(kernel)
        if dispatcher is None:
            return False
        watches = _kernel_watches(kernel, place, key, compiled)
        substitutes = {}
        for name, value in _as_given(kernel, args, options).items():
            found = _constant_watches(value)
            if found is None:
                return False
            watches += found
            if name in arguments and arguments[name] is not value:
                substitutes[name] = arguments[name]
        try:
            handle = compiled.handle()
        except TypeError:
            return False  # a tensor descriptor: its parts are worked out in Python
        new = dispatcher.remember(args, dict(options), handle, compiled, watches, substitutes or None)
        self.dispatcher = dispatcher
        # A launch that was remembered before and still came here is one whose watches do not hold.
        return bool(new)


def _as_given(kernel: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {param.name: param.default for param in kernel.params if param.has_default}
    return {**defaults, **dict(zip(kernel.arg_names, args, strict=False)), **options}


def _make_dispatcher(kernel: Any) -> Any:
    """A dispatcher for ``kernel``; None when its signature is too unusual or there is no extension."""
    from .native import extension

    native: Any = extension()
    kinds = [parameter.kind for parameter in kernel.signature.parameters.values()]
    usual = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if native is None or len(kinds) > 256 or any(kind not in usual for kind in kinds):
        return None
    if {"grid", "warmup"} & set(kernel.arg_names):
        return None
    parameters = tuple(
        (
            param.name,
            param.is_constexpr,
            not param.do_not_specialize,
            not param.do_not_specialize_on_alignment,
            param.has_default,
            param.default if param.has_default else None,
        )
        for param in kernel.params
    )
    return native.Dispatcher(kernel, kernel._fn_name, parameters, kinds.count(usual[0]))


def _kernel_watches(kernel: Any, place: Any, key: str, compiled: Any) -> list[tuple[Any, Any, Any]]:
    missing = _missing()
    own = kernel.__dict__
    kernels = kernel.device_caches[place.key][0]
    watches: list[tuple[Any, Any, Any]] = [
        (cls, "run", cls.__dict__.get("run", missing)) for cls in _classes_with_run(kernel)
    ]
    watches.append((own, "run", missing))
    watches += [(own, name, own.get(name, missing)) for name in ("debug", "pre_run_hooks", "cache_key", "_reads")]
    watches.append((kernel.pre_run_hooks, None, None))
    watches.append((own, "device_caches", kernel.device_caches))
    watches.append((kernel.device_caches, place.key, kernel.device_caches[place.key]))
    watches.append((kernels, key, compiled))
    for read in own.get("_reads", ()):
        watches.append(_read_watch(read))
    return watches


def _classes_with_run(kernel: Any) -> list[type]:
    """The classes that decide what `kernel.run` is, down to the one that has it."""
    classes = type(kernel).__mro__
    last = next(index for index, cls in enumerate(classes) if "run" in cls.__dict__)
    return list(classes[: last + 1])


def _read_watch(read: Any) -> tuple[Any, Any, Any]:
    """A watch for a variable that the kernel reads: by identity, or by asking where it can change in place."""
    if read.seen is ABSENT:
        return read.changed, None, None
    if isinstance(read.scope, CellScope):
        return read.scope.cell, None, read.seen
    if type(read.scope) is dict:
        return read.scope, read.name, read.seen
    return read.changed, None, None


def _constant_watches(value: Any) -> list[tuple[Any, Any, Any]] | None:
    """What to watch so that the identity of an argument says what it is worth; None: it never does."""
    kind = type(value)
    if kind in _BY_VALUE or kind.__name__ == "dtype" or hasattr(value, "data_ptr"):
        return []
    if isinstance(value, TritonJITCallable):
        own = value.__dict__
        reads = own.get("_reads")
        if reads is None:
            return None  # a stock function: its globals are copied by Triton
        watches = [(own, "cache_key", own.get("cache_key", _missing())), (own, "_reads", reads)]
        return watches + [_read_watch(read) for read in reads]
    return None


def _missing() -> Any:
    from .native import extension

    native: Any = extension()
    return native.MISSING


# -- The environment -----------------------------------------------------------------------------------------


def _environment_is_known() -> bool:
    """Whether nothing is set that a launch in C would pass over; what is set else is watched from now on."""
    from .native import extension

    native: Any = extension()
    if native is None:
        return False
    if native.environment_holds():
        return True
    watches = _environment_watches()
    if watches is None:
        return False
    with _lock:
        if not native.environment_holds():
            native.environment_set(watches)
    return bool(native.environment_holds())


def _environment_watches() -> list[tuple[Any, Any, Any]] | None:
    """Watches for everything that `JITFunction.run` looks at besides its arguments; None while a hook is set."""
    missing = _missing()
    runtime, compilation = knobs.runtime, knobs.compilation
    watches: list[tuple[Any, Any, Any]] = [
        (vars(knobs), "compilation", compilation),
        (vars(interception), "observers", interception.observers),
    ]
    if interception.observers or getattr(runtime, "add_stages_inspection_hook", None) is not None:
        return None
    no_hooks = no_hook_watches(missing)
    if no_hooks is None:
        return None
    watches += no_hooks
    for name in ("debug", "add_stages_inspection_hook"):
        watches.append((vars(runtime), name, vars(runtime).get(name, missing)))
    for name in compat.implicit_options():
        watches.append((vars(compilation), name, vars(compilation).get(name, missing)))
        variable = compat.knob_variable(compilation, name)
        if variable is not None:
            variables, encoded = variable
            watches.append((variables, encoded, variables.get(encoded, missing)))
    if hasattr(triton_driver, "_active"):
        watches.append((vars(triton_driver), "_active", triton_driver._active))
    return watches
