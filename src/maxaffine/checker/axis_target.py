"""A target along one direction as the checker sees it: its branches, breaks and holes about jumps, its size, how it changes."""

import math
from dataclasses import dataclass

import numpy as np

from maxaffine.checker.boxes import Bounds, supremum
from maxaffine.checker.proved import NotProved
from maxaffine.checker.target_parts import doubt_at
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.structure.breaks import Pieces, find_pieces

BOXES = 100_000


@dataclass(frozen=True)
class AxisTarget:
    """f of z from `first` to `last`, beyond which it is held at its ends; a computed z is off by `relative` of itself besides."""

    f: Expression
    first: float
    last: float
    pieces: Pieces
    holes: list[tuple[float, float] | None]
    error: float  # that is asked for
    relative: float

    @classmethod
    def of(
        cls, f: Expression, first: float, last: float, error: float, relative: float, blur: float, gap: float | None
    ) -> "AxisTarget":
        """The pieces of f, and a hole of the gap about every jump; z is known up to `blur`."""
        pieces = find_pieces(f, first, last)
        made = cls(f, first, last, pieces, [], error, relative)
        made._same()
        for i, one in enumerate(pieces.breaks):
            made.holes.append(None)
            if one is None or one.kind != "jump":
                continue
            near = [pieces.pieces[n].branch for n in (i - 1, i) if 0 <= n < len(pieces.pieces)]
            if all(made.apart(branch, one.low, one.high) <= 0.02 * error for branch in near):
                continue
            if gap is None or gap <= 4.0 * blur:
                raise NotProved("its target jumps, and it states no gap about the jump.")
            made.holes[i] = one.high - gap + 2.0 * blur, one.low + gap - 2.0 * blur
        return made

    def _same(self) -> None:
        """The branches are the function at random points of their pieces."""
        rng = np.random.default_rng(17)
        for piece in self.pieces.pieces:
            z = rng.uniform(piece.low, piece.high, (24, 1))
            doubt_at(self.f, z, piece.branch.enclose(Interval.point(z)), "a branch of the target is not the target.")

    @property
    def jumps(self) -> int:
        """How many jumps have a hole."""
        return sum(hole is not None for hole in self.holes)

    def apart(self, branch: Expression, low: float, high: float) -> float:
        """sup |f - branch| on an interval, enclosed at once."""
        box = Interval(np.array([[low]]), np.array([[high]]))
        value = float((self.f.enclose(box) - branch.enclose(box)).magnitude[0, 0])
        return value if math.isfinite(value) else math.inf

    def held(self, z: float) -> float:
        """The nearest z of the box."""
        return min(max(z, self.first), self.last)

    def outside(self, low: float, high: float) -> list[tuple[float, float]]:
        """The parts of an interval that lie in no hole."""
        parts = [(low, high)]  # a single point stays
        for hole in self.holes if low < high else []:
            if hole is not None:
                parts = [p for a, b in parts for p in ((a, min(b, hole[0])), (max(a, hole[1]), b)) if p[0] < p[1]]
        return parts

    def size(self) -> float:
        """sup |f|, from the branches on their pieces and the function itself at the breaks."""
        where = [(p.branch, p.low, p.high, 1459) for p in self.pieces.pieces]
        where += [(self.f, one.low, one.high, 2) for one in self.pieces.breaks if one is not None]
        return max(self._largest(*row) for row in where)

    @staticmethod
    def _largest(f: Expression, first: float, last: float, count: int) -> float:
        edges = np.linspace(first, last, count)[:, None]
        edges[0], edges[-1] = first, last

        def measure(low: Array, high: Array, _: object) -> Bounds:
            return Bounds(f.enclose(Interval(low, high)).magnitude[:, 0])

        found = supremum(measure, edges[:-1], edges[1:], budget=BOXES, goal=float(np.finfo(np.float64).max)).worst
        if not math.isfinite(found):  # boxes are cut until it is
            raise NotProved("the target could not be enclosed.")
        return found * (1 + 1e-12)

    def change(self, d: float) -> float:
        """How far f changes when z moves by d + relative |z|: on a piece, or from one to the next across a break."""
        on_piece = []
        for i, piece in enumerate(self.pieces.pieces):
            before, after = self.holes[i], self.holes[i + 1]
            low = piece.low if before is None else max(piece.low, before[1] - 3.0 * d)
            high = piece.high if after is None else min(piece.high, after[0] + 3.0 * d)
            on_piece.append(self._change_of(piece.branch, low, high, d) if low < high else 0.0)
        worst = max(on_piece)
        for i, one in enumerate(self.pieces.breaks):
            if one is not None and self.holes[i] is None:
                near = [n for n in (i - 1, i) if 0 <= n < len(on_piece)]
                step = sum(2.0 * self.apart(self.pieces.pieces[n].branch, one.low, one.high) + on_piece[n] for n in near)
                move = (d + self.relative * max(abs(one.low), abs(one.high))) * 1.02
                box = Interval(np.array([[max(one.low - move, self.first)]]), np.array([[min(one.high + move, self.last)]]))
                value = self.f.enclose(box)
                width = float(value.hi[0, 0] - value.lo[0, 0])
                worst = max(worst, min(step, width if math.isfinite(width) else math.inf))
        return worst

    def _change_of(self, f: Expression, first: float, last: float, d: float) -> float:
        slope = f.gradient()
        edges = np.linspace(first, last, 52)[:, None]
        edges[0], edges[-1] = first, last

        def measure(low: Array, high: Array, _: object) -> Bounds:
            move = (d + self.relative * np.maximum(np.abs(low), np.abs(high))) * (1 + 1e-9)
            box = Interval(np.maximum(low - move, first), np.minimum(high + move, last))
            steep, value = slope.enclose(box).magnitude * move, f.enclose(box)
            width = value.hi - value.lo
            here = np.fmin(np.where(np.isfinite(steep), steep, np.inf), np.where(np.isfinite(width), width, np.inf))
            return Bounds(here[:, 0] * (1 + 1e-11))

        return supremum(measure, edges[:-1], edges[1:], budget=BOXES, goal=0.003 * self.error, smallest=d).worst
