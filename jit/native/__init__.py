"""Launching compiled kernels from C.

| name | what it is |
| --- | --- |
| `make_handle` | one compiled kernel as a callable: `handle(stream, *arguments, grid0, grid1, grid2)` |
| `extension` | the C extension, built by the host compiler at its first use; None where that fails |
| `ready` | whether it is built; if not, it is being built in the background from now on |

Importing this package builds nothing and imports neither torch nor triton.
"""

from __future__ import annotations

from .build import extension, ready, when_loaded
from .handles import Handle, Scratch, make_handle

__all__ = ["Handle", "Scratch", "extension", "make_handle", "ready", "when_loaded"]
