"""Entries re-proved: the stored layer at every entry of the table, by this checker's own evaluation and account of rounding.

A file keeps no table, only its SHA-256 and its counts, so the table must be given again; its hash is computed again.  Weights
along every axis are formed in extended precision, sums from the last axis to the first; what a runtime may change is taken from
the triangle inequality, sum_j w_j eta_j |v_j - g| <= sum_j w_j eta_j (|v_j - m| + |m - g|), m in the middle of the values.
Nothing is shared with the certificate that is doubted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.proved import Form, Proved, rounded
from maxaffine.checker.spectral import Axis, Counted, _Head
from maxaffine.checker.stored import NotProved, stated_scope
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import DTYPES, compute_format, numpy_dtype
from maxaffine.core.scope import Scope
from maxaffine.target.entries import Entries
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table
from maxaffine.target.target import Target

Array = NDArray[np.float64]

DOUBLE = 2.0**-53
TAIL = 2.0**-56  # weight per coordinate, relative to the nearest site, that a runtime may leave out on a grid
POLYNOMIALS = 2.0**-42  # of a head's size that a runtime's polynomials may be off by, besides what the record reserves
ROUND = 4096  # keys per round of the streaming runtime
WORK = 1 << 20  # numbers of a block
LISTED = 4_000_000_000  # products of keys and entries that are looked at
EXTENDED = 5_000_000  # weights of an axis up to which they are formed in extended precision
FLOOR = 800.0  # exp(-800) is zero in every dtype
ROOM = 1.0 + 1e-9
LITERAL = 1 << 16  # tokens that a literal form is listed with


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
    layer = Numbers.read(tensors, record, target)
    _spoken(record, entries, layer)
    if layer.hard:
        return Proved(_nearest(layer, table), "the site of every entry, compared bit by bit")
    if layer.listed:
        bound, how = _listed(layer, table), "the softmax over all keys at every entry"
    else:
        bound, how = _product(layer, table, error), "extended precision along the axes, every entry"
    return Proved(bound, how, lambda form, claimed: _literally(layer, table, bound, form))


def _literally(layer: Numbers, table: Table | Samples, bound: float, form: Form) -> float:
    """The literal form: one softmax over all keys, whose errors are added to the bound of the layer.

    Heads of product keys by their own moments (checker/spectral.py), others by half the range of their values.
    """
    D, K = len(layer.scale), layer.values.shape[-1]
    tokens = math.prod(len(b) for b in layer.offsets)
    if tokens > LITERAL:
        raise NotProved(f"it has {tokens:,} tokens, and literal forms of more than {LITERAL:,} are not looked at.")
    nodes = list(table.axes) if isinstance(table, Table) else list(table.X.T)
    z = np.array([float(np.abs(layer.coordinates(x, i, False)).max()) for i, x in enumerate(nodes)]) * (1 + 1e-12)
    error = (rounded(D + 4, DOUBLE) + form.gamma(D + 9)) * z
    if layer.listed:
        tops = layer.sharpness * (np.abs(layer.slopes[0]) @ (z + error) + np.abs(layer.offsets[0]))
        steep = layer.sharpness * np.abs(layer.slopes[0]) @ error
    else:
        steepest = np.array([float(np.abs(a).max()) for a in layer.slopes])
        offset = sum(float(np.abs(b).max()) for b in layer.offsets)
        tops, steep = layer.sharpness * (steepest @ (z + error) + offset), layer.sharpness * steepest @ error
    top = float(np.max(tops))
    eta = float(np.max(steep)) + (form.gamma(D + 13) + rounded(2 * D + 9, DOUBLE)) * top
    eta += form.unit * (min(2.0 * top, 50.0) + 72.0)
    if not (top < form.largest and eta < 1.5):
        raise NotProved(f"its logits are not resolved in {form.name}.")
    values, lean = layer.values.reshape(-1, K), np.zeros((tokens, K, D))
    if layer.value_slopes is not None:
        lean = layer.value_slopes.reshape(-1, K, D)
    largest = float((np.abs(values) + np.abs(lean) @ (z + error)).max())
    middle, tilt = (values.max(axis=0) + values.min(axis=0)) / 2.0, (lean.max(axis=0) + lean.min(axis=0)) / 2.0
    moved = math.expm1(2.0 * eta) * float((np.abs(values - middle) + np.abs(lean - tilt) @ (z + error)).max())
    if layer.grouped and np.all(z <= 1.0):
        counted = Counted(form.unit, D + 8.5 + (D + 2.0) * DOUBLE / form.unit, 72.0, 0.0)
        axes = tuple(Axis(a, b) for a, b in zip(layer.slopes, layer.offsets, strict=True))
        fine = 0.0
        for k in range(K):
            own = None if layer.value_slopes is None else layer.value_slopes[..., k, :]
            head = _Head(None, Interval.point(np.zeros(D)), np.ones(D), axes, layer.values[..., k : k + 1], own)
            account = (head.accounted if own is None else head.affinely_accounted)(error, counted)
            fine = max(fine, account.ends + account.moved)
        moved = min(moved, fine)
    away = np.array([float(np.abs(x).max()) for x in nodes]) + np.abs(layer.centre)
    lost = float((np.abs(lean) @ error).max()) + rounded(D + 9, DOUBLE) * float((np.abs(lean) @ (layer.scale * away)).max())
    lost += (form.gamma(2 * D + 14) + rounded(2 * D + 11, DOUBLE) + form.gamma(2 * tokens + 20)) * largest
    lost += (6.0 * form.unit + tokens * (4.0 * form.normal + 2.0 * math.exp(-50.0) * 1000.0 * form.unit)) * largest
    return (bound + moved + lost * math.exp(2.0 * eta)) * (1 + 1e-11)


def _same_variables(table: Table | Samples, target: Target) -> None:
    """A hash knows numbers alone: the box and the outputs are those of the table, and no name stands at another's place."""
    names = tuple(target.box.names)
    moved = any(name in names and names.index(name) != i for i, name in enumerate(table.names))
    same = np.array_equal(table.box.low, target.box.low) and np.array_equal(table.box.high, target.box.high)
    if moved or not same or tuple(target.output_shape) != table.output_shape:
        raise NotProved("its variables, its box or its outputs are not those of the table given.")


def _spoken(record: Mapping[str, Any], entries: Entries, layer: Numbers) -> None:
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


@dataclass(frozen=True)
class Numbers:
    """The stored numbers: keys per axis or listed, values (keys.., K), slopes (keys.., K, D), one scale per variable."""

    centre: Array
    scale: Array
    slopes: list[Array]
    offsets: list[Array]
    values: Array
    value_slopes: Array | None
    sharpness: float
    dtype: str
    listed: bool
    grouped: bool
    sites: list[Array]
    reserve: float

    @classmethod
    def read(cls, tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target) -> Numbers:
        """Validated tensors of the kinds of layers that entries are compiled to."""
        told, D, K = record["layer"], target.box.dimension, target.d_out
        dtype, kind = told["dtype"], told["keys"]
        if dtype not in DTYPES or kind not in ("grouped", "product", "listed"):
            raise NotProved("its layer is of a kind that is not compiled from entries.")
        grouped, product = kind == "grouped", kind != "listed"
        matrix_name, prefix = ("group.0.matrix", "group.0.") if grouped else ("coordinates.matrix", "keys.")
        if grouped and (told["directions"] != [D] or any(told.get("clusters", ()))):
            raise NotProved("its layer is not one group with a coordinate per variable.")
        names = [f"{prefix}{i}" for i in range(D)] if product else ["keys"]
        values_name = "group.0.values" if grouped else "values"
        lean_name = "group.0.value_slopes"
        expected = {"box.low", "box.high", "coordinates.centre", matrix_name, values_name}
        expected |= {f"{name}.{part}" for name in names for part in ("slopes", "offsets")}
        hard = told.get("hard", False)
        if hard not in (True, False) or (hard and grouped):
            raise NotProved("`hard` is true of lookups or absent.")
        places = [f"sites.{i}" for i in range(D if product else 1)] if hard else []
        if set(tensors) - ({lean_name} if grouped else set()) != expected | set(places):
            raise NotProved("its tensors are not those of one layer for entries.")
        exact = {"box.low", "box.high", "coordinates.centre", matrix_name, *places}
        if any(tensors[name].dtype != (np.float64 if name in exact else numpy_dtype(dtype)) for name in tensors):
            raise NotProved("a tensor is not in the dtype that the record states.")
        wide = {name: np.asarray(tensor, dtype=np.float64) for name, tensor in tensors.items()}
        if not all(np.isfinite(tensor).all() for tensor in wide.values()):
            raise NotProved("a stored number is not finite.")
        low, high, centre, matrix = wide["box.low"], wide["box.high"], wide["coordinates.centre"], wide[matrix_name]
        if not (np.array_equal(low, target.box.low) and np.array_equal(high, target.box.high)) or centre.shape != (D,):
            raise NotProved("the layer and the target speak about different boxes.")
        if matrix.shape != (D, D) or np.any(matrix != np.diag(np.diag(matrix))) or np.any(np.diag(matrix) <= 0):
            raise NotProved("its coordinates are not scaled variables.")
        slopes, offsets = ([wide[f"{name}.{part}"] for name in names] for part in ("slopes", "offsets"))
        rank = 1 if product else 2
        good = all(a.ndim == rank and len(a) == len(b) and b.ndim == 1 for a, b in zip(slopes, offsets, strict=True))
        shape = tuple(len(b) for b in offsets)
        values = wide[values_name]
        if not good or values.shape != ((*shape, K) if grouped else (*shape, K, 1)) or (not product and slopes[0].shape[1] != D):
            raise NotProved("its keys and values do not belong together.")
        lean = wide.get(lean_name)
        if lean is not None and lean.shape != (*shape, K, D):
            raise NotProved("the slopes of its values do not belong to its keys.")
        sharpness = 1.0 if grouped else float(told["sharpness"])
        if not 0.0 < sharpness < math.inf or (not grouped and float(numpy_dtype(dtype).type(sharpness)) != sharpness):
            raise NotProved(f"its sharpness (={sharpness!r}) is not a positive number of its dtype.")
        reserve = float(record["certificate"].get("details", {}).get("collapse", 0.0)) if grouped else 0.0
        if not 0.0 <= reserve < math.inf:
            raise NotProved("what it reserves for a collapse is not a number of at least 0.")
        sites = [wide[name] for name in places]
        if hard and [one.shape for one in sites] != ([(n,) for n in shape] if product else [(*shape, D)]):
            raise NotProved("its sites do not belong to its keys.")
        return cls(
            centre, np.diag(matrix).copy(), slopes, offsets, values.reshape(*shape, K), lean, sharpness, dtype, not product,
            grouped, sites, reserve,
        )  # fmt: skip

    @property
    def hard(self) -> bool:
        """Whether the nearest site answers alone."""
        return bool(self.sites)

    def coordinates(self, x: Array, variable: int, narrow: bool) -> Array:
        """z of one variable as the layer forms it: a difference and a product in float64, then its dtype."""
        z = (x - self.centre[variable]) * self.scale[variable]
        return np.asarray(z.astype(numpy_dtype(self.dtype)).astype(np.float64) if narrow else z)


# -- product keys


def _product(layer: Numbers, table: Table | Samples, error: float) -> float:
    D = len(layer.scale)
    nodes = list(table.axes) if isinstance(table, Table) else list(table.X.T)
    worst = 0.0
    for narrow in (True, False):
        if not narrow and layer.dtype == "float64":
            continue  # the same numbers
        z = [layer.coordinates(nodes[i], i, narrow) for i in range(D)]
        if layer.grouped and any(float(np.abs(one).max()) > 1.0 for one in z):
            raise NotProved("an entry lies outside the layer's coordinates.")
        worst = max(worst, _at(layer, table, z, error))
    return worst


def _at(layer: Numbers, table: Table | Samples, z: list[Array], error: float) -> float:
    """The largest bound over all entries, run at these coordinates."""
    D, K = len(z), layer.values.shape[-1]
    unit = compute_format(layer.dtype).unit
    middle = (layer.values.reshape(-1, K).max(axis=0) + layer.values.reshape(-1, K).min(axis=0)) / 2.0
    about, tilt = np.abs(layer.values - middle), np.zeros((K, D))
    reach = np.array([float(np.abs(one).max()) for one in z])
    if layer.value_slopes is not None:  # m is affine as well, about the middle of the slopes
        flat = layer.value_slopes.reshape(-1, K, D)
        tilt = (flat.max(axis=0) + flat.min(axis=0)) / 2.0
        about = about + np.abs(layer.value_slopes - tilt) @ reach
    far = float(about.max())
    top = far + float((np.abs(middle) + np.abs(tilt) @ reach).max())
    axes, alive, shaken, largest = [], 1.0, 0.0, 0.0
    for i in range(D):
        one, moved, count, most = _axis(layer, i, z[i], unit)
        axes.append((one, moved))
        alive *= count
        shaken += float(moved.sum(axis=1).max())
        largest += most
    tokens = float(np.prod([len(b) for b in layer.offsets]))
    _held(layer, top, min(alive, tokens) + 2.0 * sum(len(b) for b in layer.offsets))
    along = 2.0 * sum(len(b) for b in layer.offsets)
    if layer.grouped:  # a dot product and a normaliser per axis, or trees over all tokens; here a dot product per axis
        sums = max(along + 2.0 * D, 14.0 * (2.0 + math.log(max(tokens, 2.0), 8.0))) + 2.0 * D + 6.0
        sums += along / 2.0 + 4.0 * D
    else:  # lookups add up in their dtype, heads in float64
        sums = max(2.0 * min(alive, tokens), along) + 24.0 * (D + 2) + 6.0 * math.ceil(tokens / ROUND)
        sums = sums * unit / DOUBLE + along + 24.0 * D
    if not sums * DOUBLE < 0.01 or not largest < 0.09:
        raise NotProved(f"rounding in {layer.dtype} is not under control.")
    fixed = 0.0 if layer.grouped else 1.02 * sums * DOUBLE * top
    fixed += layer.reserve + (POLYNOMIALS * top if layer.reserve else 0.0) + (0.0 if layer.grouped else 2.0 * D * TAIL * top)
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
        if layer.grouped:
            held = _sum(weights, np.abs(layer.values), part[1])  # sum w |v|
            if layer.value_slopes is not None:
                for e in range(D):
                    steep = _sum(weights, np.abs(layer.value_slopes[..., e]), part[1])
                    held = held + np.abs(_beside(part[0][e], e, D, part[1])) * steep
            away = away + 1.02 * sums * DOUBLE * np.minimum(held * (1 + 1e-9), top)
        if fine:
            level = middle + sum(_beside(part[0][e], e, D, part[1]) * tilt[:, e] for e in range(D))
            for e in range(D):
                mixed = [lost[i] if i == e else weights[i] for i in range(D)]
                mass = _beside(lost[e].sum(axis=1), e, D, part[1])
                apart = _sum(mixed, about, part[1]) + mass * np.abs(g - level)
                lean = np.zeros((*layer.values.shape, D)) if layer.value_slopes is None else layer.value_slopes - tilt
                apart = np.fmin(apart, _apart(mixed, layer.values - middle, lean, g - level, mass, part))
                away = away + grown * (apart + 8.0 * DOUBLE * far)
        else:
            away = away + coarse
        known = np.isfinite(values)
        if not np.isfinite(away[known]).all():
            raise NotProved("the layer is not finite at an entry.")
        worst = max(worst, float(away[known].max(initial=0.0)))
    return (worst + fixed) * ROOM


def _held(layer: Numbers, top: float, terms: float) -> None:
    """Answers, and sums of values that are divided by their normaliser at the end, fit into the numbers they are held in."""
    most = float(np.finfo(compute_format(layer.dtype).name).max)
    if not top < 0.4 * most or not top * (terms + 2.0) < 0.4 * (float(np.finfo(np.float64).max) if layer.grouped else most):
        raise NotProved(f"sums of its values may overflow in {layer.dtype}.")


def _axis(layer: Numbers, i: int, z: Array, unit: float) -> tuple[Array, Array, float, float]:
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
    errors = (D + (2.02 if layer.grouped else 3.03)) * unit * size + unit * (behind + 12.0)
    if not layer.grouped:
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


# -- listed keys


def _listed(layer: Numbers, table: Table | Samples) -> float:
    """Scores added up variable by variable, blocks of entries against all keys."""
    a, b, c = layer.slopes[0], layer.offsets[0], layer.values
    N, D = a.shape
    unit, s = compute_format(layer.dtype).unit, layer.sharpness
    if N * table.entries.count > LISTED:
        raise NotProved(f"{N:,} keys at {table.entries.count:,} entries are more than this check looks at.")
    middle = (c.max(axis=0) + c.min(axis=0)) / 2.0
    about, top = np.abs(c - middle), float(np.abs(c).max())
    _held(layer, top, 2.0 * N)
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
    return float((worst + 2.1 * sums * top + stray) * ROOM)


# -- the nearest site


def _nearest(layer: Numbers, table: Table | Samples) -> float:
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


def _nearest_sample(layer: Numbers, samples: Samples) -> float:
    keys = layer.sites[0]
    for column in keys.T:
        steps = np.diff(np.unique(column))
        if steps.size and float(steps.min()) < 1e-140:
            raise NotProved("two sites are so close that the square of their distance is zero.")
    order = np.lexsort(keys.T)
    answer: dict[bytes, list[int]] = {}
    for j in order:
        answer.setdefault((keys[j] + 0.0).tobytes(), []).append(int(j))
    worst = 0.0
    for row, value in zip(samples.X + 0.0, samples.y, strict=True):
        found = answer.get(row.tobytes())
        if found is None:
            found = [int(j) for j in np.flatnonzero((keys == row).all(axis=1))]
        if not found:
            raise NotProved("a sample stands on no site.")
        worst = max(worst, float(np.abs(layer.values[found] - value).max()))
    return worst * (1.0 + 2.0**-50)
