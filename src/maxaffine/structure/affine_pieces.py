"""Affine pieces on the cube [-1, 1]^D, in exact arithmetic: which of several are needed for their maximum.

Numbers are fractions in u = (x - middle) / half.  A linear program proposes weights w >= 0, sum w = 1, with
p <= sum_k w_k p_k + slack, and the slack is computed from them exactly, so that nothing rests on its arithmetic.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from maxaffine.core.arrays import Array

Piece = tuple[Fraction, ...]  # slopes in u, then the constant
Pieces = tuple[Piece, ...]

MOST_PIECES = 1200  # pieces that may have to be looked at one by one
ZERO = Fraction(0)


class NotPiecewise(Exception):
    """Why an expression is not seen to be a continuous piecewise affine function, as a phrase."""


def add(a: Piece, b: Piece) -> Piece:
    """a + b."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def subtract(a: Piece, b: Piece) -> Piece:
    """a - b."""
    return tuple(x - y for x, y in zip(a, b, strict=True))


def scale(a: Piece, c: Fraction | int) -> Piece:
    """c a."""
    return tuple(c * x for x in a)


def constant(D: int, value: Fraction = ZERO) -> Piece:
    """A number as a piece."""
    return (*([ZERO] * D), value)


def size(a: Piece) -> Fraction:
    """sup |a| over the cube."""
    return sum((abs(x) for x in a), ZERO)


def top(a: Piece) -> Fraction:
    """sup a over the cube."""
    return a[-1] + sum((abs(x) for x in a[:-1]), ZERO)


def floats_of(pieces: Sequence[Piece]) -> Array:
    """(n, D + 1) in float64."""
    return np.array([[float(x) for x in piece] for piece in pieces], dtype=np.float64)


def heights(floats: Array, u: Array) -> Array:
    """(points, pieces): float64 values at points u."""
    return np.asarray(u @ floats[:, :-1].T + floats[:, -1])


def probes(D: int) -> Array:
    """Points of the cube to look at, some of them on its sides."""
    rng = np.random.default_rng(7)
    u = rng.uniform(-1.0, 1.0, (256 * D, D))
    u[::4] = np.clip(1.5 * u[::4], -1.0, 1.0)
    return np.concatenate([u, np.zeros((1, D))])


def slack(piece: Piece, others: Sequence[Piece], floats: Array) -> tuple[Fraction | None, Array]:
    """(s, u): s with piece <= max(others) + s on the box, exact, or None where the program finds a point u above by far more."""
    D = len(piece) - 1
    rows = np.array([float(x) for x in piece]) - floats  # (n, D + 1)
    unit = max(1e-300, float(np.abs(rows).max()))
    if len(others) <= 2:
        highest, weights, where = _above_two(rows / unit)
        return (None if highest > 1e-10 else _below(piece, others, weights, unit)), where
    from scipy.optimize import linprog  # loading it takes longer than most compiles

    # max t with t <= (piece - other_k)(u): its multipliers are the weights.
    A = np.concatenate([-rows[:, :-1] / unit, np.ones((len(rows), 1))], axis=1)
    bounds = [(-1.0, 1.0)] * D + [(None, None)]
    answer = linprog(np.append(np.zeros(D), -1.0), A_ub=A, b_ub=rows[:, -1] / unit, bounds=bounds, method="highs")
    if answer.status != 0:
        return None, np.zeros(D)
    if -answer.fun > 1e-10:
        return None, np.asarray(answer.x[:D])
    return _below(piece, others, np.maximum(-answer.ineqlin.marginals, 0.0), unit), np.asarray(answer.x[:D])


def _below(piece: Piece, others: Sequence[Piece], weights: Array, unit: float) -> Fraction | None:
    """s with piece <= the weighted mean of others + s on the box, exact; None where that is not small."""
    exact = [Fraction(float(w)) for w in weights]
    total = sum(exact, ZERO)
    if total <= 0:
        return None
    mean = constant(len(piece) - 1)
    for w, other in zip(exact, others, strict=True):
        if w:
            mean = add(mean, scale(other, w / total))
    found = top(subtract(piece, mean))
    return found if float(found) <= 1e-9 * unit else None


def _above_two(rows: Array) -> tuple[float, Array, Array]:
    """max over u of min(r_1(u), r_2(u)) = min over w of max over u of (w r_1 + (1 - w) r_2)(u), with w and u; or of one row."""
    one, other = rows[0], rows[-1]
    gap = other - one
    with np.errstate(all="ignore"):
        bends = other[:-1] / gap[:-1]  # where a coefficient of the mean changes its sign
    w = np.concatenate([[0.0, 1.0], bends[(bends > 0.0) & (bends < 1.0)]])
    mean = np.multiply.outer(w, one) + np.multiply.outer(1.0 - w, other)
    tops = np.abs(mean[:, :-1]).sum(axis=1) + mean[:, -1]
    best = int(tops.argmin())
    u, flat = np.sign(mean[best, :-1]), np.abs(mean[best, :-1]) < 1e-12 * np.abs(rows).max()
    u[flat] = 0.0
    for e in np.flatnonzero(flat & (gap[:-1] != 0.0)):  # there both are the same as far as the box allows
        u[e] = np.clip(u[e] - (gap[:-1] @ u + gap[-1]) / gap[e], -1.0, 1.0)
    return float(tops[best]), (np.array([w[best], 1.0 - w[best]]) if len(rows) > 1 else np.ones(1)), u


def needed(pieces: Sequence[Piece]) -> tuple[list[int], Fraction]:
    """Numbers of pieces that are enough, and a slack: max of all <= max of these + slack on the box."""
    best: dict[Piece, int] = {}
    for i, piece in enumerate(pieces):
        known = best.get(piece[:-1])
        if known is None or pieces[known][-1] < piece[-1]:
            best[piece[:-1]] = i
    left = list(best.values())
    if len(left) == 1:
        return left, ZERO
    floats = floats_of([pieces[i] for i in left])
    if not np.isfinite(floats).all():
        raise NotPiecewise("its coefficients are too large")
    sure = np.zeros(len(left), dtype=bool)
    at = heights(floats, probes(floats.shape[1] - 1))
    order = np.argsort(at, axis=1)
    rows = np.arange(len(at))
    clear = at[rows, order[:, -1]] - at[rows, order[:, -2]] > 1e-7 * np.abs(at).max(axis=1)
    sure[order[clear, -1]] = True
    alive = np.ones(len(left), dtype=bool)
    total = ZERO
    certain = np.flatnonzero(sure)
    for i in [int(k) for k in np.flatnonzero(~sure)] if len(certain) else []:  # below a single piece that is needed, everywhere
        gap = np.abs(floats[i, :-1] - floats[certain, :-1]).sum(axis=1) + floats[i, -1] - floats[certain, -1]
        above = pieces[left[int(certain[gap.argmin()])]]
        alive[i] = not (gap.min() < 0 and top(subtract(pieces[left[i]], above)) <= 0)
    if (alive & ~sure).sum() > MOST_PIECES:
        raise NotPiecewise(f"it has more than {MOST_PIECES:,} pieces that may matter")
    for i in range(len(left)):
        if sure[i] or not alive[i]:
            continue
        alive[i] = False
        others = np.flatnonzero(alive)
        lost = None
        if len(others):
            lost, where = slack(pieces[left[i]], [pieces[left[k]] for k in others], floats[others])
            if lost is None:
                there = floats[:, :-1] @ where + floats[:, -1]
                there[[k for k in np.flatnonzero(~alive) if k != i]] = -np.inf
                sure[int(there.argmax())] = True
        if lost is None:
            alive[i] = True
        elif lost > 0:
            total += lost
    return [left[i] for i in np.flatnonzero(alive)], total
