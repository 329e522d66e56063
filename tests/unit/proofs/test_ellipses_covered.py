"""Ellipses covered by pieces: no point of an ellipse is left out, no silent piece is passed over, what is found is analytic."""

import math

import numpy as np
import pytest

from maxaffine.checker import local_error
from maxaffine.checker.head import Head
from maxaffine.checker.reader import Axis
from maxaffine.core import balls
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.proofs.sources import FromExpression, covered

CELLS = [
    ([-1.0, -1.0], [1.0, 1.0], 0), ([-1.0, -1.0], [1.0, 1.0], 1), ([0.3, -0.9], [0.7, -0.1], 0),
    ([-1.0, 0.25, -0.5], [-0.5, 0.75, 1.0], 2), ([1e6, -1.0], [1e6 + 1.0, 1.0], 0),
]  # fmt: skip


def points(low, high, k, r, count=3000):
    """Points of the ellipse of side k (its boundary, and inside) times the cell: real parts (count, E), imaginary (count,)."""
    rng = np.random.default_rng(0)
    real = rng.uniform(low, high, (count, len(low)))
    angle, rho = rng.uniform(0, 2 * math.pi, count), np.where(rng.random(count) < 0.7, r, rng.uniform(1.0, r, count))
    angle[:4] = np.arange(4) * math.pi / 2
    reach = (high[k] - low[k]) / 2.0
    real[:, k] = (low[k] + high[k]) / 2.0 + reach * (rho + 1 / rho) / 2.0 * np.cos(angle)
    return real, reach * (rho - 1 / rho) / 2.0 * np.sin(angle)


def bounds_of(ball):
    lo, hi = balls.bounds(ball.real)
    return lo, hi, balls.bounds(ball.imag)[1]


def head(expression, dimension):
    """A head of one key of value zero in the unit box."""
    axes = tuple(Axis(np.zeros(1), np.zeros(1)) for _ in range(dimension))
    return Head(expression, Interval.point(np.zeros(dimension)), np.ones(dimension), axes, np.zeros((1,) * dimension + (1,)))


def around(one, low, high, k, r):
    """The checker's bound, with the semi-axes that it takes itself."""
    centre, reach = (low[k] + high[k]) / 2.0, (high[k] - low[k]) / 2.0
    wide, tall = (reach * (r + s / r) / 2.0 * (1 + 1e-11) + 2.0**-51 * (abs(low[k]) + abs(high[k])) for s in (1.0, -1.0))
    return local_error._around(one, low, high, k, float(centre), float(wide), float(tall), local_error.COVER)


def looked_at(low, high, k, r, who, monkeypatch, silent):
    """Pieces (low, high, height) per side that said something, and the bound; `silent` says which pieces say nothing."""
    heard = []

    def size(row):
        if silent(row):
            return math.inf
        heard.append(row)
        return float(len(heard))

    if who == "certificate":
        return heard, covered(lambda sides: size([bounds_of(side) for side in sides]), low, high, k, r, True)
    monkeypatch.setattr(Head, "target_size", lambda self, row: size(row))
    return heard, around(head(Expression.parse("x", ("x",)), len(low)), low, high, k, r)


@pytest.mark.parametrize("r", [1.2, 2.2, 18.0])
@pytest.mark.parametrize(
    ("low", "high", "k", "who"),
    [(*cell, who) for cell in CELLS for who in ("certificate", "checker") if who == "certificate" or max(cell[0]) <= 1.0],
)  # the checker's cells lie in [-1, 1]
def test_pieces_cover_the_whole_ellipse(low, high, k, r, who, monkeypatch):
    low, high = np.array(low), np.array(high)
    sides = high - low
    sides[k] *= (r + 1 / r) / 2.0

    def silent(row):  # everything that is wider than a part of a side: several generations of pieces
        return any(b - a > 0.4 * side for (a, b, _), side in zip(row, sides, strict=True))

    heard, bound = looked_at(low, high, k, r, who, monkeypatch, silent)
    assert math.isfinite(bound) and bound == len(heard) > 8
    real, imaginary = points(low, high, k, r)
    covered = np.zeros(len(real), dtype=bool)
    for row in heard:
        inside = np.all([(a <= real[:, e]) & (real[:, e] <= b) for e, (a, b, _) in enumerate(row)], axis=0)
        covered |= inside & (np.abs(imaginary) <= row[k][2])
    assert covered.all()


@pytest.mark.parametrize("who", ["certificate", "checker"])
@pytest.mark.parametrize("place", [-0.97, -0.31, 0.0, 0.52, 0.9])
def test_a_piece_that_stays_silent_makes_the_whole_silent(place, who, monkeypatch):
    low, high = -np.ones(2), np.ones(2)
    for k in (0, 1):  # nothing is known at one point of the real cell
        heard, bound = looked_at(low, high, k, 1.4, who, monkeypatch, lambda row: all(a <= place <= b for a, b, _ in row))
        assert bound == math.inf and heard


def coefficients(f, low, high, k, x, count):
    """Chebyshev coefficients of f along side k, the other coordinates those of x."""
    angle = math.pi * (np.arange(count) + 0.5) / count
    rows = np.tile(x, (count, 1))
    rows[:, k] = (low[k] + high[k]) / 2.0 + (high[k] - low[k]) / 2.0 * np.cos(angle)
    m = np.arange(count // 2)
    return 2.0 / count * np.cos(np.outer(m, angle)) @ f(rows)


@pytest.mark.parametrize("text", [
    "1/(1+x**2+y**2+x*y*z)", "sqrt(1.3+x*y)", "log(1.2+x*x+y/3)", "atan(2*x*y)", "abs(x+y+2.6)", "cbrt(x*y+1.4)",
    "where(x+y<2.7,exp(x*y),0)", "max(x+y,2.5+x*y)", "x/(1.05-y*y*x)",
])  # fmt: skip
def test_coefficients_decay_as_the_bound_on_the_ellipse_says(text):
    """|a_m| <= 2 M r^-m for a function that is analytic in the ellipse and at most M there."""
    names = ("x", "y", "z")[: 3 if "z" in text else 2]
    f = Expression.parse(text, names)
    E, rng, pieces = len(names), np.random.default_rng(1), 0
    source, one = FromExpression(f, Interval.point(np.zeros(E)), np.ones(E)), head(f, E)
    for low, high in ((-np.ones(E), np.ones(E)), (-np.ones(E), np.zeros(E)), (np.full(E, 0.2), np.ones(E))):
        for k in range(E):
            for r in (1.2, 1.4, 1.7, 2.2):
                with balls.precision(64):
                    found = [source.on_ellipse(low, high, k, r, True), around(one, low, high, k, r)]
                for bound in found:
                    if not math.isfinite(bound):
                        continue
                    pieces += 1
                    for x in rng.uniform(low, high, (4, E)):
                        a = np.abs(coefficients(lambda rows: f.evaluate(rows)[:, 0], low, high, k, x, 128))
                        limit = 2.0 * bound * r ** -np.arange(len(a), dtype=np.float64) * (1 + 1e-9) + 1e-13 * (1.0 + bound)
                        assert np.all(a <= limit)
    assert pieces > 4


@pytest.mark.parametrize(
    "text", ["abs(x-y/2)", "sqrt(x*y+.99)", "log(1+x*y)", "1/(1.02-x*y+x*x/50)", "max(x*y,.9)", "cbrt(x+y-1.9)"]
)
def test_what_breaks_inside_an_ellipse_has_no_bound_there(text):
    f = Expression.parse(text, ("x", "y"))
    low, high = -np.ones(2), np.ones(2)
    for k in (0, 1):
        with balls.precision(64):
            assert FromExpression(f, Interval.point(np.zeros(2)), np.ones(2)).on_ellipse(low, high, k, 1.7, True) == math.inf
            assert around(head(f, 2), low, high, k, 1.6) == math.inf
