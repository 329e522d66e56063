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

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput

Integers = NDArray[np.int64]
Polygon = list[tuple[float, float]]  # vertices, counter-clockwise

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
    tiles = {owner: _tidy(polygon) for owner, polygon in _settle(pieces, rounding, _guess(pieces)).items()}
    vertices = np.array([vertex for polygon in tiles.values() for vertex in polygon]).reshape(-1, 2)
    # The box's own edges are met exactly, so that neighbouring pictures join without a gap.
    points = np.clip(centre + half * vertices, lower, upper)
    points = np.where(vertices == 1.0, upper, np.where(vertices == -1.0, lower, points))
    ends = np.cumsum([len(polygon) for polygon in tiles.values()])
    for owner, polygon in zip(tiles, np.split(points, ends[:-1]), strict=True):
        found[original[owner]] = polygon
    return found


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
    at_corners = rows[original] @ _homogeneous(np.array(_BOX)).T  # (N, 4)
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


_BOX: Polygon = [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)]


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


# -- polygons, cut one by one -------------------------------------------------------------------------------


def _cut(polygon: Polygon, halfplanes: Array) -> Polygon:
    """The part of a polygon where g1 u1 + g2 u2 + g3 >= 0 for all rows (g1, g2, g3)."""
    for a, b, c in halfplanes.tolist():
        depths = [a * u + b * v + c for u, v in polygon]
        if all(depth >= 0 for depth in depths):
            continue
        left: Polygon = []
        for i, here in enumerate(polygon):
            there, depth, after = polygon[i + 1 - len(polygon)], depths[i], depths[i + 1 - len(polygon)]
            if depth >= 0:
                left.append(here)
            if (depth >= 0) != (after >= 0):
                share = depth / (depth - after)
                # On an edge of the box one coordinate is constant and must stay so.
                u, v = (x if x == y else x + share * (y - x) for x, y in zip(here, there, strict=True))
                left.append((u, v))
        polygon = left
    return polygon


def _settle(rows: Array, rounding: Array, pairs: Integers) -> dict[int, Polygon]:
    """The loop of the module's first lines, from guessed neighbours to cells; of pieces without a cell some are empty."""
    owners = np.unique(pairs) if len(pairs) else np.unique(_greatest(rows, np.array(_BOX))[0])
    cuts: dict[int, set[int]] = {j: set() for j in owners.tolist()}  # by which pieces the polygon of a piece was cut
    for j, k in pairs.tolist():
        cuts[j].add(k)
        cuts[k].add(j)
    tiles = {j: _cut(_BOX, rows[j] - rows[sorted(others)]) for j, others in cuts.items()}
    unsettled = tiles
    while unsettled:
        new: dict[int, list[int]] = {}
        for j, k in _objections(rows, rounding, unsettled).tolist():
            if k not in cuts[j]:
                new.setdefault(j, []).append(k)
        # A piece that objected and has no polygon yet gets one, cut in its turn by those that it objected to.
        fresh: dict[int, list[int]] = {}
        for j, others in new.items():
            cuts[j] |= set(others)
            for k in set(others) - tiles.keys():
                fresh.setdefault(k, []).append(j)
        cuts |= {k: set(others) for k, others in fresh.items()}
        unsettled = {j: _cut(tiles[j], rows[j] - rows[others]) for j, others in new.items()}
        unsettled |= {k: _cut(_BOX, rows[k] - rows[fresh[k]]) for k in sorted(fresh)}
        tiles = tiles | unsettled
    if sum(_area(polygon) for polygon in tiles.values()) > 4.0 * (1 + 2.0**-32):
        for j, meeting in _overlaps(tiles).items():
            tiles[j] = _cut(tiles[j], rows[j] - rows[sorted(meeting - cuts[j])])
    return tiles


def _overlaps(tiles: dict[int, Polygon]) -> dict[int, set[int]]:
    """Of every polygon, those whose bounding boxes overlap its own.

    Only wanted when the areas add up to more than the box: two pieces that differ by less than the rounding of a third
    one's scores can both keep the same ground.  A cut by s_j - s_k itself, which is exact, parts them.
    """
    owners = np.array([j for j, polygon in tiles.items() if polygon])
    low, high = (np.array([edge(tiles[j], axis=0) for j in owners]) for edge in (np.min, np.max))
    return {j: set(owners[((low < high[i]) & (low[i] < high)).all(axis=1)].tolist()) - {j} for i, j in enumerate(owners.tolist())}


def _area(polygon: Polygon) -> float:
    """(1/2) sum_k (x_k y_{k+1} - x_{k+1} y_k), positive when counter-clockwise."""
    x, y = polygon[0] if polygon else (0.0, 0.0)  # far from the origin the products would cancel
    moved = [(u - x, v - y) for u, v in polygon]
    return sum(a * d - c * b for (a, b), (c, d) in zip(moved, [*moved[1:], *moved[:1]], strict=True)) / 2


def _objections(rows: Array, rounding: Array, tiles: dict[int, Polygon]) -> Integers:
    """Pairs (j, k), in order: at some vertex of the polygon of j the greatest piece is k, and beats j."""
    vertices = np.array([vertex for polygon in tiles.values() for vertex in polygon]).reshape(-1, 2)
    owners = np.repeat(np.array([*tiles]), [len(polygon) for polygon in tiles.values()])
    # Neighbours meet at the same vertex up to rounding; looking at one of each such group saves most of the
    # work.  Its scores may be off by that rounding, which at worst brings up a harmless cut.
    rounded = np.round(vertices / _SAME_VERTEX)
    _, seen, back = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
    winner, value = (part[back.ravel()] for part in _greatest(rows, vertices[seen]))
    at = vertices[seen][back.ravel()]
    own = (rows[owners, :2] * at).sum(axis=1) + rows[owners, 2]
    ahead = _AHEAD * (rounding[owners] + rounding[winner])
    beaten = (value > own + ahead) & (winner != owners)
    return np.unique(np.column_stack([owners[beaten], winner[beaten]]), axis=0)


def _tidy(polygon: Polygon) -> Polygon:
    """The polygon without repeated vertices; nothing where it is left without area."""
    for _ in range(2):  # the second pass sees the neighbours that the first one brought together
        after = [*polygon[1:], *polygon[:1]]
        polygon = [p for p, q in zip(polygon, after, strict=True) if max(abs(p[0] - q[0]), abs(p[1] - q[1])) > _SAME_VERTEX]
    if len(polygon) < 3:
        return []
    span = max(abs(w - first) for vertex in polygon for w, first in zip(vertex, polygon[0], strict=True))
    return polygon if _area(polygon) > _SAME_VERTEX * span else []
