"""Exact population risk of a softmax layer with linear link, for any L and d, and its gradient.

With w the softmax weights, g the secret token's logit noise, Y = sum_{l != J} w_l^2 and W = sum_{l != J} w_l s_l,

    R = gamma^2 [U + 2 (1 - nu) P1] + D + C^2 S0 zeta^2 + 2 C E1 zeta rho - 2 gamma C K1 eta zeta
        + Q rho^2 - 2 gamma H eta rho                                    (label noise eps^2 left out)

    P1 = E w_J      U = E (1-w_J)^2    D = E Y     S_j = E[w_J^2 g^j]     K_j = E[w_J g^j]
    X_j = E[w_J g^j W]     V = E W^2     T1 = E[g W]
    E1 = gamma S1 + X0     Q = gamma^2 (S2 - S0) + 2 gamma X1 + V - D     H = gamma (K2 - P1) + T1

linear in nu, quadratic in (zeta, eta, rho), with eight coefficients that depend on mu alone. docs/meanfield.md derives it.
"""

import math
from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput, Refused
from maxaffine.meanfield.problem import Overlaps, Problem, positive, whole
from maxaffine.meanfield.quadrature import Quadrature

COEFFICIENTS = ("P1", "U", "D", "S0", "E1", "K1", "Q", "H")
MARGIN = 0.02  # a table reaches a little beyond [-1, 1], for difference quotients at the ends
LARGEST_DEFECT = 1e-9  # a sum rule off by more than this means the quadrature failed

# (k, weight) of each profile: k counts the secret token's factors, the weight singles out distractors
_PROFILES = {
    "w": (1, "none"), "w2": (2, "none"), "W": (0, "s"), "wW": (1, "s"), "w2W": (2, "s"), "Y": (0, "square"),
    "wY": (1, "square"), "W2": (0, "ss"), "wW2": (1, "ss"), "fail2": (0, "all"), "w fail2": (1, "all"), "fail": (0, "any"),
    "w fail": (1, "any"),
}  # fmt: skip


class Risk(ABC):
    """What the dynamics need: a risk on the five overlaps with its partial derivatives."""

    problem: Problem

    @abstractmethod
    def value_and_gradient(self, o: Overlaps) -> tuple[float, Overlaps]:
        """R and (R_mu, R_nu, R_eta, R_zeta, R_rho); the overlaps are not checked (see ``risk`` and ``gradient``)."""

    def risk(self, o: Overlaps) -> float:
        """R(o), without label noise; infeasible overlaps are refused."""
        return self.value_and_gradient(o.check())[0]

    def gradient(self, o: Overlaps) -> Overlaps:
        """(R_mu, R_nu, R_eta, R_zeta, R_rho) at o."""
        return self.value_and_gradient(o.check())[1]


def inverse_temperature(problem: Problem, beta: float | None, lam: float | None) -> float:
    """lam from either of ``beta`` (lam = beta sqrt(d)) and ``lam``; exactly one must be given."""
    if (beta is None) == (lam is None):
        raise BadInput("give exactly one of `beta` and `lam`; they are tied by lam = beta sqrt(d).")
    if lam is None:
        assert beta is not None
        return positive("beta", beta, "give a normalised inverse temperature such as 1") * math.sqrt(problem.d)
    return positive("lam", lam, "give an inverse temperature such as 10; lam -> 0 is uniform attention")


def assemble(values: Array, slopes: Array, o: Overlaps, C: float, gamma: float) -> tuple[float, Overlaps]:
    """R and its gradient from the eight coefficients and their derivatives in mu."""
    p1, u, d, s0, e1, k1, q, h = values.tolist()
    dp1, du, dd, ds0, de1, dk1, dq, dh = slopes.tolist()
    _, nu, eta, zeta, rho = o
    g2, gc = gamma * gamma, gamma * C

    def total(p1: float, u: float, d: float, s0: float, e1: float, k1: float, q: float, h: float) -> float:
        on_manifold = g2 * (u + 2 * (1 - nu) * p1) + d
        form = C * C * s0 * zeta * zeta + 2 * C * e1 * zeta * rho - 2 * gc * k1 * eta * zeta
        return on_manifold + form + q * rho * rho - 2 * gamma * h * eta * rho

    gradient = Overlaps(
        mu=total(dp1, du, dd, ds0, de1, dk1, dq, dh),
        nu=-2 * g2 * p1,
        eta=-2 * gc * k1 * zeta - 2 * gamma * h * rho,
        zeta=2 * C * C * s0 * zeta + 2 * C * e1 * rho - 2 * gc * k1 * eta,
        rho=2 * C * e1 * zeta + 2 * q * rho - 2 * gamma * h * eta,
    )
    return total(p1, u, d, s0, e1, k1, q, h), gradient


class ExactRisk(Risk):
    """A risk at a finite inverse temperature."""

    lam: float

    @property
    def beta(self) -> float:
        """The normalised inverse temperature lam / sqrt(d)."""
        return self.lam / math.sqrt(self.problem.d)


class LinearRisk(ExactRisk):
    """An exact risk of the linear link, by its eight coefficients as functions of mu."""

    @abstractmethod
    def coefficients(self, mu: float) -> tuple[Array, Array]:
        """The eight coefficients (named in COEFFICIENTS) and their derivatives in mu."""

    def value_and_gradient(self, o: Overlaps) -> tuple[float, Overlaps]:
        """R and its five partial derivatives."""
        values, slopes = self.coefficients(o.mu)
        return assemble(values, slopes, o, self.problem.C, self.problem.gamma)


class SoftmaxRisk(LinearRisk):
    """The exact risk for one problem and one inverse temperature (linear link).

    ``beta`` or ``lam`` (= beta sqrt d). ``delta`` is the lattice step; 1/4 gives full double precision.
    """

    def __init__(self, problem: Problem, *, beta: float | None = None, lam: float | None = None, delta: float = 0.25) -> None:
        self.problem = problem
        self.lam = inverse_temperature(problem, beta, lam)
        self.delta = positive("delta", delta, "0.25 gives full precision")
        if self.delta > 1:
            raise BadInput(f"`delta` (={self.delta:g}) must be at most 1; 0.25 gives full precision, 0.5 seven digits.")
        self.quadrature = Quadrature(problem.distractors, self.lam, problem.C, problem.gamma, self.delta)
        self._window: tuple[int, int] | None = None
        self._profiles: Array = np.empty((0, 0))

    # -- integrals ---------------------------------------------------------------------------------------------

    @cached_property
    def _wanted(self) -> list[tuple[int, Array]]:
        """The profiles of _PROFILES with their weights."""
        quad = self.quadrature
        a10, a11 = quad.average(1), quad.average(1, quad.s)
        a20, a22 = quad.average(2), quad.average(2, quad.s**2)
        weights = {
            "none": quad.power(0), "s": quad.one(a11), "square": quad.one(a20), "ss": quad.one(a22) + quad.two(a11),
            "all": quad.one(a20) + quad.two(a10), "any": quad.one(a10),
        }  # fmt: skip
        return [(k, weights[name]) for k, name in _PROFILES.values()]

    def _profile(self, m: float, g: Array, window: slice) -> Array:
        """All profiles on the nodes of one mu: (profiles, nodes).

        On the lattice the first mu computes its own window, the second all of mu in [-1, 1]; later ones are slices.
        """
        quad = self.quadrature
        if not quad.secret_aligned:
            return quad.profiles(self._wanted, m, g, window)
        if self._window is None or not (self._window[0] <= window.start and window.stop <= self._window[1]):
            full = slice(0, quad.profile_count) if self._window is not None else window
            self._profiles = quad.profiles(self._wanted, m, g, full)
            self._window = (full.start, full.stop)
        start = self._window[0]
        return self._profiles[:, window.start - start : window.stop - start]

    def _expectations(self, mu: float) -> dict[str, Array]:
        """E[g^j profile] for j = 0..3, by profile name."""
        m = self.problem.C * mu
        g, weights, window = self.quadrature.secret_nodes(m)
        powers = np.cumprod([weights, g, g, g], axis=0)
        table = self._profile(m, g, window) @ powers.T
        return dict(zip(_PROFILES, table, strict=True))

    # -- what is asked for -------------------------------------------------------------------------------------

    def moments(self, mu: float) -> dict[str, float]:
        """Every moment of section 2 by name, with the two sum rules as ``defect``; refuses a failed quadrature."""
        e = self._expectations(mu)
        gamma = self.problem.gamma
        p1, s0, u, d = e["w"][0], e["w2"][0], e["fail2"][0], e["Y"][0]
        mixed = e["w fail"][0]
        out = {
            "P1": p1, "U": u, "D": d, "S0": s0, "S1": e["w2"][1], "S2": e["w2"][2], "K1": e["w"][1], "K2": e["w"][2],
            "T1": e["W"][1], "X0": e["wW"][0], "X1": e["wW"][1], "V": e["W2"][0], "mixed": mixed,
            "E1": gamma * e["w2"][1] + e["wW"][0],
            "Q": gamma**2 * (e["w2"][2] - s0) + 2 * gamma * e["wW"][1] + e["W2"][0] - d,
            "H": gamma * (e["w"][2] - p1) + e["W"][1],
            "defect": max(abs(p1 + e["fail"][0] - 1), abs(s0 + 2 * mixed + u - 1)),
        }  # fmt: skip
        numbers = {name: float(value) for name, value in out.items()}
        self._trust(numbers["defect"], mu)
        return numbers

    def _trust(self, defect: float, mu: float) -> None:
        if not defect < LARGEST_DEFECT:
            raise Refused(
                f"the sum rules fail by {defect:.2g} at mu = {mu:g} (lam = {self.lam:g}, delta = {self.delta:g}): "
                "the quadrature cannot be trusted here; take a smaller `delta`, such as 0.25."
            )

    def self_check(self, mu: float = 0.0) -> float:
        """Largest defect of the two sum rules: total weight one, and its square."""
        return self.moments(mu)["defect"]

    def coefficients(self, mu: float) -> tuple[Array, Array]:
        """The eight coefficients (named in COEFFICIENTS) and their derivatives in mu.

        Every derivative in m = C mu is again an expectation: of the derivative of the weights (positive terms,
        no cancellation: P1, U, D, S0, V), or by Gaussian integration by parts.
        """
        e, lam, gamma, C = self._expectations(mu), self.lam, self.problem.gamma, self.problem.C
        w2, wW = e["w2"], e["wW"]
        p1, s0, u, d, mixed = e["w"][0], w2[0], e["fail2"][0], e["Y"][0], e["w fail"]
        self._trust(max(abs(p1 + e["fail"][0] - 1), abs(s0 + 2 * mixed[0] + u - 1)), mu)
        k1 = lam * gamma * mixed[0]
        e1 = gamma * w2[1] + wW[0]
        q = gamma**2 * (w2[2] - s0) + 2 * gamma * wW[1] + e["W2"][0] - d
        h = lam * gamma * (gamma * k1 - e1)
        dp1, du, dd = lam * mixed[0], -lam * e["w fail2"][0], -lam * e["wY"][0]
        ds0 = du + 2 * dp1
        dk1 = lam * mixed[1]
        # X0' has two forms: the first divides rounding by gamma, the second multiplies a quadrature error by lam
        dx0 = wW[1] / gamma if lam * gamma > 0.01 else lam * (wW[0] - e["w2W"][0])
        de1 = w2[2] - s0 + dx0
        dq = gamma * (w2[3] - 2 * w2[1]) - gamma**2 * ds0 + 2 * (wW[2] - wW[0]) - lam * e["wW2"][0] - dd
        dh = lam * gamma * (gamma * dk1 - de1)
        values = np.array([p1, u, d, s0, e1, k1, q, h])
        return values, C * np.array([dp1, du, dd, ds0, de1, dk1, dq, dh])


class RiskTable(LinearRisk):
    """SoftmaxRisk with its coefficients tabulated in mu by piecewise Chebyshev interpolation: a risk in microseconds.

    The coefficients change over mu-distances gamma/C (the secret token's noise) or 1/(lam C) (the softmax's own width),
    whichever is wider, so panels of width <= 2.5 sqrt(gamma^2 + 1/lam^2)/C with 24 nodes each reach rounding error.
    Derivatives are tabulated in their own right, not differentiated from the interpolant.
    """

    def __init__(self, source: SoftmaxRisk, panels: int | None = None, degree: int = 24) -> None:
        self.problem = source.problem
        self.lam = source.lam
        gamma, C = self.problem.gamma, self.problem.C
        width = 2.5 * math.sqrt(gamma * gamma + 1 / self.lam**2) / C
        auto = max(8, math.ceil(2 * (1 + MARGIN) / width))
        self.panels = auto if panels is None else whole("panels", panels, 1, "leave it out to let the width decide")
        self.degree = whole("degree", degree, 4, "24 nodes per panel give full precision")
        self._edge = edge = 1 + MARGIN
        self._scale = self.panels / (2 * edge)
        angle = (np.arange(self.degree) + 0.5) * math.pi / self.degree
        nodes = np.cos(angle)
        # discrete cosine transform: values at Chebyshev nodes -> coefficients of T_0 .. T_{degree-1}
        transform = 2 / self.degree * np.cos(np.outer(np.arange(self.degree), angle))
        transform[0] /= 2
        samples = np.empty((self.panels, self.degree, 16))
        for panel in range(self.panels):
            for i, x in enumerate(nodes):
                mu = (panel + (x + 1) / 2) / self._scale - edge
                samples[panel, i, :8], samples[panel, i, 8:] = source.coefficients(mu)
        self._series: Array = np.einsum("kn,pnc->pck", transform, samples)
        self._orders: Array = np.arange(self.degree, dtype=float)

    def coefficients(self, mu: float) -> tuple[Array, Array]:
        """The eight coefficients and their derivatives in mu, interpolated."""
        position = (mu + self._edge) * self._scale
        panel = min(max(int(position), 0), self.panels - 1)
        x = 2 * (position - panel) - 1
        basis = np.cos(self._orders * math.acos(min(max(x, -1.0), 1.0)))
        both = self._series[panel] @ basis
        return both[:8], both[8:]


tabulate = RiskTable
