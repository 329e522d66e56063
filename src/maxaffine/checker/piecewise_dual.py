"""Piecewise affine layers of many variables re-proved: cells as half spaces, inequalities by duality.

A box of D variables has 2^D corners, so that vertices are no way beyond a few.  Here a cell is a list of affine functions
h_i <= 0, and an affine function L is bounded on it by weak duality: for any multipliers mu_i >= 0,

    L <= L - sum_i mu_i h_i <= its maximum over the box,

which is a sum over the coordinates and is computed exactly.  A linear program proposes the multipliers; a poor answer makes the
bound larger, never wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.stored import NotProved
from maxaffine.core.intervals import Interval
from maxaffine.core.polytopes import Affine
from maxaffine.expression import evaluate
from maxaffine.expression.expression import Expression

Array = NDArray[np.float64]
ZERO = Fraction(0)
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
        known = self.known.get(L)
        if known is None:
            known = self.known[L] = self._scaled(L)
        return known

    def _scaled(self, L: Affine) -> list[float]:
        half = [(b - a) / 2 for a, b in zip(self.low, self.high, strict=True)]
        middle = sum((c * (a + b) / 2 for c, a, b in zip(L, self.low, self.high, strict=False)), L[-1])
        return [*(float(c * h) for c, h in zip(L, half, strict=False)), float(middle)]

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
        depth, multipliers = self._depth(cell)
        if depth <= 0 or multipliers is None:
            return False
        return self.top(_less((ZERO,) * len(cell[0]), cell, multipliers)) < 0

    def inner(self, cell: tuple[Affine, ...]) -> list[Fraction]:
        """A point deep inside the cell, where it has one."""
        if not cell:
            return [(a + b) / 2 for a, b in zip(self.low, self.high, strict=True)]
        self._depth(cell)
        return [(a + b) / 2 + Fraction(float(u)) * (b - a) / 2 for u, a, b in zip(self._point, self.low, self.high, strict=True)]

    def _depth(self, cell: tuple[Affine, ...]) -> tuple[float, Array | None]:
        """min over the box of max_i h_i / |h_i|, with the multipliers of the h_i."""
        rows = np.array([self.scaled(h) for h in cell])
        sizes = np.maximum(np.abs(rows[:, :-1]).sum(axis=1), 1e-300)
        D = rows.shape[1] - 1
        A = np.concatenate([rows[:, :-1] / sizes[:, None], -np.ones((len(rows), 1))], axis=1)
        answer = self._solve(np.append(np.zeros(D), 1.0), A, -rows[:, -1] / sizes, D)
        if answer is None:
            raise NotProved("a linear program has no answer.")
        self._point = np.asarray(answer.x[:D])
        return float(answer.fun), np.maximum(-answer.ineqlin.marginals, 0.0) / sizes

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


def compared(tokens: Any, expression: Expression, error: float, kappa: float, form: Any) -> tuple[float, int]:
    """(doubt, cells): |v_k - f| <= kappa (S_l - S_k) + doubt on every cell for every token.

    `form` reads the nodes of the expression that do not switch.
    """
    if not (math.isfinite(kappa) and kappa > 0):
        raise NotProved("its sharpness is not a positive number.")
    frame = Frame([Fraction(float(a)) for a in tokens.low], [Fraction(float(b)) for b in tokens.high])
    shift = [(*row[:-1], row[-1] - _dot(row, tokens.centre)) for row in tokens.scores]
    values = [[(*row[:-1], row[-1] - _dot(row, tokens.centre)) for row in rows] for rows in tokens.values]
    steep, goal = Fraction(kappa), Fraction(1e-3 * error)
    worst, count = ZERO, 0
    left = list(_cells(expression, frame, tokens.low, tokens.high, goal, form))
    while left:
        cell, outputs, doubt = left.pop()
        count += 1
        if count > CELLS:
            raise NotProved(f"it has more than {CELLS:,} cells.")
        point = frame.inner(cell)
        heights = [_dot(s, point) + s[-1] for s in shift]
        best = heights.index(max(heights))
        found, rival = ZERO, -1
        for k, (score, rows) in enumerate(zip(shift, values, strict=True)):
            gap = [steep * (a - b) for a, b in zip(shift[best], score, strict=True)]
            for f, v in zip(outputs, rows, strict=True):
                for sign in (1, -1):
                    L = tuple(sign * (a - b) - g for a, b, g in zip(v, f, gap, strict=True))
                    above = frame.upper(L, cell, max(found, goal / 100))
                    if above > found:
                        found, rival = above, k
        if found > goal and rival >= 0:
            tied = tuple(a - b for a, b in zip(shift[best], shift[rival], strict=True))
            minus = tuple(-c for c in tied)
            if min(frame.upper(minus, cell), frame.upper(tied, cell)) > LEAD and len(cell) < 200:
                left += [((*cell, side), outputs, doubt) for side in (tied, minus) if not frame.empty((*cell, side))]
                continue
        worst = max(worst, found + doubt)
    return float(worst) * (1 + 1e-12), count


def _dot(row: Affine, point: list[Fraction]) -> Fraction:
    return sum((a * x for a, x in zip(row, point, strict=False) if a), ZERO)


def _cells(expression: Expression, frame: Frame, low: Array, high: Array, goal: Fraction, form: Any) -> Any:
    """Cells (half spaces, outputs, doubt) that cover the box; conditions are not followed here."""
    nodes = expression.nodes
    sizes = evaluate.enclosures(nodes, range(len(nodes)), Interval(low[None], high[None]))
    small = goal / (10 * len(nodes))
    stack: list[tuple[tuple[Affine, ...], tuple[Any, ...]]] = [((), ())]
    while stack:
        cell, known = stack.pop()
        forms = list(known)
        while len(forms) < len(nodes):
            node = nodes[len(forms)]
            args = [forms[a] for a in node.args]
            if node.op not in ("max", "min", "abs"):
                if node.op in ("negative", "nonpositive", "zero"):
                    raise NotProved("conditions are not followed in this many variables.")
                forms.append(form(node, args, sizes, len(forms), expression.dimension))
                continue
            a, b = args[0], args[1] if node.op != "abs" else (tuple(-c for c in args[0][0]), args[0][1])
            d = tuple(x - y for x, y in zip(a[0], b[0], strict=True))
            first, second = (b, a) if node.op != "min" else (a, b)  # where d <= 0, and where d >= 0
            doubt = max(a[1], b[1])
            above, below = frame.upper(d, cell), frame.upper(tuple(-c for c in d), cell)
            if above <= small or below <= small:
                chosen, off = (first, above) if above <= below else (second, below)
                forms.append((chosen[0], doubt + max(off, ZERO)))
                continue
            for side, value in ((d, first), (tuple(-c for c in d), second)):
                if not frame.empty((*cell, side)):
                    stack.append(((*cell, side), (*forms, (value[0], doubt))))
            if len(stack) > CELLS:
                raise NotProved(f"the target has more than {CELLS:,} cells.")
            break
        else:
            outputs = [forms[place] for place in expression.outputs]
            yield cell, tuple(f for f, _ in outputs), max(d for _, d in outputs)
