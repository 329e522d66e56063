"""Entries re-proved: the stored layer at every entry of the table, by this checker's own evaluation and account of rounding.

A file keeps no table, only its SHA-256 and its counts, so the table must be given again; its hash is computed again.  Weights
along every axis are formed in extended precision, sums from the last axis to the first; what a runtime may change is taken from
the triangle inequality, sum_j w_j eta_j |v_j - g| <= sum_j w_j eta_j (|v_j - m| + |m - g|), m in the middle of the values.
Listed keys and nearest sites: checker/entries_listed.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from maxaffine.checker.certificate import stated_scope
from maxaffine.checker.entries_listed import largest_at_listed_keys, largest_at_nearest_sites
from maxaffine.checker.entry_layer import ROUND, EntryLayer, fits
from maxaffine.checker.head import Head
from maxaffine.checker.literal_groups import Frame, literal_bound
from maxaffine.checker.lookup_rounding import WINDOW, literal_lookup
from maxaffine.checker.product_group import product_column
from maxaffine.checker.proved import DOUBLE, Form, NotProved, Proved
from maxaffine.checker.reader import ProductKeys
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import DTYPES, compute_format
from maxaffine.core.scope import Scope
from maxaffine.target.entries import Entries
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table
from maxaffine.target.target import Target

POLYNOMIALS = 2.0**-42  # of a head's size that a runtime's polynomials may be off by, besides what the record reserves
WORK = 1 << 20  # numbers of a block
EXTENDED = 5_000_000  # weights of an axis up to which they are formed in extended precision
FLOOR = 800.0  # exp(-800) is zero in every dtype
MARGIN = 1.0 + 1e-9


def check_entries(
    tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, table: Table | Samples | None, error: float
) -> Proved:
    """The checker's own bound of max |layer - value| over the entries, and how; NotProved with what stands in the way."""
    entries = target.entries
    assert entries is not None
    if table is None:
        raise NotProved(
            f"its target is {entries.words}, which a file does not keep; give the {entries.kind} again (--table FILE) and it is "
            "proved at every entry."
        )
    if not isinstance(table, (Table, Samples)) or table.entries != entries:
        raise NotProved(
            f"the {getattr(getattr(table, 'entries', None), 'kind', 'object')} given is not the one that the file was made from: "
            "its SHA-256, its counts or its kind differ."
        )
    _same_variables(table, target)
    layer = EntryLayer.read(tensors, record, target)
    _stated(record, entries, layer)
    if layer.hard:
        return Proved(largest_at_nearest_sites(layer, table), "the site of every entry, compared bit by bit")
    if layer.listed:
        bound, how = largest_at_listed_keys(layer, table), "the softmax over all keys at every entry"
    else:
        bound, how = _product(layer, table, error), "extended precision along the axes, every entry"
    return Proved(bound, how, lambda form, claimed: _literal(layer, table, bound, form))


def _literal(layer: EntryLayer, table: Table | Samples, bound: float, form: Form) -> float:
    """The literal form: one softmax over all keys, whose errors are added to the bound of the layer."""
    if layer.lookup is not None:
        nodes = list(table.axes) if isinstance(table, Table) else list(table.X.T)
        z = np.array([float(np.abs(layer.coordinates(x, i, False)).max()) for i, x in enumerate(nodes)]) * (1 + 1e-12)
        return literal_lookup(layer.lookup, bound, form, z)
    assert layer.grouped is not None
    frame, (keys,), D = Frame.of(layer.grouped, form), layer.grouped.groups, len(layer.scale)
    assert isinstance(keys, ProductKeys) and keys.values is not None
    heads = [
        Head(
            None, Interval.point(np.zeros(D)), np.ones(D), keys.axes, keys.values[..., k : k + 1],
            None if keys.slopes is None else keys.slopes[..., k, :],
        )
        for k in range(keys.values.shape[-1])
    ]  # fmt: skip
    return literal_bound(frame, bound, [product_column(frame, keys, heads, None, math.inf, lambda: (0.0, 0.0))])


def _same_variables(table: Table | Samples, target: Target) -> None:
    """A hash knows numbers alone: the box and the outputs are those of the table, and no name stands at another's place."""
    names = tuple(target.box.names)
    moved = any(name in names and names.index(name) != i for i, name in enumerate(table.names))
    same = np.array_equal(table.box.low, target.box.low) and np.array_equal(table.box.high, target.box.high)
    if moved or not same or tuple(target.output_shape) != table.output_shape:
        raise NotProved("its variables, its box or its outputs are not those of the table given.")


def _stated(record: Mapping[str, Any], entries: Entries, layer: EntryLayer) -> None:
    """The certificate speaks of the entries, the dtype and the runtimes that are proved here, and of nothing else."""
    certificate = record["certificate"]
    if certificate.get("norm") != "entries" or record["norm"] != "entries":
        raise NotProved("of a table the maximum over its entries is proved, and its certificate speaks of another norm.")
    if certificate.get("dtype") != layer.dtype:
        raise NotProved("its certificate speaks of another dtype than the one its numbers are stored in.")
    if certificate.get("runtime") != ("hard" if layer.hard else "arrays"):
        raise NotProved("its certificate speaks of other runtimes than those that run it.")
    proved = Scope("entries", count=entries.count, kind=entries.kind, sha256=entries.sha256[:16], missing=entries.missing)
    if stated_scope(certificate) != proved:
        raise NotProved("the entries it is proved for are not those its certificate speaks of.")


def _product(layer: EntryLayer, table: Table | Samples, error: float) -> float:
    D = len(layer.scale)
    nodes = list(table.axes) if isinstance(table, Table) else list(table.X.T)
    worst = 0.0
    for narrow in (True, False):
        if not narrow and layer.dtype == "float64":
            continue  # the same numbers
        z = [layer.coordinates(nodes[i], i, narrow) for i in range(D)]
        if layer.is_grouped and any(float(np.abs(one).max()) > 1.0 for one in z):
            raise NotProved("an entry lies outside the layer's coordinates.")
        worst = max(worst, _at(layer, table, z, error))
    return worst


def _at(layer: EntryLayer, table: Table | Samples, z: list[Array], error: float) -> float:
    """The largest bound over all entries, run at these coordinates."""
    D, K = len(z), layer.values.shape[-1]
    unit = compute_format(layer.dtype).unit
    middle = (layer.values.reshape(-1, K).max(axis=0) + layer.values.reshape(-1, K).min(axis=0)) / 2.0
    about, steep_middle = np.abs(layer.values - middle), np.zeros((K, D))
    reach = np.array([float(np.abs(one).max()) for one in z])
    if layer.value_slopes is not None:  # m is affine as well, about the middle of the slopes
        flat = layer.value_slopes.reshape(-1, K, D)
        steep_middle = (flat.max(axis=0) + flat.min(axis=0)) / 2.0
        about = about + np.abs(layer.value_slopes - steep_middle) @ reach
    far = float(about.max())
    top = far + float((np.abs(middle) + np.abs(steep_middle) @ reach).max())
    axes, alive, shaken, largest = [], 1.0, 0.0, 0.0
    for i in range(D):
        one, moved, count, most = _axis(layer, i, z[i], unit)
        axes.append((one, moved))
        alive *= count
        shaken += float(moved.sum(axis=1).max())
        largest += most
    tokens = float(np.prod([len(b) for b in layer.offsets]))
    fits(layer, top, min(alive, tokens) + 2.0 * sum(len(b) for b in layer.offsets))
    along = 2.0 * sum(len(b) for b in layer.offsets)
    if layer.is_grouped:  # a dot product and a normaliser per axis, or trees over all tokens; here a dot product per axis
        sums = max(along + 2.0 * D, 14.0 * (2.0 + math.log(max(tokens, 2.0), 8.0))) + 2.0 * D + 6.0
        sums += along / 2.0 + 4.0 * D
    else:  # lookups add up in their dtype, heads in float64
        sums = max(2.0 * min(alive, tokens), along) + 24.0 * (D + 2) + 6.0 * math.ceil(tokens / ROUND)
        sums = sums * unit / DOUBLE + along + 24.0 * D
    if not sums * DOUBLE < 0.01 or not largest < 0.09:
        raise NotProved(f"rounding in {layer.dtype} is not under control.")
    fixed = 0.0 if layer.is_grouped else 1.02 * sums * DOUBLE * top
    fixed += layer.reserve + (POLYNOMIALS * top if layer.reserve else 0.0) + (0.0 if layer.is_grouped else 2.0 * D * WINDOW * top)
    fixed += 200.0 * (D + 2) * tokens * (DTYPES[layer.dtype].tiny * top + 2.0**-1074)
    grown = math.exp(2.0 * largest) * (1 + 1e-9)  # own weights come from extended precision and are rounded once
    coarse = grown * (shaken + 8.0 * D * DOUBLE) * 2.0 * far
    fine = coarse > 0.002 * error
    worst = 0.0
    for weights, lost, part, values in _pieces(table, axes, z, K):
        g = _sum(weights, layer.values, part[1])
        if layer.value_slopes is not None:
            for e in range(D):
                g = g + _beside(part[0][e], e, D, part[1]) * _sum(weights, layer.value_slopes[..., e], part[1])
        away = np.abs(g - values) + 2.0 * unit * np.abs(g)
        if layer.is_grouped:
            held = _sum(weights, np.abs(layer.values), part[1])  # sum w |v|
            if layer.value_slopes is not None:
                for e in range(D):
                    steep = _sum(weights, np.abs(layer.value_slopes[..., e]), part[1])
                    held = held + np.abs(_beside(part[0][e], e, D, part[1])) * steep
            away = away + 1.02 * sums * DOUBLE * np.minimum(held * (1 + 1e-9), top)
        if fine:
            level = middle + sum(_beside(part[0][e], e, D, part[1]) * steep_middle[:, e] for e in range(D))
            for e in range(D):
                mixed = [lost[i] if i == e else weights[i] for i in range(D)]
                mass = _beside(lost[e].sum(axis=1), e, D, part[1])
                apart = _sum(mixed, about, part[1]) + mass * np.abs(g - level)
                lean = np.zeros((*layer.values.shape, D)) if layer.value_slopes is None else layer.value_slopes - steep_middle
                apart = np.fmin(apart, _apart(mixed, layer.values - middle, lean, g - level, mass, part))
                away = away + grown * (apart + 8.0 * DOUBLE * far)
        else:
            away = away + coarse
        known = np.isfinite(values)
        if not np.isfinite(away[known]).all():
            raise NotProved("the layer is not finite at an entry.")
        worst = max(worst, float(away[known].max(initial=0.0)))
    return (worst + fixed) * MARGIN


def _axis(layer: EntryLayer, i: int, z: Array, unit: float) -> tuple[Array, Array, float, float]:
    """Weights along one axis, the same times the errors of their logits, how many are not zero at once, and the largest error.

    Errors are those of a runtime and those of this evaluation, in as many digits as the platform's long double has; where there
    are very many weights, in float64.
    """
    D = len(layer.scale)
    kind = np.longdouble if len(z) * len(layer.offsets[i]) <= EXTENDED else np.float64
    a, b = layer.slopes[i].astype(kind), layer.offsets[i].astype(kind)
    scores = (np.multiply.outer(z.astype(kind), a) + b) * kind(layer.sharpness)
    behind = (scores.max(axis=1, keepdims=True) - scores).astype(np.float64)
    W = np.exp(-(scores.max(axis=1, keepdims=True) - scores))
    W = (W / W.sum(axis=1, keepdims=True)).astype(np.float64)
    size = layer.sharpness * (np.multiply.outer(np.abs(z), np.abs(layer.slopes[i])) + np.abs(layer.offsets[i]))
    # D products, their sum, the offset and its storage; the shift by the maximum; exp to 8 u and what follows it
    errors = (D + (2.02 if layer.is_grouped else 3.03)) * unit * size + unit * (behind + 12.0)
    if not layer.is_grouped:
        # runtimes form z in float64 or in the dtype, take the offsets of an ideal grid, work window by window or block by block
        rounds = math.ceil(float(np.prod([len(one) for one in layer.offsets])) / ROUND)
        moved = (4.0 * DOUBLE + (0.0 if layer.dtype == "float64" else 1.01 * unit)) * np.abs(z)[:, None]
        site = layer.slopes[i]
        drift = np.abs(layer.offsets[i] + site * site / 2.0)
        ideal = float(drift.max()) <= 8.0 * unit * max(1.0, float(np.abs(layer.offsets[i]).max()))
        nearby = np.abs(z[:, None] - site)
        errors = errors + layer.sharpness * (moved * nearby + (drift if ideal else 0.0)) + unit * (824.0 + 14.0 * rounds)
        errors = errors + 4.0 * unit * size  # the sharpness is multiplied in, before or after
        errors = errors + 64.0 * DOUBLE * (layer.sharpness + 1.0) * (nearby + 1.0) ** 2
    errors = errors * (1.0 + 2.0 * float(np.finfo(kind).eps) / unit)
    gone = behind > FLOOR + 2.0 * errors
    alive = float((~gone).sum(axis=1).max())
    return W, np.where(gone, 0.0, W * errors), alive, float(np.where(gone, 0.0, errors).max())


def _pieces(
    table: Table | Samples, axes: list[tuple[Array, Array]], z: list[Array], K: int
) -> Iterator[tuple[list[Array], list[Array], tuple[list[Array], bool], Array]]:
    """Blocks of entries: weights, weights times errors, (coordinates, whether they span a grid), values."""
    if isinstance(table, Table):
        rows = max(1, WORK // max(1, int(np.prod(table.shape[1:])) * K))
        for first in range(0, table.shape[0], rows):
            cut = slice(first, first + rows)
            W, lost = ([axis[k][cut] if i == 0 else axis[k] for i, axis in enumerate(axes)] for k in (0, 1))
            yield W, lost, ([one[cut] if i == 0 else one for i, one in enumerate(z)], True), table.values[cut]
        return
    width = max(1, int(np.prod([axis[0].shape[1] for axis in axes[:-1]])) * K)
    rows = max(1, WORK // width)
    for first in range(0, len(table.X), rows):
        cut = slice(first, first + rows)
        yield [a[0][cut] for a in axes], [a[1][cut] for a in axes], ([one[cut] for one in z], False), table.y[cut]


def _sum(W: list[Array], values: Array, on_grid: bool) -> Array:
    """sum_j prod_e W_e values_j, from the last axis to the first: entries on a grid (n_1, .., n_D, K), or row by row (m, K)."""
    D = len(W)
    if on_grid:
        for e in reversed(range(D)):
            values = np.moveaxis(np.tensordot(values, W[e], axes=(e, 1)), -1, e)
        return values
    found = np.einsum("...jk,mj->m...k", values, W[-1])
    for e in reversed(range(D - 1)):
        found = np.einsum("m...jk,mj->m...k", found, W[e])
    return np.asarray(found)


def _apart(W: list[Array], c: Array, G: Array, g: Array, mass: Array, part: tuple[list[Array], bool]) -> Array:
    """An upper bound of sum_j W_j |c_j + G_j z - g|: along one axis of few entries itself, else by Cauchy and Schwarz."""
    z, on_grid = part
    D = len(z)
    if D == 1 and W[0].size * c.shape[-1] <= 8 * WORK:
        v = c[None] + z[0][:, None, None] * G[None, ..., 0]
        return np.asarray(np.einsum("mj,mjk->mk", W[0], np.abs(v - g[:, None, :])) * (1 + 1e-9))
    first = _sum(W, c, on_grid)
    for e in range(D):
        first = first + _beside(z[e], e, D, on_grid) * _sum(W, G[..., e], on_grid)
    square = _square(W, c, G, part)
    about = square - 2.0 * g * first + g * g * mass
    return np.asarray(np.sqrt(np.maximum(about + 1e-11 * (square + g * g * mass), 0.0) * mass) * (1 + 1e-9))


def _square(W: list[Array], c: Array, G: Array, part: tuple[list[Array], bool]) -> Array:
    """An upper bound of sum_j W_j (c_j + G_j z)^2, term by term, with room for what cancels between the terms."""
    z, on_grid = part
    D = len(z)
    total = _sum(W, c * c, on_grid)
    size = total
    for i in range(D):
        here = _beside(z[i], i, D, on_grid)
        own = here * here * _sum(W, G[..., i] ** 2, on_grid)
        total, size = total + 2.0 * here * _sum(W, c * G[..., i], on_grid) + own, size + D * own
        for k in range(i):
            total = total + 2.0 * here * _beside(z[k], k, D, on_grid) * _sum(W, G[..., i] * G[..., k], on_grid)
    return total + 1e-11 * size


def _beside(row: Array, e: int, D: int, on_grid: bool) -> Array:
    return row.reshape([-1 if i == e else 1 for i in range(D)] + [1]) if on_grid else row[:, None]
