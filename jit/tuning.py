"""``autotune`` and ``heuristics`` with Triton's interface.

They wrap a kernel; the classes are Triton's own with what differs here: tuning asks the benchmarker and names the
backend of the device that the arguments lie on, whatever driver is active; threads may launch one tuner at once; and
where tensors stand for others (a graph is traced, an op is faked) nothing is timed, see `Autotuner.run`.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from triton.runtime.autotuner import Autotuner as TritonAutotuner
from triton.runtime.autotuner import Config
from triton.runtime.autotuner import Heuristics as TritonHeuristics
from triton.runtime.driver import driver as triton_driver

from . import device, forks, interception
from .launch import Launch

__all__ = ["Autotuner", "Config", "Heuristics", "autotune", "heuristics"]


class _Shared:
    """What wraps a kernel is shared by copies of what holds it, and pickled by name, as kernels are."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__module__ = self._function().__module__  # where pickle looks for the name

    def _function(self) -> Any:
        function: Any = self
        while not inspect.isfunction(function):
            function = function.fn
        return function

    def __copy__(self) -> _Shared:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> _Shared:
        return self

    def __reduce__(self) -> str:
        return str(self._function().__qualname__)


class Autotuner(_Shared, TritonAutotuner):  # type: ignore[misc]
    """A kernel that is compiled and timed with several configurations; the fastest one serves. See `autotune`."""

    def __getitem__(self, grid: Any) -> Launch:
        return Launch(self, grid)

    @property
    def do_bench(self) -> Callable[..., Any]:
        """The function that times a launch: the given one, else the benchmarker of the active driver."""
        if self._do_bench is not None:
            found: Callable[..., Any] = self._do_bench
            return found
        benchmarker: Callable[..., Any] = triton_driver.active.get_benchmarker()
        return benchmarker

    @property
    def nargs(self) -> dict[str, Any] | None:
        """The arguments of the launch that this thread is in the middle of."""
        found: dict[str, Any] | None = _launching.arguments.get(id(self))
        return found

    @nargs.setter
    def nargs(self, value: dict[str, Any] | None) -> None:
        if value is None:
            _launching.arguments.pop(id(self), None)
        else:
            _launching.arguments[id(self)] = value

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch with the best configuration, which the first launch for new key values finds by timing.

        A launch on fake tensors, while a graph is traced or under a torch dispatch mode takes the configuration that
        is known for its key values, else the one that was best at the last launch, else the first one.
        """
        named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        known = self._known_config(named) if len(self.configs) > 1 else self.configs[0]
        if not interception.plain(args, {k: v for k, v in kwargs.items() if k != "grid"}):
            return self._run_without_timing(known, named, args, kwargs)
        with contextlib.nullcontext() if known else _timing, _driver_of(self, args, kwargs):
            return super().run(*args, **kwargs)

    def _run_without_timing(
        self, known: Any, named: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        try:
            config = known or getattr(self, "best_config", None) or self.prune_configs(kwargs)[0]
            if config.pre_hook is not None:
                config.pre_hook({**named, **config.all_kwargs()})
            return self.fn.run(*args, **kwargs, **config.all_kwargs())
        finally:
            self.nargs = None

    def _known_config(self, named: dict[str, Any]) -> Any:
        """The configuration that was found for such arguments, under the key that Triton makes of them."""
        arguments = {name: value for name, value in named.items() if name in self.arg_names}
        values = [arguments[name] for name in self.keys if name in arguments]
        values += [str(value.dtype) for value in arguments.values() if hasattr(value, "dtype")]
        try:
            return self.cache.get(tuple(values))
        except TypeError:  # a symbolic size has no hash
            return None

    def __repr__(self) -> str:
        return f"Autotuner({self.fn!r}, {len(self.configs)} configs, key={self.keys})"


class Heuristics(_Shared, TritonHeuristics):  # type: ignore[misc]
    """A kernel some of whose arguments are computed from the others. See `heuristics`."""

    def __getitem__(self, grid: Any) -> Launch:
        return Launch(self, grid)

    def __repr__(self) -> str:
        return f"Heuristics({self.fn!r}, {', '.join(self.values)})"


# One at a time is timed: launches side by side would slow each other down, and what is restored is kept on the tuner.
_timing = forks.rlock()


class _Launching(threading.local):
    """The arguments of the launches that this thread has begun, by identity of their tuner."""

    def __init__(self) -> None:
        self.arguments: dict[int, dict[str, Any]] = {}


_launching = _Launching()


@contextlib.contextmanager
def _driver_of(tuner: Autotuner, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Make the driver of the arguments' device the active one while its results are timed."""
    place = device.choose(tuner.base_fn.__name__, args, kwargs, tuner.arg_names)
    before = triton_driver.active
    if place.driver is before:
        yield
        return
    triton_driver.set_active(place.driver)
    try:
        yield
    finally:
        triton_driver.set_active(before)


def autotune(
    configs: Sequence[Any],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: int | None = None,
    rep: int | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
) -> Callable[[Any], Autotuner]:
    """Have a kernel tuned: time ``configs`` (`triton.Config`) when the arguments named by ``key`` are new.

    Args:
        prune_configs_by: ``early_config_prune``, ``perf_model`` and ``top_k``, to time fewer configurations.
        reset_to_zero, restore_value: arguments that are zeroed, or restored, around each timed launch.
        pre_hook, post_hook: called around each timed launch instead.
        warmup, rep, use_cuda_graph: deprecated; give ``do_bench``.
        do_bench: ``do_bench(launch, quantiles=...)`` returns times in milliseconds.
        cache_results: keep the times on disk, under a key that holds the kernel's code and the configurations.
    """

    def decorate(fn: Any) -> Autotuner:
        return Autotuner(
            fn,
            fn.arg_names,
            configs,
            key,
            reset_to_zero,
            restore_value,
            pre_hook=pre_hook,
            post_hook=post_hook,
            prune_configs_by=prune_configs_by,
            warmup=warmup,
            rep=rep,
            use_cuda_graph=use_cuda_graph,
            do_bench=do_bench,
            cache_results=cache_results,
        )

    return decorate


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Have arguments of a kernel computed: ``values`` maps names to functions of the arguments by name."""

    def decorate(fn: Any) -> Heuristics:
        return Heuristics(fn, fn.arg_names, values)

    return decorate
