"""Facts derived from an expression, rigorously: that it is finite, its range, its Lipschitz constants."""

from dataclasses import dataclass, replace

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.intervals import Interval
from maxaffine.core.suprema import Maximum, maximise
from maxaffine.expression import evaluate
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import PARTIAL, PIECEWISE_AFFINE
from maxaffine.expression.operations import OPERATIONS
from maxaffine.target.box import Box
from maxaffine.target.declare import Fact

MAX_NODES = 600
"""Second derivatives are tried while the gradient's operations times the dimension stay below this."""

BUDGET = 60_000
"""Pieces of the box that a derivation may look at: a second or so for a typical expression."""


@dataclass(frozen=True)
class Finiteness:
    """Whether an expression was proved finite on a box, and if not, a sentence that says what fails and near which point."""

    proved: bool
    why: str
    at: Array | None = None
    text: str | None = None

    def __bool__(self) -> bool:
        return self.proved


def is_finite_on(expression: Expression, box: Box, budget: int = BUDGET) -> Finiteness:
    """Prove that every output is defined and finite on the whole box, by enclosures over a subdivided box."""
    _match(expression, box)

    def bounds(low: Array, high: Array) -> Array:
        found = expression.enclose(Interval(low, high))
        return np.where(np.all(found.finite, axis=1), 0.0, np.inf)[:, None]

    def samples(x: Array) -> Array:
        return np.where(np.all(np.isfinite(expression.evaluate(x)), axis=1), 0.0, np.inf)[:, None]

    result = maximise(box.low, box.high, bounds, samples, budget=budget)
    if result.upper[0] == 0:
        return Finiteness(True, f"enclosures over {result.pieces} pieces of the box are finite")
    low, high = result.hopeless or (box.low, box.high)
    return _explain(expression, box, low, high)


def derive_lipschitz(expression: Expression, box: Box, budget: int = BUDGET, slack: float = 1e-3) -> Fact:
    """Constants L_i with |F_k(x) - F_k(y)| <= sum_i L_i |x_i - y_i| for every output k.

    L_ki = sup over the box of |dF_k/dx_i|, bounded by interval evaluation of the derivatives over a subdivided box; for
    abs, min and max the derivative is generalised, and a possible jump makes it infinite.  `value` is (D,), the largest over
    the outputs; `per_output` is (K, D).  Infinite entries come with the reason in `how`.
    """
    _match(expression, box)
    slope = expression.gradient()
    scale = np.tile(box.width, expression.count)

    def bounds(low: Array, high: Array) -> Array:
        return _slopes(expression, slope, low, high).magnitude

    def samples(x: Array) -> Array:
        return np.abs(slope.evaluate(x))

    def sharper(low: Array, high: Array) -> Array:
        defined = np.repeat(expression.defined(Interval(low, high)), box.dimension, axis=1)
        return sharp_enclosure(slope, curvature, low, high).undefined(~defined).magnitude

    # Natural enclosures of the slopes first; where they converge too slowly, centred forms by second derivatives.
    result = maximise(box.low, box.high, bounds, samples, budget=budget // 6, slack=slack, scale=scale)
    small = len(slope.nodes) * box.dimension <= MAX_NODES
    curved = any(node.op not in PIECEWISE_AFFINE for node in expression.nodes)  # else slopes are constant on pieces
    if not result.reached and np.isfinite(result.upper).all() and small and curved:
        curvature = slope.gradient()
        second = maximise(box.low, box.high, sharper, samples, budget=budget // 3, slack=slack, scale=scale)
        upper = np.minimum(result.upper, second.upper)
        result = replace(second, upper=upper, pieces=result.pieces + second.pieces)
    per_output = np.maximum(result.upper, 0.0).reshape(expression.count, box.dimension)
    return Fact(np.max(per_output, axis=0), "derived", _how(expression, slope, box, result), per_output=per_output)


def derive_euclidean(expression: Expression, box: Box, budget: int = BUDGET, slack: float = 1e-3) -> Fact:
    """One constant L with |F_k(x) - F_k(y)| <= L |x - y|_2 for every output k: sup |grad F_k|_2 over box and outputs.

    `per_output` is (K,).
    """
    _match(expression, box)
    slope = expression.gradient()
    shape = (expression.count, box.dimension)

    def bounds(low: Array, high: Array) -> Array:
        found = _slopes(expression, slope, low, high)
        return found.square().reshape(len(low), *shape).sum().sqrt().hi

    def samples(x: Array) -> Array:
        with np.errstate(all="ignore"):
            squares = slope.evaluate(x).reshape(len(x), *shape) ** 2
            return np.asarray(np.sqrt(np.sum(squares, axis=-1)))

    result = maximise(box.low, box.high, bounds, samples, budget=budget, slack=slack)
    per_output = np.maximum(result.upper, 0.0)
    return Fact(float(np.max(per_output)), "derived", _how(expression, slope, box, result), per_output=per_output)


def derive_range(expression: Expression, box: Box, budget: int = BUDGET, slack: float = 1e-3) -> Fact:
    """Bounds of every output over the box: `value` is (2, K), lower ends first, proved.

    Natural enclosures are sharpened by the centred form F(c) + F'(X)(X - c), and by going to the proper edge along every
    coordinate in which an output is monotone.
    """
    _match(expression, box)
    slope = expression.gradient()

    def bounds(low: Array, high: Array) -> Array:
        found = sharp_enclosure(expression, slope, low, high)
        return np.concatenate([found.hi, -found.lo], axis=1)

    def samples(x: Array) -> Array:
        found = expression.evaluate(x)
        return np.concatenate([found, -found], axis=1)

    start = samples(np.concatenate([box.centre[None, :], box.low[None, :], box.high[None, :]]))
    count = expression.count
    # The yardstick of a range is its own width: measure from the middle of the values first seen.
    with np.errstate(all="ignore"):
        top, bottom = np.max(start[:, :count], axis=0), -np.max(start[:, count:], axis=0)
        middle = np.where(np.isfinite(top - bottom), 0.5 * top + 0.5 * bottom, 0.0)
    offset = np.concatenate([middle, -middle])
    result = maximise(box.low, box.high, bounds, samples, budget=budget, slack=slack, offset=offset)
    value = np.stack([-result.upper[count:], result.upper[:count]])
    how = f"enclosures over {result.pieces} pieces of the box"
    if not np.isfinite(value).all():
        how = is_finite_on(expression, box).why
    return Fact(value, "derived", how)


def sharp_enclosure(expression: Expression, slope: Expression, low: Array, high: Array) -> Interval:
    """Enclosures (M, K) over pieces, sharpened by derivatives; `slope` is the expression's gradient."""
    piece = Interval(low, high)
    natural = expression.enclose(piece)
    rows, count, dimension = len(low), expression.count, expression.dimension
    slopes = slope.enclose(piece).reshape(rows, count, dimension)
    usable = np.all(slopes.finite, axis=2) & natural.finite
    if not usable.any():
        return natural
    centre = piece.mid
    middle = expression.enclose(Interval(centre, centre))
    offset = piece - Interval(centre, centre)
    spread = (slopes * Interval(offset.lo[:, None, :], offset.hi[:, None, :])).sum()
    centred = middle + spread
    lo = np.where(usable, np.maximum(natural.lo, centred.lo), natural.lo)
    hi = np.where(usable, np.minimum(natural.hi, centred.hi), natural.hi)
    if count <= 4:
        for k in range(count):
            up, down = slopes.lo[:, k, :] >= 0, slopes.hi[:, k, :] <= 0
            if not (up | down).any():
                continue
            to_top = Interval(np.where(up, high, low), np.where(down, low, high))
            to_bottom = Interval(np.where(down, high, low), np.where(up, low, high))
            top, bottom = expression.enclose(to_top), expression.enclose(to_bottom)
            hi[:, k] = np.where(usable[:, k], np.minimum(hi[:, k], top.hi[:, k]), hi[:, k])
            lo[:, k] = np.where(usable[:, k], np.maximum(lo[:, k], bottom.lo[:, k]), lo[:, k])
    return Interval(np.minimum(lo, hi), hi)


def _slopes(expression: Expression, slope: Expression, low: Array, high: Array) -> Interval:
    """Enclosures of the K D derivatives, everything where the function itself may be undefined (log'(x) = 1/x is not enough)."""
    piece = Interval(low, high)
    defined = expression.defined(piece)
    return slope.enclose(piece).undefined(~np.repeat(defined, expression.dimension, axis=1))


def _match(expression: Expression, box: Box) -> None:
    if expression.dimension != box.dimension:
        raise BadInput(f"the expression has {expression.dimension} variables and the box {box.dimension}; they must agree.")


def _how(expression: Expression, slope: Expression, box: Box, result: Maximum) -> str:
    if np.isfinite(result.upper).all():
        return f"interval evaluation of the derivatives over {result.pieces} pieces of the box"
    low, high = result.hopeless or (box.low, box.high)
    trouble = _explain(expression, box, low, high, quiet=True)
    if trouble.text is None:
        trouble = _explain(slope, box, low, high, subject="the derivative")
    return trouble.why


# ---------------------------------------------------------------------- what fails, in words


def _explain(
    expression: Expression, box: Box, low: Array, high: Array, subject: str | None = None, quiet: bool = False
) -> Finiteness:
    """Name the first operation that may be undefined on the piece [low, high]."""
    piece = Interval(low[None, :], high[None, :])
    found = evaluate.enclosures(expression.nodes, range(len(expression.nodes)), piece)
    at = _near(low, high)
    place_text = (
        ", ".join(f"{name}={value:.6g}" for name, value in zip(box.names, at, strict=True)) if box.dimension <= 8 else "a point"
    )
    bad_output = next((k for k, p in enumerate(expression.outputs) if not _good(found[p])), None)
    for place, node in enumerate(expression.nodes):
        if bad_output is None or node.op not in PARTIAL or _surely(found[place]):
            continue
        if not all(_surely(found[a]) for a in node.args):
            continue  # something below it fails first
        whole = expression.describe(place)
        reason = OPERATIONS[node.op].trouble.format(*(expression.describe(a) for a in node.args))
        what = f"{subject} is not bounded" if subject else f"`{whole}` is not finite"
        near = f"near {place_text}"
        if subject is None and np.isfinite(expression.evaluate(at[None])).all():  # an end that is only touched, say
            what, near = f"`{whole}` could not be shown to be finite", f"{near}, as far as enclosures tell"
        return Finiteness(False, f"{what} on the box: {reason} {near}.", at, whole)
    if quiet:
        return Finiteness(True, "", None, None)
    what = subject or f"`{expression.describe(expression.outputs[bad_output or 0])}`"
    return Finiteness(False, f"{what} could not be bounded on the box: its enclosure stays infinite near {place_text}.", at, what)


def _surely(found: evaluate.Enclosed) -> bool:
    """Defined on the whole piece."""
    return found.ok is None or bool(np.all(found.ok))


def _good(found: evaluate.Enclosed) -> bool:
    return _surely(found) and bool(np.all(found.value.finite))


def _near(low: Array, high: Array) -> Array:
    """A readable point of the piece: 0 where it is inside, else the end that is a short decimal."""
    middle = 0.5 * low + 0.5 * high
    for choice in (low, high, np.zeros_like(low)):
        inside = (choice >= low) & (choice <= high)
        simple = np.array([float(f"{c:.6g}") == c for c in choice])
        middle = np.where(inside & simple, choice, middle)
    return middle
