"""Facts about a target: what is known, and where the knowledge comes from."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput

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


def check_lipschitz(value: Any, dimension: int) -> Fact:
    """`lipschitz=`: one number is the Euclidean constant (value: float), a sequence is one constant per axis (value: (D,))."""
    array = _per_axis_numbers(value, "`lipschitz`")
    if np.ndim(value) == 0:
        return Fact(float(array[0]), "declared", "the Euclidean Lipschitz constant was declared")
    if len(array) != dimension:
        raise BadInput(f"`lipschitz` has {len(array)} entries; give {dimension}, one per axis, or one, the Euclidean constant.")
    return Fact(array, "declared", "one Lipschitz constant per axis was declared")


def _per_axis_numbers(value: Any, what: str, above: float = -math.inf) -> Array:
    """One number or one per axis as a row, read-only; all finite, not negative, and larger than `above`."""
    try:
        array = np.array(value)
    except (TypeError, ValueError):
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "iuf" or array.ndim > 1 or not array.size:
        raise BadInput(f"{what} (={value!r}) must be one number or one number per axis.")
    array = np.atleast_1d(array.astype(np.float64))
    if not np.all(np.isfinite(array)) or np.any(array < 0) or np.any(array <= above):
        raise BadInput(f"{what} (={value!r}) must be finite and {f'larger than {above:g}' if above > 0 else 'not negative'}.")
    array.setflags(write=False)
    return array


def _spread(array: Array, dimension: int, what: str) -> Array:
    """(D,): the same number for every axis, or one each."""
    if len(array) not in (1, dimension):
        raise BadInput(f"{what} has {len(array)} entries for {dimension} axes; give one, or one per axis.")
    return np.broadcast_to(array, (dimension,))


def _called(function: Callable[..., Any], argument: Any, name: str, where: str) -> float:
    """The value of a declared function, a finite number that is not negative; BadInput where it is none."""
    try:
        value = float(function(argument))
    except Exception as error:
        raise BadInput(f"`{name}` raised {type(error).__name__} at {where}: {error}.") from None
    if not math.isfinite(value) or value < 0:
        raise BadInput(f"`{name}` is {value} at {where}; it must be a finite number that is not negative.")
    return value


_RADII = (0.0, 1e-9, 1e-6, 1e-3, 1e-2, 0.1, 0.3, 1.0)


@dataclass(frozen=True)
class Modulus:
    """A modulus of continuity in the largest coordinate difference: |f(x) - f(y)| <= w(max_i |x_i - y_i|)."""

    w: Callable[[float], float]
    argument: ClassVar[str] = "modulus"

    def __post_init__(self) -> None:
        if not callable(self.w):
            raise BadInput(f"`{self.argument}` (={self.w!r}) must be a function of one radius, such as lambda r: 2*r**0.5.")
        last = 0.0
        for radius in _RADII:
            value = self(radius)
            if value < last * (1 - 1e-12):
                raise BadInput(f"`{self.argument}` falls from {last:g} to {value:g} at radius {radius:g}; a modulus never falls.")
            last = value

    def __call__(self, radius: float) -> float:
        """w(radius)."""
        return _called(self.w, radius, self.argument, f"radius {radius:g}")


@dataclass(frozen=True)
class ConcaveModulus(Modulus):
    """A concave modulus of continuity in l1: |f(x) - f(y)| <= w(sum_i |x_i - y_i|), w concave, not falling, w(0) = 0.

    Concavity is what lets the modulus of an average be taken; it is checked on a grid of radii, not proved.
    """

    argument: ClassVar[str] = "ConcaveModulus"

    def __post_init__(self) -> None:
        super().__post_init__()
        radii = np.concatenate([[0.0], np.geomspace(1e-9, 1.0, 61)])
        values = [self(float(r)) for r in radii]
        for a, b, c, wa, wb, wc in zip(radii, radii[1:], radii[2:], values, values[1:], values[2:], strict=False):
            chord = wa + (wc - wa) * (b - a) / (c - a)
            if wb < chord - 1e-9 * max(1e-300, abs(wc)):
                raise BadInput(
                    f"`ConcaveModulus` is not concave: w({b:.3g}) = {wb:.6g} lies below the chord from {a:.3g} to {c:.3g}; "
                    "pass it as `modulus=` instead."
                )


@dataclass(frozen=True)
class IntegralModulus:
    """A modulus of continuity in L_p: sup over |z_i| <= r_i of ||f(. + z) - f||_p <= w(r), r an array of D steps.

    The norm is over the points x for which x and x + z lie in the box.  A proof needs the exact means of f over cells as
    well, since no sample of an L_p function says what its mean is: `means(low, high)` with arrays (B, D) -> (B,) or (B, K).
    """

    w: Callable[[Array], float]
    p: float = 1.0
    means: Callable[[Array, Array], Array] | None = None

    def __post_init__(self) -> None:
        if not callable(self.w):
            raise BadInput(f"`IntegralModulus` (={self.w!r}) must be a function of the array of steps, one per axis.")
        if isinstance(self.p, (bool, str)) or not isinstance(self.p, Real) or not 1 <= float(self.p) < math.inf:
            raise BadInput(f"`p` (={self.p!r}) must be a finite number that is at least 1.")

    def __call__(self, steps: ArrayLike) -> float:
        """w(steps)."""
        array = np.asarray(steps, dtype=np.float64)
        return _called(self.w, array, "IntegralModulus", f"steps {array}")


@dataclass(frozen=True)
class TotalVariation:
    """Total variation per axis: V_i bounds the integral over the other coordinates of the variation of f along axis i.

    Then ||f(. + z) - f||_1 <= sum_i V_i |z_i|.  One number stands for every axis.
    """

    v: Any

    def __post_init__(self) -> None:
        _per_axis_numbers(self.v, "`TotalVariation`")

    def per_axis(self, dimension: int) -> Array:
        """V_i for every axis, shape (D,)."""
        return _spread(_per_axis_numbers(self.v, "`TotalVariation`"), dimension, "`TotalVariation`")


@dataclass(frozen=True)
class Analytic:
    """f extends analytically to the Bernstein ellipses of `radii` (one, or one per axis; all > 1), where |f| <= `bound`.

    The ellipse of radius r over [-1, 1] has its foci at -1 and 1 and half axes adding up to r; an axis [l, u] is mapped to
    [-1, 1] first.
    """

    radii: Any
    bound: float

    def __post_init__(self) -> None:
        _per_axis_numbers(self.radii, "`radii` of `Analytic`", 1.0)
        if len(_per_axis_numbers(self.bound, "`bound` of `Analytic`")) > 1:
            raise BadInput(f"`bound` (={self.bound!r}) of `Analytic` must be one number.")

    def per_axis(self, dimension: int) -> Array:
        """The radius of every axis, shape (D,)."""
        return _spread(_per_axis_numbers(self.radii, "`radii` of `Analytic`", 1.0), dimension, "`radii` of `Analytic`")


@dataclass(frozen=True)
class Derivatives:
    """Bounds of one high derivative per axis: |d^order f / dx_i^order| <= bound_i on the box (one number serves all axes)."""

    order: int
    bound: ArrayLike

    def __post_init__(self) -> None:
        if isinstance(self.order, bool) or not isinstance(self.order, (int, np.integer)) or not 2 <= self.order <= 60:
            raise BadInput(f"`Derivatives` needs an order from 2 to 60, and {self.order!r} came.")
        _per_axis_numbers(self.bound, "`bound` of `Derivatives`")

    def per_axis(self, dimension: int) -> Array:
        """(D,) bounds."""
        return _spread(_per_axis_numbers(self.bound, "`bound` of `Derivatives`"), dimension, "`bound` of `Derivatives`")
