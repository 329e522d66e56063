"""Theorem B1 with its budget: a stored sum of ramp heads against a target along one direction.

    |layer - f|  <=  chords + values + max_z | sum_k (C_k/p_k) e_k(z) | + keys and rounding + leak

e_k is the error of ideal head k in its own steps, and what wrong logits do to it: ideal.py.  Logits are wrong by keys that are
not those of the plan, a query that is off, products, sums and exp.
"""

import math

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT64, compute_format, dtype_of, gamma
from maxaffine.heads.axis.line import Axis, AxisTarget
from maxaffine.heads.ramp.ideal import Ramps, ideal_error
from maxaffine.heads.ramp.plan import RampPlan, chord_error, keys_of, values_of
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.proofs.assumptions import ELEMENTARY, EXPONENTIAL, FLINT
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.combine import output_rounding
from maxaffine.proofs.literal_products import bias_error
from maxaffine.proofs.normalisers import leak
from maxaffine.ramp.constants import kappa
from maxaffine.runtime.collapse import SHARE, allowance, collapsible
from maxaffine.runtime.grouped import tree_terms

U = FLOAT64.unit
UP = 1.0 + 1e-12
THEOREM = "softmax ramps: chords between knots, and kappa(rho) steps of every ramp head, which is the identity on its sites"


def certify_ramp(layer: GroupedLayer, plan: RampPlan, error: float, runtime: str = "arrays") -> Certificate:
    """Prove a sup-norm bound of a stored ramp layer."""
    groups = layer.products()
    target = AxisTarget(plan.found.h, plan.direction)
    if any(not np.array_equal(group.matrix, groups[0].matrix) for group in groups):
        raise Refused("the groups of the layer are not on one coordinate.")
    axis = Axis.of(layer, groups[0], target)
    stored, off, uncertain = _stored(layer, plan, axis)
    top = sum(float(np.abs(group.dense_values()).max()) for group in groups) * UP
    chord = float(chord_error(axis.f, stored.low, stored.high).max())
    ramps, shaken = ideal_error(stored, plan.rho)
    reserve = SHARE * error if runtime in ("arrays", "collapsed") and collapsible(layer) else 0.0
    leakage = 0.0
    tops = [float(np.abs(group.dense_values()).max()) for group in groups]
    if runtime not in ("factorised", "collapsed"):
        leakage = leak(layer, tops, list(stored.eta))
    sums = gamma(tree_terms(layer.tokens) + max(len(group.axes[0]) for group in groups) + 12, U) * 2.0 * top
    rounding = shaken + sums + output_rounding(layer, top) + 4.0 * compute_format(layer.dtype).tiny * layer.tokens * top
    rounding += allowance(reserve, top) if reserve else 0.0
    parts = {
        "approximation": (chord + ramps + off) * UP, "leakage": leakage, "rounding": rounding * UP,
        "target_rounding": uncertain,
    }  # fmt: skip
    return Certificate.proved(
        math.inf, parts, argument="ramp", theorem=THEOREM, dtype=layer.dtype, runtime=runtime,
        assumptions=(EXPONENTIAL, ELEMENTARY, FLINT),
        details={"ramps": float(len(groups)), "rho": plan.rho, "kappa": kappa(plan.rho), "collapse": reserve},
    )  # fmt: skip


def _stored(layer: GroupedLayer, plan: RampPlan, axis: Axis) -> tuple[Ramps, float, float]:
    """The stored heads, how far their values are from ramps between knots of f, and how well f is known there."""
    groups, knots = layer.products(), plan.knots
    if len(groups) != len(plan.steps) or knots[0] > axis.first or knots[-1] < axis.last or not (np.diff(knots) > 0).all():
        raise Refused("the layer's groups are not the ramps of its plan, or do not cover the box.")
    if not max(abs(axis.low), abs(axis.high), abs(axis.first), abs(axis.last)) <= 1.0 + 2.0**-9:
        raise Refused("the layer's coordinate leaves [-1, 1].")
    worst, top, K = 0.0, 0.0, len(groups)
    height, eta = np.empty(K), np.empty(K)
    bases, rises = np.empty(K), np.empty(K)
    for k, group in enumerate(groups):
        value, wanted = _values(group), values_of(plan, k)
        if value.shape != wanted.shape:
            raise Refused("the layer's groups are not the ramps of its plan.")
        p, bases[k] = plan.steps[k], value[0]
        rises[k] = value[-1] - value[0]
        # values against equal steps between the first and the last as stored
        worst += float(np.abs(value - value[0] - rises[k] * np.arange(p + 1) / p).max()) + 4.0 * U * float(np.abs(value).max())
        height[k], eta[k] = rises[k] / p, _eta(layer, group, plan, k, axis)
        top += float(np.abs(value).max())
    levels = bases.sum() + np.concatenate([[0.0], np.cumsum(rises)])
    at = np.clip(knots, axis.first, axis.last)[:, None]
    known = axis.f.enclose(Interval(at, at))
    away = float(np.maximum(known.hi[:, 0] - levels, levels - known.lo[:, 0]).max())
    unsure = float((known.hi - known.lo).max())
    if not math.isfinite(away):
        raise Refused("the target could not be enclosed at a knot.")
    off = (away + worst + 8.0 * U * (K + 4) * top) * UP
    return Ramps(knots[:-1], knots[1:], np.array(plan.steps, dtype=np.float64), height * UP, eta), off, min(unsure, away)


def _values(group: Group) -> Array:
    return np.asarray(group.dense_values()[:, 0], dtype=np.float64)


def _eta(layer: GroupedLayer, group: Group, plan: RampPlan, k: int, axis: Axis) -> float:
    """A bound of what is wrong with the logits of a head, in all."""
    compute = compute_format(layer.dtype)
    slopes, offsets = (np.asarray(a, dtype=np.float64) for a in (group.axes[0].slopes, group.axes[0].offsets))
    a, b = keys_of(plan, k)
    j = np.arange(len(a)) - (len(a) - 1) / 2.0
    middle = max(abs(plan.knots[k]), abs(plan.knots[k + 1]))
    ideal = 16.0 * U * (np.abs(a) * (1.0 + middle) + 0.5 * plan.rho * j**2)
    keys = float((np.abs(slopes - a) * (1.0 + 2.0**-8) + np.abs(offsets - b) + ideal).max())
    query = axis.drift + axis.relative * (1.0 + 2.0**-8) + axis.real
    if layer.dtype != "float64":
        query += dtype_of(layer.dtype).unit * (0.5 + 1e-4)
    size = np.abs(slopes) * (1.0 + 2.0**-8) + np.abs(offsets)
    behind = float(np.ptp(slopes)) * (1.0 + 2.0**-8) + float(np.ptp(offsets))
    bias = bias_error(layer, 1)
    computed = gamma(4, compute.unit) * float(size.max()) + compute.unit * (behind + compute.exp_ulps + 4.0) + 2.0 * bias
    return (keys + float(np.abs(slopes).max()) * query + computed) * UP
