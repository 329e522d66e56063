"""Links sigma: Gaussian averages of sigma and of products of two sigmas, with their derivatives.

For a ~ N(m, v) and a pair (a, y) with covariance k, a link gives

    first(m, v)  = E sigma(a),   second(m, v) = E sigma(a)^2,   product(m_a, v_a, m_y, v_y, k) = E sigma(a) sigma(y)

and each one's partial derivatives. All of them are derivatives in the means: d/dv = (1/2) d^2/dm^2 and
d/dk = d^2/(dm_a dm_y) (the heat equation of the Gaussian), so they exist also where the covariance is singular.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, owens_t

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.meanfield.problem import whole

TINY = 1e-150  # stands for zero in denominators whose numerators vanish with them
REACH = 9.0  # a user's link: the Gaussian is cut at nine standard deviations (1e-18)
# Differences of eighth order: weights of the first and the second derivative at so many steps.
SHIFTS = np.arange(-4, 5)
FIRST = np.array([1 / 280, -4 / 105, 1 / 5, -4 / 5, 0, 4 / 5, -1 / 5, 4 / 105, -1 / 280])
SECOND = np.array([-1 / 560, 8 / 315, -1 / 5, 8 / 5, -205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560])


def bivariate_cdf(h: Array, k: Array, r: Array) -> Array:
    """Phi2(h, k; r) = P(X <= h, Y <= k) of the bivariate normal, elementwise; r = -1 and r = 1 are allowed.

    Owen's formula with his T function, which is accurate to rounding for every argument:

        Phi2 = (Phi(h) + Phi(k))/2 - T(h, a_h) - T(k, a_k) - delta/2,     a_h = (k/h - r)/sqrt(1-r^2),
        delta = 1 when h k < 0, or h k = 0 and h + k < 0.
    """
    h, k, r = np.broadcast_arrays(np.asarray(h, float), np.asarray(k, float), np.asarray(r, float))
    q = np.sqrt(np.maximum((1 - r) * (1 + r), 0.0))
    tiny = 1e-300
    # h = 0 exactly would divide by zero; T(0, a) = arctan(a)/(2 pi) is reached continuously through a tiny h
    safe_h, safe_k = np.where(h == 0, tiny, h), np.where(k == 0, tiny, k)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        slope_h = (safe_k - r * safe_h) / (safe_h * q)
        slope_k = (safe_h - r * safe_k) / (safe_k * q)
        value = (ndtr(h) + ndtr(k)) / 2 - owens_t(safe_h, slope_h) - owens_t(safe_k, slope_k)
    value = value - 0.5 * (safe_h * safe_k < 0)
    both_zero = (h == 0) & (k == 0)
    value = np.where(both_zero, 0.25 + np.arcsin(r) / (2 * math.pi), value)
    certain = np.where(r > 0, ndtr(np.minimum(h, k)), np.maximum(ndtr(h) - ndtr(-k), 0.0))
    return np.asarray(np.where(q < 1e-12, certain, np.clip(value, 0.0, 1.0)))


class OneMoment(NamedTuple):
    """A function of (m, v): value, derivative in the mean, derivative in the variance."""

    value: Array
    mean: Array
    variance: Array


class PairMoment(NamedTuple):
    """A function of (m_a, v_a, m_y, v_y, k): value and derivatives in the order of the arguments."""

    value: Array
    mean_a: Array
    variance_a: Array
    mean_y: Array
    variance_y: Array
    covariance: Array


@dataclass
class Link:
    """sigma by name, and its three averages."""

    name: str
    function: Callable[[Any], Any]
    first: Callable[[Array, Array], OneMoment]  # of (m, v): E sigma(a)
    second: Callable[[Array, Array], OneMoment]  # E sigma(a)^2
    product: Callable[[Array, Array, Array, Array, Array], PairMoment]  # of (m_a, v_a, m_y, v_y, k): E sigma(a) sigma(y)
    slope: Callable[[Any], Any] | None = None  # the derivative of sigma, where it can be trained

    def __call__(self, x: Any) -> Any:
        """sigma(x)."""
        return self.function(x)


# -- sigma(x) = x and sigma(x) = x^2 -----------------------------------------------------------------------------------


def _mean(m: Array, v: Array) -> OneMoment:
    """E a = m."""
    return OneMoment(m, np.ones_like(m), np.zeros_like(m))


def _square(m: Array, v: Array) -> OneMoment:
    """E a^2 = m^2 + v."""
    return OneMoment(m * m + v, 2 * m, np.ones_like(m))


def _fourth(m: Array, v: Array) -> OneMoment:
    """E a^4 = m^4 + 6 m^2 v + 3 v^2."""
    return OneMoment(m**4 + 6 * m * m * v + 3 * v * v, 4 * m**3 + 12 * m * v, 6 * m * m + 6 * v)


def _linear_product(ma: Array, va: Array, my: Array, vy: Array, k: Array) -> PairMoment:
    """m_a m_y + k."""
    zero = np.zeros_like(ma)
    return PairMoment(ma * my + k, my, zero, ma, zero, zero + 1)


def _quadratic_product(ma: Array, va: Array, my: Array, vy: Array, k: Array) -> PairMoment:
    """(m_a^2 + v_a)(m_y^2 + v_y) + 4 m_a m_y k + 2 k^2."""
    a, y = ma * ma + va, my * my + vy
    value = a * y + 4 * ma * my * k + 2 * k * k
    return PairMoment(value, 2 * ma * y + 4 * my * k, y, 2 * my * a + 4 * ma * k, a, 4 * ma * my + 4 * k)


# -- sigma(x) = max(x, 0) and sigma(x) = sign(x), in standard units ----------------------------------------------------


def _density(h: Array) -> Array:
    return np.asarray(np.exp(-h * h / 2) / math.sqrt(2 * math.pi))


class _Standardised(NamedTuple):
    """A pair in standard units: sd's, h = m/sd, correlation, its complement, and the conditional arguments."""

    sa: Array
    sy: Array
    ha: Array
    hy: Array
    r: Array
    q: Array  # sqrt(1 - r^2)
    y_at_zero: Array  # (h_y - r h_a)/q: P(y > 0 | a = 0) = Phi of it
    a_at_zero: Array


def _standardise(ma: Array, va: Array, my: Array, vy: Array, k: Array) -> _Standardised:
    sa, sy = np.sqrt(np.maximum(va, TINY)), np.sqrt(np.maximum(vy, TINY))
    ha, hy = ma / sa, my / sy
    r = np.clip(k / (sa * sy), -1.0, 1.0)
    q = np.sqrt(np.maximum((1 - r) * (1 + r), 0.0))
    safe = np.maximum(q, 1e-30)
    return _Standardised(sa, sy, ha, hy, r, q, (hy - r * ha) / safe, (ha - r * hy) / safe)


def _relu_mean(m: Array, v: Array) -> OneMoment:
    """The mean of the positive part, m Phi(h) + s phi(h), h = m/s."""
    s = np.sqrt(np.maximum(v, TINY))
    above, density = ndtr(m / s), _density(m / s)
    return OneMoment(m * above + s * density, above, density / (2 * s))


def _relu_square(m: Array, v: Array) -> OneMoment:
    """(m^2 + v) Phi(h) + m s phi(h)."""
    s = np.sqrt(np.maximum(v, TINY))
    above, density = ndtr(m / s), _density(m / s)
    return OneMoment((m * m + v) * above + m * s * density, 2 * (m * above + s * density), above)


def _relu_product(ma: Array, va: Array, my: Array, vy: Array, k: Array) -> PairMoment:
    """(m_a m_y + k) Phi2 + m_a s_y phi(h_y) Phi(.) + m_y s_a phi(h_a) Phi(.) + s_a s_y q^2 phi2."""
    z = _standardise(ma, va, my, vy, k)
    both = bivariate_cdf(z.ha, z.hy, z.r)
    edge_y = _density(z.hy) * ndtr(z.a_at_zero)  # phi(h_y) P(a > 0 | y = 0)
    edge_a = _density(z.ha) * ndtr(z.y_at_zero)
    corner = z.q * _density(z.ha) * _density(z.y_at_zero)  # q^2 phi2(h_a, h_y; r)
    value = (ma * my + k) * both + ma * z.sy * edge_y + my * z.sa * edge_a + z.sa * z.sy * corner
    # E[1(a>0) y_+] and E[1(y>0) a_+]; E[y_+ | a = 0] by its conditional law N(my - k ma/va, vy q^2)
    mean_a = my * both + z.sy * (edge_y + z.r * edge_a)
    mean_y = ma * both + z.sa * (edge_a + z.r * edge_y)
    given_a = z.sy * z.q * (z.y_at_zero * ndtr(z.y_at_zero) + _density(z.y_at_zero))
    given_y = z.sa * z.q * (z.a_at_zero * ndtr(z.a_at_zero) + _density(z.a_at_zero))
    variance_a = _density(z.ha) / (2 * z.sa) * given_a
    variance_y = _density(z.hy) / (2 * z.sy) * given_y
    return PairMoment(value, mean_a, variance_a, mean_y, variance_y, both)


def _sign_mean(m: Array, v: Array) -> OneMoment:
    """2 Phi(h) - 1."""
    s = np.sqrt(np.maximum(v, TINY))
    h = m / s
    density = _density(h)
    return OneMoment(2 * ndtr(h) - 1, 2 * density / s, -h * density / (s * s))


def _one(m: Array, v: Array) -> OneMoment:
    """One."""
    return OneMoment(np.ones_like(m), np.zeros_like(m), np.zeros_like(m))


def _sign_product(ma: Array, va: Array, my: Array, vy: Array, k: Array) -> PairMoment:
    """4 Phi2 - 2 Phi(h_a) - 2 Phi(h_y) + 1; a vertical tangent where a_J and y* are collinear (nu = 1 with rho = eta)."""
    z = _standardise(ma, va, my, vy, k)
    value = 4 * bivariate_cdf(z.ha, z.hy, z.r) - 2 * ndtr(z.ha) - 2 * ndtr(z.hy) + 1
    lean_a, lean_y = 2 * ndtr(z.y_at_zero) - 1, 2 * ndtr(z.a_at_zero) - 1
    mean_a = 2 * _density(z.ha) / z.sa * lean_a
    mean_y = 2 * _density(z.hy) / z.sy * lean_y
    with np.errstate(divide="ignore", invalid="ignore"):
        joint = _density(z.ha) * _density(z.y_at_zero) / z.q  # phi2(h_a, h_y; r)
    covariance = 4 * joint / (z.sa * z.sy)
    variance_a = (-z.ha * mean_a / z.sa - z.r * covariance * z.sy / z.sa) / 2
    variance_y = (-z.hy * mean_y / z.sy - z.r * covariance * z.sa / z.sy) / 2
    return PairMoment(value, mean_a, variance_a, mean_y, variance_y, covariance)


LINKS = {
    "linear": Link("linear", lambda x: x, _mean, _square, _linear_product, lambda a: 1.0),
    "quadratic": Link("quadratic", lambda x: x * x, _square, _fourth, _quadratic_product, lambda a: 2 * a),
    "relu": Link("relu", lambda x: x.clip(0.0), _relu_mean, _relu_square, _relu_product, lambda a: (a > 0) * 1.0),
    "sign": Link("sign", np.sign, _sign_mean, _one, _sign_product),  # it has no derivative
}


def resolve_link(link: str | Link | Callable[[Array], Array]) -> Link:
    """A Link from its name, from a Link, or from a function (by quadrature; see CustomLink for its options)."""
    if isinstance(link, Link):
        return link
    if isinstance(link, str) and link in LINKS:
        return LINKS[link]
    if callable(link):
        return CustomLink(link)
    raise BadInput(f"`link` (={link!r}) must be one of {', '.join(LINKS)}, or a function of an array.")


def _flat(*given: Array) -> tuple[tuple[int, ...], list[Array]]:
    """The common shape of arrays, and each as a row of numbers."""
    arrays = np.broadcast_arrays(*(np.asarray(x, float) for x in given))
    return arrays[0].shape, [x.reshape(-1).astype(float) for x in arrays]


class CustomLink(Link):
    """sigma given as a vectorised function; ``breaks`` are the points where it or its derivative jumps.

    Gauss-Legendre quadrature with ``nodes`` per panel, at most 6 standard deviations wide and ending at the breaks; derivatives
    are differences in the means, where the averages are smooth. Smooth links reach about 1e-12 in value, 1e-9 in the gradient.
    """

    def __init__(
        self, function: Callable[[Array], Array], breaks: Sequence[float] = (), name: str = "custom", nodes: int = 24
    ) -> None:
        super().__init__(name, function, partial(self._moment, square=False), partial(self._moment, square=True), self._product)
        self.breaks = np.sort(np.asarray(breaks, dtype=float).reshape(-1))
        if not np.all(np.isfinite(self.breaks)):
            raise BadInput("`breaks` must be finite numbers: the points where the link or its derivative jumps.")
        nodes = whole("nodes", nodes, 4, "24 nodes per panel are usual")
        self(np.array([-1.0, 0.5, 2.0]))
        rules = []
        for count in (2 * nodes, nodes):
            self._nodes, self._weights = np.polynomial.legendre.leggauss(count)
            rules.append(np.array([float(self._mean(np.array([0.1]), np.ones(1), square)[0]) for square in (False, True)]))
        fine, coarse = rules
        if np.any(np.abs(fine - coarse) > 1e-8 * max(1e-12, float(fine[1]))):
            raise BadInput(
                f"the link {name!r} is not resolved: its first two Gaussian moments are {coarse[0]:.9g}, {coarse[1]:.9g} with "
                f"{nodes} nodes per panel and {fine[0]:.9g}, {fine[1]:.9g} with twice as many; name the points where it jumps or "
                "bends in `breaks`, and see that it has a second moment."
            )

    def __call__(self, x: Array) -> Array:
        """sigma(x), checked: same shape, finite."""
        try:
            value = np.asarray(self.function(x), dtype=float)
        except Exception as problem:
            raise BadInput(
                f"the link {self.name!r} failed on an array of shape {x.shape} ({type(problem).__name__}: {problem}); "
                "it must take and return NumPy arrays."
            ) from None
        if value.shape != x.shape:
            raise BadInput(
                f"the link {self.name!r} turned shape {x.shape} into {value.shape}; it must act elementwise on arrays."
            )
        if not np.all(np.isfinite(value)):
            raise BadInput(f"the link {self.name!r} is not finite on [{x.min():.3g}, {x.max():.3g}]; bound its growth.")
        return value

    def _rule(self, m: Array, s: Array, kinks: Array) -> tuple[Array, Array]:
        """Standard-normal nodes z and weights per row; ``kinks`` (rows, K) are break positions in z."""
        fixed = np.broadcast_to(np.array([-REACH, -3.0, 3.0, REACH]), (m.size, 4))
        edges = np.sort(np.concatenate([fixed, np.clip(kinks, -REACH, REACH)], axis=1), axis=1)
        half = np.diff(edges, axis=1) / 2
        z = (edges[:, :-1] + half)[:, :, None] + half[:, :, None] * self._nodes
        weights = half[:, :, None] * self._weights * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
        return z.reshape(m.size, -1), weights.reshape(m.size, -1)

    def _kinks(self, m: Array, s: Array) -> Array:
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            return np.nan_to_num((self.breaks - m[:, None]) / s[:, None], nan=REACH)

    def _mean(self, m: Array, v: Array, square: bool) -> Array:
        s = np.sqrt(np.maximum(v, 0.0))
        z, weights = self._rule(m, s, self._kinks(m, s))
        value = self(m[:, None] + s[:, None] * z)
        return np.asarray(((value * value if square else value) * weights).sum(axis=1))

    def _moment(self, m: Array, v: Array, square: bool) -> OneMoment:
        """E sigma(a), or E sigma(a)^2, and its derivatives."""
        shape, (mean, var) = _flat(m, v)
        h = 0.1 * np.sqrt(np.maximum(var, 0.09))
        table = np.array([self._mean(mean + shift * h, var, square) for shift in SHIFTS])
        parts = (table[4], FIRST @ table / h, SECOND @ table / (2 * h * h))
        return OneMoment(*(part.reshape(shape) for part in parts))

    def _pair(self, ma: Array, va: Array, my: Array, vy: Array, k: Array) -> Array:
        """E sigma(a) E[sigma(y) | a]: the inner average is a Gaussian one again."""
        sa = np.sqrt(np.maximum(va, 0.0))
        lean = np.divide(k, sa, out=np.zeros_like(k), where=sa > 0)  # cov(y, z) for a = ma + sa z
        rest = np.maximum(vy - lean * lean, 0.0)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            # where the conditional mean of y crosses a break the inner average bends, sharply if `rest` is small
            crossings = np.nan_to_num((self.breaks - my[:, None]) / lean[:, None], nan=REACH)
        z, weights = self._rule(ma, sa, np.concatenate([self._kinks(ma, sa), crossings], axis=1))
        inner_mean = (my[:, None] + lean[:, None] * z).reshape(-1)
        inner = self._mean(inner_mean, np.repeat(rest, z.shape[1]), False).reshape(z.shape)
        return np.asarray((weights * self(ma[:, None] + sa[:, None] * z) * inner).sum(axis=1))

    def _product(self, ma: Array, va: Array, my: Array, vy: Array, k: Array) -> PairMoment:
        """E sigma(a) sigma(y) and its derivatives."""
        shape, (ma, va, my, vy, k) = _flat(ma, va, my, vy, k)
        ha, hy = 0.1 * np.sqrt(np.maximum(va, 0.09)), 0.1 * np.sqrt(np.maximum(vy, 0.09))
        along_a = np.array([self._pair(ma + shift * ha, va, my, vy, k) for shift in SHIFTS])
        along_y = np.array([self._pair(ma, va, my + shift * hy, vy, k) for shift in SHIFTS])
        # the mixed derivative is the difference of the second derivatives along the two diagonals
        cross = np.zeros_like(ma)
        for shift, weight in zip(SHIFTS, SECOND, strict=True):
            up = self._pair(ma + shift * ha, va, my + shift * hy, vy, k)
            down = self._pair(ma + shift * ha, va, my - shift * hy, vy, k)
            cross += weight * (up - down)
        parts = (
            along_a[4],
            FIRST @ along_a / ha,
            SECOND @ along_a / (2 * ha * ha),
            FIRST @ along_y / hy,
            SECOND @ along_y / (2 * hy * hy),
            cross / (4 * ha * hy),
        )
        return PairMoment(*(part.reshape(shape) for part in parts))
