"""The literal form of a layer of groups: one softmax over listed tokens per query column, columns added up, in any arithmetic.

In the column of group g the group bias is added to the logits of its tokens.  Other groups have e^-bias Z'/Z of the weight there.
Groups of product keys in a column: checker/product_group.py; groups of clusters: checker/literal_clusters.py.

Assumed: exp is accurate to 32 ulp, sums, products and quotients follow IEEE 754 in any order; z is formed from x - centre.  Where
the affine functions of x are multiplied out without centring first (some layouts do), that happens in float64.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.crossed import crossed
from maxaffine.checker.proved import DOUBLE, Form, NotProved, rounded
from maxaffine.checker.reader import Layer
from maxaffine.core.arrays import Array

MARGIN = 1.0 + 1e-11  # for the rounding of these sums themselves
NEGLIGIBLE = 50.0  # tokens that trail by more weigh less than 2e-22
RESOLVED = 1.5  # errors of logits beyond which nothing is said
MOST_TOKENS = 1 << 16  # that a literal form is listed with


@dataclass(frozen=True)
class Column:
    """One group in its own query column: what it loses, a bound of |F_g|, of the errors of its logits, of its tokens' values."""

    lost: float
    size: float
    eta: float  # where its clusters count
    top: float
    levels: Callable[[], tuple[float, float]]  # of log Z over the box


@dataclass(frozen=True)
class Frame:
    """A layer in an arithmetic, and how many tokens it has in all."""

    layer: Layer
    form: Form

    def __post_init__(self) -> None:
        if self.tokens > MOST_TOKENS:
            raise NotProved(f"it has {self.tokens:,} tokens, and literal forms of more than {MOST_TOKENS:,} are not looked at.")

    @property
    def tokens(self) -> int:
        """Of all groups."""
        return self.layer.tokens if self.form.beside is None else self.form.beside.tokens

    @property
    def bias(self) -> float:
        """Between the groups."""
        return self.layer.bias if self.form.beside is None else self.form.beside.bias

    def _affine_part(self, x: Array) -> float:
        """max |affine part| for |x - centre| <= x."""
        return 0.0 if self.layer.affine_part is None else float((np.abs(self.layer.affine_part) @ x).max())

    @property
    def affine_size(self) -> float:
        """max |affine part| over the box."""
        return self._affine_part(self.layer.reach) * MARGIN

    def affine_error(self) -> float:
        """What is wrong with the affine part, which is a part of every value of the first group."""
        low, high, centre = self.layer.low, self.layer.high, np.abs(self.layer.centre)
        formed = rounded(len(centre) + 9, DOUBLE) * self._affine_part(np.maximum(np.abs(low), np.abs(high)) + centre)
        return self.form.gamma(2 * self.tokens + len(centre) + 20) * self.affine_size + formed

    def sums(self, mean: float) -> float:
        """Of a weighted sum of all tokens and its normaliser, where sum W |v| <= mean."""
        return self.form.gamma(2 * self.tokens + 20) * mean

    def stray(self, top: float) -> float:
        """Of weights that vanish or are too small to be told: below the smallest normal number, or negligible."""
        return self.tokens * (4.0 * self.form.normal + 2.0 * math.exp(-NEGLIGIBLE) * 1000.0 * self.form.unit) * top


@dataclass(frozen=True)
class Coordinates:
    """|z| over the box, and how far a computed z may be from that of the same x.

    A coordinate of one variable alone is wrong by a part of itself, others by a part of their terms.
    """

    size: Array
    part: float
    alone: NDArray[np.bool_]
    shift: Array  # |M| |centre|

    @classmethod
    def read(cls, frame: Frame, matrix: Array) -> Coordinates:
        """Of the coordinates z = M (x - centre)."""
        centre = np.abs(frame.layer.centre)
        part = rounded(len(centre) + 4, DOUBLE) + frame.form.gamma(len(centre) + 9)
        alone = np.count_nonzero(matrix, axis=1) == 1
        return cls(np.abs(matrix) @ frame.layer.reach * MARGIN, part, alone, np.abs(matrix) @ centre)

    def error(self, z: Array) -> Array:
        """Where |z| is at most this."""
        return np.asarray(self.part * np.where(self.alone, z, self.size) * MARGIN)

    def away(self, z: Array) -> Array:
        """|M| (|x| + |centre|) there."""
        return np.asarray(np.where(self.alone, z, self.size) + 2.0 * self.shift)


def leak(levels: Sequence[tuple[float, float]], sizes: Sequence[float], bias: float, errors: Sequence[float]) -> float:
    """sum over g != k of e^{log Z_k - log Z_g - bias} (size_g + size_k): what group k says in the column of group g.

    `levels` encloses the logarithms of the normalisers, `errors` bounds what rounding may do to each of them.
    """
    total = 0.0
    for g, k in itertools.permutations(range(len(levels)), 2):
        ratio = levels[k][1] - levels[g][0] - bias + errors[g] + errors[k]
        total += math.exp(ratio) * (sizes[g] + sizes[k]) * MARGIN if ratio < 600.0 else math.inf
    return total


def literally(layer: Layer, bound: float, columns: Callable[[Frame], list[Column]]) -> Callable[[Form, float], float]:
    """What proves a bound of the literal form, whatever is claimed: that of the layer, and its columns in an arithmetic."""

    def literal(form: Form, claimed: float) -> float:
        frame = Frame(layer, form)
        return literal_bound(frame, bound, columns(frame))

    return literal


def literal_bound(frame: Frame, bound: float, columns: list[Column]) -> float:
    """The bound of the literal form: that of the layer, what every column loses, the leak between them, and their sum."""
    columns = crossed(frame, columns) if frame.layer.pair else columns
    size = sum(one.size for one in columns) + frame.affine_size
    total = bound + sum(one.lost for one in columns) + frame.affine_error()
    count = len(columns) if frame.form.beside is None else frame.form.beside.groups
    total += (frame.form.gamma(count + 5) + frame.form.unit) * size
    if len(columns) > 1:
        levels = [one.levels() for one in columns]
        tops = [one.top + (frame.affine_size if g == 0 else 0.0) for g, one in enumerate(columns)]
        total += leak(levels, tops, frame.bias, [2.0 * one.eta + 0.3 for one in columns])
    if not math.isfinite(total):
        raise NotProved(f"its logits are not resolved in {frame.form.name}.")
    return total * MARGIN
