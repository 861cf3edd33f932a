"""The answer of the analysis in `ir/written.py`, apart from it: what the store kept is read without reading IR."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class WrittenArguments:
    """Indices of arguments of the kernel's `tt.func`.

    `written` and `read` include what had to be assumed; `reasons` says what was assumed and is empty when the
    answer is exact. `where` maps a written argument to the first operation that writes it."""

    written: tuple[int, ...]
    read: tuple[int, ...]
    reasons: tuple[str, ...] = ()
    names: tuple[str | None, ...] = ()
    where: dict[int, str] = field(default_factory=dict, compare=False)

    @property
    def exact(self) -> bool:
        return not self.reasons

    def __contains__(self, index: object) -> bool:
        return index in self.written
