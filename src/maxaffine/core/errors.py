"""The two ways a request can fail, both of them sentences.

A message names the argument, its value, the rule and the way out:
"`error` (=0) must be positive; ask for an absolute sup-norm error such as 1e-3."
"""

from __future__ import annotations

from collections.abc import Iterable


class MaxaffineError(ValueError):
    """Base of every error that maxaffine raises on purpose."""


class BadInput(MaxaffineError):
    """An argument, a file or an expression that is malformed."""


class Refused(MaxaffineError):
    """A well-formed request that cannot be proved, afforded or represented.

    What was tried before it was refused stands in its notes, which Python prints under the sentence, a line each.
    """

    @classmethod
    def after(cls, sentence: str, tried: Iterable[str]) -> Refused:
        """A refusal with what was tried, one line each."""
        refusal = cls(sentence)
        for line in tried:
            refusal.add_note(f"tried {line}")
        return refusal

    @property
    def tried(self) -> tuple[str, ...]:
        """What was tried, one line each; empty where nothing was."""
        return tuple(getattr(self, "__notes__", ()))
