"""Facts about a target: what is known, and where the knowledge comes from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxaffine.core.errors import BadInput

Array = NDArray[np.float64]
Origin = Literal["declared", "derived", "none"]


@dataclass(frozen=True, eq=False)
class Fact:
    """Something known about a target: `value`, its `origin` (declared | derived | none) and `how` it is known.

    `per_output` holds the same fact for every output apart, where there is such a thing.
    """

    value: Any
    origin: Origin
    how: str = ""
    per_output: Array | None = None

    @property
    def finite(self) -> bool:
        """True where the value exists and every entry of it is finite."""
        return self.value is not None and bool(np.all(np.isfinite(self.value)))

    @classmethod
    def none(cls, how: str = "nothing was declared and nothing can be derived from a callable") -> Fact:
        """No fact, and why not."""
        return cls(None, "none", how)


def check_lipschitz(value: Any, dimension: int) -> Fact:
    """`lipschitz=`: one number is the Euclidean constant (value: float), a sequence is one constant per axis (value: (D,))."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "iuf":
            raise TypeError
        array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"`lipschitz` (={value!r}) must be one number or one number per axis.") from None
    if array.ndim > 1 or (array.ndim == 1 and len(array) != dimension):
        raise BadInput(
            f"`lipschitz` has shape {array.shape}; give {dimension} constants, one per axis, or one number, "
            "the Euclidean constant."
        )
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise BadInput(f"`lipschitz` (={value!r}) must be finite and not negative.")
    if array.ndim == 0:
        return Fact(float(array), "declared", "the Euclidean Lipschitz constant was declared")
    array.setflags(write=False)
    return Fact(array, "declared", "one Lipschitz constant per axis was declared")


_RADII = (0.0, 1e-9, 1e-6, 1e-3, 1e-2, 0.1, 0.3, 1.0)


def _check_growing(function: Any, name: str) -> None:
    """w(0) = 0 (or more), finite and not falling, on a few radii."""
    if not callable(function):
        raise BadInput(f"`{name}` (={function!r}) must be a function of one radius, such as lambda r: 2*r**0.5.")
    last = 0.0
    for radius in _RADII:
        value = call_modulus(function, radius, name)
        if value < last * (1 - 1e-12):
            raise BadInput(f"`{name}` falls from {last:g} to {value:g} at radius {radius:g}; a modulus never falls.")
        last = value


def call_modulus(function: Callable[[float], Any], radius: float, name: str = "modulus") -> float:
    """w(radius) as a float; BadInput where it raises or is not a finite number >= 0."""
    try:
        value = float(function(radius))
    except Exception as error:
        raise BadInput(f"`{name}` raised {type(error).__name__} at radius {radius:g}: {error}.") from None
    if not math.isfinite(value) or value < 0:
        raise BadInput(f"`{name}` is {value} at radius {radius:g}; it must be a finite number that is not negative.")
    return value


@dataclass(frozen=True)
class Modulus:
    """A modulus of continuity in the largest coordinate difference: |f(x) - f(y)| <= w(max_i |x_i - y_i|)."""

    w: Callable[[float], float]
    how: str = "a modulus of continuity was declared"

    def __post_init__(self) -> None:
        _check_growing(self.w, "modulus")

    def __call__(self, radius: float) -> float:
        """w(radius)."""
        return call_modulus(self.w, radius)


@dataclass(frozen=True)
class ConcaveModulus:
    """A concave modulus of continuity in l1: |f(x) - f(y)| <= w(sum_i |x_i - y_i|), w concave, not falling, w(0) = 0.

    Concavity is what lets the modulus of an average be taken; it is checked on a grid of radii, not proved.
    """

    w: Callable[[float], float]
    how: str = "a concave modulus of continuity was declared"

    def __post_init__(self) -> None:
        _check_growing(self.w, "ConcaveModulus")
        radii = np.concatenate([[0.0], np.geomspace(1e-9, 1.0, 61)])
        values = [call_modulus(self.w, float(r), "ConcaveModulus") for r in radii]
        for a, b, c, wa, wb, wc in zip(radii, radii[1:], radii[2:], values, values[1:], values[2:], strict=False):
            chord = wa + (wc - wa) * (b - a) / (c - a)
            if wb < chord - 1e-9 * max(1e-300, abs(wc)):
                raise BadInput(
                    f"`ConcaveModulus` is not concave: w({b:.3g}) = {wb:.6g} lies below the chord from {a:.3g} to {c:.3g}; "
                    "pass it as `modulus=` instead."
                )

    def __call__(self, radius: float) -> float:
        """w(radius)."""
        return call_modulus(self.w, radius, "ConcaveModulus")


@dataclass(frozen=True)
class IntegralModulus:
    """A modulus of continuity in L_p: sup over |z_i| <= r_i of ||f(. + z) - f||_p <= w(r), r an array of D steps.

    The norm is over the points x for which x and x + z lie in the box.  A proof needs the exact means of f over cells as
    well, since no sample of an L_p function says what its mean is: `means(low, high)` with arrays (B, D) -> (B,) or (B, K).
    """

    w: Callable[[Array], float]
    p: float = 1.0
    means: Callable[[Array, Array], Array] | None = None
    how: str = "a modulus of continuity in L_p was declared"

    def __post_init__(self) -> None:
        if not callable(self.w):
            raise BadInput(f"`IntegralModulus` (={self.w!r}) must be a function of the array of steps, one per axis.")
        check_exponent(self.p)

    def __call__(self, steps: ArrayLike) -> float:
        """w(steps)."""
        array = np.asarray(steps, dtype=np.float64)
        try:
            value = float(self.w(array))
        except Exception as error:
            raise BadInput(f"`IntegralModulus` raised {type(error).__name__} at steps {array}: {error}.") from None
        if not math.isfinite(value) or value < 0:
            raise BadInput(f"`IntegralModulus` is {value} at steps {array}; it must be finite and not negative.")
        return value


@dataclass(frozen=True)
class TotalVariation:
    """Total variation per axis: V_i bounds the integral over the other coordinates of the variation of f along axis i.

    Then ||f(. + z) - f||_1 <= sum_i V_i |z_i|.  One number stands for every axis.
    """

    v: Any
    how: str = "a total variation was declared"
    values: Array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            array = np.atleast_1d(np.asarray(self.v, dtype=np.float64))
        except (TypeError, ValueError):
            raise BadInput(f"`TotalVariation` (={self.v!r}) must be one number or one number per axis.") from None
        if array.ndim != 1 or not len(array) or not np.all(np.isfinite(array)) or np.any(array < 0):
            raise BadInput(f"`TotalVariation` (={self.v!r}) must be finite and not negative, one number or one per axis.")
        array = array.copy()
        array.setflags(write=False)
        object.__setattr__(self, "values", array)

    def per_axis(self, dimension: int) -> Array:
        """V_i for every axis, shape (D,)."""
        if len(self.values) not in (1, dimension):
            raise BadInput(f"`TotalVariation` has {len(self.values)} entries for {dimension} axes; give one, or one per axis.")
        return np.broadcast_to(self.values, (dimension,))


@dataclass(frozen=True)
class Analytic:
    """f extends analytically to the Bernstein ellipses of `radii` (one, or one per axis; all > 1), where |f| <= `bound`.

    The ellipse of radius r over [-1, 1] has its foci at -1 and 1 and half axes adding up to r; an axis [l, u] is mapped to
    [-1, 1] first.
    """

    radii: Any
    bound: float
    how: str = "analyticity on Bernstein ellipses was declared"
    values: Array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            array = np.atleast_1d(np.asarray(self.radii, dtype=np.float64))
            bound = float(self.bound)
        except (TypeError, ValueError):
            raise BadInput(f"`Analytic` needs radii (={self.radii!r}) and one bound (={self.bound!r}), all numbers.") from None
        if array.ndim != 1 or not len(array) or not np.all(np.isfinite(array)) or np.any(array <= 1):
            raise BadInput(f"`radii` (={self.radii!r}) of `Analytic` must be finite and larger than 1.")
        if not math.isfinite(bound) or bound < 0:
            raise BadInput(f"`bound` (={self.bound!r}) of `Analytic` must be finite and not negative.")
        array = array.copy()
        array.setflags(write=False)
        object.__setattr__(self, "values", array)

    def per_axis(self, dimension: int) -> Array:
        """The radius of every axis, shape (D,)."""
        if len(self.values) not in (1, dimension):
            raise BadInput(
                f"`radii` of `Analytic` has {len(self.values)} entries for {dimension} axes; give one, or one per axis."
            )
        return np.broadcast_to(self.values, (dimension,))


@dataclass(frozen=True)
class Derivatives:
    """Bounds of one high derivative per axis: |d^order f / dx_i^order| <= bound_i on the box (one number serves all axes)."""

    order: int
    bound: ArrayLike
    how: str = "bounds of a high derivative were declared"

    def __post_init__(self) -> None:
        if isinstance(self.order, bool) or not isinstance(self.order, (int, np.integer)) or not 2 <= self.order <= 60:
            raise BadInput(f"`Derivatives` needs an order from 2 to 60, and {self.order!r} came.")
        array = np.asarray(self.bound, dtype=np.float64)
        if array.ndim > 1 or not np.all(np.isfinite(array)) or np.any(array < 0):
            raise BadInput(f"`Derivatives` needs finite bounds that are not negative, one or one per axis; {self.bound!r} came.")

    def per_axis(self, dimension: int) -> Array:
        """(D,) bounds."""
        array = np.asarray(self.bound, dtype=np.float64)
        if array.ndim == 1 and len(array) != dimension:
            raise BadInput(f"`Derivatives` has {len(array)} bounds for {dimension} axes; give one per axis, or one number.")
        return np.broadcast_to(array, (dimension,)).copy()


def check_exponent(p: Any) -> float:
    """p of an L_p norm: a finite number >= 1."""
    if isinstance(p, (bool, str)) or not isinstance(p, (int, float, np.integer, np.floating)) or not 1 <= float(p) < math.inf:
        raise BadInput(f"`p` (={p!r}) must be a finite number that is at least 1.")
    return float(p)
