"""Pointwise attention (Marion et al.): f = sum_l theta(lam x_l.u) x_l.v, each token weighed on its own; theta = erf.

With g, s standard normal, th_J = theta(lam (m + gamma g)), th = theta(lam s), n1 = C zeta + gamma rho g:

    R = gamma^2 - 2 E[th_J (n1 gamma eta g + gamma^2 (nu - rho eta))] + E[th_J^2 (n1^2 + gamma^2 (1 - rho^2))]
        + 2 n E[th_J n1] rho E[th s] + n E[th^2 (rho^2 s^2 + 1 - rho^2)] + n (n-1) rho^2 E[th s]^2.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import erf, owens_t

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.meanfield.baselines import log_minimum
from maxaffine.meanfield.checks import positive
from maxaffine.meanfield.overlaps import Overlaps
from maxaffine.meanfield.problem import Problem


def _nodes(sharpness: float) -> tuple[Array, Array]:
    """Trapezoid nodes for a Gaussian times functions of sharpness * x.

    |erf(z)| grows like exp(Im(z)^2), so the rule errs by about exp(-pi^2/(2 h^2 sharpness^2)) and needs steps
    h <= 0.3/sharpness; the Gaussian itself needs h <= 0.4. Gauss-Hermite fails for sharp theta.
    """
    step = min(0.4, 0.3 / sharpness)
    x = step * np.arange(-math.ceil(9.5 / step), math.ceil(9.5 / step) + 1, dtype=np.float64)
    return x, step / math.sqrt(2 * math.pi) * np.exp(-x * x / 2)


def pointwise_risk(problem: Problem, o: Overlaps, lam: float, theta: Callable[[Array], Array] | None = None) -> float:
    """The exact risk of pointwise attention with activation ``theta`` (erf by default), for all five overlaps."""
    o.check()
    lam = positive("lam", lam, "give an inverse temperature such as 0.5")
    activation = erf if theta is None else theta
    gamma, C, n = problem.gamma, problem.C, problem.distractors
    mu, nu, eta, zeta, rho = o
    g, pg = _nodes(lam * gamma)
    s, ps = _nodes(lam)
    secret = np.asarray(activation(lam * (C * mu + gamma * g)), dtype=float)
    other = np.asarray(activation(lam * s), dtype=float)
    if secret.shape != g.shape or not (np.all(np.isfinite(secret)) and np.all(np.isfinite(other))):
        raise BadInput("`theta` must act elementwise on arrays and stay finite; give for example scipy.special.erf.")
    n1 = C * zeta + gamma * rho * g
    pull = float(pg @ (secret * (n1 * gamma * eta * g + gamma**2 * (nu - rho * eta))))
    own = float(pg @ (secret**2 * (n1**2 + gamma**2 * (1 - rho**2))))
    lean = rho * float(ps @ (other * s))
    noise = float(ps @ (other**2 * (rho**2 * s**2 + 1 - rho**2)))
    return gamma**2 - 2 * pull + own + 2 * n * float(pg @ (secret * n1)) * lean + n * noise + n * (n - 1) * lean**2


def erf_risk_closed(problem: Problem, mu: float, nu: float, lam: float) -> float:
    """The closed form on eta = zeta = rho = 0 for theta = erf, with Owen's T function.

    E erf(lam (m + gamma g)) = erf(lam m/sqrt(1 + 2 lam^2 gamma^2));  E erf(lam s)^2 = (2/pi) asin(2 lam^2/(1 + 2 lam^2));
    E erf(lam (m + gamma g))^2 = 1 - 8 T(h, 1/sqrt(1 + 2 b^2)),  b = sqrt(2) lam gamma,  h = sqrt(2) lam m/sqrt(1 + b^2).
    """
    Overlaps(mu, nu).check()
    lam = positive("lam", lam, "give an inverse temperature such as 0.5")
    g2, m = problem.gamma**2, problem.C * mu
    b2 = 2 * lam * lam * g2
    first = float(erf(lam * m / math.sqrt(1 + b2)))
    second = 1 - 8 * float(owens_t(math.sqrt(2) * lam * m / math.sqrt(1 + b2), 1 / math.sqrt(1 + 2 * b2)))
    other = 2 / math.pi * math.asin(2 * lam * lam / (1 + 2 * lam * lam))
    return g2 * (1 - 2 * nu * first + second) + problem.distractors * other


def best_pointwise_lambda(problem: Problem) -> tuple[float, float]:
    """The lam that minimises erf attention's risk at the oracle, and that risk (closed form)."""

    def risk(log_lam: float) -> float:
        return erf_risk_closed(problem, 1.0, 1.0, math.exp(log_lam))

    return log_minimum(risk, 1e-30, 1e3, 300, 1e-10)
