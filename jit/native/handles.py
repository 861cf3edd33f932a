"""`make_handle`: a compiled kernel resolved down to its address, for callers that launch it often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .build import extension, ready
from .python_handle import PythonHandle

# (bytes per program, alignment, allocate): see `make_handle`.
Scratch = tuple[int, int, Callable[[int, int, Any], Any]]


class Handle(Protocol):
    """`handle(stream, *arguments, grid0, grid1, grid2)` launches the kernel."""

    kind: str
    name: str
    codes: str
    argument_names: tuple[str, ...]
    function: int
    fallback: Callable[..., object] | None
    owner: object

    def __call__(self, stream: int | None, *arguments: Any) -> object: ...

    def launch(self, stream: int | None, *arguments: Any) -> object:
        """The same without launch hooks."""
        ...


def make_handle(
    kind: str,
    function: int,
    codes: str,
    *,
    name: str,
    argument_names: tuple[str, ...] | None = None,
    fallback: Callable[..., object] | None = None,
    owner: object = None,
    threads: int = 128,
    shared: int = 0,
    num_ctas: int = 1,
    cooperative: bool = False,
    dependent: bool = False,
    device: int | None = None,
    global_scratch: Scratch | None = None,
    profile_scratch: Scratch | None = None,
    after_launch: Callable[[], object] | None = None,
    describe: Callable[..., object] | None = None,
    wait: bool = True,
) -> Handle:
    """A handle of the compiled kernel at the address `function`.

    `kind` is "cpu" (the address of a function that runs a whole grid, see the CPU backend) or "cuda" (a
    CUfunction). `codes` has one character for each argument of the kernel's signature, flattened,
    constexprs included: how it is passed, and what must hold for it.

    | code | argument | code, multiple of 16 |
    | --- | --- | --- |
    | `P` | pointer: anything with `data_ptr()`, an address, None for null | `A` |
    | `b` `s` `i` `l` | int8, int16, int32, int64 | `c` `t` `I` `L` |
    | `B` `S` `w` `u` | uint8, uint16, uint32, uint64 | `C` `T` `W` `U` |
    | `o` | bool | |
    | `h` `g` `f` `d` | float16, bfloat16, float32, float64 (rounded to nearest) | |
    | `1` `N` | must be 1, must be None; not passed | |
    | `x` | constexpr: not looked at, not passed | |

    An argument that does not hold sends the whole call to `fallback(stream, *arguments, grid0, grid1,
    grid2)`; without one it raises ValueError (TypeError for a wrong kind) naming the argument. `owner` is
    kept alive by the handle.

    CPU only: `after_launch` is called after each launch; what it raises is raised.

    CUDA only: `threads` of a block, bytes of dynamic `shared` memory, `num_ctas` blocks in a cluster (the
    grid counts clusters), `cooperative` and programmatic `dependent` launch, the `device` index whose
    primary context the function was loaded into (None: the current context), and the scratch memory as
    `(bytes per program, alignment, allocate)` with `allocate(bytes, alignment, stream)` returning an object
    with `data_ptr()`.

    With `describe`, the launch hooks of `triton.knobs.runtime` are called around each launch with what
    `describe(stream, *arguments, grid0, grid1, grid2)` returns; without, they are not.

    Without `wait`, a CPU kernel gets a handle in Python while the extension is being built (see `ready`).

    A grid axis of 0 launches nothing. The GIL is free while the kernel (CPU) or the driver (CUDA) runs. A
    CPU kernel gets `torch.get_num_threads()` threads, no more than programs, and one in a forked child.
    """
    if argument_names is None:
        argument_names = tuple(f"#{index}" for index in range(len(codes)))
    native: Any = extension() if wait or kind != "cpu" or ready() else None
    if native is None:
        if kind != "cpu":
            raise RuntimeError(
                f"{name}: launching on {kind} needs a C compiler on this machine (set CC, or install gcc)"
            )
        return PythonHandle(
            function,
            codes,
            name,
            argument_names,
            fallback=fallback,
            owner=owner,
            after_launch=after_launch,
            describe=describe,
        )
    handle: Handle = native.Handle(
        kind,
        function,
        codes,
        name,
        argument_names,
        fallback=fallback,
        owner=owner,
        threads=threads,
        shared=shared,
        num_ctas=num_ctas,
        cooperative=cooperative,
        dependent=dependent,
        device=-1 if device is None else device,
        libcuda=_libcuda() if kind == "cuda" else None,
        global_scratch=global_scratch,
        profile_scratch=profile_scratch,
        after_launch=after_launch,
        describe=describe,
    )
    return handle


def _libcuda() -> str | None:
    """The driver that Triton was told to use, None for the loader's."""
    import os

    from triton import knobs

    folder = knobs.nvidia.libcuda_path
    return os.path.join(folder, "libcuda.so.1") if folder else None
