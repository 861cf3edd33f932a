"""The key of a compiled kernel in the cache of its function.

``compute_cache_key(known, specialization, options)`` returns a text that is equal for calls that compile to
the same code, in every process, whatever the order of the options. Making that text takes a while, so it is
looked up by a first key, a tuple that is quick to make: the cache has two levels.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from triton.runtime.jit import JITCallable as TritonJITCallable

from . import content

# Classes whose equal instances compile to the same code.
_EXACT = frozenset({int, bool, str, bytes, type(None)})


def compute_cache_key(known: dict[Any, str], specialization: list[Any], options: dict[str, Any]) -> str:
    """The key of a specialization (one ``(type, key)`` for each parameter, see `binder`) with compile
    options.

    ``known`` maps first keys to texts and is filled.
    """
    first = (tuple(map(_first, specialization)), tuple(map(_first_option, options.items())))
    found = known.get(first)
    if found is None:
        found = known[first] = key_text(specialization, options)
    return found


def key_text(specialization: list[Any], options: dict[str, Any]) -> str:
    """The readable key: types, keys and constants of the arguments, then the options by name."""
    entries = ", ".join(content.text(entry) for entry in specialization)
    return f"[{entries}]{content.text(options)}"


def _first(entry: Any) -> Any:
    if entry.__class__ is not tuple:
        return content.text(entry)
    kind, key = entry
    if kind.__class__ is not str:
        # A tuple of arguments: named or not, with constants inside or not.
        return content.text(entry)
    if kind == "constexpr":
        return _constant(key)
    return entry


def _first_option(item: tuple[str, Any]) -> Any:
    return item[0], _constant(item[1])


def _constant(value: Any) -> Any:
    kind = value.__class__
    if kind in _EXACT:
        return kind, value
    if isinstance(value, TritonJITCallable):
        check = getattr(value, "check_dependencies", None)
        if check is not None:
            check()
        return value.cache_key
    return content.text(value)


def unknown_option(name: str, known: Iterable[str]) -> KeyError:
    """The error for a keyword that is neither a parameter nor an option, with the nearest names."""
    names = sorted(set(known))
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else f"; known names: {', '.join(names)}"
    return KeyError(f"Keyword argument {name} was specified but unrecognised{hint}")
