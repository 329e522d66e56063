"""The five overlaps that describe a layer (u, v) relative to the task (u*, v*).

mu = u.u*    nu = v.v*    eta = u.v*    zeta = v.u*    rho = u.v,       all four vectors of unit length.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.meanfield.checks import finite, whole

SLACK = 1e-9  # a Gram matrix of rounded unit vectors may have an eigenvalue this far below zero


class Overlaps(NamedTuple):
    """(mu, nu, eta, zeta, rho)."""

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

    def check(self) -> Overlaps:
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

    def on_manifold(self) -> bool:
        """Whether eta = zeta = rho = 0, the invariant manifold of the dynamics."""
        return self.eta == 0 and self.zeta == 0 and self.rho == 0

    @classmethod
    def from_vectors(cls, u: Array, v: Array, u_star: Array, v_star: Array) -> Overlaps:
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
