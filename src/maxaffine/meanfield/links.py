"""Links sigma: Gaussian averages of sigma and of products of two sigmas, with their derivatives.

For a ~ N(m, v) and a pair (a, y) with covariance k, a link gives

    first(m, v)  = E sigma(a),   second(m, v) = E sigma(a)^2,   product(m_a, v_a, m_y, v_y, k) = E sigma(a) sigma(y)

and each one's partial derivatives. All of them are derivatives in the means: d/dv = (1/2) d^2/dm^2 and
d/dk = d^2/(dm_a dm_y) (the heat equation of the Gaussian), so they exist also where the covariance is singular.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.meanfield.bivariate import bivariate_cdf

TINY = 1e-150  # stands for zero in denominators whose numerators vanish with them


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


class Link(ABC):
    """A link by name; subclasses give the three averages."""

    name = "link"

    @abstractmethod
    def __call__(self, x: Array) -> Array:
        """sigma(x)."""

    @abstractmethod
    def first(self, m: Array, v: Array) -> OneMoment:
        """E sigma(a)."""

    @abstractmethod
    def second(self, m: Array, v: Array) -> OneMoment:
        """E sigma(a)^2."""

    @abstractmethod
    def product(self, ma: Array, va: Array, my: Array, vy: Array, k: Array) -> PairMoment:
        """E sigma(a) sigma(y)."""


class Linear(Link):
    """sigma(x) = x."""

    name = "linear"

    def __call__(self, x: Array) -> Array:
        """The argument itself."""
        return x

    def first(self, m: Array, v: Array) -> OneMoment:
        """The mean m."""
        return OneMoment(m, np.ones_like(m), np.zeros_like(m))

    def second(self, m: Array, v: Array) -> OneMoment:
        """m^2 + v."""
        return OneMoment(m * m + v, 2 * m, np.ones_like(m))

    def product(self, ma: Array, va: Array, my: Array, vy: Array, k: Array) -> PairMoment:
        """m_a m_y + k."""
        zero = np.zeros_like(ma)
        return PairMoment(ma * my + k, my, zero, ma, zero, zero + 1)


class Quadratic(Link):
    """sigma(x) = x^2."""

    name = "quadratic"

    def __call__(self, x: Array) -> Array:
        """x^2."""
        return x * x

    def first(self, m: Array, v: Array) -> OneMoment:
        """m^2 + v."""
        return OneMoment(m * m + v, 2 * m, np.ones_like(m))

    def second(self, m: Array, v: Array) -> OneMoment:
        """m^4 + 6 m^2 v + 3 v^2."""
        return OneMoment(m**4 + 6 * m * m * v + 3 * v * v, 4 * m**3 + 12 * m * v, 6 * m * m + 6 * v)

    def product(self, ma: Array, va: Array, my: Array, vy: Array, k: Array) -> PairMoment:
        """(m_a^2 + v_a)(m_y^2 + v_y) + 4 m_a m_y k + 2 k^2."""
        a, y = ma * ma + va, my * my + vy
        value = a * y + 4 * ma * my * k + 2 * k * k
        return PairMoment(value, 2 * ma * y + 4 * my * k, y, 2 * my * a + 4 * ma * k, a, 4 * ma * my + 4 * k)


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


class Relu(Link):
    """sigma(x) = max(x, 0)."""

    name = "relu"

    def __call__(self, x: Array) -> Array:
        """max(x, 0)."""
        return np.maximum(x, 0.0)

    def first(self, m: Array, v: Array) -> OneMoment:
        """The mean of the positive part, m Phi(h) + s phi(h), h = m/s."""
        s = np.sqrt(np.maximum(v, TINY))
        above, density = ndtr(m / s), _density(m / s)
        return OneMoment(m * above + s * density, above, density / (2 * s))

    def second(self, m: Array, v: Array) -> OneMoment:
        """(m^2 + v) Phi(h) + m s phi(h)."""
        s = np.sqrt(np.maximum(v, TINY))
        above, density = ndtr(m / s), _density(m / s)
        return OneMoment((m * m + v) * above + m * s * density, 2 * (m * above + s * density), above)

    def product(self, ma: Array, va: Array, my: Array, vy: Array, k: Array) -> PairMoment:
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


class Sign(Link):
    """sigma(x) = sign(x). Its risk has a vertical tangent where a_J and y* are collinear (nu = 1 with rho = eta)."""

    name = "sign"

    def __call__(self, x: Array) -> Array:
        """sign(x)."""
        return np.sign(x)

    def first(self, m: Array, v: Array) -> OneMoment:
        """2 Phi(h) - 1."""
        s = np.sqrt(np.maximum(v, TINY))
        h = m / s
        density = _density(h)
        return OneMoment(2 * ndtr(h) - 1, 2 * density / s, -h * density / (s * s))

    def second(self, m: Array, v: Array) -> OneMoment:
        """One."""
        return OneMoment(np.ones_like(m), np.zeros_like(m), np.zeros_like(m))

    def product(self, ma: Array, va: Array, my: Array, vy: Array, k: Array) -> PairMoment:
        """4 Phi2 - 2 Phi(h_a) - 2 Phi(h_y) + 1."""
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


LINKS: dict[str, Link] = {link.name: link for link in (Linear(), Quadratic(), Relu(), Sign())}


def resolve_link(link: str | Link | Callable[[Array], Array]) -> Link:
    """A Link from its name, from a Link, or from a function (by quadrature; see CustomLink for its options)."""
    if isinstance(link, Link):
        return link
    if isinstance(link, str):
        if link not in LINKS:
            raise BadInput(f"`link` (={link!r}) must be one of {', '.join(LINKS)}, or a function of an array.")
        return LINKS[link]
    if callable(link):
        from maxaffine.meanfield.custom_link import CustomLink

        return CustomLink(link)
    raise BadInput(f"`link` (={link!r}) must be one of {', '.join(LINKS)}, or a function of an array.")
