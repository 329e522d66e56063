"""Entries re-proved: the stored layer at every entry of the table, by this checker's own evaluation and account of rounding.

A file keeps no table, only its SHA-256 and its counts, so the table must be given again; its hash is computed again.  Weights
along every axis are formed in extended precision; wrong logits move a head by sum_j w_j eta_j |v_j - g|, bounded as everywhere
(checker/head_rounding.py), or at once by the largest distance of a value where that is little.
Listed keys and nearest sites: checker/entries_listed.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.checker.certificate import stated_scope
from maxaffine.checker.entries_listed import largest_at_listed_keys, largest_at_nearest_sites
from maxaffine.checker.entry_layer import ROUND, EntryLayer, fits
from maxaffine.checker.head_rounding import Moments
from maxaffine.checker.literal_groups import Frame, literal_bound
from maxaffine.checker.lookup_rounding import WINDOW, literal_lookup
from maxaffine.checker.product_group import product_column
from maxaffine.checker.proved import DOUBLE, Form, NotProved, Proved
from maxaffine.checker.reader import ProductKeys
from maxaffine.core.arrays import Array
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
        z = np.array([float(np.abs(layer.coordinates(x, i, False)).max()) for i, x in enumerate(_nodes(table))]) * (1 + 1e-12)
        return literal_lookup(layer.lookup, bound, form, z)
    assert layer.grouped is not None
    frame, (keys,) = Frame(layer.grouped, form), layer.grouped.groups
    assert isinstance(keys, ProductKeys)
    return literal_bound(frame, bound, [product_column(frame, keys, math.inf, lambda: (0.0, 0.0))])


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
    worst = 0.0
    for narrow in (True, False) if layer.dtype != "float64" else (True,):  # in float64 the same numbers
        z = [layer.coordinates(x, i, narrow) for i, x in enumerate(_nodes(table))]
        if layer.is_grouped and any(float(np.abs(one).max()) > 1.0 for one in z):
            raise NotProved("an entry lies outside the layer's coordinates.")
        worst = max(worst, _at(layer, table, z, error))
    return worst


def _nodes(table: Table | Samples) -> list[Array]:
    """Per variable the nodes of its axis, or the coordinates of all samples."""
    return list(table.axes) if isinstance(table, Table) else list(table.X.T)


def _at(layer: EntryLayer, table: Table | Samples, z: list[Array], error: float) -> float:
    """The largest bound over all entries, run at these coordinates."""
    D, (*_, K, n) = len(z), layer.columns.shape
    flat, reach = layer.columns.reshape(-1, K, n), np.array([1.0, *(np.abs(one).max() for one in z)])[:n]
    shared = (flat.max(axis=0) + flat.min(axis=0)) / 2.0  # an affine function of z, about which values are taken
    far = float((np.abs(flat - shared) @ reach).max())
    top = far + float((np.abs(shared) @ reach).max())
    axes = [axis_weights(layer, i, one) for i, one in enumerate(z)]
    shaken, largest = sum(float(axis.shaken.sum(axis=1).max()) for axis in axes), sum(axis.largest for axis in axes)
    keys, unit = [len(b) for b in layer.offsets], compute_format(layer.dtype).unit
    tokens, along = float(np.prod(keys)), 2.0 * sum(keys)
    alive = min(math.prod(axis.alive for axis in axes), tokens)
    fits(layer, top, alive + along)
    if layer.is_grouped:  # a dot product and a normaliser per axis, or trees over all tokens; here a dot product per axis
        sums = max(along + 2.0 * D, 14.0 * (2.0 + math.log(max(tokens, 2.0), 8.0))) + 2.0 * D + 6.0
        sums += along / 2.0 + 4.0 * D
    else:  # lookups add up in their dtype, heads in float64
        sums = max(2.0 * alive, along) + 24.0 * (D + 2) + 6.0 * math.ceil(tokens / ROUND)
        sums = sums * unit / DOUBLE + along + 24.0 * D
    if not sums * DOUBLE < 0.01 or not largest < 0.09:
        raise NotProved(f"rounding in {layer.dtype} is not under control.")
    fixed = 0.0 if layer.is_grouped else (1.02 * sums * DOUBLE + 2.0 * D * WINDOW) * top
    fixed += layer.reserve + (POLYNOMIALS * top if layer.reserve else 0.0)
    fixed += 200.0 * (D + 2) * tokens * (DTYPES[layer.dtype].tiny * top + 2.0**-1074)
    grown = math.exp(2.0 * largest) * (1 + 1e-9)  # own weights come from extended precision and are rounded once
    coarse = grown * (shaken + 8.0 * D * DOUBLE) * 2.0 * far
    worst = 0.0
    for on, shakes, entries in _blocks(table, axes, z, n):
        for k in range(K):
            columns = layer.columns[..., k, :]
            g = on.mean(on.W, columns)
            away = np.abs(g - entries[..., k]) + 2.0 * unit * np.abs(g)
            if layer.is_grouped:
                away = away + 1.02 * sums * DOUBLE * np.minimum(on.size(on.W, columns) * (1 + 1e-9), top)
            if coarse > 0.002 * error:
                for e in range(D):
                    mixed = [shakes[i] if i == e else w for i, w in enumerate(on.W)]
                    apart = on.apart(mixed, columns - shared[k], g - on.at(shared[k]))
                    away = away + grown * (apart + 8.0 * DOUBLE * far)
            else:
                away = away + coarse
            known = np.isfinite(entries[..., k])
            if not np.isfinite(away[known]).all():
                raise NotProved("the layer is not finite at an entry.")
            worst = max(worst, float(away[known].max(initial=0.0)))
    return (worst + fixed) * MARGIN


@dataclass(frozen=True)
class AxisWeights:
    """Weights (M, N) along one axis, those times the errors of their logits, how many are not zero at once, the largest error."""

    weights: Array
    shaken: Array
    alive: float
    largest: float


def axis_weights(layer: EntryLayer, i: int, z: Array) -> AxisWeights:
    """The weights of one axis at coordinates z.

    Errors are those of a runtime and those of this evaluation, in as many digits as the platform's long double has; where there
    are very many weights, in float64.
    """
    D, unit = len(layer.scale), compute_format(layer.dtype).unit
    kind = np.longdouble if len(z) * len(layer.offsets[i]) <= EXTENDED else np.float64
    a, b = layer.slopes[i].astype(kind), layer.offsets[i].astype(kind)
    scores = (np.multiply.outer(z.astype(kind), a) + b) * kind(layer.sharpness)
    trail = scores.max(axis=1, keepdims=True) - scores
    W = np.exp(-trail)
    W, behind = (W / W.sum(axis=1, keepdims=True)).astype(np.float64), trail.astype(np.float64)
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
    errors = np.where(gone, 0.0, errors)
    return AxisWeights(W, W * errors, float((~gone).sum(axis=1).max()), float(errors.max()))


def _blocks(
    table: Table | Samples, axes: list[AxisWeights], z: list[Array], columns: int
) -> Iterator[tuple[Moments, list[Array], Array]]:
    """Blocks of entries: what sums over tokens there, weights times errors, and the values (.., K)."""
    on_grid, values = isinstance(table, Table), table.values if isinstance(table, Table) else table.y
    others = values.shape[1:-1] if on_grid else [axis.weights.shape[1] for axis in axes[1:]]
    rows = max(1, WORK // (math.prod(others) * columns))
    for first in range(0, len(values), rows):

        def part(arrays: list[Array], cut: slice = slice(first, first + rows)) -> list[Array]:
            return [one[cut] if e == 0 or not on_grid else one for e, one in enumerate(arrays)]

        on = Moments(part([axis.weights for axis in axes]), part(z), columns, on_grid)
        yield on, part([axis.shaken for axis in axes]), values[first : first + rows]
