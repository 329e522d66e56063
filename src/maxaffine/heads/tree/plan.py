"""Trees of cells: clusters on a 2^D-tree, each a local piece with affine values, side by side as a power diagram.

    score of cell k at z:   R (m_k . y - (|m_k|^2 - alpha r_k^2) / 2),    y = z / a,    alpha = (D + 2) / 3

m_k and r_k are centre and half width of the cell in y.  The weights alpha r^2 put the faces between cells of different size
where the tree has them, to first order; neighbours, corners included, differ by at most one level.  A cell's piece is fitted on
the box around all points where its score comes within `gap` of the best one, which the certificate proves.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.core import closest
from maxaffine.core.arrays import Array
from maxaffine.heads.assemble import layer_of
from maxaffine.heads.fitting import Function
from maxaffine.heads.tree.fit import MOST, LocalFitter, Piece
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.target.target import Target

Place = tuple[int, ...]  # level, then the cell's number per axis

DEEPEST = {1: 24, 2: 18, 3: 8}
OVERLAP = 0.02  # of the smallest half width: how far neighbours blend into each other
FIRST = 0.2  # by how much of its half width a cell is enlarged while the tree grows
ROUNDS = 6
MANY = 10_000  # tokens beyond which no other root is tried: that takes as long again
SAVED = 1.4  # times the tokens of the best root that another one has
HOPELESS = 3.0  # times the tokens allowed: a tree that grows looks at larger boxes than in the end, and may count as many
EDGE = 1.0 + 2.0**-40  # boxes of pieces reach a little beyond the box, so that no rounding of z leaves them


@dataclass(frozen=True)
class TreePlan:
    """Sites in z of [-1, 1]^D and, for every cluster, the box its piece is fitted on, and the piece."""

    low: Array  # (C, D) in z
    high: Array
    site_slopes: Array  # (C, D)
    site_offsets: Array  # (C,)
    pieces: tuple[Piece, ...]
    gap: float
    root: tuple[int, ...]

    @property
    def cells(self) -> int:
        """Key tokens in all."""
        return sum(piece.tokens for piece in self.pieces)

    def to_json(self) -> dict[str, Any]:
        """Plain data; the numbers themselves are the layer's."""
        return {"plan": "tree", "method": "tree", "clusters": len(self.pieces), "root": list(self.root), "gap": self.gap}


class Tree:
    """Leaves of a 2^D-tree over [-1, 1]^D whose root is cut into `root` cells per axis."""

    def __init__(self, root: tuple[int, ...], leaves: set[Place]) -> None:
        self.root, self.leaves = root, leaves

    def boxes(self, places: list[Place]) -> tuple[Array, Array]:
        """The cells as boxes in z."""
        index = np.array([place[1:] for place in places], dtype=np.float64).reshape(len(places), -1)
        level = np.array([place[0] for place in places])
        width = 2.0 / np.array(self.root) / 2.0 ** level[:, None]
        return -1.0 + index * width, -1.0 + (index + 1.0) * width

    @staticmethod
    def children(place: Place) -> list[Place]:
        """The 2^D halves."""
        corners = itertools.product((0, 1), repeat=len(place) - 1)
        return [(place[0] + 1, *(2 * i + c for i, c in zip(place[1:], corner, strict=True))) for corner in corners]

    def split(self, place: Place) -> None:
        """Put the halves in the place of a leaf."""
        self.leaves.remove(place)
        self.leaves.update(self.children(place))

    def balance(self) -> None:
        """Split leaves until neighbours, over faces, edges and corners, differ by at most one level."""
        queue = sorted(self.leaves, reverse=True)
        while queue:
            place = queue.pop(0)
            if place not in self.leaves:
                continue
            for shift in itertools.product((-1, 0, 1), repeat=len(self.root)):
                coarse = self._leaf_above((place[0], *(i + s for i, s in zip(place[1:], shift, strict=True))))
                if coarse is not None and coarse[0] < place[0] - 1:
                    self.split(coarse)
                    queue = [*self.children(coarse), place, *queue]

    def _leaf_above(self, place: Place) -> Place | None:
        """The leaf that contains a cell, if it is not cut further and inside the box."""
        level, index = place[0], place[1:]
        if any(not 0 <= i < n << level for i, n in zip(index, self.root, strict=True)):
            return None
        while level >= 0:
            if (level, *index) in self.leaves:
                return (level, *index)
            level, index = level - 1, tuple(i >> 1 for i in index)
        return None


def tree_plan(f: Function, dimension: int, error: float, size: float, dtype: str, most: int) -> TreePlan | None:
    """The plan of fewest tokens, at most `most`, for f on z (M, D) -> (M, K) with |f| <= size; None where there is none."""
    fitter = LocalFitter(f, dimension, error, dtype, size)
    best: TreePlan | None = None
    for root in _roots(dimension):
        tree = grow(fitter, root, HOPELESS * most)
        plan = None if tree is None else settle(fitter, tree, size, most)
        if plan is not None and plan.cells <= most:
            best, most = plan, plan.cells - 1
            if plan.cells > MANY:
                break
        elif best is None and (plan is None or plan.cells > SAVED * most):
            break  # another root would hardly save as much
    return best


def _roots(dimension: int) -> list[tuple[int, ...]]:
    """The box itself, and cut once or twice along one axis only where that is affordable."""
    unit = (1,) * dimension
    if dimension > 2:  # every further root costs as much again
        return [unit]
    return [unit] + [tuple(n if i == axis else 1 for i in range(dimension)) for axis in range(dimension) for n in (2, 3)]


def grow(fitter: LocalFitter, root: tuple[int, ...], most: float) -> Tree | None:
    """The tree of fewest tokens: a cell stays whole where its piece needs no more than its halves do together."""
    D = len(root)
    tree = Tree(root, set())
    costs: dict[Place, float] = {}
    inner: set[Place] = set()
    top: list[Place] = [(0, *index) for index in itertools.product(*(range(n) for n in root))]
    level = top
    patience = dict.fromkeys(level, 1)  # how often a cell that could stay whole is cut nevertheless
    while level:
        low, high = tree.boxes(level)
        reach = FIRST * (high - low) / 2.0
        found = fitter.pieces(np.maximum(low - reach, -1.0), np.minimum(high + reach, 1.0))
        below: list[Place] = []
        for place, piece in zip(level, found, strict=True):
            costs[place] = math.inf if piece is None else piece.tokens
            if piece is not None and (piece.tokens <= 2**D or patience[place] == 0):
                continue
            if place[0] >= DEEPEST[D]:
                continue
            inner.add(place)
            for child in tree.children(place):
                below.append(child)
                patience[child] = patience[place] if piece is None else patience[place] - 1
        if below:
            needed = sum(_least(tree, inner, costs)[place] for place in top)
            closest.covered(int(needed), 1.0 - found.count(None) / (math.prod(root) * 2.0 ** (D * level[0][0])))
            if needed > most:
                return None
        level = below
    least = _least(tree, inner, costs)
    inner = {place for place in inner if least[place] < costs[place]}
    costs = least
    if not sum(costs[place] for place in top) <= most:
        return None
    queue = top
    while queue:
        place = queue.pop()
        if place in inner:
            queue += tree.children(place)
        else:
            tree.leaves.add(place)
    tree.balance()
    return tree


def _least(tree: Tree, inner: set[Place], costs: dict[Place, float]) -> dict[Place, float]:
    """Tokens of every cell, whole or cut, whichever is less; cells not looked at yet count as few as they may have.

    Where all the keys that a piece may have did not do, a part of the cell needs a fair share of them.
    """
    least = dict(costs)
    for place in sorted(inner, key=lambda p: -p[0]):
        D = len(place) - 1
        unknown = (MOST[D] / 2.0) ** D / 2.0 if math.isinf(costs[place]) else 1.0
        least[place] = min(costs[place], sum(least.get(child, unknown) for child in tree.children(place)))
    return least


def settle(fitter: LocalFitter, tree: Tree, size: float, most: int) -> TreePlan | None:
    """Sites, the boxes where every cell counts, and pieces on them; cells whose box is too much for a piece are cut."""
    for _ in range(ROUNDS):
        places = sorted(tree.leaves)
        if len(places) > most:
            return None
        low, high = tree.boxes(places)
        gap = math.log(len(places) * 100.0 * (2.0 * size + 1.0) / fitter.error) + 1.0
        slopes, offsets = sites(low, high, tree.root, gap)
        inner_low, inner_high = reaches(low, high, slopes, offsets, gap + 4.0)
        found = fitter.pieces(inner_low, inner_high)
        bad = [place for place, piece in zip(places, found, strict=True) if piece is None]
        if not bad:
            pieces = tuple(piece for piece in found if piece is not None)
            bend = np.array([_bend(piece) for piece in pieces])
            return TreePlan(inner_low, inner_high, slopes, offsets - bend, pieces, gap, tree.root)
        for place in bad:
            if place[0] >= DEEPEST[len(tree.root)]:
                return None
            if place in tree.leaves:
                tree.split(place)
        tree.balance()
    return None


def _bend(piece: Piece) -> float:
    """What the log-sum-exp of a piece's own keys adds to its score on the faces of its box, on average."""
    E = len(piece.shape)
    each = sum(p - 1 for p in piece.shape) / E * math.log(math.cosh(piece.delta / 2.0))
    return each * (1.0 + (E - 1) / 3.0)


def sites(low: Array, high: Array, root: tuple[int, ...], gap: float) -> tuple[Array, Array]:
    """Slopes (C, D) in z and offsets (C,) of the cells' scores."""
    D = len(root)
    a = 1.0 / np.array(root)  # cells are cubes in y = z / a
    m = (low + high) / 2.0 / a
    r = ((high - low) / 2.0 / a)[:, 0]
    R = gap / (2.0 * OVERLAP * float(r.min()) ** 2)
    return R * m / a, -R * ((m * m).sum(axis=1) - (D + 2) / 3.0 * r * r) / 2.0


LEAST = {1: 1.05, 2: 1.05, 3: 1.15}  # a box closer to its cell than that would cost the covering many boxes
SLACK = 0.025  # of the half width, beyond what the sites alone say: pieces bend the scores


def reaches(low: Array, high: Array, slopes: Array, offsets: Array, gap: float) -> tuple[Array, Array]:
    """Boxes around the polytopes {score_k >= score_j - gap for all j}, from their vertices, and a little more."""
    D = low.shape[1]
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    found_low, found_high = low.copy(), high.copy()
    walls, nearest = np.concatenate([np.eye(D), -np.eye(D)]), LEAST[D]
    for k in range(len(low)):
        # a neighbour at most twice as large, or as small, touches the cell enlarged by its own half width
        near = np.all((low <= high[k] + half[k]) & (high >= low[k] - half[k]), axis=1)
        near[k] = False
        normals = (slopes[near] - slopes[k]) * half[k]  # in t = (z - middle) / half
        room = gap + offsets[k] - offsets[near] + (slopes[k] - slopes[near]) @ middle[k]
        edges = np.concatenate([(1.0 - middle[k]) / half[k], (1.0 + middle[k]) / half[k]])
        size = np.linalg.norm(normals, axis=1)
        A, b = np.concatenate([normals / size[:, None], walls]), np.concatenate([room / size, np.minimum(edges, 4.0)])
        rows = np.array(list(itertools.combinations(range(len(A)), D)))
        good = np.abs(np.linalg.det(A[rows])) > 1e-9
        vertices = np.linalg.solve(A[rows[good]], b[rows[good]][..., None])[..., 0]
        vertices = vertices[np.all(vertices @ A.T <= b + 1e-9, axis=1)]
        least, most = vertices.min(axis=0) - SLACK, vertices.max(axis=0) + SLACK
        found_low[k] = middle[k] + half[k] * np.minimum(least, -nearest)
        found_high[k] = middle[k] + half[k] * np.maximum(most, nearest)
    return np.maximum(found_low, -EDGE), np.minimum(found_high, EDGE)


def build_tree(plan: TreePlan, target: Target, dtype: str) -> GroupedLayer:
    """The layer: every cluster's coordinates t run over [-1, 1] on the box that its piece was fitted on."""
    clusters = []
    for low, high, piece in zip(plan.low, plan.high, plan.pieces, strict=True):
        origin, radius = (low + high) / 2.0, (high - low) / 2.0 * (1.0 + 2.0**-40)
        clusters.append(Cluster(origin, radius, piece.axes(dtype), piece.values, piece.slopes))
    matrix = np.diag(2.0 / (target.box.high - target.box.low))
    return layer_of([ClusterGroup(matrix, plan.site_slopes, plan.site_offsets, tuple(clusters))], target, dtype)
