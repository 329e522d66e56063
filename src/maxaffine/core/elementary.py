"""Images of intervals under elementary functions: of monotone ones by the ends, of waves by their turning points.

An image maps two arrays lo <= hi to the ends of an enclosure.  Functions are taken to be within `outward.ULPS` of their computed
values; where one is not defined on the whole interval its image is [-inf, inf].
"""

import math
from collections.abc import Callable

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.outward import Mask, down, lower, quiet, short, sigmoid_of, up, upper

Ends = tuple[Array, Array]
Image = Callable[[Array, Array], Ends]

HUGE_ANGLE = 2.0**20
"""Beyond this, sin and cos are enclosed by [-1, 1] and tan is undefined: no trust in the reduction of the argument."""

_TRIGONOMETRIC = 2.0**-51  # absolute accuracy asked of sin and cos: near a zero, a relative one would be too much to ask
_TURN = 1e-10  # |x| <= 2^20: x/(2 pi) in float64 is within 1.7e5 * 3u = 6e-11 of its true value

PI_LOW, PI_HIGH = math.pi, math.nextafter(math.pi, 4.0)  # float64 pi lies below pi


def undefined(lo: Array, hi: Array, bad: Mask) -> Ends:
    """[-inf, inf] where `bad`."""
    return (np.where(bad, -np.inf, lo), np.where(bad, np.inf, hi)) if bad.any() else (lo, hi)


def magnitude(lo: Array, hi: Array) -> Array:
    """max |x|."""
    return np.maximum(np.abs(lo), np.abs(hi))


def mignitude(lo: Array, hi: Array) -> Array:
    """min |x|."""
    return np.where((lo <= 0) & (hi >= 0), 0.0, np.minimum(np.abs(lo), np.abs(hi)))


def keep_sign(x: Ends, y: Ends) -> Ends:
    """For an increasing function with f(0) = 0, the sign of x is the sign of y = f(x)."""
    return np.where(x[0] >= 0, np.maximum(y[0], 0.0), y[0]), np.where(x[1] <= 0, np.minimum(y[1], 0.0), y[1])


def increasing(
    f: Callable[[Array], Array],
    *,
    within: tuple[float, float] = (-math.inf, math.inf),
    domain: tuple[float, float] = (-math.inf, math.inf),
    odd: bool = False,
) -> Image:
    """The image under an increasing function with values `within` bounds, undefined outside of its `domain`; `odd`: f(0) = 0."""

    def image(lo: Array, hi: Array) -> Ends:
        with quiet():
            ends = lower(f(lo)), upper(f(hi))
            if within != (-math.inf, math.inf):
                ends = np.clip(ends[0], *within), np.clip(ends[1], *within)
            ends = np.where(np.isnan(ends[0]), -np.inf, ends[0]), np.where(np.isnan(ends[1]), np.inf, ends[1])
        if odd:
            ends = keep_sign((lo, hi), ends)
        return undefined(*ends, (lo < domain[0]) | (hi > domain[1]))

    return image


def _erf(x: Array) -> Array:
    from scipy.special import erf as compute

    return np.asarray(compute(x))


cbrt = increasing(np.cbrt, odd=True)
exp = increasing(np.exp, within=(0.0, math.inf))
expm1 = increasing(np.expm1, within=(-1.0, math.inf), odd=True)
log = increasing(np.log, domain=(0.0, math.inf))
log1p = increasing(np.log1p, domain=(-1.0, math.inf), odd=True)
asin = increasing(np.arcsin, domain=(-1.0, 1.0), odd=True)
atan = increasing(np.arctan, odd=True)
sinh = increasing(np.sinh, odd=True)
tanh = increasing(np.tanh, within=(-1.0, 1.0), odd=True)
asinh = increasing(np.arcsinh, odd=True)
acosh = increasing(np.arccosh, within=(0.0, math.inf), domain=(1.0, math.inf))
atanh = increasing(np.arctanh, domain=(-1.0, 1.0), odd=True)
erf = increasing(_erf, within=(-1.0, 1.0), odd=True)


def sqrt(lo: Array, hi: Array) -> Ends:
    """The square root; undefined where x reaches below 0."""
    with quiet():
        low, high = np.sqrt(lo), np.sqrt(hi)
        least = np.where(short(low) & (low * low == lo), low, np.maximum(down(low), 0.0))
        most = np.where(short(high) & (high * high == hi), high, up(high))
    return undefined(least, most, lo < 0)


def acos(lo: Array, hi: Array) -> Ends:
    """The inverse cosine; undefined where x leaves [-1, 1]."""
    with quiet():
        least = np.maximum(lower(np.arccos(hi)), 0.0)
        most = np.where(lo == 1, 0.0, upper(np.arccos(lo)))
    return undefined(least, most, (lo < -1) | (hi > 1))


def cosh(lo: Array, hi: Array) -> Ends:
    """The hyperbolic cosine, never below 1."""
    near, far = mignitude(lo, hi), magnitude(lo, hi)
    with quiet():
        return np.maximum(lower(np.cosh(near)), 1.0), np.where(far == 0, 1.0, upper(np.cosh(far)))


def sigmoid(lo: Array, hi: Array) -> Ends:
    """1/(1 + e^-x), inside [0, 1]."""
    with quiet():
        # Twice the widening: the exponential's own ulps, then the two roundings of the formula.
        return np.maximum(lower(lower(sigmoid_of(lo))), 0.0), np.minimum(upper(upper(sigmoid_of(hi))), 1.0)


def _turning(first: Array, last: Array, offset: float, margin: float) -> Mask:
    """Whether an integer may lie between first - offset and last - offset."""
    return np.asarray(np.floor(last - offset + margin) >= np.ceil(first - offset - margin))


def _wave(f: Callable[[Array], Array], top: float, bottom: float, through_zero: bool) -> Image:
    """The image under sin or cos: maxima where x/(2 pi) - top is an integer, minima where x/(2 pi) - bottom is."""

    def image(lo: Array, hi: Array) -> Ends:
        with quiet():
            low, high = f(lo), f(hi)
            errors: list[Array | float] = [_TRIGONOMETRIC, _TRIGONOMETRIC]
            if through_zero:
                errors = [_TRIGONOMETRIC * np.minimum(np.abs(end), 1.0) for end in (lo, hi)]
            least = np.minimum(lower(low) - errors[0], lower(high) - errors[1])
            most = np.maximum(upper(low) + errors[0], upper(high) + errors[1])
            first, last = lo / (2 * np.pi), hi / (2 * np.pi)
            huge = ~(magnitude(lo, hi) <= HUGE_ANGLE)
            least = np.where(huge | _turning(first, last, bottom, _TURN), -1.0, np.maximum(least, -1.0))
            most = np.where(huge | _turning(first, last, top, _TURN), 1.0, np.minimum(most, 1.0))
        if through_zero:  # |x| <= pi: the sine keeps the sign of its argument
            least = np.where((lo >= 0) & (hi <= PI_LOW), np.maximum(least, 0.0), least)
            most = np.where((hi <= 0) & (lo >= -PI_LOW), np.minimum(most, 0.0), most)
        return least, most

    return image


sin = _wave(np.sin, top=0.25, bottom=-0.25, through_zero=True)
cos = _wave(np.cos, top=0.0, bottom=0.5, through_zero=False)


def tan(lo: Array, hi: Array) -> Ends:
    """The tangent; undefined where x reaches pi/2 + k pi."""
    with quiet():
        low, high = np.tan(lo), np.tan(hi)
        least = lower(low) - (1 + low * low) * (_TRIGONOMETRIC * np.minimum(np.abs(lo), 1.0))
        most = upper(high) + (1 + high * high) * (_TRIGONOMETRIC * np.minimum(np.abs(hi), 1.0))
        pole = _turning(lo / np.pi, hi / np.pi, 0.5, 2 * _TURN)
        size = magnitude(lo, hi)
        bad = ~(size <= HUGE_ANGLE) | pole | np.isnan(least) | np.isnan(most)
        near_zero = size < 1.5
    signed = keep_sign((lo, hi), (least, most))
    return undefined(np.where(near_zero, signed[0], least), np.where(near_zero, signed[1], most), bad)


def atan2(y: Ends, x: Ends) -> Ends:
    """The angle of the point (x, y), in (-pi, pi]; [-pi, pi] where the cut or the origin is inside."""
    with quiet():
        corners = [np.arctan2(v + 0.0, h + 0.0) for v in y for h in x]
        least = lower(np.minimum(np.minimum(corners[0], corners[1]), np.minimum(corners[2], corners[3])))
        most = upper(np.maximum(np.maximum(corners[0], corners[1]), np.maximum(corners[2], corners[3])))
        # Away from the cut and the origin the angle has no extremum inside a rectangle or inside an edge.
        cut = (y[0] < 0) & (y[1] >= 0) & (x[0] <= 0)
        origin = (y[0] <= 0) & (y[1] >= 0) & (x[0] <= 0) & (x[1] >= 0)
        # Corners at infinity have no direction of their own.
        everything = cut | origin | np.isinf(y[0]) | np.isinf(y[1]) | np.isinf(x[0]) | np.isinf(x[1])
    least = np.where(y[0] >= 0, np.maximum(least, 0.0), least)
    least, most = np.where(everything, -PI_HIGH, least), np.where(everything, PI_HIGH, most)
    return np.maximum(least, -PI_HIGH), np.minimum(most, PI_HIGH)
