"""The soft gap: what a softmax over clusters mixes in from clusters that trail, by one lemma.

Let Omega be the softmax of scores S_1, .., S_C.  If some cluster a has u_a = 0, and 0 <= u_k <= kappa (S_a - S_k + U)_+ for all
others (a need not lead), then

    sum_k Omega_k u_k  <=  kappa W0((C - 1) e^{U - 1}),        W0(y) e^{W0(y)} = y.

Proof.  Clusters with S_a - S_k + U <= 0 add nothing to the sum, and without them the normaliser is smaller.  With
x_k = S_a - S_k + U > 0 for the m <= C - 1 others, and w = W0(m e^{U - 1}),

    sum_k e^{U - x_k} x_k - w (1 + sum_k e^{U - x_k})  =  sum_k e^{U - x_k} (x_k - w) - w  <=  m e^{U - w - 1} - w  =  0,

since e^{-x} (x - w) is largest at x = w + 1.  Divided by 1 + sum_k e^{U - x_k} that is the statement for kappa = 1.

Scores that are computed are off by eta: S_a - S_k grows by 2 eta at most, so the same holds of computed masses with U + 2 eta.
(With the largest score in place of S_a that would be false: a is the cluster that is right, not the one that leads.)
"""

import numpy as np
from numpy.typing import ArrayLike

from maxaffine.core.arrays import Array


def soft_gap(others: ArrayLike, kappa: ArrayLike, shift: ArrayLike = 0.0) -> Array:
    """kappa W0(others e^{shift - 1}) from above, others = C - 1 >= 0 clusters besides a and shift = U, all broadcast."""
    kappa, others = np.asarray(kappa, dtype=np.float64), np.asarray(others, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(kappa * lambert(np.log(others) + np.asarray(shift) - 1.0))


def lambert(x: ArrayLike) -> Array:
    """W0(e^x) from above: the root of w + log w = x, which grows with x, by bisection; of x below -700 that of -700."""
    x = np.maximum(np.asarray(x, dtype=np.float64), -700.0)
    high = np.where(x < 1.0, np.exp(np.minimum(x, 1.0)), x)  # w < e^x, and w <= x from x = 1 on
    low = high / 4.0  # w > e^x/(1 + e^x), and w >= x - log x from x = 1 on
    for _ in range(60):
        middle = (low + high) / 2.0
        below = middle + np.log(middle) < x
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(high * (1 + 1e-12))
