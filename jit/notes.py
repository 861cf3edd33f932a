"""Facts about a kernel that are read off its IR while it is compiled and kept with it in the store.

`collect(notes, stage, module, context)` is called with the result of each stage; `written(notes)` reads back
which arguments the kernel writes. Notes are plain JSON data and say which version of the analysis they are
of.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .written_arguments import WrittenArguments

# The first of these stages that a kernel has is analysed.
STAGES = ("ttir", "ttgir")


@functools.cache
def analysis_version() -> str:
    """A digest of the code that reads and analyses IR: an edit of it makes its earlier answers void."""
    from .store.digests import tree_digest
    from .store_key import digest_folder

    return tree_digest(str(Path(__file__).parent), ("ir", "notes.py"), (".py",), digest_folder())


def collect(notes: dict[str, Any], stage: str, module: Any, context: Any) -> None:
    """Add to `notes` what the result of `stage` shows, unless an earlier stage did."""
    if stage not in STAGES or "written" in notes:
        return
    notes["written"] = {"version": analysis_version(), **analyse(module, context)}


def analyse(module: Any, context: Any) -> dict[str, Any]:
    """What a Triton module shows of its kernel, as plain data."""
    from .ir import generic_text, parse, written_arguments

    try:
        return dataclasses.asdict(written_arguments(parse(generic_text(module, context))))
    except Exception as error:
        # A kernel compiles and runs also where its IR has something that the analysis does not know.
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
