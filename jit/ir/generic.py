"""The text of a Triton module in MLIR's generic form: `generic_text(module, context)`.

Triton's bindings do not show integer attributes, predicates or dense constants, so the IR is read from text,
in the form with one uniform grammar. MLIR prints it for modules that do not verify: see `compat.unverified`.
"""

from __future__ import annotations

from typing import Any

from .compat import unverified
from .errors import IRError


def generic_text(module: Any, context: Any) -> str:
    """Generic form, with locations, of `module` (a Triton `ir.module` that belongs to `context`).

    The module is the same afterwards. Raises IRError when Triton does not print the generic form.
    """
    with unverified(module, context):
        text = str(module)
    if '\n"builtin.module"(' not in text and not text.startswith('"builtin.module"('):
        start = next((line for line in text.splitlines() if line and line[0] not in "#!"), "")
        raise IRError(f"Triton did not print the generic form of the module; it starts with {start[:80]!r}")
    return text
