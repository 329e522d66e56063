"""Grids: sup-norm and L_p bounds re-proved from the stored numbers."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker import slopes
from maxaffine.checker.proved import Proved
from maxaffine.checker.softmax import distance, largest_mean, outside, square
from maxaffine.checker.stored import NotProved, Stored
from maxaffine.core.intervals import Interval
from maxaffine.core.mapped import pieces
from maxaffine.core.progress import Progress, silent
from maxaffine.target.target import Target

Array = NDArray[np.float64]

CHUNK = 1 << 15
KEPT = 1 << 17  # sites of an axis whose sides are kept
SMALLEST = 1e-9  # boxes, relative to the whole, that a search for the largest distance from one value does not cut
MARGIN = 11 / 256  # enlargement of the cells where no constant bounds the target's growth


def check_sup(
    layer: Stored, target: Target, declared: Mapping[str, Any], error: float, progress: Progress = silent
) -> Proved:
    """|F - f| <= sum_i L_i h_i E|z_i - c_K| + |y - f(site)|, or the oscillation on enlarged cells plus what leaks past them."""
    _covers(layer)
    eta, tail = layer.logit_error(), layer.summation_error()
    assert target.expression is not None
    if len(layer.values) == 1:
        away = _from_one_value(layer, target, error - tail)
        if away + tail <= error:
            return Proved(away + tail, "boxes cut in three, the target against the one value")
    known, how = _constants(target, declared)
    widths = (1.0 / layer.scale) * (1 + 4e-16)
    best, proof = math.inf, ""
    derived = bool(np.isfinite(known).all())
    deviation = _deviation(layer, target, progress) + tail if derived or "euclidean" in declared else math.inf
    if derived:
        means = [largest_mean(len(a), layer.sharpness, eta, distance) for a in layer.slopes]
        best = float(np.max((np.atleast_2d(known) * widths) @ np.asarray(means))) * (1 + 1e-12) + deviation
        proof = f"mean distance to the drawn site, Lipschitz constants {how}"
        if best > error and target.box.dimension > 1 and "lipschitz" not in declared:
            constant = slopes.euclidean(target.expression, layer.low, layer.high)
            squares = np.asarray([largest_mean(len(a), layer.sharpness, eta, square) for a in layer.slopes])
            other = constant * math.sqrt(float(widths**2 @ squares)) * (1 + 1e-12) + deviation
            if other < best:
                best, proof = other, "mean square distance to the drawn site, derived gradient bound"
    if "euclidean" in declared:
        slopes.doubt(target.expression, layer.low, layer.high, float(declared["euclidean"]))
        squares = np.asarray([largest_mean(len(a), layer.sharpness, eta, square) for a in layer.slopes])
        other = float(declared["euclidean"]) * math.sqrt(float(widths**2 @ squares)) * (1 + 1e-12) + deviation
        best, proof = min((best, proof), (other, "mean square distance, declared Euclidean constant"))
    if best > error:
        leak = sum(largest_mean(len(a), layer.sharpness, eta, outside(MARGIN)) for a in layer.slopes)
        oscillation, spread = _oscillation(layer, target, progress)
        other = oscillation + leak * spread * (1 + 1e-12) + tail
        if other < best:
            best, proof = other, f"enclosures on cells enlarged by {MARGIN:.4g}"
    return Proved(best, proof)


def _from_one_value(layer: Stored, target: Target, error: float) -> float:
    """sup |f - y| for the only value y: the softmax over one key is 1 whatever its logit.

    First as sharp as can be; where that does not do, the work goes to the boxes above the error alone.
    """

    def away(low: Array, high: Array) -> Array:
        f_low, f_high = _enclose(target, low, high)
        return np.asarray(np.maximum(f_high - layer.values, layer.values - f_low).max(axis=1, keepdims=True) * (1 + 1e-15))

    sharp = float(slopes.supremum(away, layer.low, layer.high, smallest=SMALLEST)[0])
    return sharp if sharp <= error else float(slopes.supremum(away, layer.low, layer.high, enough=error, smallest=SMALLEST)[0])


def _constants(target: Target, declared: Mapping[str, Any]) -> tuple[Array, str]:
    assert target.expression is not None
    if "lipschitz" in declared:
        constants = np.asarray(declared["lipschitz"], dtype=np.float64)
        if constants.shape != target.box.low.shape or not np.all(constants >= 0):
            raise NotProved("the declared Lipschitz constants in the file are malformed.")
        slopes.doubt(target.expression, target.box.low, target.box.high, constants)
        return constants, "declared in the file"
    return slopes.lipschitz(target.expression, target.box.low, target.box.high), "derived"


def _covers(layer: Stored) -> None:
    """The cells must cover the box, scale * reach <= P/2, and their sites lie in it."""
    for scale, reach, a in zip(layer.scale, layer.reach, layer.slopes, strict=True):
        if not scale * reach * (1 + 1e-15) <= len(a) / 2.0:
            raise NotProved("its cells do not cover the box.")
    # Constants hold on the box alone, so the way from x to a site must not leave it.
    for i, a in enumerate(layer.slopes):
        ends = Interval.point(np.array([a[0], a[-1]])) / Interval.point(layer.scale[i]) + Interval.point(layer.centre[i])
        if not (ends.lo[0] >= layer.low[i] and ends.hi[1] <= layer.high[i]):
            raise NotProved("a site of its grid lies outside the box.")


def _sides(layer: Stored, reach: float) -> list[Interval | None]:
    """centre + (site +- reach)/scale along every axis, rounded outward; None where an axis is too long to be kept."""
    return [_side(layer, i, a, reach) if len(a) <= KEPT else None for i, a in enumerate(layer.slopes)]


def _side(layer: Stored, i: int, a: Array, reach: float) -> Interval:
    return Interval.of(a - reach, a + reach) / Interval.point(layer.scale[i]) + Interval.point(layer.centre[i])


def _cells(layer: Stored, start: int, stop: int, reach: float, sides: list[Interval | None]) -> tuple[Array, Array]:
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


def _deviation(layer: Stored, target: Target, progress: Progress = silent) -> float:
    """max |stored value - f(site)|, f enclosed at the true sites."""
    worst, sides = 0.0, _sides(layer, 0.0)
    for start, y in pieces(layer.values, CHUNK):
        low, high = _cells(layer, start, start + len(y), 0.0, sides)
        f_low, f_high = _enclose(target, low, high)
        worst = max(worst, float(np.maximum(f_high - y, y - f_low).max()))
        progress("proved again, every value", start + len(y), len(layer.values))
    return worst * (1 + 1e-15)


def _thirds(low: Array, high: Array, pieces: int) -> list[tuple[Array, Array]]:
    """Boxes cut into pieces^D equal ones."""
    D = low.shape[1]
    cuts = [low + (high - low) * (k / pieces) for k in range(pieces)] + [high]
    boxes = []
    for piece in np.ndindex(*(pieces,) * D):
        left = np.stack([cuts[k][:, i] for i, k in enumerate(piece)], axis=1)
        right = np.stack([cuts[k + 1][:, i] for i, k in enumerate(piece)], axis=1)
        boxes.append((left, np.maximum(left, right)))
    return boxes


def _oscillation(layer: Stored, target: Target, progress: Progress = silent) -> tuple[float, float]:
    """max_j sup |f - y_j| on the enlarged cells, and the largest distance between a value and any value of f."""
    D = len(layer.scale)
    cuts = {1: 27, 2: 6}.get(D, 2 if D <= 6 else 1)
    worst, bottom, top, sides = 0.0, math.inf, -math.inf, _sides(layer, 0.5 + MARGIN)
    for start, y in pieces(layer.values, CHUNK):
        low, high = _cells(layer, start, start + len(y), 0.5 + MARGIN, sides)
        low, high = np.maximum(low, layer.low), np.minimum(high, layer.high)
        bottom, top = min(bottom, float(y.min())), max(top, float(y.max()))
        progress("proved again, every cell", start + len(y), len(layer.values))
        for left, right in _thirds(low, high, cuts):
            f_low, f_high = _enclose(target, left, right)
            worst = max(worst, float(np.maximum(f_high - y, y - f_low).max()))
            bottom, top = min(bottom, float(f_low.min())), max(top, float(f_high.max()))
            if not math.isfinite(worst):
                return math.inf, math.inf
    return worst * (1 + 1e-15), (top - bottom) * (1 + 1e-15)


# -- L_p


def check_integral(layer: Stored, target: Target, p: float, error: float) -> Proved:
    """||f - g||_p by upper sums over pieces of the cells, plus ||F - g||_p from the stored values."""
    _covers(layer)
    eta, tail = layer.logit_error(), layer.summation_error()
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


def _upper_sum(layer: Stored, target: Target, p: float, goal: float) -> float:
    """Upper sums of |f - y|^p, refined where they are loose until the norm is below `goal` or the budget is spent."""
    K = layer.values.shape[1]
    low_parts, high_parts, sides = [], [], _sides(layer, 0.5)
    for start in range(0, len(layer.values), CHUNK):
        low, high = _cells(layer, start, min(start + CHUNK, len(layer.values)), 0.5, sides)
        low_parts.append(np.maximum(low, layer.low))
        high_parts.append(np.minimum(high, layer.high))
    low, high, y = np.concatenate(low_parts), np.concatenate(high_parts), layer.values
    settled, spent = np.zeros(K), 0
    upper, lower = _sums(target, low, high, y, p)
    while True:
        total = settled + upper.sum(axis=0)
        spent += len(low)
        if np.isfinite(total).all() and float(total.max()) ** (1 / p) * (1 + 1e-9) <= goal:
            break
        gap = (upper - lower).max(axis=1)
        order = np.argsort(-gap)
        keep = min(len(order), 200_000, max(1, (PIECES - spent) // 3))
        if spent >= PIECES or float(gap[order[0]]) <= 0.0:
            break
        share = np.cumsum(np.nan_to_num(gap[order], posinf=0.0))
        keep = min(keep, max(int((~np.isfinite(gap)).sum()), int(np.searchsorted(share, 0.8 * share[-1])) + 1))
        chosen, rest = order[:keep], order[keep:]
        new_low, new_high, owner = _split(low[chosen], high[chosen])
        new_upper, new_lower = _sums(target, new_low, new_high, y[chosen][owner], p)
        done = gap[rest] <= 0.0
        settled = settled + upper[rest[done]].sum(axis=0)
        rest = rest[~done]
        y = np.concatenate([y[rest], y[chosen][owner]])
        low, high = np.concatenate([low[rest], new_low]), np.concatenate([high[rest], new_high])
        upper, lower = np.concatenate([upper[rest], new_upper]), np.concatenate([lower[rest], new_lower])
    return math.pow(float((settled + upper.sum(axis=0)).max()), 1 / p) * (1 + 1e-9)


def _split(low: Array, high: Array) -> tuple[Array, Array, NDArray[np.intp]]:
    """Every box in three along its longest axis."""
    axis = np.argmax(high - low, axis=1)
    rows = np.arange(len(low))
    start, stop = low[rows, axis], high[rows, axis]
    first, second = start + (stop - start) / 3.0, stop - (stop - start) / 3.0
    lows, highs = [], []
    for a, b in ((start, first), (first, second), (second, stop)):
        part_low, part_high = low.copy(), high.copy()
        part_low[rows, axis], part_high[rows, axis] = a, np.maximum(a, b)
        lows.append(part_low)
        highs.append(part_high)
    return np.concatenate(lows), np.concatenate(highs), np.tile(rows, 3)


def _sums(target: Target, low: Array, high: Array, y: Array, p: float) -> tuple[Array, Array]:
    upper, lower = np.empty_like(y), np.empty_like(y)
    for start in range(0, len(low), CHUNK):
        part = slice(start, start + CHUNK)
        f_low, f_high = _enclose(target, low[part], high[part])
        volume = np.prod(high[part] - low[part], axis=1)[:, None]
        far = np.maximum(f_high - y[part], y[part] - f_low)
        near = np.maximum(0.0, np.maximum(f_low - y[part], y[part] - f_high))
        upper[part] = np.where(volume > 0, volume * far**p * (1 + 1e-12), 0.0)
        lower[part] = volume * near**p * (1 - 1e-12)
    return upper, lower
