"""How large the weights of a head become on a complex strip around its real interval.

For z = x + iy the weights w_j(z) of keys a_j, b_j satisfy sum_j |w_j(z)| <= S with

    Bernstein keys of step delta, up to tau = max_j (|da_j||z| + |db_j|):   S = e^tau S0 / (1 - (e^tau - 1) S0),
                                                                            S0 = cos(delta y/2)^-n
any keys, |x - c| <= r':   S = 1/(1 - y^2 V/2),   V = sum_j w_j(c) (a_j - abar)^2 e^{|a_j - abar| r'},   abar = sum_j w_j(c) a_j

The second is taken on short pieces that cover the strip.
"""

import math

import numpy as np

from maxaffine.core.rounding import FLOAT64
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.spectral_keys import log_binomials

MOST_PIECES = 4000


def strip_sum(keys: AxisKeys, reach: float, height: float) -> float:
    """S for |Re z| <= reach, |Im z| <= height; infinite where nothing is known."""
    return min(_bernstein(keys, reach, height), _pieces(keys, reach, height))


def _bernstein(keys: AxisKeys, reach: float, height: float) -> float:
    a, b = keys.slopes.astype(np.float64), keys.offsets.astype(np.float64)
    n = len(a) - 1
    delta = float(a[-1] - a[0]) / n if n else 0.0
    if n == 0:
        return 1.0
    if delta <= 0 or delta * height >= 3.14:
        return math.inf
    ideal, logs = a[0] + delta * np.arange(n + 1), log_binomials(n)
    shift = float(np.median(b - logs))
    moved = (np.abs(a - ideal) + 8 * FLOAT64.unit * np.abs(ideal)) * math.hypot(reach, height) + np.abs(b - logs - shift)
    tau = float(moved.max()) + 64 * FLOAT64.unit * (1.0 + n + float(np.abs(b).max()))
    exact = math.cos(delta * height / 2.0) ** -n * (1 + 1e-12 * (n + 1))
    rest = 1.0 - math.expm1(tau) * exact if tau < 1.0 else -1.0
    return math.exp(tau) * exact / rest if rest > 0 else math.inf


def _pieces(keys: AxisKeys, reach: float, height: float) -> float:
    a, b = keys.slopes.astype(np.float64), keys.offsets.astype(np.float64)
    spread = float(np.ptp(a))
    count = int(np.clip(4.0 * spread * reach, 4, MOST_PIECES))
    half = reach / count * (1 + 1e-12)
    centres = reach * (-1.0 + (2.0 * np.arange(count) + 1.0) / count)
    logs = np.multiply.outer(centres, a) + b
    logs -= logs.max(axis=1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    away = np.abs(a - (np.exp(logs) @ a)[:, None])
    size = float(np.abs(a).max()) * (1.0 + 2.0 * reach) + float(np.abs(b).max())
    with np.errstate(over="ignore"):
        # In logarithms: a key whose weight at the centre underflows may rule at the end of a piece.
        variance = (away**2 * np.exp(logs + away * half)).sum(axis=1) * (1 + 1e-9)
        variance *= np.exp(8.0 * FLOAT64.unit * (len(a) + 2) * size)  # rounding of the weights and of the mean
    rest = 1.0 - height * height * float(variance.max()) / 2.0
    return 1.0 / rest if rest > 0 else math.inf
