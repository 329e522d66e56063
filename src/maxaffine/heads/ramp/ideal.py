"""What a sum of ideal ramp heads errs by, and what wrong logits do to it, anywhere on the line.

e_k(z), the error of head k in its own steps, lies in its own cell in [-profile(p - t), profile(t)], to the left of it in
[0, tail], to the right in [-tail, 0] (ramp/constants.py).  The maximum of |sum height_k e_k| is taken over half cells; the own
head and the neighbour beyond the nearer knot are followed together (`meeting`).

Weights off by e^{+-eta} move head k by at most (e^{2 eta} - 1) sum w |v - head|, in its own cell at most `spread` steps,
elsewhere twice its tail.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.ramp.constants import corner, cut, far_sum, kappa, meeting, spread

UP = 1.0 + 1e-12
Follow = Callable[[float, Array, Array], Array]  # `meeting`, or an estimate of it


@dataclass(frozen=True)
class Ramps:
    """Heads k = 0..K-1 on cells side by side, with p_k steps of height C_k/p_k; eta bounds what is wrong with their logits."""

    low: Array
    high: Array
    p: Array
    height: Array
    eta: Array


def ideal_error(ramps: Ramps, rho: float, follow: Follow = meeting) -> tuple[float, float]:
    """max over half cells of what the ideal heads err by in all, and of what wrong logits do to them."""
    K, middle = len(ramps.p), ramps.low + (ramps.high - ramps.low) / 2.0
    step = (ramps.high - ramps.low) / ramps.p
    starts, ends = np.concatenate([ramps.low, middle]), np.concatenate([middle, ramps.high])  # 2K half cells
    before = np.maximum(ramps.low[None] - ends[:, None], 0.0) / step * (1 - 1e-12)  # (2K, K): to the left of head k
    after = np.maximum(starts[:, None] - ramps.high[None], 0.0) / step * (1 - 1e-12)
    tail = np.minimum(corner(rho), far_sum(rho) * np.exp(-rho * np.maximum(before, after)))
    rows, own = np.arange(2 * K), np.concatenate([np.arange(K)] * 2)
    # heads to the right of the half cell err in [0, tail], those to the left in [-tail, 0], times C_k/p_k
    side = np.where(ramps.low[None] >= ends[:, None], 1.0, -1.0)
    above, below = np.maximum(side * ramps.height, 0.0) * tail, np.maximum(-side * ramps.height, 0.0) * tail
    shake = np.expm1(np.minimum(2.0 * ramps.eta, 50.0))[None] * np.abs(ramps.height) * 2.0 * tail
    near = np.concatenate([np.arange(K) - 1, np.arange(K) + 1])  # beyond the nearer knot
    here = (near >= 0) & (near < K)
    for table in (above, below):
        table[rows, own] = 0.0
        table[rows[here], near[here]] = 0.0
    shake[rows, own] = np.expm1(np.minimum(2.0 * ramps.eta[own], 50.0)) * np.abs(ramps.height[own]) * spread(rho)
    total = np.maximum(above.sum(axis=1), below.sum(axis=1)) + _pair(ramps, own, np.where(here, near, -1), rho, follow)
    return float(total.max()) * UP, float(shake.sum(axis=1).max()) * UP


def _pair(ramps: Ramps, own: Array, near: Array, rho: float, follow: Follow) -> Array:
    """Of every half cell what its own head and the neighbour beyond its nearer knot (-1: none) err by together.

    Sites beyond the far end of either are missing, which moves a mean by `cut` at most.
    """
    width = (ramps.high - ramps.low) / ramps.p
    mine, other = ramps.height[own], np.where(near < 0, 0.0, ramps.height[near])
    ratio = width[own] / width[near]
    cuts = {p: (cut(rho, p / 2.0), cut(rho, p)) for p in set(ramps.p.tolist())}
    lost = np.array([cuts[p][0] for p in ramps.p[own].tolist()]) * np.abs(mine)
    lost += np.array([cuts[p][1] for p in ramps.p[near].tolist()]) * np.abs(other)
    crude = np.abs(mine) * kappa(rho) + np.abs(other) * corner(rho)
    share = np.divide(other, mine, out=np.zeros_like(other), where=mine != 0)
    some = (mine != 0) & (other != 0) & (np.abs(share) < 100.0) & (ratio < 100.0)
    found = crude.copy()
    found[some] = np.abs(mine[some]) * follow(rho, share[some], ratio[some]) + lost[some]
    return np.asarray(np.minimum(found, crude))
