"""Sup-norm certificates of spectral layers: Ehlich-Zeller for every group, leak between groups, rounding of what is stored.

    |F - f| <= sum_g sup |F_g - f_g| + leak + rounding,

the groups' functions adding up to f exactly.  A group whose values are sums of products is proved factor by factor:
|prod g_e - prod f_e| <= prod (|f_e| + eps_e) - prod |f_e|, so that separable targets are proved in any dimension.
"""

import math
from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT64, compute_format, dtype_of, gamma
from maxaffine.expression.expression import Expression
from maxaffine.heads.spectral.plan import GroupPlan, SpectralPlan
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.proofs.assumptions import DECLARED, ELEMENTARY, EXPONENTIAL, FLINT
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.combine import underflow
from maxaffine.proofs.head_bounds import EDGE, etas_for, moments
from maxaffine.proofs.literal_products import LITERAL, bias_error, literal_rounding
from maxaffine.proofs.local_error import prove
from maxaffine.proofs.normalisers import leak
from maxaffine.proofs.product_head import Head
from maxaffine.proofs.separated_rounding import multiplied
from maxaffine.proofs.sources import FromDeclaration, FromDerivatives, FromExpression, Source
from maxaffine.runtime.collapse import SHARE, allowance, collapsible
from maxaffine.runtime.grouped import tree_terms
from maxaffine.target.box import Box
from maxaffine.target.derive import derive_lipschitz
from maxaffine.target.evidence import Evidence

THEOREM = "Ehlich-Zeller: Chebyshev points and enclosures on Bernstein ellipses bound |layer - target| on the whole box"


@dataclass(frozen=True)
class GroupBound:
    """What one group contributes: approximation, uncertainty about f, rounding, the largest |F_g|, and errors of logits."""

    approximation: float
    uncertainty: float
    rounding: float
    largest: float
    eta: float = 0.0  # error of its logits


def certify_spectral(
    layer: GroupedLayer, plan: SpectralPlan, error: float, runtime: str = "arrays", declared: Evidence | None = None
) -> Certificate:
    """Prove a sup-norm bound for a stored spectral layer; `declared` are the facts about a callable target."""
    reserve = SHARE * error if runtime in ("arrays", "collapsed") and collapsible(layer) else 0.0
    goal = (error - 1.1 * reserve) / len(layer.groups)
    bounds = [
        _factored(layer, group, made, goal) if group.factors is not None else _listed(layer, group, made, goal, declared)
        for group, made in zip(layer.products(), plan.groups, strict=True)
    ]
    leakage = 0.0
    if runtime not in ("factorised", "collapsed"):
        leakage = leak(layer, [one.largest for one in bounds], [one.eta for one in bounds])
    compute = compute_format(layer.dtype)
    total = sum(bound.largest for bound in bounds)
    summing = (compute.unit + gamma(len(bounds) + 2, FLOAT64.unit)) * total + underflow(layer)
    summing += allowance(reserve, total) if reserve else 0.0  # what the polynomials of `collapsed` differ from the heads by
    parts = {
        "approximation": sum(bound.approximation for bound in bounds),
        "leakage": leakage,
        "rounding": sum(bound.rounding for bound in bounds) + summing,
        "target_rounding": sum(bound.uncertainty for bound in bounds),
    }
    return Certificate.proved(
        math.inf, parts, argument="spectral", theorem=THEOREM, dtype=layer.dtype, runtime=runtime,
        assumptions=(EXPONENTIAL, ELEMENTARY, FLINT) if declared is None else (EXPONENTIAL, DECLARED),
        details={"groups": float(len(layer.groups)), "bonus": layer.bonus, "collapse": reserve},
    )  # fmt: skip


def query_error(layer: GroupedLayer, group: Group, made: GroupPlan) -> Array:
    """Bounds (E,) of |computed z - directions . (x - centre) / half|."""
    u = FLOAT64.unit
    own = made.group.range(layer.centre, layer.centre)
    if not (np.array_equal(own.lo, made.middle.lo) and np.array_equal(own.hi, made.middle.hi)):
        raise Refused("the layer's centre is not that of its plan.")
    matrix = np.abs(group.matrix)
    reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low) * (1 + 4 * u)
    largest = np.maximum(np.abs(layer.low), np.abs(layer.high))
    error = matrix @ (u * largest + gamma(layer.dimension + 3, u) * reach)
    for e, direction in enumerate(made.group.directions):
        for i, c in enumerate(direction):
            stored = float(group.matrix[e, i])
            if c or stored:
                ideal = Interval.exact(c) / Interval.point(made.half[e])
                error[e] += float(max(abs(ideal.hi - stored), abs(stored - ideal.lo)) * reach[i])
    if layer.dtype != "float64":
        error = error + _narrowing(layer.dtype)
    if not np.all(error < EDGE - 1.0):  # beyond, nothing is known of the head
        raise Refused("the layer's coordinates are not those of its plan, or are not resolved.")
    return np.asarray(error * (1 + 1e-12))


def _narrowing(dtype: str) -> float:
    """Half a spacing of numbers up to 1, and a little: float64 becomes bfloat16 by way of float32."""
    return dtype_of(dtype).unit / 2.0 * (1 + 1e-4)


def product_bound(layer: GroupedLayer, group: Group, made: GroupPlan, error: float) -> GroupBound:
    """A group of product keys as part of a sum."""
    if group.factors is not None:
        return _factored(layer, group, made, error)
    return _listed(layer, group, made, error, None)


def _listed(layer: GroupedLayer, group: Group, made: GroupPlan, error: float, declared: Evidence | None) -> GroupBound:
    assert group.values is not None
    source: Source
    if made.group.expression is not None:
        source = FromExpression(made.group.expression, made.middle, made.half)
    else:
        assert made.evaluate is not None
        if declared is None or (declared.ellipses is None and declared.derivatives is None):
            raise Refused("nothing is declared about the callable.")
        if len(group.axes) != layer.dimension:  # that it depends on few directions was seen on samples only
            raise Refused("that the callable depends on fewer directions than variables was sampled, not declared.")
        largest = np.maximum(np.abs(layer.low), np.abs(layer.high))
        blur = 2.0**-46 + 4.0 * FLOAT64.unit * float((largest / made.half).max())
        if declared.ellipses is not None:
            source = FromDeclaration(made.evaluate, declared.ellipses[0], declared.ellipses[1], blur)
        else:
            assert declared.derivatives is not None
            order, bounds = declared.derivatives
            source = FromDerivatives(made.evaluate, order, bounds * made.half**order * (1 + 1e-9), blur)
    head = head_of(source, group.axes, made, group.values, slopes=group.slopes)
    # factored values would do as well there, and are proved at once
    patience = FEW_POINTS if made.group.factors is not None and len(group.axes) > 2 else None
    return head_bound(layer, head, query_error(layer, group, made), group.count, error, patience)


def head_of(
    source: Source, axes: tuple[AxisKeys, ...], made: GroupPlan, values: Array, first: int = 0, slopes: Array | None = None
) -> Head:
    """A head of some axes of a plan, as stored, beside what it stands for."""
    stored = tuple(AxisKeys(a.slopes.astype(np.float64), a.offsets.astype(np.float64)) for a in axes)
    chosen = made.axes[first : first + len(axes)]
    deltas = tuple(axis.parameter if axis.family == "bernstein" else None for axis in chosen)
    return Head(source, stored, deltas, values.astype(np.float64), None if slopes is None else slopes.astype(np.float64))


def head_bound(
    layer: GroupedLayer, head: Head, query: Array, tokens: int, error: float, patience: int | None = None
) -> GroupBound:
    """Approximation and rounding of one head of listed values."""
    # on several axes a coarse account of rounding is often enough, and takes a hundredth of the time
    ladder = [*COARSE.get(head.dimension, ()), None] if head.slopes is not None else [None]
    known = [_rounding(layer, head, query, tokens, ladder[0])]
    while known[-1][0] > 0.8 * error and len(known) < len(ladder):
        known.append(_rounding(layer, head, query, tokens, ladder[len(known)]))
    aim = 0.995 * (error - known[-1][0])
    aim = aim if aim > 0.4 * error else error
    proof = prove(head, aim, most_points=patience, enough=aim)
    while len(known) < len(ladder) and known[-1][0] > 1e-3 * error and 0.99 * error < proof.bound + known[-1][0]:
        # inside a piece sums grow by a factor that is exponential in its length: three times as many tell what is left of it
        gain = (known[-1][0] / known[-2][0]) ** 0.4 if len(known) > 1 else 0.0
        if proof.bound + gain * known[-1][0] > 1.01 * error:
            break
        known.append(_rounding(layer, head, query, tokens, ladder[len(known)]))
    rounding, largest, eta = known[-1]
    if isinstance(head.source, FromExpression):
        largest = min(largest, (head.source.extent() + proof.bound + rounding) * (1 + 1e-9))
    uncertainty = min(proof.uncertainty, proof.bound)
    return GroupBound(proof.bound - uncertainty, uncertainty, rounding, largest, eta)


COARSE = {2: (160, 480), 3: (24,), 4: (12,)}  # pieces per axis
FEW_POINTS = 2_500_000


def _rounding(layer: GroupedLayer, head: Head, query: Array, tokens: int, most: int | None) -> tuple[float, float, float]:
    """What finite precision does to one head, a bound of the head, and the error of its logits; `most` pieces per axis."""
    compute = compute_format(layer.dtype)
    E = head.dimension
    etas = tuple(eta + bias_error(layer, E) for eta in etas_for(head.axes, compute, E + 2, most))
    sizes = np.abs(head.values)
    if head.slopes is None:
        found = moments(head.axes, head.values, None, etas)
    else:
        found = moments(head.axes, head.values, head.slopes, etas, most)
        sizes = sizes + np.abs(head.slopes).sum(axis=-1)
    eta = sum(float(e.max()) for e in etas)
    # dense: a tree over all tokens; factorised: one dot product per direction; then the normalisers, relative to |g|
    # affine values take a sum of E + 1 products besides, before the tree or after the dot products
    terms = max(tree_terms(layer.tokens), sum(len(axis) + 1 for axis in head.axes)) + 3 + (0 if head.slopes is None else E + 2)
    shared = E * (tree_terms(layer.tokens) + 2)
    rounding = math.exp(2.0 * eta) * found.rounding + gamma(terms, FLOAT64.unit) * found.absolute
    rounding += gamma(shared, FLOAT64.unit) * found.largest
    rounding += min(float(query @ np.asarray(found.slopes)), _through_target(layer, head, query))
    rounding += 4.0 * compute.tiny * tokens * float(sizes.max())
    return rounding, found.largest, eta


def _through_target(layer: GroupedLayer, head: Head, query: Array) -> float:
    """What a moved query costs by the target's own slope: |g(z~) - f(z)| <= sup |g - f| + |f(z~) - f(z)|.

    Rounding to fewer digits than float64 keeps z inside [-1, 1], where the supremum is known: what is computed before it
    exceeds 1 by no more than 2^-30, which is rounded away.
    """
    source = head.source
    if layer.dtype == "float64" or not isinstance(source, FromExpression) or np.any(query - _narrowing(layer.dtype) > 2.0**-30):
        return math.inf
    low, high = source.middle.lo - source.half * (1 + 1e-12), source.middle.hi + source.half * (1 + 1e-12)
    steep = derive_lipschitz(source.expression, Box.named(source.expression.names, low, high))
    return float(np.sum(query * source.half * steep.value)) * (1 + 1e-12) if steep.finite else math.inf


def _source(factor: Expression, made: GroupPlan, e: int) -> FromExpression:
    """A factor of direction e in its scaled variable."""
    return FromExpression(factor, Interval.of(made.middle.lo[e : e + 1], made.middle.hi[e : e + 1]), made.half[e : e + 1])


def _factored(layer: GroupedLayer, group: Group, made: GroupPlan, error: float) -> GroupBound:
    """Sum over the products of prod (|f_e| + eps_e) - prod |f_e|, every factor proved on its own direction."""
    assert group.factors is not None and made.group.factors is not None
    query = query_error(layer, group, made)
    rank = group.factors[0].shape[1]
    rows = made.group.factors
    shape = (rank, len(group.axes))
    sizes, plain, rounded, etas = np.ones(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape)
    sources = [[None if factor is None else _source(factor, made, e) for e, factor in enumerate(row)] for row in rows]
    for r, e in np.ndindex(shape):
        source = sources[r][e]
        sizes[r, e] = 1.0 if source is None else source.extent()
    if not np.isfinite(sizes).all():
        raise Refused("a factor of the target could not be enclosed.")
    for r, e in np.ndindex(shape):
        source, axis, column = sources[r][e], group.axes[e], group.factors[e][:, r : r + 1]
        if source is None:
            plain[r, e] = float(np.abs(column.astype(np.float64) - 1.0).max())
            rounded[r, e] = gamma(2 * len(axis) + 8, FLOAT64.unit) * 2.0
            continue
        goal = error / len(group.axes) / rank / max(float(np.prod(np.delete(sizes[r], e))), 1e-300)  # what partners make of it
        one = head_bound(layer, head_of(source, (axis,), made, column, first=e), query[e : e + 1], len(axis), goal)
        plain[r, e], rounded[r, e], etas[r, e] = one.approximation + one.uncertainty, one.rounding, one.eta
    exact, whole, largest = multiplied(sizes, plain, rounded)
    guard = 1e-14 * largest * (len(group.axes) + 4)
    rounding = whole - exact + guard + gamma(rank + len(group.axes), FLOAT64.unit) * largest
    if layer.tokens <= LITERAL:
        rounding += literal_rounding(layer, group)
    return GroupBound(exact + guard, 0.0, rounding, largest, float(etas.max(axis=0).sum()))
