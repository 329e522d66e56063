"""How the error is shared out over the nodes, and the heads for it, in two passes.

First in proportion to what a head is predicted to cost: tokens grow like a + b log(1/eps), so eps_k is proportional to b_k / W_k.
Token counts are steps: then heads of few tokens, and heads that proved far less than they were asked for, keep what they proved,
and the rest of the error is shared out over the others.  Norms are folded as often as their share says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.deadline import OutOfTime
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.stack.cutting import Cutting
from maxaffine.stack.heads import FEW, Made, Shop, is_exact, predicted
from maxaffine.stack.ranges import UP, Ranges, Unbounded, ranges
from maxaffine.structure.folding import MOST_FOLDS, absolutes, angle
from maxaffine.structure.stacked import ABSOLUTE
from maxaffine.target.box import Box

ROUNDS = 40
CAP = 0.02  # of the width of a node's range: the most that its error may be
FINEST = 2.0**-38  # of its size: what an error may always be, for heads of two tokens of the size of what they read
AIM = 0.985  # of the error, shared out: heads are compiled to three digits
LITTLE = 1e-4  # of the width of a node's range: what its head's box may be wider without costing tokens
FOLDED = 0.97  # of the share of a norm: what the identity of its folding may take
LITTLE_OF_NORMS = 1e-3  # of the share of a norm: what an absolute value of it is asked for
MARGIN = 1.002  # on what a refusal calls the nearest error


@dataclass(frozen=True)
class Share:
    """Errors that the nodes may have, with the ranges that they lead to."""

    eps: Array
    ranges: Ranges


@dataclass(frozen=True)
class Proof:
    """The theorem applied to heads that were made: errors of nodes, ranges, and the bound."""

    eps: Array
    betas: Array
    ranges: Ranges
    rounding: float

    @property
    def bound(self) -> float:
        """sum W beta, what rough nodes add, and all rounding."""
        return (math.fsum(self.ranges.weights * self.betas) + self.ranges.roughness + self.rounding) * UP


def shared(cutting: Cutting, box: Box, error: float, costs: Array, fixed: dict[int, float] | None = None) -> Share:
    """eps_k in proportion to cost / W with sum W eps <= error; nodes that are `fixed` keep their error.

    Refused where rounding alone, or what is fixed, takes the whole error; Unbounded where a function leaves its domain.
    """
    fixed = fixed or {}
    m = len(cutting.names)
    eps = np.array([fixed.get(k, 0.0) for k in range(m)])
    found = ranges(cutting, box, eps)
    best: Share | None = None
    damp = 1.0
    for _ in range(ROUNDS):
        D = len(box.low)
        most = caps(cutting, found, D)
        held = sum(found.leaning[k] * e for k, e in fixed.items())
        left = AIM * error - found.rounding(box.low, box.high) - held
        if left <= 0.0:
            least = (found.rounding(box.low, box.high) + held) / AIM
            raise Refused("rounding of the nodes in float64 takes the whole error", nearest_error=1.05 * least)
        open_ = np.array([k not in fixed for k in range(m)])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            even = np.where(open_, costs / costs[open_].sum() * left / found.leaning if open_.any() else 0.0, 0.0)
        wanted = np.where(open_, np.minimum(even, most), eps) if open_.any() else eps
        wanted = np.where(open_ & ~np.isfinite(wanted), most, wanted)
        wanted = np.where(open_, wanted * damp, eps)
        try:
            new = ranges(cutting, box, wanted)
        except Unbounded:
            damp *= 0.5
            continue
        total = float(np.sum(new.weights * wanted)) + new.roughness + new.rounding(box.low, box.high)
        if total <= error:
            best = Share(wanted, new)
            if total >= 0.9 * error or damp < 1.0 or np.allclose(wanted, eps, rtol=0.05):
                return best
        else:
            damp *= max(0.5, 0.97 * error / total) if total > 1.02 * error else 0.98
        eps, found = wanted, new
    if best is None:
        raise Refused("no errors of the nodes were found that keep every function inside its domain")
    return best


def caps(cutting: Cutting, found: Ranges, dimension: int) -> Array:
    """The most that nodes may err: a part of the width of their range, and where that has none what float64 holds anyway."""
    values = found.values[dimension:]
    read = np.array([float(np.max(box.magnitude)) for box in found.boxes])
    exact = np.array([is_exact(function.text) for function in cutting.functions])
    return np.maximum(CAP * values.width, FINEST * np.maximum(values.magnitude, np.where(exact, read, 1e-280)))


def costs_of(cutting: Cutting, share: Share) -> Array:
    """Predicted tokens of the nodes, little where a head of two tokens does on any box."""
    found = [
        2.0 * absolutes(folds_for(share, k), cutting.bare[k]) if cutting.folds[k]
        else predicted(function, share.ranges.boxes[k], float(share.eps[k]))
        for k, function in enumerate(cutting.functions)
    ]  # fmt: skip
    return np.array(found)


def folds_for(share: Share, k: int) -> int:
    """The fewest folds of a norm whose identity leaves a little of its share; at least two, so that there is an |.| to take."""
    for folds in range(2, MOST_FOLDS):
        if replace(share.ranges.norms[k], angle=angle(folds)).identity <= FOLDED * share.eps[k]:
            return folds
    return MOST_FOLDS


def weighed(cutting: Cutting, tokens: Sequence[float]) -> Array:
    """What shares are in proportion to."""
    exact = [is_exact(function.text) for function in cutting.functions]  # norms are not: they pay for every digit
    return np.array([0.02 if e else max(0.3, t - 2.0) for e, t in zip(exact, tokens, strict=True)])


def foreseen(cutting: Cutting, box: Box, error: float) -> tuple[Share, float]:
    """A share by predicted costs, and the predicted number of tokens."""
    share = shared(cutting, box, error, np.ones(len(cutting.names)))
    for _ in range(2):
        share = shared(cutting, box, error, weighed(cutting, list(costs_of(cutting, share))))
    return share, float(costs_of(cutting, share).sum())


def made(cutting: Cutting, box: Box, error: float, share: Share, shop: Shop) -> tuple[list[Made], Proof]:
    """Heads for a share, and for a second one that uses what the first left over; the fewer tokens."""
    first, share = _heads(cutting, box, error, share, {}, shop)
    proof = prove(cutting, box, first)
    if proof is None or proof.bound > error:
        raise Refused("the heads were proved, and the stack was not")
    few = [one.tokens <= FEW or proof.betas[k] < 0.3 * share.eps[k] for k, one in enumerate(first)]
    fixed = {k: 1.1 * float(proof.betas[k]) for k, one in enumerate(few) if one}
    if len(fixed) == len(first):
        return first, proof
    try:
        again = shared(cutting, box, error, weighed(cutting, [one.tokens for one in first]), fixed)
        second, _ = _heads(cutting, box, error, again, {k: first[k] for k in fixed}, shop)
        other = prove(cutting, box, second)
    except (Refused, Unbounded, OutOfTime):
        return first, proof
    if other is None or other.bound > error or _total(second) >= _total(first):
        return first, proof
    return second, other


def _total(heads: Sequence[Made]) -> int:
    return sum(one.tokens for one in heads)


def _heads(cutting: Cutting, box: Box, error: float, share: Share, kept: dict[int, Made], shop: Shop) -> tuple[list[Made], Share]:
    """One head per node; where float64 does not hold a share, that node gets more and the others less."""
    floors = {k: 1.1 * float(share.eps[k]) if one.folds else 1.1 * one.beta for k, one in kept.items()}
    for _ in range(6):
        refused: dict[int, float] = {}
        heads: dict[int, Made] = {}
        boxes = roomy(cutting, box, share)
        for k, function in enumerate(cutting.functions):
            try:
                found = kept.get(k)
                if found is None or not covers(found, share.ranges.boxes[k].lo, share.ranges.boxes[k].hi):
                    found = _head(cutting, share, k, boxes[k], shop)
                heads[k] = found
            except Refused as refusal:
                if refusal.nearest_error is None:
                    raise Refused(f"its node `{function.text}`: {refusal.reason}") from None
                refused[k] = refusal.nearest_error * MARGIN
        if not refused:
            return [heads[k] for k in range(len(cutting.names))], share
        floors |= refused
        costs = weighed(cutting, list(costs_of(cutting, share)))
        share = shared(cutting, box, error, costs, floors)
    raise Refused("its nodes need more digits than float64 has")


def _head(cutting: Cutting, share: Share, k: int, box: Interval, shop: Shop) -> Made:
    """The head of one node; of a norm |u| on its range, and how often it is folded."""
    if not cutting.folds[k]:
        return shop.head(cutting.functions[k], box, float(share.eps[k]))
    found, folds = shop.head(ABSOLUTE, box, LITTLE_OF_NORMS * float(share.eps[k])), folds_for(share, k)
    return replace(found, folds=folds, uses=absolutes(folds, cutting.bare[k]))


def roomy(cutting: Cutting, box: Box, share: Share) -> list[Interval]:
    """Boxes for heads with room for more: errors of literal heads, the constants of the checker, rounding."""
    width = share.ranges.values.width[len(box.low) :]
    for room in (8.0, 1.3, 1.0):
        eps = np.minimum(room * share.eps, np.maximum(min(room, 1.3) * share.eps, LITTLE * width))
        try:
            found = ranges(cutting, box, eps)
        except Unbounded:
            continue
        pairs = enumerate(zip(found.boxes, found.rho, strict=True))
        return [b if k in found.rough else Interval(_down(b.lo - 2.0 * rho), _up(b.hi + 2.0 * rho)) for k, (b, rho) in pairs]
    return list(share.ranges.boxes)


def _down(x: Array) -> Array:
    return np.nextafter(x, -np.inf)


def _up(x: Array) -> Array:
    return np.nextafter(x, np.inf)


def covers(head: Made, low: Array, high: Array) -> bool:
    """Whether the box of a head contains a box of its node."""
    pairs = zip(head.asked.low, head.asked.high, head.asked.scales, low, high, strict=True)
    return all(math.ldexp(a, s) <= x and y <= math.ldexp(b, s) for a, b, s, x, y in pairs)


def prove(cutting: Cutting, box: Box, heads: Sequence[Made]) -> Proof | None:
    """The theorem for these heads; None where a head's box is too small."""
    return proved(cutting, box, heads, np.array([one.beta for one in heads]))


def proved(cutting: Cutting, box: Box, heads: Sequence[Made], errors: Array) -> Proof | None:
    """The same for heads with these errors."""
    cutting = cutting.folded([one.folds for one in heads])
    eps = errors * (1.0 + 1e-9)
    for _ in range(8):
        found = ranges(cutting, box, eps)
        betas = np.array([found.beta(k, float(one)) for k, one in enumerate(errors)])
        needed = (betas + found.lost) * UP
        if (needed <= eps).all():
            inside = (covers(one, b.lo, b.hi) for one, b in zip(heads, found.boxes, strict=True))
            rough = ((heads[k].asked, found.boxes[k]) for k in found.rough)
            same = (one.low == tuple(b.lo) and one.high == tuple(b.hi) for one, b in rough)
            return Proof(needed, betas, found, found.rounding(box.low, box.high)) if all(inside) and all(same) else None
        eps = np.maximum(eps, needed) * (1.0 + 1e-9)
    return None
