"""Hyperplanes on which a callable of several variables has its kinks and jumps, seen on segments and fitted; never proved.

Random segments through the box are searched for breaks (segments.py).  Planes through D of the break points each are tried,
the one with the most further points on it is fitted by least squares, its points are taken away, and so on.  Fresh segments then
verify the planes: what breaks there must lie on one of them, or more planes are fitted.  Coefficients that are small rationals to
within rounding become these rationals.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.polytopes import Polytope, TooLarge
from maxaffine.heads.breaks.segments import CUSP, GENTLE, STEP, Breaks, Function, breaks_of, noise_of, random_segments
from maxaffine.heads.fitting import from_unit_box
from maxaffine.target.target import Target

Plane = tuple[Fraction, ...]  # coefficients of x, then the constant

MOST_PLANES = 12
SCREEN, FULL = 40, 64  # segments of the first look, and of every later one
WINDOWS, MORE_WINDOWS = 12, 32  # of every segment
ROUNDS = 4
NEAR = 1e-7  # of the box: points so close to a plane are on it
STRAY = 1e-4  # and so close may be, where another break disturbs the fit
TRIES = 6000
DENOMINATORS = 1000


class NoPlanes(Exception):
    """Why no hyperplanes are seen, as a phrase."""


@dataclass(frozen=True)
class Sheet:
    """A plane that was seen: exact coefficients, its kind ("kink" or "jump"), how many breaks lie on it, and K.

    K is the jump of the gradient in units of the coefficients: |f_+ - f_-| is about K |h| next to the plane.
    """

    plane: Plane
    kind: str
    breaks: int
    slope: float


@dataclass(frozen=True)
class Seen:
    """All planes, the sides of every region with inner points, their vertices, and on how many segments they were looked for."""

    planes: tuple[Plane, ...]
    sheets: tuple[Sheet, ...]
    regions: tuple[tuple[int, ...], ...]
    cells: tuple[Array, ...]  # vertices (V, D) of every region, in x
    segments: int
    breaks: int
    noise: float

    @property
    def jumps(self) -> tuple[int, ...]:
        """The planes on which the target jumps."""
        return tuple(i for i, sheet in enumerate(self.sheets) if sheet.kind == "jump")

    def how_found(self) -> str:
        """How the planes were found, as a phrase."""
        on = f"breaks seen on {self.segments} random segments; no plane is proved"
        if len(self.planes) == 1:
            return f"one plane of {self.sheets[0].kind}s was fitted to {self.breaks} {on}"
        kinks = len(self.sheets) - len(self.jumps)
        kinds = " and ".join(f"{n} of {name}s" for n, name in ((kinks, "kink"), (len(self.jumps), "jump")) if n)
        fewest = min(sheet.breaks for sheet in self.sheets)
        return f"{len(self.planes)} planes ({kinds}) were fitted, each to at least {fewest} of {self.breaks} {on}"

    def to_json(self) -> dict[str, object]:
        """Plain data for the record of a plan."""
        rows = [{"plane": [str(c) for c in s.plane], "kind": s.kind, "breaks": s.breaks, "slope": s.slope} for s in self.sheets]
        return {"planes": rows, "segments": self.segments, "breaks": self.breaks}


def find_planes(target: Target, error: float, most_regions: int, seed: int = 0) -> Seen:
    """The planes of a callable with one output; NoPlanes where it has no breaks, or others than on planes."""
    box, D = target.box, target.box.dimension
    middle, half = (box.low + box.high) / 2.0, (box.high - box.low) / 2.0
    within = from_unit_box(box)

    def f(z: Array) -> Array:
        return np.asarray(target.values(within(z))[:, 0, 0])

    rng = np.random.default_rng((seed, 8))
    noise = noise_of(f, D, rng)
    first = breaks_of(random_segments(f, D, SCREEN, rng), WINDOWS, noise, error)
    if len(first) < 2:
        raise NoPlanes(f"nothing breaks on {SCREEN} segments" if not len(first) else f"only one of {SCREEN} segments breaks")
    fits, found, looked = _rounds(f, D, noise, error, first, rng)
    sheets = tuple(_sheet(fit, found, middle, half) for fit in fits)
    whole = Polytope.box([float(a) for a in box.low], [float(b) for b in box.high])
    regions, cells = _regions(whole, [sheet.plane for sheet in sheets], most_regions, half)
    return Seen(tuple(s.plane for s in sheets), sheets, regions, cells, looked, len(found), noise)


def _rounds(
    f: Function, D: int, noise: float, error: float, first: Breaks, rng: np.random.Generator
) -> tuple[list[Array], Breaks, int]:
    """Planes (n, c), unit normals in [-1, 1]^D, until the breaks of fresh segments lie on them."""
    fits: list[Array] = []
    found, looked = first, SCREEN
    for again in range(ROUNDS):
        segments = random_segments(f, D, FULL, rng)
        looked += len(segments.start)
        fresh = breaks_of(segments, MORE_WINDOWS, noise, error)
        if fits and not _strays(fits, fresh).any():
            return fits, Breaks.joined([found, fresh]), looked
        found = Breaks.joined([found, fresh])
        if (found.powers < CUSP).any() and ((found.powers >= STEP) & (found.powers < CUSP)).sum() > 0.1 * len(found):
            raise NoPlanes("its breaks are cusps, on both sides of which it is not smooth")
        fits = _robust(found, rng)
        strays = _strays(fits, found)
        if not fits or (again > 0 and strays.sum() > 0.4 * len(found)):
            raise NoPlanes(f"{int(strays.sum())} of {len(found)} breaks on {looked} segments lie on no common plane")
    strays = _strays(fits, found)
    if strays.sum() > 0.03 * len(found):
        raise NoPlanes(f"{int(strays.sum())} of {len(found)} breaks on {looked} segments lie on none of {len(fits)} planes")
    return fits, found, looked


def _away(fits: list[Array], x: Array) -> Array:
    """Distances (planes, points)."""
    return np.abs(np.array(fits)[:, :-1] @ x.T + np.array(fits)[:, -1:])


def _strays(fits: list[Array], found: Breaks) -> NDArray[np.bool_]:
    if not fits:
        return np.ones(len(found), dtype=bool)
    return np.asarray(_away(fits, found.x).min(axis=0) > STRAY)


def _robust(found: Breaks, rng: np.random.Generator) -> list[Array]:
    """Planes with at least D + 2 breaks each, of different segments; the best supported ones first."""
    left = np.arange(len(found))
    D = found.x.shape[1]
    fits: list[Array] = []
    while len(left) >= D + 2 and len(fits) < MOST_PLANES:
        fit = _supported(found.x[left], found.powers[left], rng)
        if fit is None:
            break
        away = np.abs(found.x[left] @ fit[:-1] + fit[-1])
        on = away < _tolerance(found.powers[left])
        if len(set(found.rows[left[on]])) < D + 2:
            break
        fits.append(fit)
        left = left[away > STRAY] if len(left[away > STRAY]) >= D + 2 else left[:0]
    return fits


def _tolerance(powers: Array) -> Array:
    """How far a break may be from its plane: where slopes meet is seen less well than where values do."""
    return np.where(powers > GENTLE, 30.0 * NEAR, NEAR)


def _supported(x: Array, powers: Array, rng: np.random.Generator) -> Array | None:
    """The plane with the most points on it, refined by least squares."""
    n, D = x.shape
    near = _tolerance(powers)
    if D == 2 and n * (n - 1) // 2 <= TRIES:
        picks = np.array(list(combinations(range(n), 2)))
    else:
        picks = np.argsort(rng.random((TRIES, n)), axis=1)[:, :D] if n <= 400 else rng.integers(0, n, (TRIES, D))
    base = x[picks[:, 0]]
    spans = x[picks[:, 1:]] - base[:, None]  # (T, D-1, D)
    _, S, Vt = np.linalg.svd(spans, full_matrices=True)
    good = S[:, -1] > 1e-3 * np.maximum(S[:, 0], 1e-300)
    good &= S[:, 0] > 1e-3
    if not good.any():
        return None
    normals = Vt[good, -1]
    constants = -(normals * base[good]).sum(axis=1)
    counts = np.zeros(len(normals), dtype=int)
    for part in range(0, len(normals), 2000):
        rows = slice(part, part + 2000)
        counts[rows] = (np.abs(normals[rows] @ x.T + constants[rows, None]) < 10.0 * near).sum(axis=1)
    best = int(counts.argmax())
    fit = np.append(normals[best], constants[best])
    for width in (10.0, 10.0, 1.0):
        on = np.abs(x @ fit[:-1] + fit[-1]) < width * near
        if on.sum() < D + 2:
            return None
        fit = _least_squares(x[on], 1.0 / near[on])
    away = np.abs(x @ fit[:-1] + fit[-1])
    close = away < max(1e-14, 5.0 * float(np.median(away[away < near])))
    return _least_squares(x[close], np.ones(int(close.sum()))) if close.sum() >= D + 2 else fit


def _least_squares(x: Array, weight: Array) -> Array:
    mean = (weight[:, None] * x).sum(axis=0) / weight.sum()
    _, _, Vt = np.linalg.svd(weight[:, None] * (x - mean), full_matrices=True)
    return np.append(Vt[-1], -float(Vt[-1] @ mean))


def _sheet(fit: Array, found: Breaks, middle: Array, half: Array) -> Sheet:
    """A plane in x with exact coefficients, its kind and its K."""
    on = np.abs(found.x @ fit[:-1] + fit[-1]) < _tolerance(found.powers)
    slopes = fit[:-1] / half
    row = np.append(slopes, fit[-1] - float(slopes @ middle))
    plane = _snapped(row, middle, half)
    own = found.only(on)
    kinks = own.only((own.powers >= CUSP) & (own.powers < GENTLE))
    scaled = np.array([float(c) for c in plane[:-1]]) * half
    across = np.abs(kinks.along @ scaled)
    steep = kinks.kinks / np.maximum(across, 1e-9)
    clear = across > 0.02 * float(np.linalg.norm(scaled))
    slope = 1.2 * float(np.quantile(steep[clear], 0.97)) if clear.any() else 0.0
    kind = "jump" if (own.powers < STEP).mean() > 0.02 else "kink"
    return Sheet(plane, kind, int(on.sum()), slope)


def _snapped(row: Array, middle: Array, half: Array) -> Plane:
    """Small rationals where they are the coefficients to within rounding; else the coefficients, the largest being one."""
    found: list[tuple[tuple[bool, int], Plane]] = []
    tolerance = 2e-13 * (1.0 + float((np.abs(middle) / half).max()))
    for lead in np.flatnonzero(np.abs(row[:-1]) > 1e-6 * np.abs(row[:-1]).max()):
        scaled = row / row[lead]
        size = float(np.abs(scaled[:-1] * half).sum())
        near = [Fraction(float(c)).limit_denominator(DENOMINATORS) for c in scaled]
        miss = np.array([float(a - Fraction(float(b))) for a, b in zip(near, scaled, strict=True)])
        if float(np.abs(miss[:-1]) @ (np.abs(middle) + half)) + abs(miss[-1]) <= tolerance * size:
            sign = 1 if next(c for c in near if c) > 0 else -1
            decimals = all(10**6 % c.denominator == 0 for c in near)
            length = sum(abs(c.numerator) + c.denominator for c in near)
            found.append(((not decimals, length), tuple(sign * c for c in near)))
    if found:
        return min(found, key=lambda one: one[0])[1]
    scaled = row / row[int(np.abs(row[:-1] * half).argmax())]
    return tuple(Fraction(float(c)) for c in scaled)


def _regions(
    whole: Polytope, planes: list[Plane], most: int, half: Array
) -> tuple[tuple[tuple[int, ...], ...], tuple[Array, ...]]:
    """Sign vectors of the regions and their vertices; slivers, where planes meet but for rounding, are left out."""
    parts: list[tuple[Polytope, tuple[int, ...]]] = [(whole, ())]
    try:
        for plane in planes:
            parts = [
                (part, (*signs, side))
                for polytope, signs in parts
                for part, side in zip(polytope.cut(plane), (-1, 1), strict=True)
                if part is not None and part.spans() and _width(_vertices(part), half) > 1e-6
            ]
            if len(parts) > most:
                raise NoPlanes(f"its {len(planes)} planes cut the box into more than {most} regions")
    except TooLarge as failure:
        raise NoPlanes(str(failure)) from None
    return tuple(signs for _, signs in parts), tuple(_vertices(part) for part, _ in parts)


def _vertices(part: Polytope) -> Array:
    return np.array([[float(c) for c in v] for v in part.vertices])


def _width(vertices: Array, half: Array) -> float:
    """The smallest extent of a cell, in half widths of the box."""
    z = vertices / half
    return float(np.linalg.svd(z - z.mean(axis=0), compute_uv=False)[-1])
