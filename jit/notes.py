"""Facts about a kernel that are read off its IR while it is compiled and kept with it in the store.

`collect(notes, stage, module, context)` is called with the result of each stage; `written(notes)` reads back
which arguments the kernel writes. Notes are plain JSON data.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .ir import WrittenArguments

# The first of these stages that a kernel has is analysed.
STAGES = ("ttir", "ttgir")


def collect(notes: dict[str, Any], stage: str, module: Any, context: Any) -> None:
    """Add to `notes` what the result of `stage` shows, unless an earlier stage did."""
    if stage not in STAGES or "written" in notes:
        return
    from .ir import generic_text, parse, written_arguments

    try:
        found = written_arguments(parse(generic_text(module, context)))
    except Exception as error:
        # A kernel compiles and runs also where its IR has something that the analysis does not know.
        notes["written"] = {"fault": f"{type(error).__name__}: {error}"}
        return
    notes["written"] = dataclasses.asdict(found)


def written(notes: Mapping[str, Any], pointers: tuple[int, ...]) -> WrittenArguments | None:
    """Which arguments the compiled function writes, by index; None when nothing was noted.

    `pointers` are the indices of those that are pointers: where the analysis failed all of them count as
    written and read.
    """
    from .ir import WrittenArguments

    found = notes.get("written")
    if found is None:
        return None
    if "fault" in found:
        return WrittenArguments(pointers, pointers, (f"its IR could not be analysed: {found['fault']}",))
    return WrittenArguments(
        written=tuple(found["written"]),
        read=tuple(found["read"]),
        reasons=tuple(found["reasons"]),
        names=tuple(found["names"]),
        where={int(index): place for index, place in found["where"].items()},
    )
