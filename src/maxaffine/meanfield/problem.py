"""Single-location regression: the task, without any model of it.

    L tokens x_1..x_L in R^d; a secret index J, uniform;
    x_J ~ N(c sqrt(d) u*, gamma^2 I),   x_l ~ N(0, I) for l != J,   u* and v* orthonormal,
    y = sigma(x_J . v*) + N(0, eps^2).

Only L, C = c sqrt(d) and gamma enter the population risk of a softmax layer, so L may be any real number >= 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from maxaffine.core.errors import BadInput
from maxaffine.meanfield.checks import finite, positive, whole

LARGEST_L = 1e280  # n (n-1) A_1^2 M^(n-2) and its kin leave the range of doubles beyond log L ~ 650


@dataclass(frozen=True)
class Problem:
    """The task: dimension ``d``, length ``L``, token noise ``gamma``, label noise ``eps``, signal ``c``.

    ``c`` defaults to sqrt(1 - gamma^2), the paper's choice, for which every token has E|x|^2 = d.
    """

    d: int
    L: float
    gamma: float
    eps: float = 0.0
    c: float | None = field(default=None)

    def __post_init__(self) -> None:
        d = whole("d", self.d, 4, "the four directions u*, v*, u, v need at least four dimensions")
        length = finite("L", self.L, "give a length such as 20, or 1e60; lengths above need the limit (MeanField)")
        if length < 2:
            raise BadInput(f"`L` (={length:g}) must be at least 2; one token has nothing to choose from, take L=2.")
        if length > LARGEST_L:
            raise BadInput(
                f"`L` (={length:g}) must be at most {LARGEST_L:g}; beyond it doubles overflow, use MeanField(alpha=...)."
            )
        gamma = positive("gamma", self.gamma, "give a token noise in (0, 1), such as 0.5")
        if gamma > 1:
            raise BadInput(f"`gamma` (={gamma:g}) must lie in (0, 1]; the secret token is never the noisier one.")
        eps = finite("eps", self.eps, "give the standard deviation of the label noise, such as 0.1")
        if eps < 0:
            raise BadInput(f"`eps` (={eps:g}) must not be negative; give the standard deviation of the label noise.")
        if self.c is None:
            if gamma == 1:
                raise BadInput(
                    "`gamma` (=1) leaves no signal, because c = sqrt(1 - gamma^2) = 0; "
                    "take gamma < 1, or give the signal strength `c` yourself."
                )
            c = math.sqrt((1 - gamma) * (1 + gamma))
        else:
            c = positive("c", self.c, "give a positive signal strength, or leave it out for sqrt(1 - gamma^2)")
        for name, value in (("d", d), ("L", length), ("gamma", gamma), ("eps", eps), ("c", c)):
            object.__setattr__(self, name, value)

    @classmethod
    def from_alpha(cls, d: int, alpha: float, gamma: float, eps: float = 0.0, c: float | None = None) -> Problem:
        """The problem with L = 1 + exp(alpha d)."""
        alpha = positive("alpha", alpha, "give log(L-1)/d, such as 0.1")
        if alpha * d > 644:
            raise BadInput(
                f"`alpha` (={alpha:g}) times `d` (={d}) must stay below 644; exp(alpha d) leaves the range of doubles."
            )
        return cls(d, 1 + math.exp(alpha * d), gamma, eps, c)

    @property
    def distractors(self) -> float:
        """n = L - 1, the number of tokens that carry no signal."""
        return self.L - 1

    @property
    def signal(self) -> float:
        """c as a float (never None once the problem is made)."""
        assert self.c is not None
        return self.c

    @property
    def C(self) -> float:
        """C = c sqrt(d), the length of the secret token's mean."""
        return self.signal * math.sqrt(self.d)

    @property
    def alpha(self) -> float:
        """alpha = log(L-1)/d, zero at L = 2."""
        return math.log(self.distractors) / self.d

    def to_json(self) -> dict[str, float]:
        """Plain numbers under the names of the constructor."""
        return {"d": self.d, "L": self.L, "gamma": self.gamma, "eps": self.eps, "c": self.signal}
