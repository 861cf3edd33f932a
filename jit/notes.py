"""Facts about a kernel that are read off its IR while it is compiled and kept with it in the store.

`collect(notes, stage, module, context)` is called after each stage. Notes are plain JSON data.
"""

from __future__ import annotations

from typing import Any


def collect(notes: dict[str, Any], stage: str, module: Any, context: Any) -> None:
    """Add to `notes` what the result of `stage` shows."""
