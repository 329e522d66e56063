"""Stacks re-proved: nodes put back give the target, heads by their rules, ranges and weights by its own enclosures.

Where the compiler encloses on equal pieces and goes backwards from the output, this cuts in thirds, takes the ends where a
function is monotone, follows an error at every node forwards to the output, and adds up in balls of 128 bits.  Where errors that
part and meet again would count twice forwards, the weights by its own slopes backwards are smaller, and are taken.  Norms that
are folded have a rule of their own (folded_norms.py), and so have nodes whose slope is not bounded (rough_nodes.py).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from maxaffine.checker.affine_rows import TINY, Vector, reach, rounding, vector
from maxaffine.checker.certificate import stated_scope
from maxaffine.checker.folded_norms import check_norm
from maxaffine.checker.folded_norms import slopes as norm_slopes
from maxaffine.checker.proved import DOUBLE, NotProved
from maxaffine.checker.rough_nodes import moves
from maxaffine.checker.same_function import doubt_same
from maxaffine.core import balls
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT32
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.structure.stacked import AffineMap, StackNode, StackPlan, composed, rebuilt
from maxaffine.target.target import Target

THIRDS = {1: 5, 2: 3}  # times that a range is cut in three, per direction
BITS = 128
UP = 1.0 + 2.0**-48
MOST_HEADS = 2_000


@dataclass(frozen=True)
class HeadProof:
    """What is proved of a head: its function on its box, its error, and the error of its literal form where it claims one."""

    function: Expression
    low: Array
    high: Array
    bound: float
    literal: float | None
    why: str


@dataclass(frozen=True)
class StackProof:
    """The bound of a stack, and of the stack of its heads' literal forms (None, and why, where that is not proved).

    `largest` is a bound of the target's own values.
    """

    bound: float
    largest: float
    literal: float | None
    why: str
    how: str

    @property
    def narrow(self) -> float:
        """The bound where the answer is rounded to float32."""
        return (self.bound + FLOAT32.unit * (self.largest + self.bound)) * UP + FLOAT32.tiny


CheckHead = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]


def check_stack(tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, check_head: CheckHead) -> StackProof:
    """The theorem of stacks for a file, or NotProved; `check_head` is the checker of one layer."""
    if target.expression is None or target.expression.count != 1 or target.inputs != "points":
        raise NotProved("stacks are proved of expressions of one output at points.")
    certificate = record["certificate"]
    if record["norm"] != "inf" or certificate.get("norm") != "inf" or not stated_scope(certificate).every_x:
        raise NotProved("stacks are proved in the sup norm over the whole box.")
    if certificate.get("dtype") != "float64" or certificate.get("runtime") != "arrays":
        raise NotProved("stacks are proved in float64.")
    heads = _heads(tensors, record["heads"], check_head)
    plan = StackPlan.read(record["stack"], target.box.names, len(heads))
    doubt_identity(plan, target)
    for node in plan.flat.nodes:
        _doubt_head(node, heads[node.head])
    bound, largest = _bound(plan, target, heads, [head.bound for head in heads])
    how = f"nodes put back, {len(heads)} heads each by its rule, ranges and weights by enclosures"
    unsaid = next((head.why for head in heads if head.literal is None), "")
    if unsaid:
        return StackProof(bound, largest, None, unsaid, how)
    try:
        literal, _ = _bound(plan, target, heads, [float(head.literal or math.inf) for head in heads], clipped=False)
    except NotProved as failure:
        return StackProof(bound, largest, None, str(failure), how)
    return StackProof(bound, largest, literal, "", how)


def _heads(tensors: Mapping[str, Any], records: Any, check_head: CheckHead) -> list[HeadProof]:
    """Every head by the checker of layers, from its own tensors and record; no tensor may be left over."""
    if not isinstance(records, list) or not 1 <= len(records) <= MOST_HEADS:
        raise NotProved("its heads cannot be read.")
    own: list[dict[str, Any]] = [{} for _ in records]
    for name, tensor in tensors.items():
        first, number, rest = name.split(".", 2)
        if first != "head" or not 0 <= int(number) < len(own) or number != str(int(number)):
            raise NotProved(f"its tensor {name[:60]!r} belongs to no head.")
        own[int(number)][rest] = tensor
    found = []
    for i, (part, record) in enumerate(zip(own, records, strict=True)):
        if record.get("method") == "stack" or record["norm"] != "inf" or record["layer"]["dtype"] != "float64":
            raise NotProved(f"its head {i} is no layer in float64 with an error in the sup norm.")
        verdict = check_head(part, record)
        if not verdict.passed:
            raise NotProved(f"its head {i}: {verdict.reason}")
        target = Target.from_json(record["target"])
        if target.expression is None or target.expression.count != 1 or not stated_scope(record["certificate"]).every_x:
            raise NotProved(f"its head {i} is not proved of one expression at every x of its box.")
        claims = {claim.arithmetic: claim for claim in verdict.claims}
        stated = claims.get("float64")
        checked = None if stated is None else stated.checked
        why = "" if checked is not None else f"nothing is proved of the literal form of its head {i}"
        found.append(HeadProof(target.expression, target.box.low, target.box.high, float(verdict.bound), checked, why))
    return found


# ---------------------------------------------------------------------- identities


def doubt_identity(plan: StackPlan, target: Target) -> None:
    """NotProved unless the nodes, put into one another, are the target: the same operations, or the same canonical form."""
    assert target.expression is not None
    graph = Graph()
    variables = [graph.variable(i) for i in range(len(plan.inputs))]
    wanted, found = rebuilt(graph, target.expression, variables), composed(plan, graph)
    if wanted == found:
        return
    names, low, high = target.box.names, target.box.low, target.box.high
    one, other = (Expression.of_graph("", names, graph, (place,)) for place in (wanted, found))
    try:
        doubt_same(one, other, low, high)
    except NotProved as failure:
        raise NotProved(f"its nodes, put into one another, are not shown to be its target: {failure}") from None


def _doubt_head(node: StackNode, head: HeadProof) -> None:
    """NotProved unless phi(u) is 2^lift times the head's function at 2^-a u: the same operations."""
    if head.function.dimension != len(node.arguments):
        raise NotProved(f"the head of its node {node.name} has another number of arguments.")
    graph = Graph()
    plain = [graph.variable(i) for i in range(len(node.arguments))]
    scaled = [graph.multiply(graph.number(Fraction(2) ** -s), x) for s, x in zip(node.scales, plain, strict=True)]
    made = graph.multiply(graph.number(Fraction(2) ** node.lift), rebuilt(graph, head.function, scaled))
    wanted = rebuilt(graph, node.function, plain)
    if made != wanted and not (node.scales == (node.lift,) and _homogeneous(graph, head.function, wanted, plain)):
        raise NotProved(f"the head of its node {node.name} computes another function.")


def _homogeneous(graph: Graph, function: Expression, wanted: int, plain: list[int]) -> bool:
    """|2^a x| = 2^a |x| and max(2^a x, 0) = 2^a max(x, 0): the head's own function, where that is |x| or max(x, 0)."""
    node = graph.nodes[wanted]
    switches = (node.op == "abs" and node.args == (plain[0],)) or (node.op == "max" and node.args == (plain[0], graph.zero))
    return switches and rebuilt(graph, function, plain) == wanted


# ---------------------------------------------------------------------- ranges, slopes, weights


def _bound(
    plan: StackPlan, target: Target, heads: list[HeadProof], betas: list[float], clipped: bool = True
) -> tuple[float, float]:
    """sum_k W_k eps_k and the rounding of inputs and output, for heads with these errors; and a bound of |f|.

    `clipped`: whether arguments are moved into the boxes of heads, as they are in arrays and tensors.
    """
    walk = _Walk(plan, target, heads, betas, clipped)
    with balls.precision(BITS):
        for k, node in enumerate(plan.nodes):
            (walk.norm if node.folds else walk.plain)(k, node)
        weights = walk.follow.weights(plan.result)
        least, most = reach(plan.result, walk.low, walk.high)
        lost = rounding(plan.flat.result, vector(plan.result, walk.known), walk.size)
        inputs = np.maximum(np.abs(target.box.low), np.abs(target.box.high)) * DOUBLE
        pairs = zip(weights, np.concatenate([inputs, walk.eps]), strict=True)
        total = sum((flint.arb(float(w)) * flint.arb(float(e)) for w, e in pairs), flint.arb(float(lost)))
        return float(balls.bounds(total)[1]) * UP, max(abs(least), abs(most))


class _Walk:
    """Node after node: ranges of values, what they are of the numbers that run and how large those are, and errors."""

    def __init__(self, plan: StackPlan, target: Target, heads: list[HeadProof], betas: list[float], clipped: bool) -> None:
        self.plan, self.heads, self.betas, self.clipped = plan, heads, betas, clipped
        D, m, box = len(plan.inputs), len(plan.nodes), target.box
        self.inputs, self.eps = D, np.zeros(m)
        self.low, self.high = np.concatenate([box.low, np.zeros(m)]), np.concatenate([box.high, np.zeros(m)])
        self.size = np.concatenate([np.maximum(np.abs(box.low), np.abs(box.high)), np.zeros(len(plan.flat.nodes))])
        self.exact_low, self.exact_high, self.seen = self.low.copy(), self.high.copy(), 0  # where nothing errs, so many nodes
        self.off = np.concatenate([self.size[:D] * DOUBLE, np.zeros(m)])  # from the values of the exact formula
        self.known: list[Vector] = [{i: flint.arb(1)} for i in range(D)]
        self.follow = _Followed(D, m)

    def plain(self, k: int, node: StackNode) -> None:
        """A node that one head computes."""
        head, (runs,) = self.heads[node.head], self.plan.parts[k]
        rows = zip(node.maps, self.plan.flat.nodes[runs].maps, strict=True)
        rho = np.array([rounding(stored, vector(row, self.known), self.size) for row, stored in rows])
        ends = [reach(row, self.low, self.high) for row in node.maps]
        wide_low = np.array([_below(lo - r) for (lo, _), r in zip(ends, rho, strict=True)])
        wide_high = np.array([_above(hi + r) for (_, hi), r in zip(ends, rho, strict=True)])
        shift = np.array([2.0**s for s in node.scales])
        inside = bool(((head.low * shift <= wide_low) & (wide_high <= head.high * shift)).all())
        value, slopes = _image(node.function, wide_low, wide_high)
        beta = (math.ldexp(self.betas[node.head], node.lift) + 2.0 * TINY) * UP
        if not (np.isfinite(value.magnitude) and np.isfinite(slopes.magnitude).all()):
            value, eps = self._rough(k, node, head, float(rho[0]), beta)
            slopes = Interval(np.zeros(1), np.zeros(1))
        elif not inside:
            raise NotProved(f"the arguments of its node {node.name} leave the box of its head.")
        else:
            eps = (beta + float(np.sum(slopes.magnitude * rho)) * UP) * UP
        self._add(k, node, value, slopes, eps)
        self.size[self.inputs + runs] = max(abs(self.low[self.inputs + k]), abs(self.high[self.inputs + k]))
        self.known.append({self.inputs + runs: flint.arb(1)})

    def _rough(self, k: int, node: StackNode, head: HeadProof, rho: float, beta: float) -> tuple[Interval, float]:
        """Value and error of a node of unbounded slope, whose argument is moved into its head's box, where the exact one is."""
        unshown = f"its node {node.name} is not shown to be finite and of bounded slope where it is asked."
        if len(node.maps) != 1 or node.scales != (0,) or not self.clipped:
            raise NotProved(unshown)
        self._exactly(k)
        low, high = reach(node.maps[0], self.exact_low, self.exact_high)
        if not (head.low[0] <= low and high <= head.high[0]):
            raise NotProved(f"the exact argument of its node {node.name} leaves the box of its head.")
        value, _ = _image(node.function, head.low, head.high)
        moved = moves(node.function, float(head.low[0]), float(head.high[0]), (self._handed(node.maps[0]) + rho) * UP)
        if not np.isfinite(value.magnitude) or not math.isfinite(moved):
            raise NotProved(unshown)
        return value, (beta + moved) * UP

    def _exactly(self, count: int) -> None:
        """Ranges of the exact formula's first nodes."""
        for j in range(self.seen, count):
            node, at = self.plan.nodes[j], self.inputs + j
            ends = np.array([reach(row, self.exact_low, self.exact_high) for row in node.maps])
            if not np.isfinite(ends).all():
                raise NotProved(f"the exact arguments of its node {node.name} are not shown to be finite.")
            found, _ = _image(node.function, ends[:, 0], ends[:, 1])
            self.exact_low[at], self.exact_high[at] = found.lo, found.hi
        self.seen = max(self.seen, count)

    def _handed(self, row: AffineMap) -> float:
        """How far an affine form may be from that of the exact formula."""
        return math.fsum(w * self.off[i] for i, w in zip(row.indices, row.exact_weights.magnitude, strict=True)) * UP

    def norm(self, k: int, node: StackNode) -> None:
        """A norm, which several absolute values compute."""
        head, part = self.heads[node.head], self.plan.parts[k]
        steps = [self.plan.flat.nodes[f] for f in part]
        sides = np.array([reach(row, self.low, self.high) for row in node.maps])
        low, high = sides[:, 0], sides[:, 1]
        value = Interval.stack([Interval(a, b) for a, b in sides]).square().sum().sqrt()
        first, second = (vector(row, self.known) for row in node.maps)
        beta = math.ldexp(self.betas[node.head], node.lift)
        found = check_norm(node, steps, self.inputs + part.start, (first, second), low, float(value.hi), beta, self.size)
        shift = 2.0 ** node.scales[0]
        if not (head.low[0] * shift <= -found.size and found.size <= head.high[0] * shift):
            raise NotProved(f"the absolute values of its norm {node.name} leave the box of their head.")
        self._add(k, node, value, Interval(*norm_slopes(low, high)), found.error * UP)
        self.known.append(found.value)

    def _add(self, k: int, node: StackNode, value: Interval, slopes: Interval, eps: float) -> None:
        at, self.eps[k] = self.inputs + k, eps
        handed = math.fsum(s * self._handed(row) for s, row in zip(slopes.magnitude, node.maps, strict=True))
        self.off[at] = (eps + handed) * UP
        self.low[at], self.high[at] = _below(float(value.lo) - eps), _above(float(value.hi) + eps)
        self.follow.node(k, node.maps, slopes)


def _below(x: float) -> float:
    return math.nextafter(x, -math.inf)


def _above(x: float) -> float:
    return math.nextafter(x, math.inf)


def _thirds(low: float, high: float, times: int) -> Array:
    """Ends of a range and of its pieces, cut in three so many times."""
    if not low < high:
        return np.array([low, high])
    inner = low + (high - low) * np.arange(1, 3**times) / 3**times
    return np.unique(np.concatenate(([low], np.clip(inner, low, high), [high])))


def _image(function: Expression, low: Array, high: Array) -> tuple[Interval, Interval]:
    """Range () and slopes (E,) of a function on a box: slopes on thirds, the range by its ends where it is monotone."""
    edges = [_thirds(a, b, THIRDS[len(low)]) for a, b in zip(low, high, strict=True)]
    lows, highs = (
        np.stack(np.meshgrid(*[e[part] for e in edges], indexing="ij"), axis=-1) for part in (slice(None, -1), slice(1, None))
    )
    pieces = Interval(lows.reshape(-1, len(low)), highs.reshape(-1, len(low)))
    values, slopes = function.enclose(pieces), function.gradient().enclose(pieces)
    bad = ~np.isfinite(values.magnitude)
    slopes = slopes.undefined(bad)
    slope = Interval(slopes.lo.min(axis=0), slopes.hi.max(axis=0))
    lo, hi = float(values.lo.min()), float(values.hi.max())
    rising, falling = slope.lo >= 0.0, slope.hi <= 0.0
    if not bad.any() and (rising | falling).all():
        bottom, top = np.where(rising, low, high)[None], np.where(rising, high, low)[None]
        lo = max(lo, float(function.enclose(Interval(bottom, bottom)).lo[0, 0]))
        hi = min(hi, float(function.enclose(Interval(top, top)).hi[0, 0]))
    return Interval(np.asarray(lo), np.asarray(hi)), slope


class _Followed:
    """Errors followed forwards: what one unit of error at every input and node does to the values after it, as intervals."""

    def __init__(self, inputs: int, nodes: int) -> None:
        self.inputs, count = inputs, inputs + nodes
        self.low, self.high = np.eye(count), np.eye(count)
        self.passed: list[tuple[tuple[AffineMap, ...], Interval]] = []

    def _moved(self, row: AffineMap) -> Interval:
        at = np.array(row.indices, dtype=np.intp)
        if not len(at):
            return Interval(np.zeros(len(self.low)), np.zeros(len(self.low)))
        weights = row.exact_weights.reshape(len(at), 1)
        return (weights * Interval(self.low[at], self.high[at])).sum(axis=0)

    def node(self, k: int, rows: tuple[AffineMap, ...], slopes: Interval) -> None:
        """The values of node k: sum over directions of slope times how the argument moved."""
        total = Interval(np.zeros(len(self.low)), np.zeros(len(self.low)))
        for e, row in enumerate(rows):
            total = total + slopes[e] * self._moved(row)
        self.passed.append((rows, slopes))
        place = self.inputs + k
        own = np.arange(len(self.low)) == place
        self.low[place], self.high[place] = np.where(own, 1.0, total.lo), np.where(own, 1.0, total.hi)

    def weights(self, result: AffineMap) -> Array:
        """|d output| for one unit of error at every input and node: what is less, forwards or backwards."""
        return np.minimum(self._moved(result).magnitude, self._backwards(result))

    def _backwards(self, result: AffineMap) -> Array:
        """The same from the last node on: what one unit of error at it does, handed on to all that it reads."""
        low, high = np.zeros(len(self.low)), np.zeros(len(self.low))

        def hand(row: AffineMap, amount: Interval) -> None:
            at = np.array(row.indices, dtype=np.intp)
            handed = Interval(low[at], high[at]) + amount * row.exact_weights
            low[at], high[at] = handed.lo, handed.hi

        hand(result, Interval(np.asarray(1.0), np.asarray(1.0)))
        for place, (rows, slopes) in reversed([*enumerate(self.passed, self.inputs)]):
            own = Interval(low[place], high[place])
            for e, row in enumerate(rows):
                hand(row, own * slopes[e])
        return Interval(low, high).magnitude
