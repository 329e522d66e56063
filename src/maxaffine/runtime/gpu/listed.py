"""A group of few clusters of one token each, all of whose scores stay in registers: what the kernel reads, and its bound.

    F = sum_j w_j v_j,      w the softmax of s_j = a_j . z + b_j,      v_j = c_j + g_j . z

Scores off by eta move F by at most 2 kappa eta, where |v_j - f| <= eps + kappa (max s - s_j) is known for every token, and by
(e^{2 eta} - 1) 2 sup sum_j w_j |v_j - f| at most.  Of two tokens nothing has to be known: v_2 - v_1 = rho (s_2 - s_1) + tau, and
eta moves F by at most 2 eta (|tau| / 4 + .2240 |rho|) e^{2 eta}, or by |tau| + |rho| (2 eta + 1).
"""

import math
from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import dtype_of, gamma
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.runtime.gpu import rounding
from maxaffine.runtime.segments import SOFT

MOST_TOKENS = 48
IN_CODE = 24  # tokens whose numbers are written into the code
EXP = 24.0  # units that an exponential, its sums and the quotient lose


@dataclass(frozen=True)
class Heard:
    """What a proof knows of a group of clusters: sup sum_k Omega_k |p_k - f|, and kappa as above (infinite: not known).

    A bound of the first over all clusters, those that are far away included.
    """

    blend: float
    kappa: float = math.inf


@dataclass(frozen=True)
class Listed:
    """Tokens in z: rows (E, D) of M, scores a (C, E) and b (C,), values c (C,) and g (C, E), and what the kernel is off by."""

    rows: Array
    slopes: Array
    offsets: Array
    values: Array
    tilts: Array
    scored: float
    evaluated: float
    moved: float
    size: float

    @property
    def numbers(self) -> Array:
        """Token after token: b, a, c, g."""
        columns = (self.offsets[:, None], self.slopes, self.values[:, None], self.tilts)
        return np.concatenate(columns, axis=1).ravel()


def listed(group: ClusterGroup, centre: Array, reach: Array, dtype: str, heard: Heard | None) -> Listed:
    """The tokens of a group; Refused where they are too many, or nothing is known of what their scores do."""
    C, E = len(group.clusters), len(group.matrix)
    if C > MOST_TOKENS or E > 3 or group.outputs != 1 or any(cluster.count != 1 for cluster in group.clusters):
        raise Refused(f"its clusters are not up to {MOST_TOKENS} single tokens of up to three directions.")
    slopes, offsets = group.listed()
    values, tilts = (part[:, 0] for part in group.listed_values())
    # the softmax is blind to what all scores have in common
    middle, level = (slopes.max(axis=0) + slopes.min(axis=0)) / 2.0, (offsets.max() + offsets.min()) / 2.0
    slopes, offsets = slopes - middle, offsets - level
    unit, span = dtype_of(dtype).unit, np.abs(group.matrix) @ reach
    large = float((np.abs(slopes) @ span + np.abs(offsets)).max())
    eta = gamma(E + 2, unit) * large + 16.0 * 2.0**-53 * (large + float(np.abs(middle) @ span) + abs(level))
    size = float((np.abs(values) + np.abs(tilts) @ span).max())
    scored, blend = _scored(slopes, offsets, values, tilts, span, eta, heard)
    evaluated = gamma(E + 2, unit) * size + (EXP + 2.0 * C) * unit * (2.0 * size)
    each = np.array([rounding.coordinate(row, centre, reach, unit) for row in group.matrix])
    steep = 2.0 * blend * np.ptp(slopes, axis=0) + np.abs(tilts).max(axis=0)
    return Listed(group.matrix, slopes, offsets, values, tilts, scored, evaluated, float(each @ steep), size)


def _scored(
    slopes: Array, offsets: Array, values: Array, tilts: Array, span: Array, eta: float, heard: Heard | None
) -> tuple[float, float]:
    """What scores off by eta cost, and a bound of sum_j w_j |v_j - F|."""
    found = []
    if len(slopes) == 2:
        d, D = slopes[1] - slopes[0], tilts[1] - tilts[0]
        rho = float(d @ D / max(float(d @ d), 1e-300))
        left = D - rho * d
        tau = abs(float(values[1] - values[0] - rho * (offsets[1] - offsets[0]))) + float(np.abs(left) @ span)
        heard_by = tau / 4.0 + SOFT * abs(rho)
        near = 2.0 * eta * heard_by * math.exp(min(2.0 * eta, 40.0))
        found.append((min(near, tau + abs(rho) * (2.0 * eta + 1.0)), 2.0 * heard_by))
    if heard is not None:
        by_blend = math.expm1(2.0 * eta) * 2.0 * heard.blend if eta < 1.0 else math.inf
        found.append((min(by_blend, 2.0 * heard.kappa * eta), 2.0 * heard.blend))
    cost, blend = min(found, default=(math.inf, math.inf))
    if not math.isfinite(cost):
        raise Refused("the kernel's rounding of its scores is not bounded.")
    return cost * (1 + 1e-9), blend
