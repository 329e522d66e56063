"""What a softmax of heads loses where its scores are a little off, or its query moves: from the numbers of the heads alone.

    F = sum_j w_j v_j,      w the softmax of the scores s_j

Moving every s_j by at most eta_j moves F by at most sum_{i<j} (eta_i + eta_j) w_i w_j |v_j - v_i|, the weights taken somewhere on
the way; a step of the query moves the weights' part of F by sum_{i<j} |ds_j - ds_i| w_i w_j |v_j - v_i|.  (Both are covariances:
dF = sum_j w_j ds_j (v_j - F) = sum_{i<j} w_i w_j (ds_j - ds_i) (v_j - v_i).)

What a pair says, w_i w_j |v_j - v_i|, is bounded on the cell [-1, 1]^E of a grid by the least of

    (w_i + w_j)^2 (.2240 |rho| + sup |tau| / 4)     v_j - v_i = rho (s_j - s_i) + tau: heads meet where their scores do
    sup |v_j - v_i| / 4
    sup |v_j - v_i| e^-trail                        one of them trails the other, or both trail the best of the cell

On the way tau is (eta_i + eta_j) |rho| more, and trails are as much shorter.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.runtime.segments import SOFT

UP = 1 + 1e-9  # for what is rounded in adding up


@dataclass(frozen=True)
class Blends:
    """Per cell: what errors of the scores cost, slopes of F through the weights, and how far heads are apart at most."""

    off: Array  # (cells,)
    steered: Array  # (cells, E), per unit of the place in the cell
    apart: Array  # (cells,)


def blends(cell: NDArray[np.int64], cells: int, scores: Array, values: Array, eta: Array) -> Blends:
    """Of heads sorted by the cell they are heard on.

    `scores` (P, 1 + 2 E) are coefficients of 1, v_e and v_e^2; `values` (P, M) those of the heads, in the same order and then of
    further products of powers; `eta` (P,) is what scores are off by.
    """
    E = (scores.shape[1] - 1) // 2
    made = Blends(np.zeros(cells), np.zeros((cells, E)), np.zeros(cells))
    best = np.lexsort((-scores[:, 0], cell))[np.searchsorted(cell, cell)]  # in the middle
    behind = scores - scores[best]
    trail = np.maximum(-behind[:, 0] - np.abs(behind[:, 1:]).sum(axis=1), 0.0)
    for step in range(1, int(np.bincount(cell, minlength=1).max())):
        i = np.flatnonzero(cell[step:] == cell[:-step])
        j = i + step
        d, apart, doubt = scores[j] - scores[i], values[j] - values[i], eta[i] + eta[j]
        said, most = _pair(d, apart, doubt, trail[i], trail[j], eta[best[i]])
        where = cell[i]
        made.off[:] += np.bincount(where, doubt * said, minlength=cells)
        for e in range(E):
            steep = np.abs(d[:, 1 + e]) + 2.0 * np.abs(d[:, 1 + E + e])
            made.steered[:, e] += np.bincount(where, steep * said, minlength=cells)
        np.maximum.at(made.apart, where, most)
    return Blends(made.off * UP, made.steered * UP, made.apart * UP)


def _pair(d: Array, apart: Array, doubt: Array, one: Array, other: Array, best: Array) -> tuple[Array, Array]:
    """sup w_i w_j |v_j - v_i| of every pair, and sup |v_j - v_i|; `one` and `other` is what each trails the best by.

    `doubt` is what d is off by, `best` what the score of the best is.
    """
    n = d.shape[1]
    lean, rise = d[:, 1 : 1 + n // 2], apart[:, 1 : 1 + n // 2]
    rho = (lean * rise).sum(axis=1) / np.maximum((lean * lean).sum(axis=1), 1e-300)
    tau = np.abs(apart[:, :n] - rho[:, None] * d).sum(axis=1) + np.abs(apart[:, n:]).sum(axis=1)
    tau = tau + 1e-14 * (np.abs(apart).sum(axis=1) + np.abs(rho) * np.abs(d).sum(axis=1)) + doubt * np.abs(rho)
    most = np.abs(apart).sum(axis=1)
    between = np.maximum(np.abs(d[:, 0]) - np.abs(d[:, 1:]).sum(axis=1), 0.0)
    quiet = np.exp(-np.maximum(np.maximum(between, one + other) - doubt - 2.0 * best, 0.0))
    both = sum(np.exp(-np.maximum(trail - doubt - best, 0.0)) for trail in (one, other))  # w_i + w_j at most
    return np.minimum((SOFT * np.abs(rho) + tau / 4.0) * np.minimum(both, 1.0) ** 2, most * np.minimum(quiet, 0.25)), most
