"""The error of a layer at given points as far as it is known: lower ends of enclosures, whatever float64 makes of the target.

The float64 value of abs(x - 1000000.3) is off by 5e-11, because its literal is.  What a search finds with such values is judged
here by balls of as many bits as it takes: the error stated is one that the layer surely has at that point, and no more.
"""

from collections.abc import Callable

import flint
import numpy as np
from numpy.typing import NDArray

from maxaffine.core import balls
from maxaffine.core.arrays import Array
from maxaffine.expression.expression import Expression
from maxaffine.target.target import Target

Evaluate = Callable[[Array], Array]

JUDGED, SPREAD = 24, 256  # the highest points; as many more where float64 noise hid the others
OUTPUTS = 8  # of a point, those that are furthest off
BITS = (128, 512, 2048)
SHARP = 1e-3  # a relative width of the enclosed error that is good enough


def worst_known(
    evaluate: Evaluate, target: Target, x: Array, heights: Array, relative: bool = False
) -> tuple[float, Array]:
    """The largest error that a layer is known to have among points x (n, D), and where; `heights` (n,) is what float64 says.

    The highest points are judged; and where less than half of their height is left, points spread over the others, whose heights
    say nothing then.  Of a callable float64 values are all there is.
    """
    if not len(x):
        return 0.0, target.box.centre
    seen = np.nan_to_num(heights, nan=np.inf, posinf=np.inf)
    order = np.argsort(-seen, kind="stable")[:JUDGED]
    if target.expression is None:
        return float(seen[order[0]]), x[order[0]]
    found = known_errors(evaluate, target, x[order], relative)
    if not found.max() >= 0.5 * seen[order[0]] and len(x) > len(order):
        order = np.concatenate([order, np.unique(np.linspace(0, len(x) - 1, SPREAD).astype(np.intp))])
        found = np.concatenate([found, known_errors(evaluate, target, x[order[len(found) :]], relative)])
    top = int(found.argmax())
    return float(found[top]), x[order[top]]


def known_errors(evaluate: Evaluate, target: Target, x: Array, relative: bool = False) -> Array:
    """Lower bounds of max_k |layer_k(x) - f_k(x)| at points x (n, D) of an expression: (n,); infinite where out is not finite.

    `relative`: of that by |f_k(x)|, an upper bound of it.
    """
    found = exact_differences(evaluate, target, x, None if relative else OUTPUTS)
    if relative:
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.nextafter(found / target.enclose(x, x).magnitude.reshape(found.shape), 0.0)
        found = np.where(np.isnan(found), 0.0, found)
    return np.asarray(found.max(axis=1))


def sure_differences(evaluate: Evaluate, target: Target, x: Array) -> Array:
    """Lower bounds of |layer_k(x) - f_k(x)|, (n, K), by intervals of float64: quick, and exact where branches meet."""
    out = np.asarray(evaluate(x), dtype=np.float64).reshape(len(x), -1)
    return _apart(target, x, out)


def exact_differences(evaluate: Evaluate, target: Target, x: Array, most: int | None = None) -> Array:
    """The same by balls, for the `most` outputs of every point that are furthest off: slow, and sharp."""
    assert target.expression is not None
    out = np.asarray(evaluate(x), dtype=np.float64).reshape(len(x), -1)
    found, values = _apart(target, x, out), target.expression.evaluate(x)
    for i, (point, row) in enumerate(zip(x, out, strict=True)):
        if np.isfinite(row).all():
            chosen = np.argsort(-np.abs(row - values[i]), kind="stable")[:most]
            found[i, chosen] = np.maximum(found[i, chosen], _by_balls(target.expression, point, row[chosen], chosen))
    return found


def _apart(target: Target, x: Array, out: Array) -> Array:
    found = target.enclose(x, x)
    low, high = found.lo.reshape(out.shape), found.hi.reshape(out.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        away = np.nextafter(np.maximum(low - out, out - high), -np.inf)
    return np.where(np.isfinite(out), np.maximum(np.nan_to_num(away, nan=0.0, neginf=0.0), 0.0), np.inf)


def _by_balls(expression: Expression, x: Array, out: Array, chosen: NDArray[np.intp]) -> Array:
    """Lower bounds of |out_k - f_k(x)|; 0 where no ball of the target is finite, as where two branches are equal."""
    known = np.zeros(len(chosen))
    for bits in BITS:
        with balls.precision(bits):
            values = expression.enclose_ball([flint.acb(float(v)) for v in x])
            apart = [
                balls.bounds(abs(values[k].real - flint.arb(float(y)))) if values[k].is_finite() else (0.0, 0.0)
                for k, y in zip(chosen, out, strict=True)
            ]
        known, most = np.maximum(known, [low for low, _ in apart]), max(high for _, high in apart)
        if most - float(known.max()) <= SHARP * most or most <= 1e-25 * float(np.abs(out).max()):
            break
    return known
