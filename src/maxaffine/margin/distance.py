"""The shortest p with G p >= h, or weights which show that there is none: least-distance programming by Lawson and Hanson.

    u = argmin_{u >= 0} |E u - e|,   E = [G^T; h^T],   e = (0, .., 0, 1),   r = E u - e

r = 0: the weights u have G^T u = 0 and h.u = 1, so G p >= h is impossible (Farkas). Else p = -r[:d] / r[d] and the
multipliers are u / -r[d]; the non-negative least squares end on an exact active set, from which p is solved again.

|r| is about 1/|p| in units of G, so a long p looks like none: the problem is then solved again in units in which p is short,
and called impossible only where the weighted sum of rows is 0 to rounding.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr, solve_triangular
from scipy.optimize import nnls

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused

TOUCHES = 1e-7  # slack below which a constraint is active
LEAST = 1e-100
ROUNDING = 1e-13  # a weighted sum of rows this small beside its terms is 0
SHORT = 1e3  # a p that is no longer than this in the units of the solver is told from none


class NotSeparable(Refused):
    """No p has G p >= h.  `weights` (one per row, h.weights = 1) show it: a p of any such kind has |p| >= `least`."""

    weights: Array
    least: float

    @classmethod
    def by(cls, reason: str, weights: Array, least: float) -> "NotSeparable":
        """With its certificate."""
        made = cls(reason)
        made.weights, made.least = weights, least
        return made


@dataclass(frozen=True)
class Shortest:
    """The shortest p, its multipliers, slacks G p - h, and how far the conditions of Karush, Kuhn and Tucker are from met."""

    p: Array
    duals: Array
    slack: Array
    kkt: dict[str, float]

    @property
    def residual(self) -> float:
        """The largest of the residuals."""
        return max(self.kkt.values())


def shortest(G: Array, h: Array, reason: str = "no p satisfies G p >= h") -> Shortest:
    """argmin |p| subject to G p >= h; NotSeparable with a certificate where nothing satisfies it."""
    if not (h > 0).any():
        return _found(np.zeros(G.shape[1]), np.zeros(len(G)), G, h)
    if 0 < np.abs(G).max() < LEAST:
        raise Refused(f"the differences of the keys are below {LEAST:g}, whose squares are lost in float64: rescale the keys.")
    lengths = np.linalg.norm(G, axis=1)
    size = float(lengths.max()) or 1.0
    while True:
        u, r = _least_squares(G / size, h)
        weights = u / float(h @ u)
        off = float(np.linalg.norm(G.T @ weights))
        if off <= ROUNDING * float(weights @ lengths):
            raise NotSeparable.by(reason, weights, np.inf if off == 0 else 1.0 / off)
        if -r[-1] * SHORT**2 >= 1:
            break
        size *= float(np.linalg.norm(r))
    p, duals = -r[:-1] / r[-1] / size, u / -r[-1] / size**2
    rough = _found(p, duals, G, h)
    again = _solved(G, h, duals > 0)
    return again if again is not None and again.residual <= rough.residual else rough


def _least_squares(G: Array, h: Array) -> tuple[Array, Array]:
    """u and r; columns of E have length 1 while it is solved."""
    E = np.concatenate([G.T, h[None]])
    e = np.zeros(len(E))
    e[-1] = 1.0
    columns = np.linalg.norm(E, axis=0)
    columns[columns == 0] = 1.0
    try:
        u, _ = nnls(E / columns, e, maxiter=100 * (len(h) + 10))
    except RuntimeError:
        what = f"least squares for {len(h)} constraints in {G.shape[1]} dimensions"
        raise Refused(f"{what} did not settle: rescale the keys.") from None
    return u / columns, E @ (u / columns) - e


def _solved(G: Array, h: Array, active: Array) -> Shortest | None:
    """The least p with equality on the active rows, by QR; None where a multiplier is negative."""
    rows = G[active]
    if not len(rows) or len(rows) > G.shape[1]:
        return None
    lengths = np.exp2(np.round(np.log2(np.linalg.norm(rows, axis=1))))  # powers of 2, which do not round
    Q, R = qr((rows / lengths[:, None]).T, mode="economic")
    if np.abs(np.diag(R)).min() <= 1e-14 * np.abs(np.diag(R)).max():
        return None
    lower = solve_triangular(R, h[active] / lengths, trans="T")
    duals = np.zeros(len(h))
    duals[active] = solve_triangular(R, lower) / lengths
    return None if duals.min() < 0 else _found(Q @ lower, duals, G, h)


def _found(p: Array, duals: Array, G: Array, h: Array) -> Shortest:
    slack = G @ p - h
    length = max(float(np.linalg.norm(p)), 1.0)
    kkt = {
        "stationarity": float(np.linalg.norm(p - G.T @ duals)) / length,
        "primal": max(0.0, -float(slack.min(initial=0.0))),
        "complementarity": float(np.abs(duals * slack).max(initial=0.0)) / length**2,
        "gap": abs(float(p @ p - h @ duals)) / length**2,
    }
    return Shortest(p, duals, slack, kkt)
