"""Cells of a max-affine partition as shapes to draw: intervals of one variable, polygons of two.

A polygon starts as the whole box and is cut by half-planes { s_j >= s_k }.  Which k matter is guessed first,
from the upper convex hull of the lifted points (a_j, b_j): its edges join the pieces whose cells share an edge.
The guess may be wrong (Qhull merges nearly coplanar facets and gives up on flat inputs), so it is made right:

    at every vertex of every polygon find the greatest of all N pieces; where it beats the polygon's own
    piece, cut by it, and give it a polygon if it had none; repeat until no vertex objects.

The end is exact up to rounding: s_j - s_k is affine, so a polygon whose vertices all have s_j >= s_k for all k
lies in the cell of j, and it never lost a point of that cell.  Each pair is cut at most once, so the loop ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput

Integers = NDArray[np.int64]

# A piece beats another when it is ahead by this many roundings of their scores.  Less would only cost rounds, more
# would lose cells.
_AHEAD = 4.0
# Pieces that differ by no more than this many roundings are one piece; well above _AHEAD.
_SAME_PIECE = 64.0
# Vertices this close, in box coordinates, are one vertex.
_SAME_VERTEX = 2.0**-40
_PAIRS_AT_ONCE = 4_194_304


def cell_intervals(slopes: ArrayLike, offsets: ArrayLike, low: ArrayLike, high: ArrayLike) -> Array:
    """U_j = [t_j, t_{j+1}] in the order of the slopes: the cells of one variable within [low, high].

    Args:
        slopes: (N, 1).
        offsets: (N,).
        low: (1,), the lower edge.
        high: (1,), the upper edge.

    Returns:
        (N, 2), where each cell begins and ends; (nan, nan) for a cell that meets the box in no length.
    """
    a, b, lower, upper = _checked(slopes, offsets, low, high, 1)
    count = len(b)
    middle, half = (lower[0] + upper[0]) / 2, (upper[0] - lower[0]) / 2
    slope, offset = a[:, 0] * half, b + a[:, 0] * middle  # s as a function of u in [-1, 1]
    # Of equal slopes the greatest comes first, and of equal pieces the least index.
    order = np.lexsort((np.arange(count), -offset, slope))
    chain: list[int] = []
    starts: list[float] = []
    for j in order.tolist():
        if chain and slope[chain[-1]] == slope[j]:
            continue
        begin = -np.inf
        # The envelope of lines met so far, slopes increasing: j takes over from the last line where they cross,
        # and a line overtaken before it began is never greatest.
        while chain:
            begin = float((offset[chain[-1]] - offset[j]) / (slope[j] - slope[chain[-1]]))
            if begin > starts[-1]:
                break
            chain.pop()
            starts.pop()
            begin = -np.inf
        chain.append(j)
        starts.append(begin)
    cells = np.full((count, 2), np.nan)
    begins = np.clip(starts, -1.0, 1.0)
    ends = np.append(begins[1:], 1.0)
    inside = ends > begins
    kept = np.array(chain)[inside]
    cells[kept, 0] = np.where(begins[inside] == -1.0, lower[0], middle + half * begins[inside])
    cells[kept, 1] = np.where(ends[inside] == 1.0, upper[0], middle + half * ends[inside])
    return cells


def cell_polygons(slopes: ArrayLike, offsets: ArrayLike, low: ArrayLike, high: ArrayLike) -> list[Array]:
    """U_j intersected with the box [low, high], for all pieces s_j(x) = slopes[j] . x + offsets[j].

    Args:
        slopes: (N, 2).
        offsets: (N,).
        low: (2,), lower edges of the box.
        high: (2,), upper edges.

    Returns:
        N arrays (K_j, 2) of vertices, counter-clockwise, none repeated; (0, 2) for a cell without area in the
        box.  Of equal pieces the least index has the cell.
    """
    a, b, lower, upper = _checked(slopes, offsets, low, high, 2)
    centre, half = (lower + upper) / 2, (upper - lower) / 2
    found: list[Array] = [np.empty((0, 2)) for _ in range(len(b))]
    pieces, rounding, original = _box_coordinates(a, b, centre, half)
    tiles = _settle(pieces, rounding, _guess(pieces))
    vertices, owners = _tidy(tiles.vertices, tiles.owners)
    # The box's own edges are met exactly, so that neighbouring pictures join without a gap.
    points = np.clip(centre + half * vertices, lower, upper)
    points = np.where(vertices == 1.0, upper, np.where(vertices == -1.0, lower, points))
    cuts = np.flatnonzero(np.diff(owners)) + 1
    if len(owners):
        for owner, polygon in zip(owners[np.append(0, cuts)].tolist(), np.split(points, cuts), strict=True):
            found[original[owner]] = polygon
    return found


def polygon_area(polygon: ArrayLike) -> float:
    """(1/2) sum_k (x_k y_{k+1} - x_{k+1} y_k), positive when counter-clockwise: (K, 2) -> a number."""
    p = np.asarray(polygon, dtype=np.float64).reshape(-1, 2)
    if len(p) < 3:
        return 0.0
    q = p - p[0]  # far from the origin the products would cancel
    x, y = q[:, 0], q[:, 1]
    return float(np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y) / 2)


# -- pieces in box coordinates ----------------------------------------------------------------------------


def _checked(
    slopes: ArrayLike, offsets: ArrayLike, low: ArrayLike, high: ArrayLike, dimension: int
) -> tuple[Array, Array, Array, Array]:
    a, b = np.asarray(slopes, dtype=np.float64), np.asarray(offsets, dtype=np.float64)
    lower, upper = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    if a.ndim != 2 or a.shape[1] != dimension:
        word = {1: "intervals of one variable", 2: "polygons of two variables"}[dimension]
        raise BadInput(
            f"cells can be drawn as {word} only, and this partition has slopes of shape {a.shape}; "
            "take a section with `sliced(axes, at)` first."
        )
    if lower.shape != (dimension,) or upper.shape != (dimension,) or not (lower < upper).all():
        raise BadInput(f"the box must have {dimension} lower edges below {dimension} upper edges, not {lower} and {upper}.")
    return a, b, lower, upper


def _box_coordinates(a: Array, b: Array, centre: Array, half: Array) -> tuple[Array, Array, Integers]:
    """Rows (a1, a2, b) as functions of u in [-1, 1]^2, x = centre + half u; their rounding; where each came from.

    The same affine function is taken from all pieces (the piece that wins at the centre) and all are divided by
    one number: no cell changes, and scores that matter become of order one.  Pieces below another one at all four
    corners, hence on the whole box, and repeated pieces leave here, before they can set the scale.
    """
    rows = np.column_stack([a * half, b + (a * centre).sum(axis=1)])
    sizes = np.abs(b) + (np.abs(a) * (half + np.abs(centre))).sum(axis=1)
    reference = int(np.argmax(rows[:, 2]))
    rows, rounding = rows - rows[reference], 2.0**-52 * (sizes + sizes[reference])
    _, first = np.unique(rows, axis=0, return_index=True)
    original = np.sort(first).astype(np.int64)  # of equal rows np.unique returns the least index
    at_corners = rows[original] @ _homogeneous(_BOX).T  # (N, 4)
    ticks = np.linspace(-1.0, 1.0, 7)
    lattice = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    for winner in np.unique(_greatest(rows[original], lattice)[0]):
        covered = (at_corners <= at_corners[winner]).all(axis=1)
        covered[winner] = False
        # What ties at all four corners is equal up to rounding, and the winner stays.
        at_corners[covered] = -np.inf
    remain = at_corners.max(axis=1) > -np.inf
    original = original[remain]
    rows, rounding = rows[original], rounding[original]
    scale = float(np.abs(rows[:, :2]).max()) or 1.0
    return _distinct(rows / scale, rounding / scale, original)


def _distinct(rows: Array, rounding: Array, original: Integers) -> tuple[Array, Array, Integers]:
    """One of each group of pieces that are equal up to rounding: the least index, by the tie rule.

    Which of them wins where is noise; left in, they would claim the same ground twice.  A section of a grid along a
    face of its cells has such pairs everywhere.
    """
    from scipy.spatial import cKDTree

    while len(rows) > 1:
        distance, nearest = cKDTree(rows).query(rows, k=2)
        other = nearest[:, 1]
        noise = _SAME_PIECE * (rounding + rounding[other])
        repeated = (distance[:, 1] <= noise) & (original[other] < original)
        if not repeated.any():
            break
        rows, rounding, original = rows[~repeated], rounding[~repeated], original[~repeated]
    return rows, rounding, original


_BOX = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])


def _homogeneous(points: Array) -> Array:
    return np.column_stack([points, np.ones(len(points))])


def _greatest(rows: Array, points: Array) -> tuple[Integers, Array]:
    """Index and value of the greatest piece at each point: (N, 3), (M, 2) -> (M,), (M,)."""
    index = np.empty(len(points), dtype=np.int64)
    value = np.empty(len(points))
    across = np.ascontiguousarray(rows.T)
    step = max(1, _PAIRS_AT_ONCE // len(rows))
    for start in range(0, len(points), step):
        scores = _homogeneous(points[start : start + step]) @ across
        index[start : start + step] = scores.argmax(axis=1)
        value[start : start + step] = scores.max(axis=1)
    return index, value


def _guess(rows: Array) -> Integers:
    """Pairs (j, k), j < k, of pieces that probably share an edge: edges of the upper hull of (a1, a2, b)."""
    if len(rows) < 5:
        return np.empty((0, 2), dtype=np.int64)
    from scipy.spatial import ConvexHull, QhullError

    try:
        hull = ConvexHull(rows)
    except QhullError:
        # Sites on a line, or all the pieces in one plane: the loop of _settle starts from nothing.
        return np.empty((0, 2), dtype=np.int64)
    upper = hull.simplices[hull.equations[:, 2] > 0].astype(np.int64)
    pairs = np.sort(np.concatenate([upper[:, [0, 1]], upper[:, [1, 2]], upper[:, [2, 0]]]), axis=1)
    return np.unique(pairs, axis=0) if len(pairs) else np.empty((0, 2), dtype=np.int64)


# -- many polygons at once --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tiles:
    """Polygons end to end: vertex i belongs to piece owners[i]; owners come in runs, one run per polygon."""

    vertices: Array  # (V, 2)
    owners: Integers  # (V,)

    @staticmethod
    def boxes(owners: Integers) -> _Tiles:
        return _Tiles(np.tile(_BOX, (len(owners), 1)), np.repeat(owners, 4))

    def only(self, owners: Integers) -> _Tiles:
        kept = np.isin(self.owners, owners)
        return _Tiles(self.vertices[kept], self.owners[kept])

    def without(self, owners: Integers) -> _Tiles:
        kept = ~np.isin(self.owners, owners)
        return _Tiles(self.vertices[kept], self.owners[kept])

    def beside(self, other: _Tiles) -> _Tiles:
        return _Tiles(np.concatenate([self.vertices, other.vertices]), np.concatenate([self.owners, other.owners]))

    def following(self) -> Integers:
        """The index of the next vertex round the same polygon, (V,)."""
        after = np.arange(1, len(self.owners) + 1)
        if len(after):
            ends = np.flatnonzero(np.append(np.diff(self.owners) != 0, True))
            after[ends] = np.append(0, ends[:-1] + 1)
        return after

    def cut(self, halfplanes: Array) -> _Tiles:
        """Keep g1 u1 + g2 u2 + g3 >= 0, (g1, g2, g3) = halfplanes[i] for vertex i, the same along a polygon."""
        depth = (halfplanes[:, :2] * self.vertices).sum(axis=1) + halfplanes[:, 2]
        after = self.following()
        inside = depth >= 0
        crossing = inside != inside[after]
        # Each vertex emits itself when inside, then the crossing of the edge that leaves it.
        emitted = inside.astype(np.int64) + crossing
        first = np.cumsum(emitted) - emitted
        vertices = np.empty((int(emitted.sum()), 2))
        vertices[first[inside]] = self.vertices[inside]
        here, there = self.vertices[crossing], self.vertices[after[crossing]]
        share = depth[crossing] / (depth[crossing] - depth[after[crossing]])
        between = here + share[:, None] * (there - here)
        # On an edge of the box one coordinate is constant and must stay so.
        vertices[first[crossing] + inside[crossing]] = np.where(here == there, here, between)
        return _Tiles(vertices, np.repeat(self.owners, emitted))


def _settle(rows: Array, rounding: Array, pairs: Integers) -> _Tiles:
    """The loop of the module's first lines, from guessed neighbours to cells."""
    count = np.int64(len(rows))
    if len(pairs):
        owners = np.unique(pairs)
    else:
        owners = np.unique(_greatest(rows, _BOX)[0])
    # A directed pair (j, k), "j was cut by k", is the number j N + k.
    both = np.concatenate([pairs, pairs[:, ::-1]])
    cuts: Integers = np.unique(both[:, 0] * count + both[:, 1])
    tiles = _cut_all(_Tiles.boxes(owners), rows, cuts)
    kept = set(owners.tolist())
    unsettled = tiles
    while len(unsettled.owners):
        new: Integers = np.setdiff1d(_objections(rows, rounding, unsettled), cuts)
        if not len(new):
            break
        cuts = np.union1d(cuts, new)
        revived = np.array(sorted(set((new % count).tolist()) - kept), dtype=np.int64)
        kept |= set(revived.tolist())
        # The piece that objected is cut in its turn by the one it objected to, when it is new.
        mirrored = (new % count) * count + new // count
        mirrored = mirrored[np.isin(mirrored // count, revived)]
        cuts = np.union1d(cuts, mirrored)
        changed = np.unique(new // count)
        fresh = _cut_all(_Tiles.boxes(revived), rows, mirrored)
        unsettled = _cut_all(tiles.only(changed), rows, new).beside(fresh)
        tiles = tiles.without(changed).beside(unsettled)
    if _areas(tiles)[0].sum() > 4.0 * (1 + 2.0**-32):
        tiles = _cut_all(tiles, rows, np.setdiff1d(_overlaps(tiles, count), cuts))
    order = np.argsort(tiles.owners, kind="stable")
    return _Tiles(tiles.vertices[order], tiles.owners[order])


def _overlaps(tiles: _Tiles, count: np.int64) -> Integers:
    """Directed pairs j N + k of polygons whose bounding boxes overlap.

    Only wanted when the areas add up to more than the box: two pieces that differ by less than the rounding of a third
    one's scores can both keep the same ground.  A cut by s_j - s_k itself, which is exact, parts them.
    """
    _, runs, _ = _areas(tiles)
    low, high = np.minimum.reduceat(tiles.vertices, runs), np.maximum.reduceat(tiles.vertices, runs)
    owners = tiles.owners[runs]
    found = [np.empty(0, dtype=np.int64)]
    step = max(1, _PAIRS_AT_ONCE // len(runs))
    for start in range(0, len(runs), step):
        part = slice(start, start + step)
        meet = ((low[part, None] < high) & (low < high[part, None])).all(axis=2)
        one, other = np.nonzero(meet)
        pairs = owners[part][one] * count + owners[other]
        found.append(pairs[owners[part][one] != owners[other]])
    return np.concatenate(found)


def _areas(tiles: _Tiles) -> tuple[Array, Integers, Array]:
    """Of every polygon: its area, where its vertices begin, and how far they reach from the first."""
    if not len(tiles.owners):
        return np.empty(0), np.empty(0, dtype=np.int64), np.empty(0)
    runs = np.flatnonzero(np.append(True, np.diff(tiles.owners) != 0))
    base = np.repeat(tiles.vertices[runs], np.diff(np.append(runs, len(tiles.owners))), axis=0)
    here, there = tiles.vertices - base, tiles.vertices[tiles.following()] - base
    areas = np.add.reduceat(here[:, 0] * there[:, 1] - there[:, 0] * here[:, 1], runs) / 2
    return areas, runs, np.maximum.reduceat(np.abs(here).max(axis=1), runs)


def _cut_all(tiles: _Tiles, rows: Array, cuts: Integers) -> _Tiles:
    """Cut every polygon by all its half-planes, the first of each polygon together, then the second..."""
    count = len(rows)
    cuts = np.sort(cuts)
    owner = cuts // count
    turn = np.arange(len(cuts)) - np.searchsorted(owner, owner)  # this is the turn-th cut of its owner
    order = np.argsort(turn, kind="stable")
    done = _Tiles(np.empty((0, 2)), np.empty(0, dtype=np.int64))
    for turns in np.split(cuts[order], np.cumsum(np.bincount(turn))[:-1]) if len(cuts) else []:
        busy = turns // count
        if not np.isin(tiles.owners, busy).all():
            done = done.beside(tiles.without(busy))
            tiles = tiles.only(busy)
        place = np.searchsorted(busy, tiles.owners)  # `busy` is sorted: the sort by turn is stable
        mine, other = busy[place], (turns % count)[place]
        tiles = tiles.cut(rows[mine] - rows[other])
    return done.beside(tiles)


def _objections(rows: Array, rounding: Array, tiles: _Tiles) -> Integers:
    """Directed pairs j N + k: at some vertex of the polygon of j the greatest piece is k, and beats j."""
    # Neighbours meet at the same vertex up to rounding; looking at one of each such group saves most of the
    # work.  Its scores may be off by that rounding, which at worst brings up a harmless cut.
    rounded = np.round(tiles.vertices / _SAME_VERTEX)
    _, seen, back = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
    winner, value = (part[back.ravel()] for part in _greatest(rows, tiles.vertices[seen]))
    at = tiles.vertices[seen][back.ravel()]
    own = (rows[tiles.owners, :2] * at).sum(axis=1) + rows[tiles.owners, 2]
    ahead = _AHEAD * (rounding[tiles.owners] + rounding[winner])
    beaten = (value > own + ahead) & (winner != tiles.owners)
    return np.unique(tiles.owners[beaten] * np.int64(len(rows)) + winner[beaten])


def _tidy(vertices: Array, owners: Integers) -> tuple[Array, Integers]:
    """Drop repeated vertices, then polygons that are left without area."""
    tiles = _Tiles(vertices, owners)
    for _ in range(2):  # the second pass sees the neighbours that the first one brought together
        apart = np.abs(tiles.vertices - tiles.vertices[tiles.following()]).max(axis=1) > _SAME_VERTEX
        tiles = _Tiles(tiles.vertices[apart], tiles.owners[apart])
    areas, runs, spans = _areas(tiles)
    lengths = np.diff(np.append(runs, len(tiles.owners)))
    solid = np.repeat((lengths >= 3) & (areas > _SAME_VERTEX * spans), lengths)
    return tiles.vertices[solid], tiles.owners[solid]
