"""What else can be done on the task, or with the layer at its limits. All risks are without label noise."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtr

from maxaffine.core.arrays import Array
from maxaffine.meanfield.overlaps import Overlaps
from maxaffine.meanfield.problem import Problem
from maxaffine.meanfield.risk import SoftmaxRisk, assemble


def null_risk(problem: Problem) -> float:
    """The risk of predicting zero: Var(x_J . v*) = gamma^2."""
    return problem.gamma**2


def best_linear_risk(problem: Problem) -> float:
    """The best linear function of all tokens: gamma^2 - gamma^4/(L - 1 + gamma^2).

    By symmetry it puts one coefficient, gamma^2/(L - 1 + gamma^2), on x_l . v* for every token l.
    """
    g2 = problem.gamma**2
    return g2 - g2 * g2 / (problem.distractors + g2)


def uniform_risk(problem: Problem, o: Overlaps) -> float:
    """The layer at lam -> 0, where every weight is 1/L."""
    o.check()
    g2, n, share = problem.gamma**2, problem.distractors, 1 / problem.L
    second = (problem.C * o.zeta) ** 2 + g2 + n
    return share * share * second - 2 * share * g2 * o.nu + g2


def _trapezoid(low: float, high: float, count: int) -> tuple[Array, float]:
    return np.linspace(low, high, count), (high - low) / (count - 1)


def hardmax_moments(problem: Problem, mu: float) -> dict[str, float]:
    """The coefficients of the exact risk at lam -> infinity, where the largest logit takes all.

    P = E[Phi(s_J)^n] is the probability that the secret token wins; S_j = K_j; the largest distractor t has density
    n phi(t) Phi(t)^(n-1) and wins with probability Phi((t - m)/gamma).
    """
    n, gamma, m = problem.distractors, problem.gamma, problem.C * mu
    g, step = _trapezoid(-13, 13, 1041)
    weights = step / math.sqrt(2 * math.pi) * np.exp(-g * g / 2)
    wins = weights * np.exp(n * log_ndtr(m + gamma * g))
    top = math.sqrt(2 * math.log(n) + 90) + 1
    t, step = _trapezoid(-13, top, 4001)
    density = step * np.exp(math.log(n) - t * t / 2 - math.log(2 * math.pi) / 2 + (n - 1) * log_ndtr(t))
    lost = density * ndtr((t - m) / gamma)
    bell = density * np.exp(-(((t - m) / gamma) ** 2) / 2) / math.sqrt(2 * math.pi)
    return {
        "P1": float(wins.sum()),
        "K1": float(wins @ g),
        "K2": float(wins @ (g * g)),
        "D": float(lost.sum()),
        "V": float(lost @ (t * t)),
        "T1": -float(bell @ t),  # E[g 1(m + gamma g < t)] = -phi((t - m)/gamma)
    }


def hardmax_risk(problem: Problem, o: Overlaps) -> float:
    """The exact risk of hard attention (lam -> infinity), for all five overlaps and any L."""
    o.check()
    gamma, e = problem.gamma, hardmax_moments(problem, o.mu)
    p1, k1, k2, d = e["P1"], e["K1"], e["K2"], e["D"]
    values = np.array([p1, d, d, p1, gamma * k1, k1, gamma**2 * (k2 - p1) + e["V"] - d, gamma * (k2 - p1) + e["T1"]])
    return assemble(values, np.zeros(8), o, problem.C, gamma)[0]


def log_minimum(f: Callable[[float], float], low: float, high: float, count: int, tolerance: float) -> tuple[float, float]:
    """The lam in [low, high] at which f(log lam) is least, from a grid of so many points refined, and the least value."""
    grid = np.linspace(math.log(low), math.log(high), count)
    best = int(np.argmin([f(x) for x in grid.tolist()]))
    ends = grid[max(best - 1, 0)], grid[min(best + 1, count - 1)]
    found = minimize_scalar(f, bounds=ends, method="bounded", options={"xatol": tolerance})
    return math.exp(float(found.x)), float(found.fun)


def best_lambda(problem: Problem, o: Overlaps | None = None) -> tuple[float, float]:
    """The inverse temperature lam that minimises the risk at overlaps o (the oracle by default), and that risk."""
    where = Overlaps(1.0, 1.0) if o is None else o.check()

    def log_risk(log_lam: float) -> float:
        return math.log(SoftmaxRisk(problem, lam=math.exp(log_lam)).value_and_gradient(where)[0])

    # Bayes on one projection has lam = C/gamma^2; beyond a few times that the layer is a hard maximum
    lam, value = log_minimum(log_risk, 0.05, min(max(20.0, 3 * problem.C / problem.gamma**2), 150.0), 25, 1e-9)
    return lam, math.exp(value)
