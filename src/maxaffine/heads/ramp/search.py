"""Ramp heads: chords of the target as softmax ramps, with more and more of the error for the chords until one plan is proved."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.expression.expression import Expression
from maxaffine.heads.axis.line import outward
from maxaffine.heads.axis.plan import axis_row, best_centre
from maxaffine.heads.found import BELOW
from maxaffine.heads.head import Example, Head
from maxaffine.heads.ramp.plan import Chords, RampPlan, build_ramps, chords, make_plan
from maxaffine.heads.ramp.prove import certify_ramp
from maxaffine.heads.search import Search
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.normalisers import biased
from maxaffine.ramp.constants import BEST
from maxaffine.request import Request
from maxaffine.structure.one_direction import OneDirection, one_direction
from maxaffine.structure.switches import moved

SHARES = (0.5, 0.35, 0.2, 0.1)  # of the error, for the chords
ROOM = (0.98, 0.85, 0.6)  # of what is left, for the ramps
MOST = 4096  # tokens


class Ramp(Head[RampPlan]):
    """A sum of softmax ramps; what the paper's neighbours build, with its own constants.  Asked by name alone."""

    name = "ramp"
    summary = "chords along one direction, each a softmax ramp of equal steps"
    serves = "continuous functions of one variable or of one direction w . x"
    by_name = True  # it never has fewer tokens than clusters or spectral heads
    examples = (Example("sin(3*x)", {"x": (-1, 1)}, 1e-2), Example("abs(x + 2*y)", {"x": (-1, 1), "y": (-1, 1)}, 5e-2))

    def why_not(self, request: Request) -> str | None:
        """Expressions of one output, in the sup norm."""
        target = request.target
        if math.isfinite(request.norm):
            return "only in the sup norm"
        if target.expression is None or target.d_out != 1 or target.n_out != 1:
            return "only for expressions of one output"
        if request.gap is not None:
            return "only for continuous targets, without a gap"
        return None

    def propose(self, search: Search) -> Iterator[RampPlan]:
        """Chords and ramps with different shares of the error."""
        request = search.request
        found = one_direction(request.target.expression) if request.target.expression is not None else None
        if found is None or any(found.slopes):
            raise Refused("the target is not a function of one direction w . x alone, which method=\"auto\" does not ask for")
        low, high = request.target.box.low, request.target.box.high
        centre = best_centre(found, low, high)
        row, scale = axis_row(found.direction, low, high, centre)
        f, first, last = on_axis(found, centre, low, high, scale)
        if max(-first, last) > 1.0 - 2.0**-20:  # room for what is computed of z
            row, scale = row / 2.0, scale / 2
            f, first, last = on_axis(found, centre, low, high, scale)
        knots = _served(f, first, last, request.error)
        for part in ROOM:
            rooms = [(BELOW * request.error - made.error) * part for made in knots]
            plans = [make_plan(found, f, row, centre, *pair, BEST, request.dtype) for pair in zip(knots, rooms, strict=True)]
            plan = min(plans, key=lambda plan: plan.cells)
            if plan.cells > MOST:
                told = f"{plan.cells:,} tokens are needed, and ramps are built with {MOST:,} at most"
                raise Refused(f"{told}: ask for a larger error")
            yield plan

    def build(self, plan: RampPlan, request: Request) -> GroupedLayer:
        """One group per ramp, with the bias that the literal softmax needs."""
        return biased(build_ramps(plan, request.target, request.dtype), request.error)

    def prove(self, layer: GroupedLayer, plan: RampPlan, request: Request, runtime: str) -> Certificate:
        """Theorem B1 and its budget."""
        return certify_ramp(layer, plan, request.error, runtime)


def _served(f: Expression, first: float, last: float, error: float) -> list[Chords]:
    """Knots for every share of the error that chords reach; Refused where they reach none."""
    found = []
    for share in SHARES:
        try:
            found.append(chords(f, first, last, share * error))
        except Refused:
            if not found:
                raise
            break  # smaller shares need more knots
    return found


def on_axis(found: OneDirection, centre: Array, low: Array, high: Array, scale: Fraction) -> tuple[Expression, float, float]:
    """The target in z, exactly, and the ends of z over the box, outward."""
    w = found.direction
    middle = sum((c * Fraction(float(m)) for c, m in zip(w, centre, strict=True)), Fraction(0))
    ends = [(c * Fraction(float(a)), c * Fraction(float(b))) for c, a, b in zip(w, low, high, strict=True)]
    first = (sum((min(pair) for pair in ends), Fraction(0)) - middle) * scale
    last = (sum((max(pair) for pair in ends), Fraction(0)) - middle) * scale
    return moved(found.h, middle, 1 / scale), *outward(first, last)


HEAD = Ramp()
