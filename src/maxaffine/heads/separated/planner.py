"""Plans of separated heads: exponential sums for outer functions, one set of keys per direction, and values of all factors.

The error is shared: a part for the exponential sums, the rest in equal parts for the blocks.  A factor counts by the size of its
partners, so columns are fitted multiplied by that; columns that stand for a constant are stored as they are.  Where errors are
relative to |f(x)|, a factor counts by nothing but its own size, and the error is that of the worst product (relative.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maxaffine.core import deadline
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import numpy_dtype
from maxaffine.expression.expression import Expression
from maxaffine.heads.separated.exponentials import MOST, fits
from maxaffine.heads.separated.graded_fit import FEWEST, finer
from maxaffine.heads.separated.inner import Inner, inner_range
from maxaffine.heads.separated.plan import SeparatedPlan
from maxaffine.heads.separated.relative_fit import RelativeCurve
from maxaffine.heads.spectral.fit import AxisCurve
from maxaffine.heads.spectral.plan import GroupPlan, GroupPlanner, scaled
from maxaffine.layer.spectral_keys import SpectralAxis
from maxaffine.proofs.sources import FromExpression
from maxaffine.structure.directions import told
from maxaffine.structure.exponential_sums import ExponentialSum, Row, rows
from maxaffine.structure.groups import Group
from maxaffine.structure.separation import Outer, Separation, side_by_side

OUTER_SHARE = 0.5  # of the error, for exponential sums; what they leave goes to the keys
MOST_KEYS = 96
MANY_KEYS = 24  # along a direction, from which on graded ones are tried
MOST_RELATIVE = 160  # of a factor that spans decades
ALONG = {2: 192, 3: 48, 4: 24}  # keys along a direction of a block
MOST_CELLS = 4_000  # of a block
MOST_ROWS = 160
CANDIDATES = 3  # exponential sums per outer function that are tried
SEEN = 257  # points per direction at which sizes are seen


class NotPlanned(Exception):
    """Why no plan was found."""


@dataclass(frozen=True)
class _Fitted:
    """One block: keys per direction, values (N_1, .., R) real and imaginary, and the expected error of the whole by them."""

    axes: tuple[SpectralAxis, ...]
    real: Array
    imaginary: Array
    error: float


@dataclass
class Planner:
    """Plans for one separation on one box."""

    separation: Separation
    choice: str
    low: Array
    high: Array
    error: float
    dtype: str
    names: Sequence[str]
    relative: bool = False
    _fitted: dict[Any, _Fitted] = field(default_factory=dict)
    _short: str = ""  # which block took too many keys

    def __post_init__(self) -> None:
        frame = self.separation.all_directions()
        self.middle, self.half = scaled(frame, self.low, self.high)
        self.points = [self._points(b) for b in range(len(self.separation.sizes))]
        self.sizes = [[_size(part, self.points[b], 1.0) for b, part in enumerate(term.factors)] for term in self.separation.terms]
        self.inner = [self._inner(outer) for outer in self.separation.outers]
        if self.relative:
            self._doubt_signs()

    def _doubt_signs(self) -> None:
        """Relative errors of terms are one of their sum where all of them have the same sign, and no factor has a zero."""
        signs = []
        for term in self.separation.terms:
            values = [part.evaluate(self.points[b]) for b, part in enumerate(term.factors) if part is not None]
            values += [s.f_check for j in term.outers if (s := self.inner[j].sampled) is not None]
            if not all((one > 0).all() or (one < 0).all() for one in values):
                raise NotPlanned("relative errors of products need factors without a zero")
            signs.append(math.prod(math.copysign(1.0, float(one.flat[0])) for one in values))
        if len(set(signs)) > 1:
            raise NotPlanned("relative errors of a sum need terms of one sign")

    def _cut(self, b: int) -> slice:
        first = self.separation.firsts[b]
        return slice(first, first + self.separation.sizes[b])

    def _points(self, b: int) -> Array:
        """Points of a block: a fine row, or a grid."""
        cut, size = self._cut(b), self.separation.sizes[b]
        z = [np.linspace(-1.0, 1.0, SEEN if size == 1 else 17 if size == 2 else 9)] * size
        grid = np.stack([a.ravel() for a in np.meshgrid(*z, indexing="ij")], axis=1)
        middle = (self.middle.lo[cut] + self.middle.hi[cut]) / 2.0
        return np.asarray(middle + grid * self.half[cut])

    def source(self, part: Expression, b: int) -> FromExpression:
        """A part of block b in the scaled variables of the block."""
        cut = self._cut(b)
        return FromExpression(part, Interval.of(self.middle.lo[cut], self.middle.hi[cut]), self.half[cut])

    def _inner(self, outer: Outer) -> Inner:
        ends = [(0.0, 0.0) if part is None else self.source(part, b).range() for b, part in enumerate(outer.parts)]
        return inner_range(outer, ends)

    # ------------------------------------------------------------------ exponential sums

    def weight(self, j: int) -> float:
        """By what an error of outer function j counts: the sizes of all it is multiplied with."""
        if self.relative:
            return 1.0 / self._least(j)
        total = 0.0
        for term, sizes in zip(self.separation.terms, self.sizes, strict=True):
            if j in term.outers:
                total += math.prod(sizes) * math.prod(self.inner[i].size for i in term.outers if i != j)
        return total

    def _least(self, j: int) -> float:
        sampled = self.inner[j].sampled
        return 1e-300 if sampled is None else max(float(np.abs(sampled.f_check).min()), 1e-300)

    def _spread(self, sums: Sequence[ExponentialSum]) -> float:
        """By what the sizes of all products of a term exceed the term, where exponentials cancel."""
        each = []
        for j, one in enumerate(sums):
            numbers = [complex(one.constant), *one.coefficients]
            same = len({c.real > 0 for c in numbers if c}) == 1 and not any(c.imag for c in (*numbers, *one.exponents))
            each.append(1.0 if same else max(1.0, sum(abs(c) for c in numbers) / self._least(j)))
        return max((math.prod(each[j] for j in term.outers) for term in self.separation.terms), default=1.0)

    def sums(self, error: float) -> Iterator[tuple[ExponentialSum, ...]]:
        """Exponential sums for all outer functions that are seen to keep their share, the shortest first."""
        outers = range(len(self.separation.outers))
        found: list[list[ExponentialSum]] = []
        for j in outers:
            inner = self.inner[j]
            if inner.sampled is None:
                raise NotPlanned("the range of an inner function leaves the domain of the outer one, as far as enclosures show")
            goal = OUTER_SHARE * error / len(outers) / max(self.weight(j), 1e-300)
            some = list(itertools.islice(fits(inner.sampled, goal), CANDIDATES))
            if not some:
                raise NotPlanned(self._unfit(j, goal))
            found.append([inner.stored(fit) for fit in sorted(some, key=lambda fit: fit.columns)])
        for k in range(max((len(some) for some in found), default=1)):
            yield tuple(some[min(k, len(some) - 1)] for some in found)

    def _unfit(self, j: int, goal: float) -> str:
        """Why an outer function has no sum of exponentials."""
        over = sum(size for size, part in zip(self.separation.sizes, self.separation.outers[j].parts, strict=True) if part)
        if not self.relative:
            sampled = self.inner[j].sampled
            assert sampled is not None
            return (
                f"a function of a sum over {over} directions is no sum of at most {2 * MOST} exponentials: the closest one seen "
                f"is off by {sampled.closest / goal:.2g} times what is allowed"
            )
        decades = math.log10(self.inner[j].size / self._least(j))
        return (
            f"a factor that depends on {over} directions together spans {decades:.0f} decades, and no short sum of exponentials "
            "follows it relative to its own size"
        )

    def kept(self, sums: Sequence[ExponentialSum]) -> float:
        """The error that the sums are seen to make."""
        total = 0.0
        for j, one in enumerate(sums):
            sampled = self.inner[j].sampled
            assert sampled is not None
            seen = np.abs(one.expression().evaluate(sampled.check[:, None])[:, 0] - sampled.f_check).max()
            total += self.weight(j) * float(seen)
        return total

    # ------------------------------------------------------------------ keys and values

    def plan(self, error: float) -> SeparatedPlan:
        """The plan with the fewest stored numbers that is expected to keep `error`."""
        best: SeparatedPlan | None = None
        for sums in self.sums(error):
            deadline.check()
            own = rows(self.separation, sums)
            if len(own) > MOST_ROWS:
                continue
            made = self._with(sums, own, error, self.kept(sums))
            if made is not None and (best is None or made.stored < best.stored):
                best = made
        if best is None:
            raise NotPlanned(self._short or f"its exponential sums would take more than {MOST_ROWS} products")
        return best

    def _with(self, sums: tuple[ExponentialSum, ...], own: tuple[Row, ...], error: float, taken: float) -> SeparatedPlan | None:
        B, turning = len(self.separation.sizes), not all(row.is_real for row in own)
        sizes = np.array([[_size(row.modulus[b], self.points[b], 1.0) for b in range(B)] for row in own])
        least = np.array([[_least(row.modulus[b], self.points[b]) for b in range(B)] for row in own]) if self.relative else None
        share = (error - taken) / B / (1.0 if least is None else self._spread(sums))
        if share <= 0:
            return None
        blocks = []
        for b in range(B):
            others = np.prod(np.delete(sizes, b, axis=1), axis=1) if least is None else 1.0 / least[:, b]
            found = self._block(b, own, others, share)
            if found is None:
                return None
            blocks.append(found)
        made = GroupPlan(
            self.separation.all_directions(), self.middle, self.half, tuple(a for one in blocks for a in one.axes), None,
            tuple(one.real for one in blocks), taken + sum(one.error for one in blocks),
        )  # fmt: skip
        imaginary = tuple(one.imaginary for one in blocks) if turning else None
        return SeparatedPlan(self.separation, self.choice, sums, made, imaginary, made.expected, relative=self.relative)

    def _block(self, b: int, own: tuple[Row, ...], others: Array, share: float) -> _Fitted | None:
        """Keys and values of a block for all rows; blocks that are alike are fitted once."""
        cut, real, imaginary = self._cut(b), [row.real[b] for row in own], [row.imaginary[b] for row in own]
        # rows of the same function differ in their weights alone
        key = (
            tuple(None if e is None else (e.nodes, e.outputs) for e in (*real, *imaginary)),
            self.middle.lo[cut].tobytes(), self.half[cut].tobytes(), np.round(np.log(others + 1e-300), 9).tobytes(), share,
        )  # fmt: skip
        if key not in self._fitted:
            found = self._fit(b, own, others, share)
            if found is None:
                return None
            self._fitted[key] = found
        return self._fitted[key]

    def _named(self, b: int) -> str:
        """The directions of a block, for people."""
        return ", ".join(told(w, self.names) for w in self.separation.frame(b).directions)

    def _ends(self, b: int) -> list[tuple[float, ...]]:
        """Per direction of a block how far 0 is from its range, in half widths: functions of it are often singular there."""
        cut = self._cut(b)
        middle = (self.middle.lo[cut] + self.middle.hi[cut]) / 2.0 / self.half[cut]
        return [(-math.copysign(abs(c) - 1.0, c),) if 1.0001 < abs(c) < 1.5 else () for c in middle]

    def _along(self, b: int, expression: Expression) -> Callable[[Array], Array]:
        """Functions of the direction of a block as functions of its scaled variable."""
        cut = self._cut(b)
        middle, half = (self.middle.lo[cut][0] + self.middle.hi[cut][0]) / 2.0, self.half[cut][0]
        return lambda z: expression.evaluate((middle + z * half)[:, None])

    def _fit(self, b: int, own: tuple[Row, ...], others: Array, share: float) -> _Fitted | None:
        size, R = self.separation.sizes[b], len(own)
        real, imaginary = [row.real[b] for row in own], [row.imaginary[b] for row in own]
        constants = np.array([[_constant(e, 1.0) for e in real], [_constant(e, 0.0) for e in imaginary]])  # NaN where it moves
        moving = [(i, r, e) for i, part in enumerate((real, imaginary)) for r, e in enumerate(part) if np.isnan(constants[i, r])]
        functions = [e for _, _, e in moving if e is not None]
        scales = np.array([others[r] for _, r, _ in moving])
        scales = np.where(scales > 0, scales, 1.0)
        expression = side_by_side(functions, np.ones(len(functions)))
        if not moving:
            axes = tuple(AxisCurve(lambda z: np.ones((len(z), 1)), 1.0, self.dtype).best(1).axis for _ in range(size))
            shape, values, error = (1,) * size, np.zeros((*(1,) * size, 0)), 0.0
        elif size == 1:
            assert expression is not None
            if self.relative:
                scales = np.ones(len(moving))
                moduli = side_by_side([e for _, r, _ in moving if (e := own[r].modulus[b]) is not None], scales)
                assert moduli is not None
                sizes = self._along(b, moduli)
                curve: AxisCurve = RelativeCurve(self._along(b, expression), lambda z: np.abs(sizes(z)), share, self.dtype)
            else:
                along = self._along(b, expression)
                curve = AxisCurve(lambda z: along(z) * scales, share, self.dtype, True, add=True)
            most = MOST_RELATIVE if self.relative else MOST_KEYS
            better = None if self.relative else finer(curve, share, self._ends(b)[0], MANY_KEYS, most)
            fit = curve.smallest(share, 1, most) if better is None else better.smallest(share, FEWEST, most)
            if fit is None:
                off = f"{curve.best(most).error / share:.2g} times what is allowed with the {most} that are tried"
                self._short = f"a factor along {self._named(b)} takes more keys than are tried: it is off by {off}"
            if fit is None:
                return None
            axes, values, error = (fit.axis,), fit.values, fit.error
        else:
            frame = Group(self.separation.frame(b).directions, side_by_side(functions, scales), None)
            each = 1 if self.relative else len(moving)
            goal = share / each
            planner, most = GroupPlanner(frame, self.low, self.high, goal, self.dtype), ALONG[size]
            for place, (one, nears) in enumerate(zip(planner.curves, self._ends(b), strict=True)):
                planner.curves[place] = finer(one, 0.6 * goal / size, nears, MANY_KEYS, most) or one
            made = planner.product(goal, MOST_CELLS, most)
            if made is None or made.values is None:
                self._short = f"a factor of {self._named(b)} takes more than the {MOST_CELLS:,} keys that are tried for a block"
                return None
            axes, values, error = made.axes, made.values, made.expected * each
        shape = tuple(len(axis) for axis in axes)
        table = np.broadcast_to(constants, (*shape, 2, R)).copy()
        for k, (i, r, _) in enumerate(moving):
            table[..., i, r] = values[..., k] / scales[k]
        stored = table.astype(numpy_dtype(self.dtype)).astype(np.float64)
        return _Fitted(axes, stored[..., 0, :], stored[..., 1, :], error)


def _constant(part: Expression | None, absent: float) -> float:
    """The value of a factor that does not move, else NaN."""
    if part is None:
        return absent
    return math.nan if part.used else float(part.evaluate(np.zeros((1, part.dimension)))[0, 0])


def _size(part: Expression | None, points: Array, absent: float) -> float:
    return absent if part is None else float(np.abs(part.evaluate(points)).max())


def _least(part: Expression | None, points: Array) -> float:
    return 1.0 if part is None else max(float(np.abs(part.evaluate(points)).min()), 1e-300)
