"""What was understood of a function: its expression, how it was called, and how far both agree; or why nothing was."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """A function read by tracing.

    `text` is None where it could not be read, and `why` says at which line and what to write instead.  `compared` counts the
    points at which the function and its expression were compared, `difference` is the largest seen there, relative to the
    largest value.
    """

    name: str
    how: str
    text: str | None = None
    why: str = ""
    compared: int = 0
    difference: float = 0.0
    output_shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.text if self.text is not None else f"not traced: {self.why}"

    @property
    def assumption(self) -> str:
        """What a certificate says of it."""
        return f"the function {self.name} computes {self.text}: read by one call on symbols, and {self.agreement}"

    @property
    def agreement(self) -> str:
        """How far the function and its expression were seen to agree."""
        if not self.compared:
            return "not compared: SymPy cannot compute it"
        most = "equal" if not self.difference else f"at most {self.difference:.2g} of its size apart"
        return f"{most} at {self.compared:,} points"
