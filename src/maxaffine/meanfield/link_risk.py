"""Exact population risk and gradient for any link sigma: f = sum_l w_l sigma(x_l . v), y* = sigma(x_J . v*).

With m1, m2 the conditional averages of sigma, sigma^2 of a distractor's value given its logit noise s, n1, n2 those of
the secret token given g, q0 of sigma(y*), q1 of the product sigma(a_J) sigma(y*),

    E f^2       = E[n2 w_J^2] + 2 E[n1 w_J sum w_l m1] + E[sum w_l^2 m2] + E[sum_{l != k} w_l w_k m1 m1]
    E f sigma(y*) = E[q1 w_J] + E[q0 sum w_l m1],        R = E f^2 - 2 E f sigma(y*) + E sigma(y*)^2.

The distractors enter through weights on the tau lattice, the secret token through profiles, as in quadrature.py. Every
derivative is exact: mu moves the profiles, the other overlaps move conditional means, variances and covariances.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.polynomial import chebyshev

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.meanfield.links import CustomLink, Link, PairMoment, resolve_link
from maxaffine.meanfield.problem import Overlaps, Problem, positive
from maxaffine.meanfield.quadrature import Quadrature
from maxaffine.meanfield.risk import ExactRisk, inverse_temperature


class LinkRisk(ExactRisk):
    """The exact risk for one problem, inverse temperature and link (a name, a Link, or your own function)."""

    def __init__(
        self, problem: Problem, link: str | Link | Callable[[Array], Array], *, beta: float | None = None,
        lam: float | None = None, delta: float = 0.2,
    ) -> None:  # fmt: skip
        self.problem = problem
        self.link = resolve_link(link)
        self.lam = inverse_temperature(problem, beta, lam)
        # the mu-derivative integrates F_3, whose trapezoid error is 300 times that of F_1: hence a finer step than 1/4
        self.delta = positive("delta", delta, "0.2 gives full precision")
        self.quadrature = Quadrature(problem.distractors, self.lam, problem.C, problem.gamma, self.delta)
        g2 = np.array([problem.gamma**2])
        self._label = float(self.link.second(np.zeros(1), g2).value[0])
        self._free = self.quadrature.power(0)

    def _secret_pair(self, o: Overlaps, g: Array) -> PairMoment:
        """E[sigma(a_J) sigma(y*) | g] with derivatives; a user's link costs a double integral per node.

        It is smooth in g, on the scale of the ratio of conditional spread to slope, so a user's link is interpolated
        from Chebyshev nodes.
        """
        _, nu, eta, zeta, rho = o
        gamma, C = self.problem.gamma, self.problem.C
        g2, middle, half = gamma * gamma, (g[0] + g[-1]) / 2, (g[-1] - g[0]) / 2

        def pair(nodes: Array) -> PairMoment:
            flat = np.ones_like(nodes)
            return self.link.product(
                C * zeta + gamma * rho * nodes,
                g2 * max(1 - rho * rho, 0.0) * flat,
                gamma * eta * nodes,
                g2 * max(1 - eta * eta, 0.0) * flat,
                g2 * (nu - rho * eta) * flat,
            )

        steepness = max(abs(rho) / math.sqrt(1.01 - rho * rho), abs(eta) / math.sqrt(1.01 - eta * eta))
        count = math.ceil(24 + 8 * half * steepness)
        if not isinstance(self.link, CustomLink) or count >= g.size:
            return pair(g)
        nodes = chebyshev.chebpts1(count)
        series = chebyshev.chebfit(nodes, np.array(pair(middle + half * nodes)).T, count - 1)
        return PairMoment(*chebyshev.chebval((g - middle) / half, series))

    def value_and_gradient(self, o: Overlaps) -> tuple[float, Overlaps]:
        """R and its five partial derivatives; overlaps are not checked."""
        mu, _, eta, zeta, rho = o
        quad, lam, gamma, C = self.quadrature, self.lam, self.problem.gamma, self.problem.C
        g2 = gamma * gamma
        s = quad.s
        spread = np.full_like(s, max(1 - rho * rho, 0.0))
        m1, m2 = self.link.first(rho * s, spread), self.link.second(rho * s, spread)
        a1, a2 = quad.average(1, m1.value), quad.average(2, m2.value)
        da1 = quad.average(1, m1.mean * s - 2 * rho * m1.variance)  # d/drho
        da2 = quad.average(2, m2.mean * s - 2 * rho * m2.variance)
        one, pair = quad.one(a1), quad.one(a2) + quad.two(a1)
        done = quad.one(da1)
        dpair = quad.one(da2)
        if quad.n > 1:
            dpair = dpair + 2 * (1 - 1 / quad.n) * (quad.n * a1) * (quad.n * da1) * quad.power(2)

        m = C * mu
        g, weights, window = quad.secret_nodes(m)
        free = self._free
        wanted = (
            (1, free), (2, free), (3, free), (0, one), (1, one), (2, one), (0, pair), (1, pair), (0, done), (1, done), (0, dpair)
        )  # fmt: skip
        w, w2, w3, alone, with_w, with_w2, squares, w_squares, d_alone, d_with_w, d_squares = quad.profiles(wanted, m, g, window)

        mean_a = C * zeta + gamma * rho * g
        mean_y = gamma * eta * g
        var_a, var_y = np.full_like(g, g2 * max(1 - rho * rho, 0.0)), np.full_like(g, g2 * max(1 - eta * eta, 0.0))
        n1, n2 = self.link.first(mean_a, var_a), self.link.second(mean_a, var_a)
        q0, q1 = self.link.first(mean_y, var_y), self._secret_pair(o, g)

        def total(x: Array) -> float:
            return float(weights @ x)

        risk = total(n2.value * w2 + 2 * n1.value * with_w + squares - 2 * q1.value * w - 2 * q0.value * alone)
        # d/dm of F_k is lam (k F_k - F_{k+1}); the profile that carries F_3 brings Gamma(3)-type factors by itself
        slope = n2.value * (2 * w2 - w3) + 2 * n1.value * (with_w - with_w2) - w_squares
        slope += -2 * q1.value * (w - w2) + 2 * q0.value * with_w
        d_mean_a = n2.mean * w2 + 2 * n1.mean * with_w - 2 * q1.mean_a * w
        d_var_a = n2.variance * w2 + 2 * n1.variance * with_w - 2 * q1.variance_a * w
        d_mean_y = -2 * q1.mean_y * w - 2 * q0.mean * alone
        d_var_y = -2 * q1.variance_y * w - 2 * q0.variance * alone
        d_tie = -2 * q1.covariance * w
        with np.errstate(invalid="ignore"):  # the sign link's derivatives are infinite where a_J and y* are collinear
            by_rho = d_mean_a * gamma * g - 2 * rho * g2 * d_var_a - eta * g2 * d_tie
            by_eta = d_mean_y * gamma * g - 2 * eta * g2 * d_var_y - rho * g2 * d_tie
        by_rho = by_rho + 2 * n1.value * d_with_w + d_squares - 2 * q0.value * d_alone
        by_overlap = lam * C * total(slope), g2 * total(d_tie), total(by_eta), C * total(d_mean_a), total(by_rho)
        return risk + self._label, Overlaps(*by_overlap)

    def gradient(self, o: Overlaps) -> Overlaps:
        """(R_mu, R_nu, R_eta, R_zeta, R_rho) at o; refused where it is infinite (the sign link at nu = +-1)."""
        gradient = super().gradient(o)
        if not all(math.isfinite(part) for part in gradient):
            raise Refused(
                f"the gradient of the {self.link.name} link is infinite at nu = {o.nu:g}, eta = {o.eta:g}, "
                f"rho = {o.rho:g}, where x_J.v and x_J.v* are collinear; take overlaps a little inside."
            )
        return gradient

    def self_check(self, mu: float = 0.0) -> float:
        """Defect of the sum rules of the underlying weights at mu."""
        quad, m = self.quadrature, self.problem.C * mu
        g, weights, window = quad.secret_nodes(m)
        a10 = quad.average(1)
        any_, all_ = quad.one(a10), quad.one(quad.average(2)) + quad.two(a10)
        wanted = ((1, self._free), (0, any_), (2, self._free), (1, any_), (0, all_))
        w, fail, w2, w_fail, fail2 = (quad.profiles(wanted, m, g, window) @ weights).tolist()
        return float(max(abs(w + fail - 1), abs(w2 + 2 * w_fail + fail2 - 1)))
