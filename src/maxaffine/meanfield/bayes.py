"""The Bayes predictor: what any method at all can reach on the task.

The posterior of the secret index has logits C s_l/gamma^2 - (kappa/2)|x_l|^2, kappa = 1/gamma^2 - 1: the *norm* of a token
is informative, because the secret one has smaller covariance. Completing the square, logit_l = const - (kappa/2) W_l with
W_l = |x_l - s0 u*|^2, s0 = C/(1 - gamma^2), a noncentral chi-square for every token. The predictor is sum_l pi_l x_l.v* and

    R = E[a_J^2 (1 - pi_J)] = gamma^2 n int E_J[F_0(tau + x_J)] E_0[F_1(tau + x_0)] M^(n-1) dtau,

where weighting by a_J^2 adds two degrees of freedom to W_J. ``full`` sees all d coordinates, ``projected`` only x.u*, x.v*.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from scipy.special import ive

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput, Refused
from maxaffine.meanfield.overlaps import Overlaps
from maxaffine.meanfield.problem import Problem
from maxaffine.meanfield.quadrature import kernel
from maxaffine.meanfield.risk import SoftmaxRisk

DEPTHS = (60.0, 120.0, 240.0)  # log of the smallest probability kept, deepened until the risk is well above it
DELTA = 0.25


def _log_bessel_scaled(order: float, z: Array) -> Array:
    """log(I_order(z) e^-z): scipy's function, or an expansion where that one underflows or loses its argument."""
    scaled = ive(order, np.minimum(z, 1e8))
    with np.errstate(divide="ignore"):
        value = np.log(scaled)
    small = scaled < 1e-290
    if order > 0 and np.any(small):  # Debye's uniform expansion for large order
        t = z[small] / order
        root = np.sqrt(1 + t * t)
        p = 1 / root
        eta = root + np.log(t / (1 + root))
        terms = (
            1
            + (3 * p - 5 * p**3) / (24 * order)
            + (81 * p**2 - 462 * p**4 + 385 * p**6) / (1152 * order**2)
            + (30375 * p**3 - 369603 * p**5 + 765765 * p**7 - 425425 * p**9) / (414720 * order**3)
        )
        value[small] = order * eta - 0.5 * np.log(2 * math.pi * order) - 0.5 * np.log(root) + np.log(terms) - z[small]
    large = z > max(1e8, 1e4 * order * order)
    if np.any(large):  # Hankel's expansion for large argument
        q = (4 * order * order - 1) / (8 * z[large])
        value[large] = -0.5 * np.log(2 * math.pi * z[large]) + np.log1p(-q)
    return np.asarray(value)


def log_noncentral_chi2(w: Array, dof: float, shift: float) -> Array:
    """Log density of the noncentral chi-square with ``dof`` degrees of freedom and noncentrality ``shift`` > 0."""
    order = dof / 2 - 1
    apart = np.sqrt(w) - math.sqrt(shift)  # -(w + shift)/2 + sqrt(w shift) without cancellation
    scaled = _log_bessel_scaled(order, np.sqrt(shift * w))
    return np.asarray(-math.log(2) - apart * apart / 2 + order / 2 * np.log(w / shift) + scaled)


def _law(dof: float, shift: float, scale: float, slope: float, depth: float, ceiling: float) -> tuple[Array, Array]:
    """Nodes W <= ceiling and weights of scale * ncx2(dof, shift): Gauss-Legendre panels in r = sqrt(W/scale).

    The density is not smooth at W = 0, so a lattice will not do. Panels span at most three units of the logit slope * W
    and half a standard deviation. Empty when the law has nothing below the ceiling.
    """
    mean, deviation = math.sqrt(shift + dof), math.sqrt(2 * (dof + 2 * shift)) / (2 * math.sqrt(shift + dof))
    reach = math.sqrt(2 * depth) * max(deviation, 1.0) + 2
    low, high = max(0.0, mean - reach), mean + reach
    probe = np.linspace(low, high, 4000)[1:]
    density = log_noncentral_chi2(probe**2, dof, shift) + np.log(2 * probe)
    kept = probe[density > density.max() - depth]
    low, high = max(0.0, float(kept[0]) - (high - low) / 2000), float(kept[-1]) + (high - low) / 2000
    high = min(high, math.sqrt(ceiling / scale)) if ceiling > 0 else low
    if high <= low:
        return np.empty(0), np.empty(0)
    # the logit slope * scale * r^2 changes by 2 slope scale r per unit of r
    width = min(3 / (2 * slope * scale * high), 0.5)
    edges = np.linspace(low, high, max(4, math.ceil((high - low) / width)) + 1)
    nodes, node_weights = np.polynomial.legendre.leggauss(14)
    half = (edges[1] - edges[0]) / 2
    r = ((edges[:-1] + half)[:, None] + half * nodes).reshape(-1)
    weights = np.tile(half * node_weights, edges.size - 1)
    weights = weights * np.exp(log_noncentral_chi2(r * r, dof, shift) + np.log(2 * r))
    return scale * r * r, np.asarray(weights)


def bayes_risk(problem: Problem, coordinates: Literal["full", "projected"] = "full") -> float:
    """The excess risk of the Bayes predictor from all coordinates, or from the two projections x.u*, x.v* only."""
    if coordinates not in ("full", "projected"):
        raise BadInput(f"`coordinates` (={coordinates!r}) must be 'full' or 'projected'.")
    if 1 - problem.gamma**2 < 1e-9:
        # equal covariances: the posterior logit is C s_l, a softmax layer at lam = C
        return SoftmaxRisk(problem, lam=problem.C).risk(Overlaps(1.0, 1.0))
    for depth in DEPTHS:
        risk = _bayes_risk(problem, coordinates, depth)
        if risk > math.exp(30 - depth):  # else the tails that were cut may matter
            break
    return risk


def _bayes_risk(problem: Problem, coordinates: str, depth: float) -> float:
    n, g2 = problem.distractors, problem.gamma**2
    dof = problem.d if coordinates == "full" else 2
    slope = (1 / g2 - 1) / 2
    s0 = problem.C / (1 - g2)
    w_secret, p_secret = _law(dof + 2, (problem.C - s0) ** 2 / g2, g2, slope, depth, math.inf)
    if abs(p_secret.sum() - 1) > 1e-9:
        raise Refused(f"the law of the secret token's logit integrates to {p_secret.sum():.12g}, not 1; report this problem.")
    # distractors whose logit is 45 + log n below the lowest secret one never matter: F_0 = 1 for them
    ceiling = float(w_secret.max()) + (45 + math.log(n)) / slope
    w_other, p_other = _law(dof, s0 * s0, 1.0, slope, depth + math.log(n), ceiling)
    if w_other.size == 0:
        return 0.0  # the two laws are apart at this depth
    rest = max(0.0, 1 - float(p_other.sum()))
    middle = float(p_secret @ w_secret)  # a common shift of all logits, so that tau stays near zero
    x_secret, x_other = -slope * (w_secret - middle), -slope * (w_other - middle)
    top = max(float(x_secret.max()), float(x_other.max()) + 1)
    bottom = max(float(x_secret.min()), float(x_other.min()))
    # log Z is at most top + log n; to the left of it the integrand falls like e^tau
    tau = DELTA * np.arange(math.floor((-top - math.log(n) - 60) / DELTA), math.ceil((5 - bottom) / DELTA) + 1)
    total = 0.0
    for part in np.array_split(tau, max(1, tau.size * x_other.size // 2_000_000)):
        size = np.exp(np.minimum(part[:, None] + x_other, 7.0))
        none = np.exp(-size)
        gone, left = -np.expm1(-size) @ p_other, none @ p_other + rest
        with np.errstate(divide="ignore"):
            log_m = np.where(gone < 0.5, np.log1p(-np.minimum(gone, 0.5)), np.log(np.minimum(left, 1.0)))
        survive = np.exp(np.maximum((n - 1) * log_m, -745.0)) if n > 1 else np.ones_like(part)
        chosen = n * ((size * none) @ p_other)
        secret = kernel(0, part[:, None] + x_secret) @ p_secret
        total += float(np.sum(secret * chosen * survive))
    return g2 * DELTA * total
