"""What is known about the runtime arguments of a launch, and the kernel variants that follow.

Each leaf (:mod:`.arguments`) has a token: a Triton type (``*fp32``, ``i32``, ``i64``, ``fp32``,
``u1``), ``:16`` behind it when the address or the value is a multiple of 16, and ``?`` behind that
when the token is assumed, not proved: then the launch checks it, and takes the variant of
:meth:`Specialization.general` where it does not hold. ``1`` stands for an int that is 1.

:meth:`Specialization.of` makes a specialization from tokens; :meth:`Specialization.compile` builds
the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..jit.written import written_paths
from .arguments import walk

__all__ = ["Specialization"]


class Specialization(NamedTuple):
    """One variant of a kernel."""

    names: tuple[str, ...]
    kinds: str
    tokens: tuple[str, ...]
    literals: Mapping[str, Any]

    @staticmethod
    def of(names: Sequence[str], kinds: str, tokens: Sequence[str], literals: Mapping[str, Any]) -> Specialization:
        """A specialization from one token for each leaf and the literals by label."""
        return Specialization(tuple(names), kinds, tuple(tokens), literals)

    @property
    def assumes(self) -> bool:
        """Whether something is assumed, so that a launch may need the general variant."""
        return any(token.endswith("?") for token in self.tokens)

    def general(self) -> Specialization:
        """The variant that holds whatever the launch passes."""
        return self._replace(tokens=tuple(map(_general, self.tokens)))

    def signature(self) -> dict[str, Any]:
        """Parameter name to Triton type, ``"constexpr"`` for literals; tuples for tuples."""
        types = iter(self.tokens)
        return walk(self.kinds, self.names, lambda label, kind: "constexpr" if kind == "c" else _type(next(types)))

    def constexprs(self) -> dict[tuple[int, ...], Any]:
        """Path to value for each constexpr."""
        tokens = iter(self.tokens)

        def leaf(label: str, kind: str) -> tuple[bool, Any]:
            if kind == "c":
                return True, self.literals[label]
            return next(tokens) == "1", 1

        tree = walk(self.kinds, self.names, leaf)
        return {path: value for path, (known, value) in _paths(tree) if known}

    def attrs(self) -> dict[tuple[int, ...], list[list[Any]]]:
        """Path to attributes for each leaf that is a multiple of 16."""
        tokens = iter(self.tokens)
        tree = walk(self.kinds, self.names, lambda label, kind: (kind != "c" and ":16" in next(tokens), None))
        return {path: [["tt.divisibility", 16]] for path, (multiple, _) in _paths(tree) if multiple}

    def options(self) -> dict[str, Any]:
        """Launch options (``num_warps`` ...) among the literals."""
        labels: set[str] = set()
        walk(self.kinds, self.names, lambda label, kind: labels.add(label))
        return {name: value for name, value in self.literals.items() if name not in labels}

    def compile(self, kernel: Any, device: str) -> Any:
        """The compiled kernel for a device (``"cpu"``, ``"cuda:0"``), from a cache where it is there."""
        return kernel.variant(device, self.signature(), self.constexprs(), self.attrs(), self.options())

    def written(self, kernel: Any, device: str) -> tuple[bool, ...]:
        """One flag for each leaf: whether the kernel writes through it."""
        written = written_paths(kernel, self.signature(), self.constexprs(), self.attrs(), device, self.options())
        flags: list[bool] = []
        tree = walk(self.kinds, self.names, lambda label, kind: (kind != "c", None))
        for path, (runtime, _) in _paths(tree):
            if runtime:
                flags.append(path in written)
        return tuple(flags)


def _paths(tree: Mapping[str, Any]) -> list[tuple[tuple[int, ...], tuple[Any, Any]]]:
    """The leaves of a tree from :func:`.arguments.walk` (each a pair) with their index paths.

    A leaf is a pair whose first item is a bool; tuples of the kernel hold leaves, never bools.
    """
    found: list[tuple[tuple[int, ...], tuple[Any, Any]]] = []

    def visit(path: tuple[int, ...], value: Any) -> None:
        if len(value) == 2 and isinstance(value[0], bool):
            found.append((path, value))
        else:
            for i, item in enumerate(value):
                visit((*path, i), item)

    for i, value in enumerate(tree.values()):
        visit((i,), value)
    return found


def _type(token: str) -> str:
    return "constexpr" if token == "1" else token.partition(":")[0].rstrip("?")


def _general(token: str) -> str:
    if not token.endswith("?"):
        return token
    return "i64" if token.startswith(("i32", "i64")) else _type(token)
