"""Which compiler makes a kernel's code: the part of a store key that is not about the kernel.

`toolchain_identity(backend, folder)` is a text that changes when any file of the compiler does. Triton's own
key hashes its library in every process (2.4 s where measured); this one says the same, with the digests
remembered on disk (see `digests.py`), in 2 to 3 ms.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

import triton
from triton import knobs

from .store.digests import file_digest, tree_digest

if TYPE_CHECKING:
    from triton.backends.compiler import BaseBackend

# What decides the code that is generated: the frontend, the language, the backends with their device
# libraries and the compiled compiler. `knobs.py` reads settings that passes look at.
_PARTS = (
    "_C",
    "_utils.py",
    "backends",
    "compiler",
    "experimental/gluon",
    "knobs.py",
    "language",
    "runtime/jit.py",
)
_SUFFIXES = (".py", ".so", ".pyd", ".bc")


_CUDA = "triton.backends.nvidia.compiler"


def is_cuda_options(options: object) -> bool:
    """Whether these are the parsed options of Triton's CUDA backend itself."""
    return type(options).__module__ == _CUDA


@functools.cache
def _triton_digest(folder: str) -> str:
    root = os.path.dirname(os.path.abspath(triton.__file__))
    return f"triton {triton.__version__} {tree_digest(root, _PARTS, _SUFFIXES, folder)}"


def toolchain_identity(backend: BaseBackend, folder: str) -> str:
    """The compiler's identity for `backend`; digests are kept under `folder`."""
    return f"{_triton_digest(folder)}; {_backend_identity(backend, folder)}"


def _backend_identity(backend: BaseBackend, folder: str) -> str:
    """`backend.hash()`, or as good: Triton's CUDA backend runs `ptxas --version` (12 ms) for its own.

    The content of the assembler says more than its version.
    """
    mocked = knobs.nvidia.mock_ptx_version is not None
    if type(backend).__module__ != _CUDA or mocked:
        return str(backend.hash())
    arch = backend.target.arch
    tools = knobs.nvidia.knob_descriptors
    name = "ptxas_blackwell" if arch >= 100 and "ptxas_blackwell" in tools else "ptxas"
    descriptor: Any = tools[name]
    chosen = knobs.nvidia.__dict__.get(name) or os.environ.get(descriptor.key)
    try:
        # Triton falls back to its own assembler when the chosen one does not run: either decides.
        digests = [file_digest(path, folder) for path in (chosen, descriptor.default_path) if path]
    except (OSError, TypeError, AttributeError):
        return str(backend.hash())
    return f"ptxas {' '.join(digests)} for sm{arch}"
