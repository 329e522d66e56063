"""The line that descent follows in the end: p(T) = p_mm log T + x, the same line for flow and regularisation path.

    x = argmin over span(support differences) of  sum_S c_it e^{-g_it.x} + p_mm.x
    c_it = |l'(gamma_i,alpha)| (gamma_i,alpha - gamma_it)/n

Its stationarity says sum c e^{-g.x} g = p_mm, so that e^{-g.x} c are multipliers; where these are unique, g.x = log(c/lambda).
The part of x outside the span is fixed by the start and stays bounded. First-order asymptotics; no remainder is claimed.
"""

from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.margin.losses import loss_of
from maxaffine.margin.problem import Tokens
from maxaffine.margin.svm import AttSvm


@dataclass(frozen=True)
class Asymptote:
    """slope: d|p|/dlog T -> |p_mm|; gap: T (L - L_alpha) -> |p_mm|^2; leak: T (1 - a_i,alpha) per input."""

    direction: Array  # p_mm
    x: Array  # in the span of the support differences
    slope: float
    gap: float
    leak: Array  # (n,)

    @property
    def offset(self) -> Array:
        """The part of x across p_mm: the distance of the line from the ray."""
        unit = self.direction / self.slope
        found: Array = self.x - (self.x @ unit) * unit
        return found

    def query(self, T: float) -> Array:
        """p_mm log T + x."""
        found: Array = self.direction * np.log(T) + self.x
        return found


def asymptote(problem: Tokens, svm: AttSvm, loss: str = "log") -> Asymptote:
    """The line for a locally optimal choice; refused where a support pair has no positive multiplier or no better score."""
    on = svm.touching & (svm.wanted > 0)
    g, (i, t) = svm.differences[on], svm.pairs[on].T
    own = problem.scores[i, svm.tokens[i]]
    lead = own - problem.scores[i, t]
    if lead.min() <= 0:
        k = int(lead.argmin())
        raise Refused(
            f"there is no asymptote: token {t[k]} of input {i[k]} touches the margin and its score is not below the chosen "
            "one's, so descent leaves this choice; follow it further."
        )
    c = np.exp(loss_of(loss).log_slope(own)) * lead / problem.shape[0]
    x = _lowest(g, c, svm.p)
    weights = np.exp(-g @ x)
    leak = np.zeros(problem.shape[0])
    np.add.at(leak, i, weights)
    return Asymptote(svm.p, x, svm.length, svm.length**2, leak)


def _lowest(g: Array, c: Array, p: Array) -> Array:
    """Newton's method with halved steps on a convex function of the span."""
    _, s, vt = np.linalg.svd(g, full_matrices=False)
    basis = vt[s > 1e-12 * s[0]]
    h, q = g @ basis.T, basis @ p
    y = np.linalg.lstsq(h, np.log(c), rcond=None)[0]

    def value(y: Array) -> float:
        return float(c @ np.exp(np.minimum(-h @ y, 700.0)) + q @ y)

    for _ in range(200):
        w = c * np.exp(-h @ y)
        gradient = q - h.T @ w
        if np.linalg.norm(gradient) <= 1e-12 * np.linalg.norm(q):
            return np.asarray(y @ basis)
        move = -np.linalg.lstsq((h.T * w) @ h, gradient, rcond=None)[0]
        size = 1.0
        while value(y + size * move) > value(y) + 1e-4 * size * float(gradient @ move) and size > 1e-10:
            size /= 2
        y = y + size * move
        if np.linalg.norm(y) > 1e3:
            break
    if np.linalg.norm(q - h.T @ (c * np.exp(-h @ y))) <= 1e-9 * np.linalg.norm(q):
        return np.asarray(y @ basis)
    raise Refused("there is no asymptote: a support pair has multiplier 0, and the law needs every multiplier to be positive.")
