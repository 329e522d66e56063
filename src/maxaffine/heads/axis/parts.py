"""What is proved of clusters along one coordinate, alone or as a factor of a product: the parts of the bound."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.rounding import FLOAT64, gamma
from maxaffine.proofs.literal_form import ProvedBlend
from maxaffine.runtime.grouped import tree_terms

Array = NDArray[np.float64]

U = FLOAT64.unit
UP = 1.0 + 1e-12


@dataclass(frozen=True)
class Hole:
    """An open interval of z about a jump that the statement leaves out."""

    low: float
    high: float


@dataclass(frozen=True)
class AxisProof:
    """Parts of the bound of one group, the largest |f|, what holes cost, and what was left out."""

    approximation: float
    leakage: float
    rounding: float
    uncertainty: float
    size: float
    layer_size: float
    holes: tuple[Hole, ...]
    every_x: bool  # real x; else those that are float64 numbers
    cells: int
    blend: ProvedBlend  # for the literal form


@dataclass(frozen=True)
class HeadErrors:
    """A cluster's head where it answers: sums over its keys that rounding meets, eta the errors of logits, v the values.

    Of several clusters, the largest of each.
    """

    lost: float  # sum w eta |v - p|
    size: float  # sum w |v|
    lean: float  # sum w |G|
    eta: float
    reach: float  # |t|
    keys: int
    largest: float  # max |v|

    @property
    def summed(self) -> float:
        """sum w (|c| + |G t|), which is what is added up: sums of c and of G are formed by themselves."""
        return self.size + 2.0 * self.reach * self.lean

    @property
    def moved(self) -> float:
        """What the errors of the logits do to p."""
        return math.exp(min(2.04 * self.eta, 50.0)) * 1.02 * self.lost

    def total(self, tiny: float) -> float:
        """What rounding does to p."""
        sums = gamma(self.keys + tree_terms(self.keys) + 12, U) * self.summed + 4 * U * self.reach * self.lean
        return (self.moved + sums + self.keys * tiny * self.largest) * UP

    @classmethod
    def worst(cls, rows: list[HeadErrors]) -> HeadErrors:
        """The largest of each."""
        return cls(*(max(column) for column in zip(*(astuple(row) for row in rows), strict=True)))


@dataclass(frozen=True)
class AxisParts:
    """What is known of clusters along one coordinate, at every z of its range, before rounding of the whole is counted."""

    worst: float  # sup |f_k - p_k| where cluster k answers
    kinks: float  # and what clusters say beyond a break
    leak: float  # sum over the others of their computed masses times (|f| + |p_k|)
    far: float  # those masses
    uncertainty: float  # of worst
    size: float  # sup |f|
    eta: float  # error of scores where clusters answer
    heads: HeadErrors
    rounding: float  # of a head p_k alone, the largest
    top: float  # |p_k| where it answers
    largest: float  # max |v| a little beyond
    count: int
    cells: int
    reach: Array  # (C,): |t| where cluster k answers
    edge: float  # size of the logits where clusters cease to answer
    pace: float  # and how much faster than their lags they grow beyond

    @property
    def near(self) -> float:
        """sup over z of the sum of Omega_k |f - p_k| over the clusters that answer there."""
        return self.worst + self.kinks
