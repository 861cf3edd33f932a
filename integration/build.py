"""The identity of this build of opgraft: compile caches must not outlive the code that wrote their entries."""

from __future__ import annotations

import functools
from pathlib import Path

from ..jit.store.digests import tree_digest
from ..jit.store_key import digest_folder

__all__ = ["build_identity"]


@functools.cache
def build_identity() -> str:
    """A digest of the package's version and sources; an edit of an editable install changes it."""
    from .. import __version__

    root = Path(__file__).parent.parent
    sources = tree_digest(str(root), ("fx_passes", "integration", "jit"), (".c", ".h", ".py"), digest_folder())
    return f"{__version__} {sources}"
