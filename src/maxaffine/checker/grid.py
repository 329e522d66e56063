"""Grids re-proved: sup norm by mean distances to the drawn site or oscillations on cells, L_p by upper sums."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker import slopes
from maxaffine.checker.boxes import Bounds, integral, supremum
from maxaffine.checker.lookup_rounding import logit_error, summation_error
from maxaffine.checker.proved import NotProved, Proved
from maxaffine.checker.reader import Lookup
from maxaffine.checker.softmax import distance, largest_mean, outside, square
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.mapped import pieces
from maxaffine.core.progress import Progress, silent
from maxaffine.target.target import Target

CHUNK = 1 << 15
KEPT = 1 << 17  # sites of an axis whose sides are kept
SMALLEST = 1e-9  # boxes, relative to the whole, that a search for the largest distance from one value does not cut
MARGIN = 11 / 256  # enlargement of the cells where no constant bounds the target's growth


def check_sup(
    layer: Lookup, target: Target, declared: Mapping[str, Any], error: float, progress: Progress = silent
) -> Proved:
    """|F - f| <= sum_i L_i h_i E|z_i - c_K| + |y - f(site)|, or the oscillation on enlarged cells plus what leaks past them."""
    _covers(layer)
    eta, tail = logit_error(layer), summation_error(layer)
    assert target.expression is not None
    if len(layer.values) == 1:
        away = _from_one_value(layer, target, error - tail)
        if away + tail <= error:
            return Proved(away + tail, "boxes cut in three, the target against the one value")
    known, how = _constants(target, declared)
    widths = (1.0 / layer.scale) * (1 + 4e-16)
    best, proof = math.inf, ""
    derived = bool(np.isfinite(known).all())
    deviation = _apart(layer, target, 0.0, progress)[0] + tail if derived or "euclidean" in declared else math.inf

    def by_squares(constant: float) -> float:
        squares = np.asarray([largest_mean(len(a), layer.sharpness, eta, square) for a in layer.slopes])
        return constant * math.sqrt(float(widths**2 @ squares)) * (1 + 1e-12) + deviation

    if derived:
        means = [largest_mean(len(a), layer.sharpness, eta, distance) for a in layer.slopes]
        best = float(np.max((np.atleast_2d(known) * widths) @ np.asarray(means))) * (1 + 1e-12) + deviation
        proof = f"mean distance to the drawn site, Lipschitz constants {how}"
        if best > error and target.box.dimension > 1 and "lipschitz" not in declared:
            other = by_squares(slopes.euclidean(target.expression, layer.low, layer.high))
            best, proof = min((best, proof), (other, "mean square distance to the drawn site, derived gradient bound"))
    if "euclidean" in declared:
        constant = float(declared["euclidean"])
        slopes.doubt_declared(target.expression, layer.low, layer.high, constant)
        best, proof = min((best, proof), (by_squares(constant), "mean square distance, declared Euclidean constant"))
    if best > error:
        leak = sum(largest_mean(len(a), layer.sharpness, eta, outside(MARGIN)) for a in layer.slopes)
        oscillation, spread = _apart(layer, target, 0.5 + MARGIN, progress)
        other = oscillation + leak * spread * (1 + 1e-12) + tail
        best, proof = min((best, proof), (other, f"enclosures on cells enlarged by {MARGIN:.4g}"))
    return Proved(best, proof)


def _from_one_value(layer: Lookup, target: Target, error: float) -> float:
    """sup |f - y| for the only value y: the softmax over one key is 1 whatever its logit.

    First as sharp as can be; where that does not do, the work goes to the boxes above the error alone.
    """

    def away(low: Array, high: Array, _: object) -> Bounds:
        middle = low / 2.0 + high / 2.0
        upper, here = (_farthest(target, *ends, layer.values) * (1 + 1e-15) for ends in ((low, high), (middle, middle)))
        return Bounds(upper, here, np.argmax((high - low) / width, axis=1))

    width = layer.high - layer.low
    ask: dict[str, Any] = {"budget": slopes.BUDGET, "slack": slopes.SLACK, "smallest": SMALLEST * width}
    sharp = supremum(away, layer.low[None], layer.high[None], **ask).worst
    return sharp if sharp <= error else supremum(away, layer.low[None], layer.high[None], goal=error, **ask).worst


def _farthest(target: Target, low: Array, high: Array, y: Array) -> Array:
    """sup |f - y| over boxes, the largest output; infinite where f is not enclosed."""
    f_low, f_high = _enclose(target, low, high)
    away = np.maximum(f_high - y, y - f_low).max(axis=1)
    return np.where(np.isnan(away), np.inf, away)


def _constants(target: Target, declared: Mapping[str, Any]) -> tuple[Array, str]:
    assert target.expression is not None
    if "lipschitz" in declared:
        constants = np.asarray(declared["lipschitz"], dtype=np.float64)
        if constants.shape != target.box.low.shape or not np.all(constants >= 0):
            raise NotProved("the declared Lipschitz constants in the file are malformed.")
        slopes.doubt_declared(target.expression, target.box.low, target.box.high, constants)
        return constants, "declared in the file"
    return slopes.lipschitz(target.expression, target.box.low, target.box.high), "derived"


def _covers(layer: Lookup) -> None:
    """The cells must cover the box, scale * reach <= P/2, and their sites lie in it."""
    for scale, reach, a in zip(layer.scale, layer.reach, layer.slopes, strict=True):
        if not scale * reach * (1 + 1e-15) <= len(a) / 2.0:
            raise NotProved("its cells do not cover the box.")
    # Constants hold on the box alone, so the way from x to a site must not leave it.
    for i, a in enumerate(layer.slopes):
        ends = Interval.point(np.array([a[0], a[-1]])) / Interval.point(layer.scale[i]) + Interval.point(layer.centre[i])
        if not (ends.lo[0] >= layer.low[i] and ends.hi[1] <= layer.high[i]):
            raise NotProved("a site of its grid lies outside the box.")


def _sides(layer: Lookup, reach: float) -> list[Interval | None]:
    """centre + (site +- reach)/scale along every axis, rounded outward; None where an axis is too long to be kept."""
    return [_side(layer, i, a, reach) if len(a) <= KEPT else None for i, a in enumerate(layer.slopes)]


def _side(layer: Lookup, i: int, a: Array, reach: float) -> Interval:
    return Interval.of(a - reach, a + reach) / Interval.point(layer.scale[i]) + Interval.point(layer.centre[i])


def _cells(layer: Lookup, start: int, stop: int, reach: float, sides: list[Interval | None]) -> tuple[Array, Array]:
    """Outer bounds (n, D) in x of centre + (site +- reach)/scale for the cells start..stop, row-major."""
    index = np.unravel_index(np.arange(start, stop), [len(a) for a in layer.slopes])
    lows, highs = [], []
    for i, (k, side) in enumerate(zip(index, sides, strict=True)):
        cell = _side(layer, i, layer.slopes[i][k], reach) if side is None else side[k]
        lows.append(cell.lo)
        highs.append(cell.hi)
    return np.stack(lows, axis=1), np.stack(highs, axis=1)


def _enclose(target: Target, low: Array, high: Array) -> tuple[Array, Array]:
    found = target.enclose(low, high)
    return found.lo.reshape(len(low), -1), found.hi.reshape(len(low), -1)


def _equal_parts(low: Array, high: Array, pieces: int) -> list[tuple[Array, Array]]:
    """Boxes cut into pieces^D equal ones."""
    D = low.shape[1]
    cuts = [low + (high - low) * (k / pieces) for k in range(pieces)] + [high]
    boxes = []
    for piece in np.ndindex(*(pieces,) * D):
        left = np.stack([cuts[k][:, i] for i, k in enumerate(piece)], axis=1)
        right = np.stack([cuts[k + 1][:, i] for i, k in enumerate(piece)], axis=1)
        boxes.append((left, np.maximum(left, right)))
    return boxes


def _apart(layer: Lookup, target: Target, reach: float, progress: Progress = silent) -> tuple[float, float]:
    """max_j sup |f - y_j| on the cells of that reach about the sites, and the largest distance between a value and any of f.

    With reach 0 that is what the stored values are off by, f enclosed at the true sites.
    """
    D = len(layer.scale)
    cuts = {1: 27, 2: 6}.get(D, 2 if D <= 6 else 1) if reach else 1
    worst, bottom, top, sides = 0.0, math.inf, -math.inf, _sides(layer, reach)
    for start, y in pieces(layer.values, CHUNK):
        low, high = _cells(layer, start, start + len(y), reach, sides)
        low, high = np.maximum(low, layer.low), np.minimum(high, layer.high)
        bottom, top = min(bottom, float(y.min())), max(top, float(y.max()))
        progress(f"proved again, every {'cell' if reach else 'value'}", start + len(y), len(layer.values))
        for left, right in _equal_parts(low, high, cuts):
            f_low, f_high = _enclose(target, left, right)
            away = np.maximum(f_high - y, y - f_low)
            worst = max(worst, float(np.where(np.isnan(away), np.inf, away).max()))
            bottom, top = min(bottom, float(f_low.min())), max(top, float(f_high.max()))
            if not math.isfinite(worst):
                return math.inf, math.inf
    return worst * (1 + 1e-15), (top - bottom) * (1 + 1e-15)


# -- L_p


def check_integral(layer: Lookup, target: Target, p: float, error: float) -> Proved:
    """||f - g||_p by upper sums over pieces of the cells, plus ||F - g||_p from the stored values."""
    _covers(layer)
    eta, tail = logit_error(layer), summation_error(layer)
    D = len(layer.scale)
    rho = layer.sharpness
    q = math.exp(-rho / 2.0)
    half = 2.0 / rho * math.log(2.0 / (1.0 + q))
    crossing = half + q + sum(m**p * (q ** (m * (m - 1)) + q ** (m * m)) for m in range(2, 2000))
    around = 1.0 + half + q / (1.0 - q)
    volume = float(np.prod(layer.high - layer.low))
    cell = float(np.prod(1.0 / layer.scale)) * (1 + 1e-14)
    grid = layer.values.reshape(*(len(a) for a in layer.slopes), -1)
    steps = np.zeros(grid.shape[-1])
    for axis in range(D):
        jumps = np.abs(np.diff(grid, axis=axis)).reshape(-1, grid.shape[-1])
        steps += (np.sum(jumps**p, axis=0) * cell) ** (1 / p)
    sharp = around ** ((D - 1) / p) * crossing ** (1 / p) * float(steps.max())
    spread = float((layer.values.max(axis=0) - layer.values.min(axis=0)).max())
    crude = spread * (volume * D * (half + q / (1.0 - q))) ** (1 / p)
    if eta > 100.0:
        raise NotProved(f"logits are not under control in {layer.dtype}.")
    soft = min(sharp, crude) * math.exp(2.0 * eta / p) * (1 + 1e-9) + tail * volume ** (1 / p)
    if soft >= error:
        return Proved(soft, "the soft part alone")
    hard = _upper_sum(layer, target, p, (error - soft) * (1 - 1e-9))
    return Proved(hard + soft, "upper sums of |f - y|^p and the stored steps")


PIECES = 6_000_000


def _upper_sum(layer: Lookup, target: Target, p: float, goal: float) -> float:
    """Upper sums of |f - y|^p, refined where they are loose until the norm is below `goal` or the budget is spent."""
    low_parts, high_parts, sides = [], [], _sides(layer, 0.5)
    for start in range(0, len(layer.values), CHUNK):
        low, high = _cells(layer, start, min(start + CHUNK, len(layer.values)), 0.5, sides)
        low_parts.append(np.maximum(low, layer.low))
        high_parts.append(np.minimum(high, layer.high))
    y = np.asarray(layer.values, dtype=np.float64)

    def measure(low: Array, high: Array, cell: NDArray[np.intp]) -> Bounds:
        return Bounds(*_sums(target, low, high, y[cell], p))

    total, _ = integral(
        measure, np.concatenate(low_parts), np.concatenate(high_parts), goal=(goal * (1 - 1e-9)) ** p, budget=PIECES,
        inherited=np.arange(len(y)),
    )  # fmt: skip
    return math.pow(float(total.max()), 1 / p) * (1 + 1e-9)


def _sums(target: Target, low: Array, high: Array, y: Array, p: float) -> tuple[Array, Array]:
    upper, lower = np.empty_like(y), np.empty_like(y)
    for start in range(0, len(low), CHUNK):
        part = slice(start, start + CHUNK)
        f_low, f_high = _enclose(target, low[part], high[part])
        volume = np.prod(high[part] - low[part], axis=1)[:, None]
        far = np.maximum(f_high - y[part], y[part] - f_low)
        near = np.fmax(0.0, np.maximum(f_low - y[part], y[part] - f_high))
        far = np.where(np.isnan(far), np.inf, far)
        upper[part] = np.where(volume > 0, volume * far**p * (1 + 1e-12), 0.0)
        lower[part] = volume * near**p * (1 - 1e-12)
    return upper, lower
