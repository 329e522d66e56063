"""Which choice attracts which start: normalised descent from many starts, each end judged for local optimality.

A start whose choice is not locally optimal can be followed on, |p| doubled every thousand steps: it leaves, or is on its way.
"""

from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.errors import BadInput
from maxaffine.margin.certificate import certificate
from maxaffine.margin.descent import ends
from maxaffine.margin.gradient import log_attention
from maxaffine.margin.local import Locality, Optimality, is_locally_optimal
from maxaffine.margin.problem import Tokens, numbers

AGAIN = 1000  # steps in which |p| about doubles


@dataclass(frozen=True)
class Basins:
    """For every start the number of its choice in `choices`, which are sorted by their share."""

    starts: Array  # (B, d)
    label: AnyArray  # (B,)
    choices: tuple[tuple[int, ...], ...]
    localities: tuple[Locality, ...]
    mass: Array  # (B,) the least attention on a chosen token at the end
    ends: Array  # (B, d)

    def share(self, status: Optimality) -> float:
        """The share of starts whose choice has that status."""
        which = [k for k, found in enumerate(self.localities) if found.status is status]
        return float(np.isin(self.label, which).mean())

    def held(self) -> Array:
        """Of every start at a choice that is not locally optimal, what its margin certifies of the cosine to its machine."""
        found = []
        for k, p in zip(self.label, self.ends, strict=True):
            svm = self.localities[k].svm
            if not self.localities[k].attracts:
                found.append(certificate(p, svm).least_cosine if svm is not None and p.any() else -1.0)
        return np.array(found)


def basins(problem: Tokens, starts: Array, loss: str = "log", step: float = 0.1, steps: int = 1000, further: int = 0) -> Basins:
    """Descend from every start (B, d) and judge where it ends; `further` thousands of steps for those that must leave."""
    begun = numbers("starts", starts, 2, f"(starts, {problem.shape[2]})")
    if begun.shape[1] != problem.shape[2] or not len(begun):
        raise BadInput(f"`starts` has the shape {begun.shape}; it must be (starts, {problem.shape[2]}).")
    p = ends(problem, loss, begun, step, steps)
    for round_ in range(further + 1):
        log_a = log_attention(problem.keys, p)
        chosen, label = np.unique(log_a.argmax(axis=-1), axis=0, return_inverse=True)
        judged = [is_locally_optimal(problem, one) for one in chosen]
        astray = np.array([not one.attracts for one in judged])[label.ravel()]
        if round_ == further or not astray.any():
            break
        pace = max(step, float(np.linalg.norm(p[astray], axis=1).mean()) / AGAIN)
        p[astray] = ends(problem, loss, p[astray], pace, AGAIN)
    order = np.argsort(-np.bincount(label.ravel()))
    choices = tuple(tuple(int(t) for t in chosen[k]) for k in order)
    localities = tuple(judged[k] for k in order)
    return Basins(begun, np.argsort(order)[label.ravel()], choices, localities, np.exp(log_a.max(axis=-1)).min(axis=-1), p)


def grid_of_starts(side: float = 3.0, count: int = 41, d: int = 2) -> Array:
    """A grid over the first two coordinates, the others 0."""
    line = np.linspace(-side, side, count)
    first, second = np.meshgrid(line, line)
    rest = np.zeros((first.size, max(d - 2, 0)))
    return np.concatenate([np.stack([first.ravel(), second.ravel()], axis=1)[:, :d], rest], axis=1)
