"""What wrong logits and a wrong query do to a head: weighted means at the middles of short pieces, enlarged to hold inside them.

Logits that are off by eta_j move sum_j w_j v_j by at most e^{2 max eta} sum_j w_j eta_j |v_j - g|.  Inside a piece weights move
by a factor e^{spread half} and affine values along their slopes.  Over several coordinates sum_j w_j |v_j - g| is at most the
root of the second moment (Cauchy and Schwarz), which is a sum over products.
"""

import math
from dataclasses import dataclass

import numpy as np

from maxaffine.checker.head import Head, contract, row_by_row
from maxaffine.checker.proved import DOUBLE, NotProved
from maxaffine.checker.reader import Axis
from maxaffine.checker.slopes import lipschitz
from maxaffine.core.arrays import Array

MARGIN = 1.0 + 2.0**-8  # |z| of a computed query at most
TREE = 8  # terms that tree sums add at once
PLAIN_PIECES = {1: 6000, 2: 1300, 3: 90, 4: 26}  # per coordinate, at most
AFFINE_PIECES = {1: 6000, 2: 700, 3: 70, 4: 22}
CLUSTER_PIECES = {1: 6000, 2: 240, 3: 40, 4: 16}
FINE = 0.04  # by which the weights of a cluster may move inside its first pieces, in their logarithms


@dataclass(frozen=True)
class LogitErrors:
    """What is counted of a logit: `terms` roundings of its size, and `exps` of exp and what follows it, in units.

    `offset_terms`: as many of the offset alone, where those are fewer.
    """

    unit: float
    terms: float
    exps: float
    bias: float = 0.0
    offset_terms: float = math.inf

    def of(self, axis: Axis, z: Array, width: float, E: int) -> Array:
        """Errors (M, N) of the logits along one of E directions, on pieces of that half width about z."""
        scores = np.multiply.outer(z, axis.a) + axis.b
        eta = self.terms * np.multiply.outer(np.abs(z) + width, np.abs(axis.a))
        eta = eta + min(self.terms, self.offset_terms) * np.abs(axis.b)
        behind = scores.max(axis=1)[:, None] - scores + 2 * width * axis.spread
        return np.asarray(self.unit * (eta + behind + self.exps + self.bias / E))

    def largest(self, axis: Axis, E: int) -> float:
        """A bound of them all."""
        size = float((np.abs(axis.a) * MARGIN + np.abs(axis.b)).max())
        return self.unit * ((self.terms + 2.0) * size + self.exps + self.bias / E)


@dataclass(frozen=True)
class Account:
    """What wrong logits do to a head and what a wrong query does, and bounds of |g| and of sum w |v|."""

    by_logits: float
    by_query: float
    top: float
    held: float


class Moments:
    """Weighted sums over the tokens of a head at places, for values whose columns are c, or c and the slopes G: v = c + G z.

    Weights W (M_e, N_e) per axis, at a grid of places or, where all axes share their places, row by row.
    """

    def __init__(self, W: list[Array], places: list[Array], columns: int, on_grid: bool = True) -> None:
        self.W, self.widths, self.contract = W, np.zeros(len(W)), contract if on_grid else row_by_row
        grids = np.meshgrid(*places, indexing="ij", sparse=True) if on_grid else places
        self.basis = [np.ones([1] * grids[0].ndim), *grids][:columns]

    def mean(self, W: list[Array], columns: Array) -> Array:
        """sum_j W_j v_j."""
        return self.at(self.contract(W, columns))

    def at(self, columns: Array) -> Array:
        """c + G z of one token, or of one for every place."""
        return np.asarray(sum(z * columns[..., b] for b, z in enumerate(self.basis)))

    def size(self, W: list[Array], columns: Array) -> Array:
        """sum_j W_j |v_j| anywhere in the piece, weights as at its middle; an upper bound."""
        found, wide = self.contract(W, np.abs(columns)), [0.0, *self.widths]
        return np.asarray(sum((np.abs(z) + wide[b]) * found[..., b] for b, z in enumerate(self.basis)))

    def apart(self, W: list[Array], columns: Array, g: Array) -> Array:
        """An upper bound of sum_j W_j |v_j - g|: along one axis itself, else by Cauchy and Schwarz."""
        if len(W) == 1:
            v = sum(z[:, None] * columns[None, :, b] for b, z in enumerate(self.basis))
            return np.asarray((W[0] * np.abs(v - g[:, None])).sum(axis=1) * (1 + 1e-9))
        weight = self.contract(W, np.ones((*columns.shape[:-1], 1)))[..., 0]
        square = self.square(W, columns)
        about = square - 2.0 * g * self.mean(W, columns) + g * g * weight
        return np.asarray(np.sqrt(weight * np.maximum(about + 1e-11 * (square + g * g * weight), 0.0)) * (1 + 1e-9))

    def square(self, W: list[Array], columns: Array) -> Array:
        """An upper bound of sum_j W_j v_j^2, term by term, with a margin for what cancels between the terms."""
        n = len(self.basis)
        pairs = [(a, b) for a in range(n) for b in range(a + 1)]
        terms = np.stack([(2.0 if b < a else 1.0) * columns[..., a] * columns[..., b] for a, b in pairs], axis=-1)
        found = self.contract(W, terms)
        total = sum(self.basis[a] * self.basis[b] * found[..., i] for i, (a, b) in enumerate(pairs))
        own = [i for i, (a, b) in enumerate(pairs) if a == b]
        size = sum(n * z * z * found[..., i] for z, i in zip(self.basis, own, strict=True))
        return np.asarray(np.maximum(total, 0.0) + 1e-11 * np.asarray(size))


class OnPieces(Moments):
    """Weights of a head at the middles of the pieces of a box."""

    def __init__(self, axes: tuple[Axis, ...], columns: int, low: Array, high: Array, counts: list[int]) -> None:
        widths = (high - low) / 2.0 / counts * (1 + 1e-12)
        self.places = [a + w * (2.0 * np.arange(n) + 1.0) for a, w, n in zip(low, widths, counts, strict=True)]
        growth = sum(axis.spread * w for axis, w in zip(axes, widths, strict=True))
        if not growth < 50.0:
            raise NotProved("its keys are too steep to be followed.")
        super().__init__([axis.weights(z) for axis, z in zip(axes, self.places, strict=True)], self.places, columns)
        self.widths, self.grow = widths, math.exp(growth)

    def moves(self, W: list[Array], columns: Array) -> Array:
        """sum_j W_j times what v_j moves by inside the piece."""
        return contract(W, np.abs(columns[..., 1:]) @ self.widths[: columns.shape[-1] - 1])


@np.errstate(over="ignore", invalid="ignore")
def account(head: Head, query: Array, errors: LogitErrors, ends: tuple[float, float] = (-MARGIN, MARGIN)) -> Account:
    """What wrong logits and a wrong query do to a head where z_e goes from end to end.

    Values are taken about an affine function that all tokens share.
    """
    E, columns, reach = len(head.axes), head.columns, max(abs(ends[0]), abs(ends[1]))
    n = columns.shape[-1]
    most = (PLAIN_PIECES if n == 1 else AFFINE_PIECES)[E]
    fine = 12.0 * (ends[1] - ends[0]) * (12.0 if E == 1 else E)
    counts = [int(np.clip(fine * axis.spread, 24, most)) for axis in head.axes]
    on = OnPieces(head.axes, n, np.full(E, ends[0]), np.full(E, ends[1]), counts)
    shared = columns.mean(axis=tuple(range(E)))
    own = columns - shared
    g, moves = on.mean(on.W, own), on.moves(on.W, own)
    about = np.minimum(np.sqrt(on.square(on.W, own) * (1 + 1e-9)) + moves, on.size(on.W, own))
    size = float(about.max()) * on.grow
    swing = (on.grow - 1.0) * size + float(moves.max())
    lost, largest, steepest = np.zeros(counts), 0.0, []
    tilts = [float(contract(on.W, np.abs(own[..., 1 + e])).max()) * on.grow if n > 1 else 0.0 for e in range(E)]
    for e, axis in enumerate(head.axes):
        eta = errors.of(axis, on.places[e], float(on.widths[e]), E)
        largest += float(eta.max())
        moved = [w * eta if i == e else w for i, w in enumerate(on.W)]
        weight = contract(moved, np.ones(own.shape[:-1]))
        lost += on.apart(moved, own, g) + weight * swing + on.moves(moved, own)
        steepest.append(_steepest(on, head, own, shared, e, size, tilts))
    by_logits = float(lost.max()) * on.grow * math.exp(2.0 * largest) * (1 + 1e-9)
    plain = float((np.abs(head.values[..., 0]) + head.leaning() * reach).max())  # of every token
    drift = float(np.abs(shared[1:]) @ on.widths[: n - 1])
    top = min(plain, float(np.abs(on.mean(on.W, columns)).max()) + swing + drift) * (1 + 1e-9)
    held = min(plain, on.grow * float(on.size(on.W, columns).max()) * (1 + 1e-9))
    by_query = float(query @ np.asarray(steepest)) * (1 + 1e-9)
    if not all(math.isfinite(number) for number in (by_logits, by_query, top, held)):  # max() would lose NaN
        raise NotProved("its numbers are too large for a bound.")
    return Account(by_logits, by_query, top, held)


def _steepest(on: OnPieces, head: Head, own: Array, shared: Array, e: int, size: float, tilts: list[float]) -> float:
    """A bound of |dg/dz_e|: at the middles of pieces, and what it changes by inside one."""
    axis, n = head.axes[e], own.shape[-1]
    away = axis.a[None] - (on.W[e] @ axis.a)[:, None]
    steep = [w * away if i == e else w for i, w in enumerate(on.W)]
    direct = on.mean(steep, own)
    if n > 1:
        direct = direct + contract(on.W, own[..., 1 + e]) + shared[1 + e]
    change = 0.0
    for i, (other, w) in enumerate(zip(head.axes, on.widths, strict=True)):
        change += float(w) * (2.0 * axis.spread * other.spread * size + axis.spread * tilts[i] + other.spread * tilts[e])
    found = float(np.abs(direct).max()) + change
    if n > 1:
        return found
    absolute = on.size([np.abs(s) if i == e else s for i, s in enumerate(steep)], own)
    return min(found, float(absolute.max()) * on.grow + axis.spread * (on.grow - 1.0) * size)


def rounding(head: Head, query: Array, unit: float, bias: float, tokens: int, narrow: bool) -> tuple[float, float]:
    """What finite precision does to a head as it runs by default, and a bound of |g|.

    `narrow`: a query is rounded to fewer digits and surely stays inside [-1, 1], so it moves along the target's own slope.
    """
    E = len(head.axes)
    found, depth = account(head, query, LogitErrors(unit, E + 2.01, 12.0, bias)), tree_depth(tokens)
    terms = max(depth, sum(len(axis.a) + 1 for axis in head.axes)) + (4 if head.slopes is None else E + 6)
    sums = DOUBLE * 1.01 * (terms * found.held + E * (depth + 4) * found.top)
    moved = found.by_query
    if narrow:
        low, high = head.middle.lo - head.half * (1 + 1e-12), head.middle.hi + head.half * (1 + 1e-12)
        through = lipschitz(head.expression, low, high) @ (query * head.half)
        moved = min(moved, float(through.max()) * (1 + 1e-12))
    return found.by_logits + sums + moved, found.top


def tree_depth(tokens: int) -> int:
    """Additions on the longest path of a tree sum."""
    return (TREE - 1) * (1 + math.floor(math.log(max(tokens, 2), TREE) + 1e-9))


def variation(axes: tuple[Axis, ...], values: Array, slopes: Array, low: Array, high: Array, crude: bool) -> float:
    """sup sum_j w_j |v_j - p| over a box of t, the largest of K outputs; `crude`: from the largest distance of a value alone.

    Values c + G t, (p_1, .., p_E, K) and (p_1, .., p_E, K, E).  Pieces are cut until what happens inside adds a twentieth; where
    there are more coordinates than CLUSTER_PIECES knows, it is the crude one.
    """
    E, worst = len(axes), 0.0
    middle, half = (low + high) / 2.0, (high - low) / 2.0 * (1 + 1e-12)
    for k in range(values.shape[-1]):
        c, G = values[..., k], slopes[..., k, :]
        of_sums = 4e-15 * float((np.abs(c) + np.abs(G) @ (np.abs(middle) + half)).max())
        columns = np.concatenate([(c + G @ middle)[..., None], G], axis=-1)
        flat = columns.reshape(-1, 1 + E)
        columns = columns - (flat.max(axis=0) + flat.min(axis=0)) / 2.0
        largest = float((np.abs(columns[..., 0]) + np.abs(columns[..., 1:]) @ half).max()) * (1 + 1e-9)
        if not crude and math.isfinite(largest) and E in CLUSTER_PIECES:
            shifted = tuple(Axis(axis.a, axis.b + axis.a * m) for axis, m in zip(axes, middle, strict=True))
            largest = min(largest, _followed(shifted, columns, half))
        worst = max(worst, largest + of_sums) if math.isfinite(largest) else math.inf
    return worst


def _followed(axes: tuple[Axis, ...], columns: Array, half: Array) -> float:
    E, best = len(axes), math.inf
    most = CLUSTER_PIECES[E]
    counts = [int(np.clip(math.ceil(E * axis.spread * h / FINE), 8, most)) for axis, h in zip(axes, half, strict=True)]
    while True:
        try:
            on = OnPieces(axes, 1 + E, -half, half, counts)
        except NotProved:
            return best
        apart = on.apart(on.W, columns, on.mean(on.W, columns))
        found = float(((2.0 * on.grow - 1.0) * apart + 2.0 * on.grow * on.moves(on.W, columns)).max()) * (1 + 1e-9)
        best = min(best, found)
        if found <= 1.05 * float(apart.max()) or all(count >= most for count in counts) or not math.isfinite(found):
            return best
        counts = [min(3 * count, most) for count in counts]


def joined_factors(axes: tuple[Axis, ...], factors: tuple[Array, ...], errors: LogitErrors) -> tuple[float, float]:
    """What a softmax that joins all directions loses where values are sums of products, and sum w |values|.

    Its logits join all directions, so their errors are no product: |prod f - prod g| is telescoped, and every piece of the
    telescope carries the error of one direction's logit.
    """
    E, worst = len(axes), 0.0
    alone: list[tuple[float, Array]] = []  # per direction sum w eta, and per product |g|, sum w|f|, sum w|f-g|, sum w eta|f-g|
    for axis, factor in zip(axes, factors, strict=True):
        count = int(np.clip(40.0 * axis.spread, 16, 8000))
        on = OnPieces((axis,), 1, np.array([-MARGIN]), np.array([MARGIN]), [count])
        W, grow = on.W[0], on.grow
        eta = errors.of(axis, on.places[0], float(on.widths[0]), E)
        worst += float(eta.max())
        mean = float((W * eta).sum(axis=1).max()) * grow
        rows = []
        for f in factor.T:
            g = W @ f
            size = float((W @ np.abs(f)).max()) * grow
            away, swing = np.abs(f[None] - g[:, None]), (grow - 1.0) * size
            apart = (float((W * away).sum(axis=1).max()) + swing) * grow
            shaken = float((W * eta * away).sum(axis=1).max()) * grow + swing * mean * grow
            rows.append((float(np.abs(g).max()) + swing, size, apart, shaken))
        alone.append((mean, np.array(rows).T))
    sizes, lost = np.prod([rows[1] for _, rows in alone], axis=0).sum(), 0.0
    for k in range(E):
        for e in range(E):
            piece = np.ones(factors[0].shape[1])
            for i, (mean, (top, size, apart, shaken)) in enumerate(alone):
                if i < k:
                    piece = piece * top * (mean if i == e else 1.0)
                elif i == k:
                    piece = piece * (shaken if i == e else apart)
                else:
                    piece = piece * (shaken + mean * top if i == e else size)
            lost += float(piece.sum())
    return float(math.exp(2.0 * worst) * lost), float(sizes)
