"""Facts about a kernel that are read off its IR while it is compiled and kept with it in the store.

A `Collector` takes the result of each stage of a compile; `written(notes)` reads back which arguments the kernel
writes. Notes are plain JSON data and say which version of the analysis they are of.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .written_arguments import WrittenArguments

# The first of these stages that a kernel has is analysed.
STAGES = ("ttir", "ttgir")


@functools.cache
def analysis_version() -> str:
    """A digest of the code that reads and analyses IR: an edit of it makes its earlier answers void."""
    from .store.digests import tree_digest
    from .store_key import digest_folder

    return tree_digest(str(Path(__file__).parent), ("ir", "notes.py"), (".py",), digest_folder())


class Collector:
    """Gathers the notes of one compile: the IR's text as soon as there is one, what it shows beside the last stage.

    The last stage is a compiler or an assembler in a process of its own, which leaves this one idle.
    """

    def __init__(self) -> None:
        self._notes: dict[str, Any] = {}
        self._read: Callable[[], dict[str, Any]] | None = None
        self._thread: threading.Thread | None = None

    def after_stage(self, stage: str, module: Any, context: Any) -> None:
        """Take the result of a stage, before the next one changes it."""
        if stage in STAGES and self._read is None:
            self._read = _reader(module, context)

    def begin(self) -> None:
        """Analyse from now on, in a thread."""
        if self._read is not None and self._thread is None:
            thread = threading.Thread(target=self._analyse, name="opgraft-notes")
            with contextlib.suppress(RuntimeError):  # no more threads: `finish` does it
                thread.start()
                self._thread = thread

    def finish(self) -> dict[str, Any]:
        """The notes."""
        if self._thread is not None:
            self._thread.join()
        if not self._notes and self._read is not None:
            self._analyse()
        return self._notes

    def _analyse(self) -> None:
        assert self._read is not None
        self._notes = _notes(self._read())


def collect(module: Any, context: Any) -> dict[str, Any]:
    """The notes that the result of one of `STAGES` gives."""
    return _notes(analyse(module, context))


def _notes(found: dict[str, Any]) -> dict[str, Any]:
    return {"written": {"version": analysis_version(), **found}}


def analyse(module: Any, context: Any) -> dict[str, Any]:
    """What a Triton module shows of its kernel, as plain data."""
    return _reader(module, context)()


def _reader(module: Any, context: Any) -> Callable[[], dict[str, Any]]:
    """What reads the facts off a module as it is now; it no longer needs the module."""
    from .ir import generic_text, parse, written_arguments

    # A kernel compiles and runs also where its IR has something that the analysis does not know.
    try:
        text = generic_text(module, context)
    except Exception as error:
        fault = _fault(error)
        return lambda: fault

    def read() -> dict[str, Any]:
        try:
            return dataclasses.asdict(written_arguments(parse(text)))
        except Exception as error:
            return _fault(error)

    return read


def _fault(error: Exception) -> dict[str, Any]:
    return {"fault": f"{type(error).__name__}: {error}"}


def written(notes: Mapping[str, Any], signature: Mapping[str, Any]) -> WrittenArguments | None:
    """Which arguments the compiled function writes, by index; None when nothing, or something outdated, was noted.

    Where the analysis failed, all arguments of the kernel's `signature` count as written and read.
    """
    found = notes.get("written")
    if found is None or found.get("version") != analysis_version():
        return None
    return from_data(found, signature)


def from_data(data: Mapping[str, Any], signature: Mapping[str, Any]) -> WrittenArguments:
    """What `analyse` found."""
    from .argument_paths import argument_count
    from .written_arguments import WrittenArguments

    if "fault" in data:
        every = tuple(range(argument_count(signature)))
        return WrittenArguments(every, every, (f"its IR could not be analysed: {data['fault']}",))
    return WrittenArguments(
        written=tuple(data["written"]),
        read=tuple(data["read"]),
        reasons=tuple(data["reasons"]),
        names=tuple(data["names"]),
        where={int(index): place for index, place in data["where"].items()},
    )
