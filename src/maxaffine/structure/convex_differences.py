"""A piecewise affine expression as the difference of two convex ones, exactly: f = max_i p_i - max_j q_j.

    affine a        {a} - {0}                       f + g   (P + P') - (Q + Q')          c f   c P - c Q, or |c| Q - |c| P
    max(f, g)       max(P + Q', P' + Q) - (Q + Q')  min(f, g)   (P + P') - max(P + Q', P' + Q)
    abs(f)          max(2P, 2Q) - (P + Q)           where(h < 0, a, b)   b + clip(a - b, -L m, L m),  m = max(-h, 0)

(sums of sets are sums of all pairs).  The last one holds where |a - b| <= L |h| on the box, which says that the pieces meet.
Pieces that are nowhere the largest are left out (affine_pieces.py).  `error` bounds |f - (max P - max Q)|: what that loses, and
constants such as pi.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from maxaffine.core.intervals import Interval
from maxaffine.expression import evaluate
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import CONDITIONS, PIECEWISE_AFFINE, Node
from maxaffine.structure import affine_pieces as ap
from maxaffine.structure.affine_pieces import MOST_PIECES, ZERO, NotPiecewise, Piece, Pieces
from maxaffine.target.box import Box


@dataclass(frozen=True)
class Difference:
    """f = max P - max Q up to `error` on the box."""

    P: Pieces
    Q: Pieces
    error: Fraction = ZERO

    @property
    def affine(self) -> Piece | None:
        """The one piece, where f is affine."""
        return ap.subtract(self.P[0], self.Q[0]) if len(self.P) == len(self.Q) == 1 else None

    def largest(self) -> Fraction:
        """A bound of |max P - max Q| on the box."""
        return max(ap.size(p) for p in self.P) + max(ap.size(q) for q in self.Q)


def _pruned(pieces: Iterable[Piece]) -> tuple[Pieces, Fraction]:
    listed = tuple(pieces)
    kept, lost = ap.needed(listed)
    return tuple(listed[i] for i in kept), lost


def _sums(A: Pieces, B: Pieces) -> list[Piece]:
    if len(A) * len(B) > 60 * MOST_PIECES:
        raise NotPiecewise("it has too many pieces")
    return [ap.add(a, b) for a in A for b in B]


# ---------------------------------------------------------------------- differences


def _make(P: Iterable[Piece], Q: Iterable[Piece], error: Fraction) -> Difference:
    p, first = _pruned(P)
    q, second = _pruned(Q)
    zero = ap.constant(len(p[0]) - 1)
    if len(q) == 1 and q[0] != zero:
        p, q = tuple(ap.subtract(a, q[0]) for a in p), (zero,)
    elif len(p) == 1 and len(q) > 1 and p[0] != zero:
        p, q = (zero,), tuple(ap.subtract(b, p[0]) for b in q)
    return Difference(p, q, error + first + second)


def affine(piece: Piece, error: Fraction = ZERO) -> Difference:
    """A function of one piece."""
    return Difference((piece,), (ap.constant(len(piece) - 1),), error)


def scaled(f: Difference, c: Fraction | int) -> Difference:
    """c f."""
    if c == 0:
        return affine(ap.constant(len(f.P[0]) - 1))
    P, Q = (f.P, f.Q) if c > 0 else (f.Q, f.P)
    factor = c if c > 0 else -c
    made = tuple(ap.scale(p, factor) for p in P), tuple(ap.scale(q, factor) for q in Q)
    return Difference(*made, f.error * factor) if len(made[1]) > 1 or len(made[0]) > 1 else _make(*made, f.error * factor)


def added(f: Difference, g: Difference) -> Difference:
    """f + g."""
    return _make(_sums(f.P, g.P), _sums(f.Q, g.Q), f.error + g.error)


def maximum(f: Difference, g: Difference) -> Difference:
    """max(f, g)."""
    error = max(f.error, g.error)
    if set(f.Q) == set(g.Q):
        return _make((*f.P, *g.P), f.Q, error)
    return _make((*_sums(f.P, g.Q), *_sums(g.P, f.Q)), _sums(f.Q, g.Q), error)


def minimum(f: Difference, g: Difference) -> Difference:
    """min(f, g)."""
    return scaled(maximum(scaled(f, -1), scaled(g, -1)), -1)


def switched(h: Difference, a: Difference, b: Difference) -> Difference:
    """where(h < 0, a, b) for pieces that meet where h = 0, h affine; NotPiecewise where they do not."""
    line = h.affine
    if line is None:
        raise NotPiecewise("a condition is not affine")
    d = added(a, scaled(b, -1))
    zero = ap.constant(len(line) - 1)
    steep = _steepest(d, line)
    # |d| <= steep |h| + gap on the box: P_d <= max(Q_d + steep h, Q_d - steep h) + gap, and the same with P and Q exchanged.
    for _ in range(3):
        gaps = [_above(one, other, line, steep) for one, other in ((d.P, d.Q), (d.Q, d.P))]
        if all(gap is not None for gap in gaps):
            break
        steep *= 16
    else:
        raise NotPiecewise("it jumps, or is not seen to be continuous, where a condition changes")
    gap = max(ZERO, *(gap for gap in gaps if gap is not None))
    lid = _make((zero, ap.scale(line, -steep)), (zero,), ZERO)
    clipped = minimum(maximum(d, scaled(lid, -1)), lid)
    # d is within gap of its clip where h < 0; where h is known up to an error only, it may also be taken on the wrong side.
    error = max(a.error, b.error) + gap + clipped.error
    if h.error:
        error += steep * h.error + gap + clipped.error
    whole = added(Difference(b.P, b.Q), clipped)
    return Difference(whole.P, whole.Q, error + whole.error)


def _steepest(d: Difference, line: Piece) -> Fraction:
    u = ap.probes(len(line) - 1)
    f = ap.heights(ap.floats_of(d.P), u).max(axis=1) - ap.heights(ap.floats_of(d.Q), u).max(axis=1)
    at = np.abs(ap.heights(ap.floats_of([line]), u)[:, 0])
    ratio = np.abs(f) / np.maximum(at, 1e-6 * max(float(at.max()), 1e-300))
    return Fraction(float(2.0 * ratio.max()) + 1e-3)


def _above(P: Pieces, Q: Pieces, line: Piece, steep: Fraction) -> Fraction | None:
    others = [ap.add(q, ap.scale(line, s * steep)) for q in Q for s in (1, -1)]
    floats = ap.floats_of(others)
    worst = ZERO
    for p in P:
        found, _ = ap.slack(p, others, floats)
        if found is None:
            return None
        worst = max(worst, found)
    return worst


# ---------------------------------------------------------------------- from an expression


def frame(box: Box) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
    """Middle and half width of the box, exactly."""
    ends = [(Fraction(float(a)), Fraction(float(b))) for a, b in zip(box.low, box.high, strict=True)]
    return tuple((a + b) / 2 for a, b in ends), tuple((b - a) / 2 for a, b in ends)


def differences(expression: Expression, box: Box) -> tuple[Difference, ...]:
    """Every output as a difference; NotPiecewise with a phrase where an operation is not piecewise affine."""
    walk = _Walk(expression, box)
    return tuple(walk.known[place] for place in expression.outputs)


class _Walk:
    """The differences of an expression's nodes, those of constants and conditions left out."""

    def __init__(self, expression: Expression, box: Box) -> None:
        self.nodes, self.known = expression.nodes, dict[int, Difference]()
        self.middle, self.half = frame(box)
        constant_ones: list[bool] = []
        for node in self.nodes:
            constant_ones.append(node.op != "var" and all(constant_ones[a] for a in node.args))
        order = [i for i, yes in enumerate(constant_ones) if yes]
        self.numbers = evaluate.enclosures(self.nodes, order, Interval.point(np.zeros((1, box.dimension))))
        for place, node in reversed(list(enumerate(self.nodes))):
            if place not in self.numbers and node.op not in PIECEWISE_AFFINE:
                raise NotPiecewise(f"{node.op if node.op != 'prod' else 'a product'} of variables is not piecewise affine")
        for place, node in enumerate(self.nodes):
            if place not in self.numbers and node.op not in CONDITIONS:
                self.known[place] = self._make(node)
        for place in expression.outputs:
            self.known[place] = self._at(place)

    def _constant(self, place: int) -> tuple[Fraction, Fraction]:
        """(m, r) with |constant - m| <= r."""
        if self.nodes[place].op == "const":
            return self.nodes[place].data, ZERO
        found = self.numbers[place]
        lo, hi = float(np.asarray(found.value.lo).ravel()[0]), float(np.asarray(found.value.hi).ravel()[0])
        if not (math.isfinite(lo) and math.isfinite(hi)) or (found.ok is not None and not np.all(found.ok)):
            raise NotPiecewise("a constant is not finite")
        return (Fraction(lo) + Fraction(hi)) / 2, (Fraction(hi) - Fraction(lo)) / 2

    def _at(self, place: int) -> Difference:
        if place in self.known:
            return self.known[place]
        m, r = self._constant(place)
        return affine(ap.constant(len(self.middle), m), r)

    def _compared(self, place: int) -> tuple[int, bool]:
        """(h, yes): the condition is h < 0 (or h <= 0), or its opposite."""
        node, yes = self.nodes[place], True
        while node.op == "not":
            place, yes = node.args[0], not yes
            node = self.nodes[place]
        if node.op not in ("negative", "nonpositive"):
            raise NotPiecewise("a condition is not a single comparison")
        return node.args[0], yes

    def _make(self, node: Node) -> Difference:
        if node.op == "var":
            slopes = (h if k == node.data else ZERO for k, h in enumerate(self.half))
            return affine((*slopes, self.middle[node.data]))
        if node.op == "lin":
            return self._sum(node)
        if node.op == "abs":
            inner = self._at(node.args[0])
            return maximum(inner, scaled(inner, -1))
        if node.op in ("max", "min"):
            return (maximum if node.op == "max" else minimum)(*(self._at(a) for a in node.args))
        place, yes = self._compared(node.args[0])
        a, b = node.args[1:] if yes else node.args[:0:-1]
        return switched(self._at(place), self._at(a), self._at(b))

    def _sum(self, node: Node) -> Difference:
        total = self._at(node.args[0])
        for c, place in zip(node.args[1::2], node.args[2::2], strict=True):
            m, r = self._constant(c)
            term = self._at(place)
            total = added(total, scaled(term, m))
            if r:
                total = Difference(total.P, total.Q, total.error + r * (term.largest() + term.error))
        return total
