"""What a failed launch says. The extension and the Python handle both raise the exceptions made here."""

from __future__ import annotations

from typing import Any

# What a value must be for each argument code (scalar.c describes the codes).
MEANINGS = {
    "P": "a tensor (anything with data_ptr()), an address or None",
    "A": "a tensor whose address is a multiple of 16",
    "b": "an int that fits int8",
    "B": "an int that fits uint8",
    "s": "an int that fits int16",
    "S": "an int that fits uint16",
    "i": "an int that fits int32",
    "w": "an int that fits uint32",
    "l": "an int that fits int64",
    "u": "an int that fits uint64",
    "c": "an int that fits int8 and is a multiple of 16",
    "C": "an int that fits uint8 and is a multiple of 16",
    "t": "an int that fits int16 and is a multiple of 16",
    "T": "an int that fits uint16 and is a multiple of 16",
    "I": "an int that fits int32 and is a multiple of 16",
    "W": "an int that fits uint32 and is a multiple of 16",
    "L": "an int that fits int64 and is a multiple of 16",
    "U": "an int that fits uint64 and is a multiple of 16",
    "o": "a bool",
    "h": "a number, passed as float16",
    "g": "a number, passed as bfloat16",
    "f": "a number, passed as float32",
    "d": "a number, passed as float64",
    "1": "the int 1",
    "N": "None",
    "x": "a constexpr",
}


def describe(value: Any) -> str:
    """An argument in an error: a tensor by what it is and where, anything else by its repr, cut short."""
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        try:
            address = f"0x{value.data_ptr():x}"
        except Exception as error:
            address = f"no address ({error})"
        shape, device = getattr(value, "shape", None), getattr(value, "device", None)
        size = "" if shape is None else f", shape {tuple(shape)}"
        return f"{type(value).__name__}({value.dtype}{size}, {device}, {address})"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def guard_error(handle: Any, index: int, value: Any) -> Exception:
    """For an argument that `handle` was not compiled for: TypeError for a wrong kind, else ValueError."""
    code, name = handle.codes[index], handle.argument_names[index]
    text = f"{handle.name}: argument {name} must be {MEANINGS[code]}, got {describe(value)}"
    if code in "PA":
        wrong_kind = not hasattr(value, "data_ptr") and not isinstance(value, int)
    else:
        wrong_kind = not hasattr(value, "__float__" if code in "hgfd" else "__index__")
    if code == "N":
        wrong_kind = False
    return TypeError(text) if wrong_kind else ValueError(text)


def cuda_error(
    result: int,
    name: str | None,
    text: str | None,
    handle: Any,
    arguments: tuple[Any, ...],
    grid: tuple[int, ...],
) -> Exception:
    """For a launch that the driver refused. `result` is the driver's CUresult."""
    values = ", ".join(f"{n}={describe(v)}" for n, v in zip(handle.argument_names, arguments, strict=True))
    hint = ""
    if max(grid[1:]) > 65535:
        hint = "; a grid has at most 65535 programs along its second and third axis"
    cluster = f", clusters of {handle.num_ctas}" if handle.num_ctas != 1 else ""
    return RuntimeError(
        f"Triton Error [CUDA]: {text or 'unknown error'} ({name or result}) launching {handle.name} "
        f"over the grid {grid} with {handle.threads} threads a program{cluster} and {handle.shared} bytes of "
        f"shared memory"
        f"{hint}; arguments: {values}"
    )
