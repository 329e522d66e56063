"""Fitting values to keys: heads on grids and at points, ridge least squares, Lawson's reweighting, and what rounding will cost.

    minimise |W c - f|^2 + lam^2 |c|^2,       W = U S V^T:   c = V (S/(S^2 + lam^2)) U^T f,       lam tied to the error wanted

A tiny lam would buy values of 1e9 whose rounding no certificate forgives; never form a pseudo-inverse.

Values affine in z on product keys, c_j + G_j z, are solved block by block.  Along one axis let B be the weights at the sample
points and zB the same times z; zB = U C + Q with U a basis of B and Q what lies outside it.  On a product of axes the columns of
G_e reach the block (Q along e, U along the others), which no other column touches: a ridge problem of its own that factorises.
What G_e puts into the block (U, .., U) is taken off the samples before c is fitted there, so that (E + 1) N unknowns cost E + 1
Kronecker solves and no large matrix is ever formed.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.boxes import mesh
from maxaffine.core.rounding import compute_format, dtype_of, numpy_dtype
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.spectral_keys import SpectralAxis, expected_etas, weights
from maxaffine.target.box import Box

Function = Callable[[Array], Array]  # z (M, E) -> (M, K)

LAMBDAS = (3.0, 0.3, 0.03, 0.003)  # of the error wanted over the size of the function: dampings that are tried
MORE_LAMBDAS = (*LAMBDAS, 0.0003)
AT_ONCE = 1 << 19  # values on a grid of heads that are judged together
SOME = 24  # points per axis at which the cost of rounding is judged


def as_stored(values: Array, dtype: str) -> Array:
    """Values as the dtype stores them, held in float64; those beyond it are infinite."""
    if dtype == "float64":
        return np.asarray(values, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values.astype(numpy_dtype(dtype)).astype(np.float64))


def loss_share(dtype: str) -> float:
    """A head may lose at most one part in this of its error to rounding: certificates stay sharp where the dtype allows."""
    return 7.0 if dtype == "float64" else 1.5


def query_rounding(dtype: str) -> float:
    """The relative error of a stored query; in float64 it is counted elsewhere."""
    return 0.0 if dtype == "float64" else dtype_of(dtype).unit / 2.0


def fewest(error_of: Callable[[int], float], error: float, start: int, most: int) -> int | None:
    """The least count up to `most` whose error is at most `error`, the error falling with the count; None where there is none.

    Errors of smooth functions fall geometrically: two of them say where the error will be reached.
    """
    known = {start: error_of(start)}
    low, high = start - 1, start
    while known[high] > error:
        if high == most:
            return None
        low, high = high, min(most, _foreseen(known, error))
        known[high] = error_of(high)
    while high - low > 1:
        middle = (low + high) // 2
        if low in known and 0.0 < known[high] < known[low] < math.inf:
            share = math.log(known[low] / error) / math.log(known[low] / known[high])
            middle = min(max(low + math.ceil(share * (high - low)), low + 1), high - 1)
        known[middle] = error_of(middle)
        low, high = (low, middle) if known[middle] <= error else (middle, high)
    if high - 2 >= start and high - 2 not in known and error_of(high - 2) <= error:
        return high - 2  # even functions gain by every second key
    return high


def _foreseen(known: dict[int, float], error: float) -> int:
    """Where the line through the last two logarithms of errors meets that of `error`, and not much farther than that."""
    last = max(known)
    step = max(1, last // 3)
    before = max((n for n in known if n < last), default=last)
    if last < 4 or not 0.0 < known[last] < known[before] < math.inf:
        return last + step
    rate = math.log(known[before] / known[last]) / (last - before)
    return last + min(max(1, math.ceil(math.log(known[last] / error) / rate)), 2 * step + 1)


def from_unit_box(box: Box) -> Function:
    """x inside the box of z (M, D) in [-1, 1]^D."""
    middle, half = (box.low + box.high) / 2.0, (box.high - box.low) / 2.0
    return lambda z: np.asarray(np.clip(middle + half * z, box.low, box.high))


# -- ridge least squares


def ridges(W: Array, f: Array, dampings: Iterable[float]) -> Iterator[Array]:
    """Ridge values for f (M,) or (M, K), damping after damping."""
    return ridges_of(np.linalg.svd(W, full_matrices=False), f, dampings)


def ridges_of(decomposed: tuple[Array, Array, Array], f: Array, dampings: Iterable[float]) -> Iterator[Array]:
    """The same from the singular values and vectors of W."""
    U, S, Vt = decomposed
    projected = U.T @ f
    for damping in dampings:
        keep = S / (S * S + damping * damping)
        yield np.asarray(Vt.T @ (keep.reshape(-1, *(1,) * (f.ndim - 1)) * projected))


def lawson(W: Array, f: Array, damping: float, rounds: int) -> Iterator[Array]:
    """Ridge values with points reweighted by their error, towards the sup norm; ends where weights span too many decades."""
    weight = np.ones(len(W))
    for _ in range(rounds):
        root = np.sqrt(weight / weight.mean())
        try:
            (values,) = ridges(W * root[:, None], f * root.reshape(-1, *(1,) * (f.ndim - 1)), (damping,))
        except np.linalg.LinAlgError:
            return
        yield values
        away = np.abs(W @ values - f).reshape(len(W), -1).max(axis=1)
        weight = weight * (away / max(float(away.max()), 1e-300) + 1e-3)
        weight /= weight.max()


# -- heads on grids and at points


def on_grid(f: Function, grids: Sequence[Array]) -> Array:
    """f on the product of grids: (M_1, .., M_E, K)."""
    return f(mesh(grids)).reshape(*(len(g) for g in grids), -1)


def spread(W: Sequence[Array], values: Array) -> Array:
    """values (N_1, .., N_E, ..) contracted with (M_e, N_e) along every axis."""
    rest = values.shape[len(W) :]
    for w in W:  # the axis in front is contracted and comes back last, so that after all of them `rest` stands in front
        values = (values.reshape(len(values), -1).T @ w.T).reshape(*values.shape[1:], len(w))
    return values.reshape(math.prod(rest), -1).T.reshape(*(len(w) for w in W), *rest)


def affine_on_grid(W: Sequence[Array], values: Array, slopes: Array | None, grids: Sequence[Array]) -> Array:
    """sum_j w_j (c_j + G_j z) on a product of grids."""
    g = spread(W, values)
    if slopes is not None:
        for e, z in enumerate(along_axes(grids)):
            g = g + z * spread(W, slopes[..., e])
    return g


def along_axes(grids: Sequence[Array]) -> list[Array]:
    """Every coordinate on a product of grids, shaped for values (M_1, .., M_E, K)."""
    return [grid.reshape([-1 if i == e else 1 for i in range(len(grids))] + [1]) for e, grid in enumerate(grids)]


def weights_at(keys: Sequence[AxisKeys], z: Array) -> Array:
    """Weights (M, N) of all tokens of product keys at points (M, E)."""
    W = np.ones((len(z), 1))
    for e, axis in enumerate(keys):
        W = (W[:, :, None] * weights(axis, z[:, e])[:, None, :]).reshape(len(z), -1)
    return W


def affine_columns(keys: Sequence[AxisKeys], z: Array) -> Array:
    """The weights at points (M, E), then the same times every coordinate: (M, N (1 + E))."""
    W = weights_at(keys, z)
    return np.concatenate([W, *(W * z[:, e : e + 1] for e in range(len(keys)))], axis=1)


# -- values affine in z


@dataclass(frozen=True)
class Basis:
    """One axis: weights W = U diag(S) Vt, z W = U C + Q diag(T) Rt."""

    U: Array
    S: Array
    Vt: Array
    C: Array
    Q: Array
    T: Array
    Rt: Array

    @classmethod
    def of(cls, axis: SpectralAxis, grid: Array) -> "Basis":
        """The bases of W and z W at the points of a grid."""
        W = weights(axis.keys, grid)
        U, S, Vt = np.linalg.svd(W, full_matrices=False)
        tall = grid[:, None] * W
        C = U.T @ tall
        rest = tall - U @ C
        rest -= U @ (U.T @ rest)
        return cls(U, S, Vt, C, *np.linalg.svd(rest, full_matrices=False))


def affine_values(
    bases: Sequence[Basis], samples: Array, dampings: Sequence[float], lean: Sequence[bool] = ()
) -> tuple[Array, Array]:
    """Values c (N_1, .., N_E, K, L) and slopes G (.., K, L, E) for samples on the product of the bases' grids and L dampings.

    `lean`: the coordinates in which values may be affine, by default all of them.
    """
    E = len(bases)
    core = spread([b.U.T for b in bases], samples)[..., None]
    slopes = []
    for e in range(E):
        own = spread([b.Q.T if i == e else b.U.T for i, b in enumerate(bases)], samples)[..., None]
        kept = _kept([b.T if i == e else b.S for i, b in enumerate(bases)], dampings)
        G = spread([b.Rt.T if i == e else b.Vt.T for i, b in enumerate(bases)], own * kept)
        if lean and not lean[e]:
            slopes.append(np.zeros_like(G))
            continue
        core = core - spread([b.C if i == e else b.S[:, None] * b.Vt for i, b in enumerate(bases)], G)
        slopes.append(G)
    return spread([b.Vt.T for b in bases], core * _kept([b.S for b in bases], dampings)), np.stack(slopes, axis=-1)


def affine_along(basis: Basis, samples: Array, dampings: Sequence[float]) -> tuple[Array, Array]:
    """The same along one axis for all dampings at once: values and slopes (L, N, K) for samples (M, K)."""
    inside, outside = basis.U.T @ samples, basis.Q.T @ samples
    squares = np.minimum(dampings, 1e100)[:, None] ** 2
    slopes = basis.Rt.T @ ((basis.T / (basis.T**2 + squares))[:, :, None] * outside)
    values = basis.Vt.T @ ((basis.S / (basis.S**2 + squares))[:, :, None] * (inside - basis.C @ slopes))
    return values, slopes


def _kept(singular: Sequence[Array], dampings: Sequence[float]) -> Array:
    """s/(s^2 + damping^2) for the products s of singular values, one axis more for the outputs and one for the dampings."""
    products = reduce(np.multiply.outer, singular)[..., None, None]
    return np.asarray(products / (products**2 + np.minimum(dampings, 1e100) ** 2))  # its square is a number


# -- what a head is worth


class Judge:
    """Heads on given product keys, judged on a grid: their largest error there, and what rounding is expected to cost.

    `terms` counts the roundings of a logit; a crude bound below `enough` stands for the cost itself.
    """

    def __init__(
        self, keys: Sequence[AxisKeys], grids: Sequence[Array], exact: Array, dtype: str, terms: int, enough: float = 0.0
    ) -> None:
        self.grids, self.exact, self.dtype, self.enough = grids, exact, dtype, enough
        unit = compute_format(dtype).unit
        self._W = [weights(axis, grid) for axis, grid in zip(keys, grids, strict=True)]
        # what rounding costs changes slowly: some points per axis tell
        self._some = [slice(None, None, max(1, len(grid) // SOME)) if len(grids) > 1 else slice(None) for grid in grids]
        self._few = [grid[some] for grid, some in zip(grids, self._some, strict=True)]
        self._lost = [w[some] for w, some in zip(self._W, self._some, strict=True)]
        self._etas = [expected_etas(axis, grid, terms) * unit for axis, grid in zip(keys, self._few, strict=True)]

    def error(self, values: Array, slopes: Array | None, below: float) -> float:
        """The expected sup error of values, and slopes where they are affine; infinite where it is not `below`."""
        g = affine_on_grid(self._W, values, slopes, self.grids)
        away = float(np.abs(g - self.exact).max())
        return self._with_rounding(values, slopes, g, away) if away < below else math.inf

    def best(self, values: Array, slopes: Array, good: NDArray[np.bool_]) -> tuple[float, int]:
        """The least expected error of values (.., K, L) and slopes (.., K, L, E) that are `good`, and its place among the L."""
        L, K = values.shape[-1], values.shape[-2]
        step, away = max(1, AT_ONCE // max(1, self.exact.size)), np.full(L, math.inf)
        on_grid: list[Array] = []
        for first in range(0, L, step):
            c, G = values[..., first : first + step], slopes[..., first : first + step, :]
            g = affine_on_grid(self._W, c.reshape(*c.shape[:-2], -1), G.reshape(*G.shape[:-3], -1, G.shape[-1]), self.grids)
            g = g.reshape(*g.shape[:-1], K, -1)
            away[first : first + step] = np.abs(g - self.exact[..., None]).max(axis=tuple(range(g.ndim - 1)))
            on_grid += [g[..., i] for i in range(g.shape[-1])]
        best, place = math.inf, 0
        for i in np.argsort(np.where(good, away, math.inf), kind="stable"):
            if not (good[i] and away[i] < best):
                break
            total = self._with_rounding(values[..., i], slopes[..., i, :], on_grid[i], float(away[i]))
            if total < best:
                best, place = total, int(i)
        return best, place

    def _with_rounding(self, values: Array, slopes: Array | None, g: Array, away: float) -> float:
        """The error of a head whose values on the grid are g, `away` from the function there, rounding included."""
        loss, query = self._loss(values, slopes, g[tuple(self._some)]), query_rounding(self.dtype)
        if query and min(g.shape[:-1]) > 1:
            loss += query * sum(float(np.abs(np.gradient(g, -grid, axis=e)).max()) for e, grid in enumerate(self.grids))
        return max(away + loss, loss_share(self.dtype) * loss)

    def _loss(self, values: Array, slopes: Array | None, g: Array) -> float:
        """sqrt(sum v) sqrt(sum v (c + G z - g)^2) at the points, v = w eta on one axis and w on the others, added up."""
        if self.enough:
            lean = 0.0 if slopes is None else np.abs(slopes).sum(axis=-1)
            crude = sum(float(eta.max()) for eta in self._etas) * float((np.abs(values) + lean).max())
            if crude < self.enough:
                return crude
        total, z = np.zeros(g.shape), along_axes(self._few) if slopes is not None else []
        for e in range(len(self._lost)):
            lost = [w * self._etas[i] if i == e else w for i, w in enumerate(self._lost)]
            mass = spread(lost, np.ones((*values.shape[:-1], 1)))
            there = affine_on_grid(lost, values, slopes, self._few)
            square = spread(lost, values * values) - 2.0 * g * there + g * g * mass
            for i, at in enumerate(z):
                assert slopes is not None
                square = square + 2.0 * at * spread(lost, values * slopes[..., i])
                for j, other in enumerate(z[: i + 1]):
                    square = square + (2.0 if j < i else 1.0) * at * other * spread(lost, slopes[..., i] * slopes[..., j])
            total += np.sqrt(np.maximum(square, 0.0) * mass)
        return float(total.max())
