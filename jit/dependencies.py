"""What the compiled code of a kernel depends on: its source, the functions it reaches, the values it reads.

``cache_key(fn)`` is the key of everything that ``fn`` reaches; ``used_values(fn)`` the globals, closure variables and
module attributes that were read, with the values they had. Both are made from the analysis of each function alone
(`source_analysis`), so that a key does not depend on the order in which functions were hashed, and recursion needs no
special case: the key is a digest of the graph of functions, walked from ``fn`` in source order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from .reads import ABSENT, CellScope, ReadValue, raise_if_changed, same
from .source_analysis import Analysis, analyze, full_name

__all__ = ["ABSENT", "CellScope", "ReadValue", "cache_key", "raise_if_changed", "used_values"]


def cache_key(fn: Any) -> str:
    """The key of the code that ``fn`` compiles to, apart from its arguments: 64 hexadecimal digits.

    Raises RuntimeError when a plain Python function is called in a kernel, or when two functions saw
    different values of one variable.
    """
    digest = hashlib.sha256()
    for function, analysis, numbers in _graph(fn):
        digest.update(f"{analysis.text}\0{numbers}\0{getattr(function, 'noinline', None)}\0".encode())
    return digest.hexdigest()


def used_values(fn: Any) -> dict[tuple[str, int], ReadValue]:
    """The variables that ``fn`` and the functions it reaches read, by name and identity of the scope.

    Raises RuntimeError when two of these functions saw different values of one variable.
    """
    found: dict[tuple[str, int], ReadValue] = {}
    for function, analysis, _ in _graph(fn):
        for key, read in analysis.values.items():
            other = found.setdefault(key, read)
            if other is not read and not same(other.value, read.value):
                if read.is_function or other.is_function:
                    # Only while another thread makes the analysis of the one again.
                    continue
                raise RuntimeError(
                    f"Global variable {read.name} has value {other.value} when compiling {full_name(fn)}, but"
                    f" inner kernel {function.__name__} has conflicting value {read.value} from when it was"
                    " first compiled.  This is not allowed."
                )
    return found


def _graph(root: Any) -> Iterator[tuple[Any, Analysis, list[int]]]:
    """The functions that ``root`` reaches, itself first, with the numbers of those that each names.

    Functions are numbered as they are met, callees in source order, so that the sequence depends on the
    program alone.
    """
    numbers = {id(root): 0}
    order = [root]
    position = 0
    while position < len(order):
        function = order[position]
        analysis = analyze(function)
        for callee in analysis.functions:
            if id(callee) not in numbers:
                numbers[id(callee)] = len(order)
                order.append(callee)
        yield function, analysis, [numbers[id(callee)] for callee in analysis.functions]
        position += 1
