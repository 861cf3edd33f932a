"""What the CPU backend uses of Triton beyond its public interface.

Each name says what it needs and what happens without it. Tried on Triton 3.7.1; 3.6, 3.8 and 3.9 differ where noted.
"""

from __future__ import annotations

from typing import Any


def override_arch() -> str | None:
    """``triton.knobs.runtime.override_arch`` (``TRITON_OVERRIDE_ARCH``); None where the knob is missing."""
    from triton import knobs

    return getattr(knobs.runtime, "override_arch", None)


def default_fp_fusion() -> bool:
    """``triton.knobs.language.default_fp_fusion`` (``TRITON_DEFAULT_FP_FUSION``); true where it is missing."""
    from triton import knobs

    return bool(getattr(knobs.language, "default_fp_fusion", True))


def clean_up(module: Any) -> None:
    """Run Triton's own passes over a freshly made module: inline, simplify, lower descriptors, unroll.

    Needs ``triton._C.libtriton.passes``. Passes come and go between versions: one that is missing is left out, which
    costs speed or, for the descriptor rewrite, ends in an error that names the operation.
    """
    from triton._C.libtriton import ir, passes

    manager = ir.pass_manager(module.context)
    for group, name in (
        ("common", "add_inliner"),
        ("ttir", "add_rewrite_tensor_pointer"),  # gone in 3.9 with block pointers
        ("ttir", "add_rewrite_tensor_descriptor_to_pointer"),
        ("common", "add_canonicalizer"),
        ("ttir", "add_combine"),
        ("ttir", "add_reorder_broadcast"),
        ("common", "add_cse"),
        ("common", "add_symbol_dce"),
        ("ttir", "add_loop_unroll"),
        ("ttir", "add_triton_licm"),
        ("common", "add_canonicalizer"),
        ("common", "add_cse"),
    ):
        add = getattr(getattr(passes, group), name, None)
        if add is not None:
            add(manager)
    run = manager.run
    try:
        run(module, "make_ttir")
    except TypeError:  # before the second argument existed
        run(module)
