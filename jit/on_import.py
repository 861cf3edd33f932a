"""Do something when a module is first imported, without importing it.

Torch's tracer and compiler take seconds to import and most programs never need them:
``when_imported(name, action)`` leaves word instead. (wrapt offers the same and costs 150 ms to import, which every
process would pay, since Triton loads this package as a plugin.)
"""

from __future__ import annotations

import importlib
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Action = str | Callable[[ModuleType], object]

_waiting: dict[str, list[Action]] = {}
_asking = threading.local()


def when_imported(name: str, action: Action) -> None:
    """Call ``action`` with module ``name`` now, if it is imported, or right after it is.

    An action given as ``"module:function"`` is itself imported only then.
    """
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        _act(action, module)
        return
    _waiting.setdefault(name, []).append(action)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _act(action: Action, module: ModuleType) -> None:
    """Act; an error is a warning, since whoever imports the module may know nothing of us."""
    try:
        if isinstance(action, str):
            home, _, function = action.partition(":")
            action = getattr(importlib.import_module(home), function)
            assert callable(action)
        action(module)
    except Exception as error:
        warnings.warn(
            f"opgraft could not follow the import of {module.__name__} ({action}): {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=3,
        )


class _Finder:
    """Finds nothing itself: it lets the others find a module that is waited for, and adds a step to its loading."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _waiting or getattr(_asking, "name", None) == name:
            return None
        _asking.name = name  # another finder may ask all finders in turn
        try:
            for finder in sys.meta_path:
                spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
                if spec is not None and spec.loader is not None:
                    _extend(spec.loader, name)
                    return spec
        finally:
            _asking.name = None
        return None


def _extend(loader: Any, name: str) -> None:
    load = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        load(module)
        for action in _waiting.pop(name, ()):
            _act(action, module)

    loader.exec_module = exec_module


_finder: Any = _Finder()
