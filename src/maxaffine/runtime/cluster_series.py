"""The head of one cluster on a box of its coordinates, collapsed to a Chebyshev series with a proved error.

The cluster is written anew in coordinates y in [-1, 1] of the box, z = middle + half y, where it is a group of product keys; what
rounding its numbers there moves is part of the error.
"""

import math

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64
from maxaffine.layer.clusters import Cluster
from maxaffine.layer.grouped import Group
from maxaffine.layer.keys import AxisKeys
from maxaffine.runtime.collapse import CollapsedGroup, listed_head

LOOSER = tuple(8.0**i for i in range(8))  # times what a series may be off by: tried in this order


def series_of(cluster: Cluster, middle: Array, half: Array, tolerance: float) -> tuple[CollapsedGroup, float]:
    """The series near `tolerance`, and sup |head - series| on the box; Refused where the head is too steep there."""
    E = len(middle)
    first, lean = (middle - cluster.origin) / cluster.radius, half / cluster.radius
    values = cluster.values.astype(np.float64)
    tilts = np.zeros((*values.shape, E)) if cluster.slopes is None else cluster.slopes.astype(np.float64)
    keys, logit = [], 1.0
    for e, axis in enumerate(cluster.axes):
        slopes, offsets = axis.slopes.astype(np.float64), axis.offsets.astype(np.float64)
        keys.append(AxisKeys(slopes * lean[e], offsets + slopes * first[e]))
        logit += float((np.abs(slopes) * (abs(first[e]) + lean[e]) + np.abs(offsets)).max())
    moved = Group(np.eye(E), tuple(keys), values=values + tilts @ first, slopes=tilts * lean)
    found = _collapsed(moved, tolerance)
    size = float((np.abs(values) + np.abs(tilts) @ (np.abs(first) + lean)).max())
    doubt = (2.0 * math.expm1(16.0 * FLOAT64.unit * logit) + 8.0 * FLOAT64.unit) * size
    return found, found.error + doubt


def _collapsed(group: Group, tolerance: float) -> CollapsedGroup:
    """The collapse within the least tolerance that rounding allows."""
    for looser in LOOSER[:-1]:
        try:
            return listed_head(group, looser * tolerance, "chebyshev")
        except Refused:
            continue
    return listed_head(group, LOOSER[-1] * tolerance, "chebyshev")


def most_said(cluster: Cluster, low: Array, high: Array) -> float:
    """A bound of the cluster's head anywhere on the box, whichever cluster answers there."""
    t = np.maximum(np.abs(low - cluster.origin), np.abs(high - cluster.origin)) / cluster.radius
    tilt = 0.0 if cluster.slopes is None else float((np.abs(cluster.slopes.astype(np.float64)) @ t).max())
    return float(np.abs(cluster.values.astype(np.float64)).max()) + tilt
