"""Which clusters answer where: a proof that outside its own box a cluster has no say.

    S_k(z) = site_k(z) + sum_e logsumexp_j(alpha_kej t_e + beta_kej)         (convex)

On a box Q let l be the best cluster at its centre.  S_l lies above its tangent there, and S_k minus that tangent is convex, so
that it is largest at a corner of Q: cluster k trails by some margin on all of Q if it does so at the 2^D corners.  Boxes are
halved until every cluster that does not trail holds Q in its own box |t| <= 1.  The margin is gap + log(size of what k says on
Q): what the trailing clusters contribute is then at most C e^-gap in all, wherever a steep piece of a small cluster leads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.boxes import Index, halve, mesh
from maxaffine.core.errors import Refused
from maxaffine.layer.clusters import ClusterGroup

MOST_BOXES = {2: 1_500_000}  # by variables; a tree of 20,000 tokens takes a million
MOST_BOXES_ELSE = 400_000
DEEPEST = 80
OUTSIDE = "clusters answer outside the boxes that their pieces were made for."


class TooManyBoxes(Refused):
    """The boxes that a covering may take are used up: more clusters take more of them."""


@dataclass(frozen=True)
class Scores:
    """The clusters' scores as arrays: sites, local coordinates, and keys padded to one length."""

    site_slopes: Array  # (C, E)
    site_offsets: Array  # (C,)
    origin: Array  # (C, E)
    radius: Array  # (C, E)
    slopes: Array  # (C, E, p)
    offsets: Array  # (C, E, p), -inf where there is no key
    level: Array  # (C,), largest |c| of a cluster
    lean: Array  # (C, E), largest |G| of a cluster

    @classmethod
    def of(cls, group: ClusterGroup) -> Scores:
        """In float64."""
        C, E = group.site_slopes.shape
        longest = max(max(cluster.shape) for cluster in group.clusters)
        slopes, offsets = np.zeros((C, E, longest)), np.full((C, E, longest), -np.inf)
        for k, cluster in enumerate(group.clusters):
            for e, axis in enumerate(cluster.axes):
                slopes[k, e, : len(axis)], offsets[k, e, : len(axis)] = axis.slopes, axis.offsets
        origin, radius = np.stack([c.origin for c in group.clusters]), np.stack([c.radius for c in group.clusters])
        level = np.array([float(np.abs(c.values.astype(np.float64)).max()) for c in group.clusters])
        lean = np.stack([
            np.zeros(E) if c.slopes is None else np.abs(c.slopes.astype(np.float64)).reshape(-1, E).max(axis=0)
            for c in group.clusters
        ])  # fmt: skip
        sites = group.site_slopes.astype(np.float64), group.site_offsets.astype(np.float64)
        return cls(*sites, origin, radius, slopes, offsets, level, lean)

    @property
    def largest(self) -> float:
        """A bound of |p_k| on the cluster's own box, |t| <= 1 and a little, for all k."""
        return float((self.level + 1.01 * self.lean.sum(axis=1)).max()) * (1 + 1e-9)

    def size(self, k: Index, low: Array, high: Array) -> Array:
        """Bounds of |p_k| on boxes low..high of z."""
        t = np.maximum(np.abs(high - self.origin[k]), np.abs(self.origin[k] - low)) / self.radius[k]
        return np.asarray((self.level[k] + (self.lean[k] * t).sum(axis=1)) * (1 + 1e-9))

    def at(self, k: Index, z: Array) -> tuple[Array, Array]:
        """S_k(z) and its gradient for pairs (P,), (P, E)."""
        t = (z - self.origin[k]) / self.radius[k]
        logits = t[:, :, None] * self.slopes[k] + self.offsets[k]
        top = logits.max(axis=2, keepdims=True)
        weights = np.exp(logits - top)
        total = weights.sum(axis=2)
        inner = (weights * self.slopes[k]).sum(axis=2) / total
        value = (self.site_slopes[k] * z).sum(axis=1) + self.site_offsets[k] + (top[:, :, 0] + np.log(total)).sum(axis=1)
        return value, self.site_slopes[k] + inner / self.radius[k]

    def own(self, k: Index, z: Array) -> Array:
        """The log-sum-exps of the keys along every axis, for pairs: (P, E); `summed` adds the site's."""
        t = (z - self.origin[k]) / self.radius[k]
        logits = t[:, :, None] * self.slopes[k] + self.offsets[k]
        top = logits.max(axis=2)
        np.exp(np.subtract(logits, top[:, :, None], out=logits), out=logits)
        return np.asarray(top + np.log(logits.sum(axis=2)))

    def summed(self, k: Index, z: Array, own: Array) -> Array:
        """S_k(z) (P,) from what `own` says."""
        return np.asarray((self.site_slopes[k] * z).sum(axis=1) + self.site_offsets[k] + own.sum(axis=1))

    def rounding(self) -> float:
        """A bound of what float64 does to a score and to a tangent over the box, |z| <= 1 and a little."""
        finite = np.where(np.isfinite(self.offsets), np.abs(self.offsets), 0.0).max(axis=2)
        reach = (1.01 + np.abs(self.origin)) / self.radius
        local = (finite + np.abs(self.slopes).max(axis=2) * reach * 2.0 + 4.0).sum(axis=1)
        size = 2.02 * np.abs(self.site_slopes).sum(axis=1) + np.abs(self.site_offsets) + local
        terms = 3 * self.slopes.shape[1] + self.slopes.shape[2] + 12
        return float(size.max()) * 2.0**-51 * float(terms)


def cover(scores: Scores, gap: float, target: float, reach: float = 1.0 + 2.0**-45) -> int:
    """Prove that at every z, |z| <= reach, a cluster holds z in its box or S_k + log(|p_k| + target) <= max S - gap.

    The number of boxes it took, or Refused; `target` is a bound of |f|.
    """
    C, E = scores.site_slopes.shape
    margin = gap + 2.0 * scores.rounding() + 1e-9
    low, high = np.full((1, E), -reach), np.full((1, E), reach)
    box, cluster = np.zeros(C, dtype=np.intp), np.arange(C)
    corners = mesh([np.array([False, True])] * E)
    inner = scores.radius * (1.0 - 2.0**-48)
    done, most = 0, MOST_BOXES.get(E, MOST_BOXES_ELSE)
    for _ in range(DEEPEST):
        if not len(low):
            return done
        done += len(low)
        if done > most:
            raise TooManyBoxes(f"the clusters' own boxes were not told apart with {most:,} boxes.")
        middle = (low + high) / 2.0
        value, slope = scores.at(cluster, middle[box])
        best = _best(box, value, len(low))
        here = margin + np.log(scores.size(cluster, middle[box], middle[box]) + target)
        beyond = np.any(np.abs(middle[box] - scores.origin[cluster]) > inner[cluster], axis=1)
        if np.any(beyond & (value > value[best][box] - here)):  # no smaller box around this middle would say otherwise
            raise Refused(OUTSIDE)
        alive = np.zeros(len(box), dtype=bool)
        need = margin + np.log(scores.size(cluster, low[box], high[box]) + target)
        left, right = low[box], high[box]
        at_left, at_right = scores.own(cluster, left), scores.own(cluster, right)
        for corner in corners:  # a corner has one of two places along every axis
            tangent = value[best] + (slope[best] * (np.where(corner, high, low) - middle)).sum(axis=1)
            z, own = np.where(corner, right, left), np.where(corner, at_right, at_left)
            alive |= scores.summed(cluster, z, own) > tangent[box] - need
        box, cluster = box[alive], cluster[alive]
        held = np.all((high[box] - scores.origin[cluster] <= inner[cluster])
                      & (scores.origin[cluster] - low[box] <= inner[cluster]), axis=1)  # fmt: skip
        open_boxes = np.zeros(len(low), dtype=bool)
        open_boxes[box[~held]] = True
        low, high, box, cluster = _halve(low, high, open_boxes, box, cluster)
    raise Refused(OUTSIDE)


def _best(box: Index, value: Array, count: int) -> Index:
    """For every box the place of its best pair; pairs are sorted by box and every box has one."""
    order = np.lexsort((value, box))
    last = np.searchsorted(box[order], np.arange(count), side="right") - 1
    return np.asarray(order[last])


def _halve(
    low: Array, high: Array, open_boxes: NDArray[np.bool_], box: Index, cluster: Index
) -> tuple[Array, Array, Index, Index]:
    """The open boxes cut in two along their longest side, each half with its box's clusters."""
    chosen = np.flatnonzero(open_boxes)
    number = np.full(len(low), -1, dtype=np.intp)
    number[chosen] = np.arange(len(chosen))
    keep = open_boxes[box]
    box, cluster = number[box[keep]], cluster[keep]
    low, high = halve(low[chosen], high[chosen])
    boxes = np.concatenate([box, box + len(chosen)])
    clusters = np.concatenate([cluster, cluster])
    order = np.argsort(boxes, kind="stable")
    return low, high, boxes[order], clusters[order]
