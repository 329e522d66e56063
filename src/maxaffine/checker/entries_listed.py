"""Listed keys and nearest sites at entries, re-proved: the softmax over all keys at every entry, or the site it stands on."""

import math

import numpy as np

from maxaffine.checker.entry_layer import ROUND, EntryLayer, fits
from maxaffine.checker.proved import DOUBLE, NotProved
from maxaffine.core.rounding import DTYPES, compute_format
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table

WORK = 1 << 20  # numbers of a block
LISTED = 4_000_000_000  # products of keys and entries that are looked at
FLOOR = 800.0  # exp(-800) is zero in every dtype
MARGIN = 1.0 + 1e-9


def largest_at_listed_keys(layer: EntryLayer, table: Table | Samples) -> float:
    """Scores added up variable by variable, blocks of entries against all keys."""
    a, b, c = layer.slopes[0], layer.offsets[0], layer.values
    N, D = a.shape
    unit, s = compute_format(layer.dtype).unit, layer.sharpness
    if N * table.entries.count > LISTED:
        raise NotProved(f"{N:,} keys at {table.entries.count:,} entries are more than this check looks at.")
    middle = (c.max(axis=0) + c.min(axis=0)) / 2.0
    about, top = np.abs(c - middle), float(np.abs(c).max())
    fits(layer, top, 2.0 * N)
    rounds = math.ceil(N / ROUND)
    sums = (2.0 * N + 6.0 * rounds + 32.0) * unit
    if not sums < 0.01:
        raise NotProved(f"sums over {N:,} keys are not under control in {layer.dtype}.")
    worst = 0.0
    for points, values in table.blocks():
        rows = max(1, 2 * WORK // N)
        for first in range(0, len(points), rows):
            x = points[first : first + rows]
            scores, size = np.tile(b, (len(x), 1)), np.tile(np.abs(b), (len(x), 1))
            for i in range(D):
                z = layer.coordinates(x[:, i], i, False)
                term = np.multiply.outer(z, a[:, i])
                scores += term
                size += np.abs(term)
            behind = s * (scores.max(axis=1, keepdims=True) - scores)
            narrow = 0.0 if layer.dtype == "float64" else 1.01 * unit
            errors = s * ((D + 9.0) * 1.01 * unit + narrow + 4.0 * DOUBLE) * size + unit * (behind + 824.0 + 14.0 * rounds)
            errors = np.where(behind > FLOOR + 2.0 * errors, 0.0, errors)
            W = np.exp(-behind)
            W /= W.sum(axis=1, keepdims=True)
            g = W @ c
            shaken = float(errors.max())
            if not shaken < 0.2:
                raise NotProved(f"rounding in {layer.dtype} is not under control.")
            moved = (W * errors) @ about + (W * errors).sum(axis=1, keepdims=True) * np.abs(g - middle)
            away = np.abs(g - values[first : first + rows]) + 2.0 * math.exp(2.0 * shaken) * moved + 2.0 * unit * np.abs(g)
            if not np.isfinite(away).all():
                raise NotProved("the layer is not finite at an entry.")
            worst = max(worst, float(away.max()))
    stray = 40.0 * N * (DTYPES[layer.dtype].tiny * top + 2.0**-1074)
    return float((worst + 2.1 * sums * top + stray) * MARGIN)


def largest_at_nearest_sites(layer: EntryLayer, table: Table | Samples) -> float:
    """Every entry stands exactly on a site, and no other site is as near: the site's value is the answer, whatever rounds."""
    if layer.listed:
        if not isinstance(table, Samples):
            raise NotProved("listed sites are compared with samples.")
        return _nearest_sample(layer, table)
    if not isinstance(table, Table):
        raise NotProved("sites along axes are compared with a table.")
    index = []
    for i, nodes in enumerate(table.axes):
        sites = layer.sites[i]
        if np.any(np.diff(sites) <= 0):
            raise NotProved("the sites of an axis do not increase.")
        place = np.clip(np.searchsorted(sites, nodes), 0, len(sites) - 1)
        if not np.array_equal(sites[place], nodes):
            raise NotProved(f"an entry of axis {i} stands on no site.")
        index.append(place)
    away = np.abs(layer.values[np.ix_(*index)] - table.values)
    return float(np.nanmax(away)) * (1.0 + 2.0**-50)


def _nearest_sample(layer: EntryLayer, samples: Samples) -> float:
    keys = layer.sites[0]
    for column in keys.T:
        steps = np.diff(np.unique(column))
        if steps.size and float(steps.min()) < 1e-140:
            raise NotProved("two sites are so close that the square of their distance is zero.")
    answer: dict[bytes, list[int]] = {}
    for j, key in enumerate(keys + 0.0):  # -0 is 0
        answer.setdefault(key.tobytes(), []).append(j)
    worst = 0.0
    for row, value in zip(samples.X + 0.0, samples.y, strict=True):
        found = answer.get(row.tobytes())
        if found is None:
            raise NotProved("a sample stands on no site.")
        worst = max(worst, float(np.abs(layer.values[found] - value).max()))
    return worst * (1.0 + 2.0**-50)
