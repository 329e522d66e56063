"""The limit L = 1 + e^(alpha d), lam = beta sqrt(d), d -> infinity: as published, and corrected.

The distractors are a random energy model: beta_c = sqrt(2 alpha), free energy phi, and the secret token is retrieved
when c mu > psi = phi/beta. ``risk_paper`` is the published formula (Corollary 1, linear link):

    p = 1/(1 + exp(-(c mu - psi) beta d)),   R = (p c zeta + (1-p) rho r)^2 d + gamma^2 (p^2 - 2 p nu + 1).

``risk_corrected`` keeps three O(1) effects that formula drops: the secret logit fluctuates by O(sqrt d), so retrieval
is a Gaussian step of width gamma/sqrt(d) in c mu; selection is hard, E[w^2] -> E[w]; and in the condensed phase the
wrongly selected tokens bring their own variance Y2 = (1 - beta_c/beta)_+, the participation ratio.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.meanfield.problem import Overlaps, Problem, finite, positive, whole
from maxaffine.meanfield.risk import Risk


@dataclass(frozen=True)
class MeanField:
    """The limit at (alpha, beta, gamma), with d kept where the formulas keep it. ``c`` defaults to sqrt(1-gamma^2)."""

    alpha: float
    beta: float
    gamma: float
    d: int
    c: float | None = None

    def __post_init__(self) -> None:
        alpha = finite("alpha", self.alpha, "give log(L-1)/d, such as 0.1")
        if alpha < 0:
            raise BadInput(f"`alpha` (={alpha:g}) must not be negative; it is log(L-1)/d, zero for short sequences.")
        positive("beta", self.beta, "give a normalised inverse temperature such as 1")
        gamma = positive("gamma", self.gamma, "give a token noise in (0, 1), such as 0.5")
        if gamma > 1 or (gamma == 1 and self.c is None):
            raise BadInput(f"`gamma` (={gamma:g}) must lie in (0, 1); give `c` as well for gamma = 1.")
        whole("d", self.d, 1, "give the dimension")
        signal = math.sqrt((1 - gamma) * (1 + gamma)) if self.c is None else positive("c", self.c, "give c > 0")
        object.__setattr__(self, "c", signal)

    @classmethod
    def of(cls, problem: Problem, beta: float, alpha: float | None = None) -> "MeanField":
        """The limit that belongs to a finite problem: alpha = log(L-1)/d unless given."""
        return cls(problem.alpha if alpha is None else alpha, beta, problem.gamma, problem.d, problem.signal)

    @property
    def signal(self) -> float:
        """c as a float."""
        assert self.c is not None
        return self.c

    # -- the random energy model -------------------------------------------------------------------------------

    @property
    def beta_c(self) -> float:
        """Condensation: beta_c = sqrt(2 alpha)."""
        return math.sqrt(2 * self.alpha)

    @property
    def r(self) -> float:
        """r = min(beta, beta_c): the typical selected distractor logit is r sqrt(d)."""
        return min(self.beta, self.beta_c)

    @property
    def phi(self) -> float:
        """Free energy (1/d) log sum_l exp(lam s_l)."""
        return self.alpha + self.beta**2 / 2 if self.beta <= self.beta_c else self.beta * self.beta_c

    @property
    def psi(self) -> float:
        """psi = phi/beta: the secret token is retrieved when c mu > psi."""
        return self.phi / self.beta

    @property
    def participation(self) -> float:
        """Y2 = lim E sum q_l^2 = (1 - beta_c/beta)_+ over the distractors' own softmax weights q."""
        return max(0.0, 1 - self.beta_c / self.beta)

    @property
    def condensed(self) -> bool:
        """Whether finitely many distractors carry the distractors' weight."""
        return self.beta > self.beta_c

    def phase(self, mu: float = 1.0) -> str:
        """``retrieval``, or ``uncondensed`` / ``condensed`` without retrieval, at overlap mu."""
        if self.signal * mu > self.psi:
            return "retrieval"
        return "condensed" if self.condensed else "uncondensed"

    def state(self, mu: float = 1.0) -> dict[str, Any]:
        """Everything above in one record."""
        return {
            "alpha": self.alpha, "beta": self.beta, "gamma": self.gamma, "d": self.d, "c": self.signal, "mu": mu,
            "beta_c": self.beta_c, "r": self.r, "phi": self.phi, "psi": self.psi, "Y2": self.participation,
            "phase": self.phase(mu), "condensed": self.condensed, "rate": self.rate(mu), "p": self.p(mu),
            "step": self.step(mu), "alpha_softmax": self.alpha_softmax, "alpha_bayes": self.alpha_bayes,
        }  # fmt: skip

    # -- retrieval probability ---------------------------------------------------------------------------------

    def p(self, mu: float) -> float:
        """The paper's logistic retrieval weight, of width 1/(beta d)."""
        return float(expit((self.signal * mu - self.psi) * self.beta * self.d))

    def _k(self, mu: float) -> float:
        return math.sqrt(self.d) * (self.signal * mu - self.psi) / self.gamma

    def step(self, mu: float) -> float:
        """The corrected retrieval probability Phi(sqrt(d) (c mu - psi)/gamma)."""
        return float(ndtr(self._k(mu)))

    def rate(self, mu: float) -> float:
        """Rare-event rate -(1/d) log E[w_J]; zero in the retrieval phase.

        The secret logit must climb gap = psi - c mu: by its own noise alone, gap^2/(2 gamma^2), as long as that
        asks for a tilt below beta; beyond, the softmax weight exp(-beta d (gap - gamma x)) is paid for the rest.
        """
        gap = self.psi - self.signal * mu
        if gap <= 0:
            return 0.0
        if gap <= self.beta * self.gamma**2:
            return gap**2 / (2 * self.gamma**2)
        return self.beta * gap - self.beta**2 * self.gamma**2 / 2

    def rate_paper(self, mu: float) -> float:
        """The same rate read off the paper's logistic: beta (psi - c mu)_+."""
        return self.beta * max(0.0, self.psi - self.signal * mu)

    # -- risks -------------------------------------------------------------------------------------------------

    def risk_paper(self, o: Overlaps) -> float:
        """The published asymptotic risk (Corollary 1)."""
        p, d = self.p(o.mu), self.d
        mean = p * self.signal * o.zeta + (1 - p) * o.rho * self.r
        return mean * mean * d + self.gamma**2 * (p * p - 2 * p * o.nu + 1)

    def risk_corrected(self, o: Overlaps) -> float:
        """The corrected limit, with O(1) terms and the transition window."""
        k, gamma, d = self._k(o.mu), self.gamma, self.d
        hit, miss = float(ndtr(k)), float(ndtr(-k))
        density = math.exp(-k * k / 2) / math.sqrt(2 * math.pi)
        C, y2, r = self.signal * math.sqrt(d), self.participation, self.r
        _, nu, eta, zeta, rho = o
        risk = gamma**2 * (1 - 2 * nu * hit + hit) + miss * y2 + C * C * zeta**2 * hit
        risk += 2 * C * zeta * rho * gamma * density - gamma**2 * rho**2 * k * density
        risk += miss * rho**2 * (r * r * d - y2)
        cross = C * zeta * density - gamma * rho * k * density - rho * r * math.sqrt(d) * density
        return risk - 2 * gamma * eta * cross

    # -- phase boundaries --------------------------------------------------------------------------------------

    @property
    def alpha_softmax(self) -> float:
        """Largest alpha at which a softmax layer with a linear key retrieves: c^2/2 (psi is at least sqrt(2 alpha))."""
        return self.signal**2 / 2

    @property
    def alpha_bayes(self) -> float:
        """Largest alpha at which the Bayes predictor succeeds: KL per dimension, log(1/gamma) when c^2 = 1 - gamma^2."""
        return (self.signal**2 + self.gamma**2 - 1) / 2 - math.log(self.gamma)

    def boundaries(self, mu: float = 1.0, count: int = 200) -> dict[str, Array]:
        """Curves of the (alpha, beta) plane at overlap mu.

        ``condensation``: beta = sqrt(2 alpha); ``retrieval``: the least beta that retrieves,
        c mu - sqrt(c^2 mu^2 - 2 alpha), defined up to alpha = c^2 mu^2 / 2; retrieval fails at every beta beyond.
        """
        reach = self.signal * mu
        limit = reach * reach / 2 if reach > 0 else 0.0
        alpha = np.linspace(0.0, max(limit, self.alpha, self.alpha_bayes) * 1.1, count)
        inner = np.linspace(0.0, limit, count)
        return {
            "alpha": alpha,
            "condensation": np.sqrt(2 * alpha),
            "retrieval_alpha": inner,
            "retrieval": reach - np.sqrt(np.maximum(reach * reach - 2 * inner, 0.0)),
        }


@dataclass(frozen=True)
class PaperRisk(Risk):
    """Corollary 1 as a Risk with its gradient, so that the same recursion can be driven by it."""

    limit: MeanField
    problem: Problem

    def value_and_gradient(self, o: Overlaps) -> tuple[float, Overlaps]:
        """R and its gradient, differentiated by hand."""
        limit = self.limit
        p, d, c, r, g2 = limit.p(o.mu), limit.d, limit.signal, limit.r, limit.gamma**2
        mean = p * c * o.zeta + (1 - p) * o.rho * r
        slope = p * (1 - p) * limit.beta * d * c  # dp/dmu
        gradient = Overlaps(
            mu=slope * (2 * d * mean * (c * o.zeta - o.rho * r) + 2 * g2 * (p - o.nu)),
            nu=-2 * g2 * p,
            eta=0.0,
            zeta=2 * d * mean * p * c,
            rho=2 * d * mean * (1 - p) * r,
        )
        return limit.risk_paper(o), gradient
