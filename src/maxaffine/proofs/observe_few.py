"""Observed errors of callables whose evaluations are dear: few points, chosen with the help of an interpolant where there is one.

Searching and climbing go by the interpolant, which costs nothing; the function itself is asked at the worst of those points, and
at as many spread over the box, its faces and the layer's switches, where the interpolant may have missed something.
"""

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.layer.side_by_side import AnyLayer
from maxaffine.proofs.observe import FEWEST_POINTS, FLOPS, Evaluate, Observed, climb, face_biased
from maxaffine.target.calls import Calls
from maxaffine.target.interpolant import Interpolant
from maxaffine.target.target import Target

ASKED = 1_500  # points of the function, where no limit says less
WORST = 0.25  # of them where the interpolant says that the error is largest
SEARCHED = 8_000  # points of the interpolant
CLIMBERS, ROUNDS = 24, 12
SHARE = 0.8  # of the calls left that one look may take, as it may not be the last


def observe_few(
    evaluate: Evaluate, target: Target, layer: AnyLayer, seed: int, flops: int, calls: Calls,
    interpolant: Interpolant | None = None,
) -> Observed:  # fmt: skip
    """The largest error of a layer at some hundred points of a callable; what was kept back is for this."""
    held, calls.held = calls.held, 0
    most = ASKED if calls.left is None else min(ASKED, max(1, int(SHARE * calls.left)))
    most = min(most, max(FEWEST_POINTS, int(FLOPS / max(flops, 1))))
    rng = np.random.default_rng(seed)
    x = face_biased(layer, most, rng)
    if interpolant is not None:
        worst = _where_worst(evaluate, interpolant, layer, flops, rng)[: max(1, int(WORST * most))]
        x = np.concatenate([worst, x[: most - len(worst)]])
    errors = np.abs(evaluate(x).astype(np.float64) - target.values(x)).max(axis=(1, 2))
    errors = np.where(np.isfinite(errors), errors, np.inf)
    calls.held = min(held, calls.most - calls.count) if calls.most is not None else 0
    top = int(errors.argmax())
    return Observed(float(errors[top]), tuple(float(v) for v in x[top]), len(x), seed)


def _where_worst(
    evaluate: Evaluate, interpolant: Interpolant, layer: AnyLayer, flops: int, rng: np.random.Generator
) -> Array:
    """Points in falling order of the distance between layer and interpolant, those that climbed first."""

    def away(x: Array) -> Array:
        return np.asarray(np.abs(evaluate(x).astype(np.float64) - interpolant(x)).max(axis=(1, 2)))

    x = face_biased(layer, int(np.clip(FLOPS / max(flops, 1), FEWEST_POINTS, SEARCHED)), rng)
    errors = away(x)
    order = np.argsort(-np.nan_to_num(errors, nan=np.inf), kind="stable")
    climbers, heights, _ = climb(away, layer, x[order[:CLIMBERS]], errors[order[:CLIMBERS]], ROUNDS, rng)
    return np.concatenate([climbers[np.argsort(-heights)], x[order]])
