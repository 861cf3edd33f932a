"""Integer polynomials over scalar variables of the generated code: bases, strides and limits of addresses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

Monomial = tuple[str, ...]


class Polynomial:
    """A sum of products of names with integer coefficients; immutable, hashable, printed as a C++ i64 expression."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int] | Iterable[tuple[Monomial, int]] = ()) -> None:
        items = terms.items() if isinstance(terms, Mapping) else terms
        self.terms: dict[Monomial, int] = {names: factor for names, factor in items if factor != 0}
        self._hash = hash(frozenset(self.terms.items()))

    @staticmethod
    def of(value: int | str) -> Polynomial:
        names: Monomial = () if isinstance(value, int) else (value,)
        return Polynomial([(names, value if isinstance(value, int) else 1)])

    @property
    def constant(self) -> int | None:
        """The value of a polynomial without names, else None."""
        if not self.terms:
            return 0
        return self.terms[()] if len(self.terms) == 1 and () in self.terms else None

    def __add__(self, other: Polynomial) -> Polynomial:
        if not other.terms:
            return self
        terms = dict(self.terms)
        for names, factor in other.terms.items():
            terms[names] = terms.get(names, 0) + factor
        return Polynomial(terms)

    def __neg__(self) -> Polynomial:
        return Polynomial({names: -factor for names, factor in self.terms.items()})

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __mul__(self, other: Polynomial) -> Polynomial:
        terms: dict[Monomial, int] = {}
        for names, factor in self.terms.items():
            for names_, factor_ in other.terms.items():
                key = tuple(sorted(names + names_))
                terms[key] = terms.get(key, 0) + factor * factor_
        return Polynomial(terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __bool__(self) -> bool:
        return bool(self.terms)

    def text(self, wide: Collection[str] = ()) -> str:
        """A C++ expression computed in 64 bits; names outside ``wide`` may be 32-bit variables."""
        parts: list[str] = []
        for names, factor in sorted(self.terms.items(), key=lambda item: (not item[0], item[0])):
            size = abs(factor)
            if not names:
                text = str(size)
            else:
                factors = [*names, *([str(size)] if size != 1 else [])]
                narrow = not any(name in wide for name in names) and (len(factors) > 1 or not parts)
                text = " * ".join([f"i64({factors[0]})" if narrow else factors[0], *factors[1:]])
            sign = "-" if factor < 0 else "+"
            parts.append(f"{sign} {text}" if parts else (f"-{text}" if factor < 0 else text))
        return " ".join(parts) or "0"

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Polynomial({self})"


ZERO = Polynomial()
ONE = Polynomial.of(1)
