"""Softmax ramps: heads that say min(max(s, a), b), and nets of them, with proved errors and literal matrices.

    from maxaffine import ramp
    head = ramp.ramp_head(-1, 1, p=64)                  # 65 tokens at rho = 5.44
    head.bound()                                        # .0619 (b - a)/p, proved for every real s
    net = ramp.piecewise_linear(np.sin, (0, 3), m=32)   # one layer; layers=2 or "softmax" too
    net.as_matrices()(0.3)                              # the same by the literal matrices

docs/ramp.md says what is proved, what is measured, and what was recalled from the paper. Layers with a proof of their own file:
`compile(.., method="ramp")`.
"""

from maxaffine.ramp.compare import PerToken, compare_per_token
from maxaffine.ramp.constants import BEST, kappa
from maxaffine.ramp.head import RampHead, RampHeads, ramp_head, ramp_heads
from maxaffine.ramp.matrices import head_matrices, heads_matrices
from maxaffine.ramp.net import RampNet, piecewise_linear
from maxaffine.ramp.ridge import ridge_fit

__all__ = [
    "BEST", "PerToken", "RampHead", "RampHeads", "RampNet", "compare_per_token", "head_matrices", "heads_matrices", "kappa",
    "piecewise_linear", "ramp_head", "ramp_heads", "ridge_fit",
]  # fmt: skip
