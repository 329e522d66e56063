"""How far a ramp head is from its ramp, in units of its grid step: kappa(rho), proved, with the profile behind it.

Sites k = 0..p, weights w_k(t) ~ q^{(t-k)^2}, q = e^{-rho/2}, values k: M(t) = sum k w_k, to be min(max(t, 0), p).

M is increasing (M' = rho Var) and M(p - t) = p - M(t).  Leaving out the sites above p lowers the mean, so with M_oo the head of
all sites k >= 0,

    0 <= M(-t) <= min(corner, q^{2t} sum m q^{m^2}),     -profile(p - t) <= M(t) - t <= profile(t) = M_oo(t) - t,    0 <= t <= p

    corner = profile(0) = sum_{m>=1} m q^{m^2} / sum_{m>=0} q^{m^2},        kappa = sup_{t>=0} |profile(t)|

The supremum is taken on a fine grid and enlarged by profile'' = rho^2 mu_3: |k - M_oo| is at most d + 1/2 + the mean distance,
d = |k - n| from the nearest site n, whose weight falls at least like q^{d^2 - d}.  It is smallest at rho* = 5.44: kappa = .0619,
an eighth of the 1/2 of a hard head.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput

BEST = 5.44  # the sharpness of the smallest kappa
HARD = 0.5  # kappa as rho grows without end
SOFTEST, SHARPEST = 0.5, 400.0
STEP, COARSE = 1.0 / 4096, 1.0 / 512  # of the grids; powers of two, so that their points are exact
NEAR = 3.0  # steps from a knot within which the meeting of two heads is followed
ROUNDED = 1.0 + 1e-9  # sums of a few dozen positive terms in float64


def checked(rho: float) -> float:
    """A sharpness for which everything here is proved."""
    if not SOFTEST <= rho <= SHARPEST:
        raise BadInput(f"`rho` (={rho:g}) must lie between {SOFTEST:g} and {SHARPEST:g}; {BEST:g} errs least.")
    return float(rho)


def _sites(rho: float) -> int:
    """Sites to either side beyond which weights are below e^-60 of the nearest one's, moments included."""
    return 4 + math.ceil(math.sqrt(130.0 / rho))


def profile(t: Array, rho: float) -> Array:
    """M_oo(t) - t for t >= 0, sites k >= 0 alone; float64, off by about 1e-15."""
    reach = _sites(rho)
    nearest = np.maximum(np.rint(t), 0.0)
    away = np.arange(-reach, reach + 1) + (nearest - t)[:, None]  # k - t
    logs = np.where(nearest[:, None] + np.arange(-reach, reach + 1) < 0, -np.inf, -0.5 * rho * away**2)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray((weights * away).sum(axis=1) / weights.sum(axis=1))


def far_sum(rho: float) -> float:
    """sum m q^{m^2}, m >= 1, rounded up."""
    m = np.arange(1, _sites(rho) + 8)
    return float((m * np.exp(-0.5 * rho * m**2)).sum()) * ROUNDED + 1e-30


def corner(rho: float) -> float:
    """The error at an end of the ramp, rounded up."""
    return float(profile(np.zeros(1), rho)[0]) * ROUNDED + 1e-15


def spread(rho: float) -> float:
    """A bound of sum_k w_k |k - M(t)|, anywhere, however many sites there are: twice the mean distance from the nearest one."""
    d = np.arange(1, _sites(rho) + 8)
    return float(4.0 * (d * np.exp(-0.5 * rho * (d**2 - d))).sum()) * ROUNDED


def _bend(rho: float) -> float:
    """A bound of |profile''| = rho^2 |mu_3|, at any t."""
    d = np.arange(1, _sites(rho) + 8)
    weight = np.exp(-0.5 * rho * (d**2 - d))
    distance = 2.0 * float((d * weight).sum())
    return rho**2 * (2.0 * float(((d + distance) ** 3 * weight).sum()) + distance**3) * ROUNDED


def _largest(values: Callable[[Array], Array], first: float, end: float, bend: float) -> float:
    """sup |values| on [first, end], whose second derivative is at most `bend`: on a grid, and what happens between its points."""
    t: Array = first + STEP * np.arange(round((end - first) / STEP) + 2, dtype=np.float64)
    worst = max(float(np.abs(values(t[i : i + 8192])).max()) for i in range(0, len(t), 8192))
    return worst * ROUNDED + bend * STEP**2 / 8.0 + 1e-14


@lru_cache(maxsize=64)
def beyond(rho: float, start: float) -> float:
    """sup |profile(t)| over t >= start, proved; it falls from kappa to the ripple between two inner sites."""
    first = math.floor(max(start, 0.0) / STEP) * STEP
    # from `end` on one period tells all: the sites below 0 that profile lacks weigh less than e^-60 there
    end = max(first, float(_sites(checked(rho)))) + 1.0
    return _largest(lambda t: profile(t, rho), first, end, _bend(rho))


def tail(t: Array, rho: float) -> Array:
    """M_oo(-t), t >= 0: what a head says at t steps before its first site, or lacks behind its last one."""
    k = np.arange(2 + math.ceil(math.sqrt(100.0 / rho)))  # the others weigh less than e^-50
    weights = np.exp(-0.5 * rho * (k**2 + 2.0 * k * t[..., None]))
    return np.asarray((weights * k).sum(axis=-1) / weights.sum(axis=-1))


def met(rho: float, other: Array, ratio: Array, step: float = 1.0 / 64) -> Array:
    """max |profile(t) - other tail(ratio t)| on a grid, two heads beside the knot where their ramps meet: an estimate.

    Heights are those of the own step: `other` (n,) is the height of the other head's step, `ratio` how many of its steps one is.
    """
    t: Array = np.arange(round(NEAR / step) + 1, dtype=np.float64) * step
    own, worst = profile(t, checked(rho)), np.empty(len(other))
    for i in range(0, len(other), 64):
        part = slice(i, i + 64)
        worst[part] = np.abs(own - other[part, None] * tail(ratio[part, None] * t, rho)).max(axis=1)
    return np.maximum(worst, beyond(rho, NEAR) + np.abs(other) * tail(ratio * NEAR, rho))


def meeting(rho: float, other: Array, ratio: Array) -> Array:
    """The supremum over t >= 0, proved: what happens between the points of the grid is added."""
    between = _bend(rho) * (1.0 + np.abs(other) * ratio**2) * COARSE**2 / 8.0
    return np.asarray((met(rho, other, ratio, COARSE) + between) * ROUNDED + 1e-13)


@lru_cache(maxsize=64)
def joint(rho: float) -> float:
    """The same where both ramps have one step and one slope; or each on its own, where the grid is too coarse."""
    return min(float(meeting(rho, np.ones(1), np.ones(1))[0]), kappa(rho) + corner(rho))


def cut(rho: float, away: float) -> float:
    """What leaving out the sites farther than `away` > 0 to one side moves the mean by; it falls with `away`."""
    m = np.arange(1, _sites(rho) + 8)
    return float(((m + away + 1.0) * np.exp(-0.5 * rho * ((m + away) ** 2 - 0.25))).sum()) * ROUNDED


def kappa(rho: float = BEST) -> float:
    """sup |head - ramp| / step over every argument and every number of sites, proved."""
    return max(min(beyond(checked(rho), 0.0), looser(rho) * ROUNDED), corner(rho))


def looser(rho: float) -> float:
    """The closed form 1/2 + 2q/(1-q): the two sites next to t err by 1/2 at most together, the others by less than 2q/(1-q)."""
    q = math.exp(-checked(rho) / 2.0)
    return 0.5 + 2.0 * q / (1.0 - q)
