"""Why a kernel had to be compiled: its key compared with the nearest one that was known.

`compare(old, new, values)` says what differs between two keys of the store in words ("argument n was a
multiple of 16, now 17"); `history` remembers the variants of each kernel in this process; `watch` warns about
an argument whose values keep making new variants.
"""

from __future__ import annotations

import collections
import hashlib
import json
import os
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any

from . import forks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_KEPT = 256
# Variants that differ in one argument alone before a warning, and the same when the values are powers of two,
# as block sizes are, of which there are only so many.
_MANY = 8
_MANY_POWERS = 16

_WHOLE = {
    "function": "the source of the kernel, of a function that it calls or a value that it captures changed",
    "source": "the IR changed",
    "toolchain": "the compiler changed",
    "pipeline": "the pass pipeline changed (add_stages_inspection_hook)",
    "overrides": "the files that override its IR changed",
    "format": "this version of opgraft stores kernels in another form",
}


def compare(old: Mapping[str, Any], new: Mapping[str, Any], values: Mapping[str, Any] | None = None) -> list[str]:
    """What differs between two keys, most telling first. `values`: arguments of the launch, by name."""
    values = values or {}
    found = [words for part, words in _WHOLE.items() if old.get(part) != new.get(part)]
    if old.get("target") != new.get("target"):
        found.append(f"the target was {old.get('target')}, now {new.get('target')}")
    if old.get("stage") != new.get("stage"):
        found.append(f"it was compiled from {old.get('stage')}, now from {new.get('stage')}")
    for name in _names(old, new):
        words = _argument(name, old, new, values)
        if words:
            found.append(words)
    for part, label in (("options", "option"), ("environment", "environment variable")):
        before, after = old.get(part, {}), new.get(part, {})
        found += (
            f"{label} {name} was {before.get(name, 'not set')}, now {after.get(name, 'not set')}"
            for name in sorted({*before, *after})
            if name != "hash" and before.get(name) != after.get(name)
        )
    return found


def _names(*keys: Mapping[str, Any]) -> list[str]:
    """The arguments in the keys, in the order of the signature; elements of tuples after it."""
    found: dict[str, None] = {}
    for part in ("signature", "constexprs", "attributes"):
        for key in keys:
            found.update(dict.fromkeys(key.get(part, {})))
    return list(found)


def _argument(name: str, old: Mapping[str, Any], new: Mapping[str, Any], values: Mapping[str, Any]) -> str | None:
    before, after = _kind(name, old), _kind(name, new)
    if before == after:
        return None
    (old_type, old_constant, old_divisible), (new_type, new_constant, new_divisible) = before, after
    what = f"argument {name}" if new_type != "constexpr" or old_type != "constexpr" else f"constexpr {name}"
    now = _shown(name, new_type, new_constant, new_divisible, values)
    if old_type == new_type == "constexpr":
        return f"{what} was {old_constant}, now {new_constant}"
    if old_type != new_type and "constexpr" not in (old_type, new_type):
        return f"{what} was {old_type}, now {new_type}"
    return f"{what} was {_shown(name, old_type, old_constant, old_divisible, {})}, now {now}"


def _kind(name: str, key: Mapping[str, Any]) -> tuple[str | None, str | None, bool]:
    """Type, constant and divisibility by 16 of an argument in a key."""
    attributes = key.get("attributes", {}).get(name, "")
    constant = key.get("constexprs", {}).get(name)
    return key.get("signature", {}).get(name), constant, "divisibility" in attributes


def _shown(name: str, kind: str | None, constant: str | None, divisible: bool, values: Mapping[str, Any]) -> str:
    if constant is not None:
        return constant
    if kind is None:
        return "absent"
    if kind.startswith("*"):
        return "aligned to 16 bytes" if divisible else "not aligned to 16 bytes"
    value = values.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return "a multiple of 16" if divisible else f"any {kind}"


class History:
    """The variants of each kernel that this process has asked for, to compare new ones with."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._keys: dict[str, collections.OrderedDict[str, Mapping[str, Any]]] = {}

    def add(self, kernel: str, key: Mapping[str, Any], hash: str, values: Mapping[str, Any]) -> str:
        """Remember a variant; the reason why it was needed."""
        with self._lock:
            known = self._keys.setdefault(kernel, collections.OrderedDict())
            again = hash in known
            earlier = [] if again else list(known.values())
            known[hash] = key
            known.move_to_end(hash)
            if len(known) > _KEPT:
                known.popitem(last=False)
        if again:
            return "asked for again (another device, another copy of the kernel, or a cache that was emptied)"
        return nearest(earlier, key, values)

    def variants(self, kernel: str) -> list[Mapping[str, Any]]:
        """The keys known for a kernel (`module.qualname`), oldest first."""
        with self._lock:
            return list(self._keys.get(kernel, {}).values())


def nearest(earlier: Iterable[Mapping[str, Any]], key: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """The difference to the nearest of `earlier` keys, the latest of equally near ones, as one sentence."""
    best: list[str] | None = None
    for candidate in earlier:
        differences = compare(candidate, key, values)
        if best is None or len(differences) <= len(best):
            best = differences
    if best is None:
        return "first variant of this kernel in this process"
    return "; ".join(best) or "its options differ in a way that only the backend knows"


history = History()


# ---- an argument whose values keep compiling ----

_watch_lock = forks.lock()
# (kernel, argument, digest of everything else in the key) -> the values of the argument.
_seen: collections.OrderedDict[tuple[str, str, str], list[str]] = collections.OrderedDict()
_SEEN_KEPT = 4096
_warned: set[tuple[str, str]] = set()


class RecompileWarning(UserWarning):
    """A kernel keeps being compiled for new values of one argument."""


def watch(kernel: str, key: Mapping[str, Any]) -> None:
    """Note a variant; warn when an argument alone has made too many of them."""
    for name in {**key.get("signature", {}), **key.get("constexprs", {})}:
        value = key.get("constexprs", {}).get(name)
        if value is None:
            # Types and alignment take few values.
            continue
        rest = {part: _without(held, name) if isinstance(held, dict) else held for part, held in key.items()}
        place = (kernel, name, hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest())
        with _watch_lock:
            values = _seen.setdefault(place, [])
            if value in values:
                continue
            values.append(value)
            _seen.move_to_end(place)
            if len(_seen) > _SEEN_KEPT:
                _seen.popitem(last=False)
            enough = len(values) >= (_MANY_POWERS if all(map(_is_power_of_two, values)) else _MANY)
            if not enough or (kernel, name) in _warned or _is_tuning():
                continue
            _warned.add((kernel, name))
        _warn(kernel, name, values, key)


def _without(part: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {other: value for other, value in part.items() if other != name}


def _is_power_of_two(text: str) -> bool:
    return text.isdecimal() and (int(text) & (int(text) - 1)) == 0


def _is_tuning() -> bool:
    """Whether an autotuner is trying configurations: it varies constants on purpose."""
    frame = sys._getframe(1)
    while frame is not None:
        if re.search(r"(autotuner|tuner|tuning)\.py$", os.path.basename(frame.f_code.co_filename)):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _warn(kernel: str, name: str, values: list[str], key: Mapping[str, Any]) -> None:
    shown = ", ".join(values[:4]) + ", ..., " + values[-1]
    warnings.warn(
        f"kernel {kernel}: {len(values)} variants were compiled that differ only in argument {name}"
        f" ({shown})."
        f" A constexpr is compiled in: if {name} varies at run time, make it an ordinary argument"
        " (and list it in do_not_specialize if its values matter), or round it to a few values.",
        RecompileWarning,
        stacklevel=2,
    )
