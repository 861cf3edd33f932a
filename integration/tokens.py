"""Specialization tokens of graph values: what a graph proves about ints and addresses.

The grammar is in :mod:`.specialization`. The rule is the same wherever a graph is looked at, in FX
with symbolic sizes or in Inductor's IR: :func:`int_token` and :func:`pointer_token` take the facts.
On the CPU nothing is gained by divisibility, so its tokens never say it, and fewer variants exist.
"""

from __future__ import annotations

__all__ = ["INT32", "int_token", "pointer_token"]

INT32 = (-(2**31), 2**31 - 1)
"""The range of a 32-bit int."""


def int_token(device: str, value: int | None, in_int32: bool, multiple_of_16: bool) -> str:
    """The token of an int.

    Args:
        device: ``"cpu"``, ``"cuda:0"``.
        value: the int where it is a constant of the graph, else None.
        in_int32: whether the graph proves that it fits 32 bits.
        multiple_of_16: whether the graph proves that.
    """
    multiple = ":16" if multiple_of_16 and device != "cpu" else ""
    if value is not None:
        if value == 1 and device != "cpu":
            return "1"
        return ("i32" if INT32[0] <= value <= INT32[1] else "i64") + multiple
    # A size of 2**31 or more is rare and seldom excluded: assume, check at the launch, keep a variant.
    return "i32" + multiple + ("" if in_int32 else "?")


def pointer_token(device: str, pointer: str, aligned: bool) -> str:
    """The token of a tensor with Triton type ``pointer`` (``*fp32``)."""
    return pointer + (":16" if aligned and device != "cpu" else "")
