"""Plans of clusters along one axis or one direction: the target on its axis, its pieces, and the cells that hold them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from maxaffine.core import balls, closest
from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import compute_format
from maxaffine.expression.expression import Expression
from maxaffine.heads.assemble import layer_of
from maxaffine.heads.axis.cells import KINK, OVERLAP, SWITCH, WIDEST, Cell, Segment, place_sites, plan_segment, sharpness
from maxaffine.heads.axis.fit import POINTS, Curve, Library
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.structure.breaks import find_pieces
from maxaffine.structure.directions import Direction
from maxaffine.structure.one_direction import OneDirection
from maxaffine.structure.switches import moved
from maxaffine.target.target import Target

LEAK = 0.004  # of the error, for clusters far from the query
CONTINUOUS = 0.02  # of the error: branches this close at a break do not jump


@dataclass(frozen=True)
class Link:
    """A break between two pieces: "kink" (with the jump J of the slope), "jump", or "singular" (not analytic on some side).

    A kink of a callable is "seen": its branches are not known beyond it.
    """

    at: float
    kind: str
    kink: float = 0.0


@dataclass(frozen=True)
class Problem:
    """A target on its axis z = row . (x - centre) of [low, high]: f, its smooth pieces, and the links between them.

    The layer adds slopes . (x - centre), the affine part, which f leaves out.
    """

    row: Array
    centre: Array
    direction: Direction
    slopes: tuple[Fraction, ...]
    low: float
    high: float
    f: Curve
    pieces: tuple[tuple[float, float, Curve], ...]
    links: tuple[Link, ...]


def curve(expression: Expression) -> Curve:
    """An expression of one variable on arrays of any shape."""

    def values(z: Array) -> Array:
        flat = np.asarray(z, dtype=np.float64)
        with np.errstate(all="ignore"):
            return expression.evaluate(flat.reshape(-1, 1))[:, 0].reshape(flat.shape)

    return values


def axis_row(direction: Direction, low: Array, high: Array, centre: Array) -> tuple[Array, Fraction]:
    """row = scale w with |row . (x - centre)| <= 1 on the box; the scale is a power of two, so that rounding spares short w."""
    reach = np.maximum(high - centre, centre - low)
    size = sum(abs(float(c)) * float(r) for c, r in zip(direction, reach, strict=True))
    scale = Fraction(2) ** -math.ceil(math.log2(size * (1 - 1e-15)))
    return np.array([float(scale * c) for c in direction]), scale


def expression_problem(found: OneDirection, low: Array, high: Array, error: float, centre: Array | None = None) -> Problem:
    """The problem of an expression, about a given centre or the best one; Refused where its breaks cannot be told apart."""
    centre = best_centre(found, low, high) if centre is None else centre
    row, scale = axis_row(found.direction, low, high, centre)
    exact = [Fraction(float(c)) for c in centre]
    middle = sum((w * c for w, c in zip(found.direction, exact, strict=True)), Fraction(0))
    lift = sum((a * c for a, c in zip(found.slopes, exact, strict=True)), Fraction(0))
    f = moved(found.shifted(lift), middle, 1 / scale)
    reach = [sorted((w * Fraction(float(a)), w * Fraction(float(b)))) for w, a, b in zip(found.direction, low, high, strict=True)]
    first = float((sum((pair[0] for pair in reach), Fraction(0)) - middle) * scale)
    last = float((sum((pair[1] for pair in reach), Fraction(0)) - middle) * scale)
    parts = find_pieces(f, first, last)
    pieces = tuple((p.low, p.high, curve(p.branch)) for p in parts.pieces)
    links = []
    for i, one in enumerate(parts.breaks[1:-1]):
        assert one is not None
        left, right = parts.pieces[i], parts.pieces[i + 1]
        at = min(max((one.low + one.high) / 2.0, left.high), right.low)
        links.append(_link(left.branch, right.branch, at, one.kind, error, right.high - left.low))
    return Problem(row, centre, found.direction, found.slopes, first, last, curve(f), pieces, tuple(links))


def _link(left: Expression, right: Expression, at: float, kind: str, error: float, width: float) -> Link:
    here = Interval(np.array([[at]]), np.array([[at]]))
    apart = float((left.enclose(here) - right.enclose(here)).magnitude[0, 0])
    if kind == "jump" and not apart <= CONTINUOUS * error:
        return Link(at, "jump")
    with balls.precision(64):
        disc = [balls.rectangle(at - 1e-7 * width, at + 1e-7 * width, 1e-7 * width)]
        smooth = all(branch.enclose_ball(disc)[0].is_finite() for branch in (left, right))
    if not smooth:
        return Link(at, "singular")
    slopes = [float(branch.gradient().evaluate([[at]])[0, 0]) for branch in (left, right)]
    return Link(at, "kink", abs(slopes[1] - slopes[0]))


def best_centre(found: OneDirection, low: Array, high: Array) -> Array:
    """The middle of the box; or the corner, or the place on one axis, where the target is steepest beyond measure.

    Differences from the centre lose no digits near it, which is what a singular end needs.
    """
    middle = (low + high) / 2.0
    w = np.array([float(c) for c in found.direction])
    used = np.flatnonzero(w)
    if not len(used) or any(found.slopes):
        return np.asarray(middle)
    f = curve(found.h)
    first, last = (np.where(w == 0, middle, np.where(w * side > 0, high, low)) for side in (-1.0, 1.0))
    centres = {float(w @ first): first, float(w @ last): last}  # w . x -> where
    ends = min(centres), max(centres)
    width = ends[1] - ends[0]
    if len(used) == 1 and w[used[0]] == 1.0:
        try:
            breaks = find_pieces(found.h, *ends).breaks
        except Refused:
            breaks = ()
        for place in (float((b.low + b.high) / 2.0) for b in breaks if b and b.kind == "kink"):
            centres.setdefault(place, np.where(w == 0, middle, place))
    inside = np.linspace(*ends, 203)[1:-1]
    typical = float(np.nanmedian(np.abs(f(inside + 1e-6 * width) - f(inside - 1e-6 * width)))) / (2e-6 * width)
    best, steepest = middle, 300.0 * max(typical, 1e-300)
    for place, centre in centres.items():
        step = 1e-9 * width
        # Not at the place itself, where the function may jump.
        near = place + step * np.array([[-2.0, -1.0], [1.0, 2.0]])
        inside_box = (near >= ends[0]).all(axis=1) & (near <= ends[1]).all(axis=1)
        slopes = np.abs(np.diff(f(near[inside_box]), axis=1)).ravel() / step
        slopes = slopes[np.isfinite(slopes)]
        if len(slopes) and float(slopes.max()) > steepest:
            steepest, best = float(slopes.max()), centre
    return np.asarray(best)


@dataclass(frozen=True)
class Soft:
    """Kinks for the literal softmax: their share of the error, and how many times the least error of logits is planned for."""

    kinks: float
    blurs: float

    def blur(self, problem: Problem, error: float, dtype: str) -> float:
        """The error of logits that kinks of this softness cause: some units of the sum of all slopes."""
        steep = sum(KINK * link.kink for link in problem.links if link.kind == "kink") / (self.kinks * error)
        return self.blurs * 8.0 * compute_format(dtype).unit * steep * (problem.high - problem.low)

    def cells(self, problem: Problem, error: float, dtype: str) -> float:
        """About how many cells it takes to keep what such errors move below a part of the error."""
        with np.errstate(all="ignore"):
            seen = problem.f(np.linspace(problem.low, problem.high, 2001))
        variation = float(np.abs(np.diff(seen[np.isfinite(seen)])).sum())
        return 2.0 * self.blur(problem, error, dtype) * variation / (0.2 * error)


SOFTER = (Soft(0.3, 1.0), Soft(0.45, 1.0), Soft(0.3, 4.0), Soft(0.45, 4.0))  # tried in this order for a literal softmax


@dataclass(frozen=True)
class AxisPlan:
    """Cells with their heads, the sites, the axis, and the half width of what is left out about jumps, in w . x (or None)."""

    row: Array
    centre: Array
    direction: Direction
    slopes: tuple[Fraction, ...]
    parts: tuple[Cell, ...]
    sites: AxisKeys
    gap: float | None = None
    found: OneDirection | None = None  # the direction in the expression, which a proof starts from
    argument: str = "axis clusters"

    @property
    def cells(self) -> int:
        """Tokens."""
        return sum(len(cell.fit.keys) for cell in self.parts)

    def to_json(self) -> dict[str, Any]:
        """Plain data: the direction; everything else is in the layer."""
        return {
            "plan": "axis", "method": "axis", "argument": self.argument, "direction": [str(c) for c in self.direction],
            "clusters": len(self.parts), "gap": self.gap,
        }  # fmt: skip


@dataclass(frozen=True)
class Aim:
    """What a plan aims at: the error of the heads, that of the kinks, the error that the leak is measured in, the gap in z."""

    fit: float
    kink: float
    error: float
    gap: float


def make_plan(
    problem: Problem, aim: Aim, dtype: str, most: int, gap: float | None, affine: bool = True, strain: float = 0.0,
    blur: float = 0.0,
) -> AxisPlan | None:  # fmt: skip
    """The fewest tokens for a problem, at most `most`; None where that does not do.

    Values are affine or constant, and large ones are avoided for `strain` and `blur` (see `Library`).
    """
    z = np.linspace(problem.low, problem.high, 2001)
    with np.errstate(all="ignore"):
        seen = problem.f(z)
    seen = seen[np.isfinite(seen)]
    if not len(seen):
        return None
    size = float(np.abs(seen).max())
    library = Library(aim.fit, size, dtype, affine, strain, blur)
    made = _cells(problem, aim, library, most)
    if made is None:
        return None
    cells, links = made
    handovers = []
    for k, link in enumerate(links):
        left, right = cells[k], cells[k + 1]
        values = max(float((np.abs(c.fit.values) + 1.3 * np.abs(c.fit.slopes)).max()) for c in (left, right))
        lead = math.log(4.0 * (size + values) * len(cells) / (LEAK * aim.error) + 1.0) + 1.0
        kink = KINK * link.kink / aim.kink if link is not None and link.kind in ("kink", "seen") else 0.0
        jump = aim.gap if link is not None and link.kind == "jump" else 0.0
        at = left.high if link is None else link.at
        sharp = sharpness(left, right, lead, kink, jump)
        if link is not None and link.kind == "kink":
            sharp = _sharper(problem, link, sharp, lead, aim.kink)
        handovers.append((at, sharp))
    sites = place_sites(list(cells), handovers, dtype)
    return AxisPlan(problem.row, problem.centre, problem.direction, problem.slopes, tuple(cells), sites, gap)


def _sharper(problem: Problem, link: Link, sharp: float, lead: float, allowed: float) -> float:
    """Sharp enough for branches that part like a power of the distance: their slope where the cluster is lost counts."""
    i = problem.links.index(link)
    left, right = problem.pieces[i][2], problem.pieces[i + 1][2]
    for _ in range(200):
        reach = lead / sharp
        y = link.at + reach * np.array([-1.0, -0.9, 0.9, 1.0])
        q = np.abs(right(y) - left(y))
        steep = max(abs(q[1] - q[0]), abs(q[3] - q[2])) / (0.1 * reach)
        if not np.isfinite(steep) or KINK * steep / sharp <= allowed:
            break
        sharp *= 1.25
    return sharp


def _cells(problem: Problem, aim: Aim, library: Library, most: int) -> tuple[list[Cell], list[Link | None]] | None:
    """Cells of all pieces from left to right, and the links between them (None: an ordinary hand-over)."""
    lows, highs = [p[0] for p in problem.pieces], [p[1] for p in problem.pieces]
    middles: dict[int, Cell] = {}
    sides = [["shut", "shut"] for _ in problem.pieces]
    for i, link in enumerate(problem.links):
        if link.kind == "kink":
            sides[i][1] = sides[i + 1][0] = "open"
        elif link.kind == "singular":
            cell = _across(problem, link, library, aim.fit, min(highs[i] - lows[i], highs[i + 1] - lows[i + 1]))
            if cell is None:
                return None
            middles[i] = cell
            highs[i], lows[i + 1] = cell.low, cell.high
            sides[i][1] = sides[i + 1][0] = "open"
    cells: list[Cell] = []
    links: list[Link | None] = []
    for i, (_, _, f) in enumerate(problem.pieces):
        left = most - sum(len(c.fit.keys) for c in cells)
        found = plan_segment(Segment(lows[i], highs[i], f, *sides[i]), library, aim.fit, left)
        if found is None:
            return None
        if cells:
            links.append(None if i - 1 in middles else problem.links[i - 1])
        cells += found
        reached = (highs[i] - problem.low) / (problem.high - problem.low)
        closest.covered(sum(len(c.fit.keys) for c in cells), reached)
        links += [None] * (len(found) - 1)
        if i in middles:
            links.append(None)
            cells.append(middles[i])
    return cells, links


def _across(problem: Problem, link: Link, library: Library, goal: float, width: float) -> Cell | None:
    """One token across a singular point: the widest cell on which an affine function does."""
    w = width / 4.0
    for _ in range(220):
        reach = w + min(max(2.0 * OVERLAP * w, SWITCH), WIDEST * w)
        with np.errstate(all="ignore"):
            samples = problem.f(link.at + reach * POINTS)
        if np.isfinite(samples).all() and float(library.errors(1, samples[:, None])[0]) <= 0.9 * goal:
            fit = library.polish(problem.f, link.at, reach, 1, goal)
            if fit.error <= goal:
                return Cell(link.at - w, link.at + w, link.at - reach, link.at + reach, fit)
        w *= 0.75
    return None


def axis_group(plan: AxisPlan) -> ClusterGroup:
    """Clusters with the cells' heads, along the plan's coordinate."""
    clusters = []
    for cell in plan.parts:
        fit = cell.fit
        slopes = fit.slopes[:, None, None]
        clusters.append(Cluster(np.array([cell.origin]), np.array([cell.radius]), (fit.keys,), fit.values[:, None], slopes))
    row = np.asarray(plan.row, dtype=np.float64)[None]
    return ClusterGroup(row, plan.sites.slopes[:, None], plan.sites.offsets, tuple(clusters))


def build_axis(plan: AxisPlan, target: Target, dtype: str) -> GroupedLayer:
    """The layer of a plan: one group of clusters, and the affine part."""
    return layer_of([axis_group(plan)], target, dtype, plan.centre, plan.slopes)
