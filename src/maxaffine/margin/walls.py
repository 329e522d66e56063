"""Walls of a partition, built and trained: tokens are keys (a_j, b_j), the query is W (x, 1), data points lie in known cells.

The Frobenius ATT-SVM over points x_i with cells j(i) is the partition of the largest margin at a given |W|: it leaks less than
the construction (W = 1) at the same norm, and its multipliers name the points that fix each wall.
"""

from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.margin.descent import ngd
from maxaffine.margin.problem import Tokens
from maxaffine.margin.svm import AttSvm, att_svm

ROUNDS = 30


@dataclass(frozen=True)
class Walls:
    """Cells of sites over points: built with W = 1, as ATT-SVM, and as normalised descent leaves them."""

    sites: Array  # (P, D)
    points: Array  # (N, D)
    cells: AnyArray  # (N,)
    keys: Array  # (P, D + 1): (site, -|site|^2 / 2)
    machine: AttSvm
    trained: Array  # (D + 1, D + 1)
    built_margin: float  # margin/|W| of the construction
    trained_margin: float

    def logits(self, W: Array, x: Array) -> Array:
        """k_j.W (x, 1) at points (M, D)."""
        return np.asarray(np.concatenate([x, np.ones((len(x), 1))], axis=1) @ W.T @ self.keys.T)

    @property
    def best(self) -> Array:
        """W of the machine."""
        return np.asarray(self.machine.p.reshape(self.trained.shape))


def walls(sites: Array, points: Array, steps: int = 3000, pace: float = 0.02, enough: float | None = None) -> Walls:
    """Build, solve and train, from W = 1; a step moves W by `pace` times |p_mm|, which grows as the margin shrinks.

    `enough`: training goes on, as many steps again, until that share of the best margin is reached, 30 times at most.
    """
    keys = np.concatenate([sites, -0.5 * (sites**2).sum(axis=1, keepdims=True)], axis=1)
    queries = np.concatenate([points, np.ones((len(points), 1))], axis=1)
    cells = (queries @ keys.T).argmax(axis=1)
    lifted = np.einsum("jd,ne->njde", keys, queries).reshape(len(points), len(sites), -1)
    scores = (np.arange(len(sites)) == cells[:, None]).astype(np.float64)
    machine, one = att_svm(lifted, cells), np.eye(keys.shape[1]).ravel()

    def margin(W: Array) -> float:
        return float((machine.differences @ W).min() / np.linalg.norm(W))

    trained = one
    for _ in range(1 if enough is None else ROUNDS):
        trained = ngd(Tokens(lifted, scores), start=trained, step=pace * machine.length, steps=steps, every=steps).p[-1]
        if enough is not None and margin(trained) >= enough * machine.margin:
            break
    return Walls(sites, points, cells, keys, machine, trained.reshape(keys.shape[1], -1), margin(one), margin(trained))


def line_walls(W: Array, keys: Array) -> Array:
    """Where neighbouring cells meet on the line, for sites of one dimension in order."""
    q = keys @ W
    return np.asarray((q[:-1, 1] - q[1:, 1]) / (q[1:, 0] - q[:-1, 0]))
