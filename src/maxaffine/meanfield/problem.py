"""Single-location regression: the task, without any model of it.

    L tokens x_1..x_L in R^d; a secret index J, uniform;
    x_J ~ N(c sqrt(d) u*, gamma^2 I),   x_l ~ N(0, I) for l != J,   u* and v* orthonormal,
    y = sigma(x_J . v*) + N(0, eps^2).

Only L, C = c sqrt(d) and gamma enter the population risk of a softmax layer, so L may be any real number >= 2.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput

SLACK = 1e-9  # a Gram matrix of rounded unit vectors may have an eigenvalue this far below zero
LARGEST_L = 1e280  # n (n-1) A_1^2 M^(n-2) and its kin leave the range of doubles beyond log L ~ 650


def finite(name: str, value: float, way_out: str) -> float:
    """Return ``value`` as a float, or refuse what is not a finite real number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise BadInput(f"`{name}` (={value!r}) must be a real number; {way_out}.") from None
    if not math.isfinite(number):
        raise BadInput(f"`{name}` (={number}) must be finite; {way_out}.")
    return number


def positive(name: str, value: float, way_out: str) -> float:
    """Return ``value`` as a float > 0."""
    number = finite(name, value, way_out)
    if number <= 0:
        raise BadInput(f"`{name}` (={number:g}) must be positive; {way_out}.")
    return number


def whole(name: str, value: float, least: int, way_out: str) -> int:
    """Return ``value`` as an int >= ``least``."""
    number = finite(name, value, way_out)
    if number != math.floor(number) or number < least:
        raise BadInput(f"`{name}` (={value!r}) must be a whole number >= {least}; {way_out}.")
    return int(number)


@dataclass(frozen=True)
class Problem:
    """The task: dimension ``d``, length ``L``, token noise ``gamma``, label noise ``eps``, signal ``c``.

    ``c`` defaults to sqrt(1 - gamma^2), the paper's choice, for which every token has E|x|^2 = d.
    """

    d: int
    L: float
    gamma: float
    eps: float = 0.0
    c: float | None = None

    def __post_init__(self) -> None:
        d = whole("d", self.d, 4, "the four directions u*, v*, u, v need at least four dimensions")
        length = finite("L", self.L, "give a length such as 20, or 1e60; lengths above need the limit (MeanField)")
        if length < 2:
            raise BadInput(f"`L` (={length:g}) must be at least 2; one token has nothing to choose from, take L=2.")
        if length > LARGEST_L:
            raise BadInput(
                f"`L` (={length:g}) must be at most {LARGEST_L:g}; beyond it doubles overflow, use MeanField(alpha=...)."
            )
        gamma = positive("gamma", self.gamma, "give a token noise in (0, 1), such as 0.5")
        if gamma > 1:
            raise BadInput(f"`gamma` (={gamma:g}) must lie in (0, 1]; the secret token is never the noisier one.")
        eps = finite("eps", self.eps, "give the standard deviation of the label noise, such as 0.1")
        if eps < 0:
            raise BadInput(f"`eps` (={eps:g}) must not be negative; give the standard deviation of the label noise.")
        if self.c is None:
            if gamma == 1:
                raise BadInput(
                    "`gamma` (=1) leaves no signal, because c = sqrt(1 - gamma^2) = 0; "
                    "take gamma < 1, or give the signal strength `c` yourself."
                )
            c = math.sqrt((1 - gamma) * (1 + gamma))
        else:
            c = positive("c", self.c, "give a positive signal strength, or leave it out for sqrt(1 - gamma^2)")
        for name, value in (("d", d), ("L", length), ("gamma", gamma), ("eps", eps), ("c", c)):
            object.__setattr__(self, name, value)

    @classmethod
    def from_alpha(cls, d: int, alpha: float, gamma: float, eps: float = 0.0, c: float | None = None) -> "Problem":
        """The problem with L = 1 + exp(alpha d)."""
        alpha = positive("alpha", alpha, "give log(L-1)/d, such as 0.1")
        if alpha * d > 644:
            raise BadInput(
                f"`alpha` (={alpha:g}) times `d` (={d}) must stay below 644; exp(alpha d) leaves the range of doubles."
            )
        return cls(d, 1 + math.exp(alpha * d), gamma, eps, c)

    @property
    def distractors(self) -> float:
        """n = L - 1, the number of tokens that carry no signal."""
        return self.L - 1

    @property
    def signal(self) -> float:
        """c as a float (never None once the problem is made)."""
        assert self.c is not None
        return self.c

    @property
    def C(self) -> float:
        """C = c sqrt(d), the length of the secret token's mean."""
        return self.signal * math.sqrt(self.d)

    @property
    def alpha(self) -> float:
        """alpha = log(L-1)/d, zero at L = 2."""
        return math.log(self.distractors) / self.d

    def to_json(self) -> dict[str, float]:
        """Plain numbers under the names of the constructor."""
        return {"d": self.d, "L": self.L, "gamma": self.gamma, "eps": self.eps, "c": self.signal}


class Overlaps(NamedTuple):
    """The five overlaps that describe a layer (u, v) relative to the task (u*, v*), all four vectors of unit length.

    mu = u.u*    nu = v.v*    eta = u.v*    zeta = v.u*    rho = u.v
    """

    mu: float
    nu: float
    eta: float = 0.0
    zeta: float = 0.0
    rho: float = 0.0

    def gram(self) -> Array:
        """The 4 x 4 Gram matrix of (u*, v*, u, v)."""
        mu, nu, eta, zeta, rho = self
        return np.array([[1, 0, mu, zeta], [0, 1, eta, nu], [mu, eta, 1, rho], [zeta, nu, rho, 1]], dtype=float)

    def smallest_eigenvalue(self) -> float:
        """Smallest eigenvalue of the Gram matrix: negative when no unit vectors have these overlaps."""
        return float(np.linalg.eigvalsh(self.gram())[0])

    def feasible(self, slack: float = SLACK) -> bool:
        """Whether unit vectors with these overlaps exist."""
        return bool(np.all(np.isfinite(self))) and self.smallest_eigenvalue() >= -slack

    def check(self) -> "Overlaps":
        """Return self, or refuse overlaps that no unit vectors have."""
        for name, value in zip(self._fields, self, strict=True):
            number = finite(name, value, "give an overlap in [-1, 1]")
            if abs(number) > 1 + SLACK:
                raise BadInput(f"`{name}` (={number:g}) must lie in [-1, 1]; it is the cosine of an angle.")
        if not self.feasible():
            values = ", ".join(f"{name}={value:g}" for name, value in zip(self._fields, self, strict=True))
            raise BadInput(
                f"the overlaps ({values}) are infeasible: the Gram matrix of (u*, v*, u, v) has the eigenvalue "
                f"{self.smallest_eigenvalue():.3g} < 0, so no unit vectors have them; shrink them "
                "(mu^2 + eta^2 <= 1, nu^2 + zeta^2 <= 1, and rho within reach) or take them from vectors."
            )
        return self

    @classmethod
    def from_vectors(cls, u: Array, v: Array, u_star: Array, v_star: Array) -> "Overlaps":
        """Overlaps of vectors, normalised here; u* and v* must be orthogonal."""
        named = {"u": u, "v": v, "u_star": u_star, "v_star": v_star}
        unit = {}
        for name, value in named.items():
            vector = np.asarray(value, dtype=float)
            length = float(np.linalg.norm(vector)) if vector.ndim == 1 else math.nan
            if not (math.isfinite(length) and length > 0):
                raise BadInput(f"`{name}` (shape {vector.shape}) must be a finite, non-zero vector; give one of length d.")
            unit[name] = vector / length
        if len({vector.size for vector in unit.values()}) != 1:
            sizes = ", ".join(f"{name}: {vector.size}" for name, vector in unit.items())
            raise BadInput(f"the four vectors have different lengths ({sizes}); give all of them in R^d.")
        a, b, s, t = unit["u"], unit["v"], unit["u_star"], unit["v_star"]
        if abs(float(s @ t)) > SLACK:
            raise BadInput(f"`u_star` and `v_star` have inner product {s @ t:.3g}; the task takes them orthogonal.")
        return cls(float(a @ s), float(b @ t), float(a @ t), float(b @ s), float(a @ b))

    def to_vectors(self, d: int, seed: int | None = None) -> tuple[Array, Array, Array, Array]:
        """Unit vectors (u*, v*, u, v) in R^d with these overlaps.

        Without a seed u* and v* are the first two axes; with one, all four are turned by a random rotation.
        """
        self.check()
        d = whole("d", d, 4, "four directions need at least four dimensions")
        mu, nu, eta, zeta, rho = self
        third = math.sqrt(max(0.0, 1 - mu * mu - eta * eta))
        # v's part along the third axis is fixed by rho; when u lies in the plane of u*, v* it is free (and zero)
        room = math.sqrt(max(0.0, 1 - nu * nu - zeta * zeta))
        along = (rho - mu * zeta - eta * nu) / third if third > 1e-7 else 0.0
        along = min(max(along, -room), room)  # third has few digits near zero; nu and zeta keep theirs
        rest = math.sqrt(max(0.0, room * room - along * along))
        vectors = np.zeros((4, d))
        vectors[0, 0] = vectors[1, 1] = 1.0
        vectors[2, :3] = mu, eta, third
        vectors[3, :4] = zeta, nu, along, rest
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        if seed is not None:
            basis, upper = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, 4)))
            vectors = vectors[:, :4] @ (basis * np.sign(np.diag(upper))).T
        return vectors[0], vectors[1], vectors[2], vectors[3]

    def to_json(self) -> dict[str, float]:
        """Plain numbers under the overlaps' names."""
        return {name: float(value) for name, value in zip(self._fields, self, strict=True)}
