"""Stationary points of the risk on the product of two spheres, their type, and the Hessian at the oracle."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, least_squares, root

from maxaffine.core.arrays import Array
from maxaffine.meanfield.problem import Overlaps, whole
from maxaffine.meanfield.risk import Risk, RiskTable, SoftmaxRisk

DIFFERENCE = np.array([1 / 12, -2 / 3, 2 / 3, -1 / 12])  # fourth-order first derivative at -2h, -h, h, 2h


@dataclass(frozen=True)
class StationaryPoint:
    """A stationary point: overlaps, risk, type and the eigenvalues of its Riemannian Hessian (see its ``kind``)."""

    overlaps: Overlaps
    risk: float
    kind: str  # "minimum" | "saddle" | "maximum" | "degenerate"
    eigenvalues: tuple[float, ...]

    @property
    def on_manifold(self) -> bool:
        """Whether it lies on eta = zeta = rho = 0."""
        return max(abs(self.overlaps.eta), abs(self.overlaps.zeta), abs(self.overlaps.rho)) < 1e-9


@dataclass(frozen=True)
class OracleHessian:
    """Hessian at u = u*, v = v*: the block of (u along v*, v along u*), and the two perpendicular curvatures."""

    block: Array
    perpendicular_u: float
    perpendicular_v: float

    @property
    def smallest(self) -> float:
        """Its smallest eigenvalue; not negative when the oracle is a local minimum."""
        return min(float(np.linalg.eigvalsh(self.block)[0]), self.perpendicular_u, self.perpendicular_v)


def hessian_oracle(risk: SoftmaxRisk | RiskTable, mu: float = 1.0, nu: float = 1.0) -> OracleHessian:
    """Exact Hessian at the oracle in the chart u = u* + x v* + perp, v = v* + y u* + perp; at u = mu u*, v = nu v* for signs.

    H_xx = -R_mu + 2 (Q - 2 gamma H),   H_yy = 2 gamma^2 P1 + 2 (C^2 S0 + 2 C E1 + Q),
    H_xy = 2 (-gamma C K1 + C E1 + Q - gamma H);   perpendicular: -R_mu and 2 gamma^2 P1.
    """
    gamma, C = risk.problem.gamma, risk.problem.C
    p1, _, _, s0, e1, k1, q, h = risk.coefficients(mu)[0].tolist()
    slope = risk.value_and_gradient(Overlaps(mu, nu))[1].mu
    perpendicular_u, perpendicular_v = -mu * slope, nu * 2 * gamma**2 * p1
    xx = perpendicular_u + 2 * q - 4 * nu * gamma * h
    yy = perpendicular_v + 2 * C * C * s0 + 4 * mu * C * e1 + 2 * q
    xy = 2 * (-gamma * C * k1 + nu * C * e1 + mu * nu * q - mu * gamma * h)
    return OracleHessian(np.array([[xx, xy], [xy, yy]]), perpendicular_u, perpendicular_v)


def _second_derivatives(risk: Risk, o: Overlaps, h: float) -> Array:
    """5 x 5 matrix of second partial derivatives, by fourth-order differences of the exact gradient."""
    rows = []
    for i in range(5):
        # an overlap at its end is differenced from inside: the exact risk is smooth beyond it, a link's need not be
        total = np.zeros(5)
        for shift, weight in zip((-2, -1, 1, 2), DIFFERENCE, strict=True):
            moved = list(o)
            moved[i] += shift * h
            total += weight * np.array(risk.value_and_gradient(Overlaps(*moved))[1])
        rows.append(total / h)
    matrix = np.array(rows)
    return np.asarray((matrix + matrix.T) / 2)


def riemannian_hessian(risk: Risk, o: Overlaps) -> Array:
    """Hessian of the risk on the two spheres at overlaps o, in a basis of the tangent spaces of R^6 x R^6.

    Six dimensions hold u*, v*, u, v and two spare directions: every further dimension repeats their curvatures.
    With G the Euclidean gradient it is P (dG) P - (G_u.u) on u's tangent space, likewise on v's.
    """
    size = 6
    u_star, v_star, u, v = o.to_vectors(size)
    g = risk.value_and_gradient(o)[1]
    second = _second_derivatives(risk, o, 0.02 * math.hypot(risk.problem.gamma, 1e-3) / risk.problem.C)
    zero = np.zeros(size)
    # gradient of each overlap in the twelve coordinates of (u, v)
    rows = np.block([[u_star, zero], [zero, v_star], [v_star, zero], [zero, u_star], [v, u]])
    ambient = rows.T @ second @ rows
    ambient[:size, size:] += g.rho * np.eye(size)
    ambient[size:, :size] += g.rho * np.eye(size)
    euclidean = rows.T @ np.array(g)
    curvature = np.diag(np.repeat([euclidean[:size] @ u, euclidean[size:] @ v], size))
    tangent = np.zeros((2 * size, 2 * size - 2))
    tangent[:size, : size - 1] = np.linalg.svd(u[None, :])[2][1:].T
    tangent[size:, size - 1 :] = np.linalg.svd(v[None, :])[2][1:].T
    return np.asarray(tangent.T @ (ambient - curvature) @ tangent)


def _kind(eigenvalues: Array, noise: float) -> str:
    if eigenvalues[0] > noise:
        return "minimum"
    if eigenvalues[-1] < -noise:
        return "maximum"
    return "saddle" if eigenvalues[0] < -noise and eigenvalues[-1] > noise else "degenerate"


def _classify(risk: SoftmaxRisk | RiskTable, o: Overlaps) -> StationaryPoint:
    value = risk.value_and_gradient(o)[0]
    if abs(o.mu) == 1 and abs(o.nu) == 1:
        # on a plateau curvatures of 1e-20 decide: the closed form has them with their signs, a difference quotient not
        corner = hessian_oracle(risk, o.mu, o.nu)
        block = np.linalg.eigvalsh(corner.block)
        noise = 1e-14 * float(np.abs(block).max())
        known = [e for e in block.tolist() if abs(e) > noise]
        values = np.sort([*known, corner.perpendicular_u, corner.perpendicular_v])
        return StationaryPoint(o, value, _kind(values, 0.0), tuple(values.tolist()))
    eigenvalues: Array = np.asarray(np.linalg.eigvalsh(riemannian_hessian(risk, o)), dtype=np.float64)
    return StationaryPoint(o, value, _kind(eigenvalues, 1e-10 * float(np.abs(eigenvalues).max())), tuple(eigenvalues.tolist()))


def stationary_points(
    risk: SoftmaxRisk | RiskTable, grid: int = 400, planar: bool = False, search: int = 0, seed: int = 0
) -> list[StationaryPoint]:
    """All stationary points on the invariant manifold; off it by request.

    ``planar`` adds those with u and v in the plane of u* and v* (two angles, searched on a grid; the gradient lies in that
    plane, so they are stationary in R^d). ``search`` adds what as many random starts find anywhere else.

    On the manifold nu' = 2 gamma^2 P1 (1 - nu^2) with P1 > 0, so nu = +-1; there mu = +-1 or a root of R_mu, found by
    sign changes on a grid of mu and refined.
    """
    grid = whole("grid", grid, 2, "400 points resolve the risk")
    found = []
    for nu in (1.0, -1.0):
        mus = np.linspace(-1, 1, grid + 1)
        slopes = [risk.value_and_gradient(Overlaps(mu, nu))[1].mu for mu in mus.tolist()]
        roots = [-1.0, 1.0]
        for i in range(grid):
            if slopes[i] * slopes[i + 1] < 0:
                zero = brentq(lambda mu, nu=nu: risk.value_and_gradient(Overlaps(mu, nu))[1].mu, mus[i], mus[i + 1], xtol=1e-14)
                roots.append(float(zero))
        found += [_classify(risk, Overlaps(mu, nu)) for mu in sorted(roots)]
    if planar:
        found += _planar(risk, found)
    return found + _random(risk, search, seed, found)


def _tangent_gradient(risk: Risk, u: Array, v: Array) -> tuple[Array, Array]:
    """The Riemannian gradient at unit vectors u, v in coordinates whose first two axes are u* and v*."""
    g = risk.value_and_gradient(Overlaps(u[0], v[1], u[1], v[0], float(u @ v)))[1]
    g_u, g_v = g.rho * v, g.rho * u
    g_u[0] += g.mu
    g_u[1] += g.eta
    g_v[1] += g.nu
    g_v[0] += g.zeta
    return g_u - (g_u @ u) * u, g_v - (g_v @ v) * v


def _accepted(
    risk: SoftmaxRisk | RiskTable, ends: Iterable[tuple[Overlaps, Array]], known: list[StationaryPoint]
) -> list[StationaryPoint]:
    """The ends (overlaps, residual) that are stationary and new.

    The mirror image (eta, zeta, rho) -> -(eta, zeta, rho) counts as the same.
    """
    extra: list[StationaryPoint] = []
    for o, residual in ends:
        mirrors = [np.array(o), np.array(o) * [1, 1, -1, -1, -1]]
        if any(np.abs(np.array(p.overlaps) - mirror).max() < 1e-5 for p in known + extra for mirror in mirrors):
            continue
        point = _classify(risk, o)
        # plateaus are flat to rounding without being stationary: ask that a Newton step would not move the point
        sizes = [abs(e) for e in point.eigenvalues]
        if min(sizes) > 1e-13 * max(sizes) and float(np.abs(residual).max()) < 1e-7 * min(sizes):
            extra.append(point)
    return extra


def _planar(risk: SoftmaxRisk | RiskTable, known: list[StationaryPoint], grid: int = 72) -> list[StationaryPoint]:
    def field(angles: Array) -> Array:
        a, b = angles
        u, v = np.array([math.cos(a), math.sin(a)]), np.array([math.cos(b), math.sin(b)])
        g_u, g_v = _tangent_gradient(risk, u, v)
        return np.array([-u[1] * g_u[0] + u[0] * g_u[1], -v[1] * g_v[0] + v[0] * g_v[1]])

    # half a turn of u suffices up to the mirror image; both angles are offset to keep off the symmetric points
    angles_u = math.pi * (np.arange(grid // 2) + 0.37) / (grid // 2)
    angles_v = 2 * math.pi * (np.arange(grid) + 0.41) / grid
    size = np.array([[np.linalg.norm(field(np.array([a, b]))) for b in angles_v] for a in angles_u])
    around = [np.roll(np.roll(size, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]
    ends = (root(field, [angles_u[i], angles_v[j]], tol=1e-14) for i, j in np.argwhere(size < np.min(around, axis=0)))

    def overlaps(a: float, b: float) -> Overlaps:
        return Overlaps(math.cos(a), math.sin(b), math.sin(a), math.cos(b), math.cos(a - b))

    return _accepted(risk, ((overlaps(*end.x), end.fun) for end in ends), known)


def _random(risk: SoftmaxRisk | RiskTable, search: int, seed: int, known: list[StationaryPoint]) -> list[StationaryPoint]:
    rng = np.random.default_rng(seed)

    def field(z: Array) -> Array:
        return np.concatenate(_tangent_gradient(risk, z[:4] / np.linalg.norm(z[:4]), z[4:] / np.linalg.norm(z[4:])))

    tight = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15, "max_nfev": 200}
    ends = (least_squares(field, rng.standard_normal(8), **tight) for _ in range(search))
    axes = np.eye(4)[:2]
    return _accepted(risk, ((Overlaps.from_vectors(end.x[:4], end.x[4:], *axes), end.fun) for end in ends), known)
