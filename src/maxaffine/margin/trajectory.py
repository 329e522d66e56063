"""What a run of descent leaves: times or steps, queries, the tokens selected at the end, leakage and loss gap."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.margin.gradient import gap, leakage, log_attention
from maxaffine.margin.losses import loss_of
from maxaffine.margin.problem import Tokens


@dataclass(frozen=True)
class Trajectory:
    """Queries p (k, d) at times (k,): step numbers of a descent, or T of a gradient flow."""

    problem: Tokens
    loss: str
    time: Array
    p: Array

    @cached_property
    def selected(self) -> AnyArray:
        """The tokens that attention prefers at the end."""
        found: AnyArray = log_attention(self.problem.keys, self.p[-1]).argmax(axis=-1)
        return found

    @cached_property
    def length(self) -> Array:
        """|p| at every time."""
        found: Array = np.linalg.norm(self.p, axis=-1)
        return found

    @cached_property
    def leak(self) -> Array:
        """1 - a_i,alpha of every input at every time, alpha as selected at the end."""
        return leakage(log_attention(self.problem.keys, self.p), self.selected)

    @cached_property
    def gap(self) -> Array:
        """L(p) - L_alpha at every time."""
        return gap(self.problem.keys, self.problem.scores, loss_of(self.loss), self.p, self.selected)

    def cosine(self, direction: Array) -> Array:
        """cos of p to a direction at every time."""
        found: Array = self.p @ direction / np.maximum(self.length * np.linalg.norm(direction), 1e-300)
        return found
