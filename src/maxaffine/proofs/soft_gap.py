"""What a softmax over C clusters mixes, where a cluster may be off by no more than it trails: the Lambert lemma.

**Lemma.**  Let Omega = softmax(S) over C clusters.  If some cluster a has u_a = 0, and 0 <= u_k <= kappa (S_a - S_k + U)_+ for
all others, then

    sum_k Omega_k u_k  <=  kappa w,        w = W0((C-1) e^{U-1}), the root of w e^w = (C-1) e^{U-1}.

*Proof.*  Let g_k = S_a - S_k + U, so that Omega_k / Omega_a = e^{U-g_k}.  Only k != a with g_k > 0 count, C-1 at most; leaving
out the others makes their masses larger.  It is claimed that sum_k g_k e^{U-g_k} <= w (1 + sum_k e^{U-g_k}), or
sum_k (g_k - w) e^{U-g_k} <= w.  Every term is at most e^{U-1-w}, its value at g = w + 1, and (C-1) e^{U-1} e^{-w} = w.  Equality
where all g_k = w + 1: the constant cannot be improved.

Cluster a need not lead.  With max S in place of S_a the lemma is false: C = 2, U = 1, S_a = 0, S_k = 1 and u_k = 1 make .731, and
W0(1) = .567.  So scores that are wrong by eta each, as stored or as computed, are U = 2 eta: a is the cluster that leads in exact
arithmetic, where u_a = 0, and S_a - S_k <= S'_a - S'_k + 2 eta.

Uses: maxima of affine pieces have kappa = 1/R, U = 2 eta; regions kappa = max_i K_i/(2 lam_i); a kink along a direction C = 2,
kappa = J/lam, U = -d where the right cluster leads by d at the break; soft kinks C = 2, kappa = 1/lam and their own U.
"""

import numpy as np
from numpy.typing import ArrayLike

from maxaffine.core.arrays import Array

UP = 1.0 + 1e-14
LEAST = -700.0  # of the logarithm of w e^w: below it w is bounded by e^LEAST


def soft_gap(count: int, slack: float = 0.0) -> float:
    """W0((C-1) e^{U-1}), rounded up: the lemma for C = `count` clusters and U = `slack`."""
    return float(lambert_of_exp(np.log(count - 1.0) + slack - 1.0)) if count > 1 else 0.0


def lambert_of_exp(y: ArrayLike) -> Array:
    """At least W0(e^y), by very little: w + log w >= y is seen, and where it is not, a cruder bound is taken."""
    y = np.maximum(np.asarray(y, dtype=np.float64), LEAST)
    y = y + 4.0 * np.finfo(np.float64).eps * (np.abs(y) + 1.0)  # rounding of y itself, and of what follows
    with np.errstate(invalid="ignore", over="ignore"):
        w = np.where(y > 1.0, y - np.log(np.maximum(y, 1.0)), np.exp(np.minimum(y, 1.0)) * 0.7)
        for _ in range(8):  # Newton's method
            w = w * (1.0 + y - np.log(w)) / (1.0 + w)
        w = w * UP
        shown = w + np.log(w) >= y
    return np.asarray(np.where(shown, w, np.maximum(y, np.exp(np.minimum(y, 1.0))) * UP))  # W0(e^y) <= y for y >= 1, and <= e^y
