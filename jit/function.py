"""`JITFunction`: a kernel, and the life of its launches.

``kernel[grid](*args, **kwargs)`` comes to `JITFunction.run`: choose the device, bind the arguments, find the
compiled kernel by its key or compile it, check that globals have not changed, launch.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from triton import knobs
from triton._C.libtriton import get_cache_invalidating_env_vars
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource as TritonASTSource
from triton.compiler.errors import CompilationError
from triton.runtime.jit import JITFunction as TritonJITFunction

from . import compat, device, events, grid, hooks, interception, keys, registry
from .async_compile import FutureKernel, submit_compile
from .binder import Binder, PlainBinder, make_binder, make_plain_binder, with_hint
from .callable import JITCallable
from .compile import compile
from .compile_hints import add_hints
from .compiled import CompiledKernel
from .device import Device
from .drivers import backend_for
from .hooks import Variant
from .launch import KernelInterface, Launch
from .params import parameters
from .paths import constants_and_attributes
from .remembered import Memory
from .single_flight import SingleFlight
from .store_key import store_hash

# Keywords that Triton once took and that would be silently ignored.
_REMOVED = {
    "device_type": "device_type option is deprecated; current target will be used",
    "device": "device option is deprecated; current device will be used",
    "stream": "stream option is deprecated; current stream will be used",
}


class DeviceCaches(defaultdict[Any, Any]):
    """Device key -> ``(kernels, first keys, target, backend, binder)``, made when a device is first used."""

    def __init__(self, kernel: JITFunction) -> None:
        super().__init__()
        self.kernel = kernel

    def __missing__(self, key: Any) -> Any:
        place = device.by_key(key)
        if place.key != key:
            # The active driver's device by its name.
            return self[place.key]
        return self.setdefault(key, self.kernel._device_cache(place.target()))


class JITFunction(JITCallable, KernelInterface[Any], TritonJITFunction):  # type: ignore[misc]
    """A kernel written in the Triton language. Made by `jit`, launched by ``kernel[grid](...)``.

    It is a `triton.runtime.jit.JITFunction` to everything that asks, with the same attributes.
    """

    ASTSource: Any = TritonASTSource
    CompiledKernel: Any = CompiledKernel
    compile: Any = staticmethod(compile)

    def __init__(
        self,
        fn: Callable[..., Any],
        version: Any = None,
        do_not_specialize: Iterable[int | str] | None = None,
        do_not_specialize_on_alignment: Iterable[int | str] | None = None,
        debug: bool | None = None,
        noinline: bool | None = None,
        repr: Callable[[Any], str] | None = None,
        launch_metadata: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(fn)
        self.module = fn.__module__
        self.version = version
        self.do_not_specialize = _entries(do_not_specialize)
        self.do_not_specialize_on_alignment = _entries(do_not_specialize_on_alignment)
        self.debug = debug
        self.noinline = noinline
        self._repr = repr
        self.launch_metadata = launch_metadata
        self.params = parameters(
            self._fn_name, self.signature, self.do_not_specialize, self.do_not_specialize_on_alignment
        )
        self.arg_names = [param.name for param in self.params]
        self.constexprs = [param.num for param in self.params if param.is_constexpr]
        self.kernel = None
        self.pre_run_hooks: list[Callable[..., Any]] = []
        self.device_caches = DeviceCaches(self)
        self._variant_caches: dict[tuple[GPUTarget, int], tuple[Any, ...]] = {}
        self._flights: SingleFlight[Any] = SingleFlight()
        self._plain_binder: PlainBinder | None = None
        self._memory = Memory(self)
        known = compat.function_registry()
        if known is not None:
            known[registry.qualified_name(self)] = self

    def is_gluon(self) -> bool:
        """Whether it is written in Triton's Gluon language."""
        return False

    def repr(self, specialization: Any) -> str:
        """The name of the compiled function, for a ``(constants, signature)`` pair."""
        return self._fn_name if self._repr is None else self._repr(specialization)

    def add_pre_run_hook(self, hook: Callable[..., Any]) -> None:
        """Have ``hook(*args, **kwargs)`` called with the arguments of every launch and warmup, before it."""
        if not callable(hook):
            raise TypeError(f"{self._fn_name}: a pre-run hook is a function, got {hook!r}")
        self.pre_run_hooks.append(hook)

    def __getitem__(self, grid: Any) -> Any:
        """The kernel on a grid, to be called with its arguments. What was launched before is launched in C."""
        dispatcher = self._memory.dispatcher
        return Launch(self, grid) if dispatcher is None else dispatcher.at(grid)

    # -- A call ----------------------------------------------------------------------------------------------

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Launch on ``grid`` or, with ``warmup``, only compile. Returns the compiled kernel.

        Returns None when a compile hook vetoed the compile. Keywords that are not parameters are options of
        the compiler (``num_warps``, ...).
        """
        dispatcher = self._memory.dispatcher
        if dispatcher is not None and not warmup:
            launched = dispatcher.launch(grid, args, kwargs)
            if launched is not NotImplemented:
                return launched
        given = dict(kwargs)
        kwargs["debug"] = kwargs.get("debug", self.debug) or knobs.runtime.debug
        kwargs.update(compat.implicit_options())
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        if interception.wanted(args, kwargs):
            arguments, options = self.bind(args, kwargs)
            result = interception.offer(self, grid, arguments, options, warmup)
            if result is not NotImplemented:
                return result
        if not self.check_dependencies():
            self._forget_kernels()
        place = device.choose(self._fn_name, args, kwargs, self.arg_names)
        if place.is_current():
            return self._run_on(place, args, kwargs, given, grid, warmup)
        with place.current():
            return self._run_on(place, args, kwargs, given, grid, warmup)

    def _run_on(
        self,
        place: Device,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        given: dict[str, Any],
        shape: Any,
        warmup: bool,
    ) -> Any:
        """The launch on one device. ``given`` are the keywords as they were passed."""
        kernels, first_keys, target, backend, binder = self.device_caches[place.key]
        try:
            arguments, specialization, options = binder(*args, **kwargs)
        except TypeError as error:
            raise with_hint(error, self.signature, given) from None
        pipeline = compat.stages_inspection()
        if pipeline is not None:
            specialization.append(f'("custom_pipeline", {pipeline[1]})')
        key = keys.compute_cache_key(first_keys, specialization, options)
        kernel = kernels.get(key)
        if kernel is None:
            parsed, signature, constexprs, attrs = self._pack_args(backend, kwargs, arguments, specialization, options)
            kernel = self._compiled_variant(target, place.index, signature, constexprs, attrs, parsed)
            if kernel is None:
                try:
                    with events.launch_arguments(arguments):
                        kernel = self._do_compile(key, signature, place.key, constexprs, parsed, attrs, warmup)
                except CompilationError as error:
                    add_hints(error, arguments)
                    raise
            if kernel is None:
                return None
            kernels[key] = kernel
        if warmup:
            return kernel
        if isinstance(kernel, FutureKernel):
            kernel = kernel.result()
        sizes = grid.resolve(self._fn_name, shape, arguments)
        self._launch(kernel, sizes, place, arguments)
        self._memory.after_launch(place, key, kernel, args, given, arguments)
        return kernel

    def _launch(self, kernel: Any, sizes: tuple[int, int, int], place: Device, arguments: dict[str, Any]) -> None:
        stream = place.stream()
        values = arguments.values()
        metadata = kernel.launch_metadata(sizes, stream, *values)
        run = kernel.run
        run(
            *sizes,
            stream,
            kernel.function,
            kernel.packed_metadata,
            metadata,
            knobs.runtime.launch_enter_hook,
            knobs.runtime.launch_exit_hook,
            *values,
        )

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Compile for these arguments, launching and allocating nothing; returns the compiled kernel.

        Dtypes, `MockTensor` and fake tensors stand for tensors.
        """
        from .warmup import wrap

        constants = self.constexprs
        wrapped = [value if num in constants else wrap(value) for num, value in enumerate(args)]
        names = {self.arg_names[num] for num in constants}
        ordinary = set(self.arg_names) - names
        named = {name: wrap(value) if name in ordinary else value for name, value in kwargs.items()}
        return self.run(*wrapped, grid=grid, warmup=True, **named)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments by parameter name, defaults included, and the other keywords. No value is looked at."""
        if self._plain_binder is None:
            self._plain_binder = make_plain_binder(self.__name__, self.signature)
        try:
            return self._plain_binder(*args, **kwargs)
        except TypeError as error:
            raise with_hint(error, self.signature, kwargs) from None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"Cannot call @triton.jit'd outside of the scope of a kernel: launch {self.__name__} with"
            f" {self.__name__}[grid](...)"
        )

    # -- Compiling -------------------------------------------------------------------------------------------

    def variant(
        self,
        device_or_target: Any,
        signature: Mapping[str, Any],
        constexprs: Mapping[Any, Any],
        attrs: Mapping[tuple[int, ...], Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Compile one specialization without arguments, or fetch it; returns a `CompiledKernel`.

        Args:
            device_or_target: a ``GPUTarget``, a torch device or its name (``"cpu"``, ``"cuda:1"``), or None for the
                active driver's current device.
            signature: parameter name to type (``"*fp32"``, ``"i32"``, ``"constexpr"``, tuples of these).
            constexprs: name, index or path (``(index,)``, ``(index, place in tuple)``) to value.
            attrs: path to attributes, ``[["tt.divisibility", 16]]``; none by default.
            options: compile options by name.

        Raises ValueError when a parameter has no type or a constexpr no value, KeyError for an unknown option.
        """
        if not self.check_dependencies():
            self._forget_kernels()
        target, index = self._target_of(device_or_target)
        types = self._checked_signature(signature)
        constants = self._constant_paths(types, constexprs)
        assumptions = dict(attrs or {})
        given = dict(options or {})
        given.setdefault("debug", bool(self.debug or knobs.runtime.debug))
        given = {**compat.implicit_options(), **given}
        kernels, _, _, backend, _ = self._variant_cache(target, index)
        parsed = self._parse_options(backend, given)
        key = _variant_key(types, constants, assumptions, parsed)
        kernel = kernels.get(key)
        if kernel is None:
            kernel = self._compile_once(
                key, kernels, types, target, backend, index, constants, parsed, assumptions, True
            )
        return kernel

    def _compiled_variant(
        self,
        target: GPUTarget,
        index: int,
        signature: Mapping[str, Any],
        constexprs: Mapping[tuple[int, ...], Any],
        attrs: Mapping[tuple[int, ...], Any],
        options: Any,
    ) -> Any:
        """What `variant` compiled for an equal specialization, or None."""
        found = self._variant_caches.get((target, index))
        return found and found[0].get(_variant_key(signature, constexprs, attrs, options))

    def _forget_kernels(self) -> None:
        """A function that the kernel calls was replaced by another: what was compiled is of no use now."""
        for caches in (self.device_caches, self._variant_caches):
            for kernels, *_ in list(caches.values()):
                kernels.clear()

    def _device_cache(self, target: GPUTarget) -> tuple[Any, ...]:
        backend = backend_for(target)
        binder: Binder = make_binder(self.__name__, self.signature, self.params, backend)
        return {}, {}, target, backend, binder

    def create_binder(self) -> tuple[Any, ...]:
        """Caches and binder for the active driver's current device (see `DeviceCaches`)."""
        return self._device_cache(device.active().target())

    def _pack_args(
        self,
        backend: Any,
        kwargs: Mapping[str, Any],
        bound_args: Mapping[str, Any],
        specialization: list[Any],
        options: Mapping[str, Any],
    ) -> tuple[Any, dict[str, Any], dict[tuple[int, ...], Any], dict[tuple[int, ...], Any]]:
        """Options, signature, constants and attributes of a call, as the compiler takes them."""
        parsed = self._parse_options(backend, kwargs)
        entries = specialization[: len(self.params)]
        signature = {name: entry[0] for name, entry in zip(self.arg_names, entries, strict=True)}
        constexprs, attrs = constants_and_attributes(entries, list(bound_args.values()), backend)
        return parsed, signature, constexprs, attrs

    def _parse_options(self, backend: Any, given: Mapping[str, Any]) -> Any:
        for name, message in _REMOVED.items():
            if name in given and name not in self.arg_names:
                raise AssertionError(f"{self._fn_name}: {message}")
        parsed = backend.parse_options(dict(given))
        known = {*parsed.__dict__, *self.arg_names}
        for name in given:
            if name not in known:
                raise keys.unknown_option(name, known)
        return parsed

    def _do_compile(
        self,
        key: str,
        signature: dict[str, Any],
        device: Any,
        constexprs: dict[tuple[int, ...], Any],
        options: Any,
        attrs: dict[tuple[int, ...], Any],
        warmup: bool,
    ) -> Any:
        """Compile for a device's target and put the kernel, or its future, into the device's cache."""
        kernels, _, target, backend, _ = self.device_caches[device]
        index = device if isinstance(device, int) else 0
        return self._compile_once(key, kernels, signature, target, backend, index, constexprs, options, attrs, warmup)

    def _compile_once(
        self,
        key: str,
        kernels: dict[str, Any],
        signature: dict[str, Any],
        target: GPUTarget,
        backend: Any,
        index: int,
        constexprs: dict[tuple[int, ...], Any],
        options: Any,
        attrs: dict[tuple[int, ...], Any],
        warmup: bool,
    ) -> Any:
        def compile_it() -> Any:
            kernel = kernels.get(key)
            if kernel is not None:
                # Compiled by another thread just before this one came.
                return kernel
            wanted = Variant(key, signature, constexprs, attrs, options, target, index)
            if hooks.before_compile(self, wanted, is_warmup=warmup):
                return None
            source = self.ASTSource(self, signature, constexprs, attrs)
            env_vars = get_cache_invalidating_env_vars()

            def build() -> CompiledKernel:
                built: CompiledKernel = self.compile(
                    source, target=target, options=options.__dict__, _env_vars=env_vars
                )
                return built

            def finish(kernel: CompiledKernel) -> None:
                kernels[key] = kernel
                hooks.after_compile(self, wanted, is_warmup=warmup)

            def forget(future: FutureKernel) -> None:
                if kernels.get(key) is future:
                    del kernels[key]

            def identity() -> str:
                return store_hash(source, target, backend, options, env_vars)

            kernel = submit_compile(self._fn_name, identity, build, finish, forget)
            return kernels.setdefault(key, kernel)

        return self._flights.run((id(kernels), key), compile_it)[0]

    def preload(self, specialization_data: str) -> Any:
        """Compile the variant that ``specialization_data`` describes, as a compile hook received it.

        Raises RuntimeError when it is for another kernel or target.
        """
        from .preload import is_for_cpu, load_specialization

        # CPU variants can be preloaded also where the active driver is CUDA.
        place = device.of_kind("cpu", None) if is_for_cpu(specialization_data) else device.active()
        _, _, target, backend, _ = self.device_caches[place.key]
        found = load_specialization(self, specialization_data, target, backend, place.index)
        return self._do_compile(
            found.key, found.signature, place.key, found.constexprs, found.options, found.attrs, warmup=True
        )

    # -- Variants --------------------------------------------------------------------------------------------

    def _target_of(self, device_or_target: Any) -> tuple[GPUTarget, int]:
        if isinstance(device_or_target, GPUTarget):
            return device_or_target, 0
        if device_or_target is None:
            place = device.active()
            return place.target(), place.index
        kind = getattr(device_or_target, "type", None)
        index = getattr(device_or_target, "index", None)
        if kind is None:
            kind, _, number = str(device_or_target).partition(":")
            index = int(number) if number else None
        place = device.of_kind(kind, index)
        return place.target(), place.index

    def _variant_cache(self, target: GPUTarget, index: int) -> tuple[Any, ...]:
        found = self._variant_caches.get((target, index))
        if found is None:
            found = self._variant_caches.setdefault((target, index), self._device_cache(target))
        return found

    def _checked_signature(self, signature: Mapping[str, Any]) -> dict[str, Any]:
        missing = [name for name in self.arg_names if name not in signature]
        surplus = [name for name in signature if name not in self.arg_names]
        if missing or surplus:
            raise ValueError(
                f"{self._fn_name}: the signature needs a type for each of {', '.join(self.arg_names)};"
                f" missing: {', '.join(missing) or 'none'}, unknown: {', '.join(surplus) or 'none'}"
            )
        return {name: signature[name] for name in self.arg_names}

    def _constant_paths(
        self, signature: Mapping[str, Any], constexprs: Mapping[Any, Any]
    ) -> dict[tuple[int, ...], Any]:
        found: dict[tuple[int, ...], Any] = {}
        for at, value in constexprs.items():
            place = self.arg_names.index(at) if isinstance(at, str) else at
            found[place if isinstance(place, tuple) else (place,)] = value
        for num, (name, kind) in enumerate(signature.items()):
            if kind == "constexpr" and (num,) not in found:
                default = self.params[num].default
                if default is inspect.Parameter.empty:
                    raise ValueError(f"{self._fn_name}: the constexpr {name!r} has no value")
                found[num,] = default
        return dict(sorted(found.items()))

    # -- Python ----------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"JITFunction({self._shown_name()})"


def _variant_key(
    signature: Mapping[str, Any],
    constexprs: Mapping[tuple[int, ...], Any],
    attrs: Mapping[tuple[int, ...], Any],
    options: Any,
) -> str:
    """The key of a specialization as the compiler takes it."""
    pipeline = compat.stages_inspection()
    assumed = {path: attributes for path, attributes in attrs.items() if attributes}
    return keys.key_text([dict(signature), dict(constexprs), assumed, pipeline], options.__dict__)


ORDINARY_RUN = JITFunction.run
"""`run` as it stands here: a launch is repeated in C only where nobody put another in its place."""


def _entries(listed: Iterable[int | str] | None) -> list[int | str]:
    if listed is None:
        return []
    return [listed] if isinstance(listed, (str, int)) else list(listed)
