"""A piecewise affine expression as the difference of two convex ones, exactly: f = max_i p_i - max_j q_j.

    affine a        {a} - {0}                       f + g   (P + P') - (Q + Q')          c f   c P - c Q, or |c| Q - |c| P
    max(f, g)       max(P + Q', P' + Q) - (Q + Q')  min(f, g)   (P + P') - max(P + Q', P' + Q)
    abs(f)          max(2P, 2Q) - (P + Q)           where(h < 0, a, b)   b + clip(a - b, -L m, L m),  m = max(-h, 0)

(sums of sets are sums of all pairs).  The last one holds where |a - b| <= L |h| on the box, which says that the pieces meet.
Numbers are fractions in u = (x - middle) / half in [-1, 1]^D.  Pieces that are nowhere the largest are left out: a linear
program proposes weights w >= 0, sum w = 1, with p <= sum_k w_k p_k + slack, and the slack is computed from them exactly, so
that nothing rests on its arithmetic.  `error` bounds |f - (max P - max Q)|: slacks, and constants such as pi.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.intervals import Interval
from maxaffine.core.polytopes import Point, Polytope, value
from maxaffine.expression import evaluate
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Node
from maxaffine.target.box import Box

Array = NDArray[np.float64]
Piece = tuple[Fraction, ...]  # slopes in u, then the constant
Pieces = tuple[Piece, ...]

MOST_PIECES = 1200  # pieces that may have to be looked at one by one
ZERO = Fraction(0)


class NotPiecewise(Exception):
    """Why an expression is not seen to be a continuous piecewise affine function, as a phrase."""


@dataclass(frozen=True)
class Difference:
    """f = max P - max Q up to `error` on the box."""

    P: Pieces
    Q: Pieces
    error: Fraction = ZERO

    @property
    def affine(self) -> Piece | None:
        """The one piece, where f is affine."""
        return _add(self.P[0], _scale(self.Q[0], Fraction(-1))) if len(self.P) == len(self.Q) == 1 else None

    def largest(self) -> Fraction:
        """A bound of |max P - max Q| on the box."""
        return max(_size(p) for p in self.P) + max(_size(q) for q in self.Q)


@dataclass(frozen=True)
class Token:
    """A piece of the common refinement: its score, the sum of the chosen p and q of every output, and its values p - q."""

    score: Piece
    values: tuple[Piece, ...]


@dataclass(frozen=True)
class Refinement:
    """All outputs over one partition: |f_m - values_m of token k| <= max_l score_l - score_k + error, for every x, m and k."""

    tokens: tuple[Token, ...]
    error: Fraction
    middle: tuple[Fraction, ...]
    half: tuple[Fraction, ...]


# ---------------------------------------------------------------------- affine pieces


def _add(a: Piece, b: Piece) -> Piece:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _scale(a: Piece, c: Fraction) -> Piece:
    return tuple(c * x for x in a)


def _size(a: Piece) -> Fraction:
    """sup |a| over [-1, 1]^D."""
    return sum((abs(x) for x in a), ZERO)


def _top(a: Piece) -> Fraction:
    """sup a over [-1, 1]^D."""
    return a[-1] + sum((abs(x) for x in a[:-1]), ZERO)


def _floats(pieces: Sequence[Piece]) -> Array:
    return np.array([[float(x) for x in piece] for piece in pieces], dtype=np.float64)


def slack(piece: Piece, others: Sequence[Piece], floats: Array) -> tuple[Fraction | None, Array]:
    """(s, u): s with piece <= max(others) + s on the box, exact, or None where the program finds a point u above by far more."""
    from scipy.optimize import linprog

    D = len(piece) - 1
    rows = np.array([float(x) for x in piece]) - floats  # (n, D + 1)
    scale = max(1e-300, float(np.abs(rows).max()))
    # max t with t <= (piece - other_k)(u): its multipliers are the weights.
    A = np.concatenate([-rows[:, :-1] / scale, np.ones((len(rows), 1))], axis=1)
    bounds = [(-1.0, 1.0)] * D + [(None, None)]
    answer = linprog(np.append(np.zeros(D), -1.0), A_ub=A, b_ub=rows[:, -1] / scale, bounds=bounds, method="highs")
    if answer.status != 0:
        return None, np.zeros(D)
    if -answer.fun > 1e-10:
        return None, np.asarray(answer.x[:D])
    weights = [Fraction(float(w)) for w in np.maximum(-answer.ineqlin.marginals, 0.0)]
    total = sum(weights, ZERO)
    if total <= 0:
        return None, np.asarray(answer.x[:D])
    mean = tuple(ZERO for _ in piece)
    for w, other in zip(weights, others, strict=True):
        if w:
            mean = _add(mean, _scale(other, w / total))
    found = _top(_add(piece, _scale(mean, Fraction(-1))))
    return (found if float(found) <= 1e-9 * scale else None), np.asarray(answer.x[:D])


def _probes(D: int) -> Array:
    rng = np.random.default_rng(7)
    u = rng.uniform(-1.0, 1.0, (256 * D, D))
    u[::4] = np.clip(1.5 * u[::4], -1.0, 1.0)
    return np.concatenate([u, np.zeros((1, D))])


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
    floats = _floats([pieces[i] for i in left])
    if not np.isfinite(floats).all():
        raise NotPiecewise("its coefficients are too large")
    sure = np.zeros(len(left), dtype=bool)
    u = _probes(floats.shape[1] - 1)
    heights = u @ floats[:, :-1].T + floats[:, -1]
    order = np.argsort(heights, axis=1)
    rows = np.arange(len(u))
    clear = heights[rows, order[:, -1]] - heights[rows, order[:, -2]] > 1e-7 * np.abs(heights).max(axis=1)
    sure[order[clear, -1]] = True
    alive = np.ones(len(left), dtype=bool)
    total = ZERO
    certain = np.flatnonzero(sure)
    for i in [int(k) for k in np.flatnonzero(~sure)] if len(certain) else []:  # below a single piece that is needed, everywhere
        gap = np.abs(floats[i, :-1] - floats[certain, :-1]).sum(axis=1) + floats[i, -1] - floats[certain, -1]
        above = pieces[left[int(certain[gap.argmin()])]]
        alive[i] = not (gap.min() < 0 and _top(_add(pieces[left[i]], _scale(above, Fraction(-1)))) <= 0)
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
                top = floats[:, :-1] @ where + floats[:, -1]
                top[~alive] = -np.inf
                top[i] = floats[i, :-1] @ where + floats[i, -1]
                sure[int(top.argmax())] = True
        if lost is None:
            alive[i] = True
        elif lost > 0:
            total += lost
    return [left[i] for i in np.flatnonzero(alive)], total


def _pruned(pieces: Iterable[Piece]) -> tuple[Pieces, Fraction]:
    listed = tuple(pieces)
    kept, lost = needed(listed)
    return tuple(listed[i] for i in kept), lost


def _sums(A: Pieces, B: Pieces) -> list[Piece]:
    if len(A) * len(B) > 60 * MOST_PIECES:
        raise NotPiecewise("it has too many pieces")
    return [_add(a, b) for a in A for b in B]


# ---------------------------------------------------------------------- differences


def _make(P: Iterable[Piece], Q: Iterable[Piece], error: Fraction) -> Difference:
    p, first = _pruned(P)
    q, second = _pruned(Q)
    zero = tuple(ZERO for _ in p[0])
    if len(q) == 1 and q[0] != zero:
        p, q = tuple(_add(a, _scale(q[0], Fraction(-1))) for a in p), (zero,)
    elif len(p) == 1 and len(q) > 1 and p[0] != zero:
        p, q = (zero,), tuple(_add(b, _scale(p[0], Fraction(-1))) for b in q)
    return Difference(p, q, error + first + second)


def scaled(f: Difference, c: Fraction) -> Difference:
    """c f."""
    if c == 0:
        zero = tuple(ZERO for _ in f.P[0])
        return Difference((zero,), (zero,), ZERO)
    P, Q = (f.P, f.Q) if c > 0 else (f.Q, f.P)
    size = abs(c)
    made = tuple(_scale(p, size) for p in P), tuple(_scale(q, size) for q in Q)
    return Difference(*made, f.error * size) if len(made[1]) > 1 or len(made[0]) > 1 else _make(*made, f.error * size)


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
    minus = Fraction(-1)
    return scaled(maximum(scaled(f, minus), scaled(g, minus)), minus)


def switched(h: Difference, a: Difference, b: Difference) -> Difference:
    """where(h < 0, a, b) for pieces that meet where h = 0, h affine; NotPiecewise where they do not."""
    minus = Fraction(-1)
    line = h.affine
    if line is None:
        raise NotPiecewise("a condition is not affine")
    d = added(a, scaled(b, minus))
    zero = tuple(ZERO for _ in line)
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
    lid = _make((zero, _scale(line, -steep)), (zero,), ZERO)
    clipped = minimum(maximum(d, scaled(lid, minus)), lid)
    # d is within gap of its clip where h < 0; where h is known up to an error only, it may also be taken on the wrong side.
    error = max(a.error, b.error) + gap + clipped.error
    if h.error:
        error += steep * h.error + gap + clipped.error
    whole = added(Difference(b.P, b.Q), clipped)
    return Difference(whole.P, whole.Q, error + whole.error)


def _steepest(d: Difference, line: Piece) -> Fraction:
    u = _probes(len(line) - 1)
    P, Q, h = _floats(d.P), _floats(d.Q), _floats([line])
    f = (u @ P[:, :-1].T + P[:, -1]).max(axis=1) - (u @ Q[:, :-1].T + Q[:, -1]).max(axis=1)
    at = np.abs(u @ h[0, :-1] + h[0, -1])
    ratio = np.abs(f) / np.maximum(at, 1e-6 * max(float(at.max()), 1e-300))
    return Fraction(float(2.0 * ratio.max()) + 1e-3)


def _above(P: Pieces, Q: Pieces, line: Piece, steep: Fraction) -> Fraction | None:
    others = [_add(q, _scale(line, s * steep)) for q in Q for s in (1, -1)]
    floats = _floats(others)
    worst = ZERO
    for p in P:
        found, _ = slack(p, others, floats)
        if found is None:
            return None
        worst = max(worst, found)
    return worst


# ---------------------------------------------------------------------- from an expression


def differences(expression: Expression, box: Box) -> tuple[Difference, ...]:
    """Every output as a difference; NotPiecewise with a phrase where an operation is not piecewise affine."""
    middle, half = frame(box)
    walk = _Walk(expression, middle, half)
    return tuple(walk.number(place) for place in expression.outputs)


def frame(box: Box) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
    """Middle and half width of the box, exactly."""
    ends = [(Fraction(float(a)), Fraction(float(b))) for a, b in zip(box.low, box.high, strict=True)]
    return tuple((a + b) / 2 for a, b in ends), tuple((b - a) / 2 for a, b in ends)


class _Walk:
    """The differences of an expression's nodes, each once."""

    def __init__(self, expression: Expression, middle: Sequence[Fraction], half: Sequence[Fraction]) -> None:
        self.nodes = expression.nodes
        self.middle, self.half = middle, half
        self._known: dict[int, Difference] = {}
        constant: list[bool] = []
        for node in self.nodes:
            constant.append(node.op != "var" and all(constant[a] for a in node.args))
        self._constant = constant
        point = Interval.point(np.zeros((1, len(middle))))
        order = [i for i, yes in enumerate(constant) if yes]
        self._numbers = evaluate.enclosures(self.nodes, order, point)

    def constant(self, place: int) -> tuple[Fraction, Fraction]:
        """(m, r) with |constant - m| <= r."""
        data = self.nodes[place].data
        if self.nodes[place].op == "const" and isinstance(data, Fraction):
            return data, ZERO
        found = self._numbers[place]
        lo, hi = float(np.asarray(found.value.lo).ravel()[0]), float(np.asarray(found.value.hi).ravel()[0])
        if not (math.isfinite(lo) and math.isfinite(hi)) or (found.ok is not None and not np.all(found.ok)):
            raise NotPiecewise("a constant is not finite")
        return (Fraction(lo) + Fraction(hi)) / 2, (Fraction(hi) - Fraction(lo)) / 2

    def affine(self, piece: Piece, error: Fraction = ZERO) -> Difference:
        zero = tuple(ZERO for _ in piece)
        return Difference((piece,), (zero,), error)

    def number(self, place: int) -> Difference:
        """The node as a difference."""
        # Arguments stand before a node, so walking up to it needs no recursion.
        stack = [place]
        while stack:
            top = stack[-1]
            if top in self._known:
                stack.pop()
                continue
            missing = [a for a in self._wanted(top) if a not in self._known]
            if missing:
                stack += missing
            else:
                self._known[top] = self._make(top)
        return self._known[place]

    def _wanted(self, place: int) -> list[int]:
        node = self.nodes[place]
        if self._constant[place] or node.op == "var":
            return []
        if node.op == "lin":
            return list(node.args[2::2])
        if node.op in ("max", "min", "abs"):
            return list(node.args)
        if node.op == "where":
            return [self._compared(node.args[0])[0], *node.args[1:]]
        raise NotPiecewise(f"{node.op if node.op != 'prod' else 'a product'} of variables is not piecewise affine")

    def _compared(self, place: int) -> tuple[int, bool]:
        """(h, yes): the condition is h < 0 (or h <= 0), or its opposite."""
        node, yes = self.nodes[place], True
        while node.op == "not":
            place, yes = node.args[0], not yes
            node = self.nodes[place]
        if node.op not in ("negative", "nonpositive"):
            raise NotPiecewise("a condition is not a single comparison")
        return node.args[0], yes

    def _make(self, place: int) -> Difference:
        node, D = self.nodes[place], len(self.middle)
        if self._constant[place]:
            m, r = self.constant(place)
            return self.affine((*([ZERO] * D), m), r)
        if node.op == "var":
            assert isinstance(node.data, int)
            i = node.data
            return self.affine((*(self.half[k] if k == i else ZERO for k in range(D)), self.middle[i]))
        args = [self._known[a] for a in self._wanted(place)]
        if node.op == "lin":
            return self._sum(node, args)
        if node.op == "abs":
            return maximum(args[0], scaled(args[0], Fraction(-1)))
        if node.op == "where":
            h, a, b = args
            return switched(h, a, b) if self._compared(node.args[0])[1] else switched(h, b, a)
        return maximum(*args) if node.op == "max" else minimum(*args)

    def _sum(self, node: Node, terms: list[Difference]) -> Difference:
        m, r = self.constant(node.args[0])
        total = self.affine((*([ZERO] * len(self.middle)), m), r)
        for c, term in zip(node.args[1::2], terms, strict=True):
            m, r = self.constant(c)
            total = added(total, scaled(term, m))
            if r:
                total = Difference(total.P, total.Q, total.error + r * (term.largest() + term.error))
        return total


# ---------------------------------------------------------------------- one partition for all outputs


def refine(outputs: Sequence[Difference], box: Box, tolerance: float = 0.0) -> Refinement:
    """Tokens for all outputs at once; regions with equal pieces are merged where that costs no more than `tolerance`.

    With scores s = sum of all p and q chosen and values p - q, every token has |value - f| <= (max P - p) + (max Q - q)
    <= max s - s_k: what is left out of the sums' pieces only adds its slack.  Where the values themselves are convex,
    f = max v_k (or concave), they are their own scores, and fewer.
    """
    middle, half = frame(box)
    zero = tuple(ZERO for _ in (*middle, ZERO))
    tokens, slackness = [Token(zero, ())], ZERO
    by_cells = _by_cells(outputs) if len(middle) <= 3 and math.prod(len(f.P) * len(f.Q) for f in outputs) > 100 else None
    if by_cells is not None:
        tokens = by_cells
    else:
        for f in outputs:
            tokens, first = _spread(tokens, f.P, 1)
            tokens, second = _spread(tokens, f.Q, -1)
            slackness += first + second
    error = max(f.error for f in outputs) + slackness
    if len(outputs) == 1 and len(tokens) > 1:
        fewer = _convex(outputs[0], [t.values[0] for t in tokens])
        if fewer is not None and len(fewer[0]) < len(tokens):
            tokens, error = fewer[0], error + fewer[1]
    if len({token.values for token in tokens}) < len(tokens):
        found = merged(tokens)
        if found is not None and float(found[1]) <= tolerance:
            tokens, error = found[0], error + found[1]
    return Refinement(tuple(tokens), error, middle, half)


def _chosen(token: Token, piece: Piece, sign: int) -> Token:
    """The token with a p of a new output, or with a q of the last one."""
    if sign > 0:
        return Token(_add(token.score, piece), (*token.values, piece))
    last = _add(token.values[-1], _scale(piece, Fraction(-1)))
    return Token(_add(token.score, piece), (*token.values[:-1], last))


def _spread(tokens: list[Token], pieces: Pieces, sign: int) -> tuple[list[Token], Fraction]:
    """Every token with every piece added to its score, and to the last output's value with that sign; only what is needed."""
    if len(tokens) * len(pieces) > 60 * MOST_PIECES:
        raise NotPiecewise("it has too many pieces")
    made = [_chosen(token, piece, sign) for token in tokens for piece in pieces]
    kept, lost = needed([token.score for token in made])
    return [made[i] for i in kept], lost


MOST_CELLS = 12_000


def _by_cells(outputs: Sequence[Difference]) -> list[Token] | None:
    """The tokens of few variables, exactly: the box is cut until one p and one q of every output is the largest on each part.

    Parts with inner points cover the box together, so their tokens have the largest score everywhere.  None where there are
    too many parts.
    """
    D = len(outputs[0].P[0]) - 1
    zero = tuple(ZERO for _ in range(D + 1))
    parts = [(Polytope.box([Fraction(-1)] * D, [Fraction(1)] * D), Token(zero, ()))]
    for f in outputs:
        for pieces, sign in ((f.P, 1), (f.Q, -1)):
            floats = _floats(pieces)
            grown: list[tuple[Polytope, Token]] = []
            left = parts
            while left:
                part, token = left.pop()
                if len(left) + len(grown) > MOST_CELLS:
                    return None
                chosen = _largest(part, pieces, floats)
                if isinstance(chosen, int):
                    grown.append((part, _chosen(token, pieces[chosen], sign)))
                else:
                    h = _add(pieces[chosen[0]], _scale(pieces[chosen[1]], Fraction(-1)))
                    left += [(half, token) for half in part.cut(h) if half is not None and half.spans()]
            parts = grown
    return list({token.score: token for _, token in parts}.values())


def _largest(part: Polytope, pieces: Pieces, floats: Array) -> int | tuple[int, int]:
    """The piece that is the largest on the whole part, or two of which neither is."""
    corners = np.array([[float(c) for c in v] for v in part.vertices])
    heights = corners @ floats[:, :-1].T + floats[:, -1]  # (vertices, pieces)
    close = np.flatnonzero((heights >= heights.max(axis=1, keepdims=True) - 1e-9 * (1.0 + np.abs(heights).max())).any(axis=0))
    exact = {int(j): [value(pieces[j], v) for v in part.vertices] for j in close}  # the others are below at every vertex
    tops = [max(column) for column in zip(*exact.values(), strict=True)]
    behind = {j: sum(h < top for h, top in zip(rows, tops, strict=True)) for j, rows in exact.items()}
    best = min(behind, key=behind.__getitem__)
    if not behind[best]:
        return best
    for j, rows in exact.items():  # a rival that is above at some vertex, where the best one is above at another
        ahead = [a - b for a, b in zip(exact[best], rows, strict=True)]
        if min(ahead) < 0 < max(ahead):
            return best, j
    raise AssertionError("no two pieces cross on a part where none is the largest")


def _convex(f: Difference, values: list[Piece]) -> tuple[list[Token], Fraction] | None:
    """Tokens whose score is their value (or minus it), where f is the maximum (minimum) of its pieces: v_k + Q <= P for all k."""
    distinct = list(dict.fromkeys(values))
    for sign in (1, -1):
        P, Q = (f.P, f.Q) if sign > 0 else (f.Q, f.P)
        own = [_scale(v, Fraction(sign)) for v in distinct]
        if len(own) * len(Q) > 400:
            continue
        P_floats, Q_floats, own_floats, u = _floats(P), _floats(Q), _floats(own), _probes(len(own[0]) - 1)
        at = [(u @ A[:, :-1].T + A[:, -1]).max(axis=1) for A in (P_floats, Q_floats, own_floats)]
        scale = max(float(np.abs(a).max()) for a in at)
        if np.any(at[2] + at[1] > at[0] + 1e-9 * scale):
            continue
        worst: Fraction | None = ZERO
        for v in own:
            for q in Q:
                found, _ = slack(_add(v, q), P, P_floats)
                worst = None if found is None or worst is None else max(worst, found)
                if worst is None:
                    break
            if worst is None:
                break
        if worst is None:
            continue
        kept, lost = needed(own)
        return [Token(own[i], (distinct[i],)) for i in kept], worst + lost
    return None


# ---------------------------------------------------------------------- regions with equal pieces

MOST_MERGED = 160  # tokens whose cells are listed


def merged(tokens: Sequence[Token]) -> tuple[list[Token], Fraction] | None:
    """One token for all tokens of equal values, and a slack; None where that is not found.

    Cells of the tokens are listed exactly.  New scores s_r with s_r - s_q >= |v_r - v_q| at the vertices of region r, for all q,
    have it on the region's cells, where f = v_r; a linear program proposes them, and how far they miss it is computed exactly:
    |v_q - f| <= s_r - s_q + slack.  They exist where the merged regions are the cells of a power diagram.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix

    D = len(tokens[0].score) - 1
    if D > 4 or len(tokens) > MOST_MERGED:
        return None
    groups: dict[tuple[Piece, ...], set[Point]] = {}
    for k, token in enumerate(tokens):
        cell = _cell(tokens, k)
        groups.setdefault(token.values, set()).update(() if cell is None else cell.vertices)
    values = list(groups)
    M = len(values)
    rows: list[int] = []
    columns: list[int] = []
    entries: list[float] = []
    right: list[float] = []
    count = 0
    for r, own in enumerate(values):
        for x in groups[own]:
            at = [float(c) for c in x] + [1.0]
            for q, other in enumerate(values):
                if q == r or not groups[own] & groups[other]:  # neighbours decide; all are looked at below
                    continue
                apart = max(abs(value(_add(a, _scale(b, Fraction(-1))), x)) for a, b in zip(own, other, strict=True))
                for i, c in enumerate(at):
                    rows += [count, count]
                    columns += [q * (D + 1) + i, r * (D + 1) + i]
                    entries += [c, -c]
                right.append(-float(apart))
                count += 1
    width = M * (D + 1) + 1
    if count > 40_000:
        return None
    # Small scores: every coefficient at most the last unknown.
    for i in range(width - 1):
        rows += [count, count, count + 1, count + 1]
        columns += [i, width - 1, i, width - 1]
        entries += [1.0, -1.0, -1.0, -1.0]
        right += [0.0, 0.0]
        count += 2
    A = coo_matrix((entries, (rows, columns)), shape=(count, width)).tocsr()
    answer = linprog(np.append(np.zeros(width - 1), 1.0), A_ub=A, b_ub=right, bounds=[(None, None)] * width, method="highs")
    if answer.status != 0:
        return None
    scores = [tuple(Fraction(float(c)) for c in row) for row in np.reshape(answer.x[:-1], (M, D + 1))]
    lost = ZERO
    for r, own in enumerate(values):
        for x in groups[own]:
            here = value(scores[r], x)
            for other, score in zip(values, scores, strict=True):
                apart = max(abs(value(_add(a, _scale(b, Fraction(-1))), x)) for a, b in zip(own, other, strict=True))
                lost = max(lost, apart - (here - value(score, x)))
    return [Token(score, v) for score, v in zip(scores, values, strict=True)], lost


def _cell(tokens: Sequence[Token], k: int) -> Polytope | None:
    """Where token k has the largest score, exactly."""
    D = len(tokens[k].score) - 1
    cell: Polytope | None = Polytope.box([Fraction(-1)] * D, [Fraction(1)] * D)
    for j, token in enumerate(tokens):
        if j != k and cell is not None:
            h = _add(token.score, _scale(tokens[k].score, Fraction(-1)))
            if cell.sides(h)[1]:
                cell = cell.cut(h)[0]
    return cell
