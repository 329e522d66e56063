"""Everything known about a target, by origin: what the user declared, what was derived from an expression, and what is refuted.

Fact                                       a value with its origin and how it is known
check_lipschitz, Modulus, ConcaveModulus,  declared by the user
IntegralModulus, TotalVariation, Analytic
derive_lipschitz, derive_euclidean,        derived from an expression, rigorous
derive_range, is_finite_on
contradicts                                a declared fact against the target itself
"""

from __future__ import annotations

from maxaffine.target.contradict import Contradiction, contradicts
from maxaffine.target.declare import (
    Analytic,
    ConcaveModulus,
    Derivatives,
    Fact,
    IntegralModulus,
    Modulus,
    TotalVariation,
    check_lipschitz,
)
from maxaffine.target.derive import (
    Finiteness,
    derive_euclidean,
    derive_lipschitz,
    derive_range,
    is_finite_on,
    sharp_enclosure,
)

__all__ = [
    "Analytic",
    "ConcaveModulus",
    "Contradiction",
    "Derivatives",
    "Fact",
    "Finiteness",
    "IntegralModulus",
    "Modulus",
    "TotalVariation",
    "check_lipschitz",
    "contradicts",
    "derive_euclidean",
    "derive_lipschitz",
    "derive_range",
    "is_finite_on",
    "sharp_enclosure",
]
