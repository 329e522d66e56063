"""What finite precision does to a layer, as a bound per runtime.

Everything that perturbs a weight is expressed as an error of its logit, |delta_j| <= eta:

    query      real x -> float64, x - centre, M (x - centre) in float64, then one rounding to the dtype:  sharpness |a_j| |dz|
    logit      (sharpness z) . a_j + sharpness b_j in any order of summation:  gamma(E+3) sharpness (|a_j||z| + |b_j|)
    softmax    l_j - max l (u times the gap, at most |log of the smallest number|), exp, one division
    blocked    one more exponential per block for the running maximum
    windowed   in float64, relative to the query's cell: logits of sites at most k + 1 cells away, p^{2h} from one exponential

Weights that underflow to zero only lower weights far from the nearest key, which every theorem here allows; weights
that are subnormal may be too large by the smallest subnormal number each (`stray`).  Sums round relative to
max |value|: gamma of twice the number of keys whose weight does not underflow, since adding zero is exact.
"""

import math
from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.rounding import FLOAT64, Dtype, dtype_of, gamma
from maxaffine.layer.layer import Layer
from maxaffine.runtime import softmax, windowed
from maxaffine.runtime.chooser import available


@dataclass(frozen=True)
class Rounding:
    """eta: error of a logit; summation: error of the output relative to max |value|; stray: weight out of nothing.

    `eta` is what moves the weights along one coordinate; `joint` moves the weight of a whole key, a product of as many
    softmaxes as coordinates where the runtime is factorised.
    """

    eta: float
    summation: float
    stray: float
    joint: float

    def worst(self, other: "Rounding") -> "Rounding":
        """The larger of both in every entry."""
        return Rounding(
            max(self.eta, other.eta), max(self.summation, other.summation), max(self.stray, other.stray),
            max(self.joint, other.joint),
        )  # fmt: skip


def rounding_of(layer: Layer, runtime: str = "arrays") -> Rounding:
    """The bound for one runtime, or for every runtime that can run the layer."""
    names = tuple(name for name in available(layer) if name != "hard") if runtime == "arrays" else (runtime,)
    bound = _one(layer, names[0])
    for name in names[1:]:
        bound = bound.worst(_one(layer, name))
    return bound


def window_leak(layer: Layer, runtime: str = "arrays") -> float:
    """What the sites beyond a window may contribute: per coordinate their weight times the range of the values."""
    if runtime not in ("arrays", "windowed") or windowed.window_of(layer) is None:
        return 0.0
    return len(layer.keys.shape) * windowed.TAIL * 2.0 * layer.largest * (1 + 1e-9)


def coordinate_error(layer: Layer, narrow: bool = True) -> tuple[Array, Array]:
    """Z_i = max |z_i| over the box and a bound on the error of the computed z_i, both (E,); `narrow`: rounded to the dtype."""
    u, matrix = FLOAT64.unit, np.abs(layer.coordinates.matrix)
    largest = np.maximum(np.abs(layer.low), np.abs(layer.high))
    reach = np.maximum(layer.high - layer.coordinates.centre, layer.coordinates.centre - layer.low) * (1 + 4 * u)
    size = matrix @ reach
    error = matrix @ (u * largest + gamma(layer.dimension + 3, u) * reach)
    if layer.dtype != "float64" and narrow:
        error = error + dtype_of(layer.dtype).unit * (size + error)
    return size * (1 + 1e-12), error * (1 + 1e-12)


def _one(layer: Layer, runtime: str) -> Rounding:
    dtype = dtype_of(layer.dtype)
    size, error = coordinate_error(layer)
    exponential = dtype.unit * (-dtype.exp_floor + dtype.exp_ulps + 4.0)
    if runtime == "windowed":
        return _windowed(layer)
    if runtime == "factorised":
        assert layer.is_product
        eta, joint, terms = 0.0, 0.0, 0.0
        for i, axis in enumerate(layer.keys.axes):
            slope, offset = float(np.abs(axis.slopes).max()), float(np.abs(axis.offsets).max())
            reached = slope * float(size[i] + error[i]) + offset
            one = layer.sharpness * (slope * float(error[i]) + gamma(4, dtype.unit) * reached) + exponential
            eta, joint = max(eta, one), joint + one
            terms += 2 * _alive(layer, i, one, dtype) + 3
        return Rounding(eta, gamma(terms, dtype.unit), _stray(layer, dtype), joint)
    a, b = _extent(layer)
    logit = layer.sharpness * float(a @ error + gamma(len(size) + 3, dtype.unit) * (a @ (size + error) + b))
    alive = 1.0
    for i in range(len(layer.keys.shape)):
        alive *= _alive(layer, i, logit + exponential, dtype)
    rounds = 0
    if runtime == "blocked":
        rounds = -(-layer.keys.count // softmax.BLOCK)
        exponential += dtype.unit * (-dtype.exp_floor + (dtype.exp_ulps + 2.0) * rounds)
    eta = logit + exponential
    return Rounding(eta, gamma(2 * (alive + 2 * rounds) + 4, dtype.unit), _stray(layer, dtype), eta)


def _windowed(layer: Layer) -> Rounding:
    """t = z - c - 1/2 is off by dz + 3u(k + 1), y = rho t/2 by that times rho/2, p = e^y by 8u more, p^{2h} by 2k times that.

    The offsets are the ideal -c^2/2 instead of the stored ones; the result is rounded to the dtype once.
    """
    made, u = windowed.window_of(layer), FLOAT64.unit
    assert made is not None
    k, rho, error = made.reach, layer.sharpness, coordinate_error(layer, narrow=False)[1]
    eta = joint = 0.0
    for i, axis in enumerate(layer.keys.axes):
        slopes = axis.slopes.astype(np.float64)
        stored = float(np.abs(axis.offsets.astype(np.float64) + slopes * slopes / 2.0).max())
        one = rho * (k * (float(error[i]) + 5.0 * u * (k + 1)) + stored) + u * (24.0 * k + 12.0)
        eta, joint = max(eta, one), joint + one
    widths = [float(width) for width in made.widths]
    summation = gamma(math.prod(widths[:-1]) + 2 * sum(widths) + 4 * len(widths) + 8, u)
    if layer.dtype != "float64":
        summation += dtype_of(layer.dtype).unit * (1 + summation)
    return Rounding(eta, summation, 4.0 * math.prod(widths) * dtype_of(layer.dtype).tiny, joint)


def _extent(layer: Layer) -> tuple[Array, float]:
    """max_j |a_j| per coordinate and max_j |b_j|."""
    if layer.keys.is_product:
        a = np.array([np.abs(axis.slopes).max() for axis in layer.keys.axes], dtype=np.float64)
        return a, float(sum(np.abs(axis.offsets).max() for axis in layer.keys.axes))
    a = np.abs(layer.keys.slopes).max(axis=0).astype(np.float64)
    return a, float(np.abs(layer.keys.offsets).max())


def _alive(layer: Layer, axis: int, eta: float, dtype: Dtype) -> float:
    """How many keys of that coordinate can have a weight that does not underflow to zero.

    On the unit grid the m-th neighbour is behind the nearest by at least sharpness m(m-1)/2.
    """
    count = layer.keys.shape[axis]
    if not is_unit_grid(layer):
        return float(count)
    steps = 0.5 + math.sqrt(0.25 + 2.0 * (-dtype.exp_floor + 2.0 * eta) / layer.sharpness)
    return min(float(count), 2.0 * math.floor(steps) + 1.0)


def _stray(layer: Layer, dtype: Dtype) -> float:
    return 2.0 * layer.keys.count * dtype.tiny * (1.0 + len(layer.keys.shape))


def is_unit_grid(layer: Layer) -> bool:
    """Whether the keys are half-integer sites at distance one that cover the box, b = -a^2/2 up to rounding, M diagonal."""
    if not (layer.is_grid and offset_error(layer) < math.inf):
        return False
    reach = np.maximum(layer.high - layer.coordinates.centre, layer.coordinates.centre - layer.low) * (1 + 2.0**-51)
    return bool(np.all(np.diag(layer.coordinates.matrix) * reach * (1 + 2.0**-51) <= np.asarray(layer.keys.shape) / 2.0))


def offset_error(layer: Layer) -> float:
    """sum_i max_k |b_k + a_k^2/2| over the coordinates; infinite where slopes are not the unit grid's."""
    assert layer.is_product
    total = sum(axis.off_parabola for axis in layer.keys.axes)
    u = dtype_of(layer.dtype).unit
    biggest = max(axis.largest_offset for axis in layer.keys.axes)
    return total if total <= 4 * len(layer.keys.axes) * u * biggest else math.inf
