"""The rounding model: unit roundoffs, accumulated rounding, and the limits of exp per dtype.

Standard model: fl(a op b) = (a op b)(1 + d), |d| <= u, for + - * / and sqrt; a sum or dot product of n terms in
ANY order is off by at most gamma(n) sum |terms|, gamma(n) = n u / (1 - n u)  (Higham, ASNA, ch. 3 and 4).
Underflow: the standard model holds for results above the smallest normal number; what falls below it is
accounted for where it can happen (the exponentials of a softmax, see proofs/rounding.py).
"""

import math
from dataclasses import dataclass
from typing import cast

import numpy as np

from maxaffine.core.errors import BadInput


@dataclass(frozen=True)
class Dtype:
    """A floating-point format: name, unit roundoff u, and the logit below which exp gives exactly zero."""

    name: str
    unit: float
    exp_floor: float  # exp(x) rounds to 0 for x < exp_floor (half the smallest subnormal number)
    tiny: float  # the smallest subnormal number
    exp_ulps: float  # assumed accuracy of exp: |fl(exp x) - exp x| <= exp_ulps * u * exp x


# exp is assumed correct to 4 ulp (8 u); NumPy's vector loops are documented below that and the tests measure it.
FLOAT64 = Dtype("float64", 2.0**-53, -1075 * math.log(2.0), 2.0**-1074, 8.0)
FLOAT32 = Dtype("float32", 2.0**-24, -150 * math.log(2.0), 2.0**-149, 8.0)
# bfloat16 tensors are computed with in float32 (products and sums of them are then exact or rounded as float32).
BFLOAT16 = Dtype("bfloat16", 2.0**-8, -150 * math.log(2.0), 2.0**-149, 8.0)
EXTENDED = float(np.finfo(np.longdouble).eps) / 2.0  # unit of 80-bit numbers where the platform has them, else of float64
# float16 is a dtype of tensors that come and go alone: they are computed with in float32.
FLOAT16 = Dtype("float16", 2.0**-11, -25 * math.log(2.0), 2.0**-24, 8.0)
DTYPES = {"float64": FLOAT64, "float32": FLOAT32, "bfloat16": BFLOAT16}


def dtype_of(name: str) -> Dtype:
    """The format of that name, or a sentence listing those that exist."""
    try:
        return DTYPES[str(name)]
    except KeyError:
        raise BadInput(f"`dtype` (={name!r}) is not known; choose one of {', '.join(DTYPES)}.") from None


def numpy_dtype(name: str) -> np.dtype[np.floating]:
    """The NumPy dtype that stores numbers of that format."""
    if dtype_of(name) is BFLOAT16:
        import ml_dtypes

        return cast("np.dtype[np.floating]", np.dtype(ml_dtypes.bfloat16))
    return np.dtype(dtype_of(name).name)


def compute_format(name: str) -> Dtype:
    """The format that products and sums are rounded in: the dtype itself, float32 for bfloat16."""
    dtype = dtype_of(name)
    return FLOAT32 if dtype is BFLOAT16 else dtype


def compute_dtype(name: str) -> np.dtype[np.floating]:
    """The NumPy dtype of `compute_format`."""
    return np.dtype(compute_format(name).name)


def gamma(count: float, unit: float) -> float:
    """gamma(n) = n u / (1 - n u); infinite where the bound says nothing."""
    product = count * unit
    return product / (1.0 - product) if product < 0.5 else math.inf
