"""Breaks of a callable of one variable, declared or seen (heads/breaks/segments.py says how); never proved."""

from fractions import Fraction

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.heads.axis.fit import Curve
from maxaffine.heads.axis.plan import Link, Problem, axis_row
from maxaffine.heads.breaks.segments import CUSP, STEP, Breaks, Segments, breaks_of, exponents, located
from maxaffine.target.target import Target

WINDOWS = 96
LEVELS = 24  # of zooming in: a root is followed where it is, to the last digits
ROUNDS = 3
MOST_SEEN = 60


def callable_problem(target: Target, error: float, declared: tuple[float, ...] | None) -> Problem:
    """The problem of a callable of one variable, with breaks declared or seen."""
    low, high = target.box.low, target.box.high
    direction = (Fraction(1),)
    centre = (low + high) / 2.0
    row, _ = axis_row(direction, low, high, centre)
    scale = float(row[0])
    a, b = float((low[0] - centre[0]) * scale), float((high[0] - centre[0]) * scale)

    def f(z: Array) -> Array:
        flat = np.asarray(z, dtype=np.float64)
        x = np.clip(centre[0] + flat.ravel() / scale, low[0], high[0])
        return np.asarray(target.values(x[:, None])[:, 0, 0]).reshape(flat.shape)

    if declared is not None:
        links = _declared(f, a, b, np.array([(x - float(centre[0])) * scale for x in declared]))
    else:
        links = seen_breaks(f, a, b, error)
    pieces, start = [], a
    ulp = float(np.spacing(max(abs(a), abs(b))))
    for link in links:
        off = 16.0 * ulp if link.kind == "jump" else 0.0
        pieces.append((start, link.at - off, f))
        start = link.at + off
    pieces.append((start, b, f))
    return Problem(row, centre, direction, (Fraction(0),), a, b, f, tuple(pieces), tuple(links))


def seen_breaks(f: Curve, low: float, high: float, error: float) -> list[Link]:
    """Kinks, jumps and cusps larger than the error can tell, from left to right; those of a window one after the other."""
    size = float(np.abs(f(np.linspace(low, high, 513))).max())
    # A callable's own rounding may switch from formula to formula: what is far below the error is none of a break.
    margin, noise = 1e-7 * (high - low), max(64.0 * float(np.finfo(np.float64).eps) * max(size, 1e-300), 1e-5 * error)
    found: list[Link] = []
    for _ in range(ROUNDS):
        edges = np.array([low, *(link.at for link in found), high])
        start, end = edges[:-1] + margin * (edges[:-1] > low), edges[1:] - margin * (edges[1:] < high)
        long = end - start > 100.0 * margin
        new = _links(breaks_of(_segments(f, start[long], end[long]), WINDOWS, noise, error, False, LEVELS))
        if not new or len(found) + len(new) > MOST_SEEN:
            break
        found = sorted([*found, *new], key=lambda link: link.at)
        found = [link for i, link in enumerate(found) if i == 0 or link.at - found[i - 1].at > 100.0 * margin]
    places = [low, *(link.at for link in found), high]
    return [link for i, link in enumerate(found) if _stands(f, link, places[i : i + 3], 100.0 * margin)]


def _stands(f: Curve, link: Link, about: list[float], most: float) -> bool:
    """Whether a kink is one between its neighbours too: from afar two close ones look like a third half-way."""
    h = min(0.1 * (link.at - about[0]), 0.1 * (about[2] - link.at), most)
    bend = float(np.diff(f(link.at + h * np.array([-1.0, 0.0, 1.0])), 2)[0])
    return link.kind != "seen" or abs(bend) >= 0.1 * link.kink * h


def _segments(f: Curve, start: Array, end: Array) -> Segments:
    return Segments(lambda points: f(points[:, 0]), start[:, None], end[:, None])


def _links(found: Breaks) -> list[Link]:
    kinds = np.where(found.powers < STEP, "jump", np.where(found.powers < CUSP, "singular", "seen"))
    steep = found.kinks / found.along[:, 0]
    return [Link(float(at), str(kind), float(kink)) for at, kind, kink in zip(found.x[:, 0], kinds, steep, strict=True)]


def _declared(f: Curve, low: float, high: float, places: Array) -> list[Link]:
    """What kinds of breaks are declared, by the exponents of third differences across them, and where exactly they are."""
    steps = (high - low) * 10.0 ** -np.array([3.0, 3.5, 4.0, 4.5, 5.0, 5.5])
    z = places[:, None, None] + np.multiply.outer(steps, np.array([-1.5, -0.5, 0.5, 1.5]))
    third = np.abs(np.diff(f(z), 3, axis=2))[..., 0].T
    powers = exponents(np.repeat(steps[:, None], len(places), axis=1), third, 0.0)
    whole = _segments(f, np.full(len(places), low), np.full(len(places), high))
    found = located(whole, np.arange(len(places)), (places - low) / (high - low), powers)
    seen = dict(zip(found.rows.tolist(), _links(found), strict=True))
    return [seen.get(i, Link(float(place), "seen")) for i, place in enumerate(places)]
