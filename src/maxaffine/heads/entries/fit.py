"""Heads of few keys fitted to a table: the search of heads/spectral/affine_fit.py on entries instead of points of its own choice.

Search and fit look at a part of a large table, entries near Chebyshev points; what is found is then fitted to all entries and
verified at all of them.  Missing entries are filled with what the fit says there, and fitted again.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import compute_format
from maxaffine.heads.entries.plan import site_keys
from maxaffine.heads.fitting import MORE_LAMBDAS, Basis, affine_on_grid, affine_values, as_stored, spread, weights_at
from maxaffine.heads.spectral.affine_fit import DELTAS, AffineProducts, ProductFit
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.spectral_keys import SpectralAxis, bernstein, rounded, weights

JUDGED = {1: 4096, 2: 160, 3: 36, 4: 14}  # entries per axis that a search looks at
RHOS = (0.03, 0.05, 0.08, 0.125, 0.18, 0.25, 0.36, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0)  # as many as DELTAS
BEYOND = 2  # sites beyond each end of an axis, where there are fewer sites than entries
PATCH = {1: 24, 2: 12, 3: 5}  # keys per axis of the head that fills missing entries
PATCHED = 4000  # entries that it is fitted to
REFIT = {1: 8192, 2: 500, 3: 80, 4: 24}  # entries per axis that a fit is made to again
LOOKED = 64  # entries of the other axes at which a head is looked at between entries
FILLINGS = 12  # rounds of filling missing entries


def filled(values: Array) -> Array:
    """The values with every missing entry replaced by a near one along the axes, or by the mean."""
    holes = ~np.isfinite(values).all(axis=-1)
    if not holes.any():
        return values
    found = values.copy()
    for axis in range(values.ndim - 1):
        for flip in (False, True):
            there = np.asarray(np.isfinite(found).all(axis=-1))
            if there.all():
                return found
            line = np.flip(there, axis) if flip else there
            shape = [-1 if i == axis else 1 for i in range(line.ndim)]
            index = np.where(line, np.arange(line.shape[axis]).reshape(shape), 0)
            index = np.maximum.accumulate(index, axis=axis)[..., None]
            moved = np.take_along_axis(np.flip(found, axis) if flip else found, index, axis=axis)
            found = np.where(there[..., None], found, np.flip(moved, axis) if flip else moved)
    mean = np.nanmean(values.reshape(-1, values.shape[-1]), axis=0)
    return np.where(np.isfinite(found), found, mean)


def complete_part(mask: NDArray[np.bool_]) -> list[NDArray[np.intp]] | None:
    """Indices per axis whose product has no missing entry, those with most of them left out first; None where too few remain."""
    kept = [np.arange(n) for n in mask.shape]
    while True:
        holes = ~mask[np.ix_(*kept)]
        if not holes.any():
            return kept
        others = [tuple(i for i in range(holes.ndim) if i != e) for e in range(holes.ndim)]
        counts = [holes.mean(axis=rest) for rest in others]
        e = max(range(holes.ndim), key=lambda i: float(counts[i].max()))
        kept[e] = kept[e][counts[e] < 0.5 * float(counts[e].max())]
        if len(kept[e]) < max(2, 0.6 * mask.shape[e]):
            return None


def smoothly_filled(z: list[Array], values: Array) -> Array:
    """The values with missing entries filled by a head of few keys that is fitted to those that are there; up to three axes."""
    mask = np.isfinite(values).all(axis=-1)
    rough, D = filled(values), len(z)
    if mask.all() or D > 3:
        return rough
    there, holes = np.argwhere(mask), np.argwhere(~mask)
    part = there[:: max(1, len(there) // PATCHED)]
    counts = [min(PATCH[D], max(2, len(one) // 3)) for one in z]
    some = [one[np.linspace(0, len(one) - 1, count).round().astype(int)] for one, count in zip(z, counts, strict=True)]
    families = [[bernstein(count, 1.0, "float64").keys for count in counts], [site_keys(sites, 0.36) for sites in some]]

    def design(keys: list[AxisKeys], index: NDArray[np.intp]) -> Array:
        return weights_at(keys, np.stack([one[index[:, e]] for e, one in enumerate(z)], axis=1))

    wanted, tried = values[tuple(part.T)], []
    for keys in families:
        A = design(keys, part)
        U, S, Vt = np.linalg.svd(A, full_matrices=False)
        fitted = Vt.T @ ((S / (S * S + 1e-18 * S[0] ** 2))[:, None] * (U.T @ wanted))
        tried.append((float(np.abs(A @ fitted - wanted).max()), keys, fitted))
    _, keys, fitted = min(tried, key=lambda one: one[0])
    level = float(np.abs(values[tuple(there.T)]).max())
    found = rough.copy()
    for start in range(0, len(holes), PATCHED):
        piece = holes[start : start + PATCHED]
        guess = design(keys, piece) @ fitted
        near = rough[tuple(piece.T)]
        found[tuple(piece.T)] = np.where(np.abs(guess) <= 4.0 * level, guess, near)  # far from all others it may run away
    return found


def chebyshev_part(z: Array, count: int) -> NDArray[np.intp]:
    """Indices of about `count` nodes near Chebyshev points, both ends among them; all of them where they are no more."""
    if count >= len(z):
        return np.arange(len(z))
    wanted = -np.cos(np.linspace(0.0, np.pi, count))
    right = np.clip(np.searchsorted(z, wanted), 1, len(z) - 1)
    near = np.where(wanted - z[right - 1] < z[right] - wanted, right - 1, right)
    return np.unique(np.concatenate([[0], near, [len(z) - 1]]))


class TableProducts(AffineProducts):
    """Heads with affine values for a table (n_1, .., n_D, K), missing entries filled.

    Keys of family "bernstein", or on "sites" as dense as the nodes: what changes fast where an axis is fine is followed there.
    """

    def __init__(self, z: list[Array], values: Array, error: float, scale: float, dtype: str, family: str = "bernstein") -> None:
        super().__init__(lambda points: points, len(z), error, scale, dtype)
        self.z, self.table, self.family = z, values, family
        if family == "sites":
            self._start = [RHOS.index(1.0)] * len(z)
        most = JUDGED.get(len(z), 8)
        self.judged = [chebyshev_part(one, most) for one in z]

    def axis(self, e: int, count: int, place: int) -> SpectralAxis:
        """Keys of one axis; `shift` tells the axes apart, whose nodes are their own."""
        if self.family == "bernstein" or count == 1:
            return replace(bernstein(count, DELTAS[place], self.dtype), shift=float(e))
        index = np.linspace(0.0, len(self.z[e]) - 1.0, count)
        made = site_keys(np.interp(index, np.arange(len(self.z[e])), self.z[e]), RHOS[place])
        return SpectralAxis(rounded(made.slopes, made.offsets, self.dtype), "sites", DELTAS[place], float(e))

    def _points(self, counts: tuple[int, ...]) -> tuple[list[Array], Array, list[Array], Array]:
        if counts not in self._samples:
            more = 4 if self.E < 3 else 3
            fit = [chebyshev_part(one, more * n + 10) for one, n in zip(self.z, counts, strict=True)]
            fit = [part if len(part) < len(all_) else all_ for part, all_ in zip(fit, self.judged, strict=True)]
            parts = []
            for index in (fit, self.judged):
                parts += [[one[i] for one, i in zip(self.z, index, strict=True)], self.table[np.ix_(*index)]]
            self._samples[counts] = tuple(parts)  # type: ignore[assignment]
        return self._samples[counts]


@dataclass(frozen=True)
class TableFit:
    """Keys per axis with values and slopes fitted to all entries, and the largest error at them."""

    error: float
    axes: tuple[AxisKeys, ...]
    values: Array
    slopes: Array | None


def swings(axes: tuple[AxisKeys, ...], values: Array, slopes: Array | None, z: list[Array], table: Array, error: float) -> bool:
    """Whether a head leaves the values about it half-way between entries: it follows them by chance and is no interpolant.

    Along every axis, half-way between neighbours, it must stay between the least and the largest of the four entries about it,
    half as much again beyond both, three times the error, and a fiftieth of the range of all values.
    """
    for e, nodes in enumerate(z):
        index = [np.arange(len(one)) if i == e else chebyshev_part(one, LOOKED) for i, one in enumerate(z)]
        grids = [(nodes[1:] + nodes[:-1]) / 2.0 if i == e else one[index[i]] for i, one in enumerate(z)]
        got = affine_on_grid([weights(axis, grid) for axis, grid in zip(axes, grids, strict=True)], values, slopes, grids)
        rows = np.moveaxis(table[np.ix_(*index)], e, 0)
        edge = np.concatenate([rows[:1], rows, rows[-1:]])
        stack = np.stack([edge[i : len(edge) - 3 + i] for i in range(4)])
        low, high = stack.min(axis=0), stack.max(axis=0)
        room = 0.5 * (high - low) + 3.0 * error + 0.02 * np.ptp(table.reshape(-1, table.shape[-1]), axis=0)
        here = np.moveaxis(got, e, 0)
        if np.any(here < low - room) or np.any(here > high + room):
            return True
    return False


def refitted(
    fit: ProductFit, z: list[Array], table: Array, holes: NDArray[np.bool_], error: float, scale: float, dtype: str
) -> TableFit:
    """The keys of a fit with the best values for all entries: its own, or fitted to more entries, or to all of them.

    Entries near Chebyshev points come first: with equal weights on all entries of a fine axis its ends have little say, and it is
    there that the error is largest.  With all entries holes are filled as one goes.
    """
    W = [weights(axis.keys, one) for axis, one in zip(fit.axes, z, strict=True)]
    keys = tuple(axis.keys for axis in fit.axes)
    unit = compute_format(dtype).unit

    def judged(values: Array, slopes: Array) -> TableFit:
        c, G = (as_stored(part, dtype) for part in (values, slopes))
        if not (np.isfinite(c).all() and np.isfinite(G).all()):
            return TableFit(math.inf, keys, c, G)
        away = np.abs(affine_on_grid(W, c, G, z) - table)
        if holes.any():
            away[holes] = 0.0
        # large values are rounded more; among fits that are nearly as good the tame one is taken
        return TableFit(float(away.max()) + 64.0 * unit * float(np.abs(c).max() + np.abs(G).max()), keys, c, G)

    best = judged(fit.values, fit.slopes)
    for count in (REFIT.get(len(z), 16), max(table.shape)):
        if best.error <= 0.9 * error:
            break
        index = [chebyshev_part(one, count) for one in z]
        nodes = [one[part] for one, part in zip(z, index, strict=True)]
        part, gaps = table[np.ix_(*index)], holes[np.ix_(*index)]
        bases = [Basis.of(axis, one) for axis, one in zip(fit.axes, nodes, strict=True)]
        own = [weights(axis.keys, one) for axis, one in zip(fit.axes, nodes, strict=True)]
        for lam in MORE_LAMBDAS:
            samples = part
            for _ in range(FILLINGS if gaps.any() else 1):
                c, G = affine_values(bases, samples, (max(lam * error / scale, 4.0 * unit),))
                values, slopes = c[..., 0], G[..., 0, :]
                if gaps.any():
                    samples = np.where(gaps[..., None], affine_on_grid(own, values, slopes, nodes), part)
            best = min(best, judged(values, slopes), key=lambda one: one.error)
            if best.error <= 0.9 * error:
                break
    return best


def on_sites(z: list[Array], table: Array, counts: tuple[int, ...], rho: float, dtype: str) -> TableFit:
    """Constant values on keys that stand on so many of the nodes per axis, by least squares; all of them interpolate."""
    keys, W = [], []
    for one, count in zip(z, counts, strict=True):
        sites = one
        if count < len(one):  # two more beyond each end: without them a smooth function is followed badly there
            sites = one[np.unique(np.linspace(0, len(one) - 1, count - 2 * BEYOND).round().astype(int))]
            steps = np.arange(1, BEYOND + 1)
            before, after = sites[0] - (sites[1] - sites[0]) * steps[::-1], sites[-1] + (sites[-1] - sites[-2]) * steps
            sites = np.concatenate([before, sites, after])
        made = site_keys(sites, rho)
        keys.append(rounded(made.slopes, made.offsets, dtype))
        W.append(weights(keys[-1], one))
    values: NDArray[Any] = table
    for e, w in enumerate(W):
        moved = np.moveaxis(values, e, 0)
        flat = moved.reshape(len(moved), -1)
        try:
            solved = np.linalg.solve(w, flat) if w.shape[0] == w.shape[1] else np.linalg.lstsq(w, flat, rcond=None)[0]
        except np.linalg.LinAlgError:
            solved = np.full(1, np.nan)
        if not (np.isfinite(solved).all() and np.isfinite(keys[e].slopes).all() and np.isfinite(keys[e].offsets).all()):
            raise Refused(f'nodes of variable {e} are too close to tell their keys apart in {dtype}; try method="nearest".')
        values = np.moveaxis(solved.reshape(-1, *moved.shape[1:]), 0, e)
    values = as_stored(values, dtype)
    away = float(np.abs(spread(W, values) - table).max())
    return TableFit(away, tuple(keys), values, None)
