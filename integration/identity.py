"""What the result of an op depends on, as text: the identity that compile caches key by.

:func:`identity` walks from a function to everything that its code reaches: its bytecode and
constants, defaults, closure cells, the globals that it names (also through attributes of modules),
functions of the user in turn, and kernels with their own cache keys. Values count by content.
Functions of torch, Triton and the standard library count by name: the caches already key by those
versions. The walk never calls user code other than ``repr`` of plain values.

Objects of a user's class count by their class and, where they are dataclasses or have
``__dict__``, by the values in them. What has no content to read makes a text that is unique to the
process, so that a cache misses rather than lies.
"""

from __future__ import annotations

import dataclasses
import dis
import enum
import hashlib
import os
import sys
import sysconfig
import types
from collections.abc import Callable
from typing import Any

from .build import build_identity

__all__ = ["OpIdentity", "identity"]

_PROCESS = os.urandom(8).hex()
_MAX_DEPTH = 64


def identity(*functions: Callable[..., Any] | None) -> str:
    """A hexadecimal digest (SHA-256) of what the results of ``functions`` depend on."""
    walk = _Walk()
    for function in functions:
        walk.value(function)
    return walk.digest.hexdigest()


class OpIdentity:
    """What AOTAutograd's cache reads for an op: an object that looks like a kernel with a source.

    ``src`` is computed when it is read, so that it tells what holds when a graph is compiled.
    """

    def __init__(self, name: str, functions: Callable[[], tuple[Callable[..., Any] | None, ...]]) -> None:
        self.__name__ = name
        self._functions = functions
        # The cache walks the bytecode of `fn` for kernels called; ours are in `src` already.
        self.fn = types.FunctionType(compile("None", "<opgraft>", "eval"), {})
        self.__globals__: dict[str, Any] = {}

    @property
    def src(self) -> str:
        """The name, the digest and the build of opgraft, as one line of Python."""
        return f"# {self.__name__} {identity(*self._functions())} {build_identity()}"


class _Walk:
    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.seen: dict[int, int] = {}
        self.keep: list[Any] = []
        self.depth = 0

    def add(self, *texts: str) -> None:
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            self.digest.update(f"{len(data)}:".encode())
            self.digest.update(data)

    def value(self, value: Any) -> None:
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            self.add(type(value).__name__, repr(value))
            return
        # Whether two equal constants are one object is the compiler's business: only what can stand
        # in a cycle is named by its place.
        if not isinstance(value, (tuple, frozenset, types.CodeType)):
            if id(value) in self.seen:
                self.add("again", str(self.seen[id(value)]))
                return
            self.seen[id(value)] = len(self.seen)
            self.keep.append(value)
        self.depth += 1
        try:
            if self.depth > _MAX_DEPTH:
                self.opaque(value)
            else:
                self.compound(value)
        finally:
            self.depth -= 1

    def compound(self, value: Any) -> None:
        if hasattr(value, "cache_key") and hasattr(value, "fn"):
            self.add("kernel", str(value.cache_key), repr(getattr(value, "do_not_specialize", None)))
        elif isinstance(value, types.FunctionType):
            self.function(value)
        elif isinstance(value, (types.MethodType,)):
            self.add("method")
            self.value(value.__func__)
            self.value(value.__self__)
        elif isinstance(value, types.ModuleType):
            self.add("module", value.__name__)
        elif isinstance(value, enum.Enum):
            self.add("enum", type(value).__qualname__, value.name)
            self.value(value.value)
        elif isinstance(value, (list, tuple)):
            self.add(type(value).__name__, str(len(value)))
            for item in value:
                self.value(item)
        elif isinstance(value, (set, frozenset)):
            self.add(type(value).__name__, str(len(value)))
            self.add(*sorted(identity_of_item(item) for item in value))
        elif isinstance(value, dict):
            self.add("dict", str(len(value)))
            for key, item in value.items():
                self.value(key)
                self.value(item)
        elif isinstance(value, types.CodeType):
            self.code(value)
        elif isinstance(value, type):
            self.klass(value)
        else:
            self.instance(value)

    def function(self, function: types.FunctionType) -> None:
        if _is_library(function.__module__):
            self.add("library", str(function.__module__), function.__qualname__)
            return
        self.add("function", function.__qualname__)
        self.code(function.__code__)
        self.value(function.__defaults__)
        self.value(function.__kwdefaults__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.add("closure", name)
            try:
                self.value(cell.cell_contents)
            except ValueError:
                self.add("empty cell")
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is not None:
            self.value(wrapped)
        self.globals(function.__code__, function.__globals__)

    def globals(self, code: types.CodeType, scope: dict[str, Any]) -> None:
        """The globals that ``code`` names, and the attributes that it reads from modules among them."""
        instructions = list(dis.get_instructions(code))
        for index, instruction in enumerate(instructions):
            if instruction.opname not in ("LOAD_GLOBAL", "LOAD_NAME"):
                continue
            name = instruction.argval
            if name not in scope:
                continue  # a builtin
            found = scope[name]
            path = [name]
            for following in instructions[index + 1 :]:
                if not isinstance(found, types.ModuleType) or following.opname not in (
                    "LOAD_ATTR",
                    "LOAD_METHOD",
                ):
                    break
                path.append(following.argval)
                if not hasattr(found, following.argval):
                    break
                found = getattr(found, following.argval)
            self.add("global", ".".join(path))
            self.value(found)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self.globals(constant, scope)

    def code(self, code: types.CodeType) -> None:
        self.add("code", code.co_name, code.co_code.hex(), *code.co_names, *code.co_varnames, *code.co_freevars)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self.code(constant)
            else:
                self.value(constant)

    def klass(self, kind: type) -> None:
        self.add("class", kind.__module__, kind.__qualname__)
        if _is_library(kind.__module__):
            return
        for name, member in sorted(vars(kind).items()):
            if name in ("__dict__", "__weakref__", "__doc__", "__annotations__", "__module__"):
                continue
            if isinstance(member, (types.FunctionType, int, float, str, bool, tuple)):
                self.add(name)
                self.value(member)
            elif isinstance(member, (staticmethod, classmethod)):
                self.add(name)
                self.value(member.__func__)
            elif isinstance(member, property):
                self.add(name)
                self.value(member.fget)

    def instance(self, value: Any) -> None:
        kind = type(value)
        self.add("instance", kind.__module__, kind.__qualname__)
        if kind.__module__.partition(".")[0] in ("torch", "numpy", "triton") or isinstance(
            value, (types.BuiltinFunctionType, types.GetSetDescriptorType)
        ):
            self.library_value(value)
        elif dataclasses.is_dataclass(value):
            self.klass(kind)
            for field in dataclasses.fields(value):
                self.add(field.name)
                self.value(getattr(value, field.name))
        elif hasattr(value, "__opgraft_identity__"):
            self.add(str(value.__opgraft_identity__()))
        elif hasattr(value, "__dict__"):
            self.klass(kind)
            self.value(dict(vars(value)))
        else:
            self.opaque(value)

    def library_value(self, value: Any) -> None:
        """A dtype, an op, a builtin by its text; a tensor or an array by its content."""
        import torch

        if isinstance(value, torch.Tensor):
            if value.device.type == "cpu" and not value.is_sparse and type(value) is torch.Tensor:
                self.add(str(value.dtype), str(tuple(value.shape)))
                self.digest.update(value.detach().contiguous().view(torch.uint8).numpy().tobytes())
            else:
                self.opaque(value)
            return
        text = repr(value)
        if " at 0x" in text:
            name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
            if name is None and getattr(value, "fn", None) is not None:
                self.value(value.fn)  # an autotuner, a heuristic
                self.value({k: v for k, v in vars(value).items() if k in ("configs", "values", "keys")})
                return
            if name is None:
                self.opaque(value)
                return
            text = str(name)
        self.add(text)

    def opaque(self, value: Any) -> None:
        self.add("opaque", _PROCESS, str(id(value)))


def identity_of_item(item: Any) -> str:
    """The digest of one value, for things without order."""
    walk = _Walk()
    walk.value(item)
    return walk.digest.hexdigest()


_LIBRARIES = ("torch", "triton", "numpy", "opgraft", "typing", "functools")


def _is_library(module: str | None) -> bool:
    """Whether a module is code that the caches key by version: torch, Triton, the standard library."""
    if not module or module == "__main__":
        return False
    top = module.partition(".")[0]
    if top in _LIBRARIES or top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return file.startswith(sysconfig.get_paths()["stdlib"]) and "site-packages" not in file
