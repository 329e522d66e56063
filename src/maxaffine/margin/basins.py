"""Which choice attracts which start: normalised descent from many starts, each end judged for local optimality."""

from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.errors import BadInput
from maxaffine.margin.descent import ends
from maxaffine.margin.gradient import log_attention
from maxaffine.margin.local import Locality, Optimality, is_locally_optimal
from maxaffine.margin.problem import Tokens, numbers


@dataclass(frozen=True)
class Basins:
    """For every start the number of its choice in `choices`, which are sorted by their share."""

    starts: Array  # (B, d)
    label: AnyArray  # (B,)
    choices: tuple[tuple[int, ...], ...]
    localities: tuple[Locality, ...]
    mass: Array  # (B,) the least attention on a chosen token at the end

    def share(self, status: Optimality) -> float:
        """The share of starts whose choice has that status."""
        which = [k for k, found in enumerate(self.localities) if found.status is status]
        return float(np.isin(self.label, which).mean())


def basins(problem: Tokens, starts: Array, loss: str = "log", step: float = 0.1, steps: int = 1000) -> Basins:
    """Descend from every start (B, d) and judge where it ends; what is selected after these steps need not be the limit."""
    begun = numbers("starts", starts, 2, f"(starts, {problem.shape[2]})")
    if begun.shape[1] != problem.shape[2] or not len(begun):
        raise BadInput(f"`starts` has the shape {begun.shape}; it must be (starts, {problem.shape[2]}).")
    log_a = log_attention(problem.keys, ends(problem, loss, begun, step, steps))
    chosen, label = np.unique(log_a.argmax(axis=-1), axis=0, return_inverse=True)
    order = np.argsort(-np.bincount(label.ravel()))
    rank = np.argsort(order)
    choices = tuple(tuple(int(t) for t in chosen[k]) for k in order)
    judged = tuple(is_locally_optimal(problem, np.array(one)) for one in choices)
    return Basins(begun, rank[label.ravel()], choices, judged, np.exp(log_a.max(axis=-1)).min(axis=-1))


def grid_of_starts(side: float = 3.0, count: int = 41, d: int = 2) -> Array:
    """A grid over the first two coordinates, the others 0."""
    line = np.linspace(-side, side, count)
    first, second = np.meshgrid(line, line)
    rest = np.zeros((first.size, max(d - 2, 0)))
    return np.concatenate([np.stack([first.ravel(), second.ravel()], axis=1)[:, :d], rest], axis=1)
