"""The one error of the IR package."""


class IRError(ValueError):
    """Text that is not Triton IR in generic form, or a rewrite that would break the IR.

    `line` is the 1-based line of the text where reading stopped, or None for rewrites.
    """

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(f"line {line}: {message}" if line is not None else message)
        self.line = line
