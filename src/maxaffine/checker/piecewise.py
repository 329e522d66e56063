"""Piecewise affine layers re-proved: the target's own cells, cut exactly, against every token at every vertex.

The box is cut wherever an operation of the expression switches, in exact arithmetic, so that the cells cover the box by
construction and the target is one affine function on each.  With l the token that is best in the middle of a cell, every token k
is compared at the cell's vertices:

    |v_k - f| <= kappa (S_l - S_k) + doubt     holds on the cell if it holds at its vertices, all terms being affine there,

and then |layer - f| <= kappa W0((N-1)/e) + doubt + 2 kappa eta + rounding, because S_l <= max S and a softmax has
sum_k w_k (max S - S_k) <= W0((N-1)/e).  kappa is the smallest number that the vertices allow.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.literal_groups import Frame, Heard, cluster_column, literal_bound
from maxaffine.checker.piecewise_dual import compared
from maxaffine.checker.proved import Form, Proved
from maxaffine.checker.stored import NotProved
from maxaffine.core.intervals import Interval
from maxaffine.core.polytopes import Affine, Polytope, TooLarge
from maxaffine.core.rounding import DTYPES, compute_format
from maxaffine.expression import evaluate
from maxaffine.expression.expression import Expression
from maxaffine.target.target import Target

Array = NDArray[np.float64]

DOUBLE = 2.0**-53
CELLS = 20_000
TOKENS = 5_000
MOST_VARIABLES = 7  # beyond this, boxes have too many corners
WORK = 20_000_000  # comparisons of a token with a vertex
STEPS = 3_000_000  # vertices looked at while the box is cut
LARGE = {"float64": 1e290, "float32": 1e36}


def check_piecewise(tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """sup |layer - target| of a layer whose clusters are single tokens."""
    if target.expression is None or target.n_out != 1:
        raise NotProved("its target is not one that piecewise affine layers are proved for.")
    tokens = Tokens.read(tensors, record["layer"], target)
    if target.box.dimension <= MOST_VARIABLES:
        try:
            whole = Polytope.box(list(tokens.low), list(tokens.high))
            cells = list(cells_of(target.expression, whole, tokens.low, tokens.high))
            kappa, doubt = _compared(tokens, cells)
        except TooLarge as failure:
            raise NotProved(f"its cells are not listed: {failure}.") from None
        how = f"{len(cells):,} cells of the target, every token at every vertex"
    else:
        kappa = (1 + 1e-9) / float(record["plan"]["sharpness"])  # any number will do: what it misses is counted
        doubt, count = compared(tokens, target.expression, error, kappa, _form)
        how = f"{count:,} cells of the target, every token by duality"
    blend = kappa * _largest_blend(len(tokens.scores)) + doubt
    bound = blend + tokens.rounding(kappa)

    def literal(form: Form, claimed: float) -> float:
        frame = Frame.read(tensors, record["layer"], form)
        return literal_bound(frame, bound, [cluster_column(tensors, 0, Heard(blend, _size(target)), frame)])

    return Proved(bound, how, literal)


def _size(target: Target) -> float:
    """A bound of |f| over the box."""
    found = float(target.enclose(target.box.low[None], target.box.high[None]).magnitude.max())
    if not math.isfinite(found):
        raise NotProved("the target could not be enclosed on the box.")
    return found


@dataclass(frozen=True)
class Tokens:
    """Scores (D + 1 numbers) and values (K times D + 1) in x - centre, exact; the box; and sizes that rounding grows with."""

    scores: list[Affine]
    values: list[list[Affine]]
    centre: list[Fraction]
    low: Array
    high: Array
    dtype: str
    matrix: Array
    sites: Array  # (N, E + 1)
    local: Array  # (N, K, E + 1): the stored c and G / radius, with what a shift by the origin adds to c
    narrow: bool

    @classmethod
    def read(cls, tensors: Mapping[str, Any], description: Mapping[str, Any], target: Target) -> "Tokens":
        """The numbers of one group of clusters of one token; NotProved for anything else."""
        dtype = str(description["dtype"])
        counts, directions = description.get("clusters"), description["directions"]
        if dtype not in DTYPES or not (isinstance(counts, list) and len(counts) == 1 and len(directions) == 1):
            raise NotProved("it is not a layer of one group of clusters.")
        C, E, D, K = int(counts[0]), int(directions[0]), target.box.dimension, target.d_out
        if not (1 <= C <= TOKENS and 1 <= E <= D) or float(description["bonus"]) < 0:
            raise NotProved(f"it has {C:,} clusters in {E} coordinates, which this check does not take.")
        exact: dict[str, tuple[int, ...]] = {"matrix": (E, D), "shapes": (C, E), "origins": (C, E), "radii": (C, E)}
        rounded: dict[str, tuple[int, ...]] = {"sites.slopes": (C, E), "sites.offsets": (C,)}
        rounded |= {"values": (C, K), "value_slopes": (C, K, E)}
        rounded |= {f"keys.{e}.{part}": (C,) for e in range(E) for part in ("slopes", "offsets")}
        shapes: dict[str, tuple[int, ...]] = {"box.low": (D,), "box.high": (D,), "coordinates.centre": (D,)}
        shapes |= {f"group.0.{name}": shape for name, shape in (exact | rounded).items()}
        if {name: tensor.shape for name, tensor in tensors.items()} != shapes:
            raise NotProved("its tensors are not those of single tokens with affine values.")
        kind = np.dtype(dtype) if dtype != "bfloat16" else tensors["group.0.values"].dtype
        if any(tensors[f"group.0.{name}"].dtype != kind for name in rounded) or str(kind) != dtype:
            raise NotProved("a tensor is not in the dtype that the record states.")
        if any(tensors[name].dtype != np.float64 for name in shapes if name.split(".")[-1] in (*exact, "low", "high", "centre")):
            raise NotProved("a coordinate is not in float64.")
        part = {name: np.asarray(tensors[f"group.0.{name}"]).astype(np.float64) for name in (exact | rounded)}
        low, high = (np.asarray(tensors[f"box.{side}"], dtype=np.float64) for side in ("low", "high"))
        centre = np.asarray(tensors["coordinates.centre"], dtype=np.float64)
        if not (np.array_equal(low, target.box.low) and np.array_equal(high, target.box.high)):
            raise NotProved("the layer and the target speak about different boxes.")
        if not np.all((centre >= low) & (centre <= high)) or np.any(part["radii"] <= 0):
            raise NotProved("its centre lies outside the box, or a radius is not positive.")
        keys = [part[f"keys.{e}.{name}"] for e in range(E) for name in ("slopes", "offsets")]
        if np.any(part["shapes"] != 1) or any(np.any(a != 0) for a in keys):
            raise NotProved("its clusters are not single tokens with scores of their sites alone.")
        if not all(np.isfinite(a).all() for a in part.values()):
            raise NotProved("a number is not finite.")
        M = [[Fraction(float(m)) for m in row] for row in part["matrix"]]
        scores, values = [], []
        local = np.zeros((C, K, E + 1))
        for k in range(C):
            a = [Fraction(float(v)) for v in part["sites.slopes"][k]]
            scores.append(_in_x(a, Fraction(float(part["sites.offsets"][k])), M))
            origin, radius = part["origins"][k], part["radii"][k]
            rows = []
            for m in range(K):
                G = [Fraction(float(g)) / Fraction(float(r)) for g, r in zip(part["value_slopes"][k, m], radius, strict=True)]
                shift = sum((g * Fraction(float(o)) for g, o in zip(G, origin, strict=True)), Fraction(0))
                rows.append(_in_x(G, Fraction(float(part["values"][k, m])) - shift, M))
                steep = np.abs(part["value_slopes"][k, m]) / radius
                local[k, m] = (*steep, abs(part["values"][k, m]) + float(steep @ np.abs(origin)))
            values.append(rows)
        sites = np.concatenate([part["sites.slopes"], part["sites.offsets"][:, None]], axis=1)
        exactly = [Fraction(float(c)) for c in centre]
        return cls(scores, values, exactly, low, high, dtype, part["matrix"], np.abs(sites), local, dtype != "float64")

    def rounding(self, kappa: float) -> float:
        """What computing adds: errors of the scores count 2 kappa each, values are sums of a few products.

        z is formed in float64 from x - centre; the two-level runtime keeps scores, masses and values in float64, and the
        answer is rounded to the dtype at the end.
        """
        D, N = len(self.low), len(self.scores)
        largest = np.maximum(np.abs(self.low), np.abs(self.high))
        centre = np.array([float(c) for c in self.centre])
        reach = np.maximum(self.high - centre, centre - self.low) * 1.0000001
        size = np.abs(self.matrix) @ reach * 1.0000001
        moved = (np.abs(self.matrix) @ (largest + (D + 5) * reach)) * DOUBLE * 1.01
        E = len(size)
        logits = float((self.sites[:, :-1] @ size + self.sites[:, -1]).max())
        if not logits < LARGE[compute_format(self.dtype).name]:
            raise NotProved(f"its logits overflow in {self.dtype}.")
        eta = float((self.sites[:, :-1] @ moved).max()) + (3 * E + 8) * DOUBLE * 1.01 * logits + DOUBLE * 1000.0
        top = float((self.local[:, :, :-1] @ size + self.local[:, :, -1]).max()) * 1.0000001
        values = float((self.local[:, :, :-1] @ moved).max()) + (4 * E + 12) * DOUBLE * 1.01 * top
        sums = (2.0 * N + 40.0) * DOUBLE * 1.01 * top
        if not (2.0 * N + 40.0) * DOUBLE < 1e-3:
            raise NotProved("its sums are too long.")
        last = compute_format(self.dtype).unit * 1.01 * top
        return 2.0 * kappa * eta + values + sums + last + N * 1e-35 * top


def _in_x(slopes: list[Fraction], constant: Fraction, M: list[list[Fraction]]) -> Affine:
    D = len(M[0])
    total = [sum((a * row[i] for a, row in zip(slopes, M, strict=True) if a and row[i]), Fraction(0)) for i in range(D)]
    return (*total, constant)


def _largest_blend(count: int) -> float:
    """The largest sum_k w_k (max S - S_k) over softmaxes of that many scores: the root of w e^w = (count - 1)/e, by bisection."""
    goal = (count - 1) / math.e * (1 + 1e-13)
    low, high = 0.0, math.log1p(goal) + 1.0
    for _ in range(200):
        middle = (low + high) / 2.0
        if middle * math.exp(middle) < goal:
            low = middle
        else:
            high = middle
    return high * (1 + 1e-13)


# ---------------------------------------------------------------------- cells of the target


@dataclass(frozen=True)
class Cell:
    """A polytope on which every output is one affine function of x, up to `doubt`."""

    polytope: Polytope
    outputs: tuple[Affine, ...]
    doubt: float


def cells_of(expression: Expression, whole: Polytope, low: Array, high: Array) -> Iterator[Cell]:
    """Cells that cover `whole`; NotProved where an operation is neither affine nor a switch between affine functions."""
    nodes = expression.nodes
    sizes = evaluate.enclosures(nodes, range(len(nodes)), Interval(low[None], high[None]))
    stack: list[tuple[Polytope, tuple[Any, ...]]] = [(whole, ())]
    found = steps = 0
    while stack:
        polytope, known = stack.pop()
        steps += len(polytope.vertices) * (len(nodes) - len(known))
        if steps > STEPS:
            raise NotProved("its cells have too many vertices to be listed.")
        forms = list(known)
        while len(forms) < len(nodes):
            place = len(forms)
            made = _branches(nodes[place], [forms[a] for a in nodes[place].args], sizes, place, polytope, expression.dimension)
            if len(made) > 1:
                stack += [(part, (*forms, form)) for part, form in made]
                if len(stack) > CELLS:
                    raise NotProved(f"the target has more than {CELLS:,} cells.")
                break
            forms.append(made[0][1])
        else:
            found += 1
            if found > CELLS:
                raise NotProved(f"the target has more than {CELLS:,} cells.")
            outputs = [forms[place] for place in expression.outputs]
            yield Cell(polytope, tuple(f for f, _ in outputs), max(float(d) for _, d in outputs) * (1 + 1e-12))


def _branches(node: Any, args: list[Any], sizes: Any, place: int, polytope: Polytope, D: int) -> list[tuple[Polytope, Any]]:
    """The node on the polytope, or on parts that cover it: (affine form, doubt), or the truth of a condition."""
    if node.op in ("max", "min", "abs"):
        return _kink(node.op, args, polytope)
    if node.op in ("negative", "nonpositive"):
        return _condition(node.op, args[0], polytope)
    return [(polytope, _form(node, args, sizes, place, D))]


def _kink(op: str, args: list[Any], polytope: Polytope) -> list[tuple[Polytope, Any]]:
    a, b = args[0], args[1] if op != "abs" else (tuple(-c for c in args[0][0]), args[0][1])
    difference = tuple(x - y for x, y in zip(a[0], b[0], strict=True))
    doubt = max(a[1], b[1])
    larger, smaller = ((b, a), (a, b)) if op != "min" else ((a, b), (b, a))  # where a - b <= 0, and where a - b >= 0
    negative, positive = polytope.sides(difference)
    if not (negative and positive):
        chosen = larger[0] if negative else smaller[0]
        return [(polytope, (chosen[0], doubt))]
    below, above = polytope.cut(difference)
    assert below is not None and above is not None
    return [(below, (larger[0][0], doubt)), (above, (smaller[0][0], doubt))]


def _condition(op: str, argument: Any, polytope: Polytope) -> list[tuple[Polytope, Any]]:
    """h < 0 or h <= 0: true below, false above, and the points h = 0 a cell of their own, since the target may jump there."""
    h, doubt = argument
    if doubt:
        raise NotProved("a condition of its target has constants that are not rational.")
    negative, positive = polytope.sides(h)
    below, above = polytope.cut(h)
    parts: list[tuple[Polytope, Any]] = []
    if negative and below is not None:
        parts.append((below, True))
    if positive and above is not None:
        parts.append((above, False))
    face = polytope.face(h)
    if face is not None:
        parts.append((face, op == "nonpositive"))
    return parts


def _form(node: Any, args: list[Any], sizes: Any, place: int, D: int) -> Any:
    """(affine form, doubt) of a node that does not switch, or the truth of a condition made of others."""
    zero, op = Fraction(0), node.op
    if op == "var":
        return (*(Fraction(int(i == node.data)) for i in range(D)), zero), zero
    if op == "const":
        return (*([zero] * D), node.data), zero
    if op == "lin":
        return _linear(args, node, sizes)
    if op == "where" and isinstance(args[0], bool):
        return args[1] if args[0] else args[2]
    if op == "not" and isinstance(args[0], bool):
        return not args[0]
    if op in ("and", "or") and all(isinstance(a, bool) for a in args):
        return all(args) if op == "and" else any(args)
    if op in ("zero", "not", "and", "or", "where") or any(isinstance(a, bool) or any(a[0][:-1]) for a in args):
        raise NotProved(f"its target's operation {op!r} is not piecewise affine.")
    found = sizes[place]  # of constants
    lo, hi = float(np.asarray(found.value.lo).ravel()[0]), float(np.asarray(found.value.hi).ravel()[0])
    if not math.isfinite(lo + hi) or (found.ok is not None and not np.all(found.ok)):
        raise NotProved(f"its target's operation {op!r} is not enclosed.")
    return (*([zero] * D), (Fraction(lo) + Fraction(hi)) / 2), (Fraction(hi) - Fraction(lo)) / 2


def _linear(args: list[Any], node: Any, sizes: Any) -> tuple[Affine, Fraction]:
    total, doubt = args[0]
    for i in range(1, len(args), 2):
        (c, r), (form, away) = args[i], args[i + 1]
        scale = c[-1]
        total = tuple(a + scale * b for a, b in zip(total, form, strict=True))
        doubt = doubt + (abs(scale) + r) * away
        if r:
            size = float(np.asarray(sizes[node.args[i + 1]].value.magnitude).max())
            if not math.isfinite(size):
                raise NotProved("a part of its target is not enclosed.")
            doubt = doubt + r * Fraction(size)
    return total, doubt


# ---------------------------------------------------------------------- tokens against cells


def _compared(tokens: Tokens, cells: list[Cell]) -> tuple[float, float]:
    """(kappa, doubt) with |v_k - f| <= kappa (S_l - S_k) + doubt on every cell, for every token and output.

    A cell on which two tokens are best in turn is cut where they tie.
    """
    S = np.array([[float(c) for c in row] for row in tokens.scores])
    V = np.array([[[float(c) for c in row] for row in rows] for rows in tokens.values])  # (N, K, D + 1)
    K, D = V.shape[1], len(tokens.low)
    ends = zip(tokens.low, tokens.high, tokens.centre, strict=True)
    reach = np.array([float(max(abs(Fraction(float(a)) - c), abs(Fraction(float(b)) - c))) for a, b, c in ends]) * 1.0000001
    wide = np.append(reach, 1.0)
    score_size, value_size = float((np.abs(S) @ wide).max()), float((np.abs(V) @ wide).max())
    tie = 1e-6 + 64.0 * DTYPES[tokens.dtype].unit * score_size
    rows: list[tuple[Array, Array, float]] = []
    target_size, work, left = 0.0, 0, list(cells)
    while left:
        cell = left.pop()
        w = np.array([[float(x - c) for x, c in zip(v, tokens.centre, strict=True)] for v in cell.polytope.vertices])
        middle = np.array([float(x - c) for x, c in zip(cell.polytope.middle, tokens.centre, strict=True)])
        best = int((S[:, :-1] @ middle + S[:, -1]).argmax())
        scores = w @ S[:, :-1].T + S[:, -1]  # (vertices, N)
        gap = scores[:, best : best + 1] - scores
        work += gap.size * K
        if work > WORK or len(left) + len(rows) > CELLS:
            raise NotProved("its cells have more vertices than this check compares.")
        if gap.min() < -tie:
            rival = int(gap.min(axis=0).argmin())
            parts = cell.polytope.cut(_tied(tokens, best, rival))
            if all(part is not None for part in parts):
                left += [Cell(part, cell.outputs, cell.doubt) for part in parts if part is not None]
                continue
        shifted = [(*f[:-1], sum((a * c for a, c in zip(f, tokens.centre, strict=False)), f[-1])) for f in cell.outputs]
        F = np.array([[float(c) for c in row] for row in shifted])  # (K, D + 1)
        target_size = max(target_size, float((np.abs(F) @ wide).max()))
        f = w @ F[:, :-1].T + F[:, -1]  # (vertices, K)
        v = np.einsum("vd,nkd->vnk", w, V[:, :, :-1]) + V[:, :, -1]
        rows.append((gap, np.abs(v - f[:, None, :]).max(axis=2), cell.doubt))
    kappa = 0.0
    for gap, away, _ in rows:
        clear = gap > 1.0
        if clear.any():
            kappa = max(kappa, float((away[clear] / gap[clear]).max()))
    kappa *= 1 + 1e-9
    doubt = max(float((away - kappa * gap).max()) + extra for gap, away, extra in rows)
    # Vertices and functions were rounded to float64, and sums of D + 1 products: all relative to their sizes.
    blur = (4 * D + 16) * DOUBLE * (value_size + target_size + 2.0 * kappa * score_size)
    return kappa, max(doubt, 0.0) + blur


def _tied(tokens: Tokens, k: int, other: int) -> Affine:
    """S_k - S_other as a function of x."""
    difference = [a - b for a, b in zip(tokens.scores[k], tokens.scores[other], strict=True)]
    shift = sum((a * c for a, c in zip(difference, tokens.centre, strict=False)), Fraction(0))
    return (*difference[:-1], difference[-1] - shift)
