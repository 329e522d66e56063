"""How far a layer that was fitted to a callable is off: at fresh points like those of the fit, and by the general search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.heads.found import Found, search_worst
from maxaffine.heads.separated.points import climbed, spread
from maxaffine.proofs.observe import Observed
from maxaffine.request import Request
from maxaffine.runtime import chooser
from maxaffine.target.calls import Calls

FRESH = 6_000
STEPS = 8  # rounds of climbing
CLIMBED = 16 * 6 * STEPS  # points that they ask for


def look(request: Request, found: Found) -> Observed:
    """The larger of both errors, and all points."""
    calls, box = request.target.calls, request.target.box
    left = calls.left if isinstance(calls, Calls) else None
    count = FRESH if left is None else min(FRESH, left // 3)
    rng = np.random.default_rng([request.seed, 101])
    z = spread(count, box.dimension, rng)

    def away(z: Array) -> Array:
        x = _inside(request, z)
        errors = np.abs(chooser.evaluate(found.layer, x).astype(np.float64) - request.target.values(x))
        return np.asarray(np.nan_to_num(errors[:, 0, 0], nan=np.inf))

    errors, points = away(z), count
    if left is None or left - count > 4 * CLIMBED:
        z, errors = climbed(away, z, errors, rng, STEPS)
        points += CLIMBED
    top = int(errors.argmax())
    own = Observed(float(errors[top]), tuple(float(v) for v in _inside(request, z[top : top + 1])[0]), points, request.seed)
    general = search_worst(request, found)
    return replace(max(own, general, key=lambda one: one.error), points=points + general.points)


def _inside(request: Request, z: Array) -> Array:
    """Points of the box from z in [-1, 1]^D."""
    box = request.target.box
    return np.asarray(np.clip((box.low + box.high) / 2.0 + z * (box.width / 2.0), box.low, box.high))
