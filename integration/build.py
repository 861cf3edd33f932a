"""The identity of this build of opgraft: compile caches must not outlive the code that wrote their entries."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

__all__ = ["build_identity"]


@functools.cache
def build_identity() -> str:
    """A digest of the package's version and sources; an edit of an editable install changes it."""
    from .. import __version__

    digest = hashlib.sha256(__version__.encode())
    root = Path(__file__).parent.parent
    for part in ("integration", "fx_passes", "jit"):
        for file in sorted((root / part).rglob("*.py")):
            digest.update(file.relative_to(root).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()
