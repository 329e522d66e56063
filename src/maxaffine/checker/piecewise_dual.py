"""Piecewise affine layers of many variables re-proved: cells as half spaces, inequalities by duality.

A box of D variables has 2^D corners, so that vertices are no way beyond a few.  Here a cell is a list of affine functions
h_i <= 0, and an affine function L is bounded on it by weak duality: for any multipliers mu_i >= 0,

    L <= L - sum_i mu_i h_i <= its maximum over the box,

which is a sum over the coordinates and is computed exactly.  A linear program proposes the multipliers; a poor answer makes the
bound larger, never wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from maxaffine.checker.affine_tokens import AffineTokens
from maxaffine.checker.piecewise_cells import CONDITIONS, ZERO, Parts, sides_of, walk
from maxaffine.checker.proved import NotProved
from maxaffine.core.arrays import Array
from maxaffine.core.polytopes import Affine
from maxaffine.expression.expression import Expression

PROGRAMS = 4_000
CELLS = 400
LEAD = Fraction(1, 1000)  # scores by which two tokens must lead each other before a cell is cut between them


@dataclass
class Frame:
    """The box, and how many programs have been solved on it."""

    low: list[Fraction]
    high: list[Fraction]
    programs: int = 0
    known: dict[Affine, list[float]] = field(default_factory=dict)

    def top(self, L: Affine) -> Fraction:
        """The maximum of L over the box, exactly."""
        return L[-1] + sum((c * (self.high[i] if c > 0 else self.low[i]) for i, c in enumerate(L[:-1]) if c), ZERO)

    def scaled(self, L: Affine) -> list[float]:
        """L in coordinates that run over [-1, 1], as float64."""
        if L not in self.known:
            ends = list(zip(L, self.low, self.high, strict=False))
            middle = sum((c * (a + b) / 2 for c, a, b in ends), L[-1])
            self.known[L] = [*(float(c * ((b - a) / 2)) for c, a, b in ends), float(middle)]
        return self.known[L]

    def upper(self, L: Affine, cell: tuple[Affine, ...], enough: Fraction = ZERO) -> Fraction:
        """An upper bound of L on the cell, not sharper than `enough`; minus 1 where the cell is proved to be empty."""
        plain = self.top(L)
        if not cell or plain <= enough:
            return plain
        rows = np.array([self.scaled(h) for h in cell])
        sizes = np.maximum(np.abs(rows).max(axis=1), 1e-300)
        goal = self.scaled(L)
        D = len(goal) - 1
        answer = self._solve(-np.array(goal[:-1]), rows[:, :-1] / sizes[:, None], -rows[:, -1] / sizes, D)
        if answer is None:
            return Fraction(-1) if self.empty(cell) else plain
        multipliers = np.maximum(-answer.ineqlin.marginals, 0.0) / sizes
        return min(plain, self.top(_less(L, cell, multipliers)))

    def empty(self, cell: tuple[Affine, ...]) -> bool:
        """Whether some h_i > 0 everywhere, by a mean of them that is positive on the box."""
        depth, _, multipliers = self._deepest(cell)
        return depth > 0 and self.top(_less((ZERO,) * len(cell[0]), cell, multipliers)) < 0

    def inner(self, cell: tuple[Affine, ...]) -> list[Fraction]:
        """A point deep inside the cell, where it has one."""
        if not cell:
            return [(a + b) / 2 for a, b in zip(self.low, self.high, strict=True)]
        _, point, _ = self._deepest(cell)
        return [(a + b) / 2 + Fraction(float(u)) * (b - a) / 2 for u, a, b in zip(point, self.low, self.high, strict=True)]

    def _deepest(self, cell: tuple[Affine, ...]) -> tuple[float, Array, Array]:
        """min over the box of max_i h_i / |h_i|, the point in [-1, 1]^D where that is, and the multipliers of the h_i."""
        rows = np.array([self.scaled(h) for h in cell])
        sizes = np.maximum(np.abs(rows[:, :-1]).sum(axis=1), 1e-300)
        D = rows.shape[1] - 1
        A = np.concatenate([rows[:, :-1] / sizes[:, None], -np.ones((len(rows), 1))], axis=1)
        answer = self._solve(np.append(np.zeros(D), 1.0), A, -rows[:, -1] / sizes, D)
        if answer is None:
            raise NotProved("a linear program has no answer.")
        return float(answer.fun), np.asarray(answer.x[:D]), np.maximum(-answer.ineqlin.marginals, 0.0) / sizes

    def _solve(self, c: Array, A: Array, b: Array, D: int) -> Any:
        from scipy.optimize import linprog

        self.programs += 1
        if self.programs > PROGRAMS:
            raise NotProved(f"its cells need more than {PROGRAMS:,} linear programs.")
        bounds = [(-1.0, 1.0)] * D + [(None, None)] * (len(c) - D)
        answer = linprog(c, A_ub=A, b_ub=b, bounds=bounds, method="highs")
        return answer if answer.status == 0 else None


def _less(L: Affine, cell: tuple[Affine, ...], multipliers: Array) -> Affine:
    """L - sum_i mu_i h_i, exactly."""
    total = list(L)
    for mu, h in zip(multipliers, cell, strict=True):
        if mu > 0:
            weight = Fraction(float(mu))
            total = [a - weight * b for a, b in zip(total, h, strict=True)]
    return tuple(total)


def compared_by_duality(tokens: AffineTokens, expression: Expression, error: float, kappa: float) -> tuple[float, int]:
    """(rest, cells): |v_k - f| <= kappa (S_l - S_k) + rest on every cell for every token."""
    if not (math.isfinite(kappa) and kappa > 0):
        raise NotProved("its sharpness is not a positive number.")
    low, high = tokens.layer.low, tokens.layer.high
    frame = Frame([Fraction(float(a)) for a in low], [Fraction(float(b)) for b in high])
    scores, values = tokens.in_x(tokens.scores), tokens.in_x(tokens.values)
    steep, goal = Fraction(kappa), Fraction(1e-3 * error)
    worst, count = ZERO, 0
    small = goal / (10 * len(expression.nodes))
    left = list(walk(expression, (), low, high, lambda node, args, cell: _branches(frame, node, args, cell, small), CELLS))
    while left:
        one = left.pop()
        cell, outputs = one.part, one.outputs
        count += 1
        if count > CELLS:
            raise NotProved(f"it has more than {CELLS:,} cells.")
        best = int((scores[:, :-1] @ np.array(frame.inner(cell), dtype=object) + scores[:, -1]).argmax())
        found, rival = ZERO, -1
        for k, (score, rows) in enumerate(zip(scores, values, strict=True)):
            gap = steep * (scores[best] - score)
            for f, v in zip(outputs, rows, strict=True):
                for sign in (1, -1):
                    above = frame.upper(tuple(sign * (v - f) - gap), cell, max(found, goal / 100))
                    if above > found:
                        found, rival = above, k
        if found > goal and rival >= 0:
            tied, minus = tuple(scores[best] - scores[rival]), tuple(scores[rival] - scores[best])
            if min(frame.upper(minus, cell), frame.upper(tied, cell)) > LEAD and len(cell) < 200:
                left += [replace(one, part=(*cell, side)) for side in (tied, minus) if not frame.empty((*cell, side))]
                continue
        worst = max(worst, found + one.uncertainty)
    return float(worst) * (1 + 1e-12), count


def _branches(frame: Frame, node: Any, args: list[Any], cell: tuple[Affine, ...], small: Fraction) -> Parts:
    """A switch on a cell: one side where the other is at most `small` away, else those sides that are not proved empty."""
    if node.op in CONDITIONS:
        raise NotProved("conditions are not followed in this many variables.")
    d, below, above = sides_of(node.op, args)
    minus = tuple(-c for c in d)
    top, bottom = frame.upper(d, cell), frame.upper(minus, cell)
    if top <= small or bottom <= small:
        (form, uncertainty), off = (below, top) if top <= bottom else (above, bottom)
        return [(cell, (form, uncertainty + max(off, ZERO)))]
    return [((*cell, side), form) for side, form in ((d, below), (minus, above)) if not frame.empty((*cell, side))]
