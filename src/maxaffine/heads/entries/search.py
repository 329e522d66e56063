"""Tables: the smallest layer that is verified at every entry, or the nearest entry itself.

Heads of few keys with affine values come first, then keys on some of the nodes, then one token per entry, which interpolates.
What every attempt left is kept, so that a refusal can say how far so many tokens come.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from maxaffine.core import closest
from maxaffine.core.arrays import Array
from maxaffine.core.budget import Cost, afford, lookup_cost
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import numpy_dtype
from maxaffine.heads.entries.fit import BEYOND, TableProducts, complete_part, filled, on_sites, refitted, smoothly_filled, swings
from maxaffine.heads.entries.plan import EntriesPlan, build_hard_table, build_head, build_uniform, is_uniform, scaled
from maxaffine.heads.entries.prove import Verified, certify_entries
from maxaffine.heads.entries.segments import pieces
from maxaffine.heads.fitting import affine_on_grid
from maxaffine.heads.found import BELOW, Found, agreed, grouped_cost, must_hold
from maxaffine.heads.spectral.affine_fit import ProductFit
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.layer.spectral_keys import weights
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.observe import Observed
from maxaffine.request import Request
from maxaffine.runtime import chooser
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table

SHRINK = (1.0, 0.85, 0.6, 0.35, 0.15)  # of the error, that a fit to a part of the entries aims at
RHO = 2.0  # sharpness of keys on nodes: smooth between them, and their equations are well conditioned
THIN = (16, 8, 4, 2)  # nodes per site
THIN_AXIS = 600  # entries of an axis up to which fewer sites than entries are tried
UNEVEN = 4.0  # longest over shortest step of an axis, from which on keys as dense as its nodes are tried as well
DECADES = 1e3  # longest over shortest step of a positive axis, from which on a refusal advises its logarithm
SOLVED = 4096  # entries of an axis up to which the equations along it are solved
STRAIGHT = 6000  # entries of one variable up to which straight pieces are looked for
SEEN = 1 << 18  # entries at which the chosen runtime is run
WORK = 10**10  # tokens that it looks at there in all


@dataclass
class Attempts:
    """Layers made for one table or one set of samples: each is verified, and what it left is remembered."""

    request: Request
    data: Table | Samples
    left: list[tuple[int, float]] = field(default_factory=list)  # tokens, and the error at the entries
    why: list[str] = field(default_factory=list)

    def tried(self, family: str, layer: Layer | GroupedLayer, method: str) -> Found | None:
        """The layer with its certificate where that is at most the error asked for, and the checker agrees."""
        cost = cost_of(layer)
        afford(cost, self.request.max_bytes, f"the layer of {cost.tokens:,} tokens for the {self.data.entries.kind}")
        try:
            certificate, verified = certify_entries(layer, self.data, self.request.error)
        except Refused as failure:
            self.why.append(f"{layer.tokens:,} tokens: {str(failure).rstrip('.')}")
            return None
        self.left.append((layer.tokens, certificate.bound or math.inf))
        closest.proved(layer.tokens, certificate.bound or math.inf)
        if certificate.bound is None or certificate.bound > self.request.error * BELOW:
            return None
        found = self.found(method, family, layer, certificate, verified)
        found, refusal = agreed(found, self.request)
        if refusal is not None:
            self.why.append(f"{layer.tokens:,} tokens: not confirmed by the checker: {refusal}")
            return None
        closest.journal().best = found
        return found

    def found(
        self, method: str, family: str, layer: Layer | GroupedLayer, certificate: Certificate, verified: Verified
    ) -> Found:
        """A layer that was verified, as a search returns it."""
        shape = layer.products()[0].shape if layer.grouped else layer.keys.shape
        seen, prove = self._seen(layer, certificate, verified), partial(_prove, layer, self.data, self.request.error)
        return Found(method, EntriesPlan(family, shape), layer, certificate, cost_of(layer), seen, prove)

    def _seen(self, layer: Layer | GroupedLayer, certificate: Certificate, verified: Verified) -> Observed:
        """The chosen runtime at many entries: above the proved bound it is a fault, and stops the compile."""
        reserve = certificate.details.get("collapse")
        worst, at, count = 0.0, verified.at, 0
        local = not layer.grouped and chooser.choose(layer)[0] in ("hard", "windowed")
        for points, values in _some(self.data, 1 if local else layer.tokens):
            got = chooser.evaluate(layer, points, tolerance=reserve).astype(np.float64).reshape(values.shape)
            away = np.abs(got - values).max(axis=1)
            count += len(points)
            if float(away.max()) > worst:
                worst, at = float(away.max()), tuple(float(x) for x in points[int(away.argmax())])
        must_hold(worst, certificate.bound)
        return Observed(worst, at, count, self.request.seed)

    def refusal(self, advice: str) -> Refused:
        """How far the closest attempt comes, in one sentence, and the others as what was tried."""
        best: dict[int, float] = {}
        for tokens, error in sorted(self.left):
            best[tokens] = min(error, best.get(tokens, math.inf))
        lines, least = [], math.inf
        for tokens, error in best.items():
            if error < least:
                lines.append(f"{tokens:,} tokens leave {error:.3g}")
                least = error
        shown = [*lines[:2], f"{len(lines) - 5} more", *lines[-3:]] if len(lines) > 6 else lines
        last = (shown or self.why[-1:] or ["nothing fits"])[-1]
        kind = self.data.entries.kind
        return Refused(
            f"`error` (={self.request.error:g}) is not reached at every entry of the {kind}: {last}. {advice}",
            tried=[*shown[:-1], *(why for why in self.why[-2:] if why != last)],
        )


def _prove(layer: Layer | GroupedLayer, data: Table | Samples, error: float, runtime: str) -> Certificate:
    return certify_entries(layer, data, error, runtime)[0]


def _some(data: Table | Samples, tokens: int) -> list[tuple[Array, Array]]:
    """At most SEEN entries or so, fewer where each looks at many tokens, evenly from all blocks."""
    step = max(1, -(-data.entries.count // min(SEEN, max(256, WORK // tokens))))
    return [(points[::step], values[::step]) for points, values in data.blocks()]


def cost_of(layer: Layer | GroupedLayer) -> Cost:
    """Tokens, bytes and flops of a layer for entries."""
    if layer.grouped:
        return grouped_cost(layer)
    axes = layer.keys.shape
    cost = lookup_cost(layer.keys.count, axes, layer.dimension, layer.d_out, 1, numpy_dtype(layer.dtype).itemsize)
    return Cost(cost.tokens, layer.nbytes, cost.peak_bytes, cost.flops)


def search(request: Request, table: Table, method: str) -> Found:
    """The layer of fewest tokens that is verified at every entry; refused with what so many tokens reach."""
    attempts = Attempts(request, table)
    coordinates = [scaled(axis) for axis in table.axes]
    z = [one[0] for one in coordinates]
    centre, scale = (np.array([one[k] for one in coordinates]) for k in (1, 2))
    whole = table.values if table.is_complete else smoothly_filled(z, table.values)
    build = partial(build_head, table, centre, scale)
    found = _heads(attempts, table, z, whole, build) if method in ("auto", "spectral") else None
    if len(z) == 1 and method == "auto":
        nodes, there = z[0][table.mask], table.values[table.mask]
        found = straight(attempts, nodes, there, len(nodes) if found is None else found.cost.tokens - 1, build) or found
    if found is None and method in ("auto", "lookup"):
        found = _on_nodes(attempts, table, z, whole, build)
    if found is not None:
        return found
    advice = 'Ask for a larger error, or for the nearest entry with `method="nearest"`'
    if request.dtype != "float64":
        advice += ", or use float64"
    for name, axis in zip(table.names, table.axes, strict=True):
        steps = np.diff(axis)
        if axis[0] > 0 and float(steps.max()) > DECADES * float(steps.min()):
            advice += f"; steps of {name} reach from {steps.min():.3g} to {steps.max():.3g}: log({name}) may be the better axis"
    raise attempts.refusal(f"{advice}.")


def straight(attempts: Attempts, z: Array, values: Array, most: int, build: Callable[..., GroupedLayer]) -> Found | None:
    """Entries of one variable by straight pieces: kinks, jumps and noise in at most half as many tokens as entries."""
    request = attempts.request
    if len(z) > STRAIGHT or most < 1:
        return None
    request.progress("straight pieces", 0, len(z))
    for share in (BELOW, 0.8, 0.5):
        made = pieces(z, values, share * request.error, most)
        if made is None:
            return None
        found = attempts.tried("pieces", build((made[0],), made[1], made[2], request.dtype), "lookup")
        if found is not None:
            return found
    return None


def _heads(attempts: Attempts, table: Table, z: list[Array], whole: Array, build: Callable[..., GroupedLayer]) -> Found | None:
    """Heads with affine values, from few keys to many; a part of the entries proposes, all of them decide."""
    request = attempts.request
    error, scale = request.error, float(np.abs(whole).max()) or 1.0
    uneven = any(float(np.diff(one).max()) > UNEVEN * float(np.diff(one).min()) for one in z)
    best: Found | None = None
    for family in ("bernstein", "sites"):
        if family == "sites" and best is not None and not uneven:
            break
        part = None if table.is_complete else complete_part(table.mask)
        looked = whole if part is None else whole[np.ix_(*part)]
        at = z if part is None else [one[index] for one, index in zip(z, part, strict=True)]
        products = TableProducts(at, looked, error, scale, request.dtype, family)
        # no more coefficients than entries: a head is a fit
        last, most = 0, min(table.entries.count // (1 + len(z)), math.inf if best is None else best.cost.tokens - 1)
        for shrink in SHRINK:
            request.progress("heads for the table", last, table.entries.count)
            with closest.fits_of(True):
                fit = products.smallest(error * BELOW * shrink, int(most)) if most >= 1 else None
            if fit is not None and not table.is_complete:  # what it says of missing entries may be easier to follow
                W = [weights(axis.keys, one) for axis, one in zip(fit.axes, z, strict=True)]
                whole = np.where(table.mask[..., None], whole, affine_on_grid(W, fit.values, fit.slopes, z))
                if part is None:
                    products = TableProducts(z, whole, error, scale, request.dtype, family)
                    fit = min(products.smallest(error * BELOW * shrink, int(most)) or fit, fit, key=lambda one: one.tokens)
            if fit is None or fit.tokens > most:
                break
            if fit.tokens <= last:
                continue
            last = fit.tokens
            found = _fitted(attempts, family, fit, table, z, whole, build)
            if found is not None:
                best = found
                break
        nearest = products.closest()
        if nearest is not None and math.isfinite(nearest.error):
            attempts.left.append((nearest.tokens, nearest.error))
    return best


def _fitted(
    attempts: Attempts, family: str, fit: ProductFit, table: Table, z: list[Array], whole: Array,
    build: Callable[..., GroupedLayer],
) -> Found | None:  # fmt: skip
    request = attempts.request
    scale = float(np.abs(whole).max()) or 1.0
    made = refitted(fit, z, whole, ~table.mask, request.error, scale, request.dtype)
    if not math.isfinite(made.error):
        return None
    if swings(made.axes, made.values, made.slopes, z, whole, request.error):
        attempts.why.append(f"{fit.tokens:,} tokens oscillate between the entries")
        return None
    return attempts.tried(family, build(made.axes, made.values, made.slopes, request.dtype), "spectral")


def _on_nodes(attempts: Attempts, table: Table, z: list[Array], whole: Array, build: Callable[..., GroupedLayer]) -> Found | None:
    """Keys on some of the nodes, then on all of them; between entries the layer is smooth."""
    request = attempts.request
    if max(table.shape) > SOLVED:
        attempts.why.append(f"one token per entry only for axes of up to {SOLVED:,} entries, and one has {max(table.shape):,}")
        return None
    _afford_solving(table, request)
    small = max(table.shape) <= THIN_AXIS
    for thin in THIN if small and request.dtype != "bfloat16" else ():
        counts = tuple(-(-n // thin) + 2 * BEYOND for n in table.shape)
        if any(count < 2 * BEYOND + 3 or count >= n for count, n in zip(counts, table.shape, strict=True)):
            continue
        request.progress("keys on nodes", math.prod(counts), table.entries.count)
        made = min((on_sites(z, whole, counts, rho, request.dtype) for rho in (0.75, RHO)), key=lambda fit: fit.error)
        attempts.left.append((math.prod(counts), made.error))
        if made.error <= request.error:
            found = attempts.tried("sites", build(made.axes, made.values, None, request.dtype), "lookup")
            if found is not None:
                return found
    request.progress("one token per entry", 0, 1)
    if all(is_uniform(axis) for axis in table.axes) and request.dtype != "bfloat16":
        return attempts.tried("grid", _uniform(table, whole, request.dtype), "lookup")
    everything = on_sites(z, whole, table.shape, RHO, request.dtype)
    return attempts.tried("sites", build(everything.axes, everything.values, None, request.dtype), "lookup")


def _afford_solving(table: Table, request: Request) -> None:
    """Equations along an axis are dense: their matrices and a few copies of the table must fit."""
    needed = 8 * (4 * table.values.size + 3 * max(table.shape) ** 2)
    afford(Cost(math.prod(table.shape), 8 * table.values.size, needed, 0), request.max_bytes, "one token per entry of the table")


def _uniform(table: Table, whole: Array, dtype: str) -> Layer:
    """One token per entry on equidistant axes, values that interpolate."""
    shell = build_uniform(table, RHO, whole, dtype)
    values = whole
    for e, (axis, nodes) in enumerate(zip(shell.axes, table.axes, strict=True)):
        place = (nodes - shell.coordinates.centre[e]) * shell.coordinates.matrix[e, e]
        sites = axis.slopes.astype(np.float64)
        scores = -0.5 * shell.sharpness * (place[:, None] - sites) ** 2
        W = np.exp(scores - scores.max(axis=1, keepdims=True))
        W /= W.sum(axis=1, keepdims=True)
        moved = np.moveaxis(values, e, 0)
        solved = np.linalg.solve(W, moved.reshape(len(moved), -1))
        values = np.moveaxis(solved.reshape(moved.shape), 0, e)
    return build_uniform(table, RHO, values, dtype)


def search_hard(request: Request, table: Table) -> Found:
    """The nearest entry: one token each, the softmax at infinite sharpness; a missing entry has a neighbour's value."""
    return finished_hard(Attempts(request, table), build_hard_table(table, filled(table.values), request.dtype))


def finished_hard(attempts: Attempts, layer: Layer) -> Found:
    """A hard layer with its certificate; refused where storing the values costs more than the error asked for."""
    request, data = attempts.request, attempts.data
    certificate, verified = certify_entries(layer, data, request.error)
    assert certificate.bound is not None
    if certificate.bound > request.error:
        raise Refused(
            f"`error` (={request.error:g}) is not reached: the nearest of {data.entries.count:,} entries, stored in "
            f"{request.dtype}, is off by {certificate.bound:.3g}; use float64 or a larger error."
        )
    return attempts.found("hard", "hard", layer, certificate, verified)
