"""Statistical certificates: what a draw of fresh points says of a final layer, with a confidence.

After the layer is final, N independent uniform points are drawn that were never used for it; E is the largest error at them.  If
errors above E had a share of the box larger than s, all N points would have missed it with probability below (1 - s)^N.  So

    with confidence 1 - delta    |layer - f| <= E, but for a share of the box of at most 1 - delta^(1/N)                   (share)

exactly, for N and delta fixed before the draw and an f that always says the same; N = ceil(log delta / log(1 - share)) points
serve for a share that is asked for.  In L_p, where a range of f is declared, Z = |layer - f|^p lies in [0, R^p], and by Maurer
and Pontil (2009, Theorem 4), V the sample variance of Z,

    E Z <= mean Z + sqrt(2 V log(2/delta) / N) + 7 R^p log(2/delta) / (3 (N - 1))    with confidence 1 - delta          (integral)

A layer that fails its draw is replaced, and the next one gets new points.  What any of them may claim wrongly adds up, so delta
is shared: the first draw takes all of it but 2^-12, the one after j others 2^-12-j.  The sum is below delta.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, Context
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput, Refused

UPWARDS = Context(prec=6, rounding=ROUND_CEILING)
LATER = 2.0**-12  # of delta, for all draws after the first
LARGEST_SHARE = 0.5  # that is worth saying
SAFETY = 1.0 + 1e-12  # sums and roots in float64


@dataclass(frozen=True)
class Statistical:
    """What is asked of a draw: `compile(f, box, error=.., require=ma.Statistical(share, confidence))`.

    Args:
        share: of the box on which the error may be larger than stated.
        confidence: that this is true, below 1; 13,809 points serve for a share of 1e-3 at 1 - 1e-6.
        range: (low, high) of f, declared; needed for L_p errors, whose integral is then limited with that confidence.
    """

    share: float = 1e-3
    confidence: float = 1.0 - 1e-6
    range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name, most in (("share", LARGEST_SHARE), ("confidence", 1.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float, np.floating)) or not 0.0 < value < most:
                raise BadInput(f"`{name}` (={value!r}) must be above 0 and below {most:g}.")
        if self.range is not None:
            try:
                low, high = map(float, self.range)
            except (TypeError, ValueError):
                low = high = math.nan
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise BadInput(f"`range` (={self.range!r}) must be the two numbers that f stays between, such as (0, 1).")
            object.__setattr__(self, "range", (low, high))

    @property
    def delta(self) -> float:
        """1 - confidence."""
        return 1.0 - float(self.confidence)

    def delta_of(self, attempt: int) -> float:
        """What the draw after so many others may take of delta."""
        return self.delta * (1.0 - LATER if attempt == 0 else LATER * 2.0**-attempt)

    def points(self, attempt: int = 0) -> int:
        """N for the share that is asked for."""
        return max(2, math.ceil(math.log(self.delta_of(attempt)) / math.log1p(-self.share) * SAFETY))


def share_of(points: int, delta: float) -> float:
    """1 - delta^(1/N), rounded up."""
    return -math.expm1(math.log(delta) / points) * SAFETY


@dataclass(frozen=True)
class Drawn:
    """What a draw says: the largest error at `points` fresh points, and the share of the box where it may be larger.

    `fit` is at how many points f was evaluated before, `calls` at how many for the draw; `integral` is what an L_p error is
    limited to with the same confidence, `share` is None then.
    """

    error: float
    points: int
    share: float | None
    delta: float
    seed: int
    attempt: int
    fit: int
    calls: int
    norm: float = math.inf
    integral: float | None = None

    @property
    def words(self) -> str:
        """The statement in one sentence."""
        confidence = f"with confidence {1.0 - self.delta:.4g}" if self.delta > 1e-3 else f"with confidence 1 - {self.delta:.3g}"
        if self.integral is not None:
            return f"error <= {_up(self.integral)} in the L_{self.norm:g} norm, {confidence}"
        return f"error <= {_up(self.error)} but for a share of at most {self.share:.3g} of the box, {confidence}"

    @property
    def how(self) -> str:
        """What was drawn."""
        which = "" if self.attempt == 0 else f", draw {self.attempt + 1} as the layers before did not pass"
        largest = f"; the largest error among them is {_up(self.error)}" if self.integral is not None else ""
        return f"by {self.points:,} uniform points drawn after the layer was final (seed {self.seed}{which}){largest}"

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "norm": "inf" if math.isinf(self.norm) else self.norm}

    @classmethod
    def from_json(cls, data: Any) -> "Drawn":
        """The inverse, from a file that may hold anything: the numbers must be possible, and the share what they give."""
        try:
            data = dict(data)
            norm = math.inf if data["norm"] == "inf" else data["norm"]
            made = cls(**{**data, "norm": norm})
            whole = all(type(n) is int and n >= 0 for n in (made.points, made.seed, made.attempt, made.fit, made.calls))
            real = all(type(v) in (int, float) for v in (made.error, made.delta, made.norm))
            good = whole and real and made.points >= 2 and made.norm >= 1.0
            good = good and 0.0 <= made.error < math.inf and 0.0 < made.delta < 1.0
            if math.isinf(made.norm):
                least = share_of(made.points, made.delta) * (1.0 - 1e-9)
                good = good and made.integral is None and type(made.share) is float and least <= made.share <= 1.0
            else:
                good = good and made.share is None and type(made.integral) is float and 0.0 <= made.integral < math.inf
        except (KeyError, TypeError, ValueError, AttributeError):
            good = False
        if not good:
            raise BadInput("its certificate is statistical, and says in no possible way what was drawn")
        return made


def _up(value: float) -> str:
    """Six digits, rounded up."""
    return f"{float(UPWARDS.create_decimal_from_float(value)):.6g}"


def integral_limit(powers: Array, largest: float, delta: float) -> float:
    """What the mean of Z over the box is limited to with confidence 1 - delta, from values of Z in [0, `largest`]."""
    n, log = len(powers), math.log(2.0 / delta)
    mean, variance = float(powers.mean()), float(powers.var(ddof=1))
    return (mean + math.sqrt(2.0 * variance * log / n) + 7.0 * largest * log / (3.0 * (n - 1))) * SAFETY


def integral_points(asked: float, largest: float, delta: float) -> int:
    """Points for which the last term takes half of what is asked for the mean of Z."""
    needed = 14.0 * largest * math.log(2.0 / delta) / (3.0 * asked)
    if not needed < 1e12:
        raise Refused(f"`range`: values so far apart would need about {needed:.2g} points to draw; ask for a larger error.")
    return 2 + math.ceil(needed)


def stated(data: Mapping[str, Any]) -> Drawn | None:
    """The draw in a certificate of a file; None where it is of another kind."""
    if (data.get("kind") == "statistical") != ("drawn" in data):
        raise BadInput("its certificate is statistical without a draw, or the other way round")
    if "drawn" not in data:
        return None
    if data.get("bound") is not None:
        raise BadInput("its certificate is statistical and states a bound, which no draw gives")
    return Drawn.from_json(data["drawn"])
