"""L_p certificates of single-token clusters for targets that may jump: boxes, with what every token may say on them.

    |F - f| <= sum_k Omega_k |v_k - f|         at every x,

and on a box Q, l the best token at its middle, Omega_k <= exp(max over Q of S_k - S_l), all scores being affine.  So |F - f| is
at most the largest |v_k - f|, and at most the sum of those bounds; f is enclosed on Q, both sides of a jump where one may cross
it.  Boxes are halved where the bound exceeds what the middle says.  No convexity is assumed, and no quadrature: boxes that a
jump or a switch crosses count in full.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from maxaffine.core import boxes
from maxaffine.core.arrays import Array
from maxaffine.core.boxes import Index
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64
from maxaffine.core.scope import Scope
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.assumptions import ELEMENTARY, EXPONENTIAL, LOGARITHM
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.combine import output_rounding
from maxaffine.proofs.literal_form import ProvedBlend
from maxaffine.proofs.two_level import GroupErrors
from maxaffine.target.target import Target

THEOREM = "box by box: the largest weight of every token times its largest distance from the target, to the power p, added up"
BOXES = 6_000_000
CHUNK = 20_000
ROUNDS = 80
LATE, SURELY = 1.5, 1.05  # doublings before the last box from which on it is foreseen, and by how much, that the aim is missed
FIRST = 7  # halvings before tokens are left out
QUIET = 60.0  # a token trailing by this is left out on a box and on its parts


def certify_level_sets(layer: GroupedLayer, target: Target, p: float, error: float, runtime: str = "two-level") -> Certificate:
    """Prove an L_p bound; the boxes are refined until it is at most `error` or their number is spent."""
    (group,) = layer.groups
    if not group.clustered or target.expression is None or target.n_out != 1 or layer.tilt is not None:
        raise Refused("level sets are proved for expressions with one output token.")
    if any(cluster.count != 1 or np.any(cluster.slopes) for cluster in group.clusters):
        raise Refused("level sets are proved for clusters of one token with a constant value.")
    if any(np.any(axis.slopes) or np.any(axis.offsets) for cluster in group.clusters for axis in cluster.axes):
        raise Refused("level sets are proved for tokens whose scores are those of their sites alone.")
    if np.count_nonzero(group.matrix - np.diag(np.diag(group.matrix))):
        raise Refused("level sets are proved on scaled variables.")
    errors = GroupErrors.of(layer, group)
    eta, size = errors.scores, errors.largest
    if not eta < 1.0:
        raise Refused(f"the scores are uncertain by {eta:.3g} in {layer.dtype}.")
    volume = float(np.prod(layer.high - layer.low)) ** (1.0 / p) * (1 + 1e-12)
    lost = errors.head + errors.sums(size) + output_rounding(layer, size)
    total, count = integral(layer, group, target, p, error * 0.995 - volume * lost, 2.0 * eta)
    return Certificate.proved(
        p, {"approximation": total, "rounding": volume * lost}, argument="level sets", theorem=THEOREM, dtype=layer.dtype,
        runtime=runtime, assumptions=(EXPONENTIAL, ELEMENTARY, LOGARITHM),
        scope=Scope("integral"),
        details={"clusters": float(errors.count), "boxes": float(count), "score_error": eta},
        blends=(ProvedBlend(2.0 * size, size),),  # at a jump all that tokens say
    )  # fmt: skip


@dataclass(frozen=True)
class _Tokens:
    """Scores slopes . (x - centre) + offsets and values (C, K) of the tokens, with scores off by `blur`."""

    centre: Array
    slopes: Array  # (C, D) in x
    offsets: Array
    values: Array
    blur: float

    @classmethod
    def of(cls, layer: GroupedLayer, group: ClusterGroup, blur: float) -> _Tokens:
        """In float64, what rounding does to these sums added to the blur."""
        values = np.stack([c.values.astype(np.float64).reshape(-1) for c in group.clusters])
        slopes = group.site_slopes.astype(np.float64) * np.diag(group.matrix)
        offsets = group.site_offsets.astype(np.float64)
        reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low)
        uncertainty = 16.0 * FLOAT64.unit * (len(reach) + 4) * float((np.abs(slopes) @ reach + np.abs(offsets)).max())
        return cls(layer.centre, slopes, offsets, values, blur + uncertainty)

    def trails(self, low: Array, high: Array, who: Index) -> tuple[Array, Array]:
        """Upper bounds (B, M) over the boxes of S_k - S_l, k of `who` (B, M) and l the best of them at the middle; and l."""
        middle, half = (low + high) / 2.0, (high - low) / 2.0 * (1 + 1e-12)
        slopes = self.slopes[who]  # (B, M, D)
        scores = self.offsets[who]
        for d in range(slopes.shape[2]):
            scores = scores + (middle[:, d] - self.centre[d])[:, None] * slopes[:, :, d]
        best = scores.argmax(axis=1)
        rows = np.arange(len(low))
        swing = np.zeros(scores.shape)
        for d in range(slopes.shape[2]):
            swing += np.abs(slopes[:, :, d] - slopes[rows, best, d][:, None]) * half[:, d, None]
        swing *= 1 + 1e-12
        return scores - scores[rows, best][:, None] + swing + self.blur, best


def integral(layer: GroupedLayer, group: ClusterGroup, target: Target, p: float, goal: float, blur: float) -> tuple[float, int]:
    """An upper bound of ||F - f||_p with scores off by `blur`, and the boxes it took."""
    tokens = _Tokens.of(layer, group, blur)
    low, high = layer.low[None], layer.high[None]
    for _ in range(FIRST):
        low, high = boxes.halve_all(low, high)
    who, tail = _audible(tokens, low, high)
    aim = max(goal, 0.0) ** p

    def measure(low: Array, high: Array, who: Index) -> tuple[Array, Array]:
        return _bounds(tokens, target, low, high, who, p, tail)

    seen: list[tuple[float, float]] = []

    def enough(upper: Array, lower: Array, spent: int) -> bool:
        seen.append((math.log2(spent), float(upper[0])))
        return bool(upper[0] * (1 + 1e-9) <= aim or lower[0] > aim or not goal > 0.0 or _too_slow(seen, aim))

    found, spent = boxes.integral(
        low, high, who, measure, enough, budget=BOXES, rounds=ROUNDS, share=0.8, settled=1e-4 * aim, most=BOXES
    )
    total = float(found[0]) * (1 + 1e-9)
    return total ** (1.0 / p) * (1 + 1e-12) if math.isfinite(total) else math.inf, spent


def _too_slow(seen: list[tuple[float, float]], aim: float) -> bool:
    """Whether bounds (log2 of the boxes, bound) that go on falling by the same share per doubling stay above the aim."""
    now, bound = seen[-1]
    left = math.log2(BOXES) - now
    if left > LATE:
        return False
    counts, bounds = np.array(seen).T
    quarter, half = (float(np.interp(now - back, counts, bounds)) for back in (2.0, 1.0))
    before, last = quarter - half, half - bound
    if not 0.0 < last < before < math.inf:
        return False
    rate = last / before
    return bool(bound - last * rate * (1.0 - rate**left) / (1.0 - rate) > SURELY * aim)


def _audible(tokens: _Tokens, low: Array, high: Array) -> tuple[Index, float]:
    """The tokens (B, M) that may have a mass above e^-QUIET on a box; and the mass of all others."""
    C = len(tokens.offsets)
    everyone = np.arange(C)
    rows = []
    for start in range(0, len(low), CHUNK // 8):
        a, b = low[start : start + CHUNK // 8], high[start : start + CHUNK // 8]
        trail, _ = tokens.trails(a, b, np.broadcast_to(everyone, (len(a), C)))
        rows.append(trail)
    trail = np.concatenate(rows)
    most = int((trail > -QUIET).sum(axis=1).max())
    return np.argsort(-trail, axis=1)[:, :most], C * math.exp(-QUIET)


def _bounds(tokens: _Tokens, target: Target, low: Array, high: Array, who: Index, p: float, tail: float) -> tuple[Array, Array]:
    """Upper bounds of the integral of |F - f|^p over boxes of x, and a guess of it that guides the refinement."""
    uppers, floors = [], []
    span = float(np.abs(tokens.values).max())
    for start in range(0, len(low), CHUNK):
        part = slice(start, start + CHUNK)
        a, b, here = low[part], high[part], who[part]
        f = target.enclose(a, b)
        trail, best = tokens.trails(a, b, here)
        mass = np.exp(np.minimum(trail, 0.0)) * (1 + 1e-12)
        volume = np.prod(b - a, axis=1) * (1 + 1e-12)
        most, least = np.zeros(len(a)), np.zeros(len(a))
        for k in range(tokens.values.shape[1]):
            values, lo, hi = tokens.values[here, k], f.lo[:, k, 0][:, None], f.hi[:, k, 0][:, None]
            far = np.maximum(hi - values, values - lo)  # (B, M)
            others = tail * (span + np.maximum(np.abs(lo[:, 0]), np.abs(hi[:, 0])))
            most = np.maximum(most, (np.minimum(far.max(axis=1), (mass * far).sum(axis=1)) + others) * (1 + 1e-12))
            near = np.maximum(0.0, np.maximum(lo - values, values - hi))
            alone = np.maximum(0.0, 2.0 - mass.sum(axis=1))  # the best token's own mass is about one
            least = np.maximum(least, near[np.arange(len(a)), best] * np.minimum(alone, 1.0))
        with np.errstate(invalid="ignore", over="ignore"):
            upper = np.where(volume > 0, volume * most**p, 0.0)
        upper = np.where(np.isnan(upper), math.inf, upper)
        uppers.append(upper)
        floors.append(np.minimum(volume * least**p, upper))
    return np.concatenate(uppers)[:, None], np.concatenate(floors)[:, None]
