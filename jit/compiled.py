"""A compiled kernel: its stages, metadata and, once it is first used, its loaded function.

`CompiledKernel` is what `compile` returns and what a launch returns. It is a subclass of Triton's class and
has every attribute that tools read there (`asm`, `metadata`, `packed_metadata`, `metadata_group`, `hash`,
`name`, `kernel`, `src`, `module`, `function`, `n_regs`, `n_spills`, `n_max_threads`, `run`,
`launch_metadata`, `[grid]`). It differs in that it loads through the driver of its own target, whichever
driver is active, that loading is safe in threads, and that it knows which arguments the kernel writes
(`written`) and how to launch itself in C (`handle`).
"""

from __future__ import annotations

import copy
import functools
import json
import os
import threading
from collections import namedtuple
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import AsmDict, LazyDict
from triton.compiler.compiler import CompiledKernel as TritonCompiledKernel
from triton.runtime.errors import OutOfResources

from . import compat, notes
from .argument_paths import argument_paths, pointer_paths
from .drivers import activated, backend_for, driver_for
from .launch_codes import launch_codes, launched_arguments
from .pipeline import expand_paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from triton.backends.driver import DriverBase

    from .native import Handle
    from .written_arguments import WrittenArguments

# Blackwell's tensor memory, in columns.
_MAX_TENSOR_MEMORY = 512


def _raise_copy(error: BaseException, *args: object, **kwargs: object) -> NoReturn:
    """Raise a copy of `error`, so that the stored one collects no traceback and keeps no frame alive."""
    raise copy.deepcopy(error)


class _LateCall:
    """Call what a context variable (or a holder with `get`) holds at the time of the call."""

    def __init__(self, holder: Any) -> None:
        self._holder = holder

    def __call__(self, *args: Any) -> Any:
        return self._holder.get()(*args)


class CompiledKernel(TritonCompiledKernel):  # type: ignore[misc]
    """A kernel compiled for one target and one specialization.

    `metadata_group` maps file names of the entry to paths; `contents` maps the same names to what was read
    and verified (without it the files are read from the paths).
    """

    def __init__(
        self,
        src: Any,
        metadata_group: dict[str, str],
        hash: str,
        *,
        contents: dict[str, bytes] | None = None,
        facts: dict[str, Any] | None = None,
    ) -> None:
        if contents is None:
            contents = {name: Path(path).read_bytes() for name, path in metadata_group.items()}
        text = next(data for name, data in contents.items() if name.endswith(".json")).decode()
        metadata = json.loads(expand_paths(text))
        target = metadata["target"]
        metadata["target"] = GPUTarget(target["backend"], target["arch"], target["warp_size"])
        make_fields: Any = namedtuple
        fields = make_fields("KernelMetadata", sorted(metadata))
        self.metadata: Any = fields(**metadata)
        self._target: GPUTarget = metadata["target"]
        backend = backend_for(self._target)
        self.packed_metadata = backend.pack_metadata(self.metadata)
        self.src = src
        self.hash = hash
        self.name: str = self.metadata.name
        self.metadata_group = metadata_group
        binary = backend.binary_ext
        self.asm = AsmDict(
            (stage, data if stage == binary else data.decode())
            for stage, data in ((Path(name).suffix[1:], data) for name, data in contents.items())
            if stage != "json"
        )
        self.kernel: bytes = self.asm[binary]
        self.module: Any = None
        self.function: Any = None
        self._run: Any = None
        self._facts = {} if facts is None else facts
        self._handle: Any = None
        self._device = 0
        self._load_lock = threading.RLock()
        # The process that loaded the module: a forked child must not unload it.
        self._module_pid: int | None = None

    def __del__(self) -> None:
        # Function pointers may have been handed out (see `handle`), so the module stays loaded.
        pass

    def __copy__(self) -> CompiledKernel:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledKernel:
        # Nothing in it changes but what loading fills in, once.
        return self

    def __getattr__(self, name: str) -> Any:
        # What only loading tells.
        if name in ("n_regs", "n_spills", "n_max_threads"):
            self._init_handles()
            return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def driver(self) -> DriverBase:
        """The driver of this kernel's target."""
        return driver_for(self._target)

    def _init_handles(self) -> None:
        if self._module_pid is not None:
            return
        with self._load_lock:
            if self._module_pid is None:
                self._load()

    def _fail(self, error: Exception) -> NoReturn:
        self._run = functools.partial(_raise_copy, copy.deepcopy(error))
        raise error

    def _load(self) -> None:
        driver: Any = self.driver
        # The function belongs to this device's context, whichever is current at a launch.
        device = self._device = driver.get_current_device()
        if self._target.backend == "cpu":
            run = driver.launcher_cls(self.src, self.metadata)
        else:
            with activated(driver):
                run = compat.signed_bytes(driver.launcher_cls(self.src, self.metadata), self.src.signature)
        available = driver.utils.get_device_properties(device)["max_shared_mem"]
        if self.metadata.shared > available:
            self._fail(OutOfResources(self.metadata.shared, available, "shared memory"))
        tensor_memory = getattr(self.metadata, "tmem_size", None)
        if tensor_memory is not None and tensor_memory > _MAX_TENSOR_MEMORY:
            self._fail(OutOfResources(tensor_memory, _MAX_TENSOR_MEMORY, "tensor memory"))
        event = (self.name, self.metadata_group, self.hash)
        if knobs.runtime.kernel_load_start_hook is not None:
            knobs.runtime.kernel_load_start_hook(None, None, *event)
        module, function, self.n_regs, self.n_spills, self.n_max_threads = driver.utils.load_binary(
            self.name, self.kernel, self.metadata.shared, device
        )
        threads = self.metadata.num_warps * self._target.warp_size
        if threads > self.n_max_threads:
            self._fail(OutOfResources(threads, self.n_max_threads, "threads"))
        if knobs.runtime.kernel_load_end_hook is not None:
            knobs.runtime.kernel_load_end_hook(module, function, *event)
        self.module, self.function, self._run = module, function, run
        self._module_pid = os.getpid()

    @property
    def written(self) -> WrittenArguments:
        """Which arguments of the compiled function are written and read, by index.

        The function's arguments are those of the signature without constexprs, tuples flattened. Found when
        the kernel was compiled and stored with it.
        """
        with self._load_lock:
            found = self._read_written()
            if found is None:
                self._facts = self._analyse()
                found = self._read_written()
        assert found is not None
        return found

    @property
    def written_paths(self) -> frozenset[tuple[int, ...]]:
        """The arguments of the call that are written, by path: `(index,)`, or `(index, place in tuple, ...)`."""
        found = self.written
        paths = argument_paths(self.src.signature, found.names)
        if paths is None:
            return frozenset(pointer_paths(self.src.signature))
        return frozenset(paths[index] for index in found.written)

    def _read_written(self) -> WrittenArguments | None:
        return notes.written(self._facts, self.src.signature)

    def _analyse(self) -> dict[str, Any]:
        """Facts from the IR among the stages, for a kernel that was stored without them or by another version."""
        stage = next((stage for stage in notes.STAGES if stage in self.asm), None)
        if stage is None:
            raise ValueError(
                f"{self.name}: what it writes is not known, since it was stored without its IR"
                " (TRITON_STORE_BINARY_ONLY); compile it again without"
            )
        from .sources import parse_module

        module, context = parse_module(self.asm[stage], stage, backend_for(self._target))
        return notes.collect(module, context)

    def handle(self, fallback: Callable[..., Any] | None = None, *, constants: bool = True) -> Handle:
        """This kernel as a callable in C, `handle(stream, *arguments, grid0, grid1, grid2)`.

        The arguments are those of the signature, tuples flattened, constexprs and None included; without
        `constants` those two are left out. A call whose arguments do not fit this specialization goes to
        `fallback`. Launch hooks are called as for any launch.

        Raises TypeError for a kernel that takes tensor descriptors.
        """
        with self._load_lock:
            if fallback is None and constants and self._handle is not None:
                kept: Handle = self._handle
                return kept
            self._init_handles()
            made = self._make_handle(fallback, constants)
            if fallback is None and constants:
                self._handle = made
            return made

    def _make_handle(self, fallback: Callable[..., Any] | None, constants: bool) -> Handle:
        from .native import make_handle

        codes, names = launch_codes(self.src)
        if not constants:
            kept = [place for place, code in enumerate(codes) if code not in "xN"]
            codes, names = "".join(codes[place] for place in kept), tuple(names[place] for place in kept)
        data = self.metadata

        def scratch(kind: str) -> tuple[int, int, Any] | None:
            size = getattr(data, f"{kind}_scratch_size", 0)
            if not size:
                return None
            # The allocator is asked for at each launch: it belongs to the context of the caller.
            return (
                size * data.num_ctas,
                getattr(data, f"{kind}_scratch_align", 1),
                _LateCall(compat.scratch_allocators()[kind]),
            )

        handle: Handle = make_handle(
            "cpu" if self._target.backend == "cpu" else self._target.backend,
            self.function,
            codes,
            name=self.name,
            argument_names=names,
            fallback=fallback,
            owner=self,
            threads=data.num_warps * self._target.warp_size,
            shared=data.shared,
            num_ctas=data.num_ctas,
            cooperative=bool(getattr(data, "launch_cooperative_grid", False)),
            dependent=bool(getattr(data, "launch_pdl", False)),
            device=None if self._target.backend == "cpu" else self._device,
            after_launch=self._fault_check(),
            describe=functools.partial(self._describe_launch, constants),
            global_scratch=scratch("global"),
            profile_scratch=scratch("profile"),
        )
        return handle

    def _describe_launch(self, constants: bool, stream: int, *arguments: Any) -> LazyDict | None:
        """What launch hooks receive for a launch by a handle; ``arguments`` are its flat values and the grid."""
        values = launched_arguments(self.src, arguments[:-3], constants=constants)
        return self.launch_metadata(arguments[-3:], stream, *values)

    def _fault_check(self) -> Callable[[], None] | None:
        """What raises the error of a failed ``tl.device_assert`` after a launch on the CPU."""
        if self._target.backend != "cpu" or not getattr(self.metadata, "asserts", False):
            return None
        from .backends.cpu.launcher import raise_fault

        return functools.partial(raise_fault, self.function, self.name)

    @property
    def run(self) -> Any:
        if self._run is None:
            self._init_handles()
        return self._run

    def launch_metadata(self, grid: tuple[int, ...], stream: int, *args: Any) -> LazyDict | None:
        """What launch hooks receive, or None when no hook is set."""
        hooks = (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook)
        if all(hook is None or getattr(hook, "calls", True) == [] for hook in hooks):
            return None
        self._init_handles()
        found = LazyDict({"name": self.name, "function": self.function, "stream": stream})
        describe = getattr(getattr(self.src, "fn", None), "launch_metadata", None)
        if describe is not None:
            found.add(describe, (grid, self.metadata, dict(zip(self.src.signature, args, strict=False))))
        return found

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        self._init_handles()

        def runner(*args: Any, stream: int | None = None) -> None:
            if stream is None:
                driver: Any = self.driver
                stream = driver.get_current_stream(driver.get_current_device())
            assert stream is not None
            metadata = self.launch_metadata(grid, stream, *args)
            self.run(
                grid[0],
                grid[1] if len(grid) > 1 else 1,
                grid[2] if len(grid) > 2 else 1,
                stream,
                self.function,
                self.packed_metadata,
                metadata,
                knobs.runtime.launch_enter_hook,
                knobs.runtime.launch_exit_hook,
                *args,
            )

        return runner
