"""One function, looked at alone: the functions that its source names and the values that it reads.

``analyze(fn)`` is made from the syntax tree on first use and kept on the function.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import types
from dataclasses import dataclass, field
from typing import Any

from triton.runtime.jit import ConstexprFunction as TritonConstexprFunction
from triton.runtime.jit import JITCallable as TritonJITCallable

from . import content
from .reads import ABSENT, CellScope, ClassScope, ReadValue, immutable, same
from .symbol_name import tell_apart
from .syntax import parse

# Modules whose contents belong to Triton or to Python: their versions are part of the store's key.
_KNOWN_MODULES = frozenset({"triton.language", "triton.experimental.gluon.language", "copy", "math"})
_LIBDEVICE = "triton.language.extra.libdevice"
# Python builtins that a kernel may use.
_BUILTINS = {
    name: getattr(__import__("builtins"), name)
    for name in ("float", "getattr", "int", "isinstance", "len", "list", "max", "min", "print", "range")
}


@dataclass
class Analysis:
    """One function, looked at alone."""

    source: str
    text: str
    """Everything about the function itself that its code depends on."""
    functions: list[Any] = field(default_factory=list)
    """The functions it names, in source order, each once."""
    values: dict[tuple[str, int], ReadValue] = field(default_factory=dict)
    """Variables it reads, by name and identity of the scope."""

    def rebound(self) -> bool:
        """Whether one of its names stands for another function now."""
        return any(read.is_function and read.changed() for read in self.values.values())


def analyze(fn: Any) -> Analysis:
    """The analysis of one function: made on first use, kept on it, made again when its source was changed.

    Raises RuntimeError when it calls a plain Python function.
    """
    fn = getattr(fn, "__func__", fn)
    known: Analysis | None = fn.__dict__.get("_analysis")
    source = fn.src
    if known is not None and known.source is source and not known.rebound():
        return known
    made = _Reader(fn, source).read()
    tell_apart(fn)
    # Threads that come here together make equal analyses; all must use one, since each has copied the values.
    return _publish(fn, known, made)


def _publish(fn: Any, replaced: Analysis | None, made: Analysis) -> Analysis:
    attributes = fn.__dict__
    if replaced is not None and attributes.get("_analysis") is replaced:
        attributes["_analysis"] = made
        return made
    kept: Analysis = attributes.setdefault("_analysis", made)
    return kept if kept.source is made.source else made


def full_name(fn: Any) -> str:
    """``module.qualname`` of a function."""
    return str(getattr(fn, "_fn_name", None) or getattr(fn, "__name__", fn))


class _Reader(ast.NodeVisitor):
    """Walks the source of one function and notes what it names.

    A name that was assigned before, in source order, is a local variable; others are looked up in the
    closure, then in the globals, as Python does.
    """

    def __init__(self, fn: Any, source: str) -> None:
        self.fn = fn
        self.function = fn.fn
        self.globals = self.function.__globals__
        self.cells = dict(zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True))
        self.local: set[str] = set()
        # Depth of code that may be skipped: names assigned there may still be global afterwards.
        self.maybe_local: set[str] = set()
        self.in_annotation = False
        self.in_default = False
        self.at_compile_time = isinstance(fn, TritonConstexprFunction)
        self.nested = False
        self.analysis = Analysis(source, "")
        self.known_functions: set[int] = set()
        self.parts: list[str] = []
        # What a stock function saw when it was hashed.
        self.already_seen: dict[Any, Any] = {}
        if not hasattr(type(fn), "_reads_own_values"):
            self.already_seen = fn.__dict__.get("used_global_vals") or {}

    def read(self) -> Analysis:
        fn, analysis = self.fn, self.analysis
        self.parts = [
            f"{self.function.__module__}.{self.function.__qualname__}",
            str(fn.starting_line_number),
            analysis.source,
        ]
        self.visit(parse(analysis.source))
        self._read_defaults()
        analysis.text = "\0".join(self.parts)
        return analysis

    # -- What was found --------------------------------------------------------------------------------------

    def _read_defaults(self) -> None:
        """Default values were fixed when the function was made, so they are part of it."""
        for name, parameter in self.fn.signature.parameters.items():
            default = parameter.default
            if default is inspect.Parameter.empty:
                continue
            if isinstance(default, TritonJITCallable):
                self._note_function(default)
            else:
                self.parts.append(f"{name}={content.text(default)}")

    def _note_function(self, function: Any, name: str | None = None, scope: Any = None, key: int = 0) -> None:
        if name is not None:
            self.analysis.values.setdefault((name, key), ReadValue(name, scope, function, function))
        function = getattr(function, "__func__", function)
        if id(function) not in self.known_functions:
            self.known_functions.add(id(function))
            self.analysis.functions.append(function)

    def _note(self, value: Any, name: str | None = None, scope: Any = None, key: int = 0) -> None:
        """Note a value that the source names: a function is followed, a constant is copied and watched."""
        if value is None or isinstance(value, types.ModuleType) or self.in_default:
            return
        if getattr(value, "__triton_aggregate__", False):
            self.parts.append(f"{content.text(value)} {_annotations_text(value)}")
            for attribute in value.hash_attrs:
                self._note(attribute)
            return
        if getattr(value, "__triton_builtin__", False) or getattr(value, "__module__", "") == _LIBDEVICE:
            return
        if isinstance(value, TritonJITCallable):
            self._note_function(value, name, scope, key)
            return
        if callable(value) and not isinstance(value, type) and value.__class__.__name__ != "constexpr":
            if self.in_annotation:
                return
            if self.at_compile_time:
                # Plain Python may call plain Python.
                self.parts.append(f"{name}={content.text(value)}")
                return
            raise RuntimeError(
                f"Unsupported function referenced: {value} ({name or getattr(value, '__name__', '?')} in"
                f" {full_name(self.fn)}); a kernel calls only functions decorated with jit, functions of"
                " triton.language, and constexpr_function for plain Python at compile time"
            )
        if name is not None and scope is not None:
            self._note_value(name, scope, key, value)

    def _note_value(self, name: str, scope: Any, key: int, value: Any) -> None:
        if (name, key) in self.analysis.values:
            return
        fixed = immutable(value)
        kept = value
        if (name, key) in self.already_seen:
            kept = self.already_seen[name, key][0]
            fixed = fixed and same(kept, value)
        elif not fixed:
            with contextlib.suppress(Exception):
                kept = copy.deepcopy(value)
        self.analysis.values[name, key] = ReadValue(name, scope, kept, value if fixed else ABSENT)
        self.parts.append(f"{name}={content.text(kept)}")

    def _lookup(self, name: str) -> tuple[Any, Any, int]:
        """Value, scope and identity of the scope of a name that is not local."""
        cell = self.cells.get(name)
        if cell is not None:
            scope = CellScope(name, cell)
            return scope.get(name, ABSENT), scope, id(cell)
        return self.globals.get(name, ABSENT), self.globals, id(self.globals)

    # -- Expressions -----------------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> Any:
        if not isinstance(node.ctx, ast.Load) or node.id in self.local:
            return None
        value, scope, key = self._lookup(node.id)
        if value is ABSENT or value is _BUILTINS.get(node.id, ABSENT):
            return None
        if node.id in self.maybe_local and not _usable(value):
            return None
        self._note(value, node.id, scope, key)
        return value

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        owner = self.visit(node.value)
        if owner is None or getattr(owner, "__name__", "") in _KNOWN_MODULES:
            return None
        value = getattr(owner, node.attr, None)
        if isinstance(owner, types.ModuleType):
            self._note(value, node.attr, vars(owner), id(vars(owner)))
        elif isinstance(owner, type) and not getattr(owner, "__triton_aggregate__", False):
            self._note(value, node.attr, ClassScope(owner), id(owner))
        else:
            # Part of a value that was noted itself.
            self._note(value)
        return value

    def visit_ListComp(self, node: ast.ListComp) -> None:
        outer = set(self.local)
        for generator in node.generators:
            self.visit(generator.iter)
            self._assign(generator.target)
            for condition in generator.ifs:
                self.visit(condition)
        self.visit(node.elt)
        self.local = outer

    visit_SetComp = visit_ListComp  # type: ignore[assignment]
    visit_GeneratorExp = visit_ListComp  # type: ignore[assignment]

    def visit_DictComp(self, node: ast.DictComp) -> None:
        outer = set(self.local)
        for generator in node.generators:
            self.visit(generator.iter)
            self._assign(generator.target)
            for condition in generator.ifs:
                self.visit(condition)
        self.visit(node.key)
        self.visit(node.value)
        self.local = outer

    def visit_Lambda(self, node: ast.Lambda) -> None:
        outer = set(self.local)
        self.local |= {argument.arg for argument in _all_arguments(node.args)}
        self.visit(node.body)
        self.local = outer

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._assign(node.target)

    # -- Statements ------------------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if self.nested:
            self.local.add(node.name)
        outer, self.nested = (set(self.local) if self.nested else None), True
        self.in_default = True
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        self.in_default = False
        self.in_annotation = True
        arguments = _all_arguments(node.args)
        for argument in arguments:
            if argument.annotation is not None:
                self.visit(argument.annotation)
        if node.returns is not None:
            self.visit(node.returns)
        self.in_annotation = False
        self.local |= {argument.arg for argument in arguments}
        self._visit_all(node.body)
        if outer is not None:
            self.local = outer

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.type is not None:
            self.visit(node.type)
        if node.name is not None:
            self.local.add(node.name)
        self._visit_all(node.body)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.local |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}

    visit_ImportFrom = visit_Import

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._assign(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.in_annotation = True
        self.visit(node.annotation)
        self.in_annotation = False
        if node.value is not None:
            self.visit(node.value)
        self._assign(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            # Reads the variable too.
            self.visit(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))
        self.visit(node.value)
        self._assign(node.target)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        before = set(self.local)
        self._assign(node.target)
        self._visit_all(node.body)
        self._leave(before, self.local)
        self._visit_all(node.orelse)

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        before = set(self.local)
        self._visit_all(node.body)
        self._leave(before, self.local)
        self._visit_all(node.orelse)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        before = set(self.local)
        self._visit_all(node.body)
        after_body, self.local = self.local, set(before)
        self._visit_all(node.orelse)
        after_else = self.local
        self.local = after_body & after_else
        self.maybe_local |= (after_body | after_else) - self.local

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            self.visit(item.context_expr)
            if item.optional_vars is not None:
                self._assign(item.optional_vars)
        self._visit_all(node.body)

    def _visit_all(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.visit(statement)

    def _leave(self, before: set[str], after: set[str]) -> None:
        """Leave code that may not have run: what it assigned may be local."""
        self.maybe_local |= after - before
        self.local = before

    def _assign(self, target: ast.expr) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.local.add(node.id)
        if not isinstance(target, ast.Name):
            # Subscripts and attributes read what they are of.
            self.visit(target)


def _all_arguments(arguments: ast.arguments) -> list[ast.arg]:
    extra = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra]


def _annotations_text(value: Any) -> str:
    annotations = getattr(value, "__annotations__", {})
    return content.text({name: _annotation_text(item) for name, item in annotations.items()})


def _annotation_text(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else content.text(annotation)


def _usable(value: Any) -> bool:
    """Whether a kernel may read this global: the compiler refuses other values."""
    return value.__class__.__name__ in ("constexpr", "dtype") or isinstance(
        value, (TritonJITCallable, types.ModuleType)
    )
