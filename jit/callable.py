"""What can be called from a kernel: a Python function with its source, its scope and its cache key.

`JITCallable` is the common base of `JITFunction` and `ConstexprFunction`. Its cache key (see `dependencies`)
is computed on first use and is an attribute of the instance from then on.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
import textwrap
import threading
import types
from collections.abc import Callable
from typing import Any

from triton.runtime.jit import JITCallable as TritonJITCallable

from . import dependencies, registry
from .symbol_name import tell_apart
from .syntax import parse

_DEFINITION = re.compile(r"^([ \t]*)def\s+\w+\s*[\(\[]", re.MULTILINE)


class _KeySlot(TritonJITCallable):  # type: ignore[misc]
    """Holds the cache key where it is read as fast as any attribute, though Triton's class has a property there."""

    __slots__ = ("cache_key",)

    cache_key: str


class JITCallable(_KeySlot):
    """A Python function that kernels can call.

    Attributes:
        fn: the Python function.
        signature: its ``inspect.Signature``.
        raw_src, starting_line_number: its lines as they stand in the file, with decorators, and the number of the
            first one.
        src: its source from ``def`` on, dedented. It is not settable; `_unsafe_update_src` replaces it.
        cache_key: 64 hexadecimal digits over everything that its compiled code depends on, apart from arguments.
        used_global_vals: the variables it reads: ``(name, id of scope) -> (value then, scope)``.

    Raises ValueError when there is no source file, or the source is not a ``def``.
    """

    # Tells an analysis that values are copied here and not by Triton.
    _reads_own_values = True

    fn: Any
    signature: inspect.Signature

    def __init__(self, fn: Callable[..., Any]) -> None:
        if not isinstance(fn, types.FunctionType):
            raise TypeError(f"expected a Python function made by def, got {fn!r} of type {type(fn).__name__}")
        self.fn = fn
        self.signature = inspect.signature(fn)
        self.raw_src, self.starting_line_number = _source_lines(fn)
        self._fn_name = f"{fn.__module__}.{fn.__qualname__}"
        self._hash_lock = threading.RLock()
        text = "".join(self.raw_src)
        definition = _DEFINITION.search(text)
        if definition is None:
            raise ValueError(
                f"{self._fn_name}: @jit functions are written with def; its source, line"
                f" {self.starting_line_number} of {fn.__code__.co_filename}, has none"
            )
        self.file_name = fn.__code__.co_filename
        self.def_file_line_number = self.starting_line_number + text.count("\n", 0, definition.start())
        self.def_file_col_number = len(definition.group(1)) + 1
        source = textwrap.dedent("".join(self.raw_src))
        start = _DEFINITION.search(source)
        assert start is not None
        self._src = source[start.start() :]
        self.__doc__ = fn.__doc__
        self.__name__ = fn.__name__
        self.__qualname__ = fn.__qualname__
        tell_apart(self)
        registry.add(self)
        self.__globals__ = fn.__globals__
        self.__module__ = fn.__module__

    # -- Source ----------------------------------------------------------------------------------------------

    @property
    def src(self) -> str:
        """The source from ``def`` on."""
        return self._src

    @src.setter
    def src(self, value: str) -> None:
        raise AttributeError(
            "Cannot set attribute 'src' directly. Use '_unsafe_update_src()' and manually clear `.hash` of"
            " all callers instead."
        )

    def _unsafe_update_src(self, new_src: str) -> None:
        """Replace the source. Who calls this function must have its ``hash`` set to None, too."""
        self.hash = None
        self._src = new_src

    def parse(self) -> ast.Module:
        """The syntax tree of the source as it is now: a module with one function definition."""
        tree = parse(self._src)
        if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
            raise ValueError(f"{self._fn_name}: expected the source of one function, got\n{self._src}")
        return tree

    def get_capture_scope(self) -> dict[str, Any]:
        """What names mean in the function: its globals, and before them its closure's variables."""
        closure = self.fn.__closure__
        if closure is None:
            return self.__globals__
        found = dict(self.__globals__)
        for name, cell in zip(self.fn.__code__.co_freevars, closure, strict=True):
            value = dependencies.CellScope(name, cell).get(name, dependencies.ABSENT)
            if value is not dependencies.ABSENT:
                found[name] = value
        return found

    @property
    def type(self) -> Any:
        """Its type in a kernel: a constant."""
        from triton.language.core import constexpr_type

        return constexpr_type(self)

    def _flatten_ir(self, handles: list[Any]) -> None:
        """A function is passed at compile time only: it adds no value to the IR."""

    # -- Key -------------------------------------------------------------------------------------------------

    def _remember_cache_key(self) -> str:
        key = dependencies.cache_key(self)
        reads = dependencies.used_values(self)
        attributes = self.__dict__
        attributes["_reads"] = tuple(reads.values())
        attributes["_used_global_vals"] = {
            where: (read.value, read.scope) for where, read in reads.items() if not read.is_function
        }
        attributes["cache_key"] = self.cache_key = key
        return key

    def __getattr__(self, name: str) -> Any:
        """The cache key, when it is not known yet."""
        if name == "cache_key":
            return self._remember_cache_key()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def hash(self) -> str | None:
        """The cache key, or None when it is not yet computed. Set it to None to have it computed anew."""
        return self.__dict__.get("cache_key")

    @hash.setter
    def hash(self, value: str | None) -> None:
        if value is None:
            for name in ("cache_key", "_analysis", "_reads", "_used_global_vals"):
                self.__dict__.pop(name, None)
            with contextlib.suppress(AttributeError):
                del self.cache_key
        else:
            self.__dict__["cache_key"] = self.cache_key = value

    @property
    def used_global_vals(self) -> dict[tuple[str, int], tuple[Any, Any]]:
        """Variables read by this function and those it reaches, with the values they had when first seen."""
        if "_used_global_vals" not in self.__dict__:
            self._remember_cache_key()
        found: dict[tuple[str, int], tuple[Any, Any]] = self.__dict__["_used_global_vals"]
        return found

    def check_dependencies(self) -> bool:
        """Whether the cache key still holds; False, and a new key, when a name stands for another function.

        Raises RuntimeError when a variable that the function reads has changed since it was first seen.
        """
        reads = self.__dict__.get("_reads")
        if not reads:
            return True
        for read in reads:
            if read.scope.get(read.name) is not read.seen:
                break
        else:
            return True
        dependencies.raise_if_changed(reads, self._fn_name)
        if not any(read.changed() for read in reads):
            return True
        return self.cache_key == self._remember_cache_key()

    def __hash__(self) -> int:
        return hash(self.cache_key)

    __eq__ = object.__eq__

    def _shown_name(self) -> str:
        """``module:qualname``; local functions, which can have one name, also say what they hold."""
        return f"{self.fn.__module__}:{self.__qualname__}"

    def __class_getitem__(cls, item: Any) -> types.GenericAlias:
        """``JITFunction[...]`` in annotations, as with Triton's class."""
        return types.GenericAlias(cls, item)

    # -- Copies ----------------------------------------------------------------------------------------------

    def __copy__(self) -> JITCallable:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> JITCallable:
        """A kernel is shared by copies of what holds it, as Python functions are."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by name, as Python functions are; a local one by name and content."""
        local = "<locals>" in self.fn.__qualname__
        return registry.find, (registry.qualified_name(self), self.cache_key if local else "")


def _source_lines(fn: Callable[..., Any]) -> tuple[list[str], int]:
    try:
        return inspect.getsourcelines(fn)
    except (OSError, TypeError, IndexError) as error:
        raise ValueError(
            f"@jit functions should be defined in a Python file: no source found for"
            f" {fn.__module__}.{fn.__qualname__} (it says {fn.__code__.co_filename!r}); put the kernel into a"
            " file and import it"
        ) from error
