"""For users' test suites: the graphs of a compiled function at every level, as text to pin.

:func:`capture` compiles a function in isolation (graph caches off, Dynamo reset), calls it,
and returns a :class:`Capture`: the graph that Dynamo captured, the graphs before and after
Inductor's passes, the wrapper's launches, and which kernels were compiled. The texts are normalized
(no comments, paths, hashes or symbol numbering), so that an expecttest snapshot holds until the
program changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Capture", "capture", "loaded_launches"]


@dataclass
class Capture:
    """What compiling and calling a function gave."""

    result: Any = None
    """What the call returned."""
    dynamo: list[str] = field(default_factory=list)
    """The graphs that Dynamo captured, as Python source."""
    aot: list[str] = field(default_factory=list)
    """The graphs handed to Inductor, forward then backward: functional, ops opened."""
    post_grad: list[str] = field(default_factory=list)
    """The same graphs after Inductor's passes, with mutable launches: what is lowered."""
    wrapper: list[str] = field(default_factory=list)
    """The lines of the generated wrappers that define handles, launch kernels and allocate."""
    launches: list[str] = field(default_factory=list)
    """The launches in the generated wrappers, a line each."""
    compiled: list[str] = field(default_factory=list)
    """The names of the kernels whose variants this process did not have yet, once for each variant."""
    code: list[str] = field(default_factory=list)
    """The generated wrappers, whole and not normalized."""

    @property
    def copies(self) -> int:
        """How many copies the post-grad graphs make (``copy_``, ``clone``)."""
        return sum(len(re.findall(r"\baten\.(?:copy_?|clone)\.", graph)) for graph in self.post_grad)

    @property
    def dispatcher_calls(self) -> int:
        """How many launches in the wrappers go through the dispatcher instead of a handle."""
        return sum(len(re.findall(r"torch\.ops\.opgraft\.", code)) for code in self.code)

    def __str__(self) -> str:
        return "\n".join([*self.post_grad, *self.wrapper])


def capture(
    fn: Callable[..., Any],
    *args: Any,
    backend: str = "opgraft",
    dynamic: bool | None = None,
    fullgraph: bool = True,
    backward: bool = False,
    **kwargs: Any,
) -> Capture:
    """Compile ``fn``, call it on ``args`` and ``kwargs``, and return what happened.

    Args:
        fn: a function or module.
        backend: ``"opgraft"`` or ``"inductor"``.
        dynamic: as for :func:`torch.compile`.
        fullgraph: as for :func:`torch.compile`, True by default: a graph break raises.
        backward: also run the backward of the sum of all outputs that require grad.

    Raises:
        ValueError: for another backend.
        Whatever compiling or calling ``fn`` raises.

    Dynamo is reset before and after; the caches on disk are left alone.
    """
    import torch
    from torch.utils import _pytree as pytree

    if backend not in ("opgraft", "inductor"):
        raise ValueError(f'capture knows the backends "opgraft" and "inductor", got {backend!r}')
    captured = Capture()
    torch._dynamo.reset()
    with _no_graph_caches(), _recording(captured, backend) as recorder:
        compiled = torch.compile(fn, backend=recorder, dynamic=dynamic, fullgraph=fullgraph)
        captured.result = compiled(*args, **kwargs)
        if backward:
            outputs = [
                t for t in pytree.tree_leaves(captured.result) if isinstance(t, torch.Tensor) and t.requires_grad
            ]
            sum(t.sum() for t in outputs).backward()
    torch._dynamo.reset()
    captured.wrapper = [line for code in captured.code for line in _wrapper_lines(code)]
    captured.launches = _launch_lines(captured.wrapper)
    return captured


@contextmanager
def loaded_launches() -> Iterator[list[str]]:
    """The launches in the wrappers that this process loads inside the block, a line each, as in :class:`Capture`.

    The list is filled when the block ends. Unlike :func:`capture` it disturbs nothing, so that it can stand around
    the first call of any compiled function; a graph that comes from a cache on disk counts like a new one.
    """
    from torch._inductor.codecache import PyCodeCache

    known = {id(module) for module in PyCodeCache.modules}
    launches: list[str] = []
    yield launches
    for module in PyCodeCache.modules:
        if id(module) not in known:
            launches += _launch_lines(_wrapper_lines(Path(module.__file__).read_text("utf-8")))


@contextmanager
def _no_graph_caches() -> Iterator[None]:
    from torch._inductor import config

    with config.patch(force_disable_caches=True):
        yield


@contextmanager
def _recording(captured: Capture, backend: str) -> Iterator[Callable[..., Any]]:
    """A backend that records what passes through it."""
    from unittest import mock

    import torch._inductor.compile_fx as compile_fx
    from torch._inductor.graph import GraphLowering

    from .fx_passes.backend import opgraft

    inner = compile_fx._compile_fx_inner
    run = GraphLowering.run

    def record_inner(gm: Any, *args: Any, **kwargs: Any) -> Any:
        captured.aot.append(_graph_text(gm))
        return inner(gm, *args, **kwargs)

    def record_run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.name is None or not str(self.name).startswith("subgraph"):
            captured.post_grad.append(_graph_text(self.module))
        return run(self, *args, **kwargs)

    def record_code(code: str) -> None:
        captured.code.append(code)

    def record(gm: Any, inputs: Any, **kwargs: Any) -> Any:
        captured.dynamo.append(_graph_text(gm))
        if backend == "opgraft":
            return opgraft(gm, inputs, **kwargs)
        return compile_fx.compile_fx(gm, inputs, **kwargs)

    with (
        mock.patch.object(compile_fx, "_compile_fx_inner", record_inner),
        mock.patch.object(GraphLowering, "run", record_run),
        mock.patch.object(GraphLowering, "save_output_code", record_code),
        _recording_compiles(captured),
    ):
        yield record


@contextmanager
def _recording_compiles(captured: Capture) -> Iterator[None]:
    from .jit.events import on_compile

    stop = on_compile(lambda event: captured.compiled.append(event.kernel.rpartition(".")[2]))
    try:
        yield
    finally:
        stop()


def _graph_text(gm: Any) -> str:
    from torch._dynamo.testing import normalize_gm

    text = normalize_gm(gm.print_readable(print_output=False))
    return normalize(text)


def _launch_lines(wrapper: list[str]) -> list[str]:
    return [line for line in wrapper if re.match(r"_\w+\(.*\)$", line)]


def normalize(text: str) -> str:
    """``text`` of a graph or wrapper without what changes from run to run."""
    text = re.sub(r"(@)[0-9a-f]{16}\b", r"\1...", text)  # the kernel's version
    text = re.sub(r"(?<![*\w'])(?:s|u)\d+\b(?!')", _Renumber(), text)  # symbols, by first appearance
    return text.strip() + "\n"


class _Renumber:
    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def __call__(self, match: re.Match[str]) -> str:
        old = match.group()
        return self.names.setdefault(old, f"{old[0]}{sum(n[0] == old[0] for n in self.names)}")


_KEPT = re.compile(r"_opgraft_handles\.resolve\(|^_\w+_\d+\(|= empty_strided|torch\.ops\.[\w.]+\(")


def _wrapper_lines(code: str) -> list[str]:
    lines = []
    for line in code.splitlines():
        line = line.strip()
        if _KEPT.search(line) and not line.startswith("#"):
            lines.append(line)
    return normalize("\n".join(lines)).splitlines() if lines else []
