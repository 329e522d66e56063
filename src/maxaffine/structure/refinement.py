"""One partition for all outputs of a piecewise affine target: tokens with a score and the affine value of every output.

With scores s = sum of all p and q chosen and values p - q, for outputs f = max P - max Q, every token k has

    |value - f| <= (max P - p) + (max Q - q) <= max_l s_l - s_k,

and what is left out of the sums' pieces only adds its slack.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.polytopes import Point, Polytope, value
from maxaffine.structure import affine_pieces as ap
from maxaffine.structure.affine_pieces import MOST_PIECES, ZERO, NotPiecewise, Piece, Pieces
from maxaffine.structure.convex_differences import Difference, frame
from maxaffine.target.box import Box

MOST_CELLS = 12_000
MOST_MERGED = 160  # tokens whose cells are listed

Region = tuple[tuple[Piece, ...], set[Point]]  # values, and the corners of the cells that have them


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


def refine(outputs: Sequence[Difference], box: Box, tolerance: float = 0.0) -> Refinement:
    """Tokens for all outputs at once; regions with equal pieces are merged where that costs no more than `tolerance`.

    Where the values themselves are convex, f = max v_k (or concave), they are their own scores, and fewer.
    """
    middle, half = frame(box)
    tokens, slackness = [Token(ap.constant(len(middle)), ())], ZERO
    by_cells = tokens_of_cells(outputs) if len(middle) <= 3 and math.prod(len(f.P) * len(f.Q) for f in outputs) > 100 else None
    if by_cells is not None:
        tokens = by_cells
    else:
        for f in outputs:
            tokens, first = spread_over(tokens, f.P, 1)
            tokens, second = spread_over(tokens, f.Q, -1)
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
        return Token(ap.add(token.score, piece), (*token.values, piece))
    last = ap.subtract(token.values[-1], piece)
    return Token(ap.add(token.score, piece), (*token.values[:-1], last))


def spread_over(tokens: list[Token], pieces: Pieces, sign: int) -> tuple[list[Token], Fraction]:
    """Every token with every piece added to its score, and to the last output's value with that sign; only what is needed."""
    if len(tokens) * len(pieces) > 60 * MOST_PIECES:
        raise NotPiecewise("it has too many pieces")
    made = [_chosen(token, piece, sign) for token in tokens for piece in pieces]
    kept, lost = ap.needed([token.score for token in made])
    return [made[i] for i in kept], lost


def tokens_of_cells(outputs: Sequence[Difference]) -> list[Token] | None:
    """The tokens of few variables, exactly: the box is cut until one p and one q of every output is the largest on each part.

    Parts with inner points cover the box together, so their tokens have the largest score everywhere.  None where there are
    too many parts.
    """
    D = len(outputs[0].P[0]) - 1
    parts = [(_cube(D), Token(ap.constant(D), ()))]
    for f in outputs:
        for pieces, sign in ((f.P, 1), (f.Q, -1)):
            floats = ap.floats_of(pieces)
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
                    h = ap.subtract(pieces[chosen[0]], pieces[chosen[1]])
                    left += [(half, token) for half in part.cut(h) if half is not None and half.spans()]
            parts = grown
    return list({token.score: token for _, token in parts}.values())


def _largest(part: Polytope, pieces: Pieces, floats: Array) -> int | tuple[int, int]:
    """The piece that is the largest on the whole part, or two of which neither is."""
    at = ap.heights(floats, ap.floats_of(part.vertices))
    close = np.flatnonzero((at >= at.max(axis=1, keepdims=True) - 1e-9 * (1.0 + np.abs(at).max())).any(axis=0))
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
        own = [ap.scale(v, sign) for v in distinct]
        if len(own) * len(Q) > 400:
            continue
        P_floats, u = ap.floats_of(P), ap.probes(len(own[0]) - 1)
        at = [ap.heights(A, u).max(axis=1) for A in (P_floats, ap.floats_of(Q), ap.floats_of(own))]
        unit = max(float(np.abs(a).max()) for a in at)
        if np.any(at[2] + at[1] > at[0] + 1e-9 * unit):
            continue
        worst = ZERO
        for v, q in product(own, Q):
            found, _ = ap.slack(ap.add(v, q), P, P_floats)
            if found is None:
                break
            worst = max(worst, found)
        else:
            kept, lost = ap.needed(own)
            return [Token(own[i], (distinct[i],)) for i in kept], worst + lost
    return None


# ---------------------------------------------------------------------- regions with equal pieces


def merged(tokens: Sequence[Token]) -> tuple[list[Token], Fraction] | None:
    """One token for all tokens of equal values, and a slack; None where that is not found.

    Cells of the tokens are listed exactly.  New scores s_r with s_r - s_q >= |v_r - v_q| at the vertices of region r, for all q,
    have it on the region's cells, where f = v_r; a linear program proposes them, and how far they miss it is computed exactly:
    |v_q - f| <= s_r - s_q + slack.  They exist where the merged regions are the cells of a power diagram; where the regions of
    equal values are none, those of cells that share facets may be: of n numbers x_i is the second largest below any other x_j.
    """
    D = len(tokens[0].score) - 1
    if D > 4 or len(tokens) > MOST_MERGED:
        return None
    cells: list[Region] = []
    for k, token in enumerate(tokens):
        others = (ap.subtract(other.score, token.score) for j, other in enumerate(tokens) if j != k)
        cell = _cube(D).clipped(others)  # where token k has the largest score, exactly
        cells.append((token.values, set() if cell is None else set(cell.vertices)))
    whole: dict[tuple[Piece, ...], set[Point]] = {}
    for own, points in cells:
        whole.setdefault(own, set()).update(points)
    connected = _connected(cells, D)
    found = _scored(list(whole.items()), D)
    return found if found is not None or not len(whole) < len(connected) < len(cells) else _scored(connected, D)


def _connected(cells: Sequence[Region], D: int) -> list[Region]:
    """Cells of equal values put together where they share a facet."""
    left, made = list(cells), list[Region]()
    while left:
        own, points = left.pop(0)
        reach, grown = [points], True
        while grown:
            near = [one for one in left if one[0] == own and any(_share_facet(one[1], other, D) for other in reach)]
            left = [one for one in left if not any(one is other for other in near)]
            reach += [one for _, one in near]
            grown = bool(near)
        made.append((own, set().union(*reach)))
    return made


def _share_facet(one: set[Point], other: set[Point], D: int) -> bool:
    common = [[float(c) for c in x] for x in one & other]
    return len(common) >= D and np.linalg.matrix_rank(np.array(common[1:]) - np.array(common[0]), tol=1e-9) >= D - 1


def _scored(regions: list[Region], D: int) -> tuple[list[Token], Fraction] | None:
    """Scores of regions by a linear program, and how far they miss what they must keep, exactly."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix, hstack, identity, kron, vstack

    width, span = len(regions) * (D + 1), np.arange(D + 1)
    columns: list[Array] = []
    entries: list[Array] = []
    right: list[float] = []
    for r, (own, points) in enumerate(regions):
        for x in points:
            at = np.array([*(float(c) for c in x), 1.0])
            for q, (other, corners) in enumerate(regions):
                if q != r and points & corners:  # neighbours decide; all are looked at below
                    columns.append(np.concatenate([q * (D + 1) + span, r * (D + 1) + span]))
                    entries.append(np.concatenate([at, -at]))
                    right.append(-float(_apart(own, other, x)))
    if len(right) > 40_000:
        return None
    # Small scores: every coefficient at most the last unknown.
    small = hstack([kron(identity(width), [[1.0], [-1.0]]), np.full((2 * width, 1), -1.0)])
    starts = np.arange(len(right) + 1) * 2 * (D + 1)
    ordered = csr_matrix((np.ravel(entries), np.ravel(columns), starts), shape=(len(right), width + 1))
    A = vstack([ordered, small]).tocsr()
    goal, b = np.append(np.zeros(width), 1.0), [*right, *([0.0] * (2 * width))]
    answer = linprog(goal, A_ub=A, b_ub=b, bounds=[(None, None)] * (width + 1), method="highs")
    if answer.status != 0:
        return None
    scores = [tuple(Fraction(float(c)) for c in row) for row in np.reshape(answer.x[:-1], (len(regions), D + 1))]
    lost = ZERO
    for r, (own, points) in enumerate(regions):
        for x in points:
            here = value(scores[r], x)
            for (other, _), score in zip(regions, scores, strict=True):
                lost = max(lost, _apart(own, other, x) - (here - value(score, x)))
    return [Token(score, values) for score, (values, _) in zip(scores, regions, strict=True)], lost


def _apart(own: tuple[Piece, ...], other: tuple[Piece, ...], x: Point) -> Fraction:
    return max(abs(value(ap.subtract(a, b), x)) for a, b in zip(own, other, strict=True))


def _cube(D: int) -> Polytope:
    return Polytope.box([Fraction(-1)] * D, [Fraction(1)] * D)
