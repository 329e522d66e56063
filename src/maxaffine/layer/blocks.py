"""Values that are sums of products over blocks of directions: shapes, what they refuse, and tokens multiplied out.

    V_j = Re sum_r prod_b (A_b[j_b, r] + i B_b[j_b, r]),        A_b, B_b (N_e, .., N_{e+d-1}, R) of the d directions of block b

Blocks are runs of the directions, in order.  The tokens are implied: their number may have a hundred digits.
"""

import itertools
import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.budget import count_text
from maxaffine.core.errors import BadInput, Refused

LISTED = 1 << 24  # tokens of a group that are listed at most
RUN = 16  # directions up to which their keys are written out one by one


def block_slices(factors: Sequence[Array]) -> tuple[slice, ...]:
    """The directions of every block."""
    ends = list(itertools.accumulate((factor.ndim - 1 for factor in factors), initial=0))
    return tuple(slice(first, last) for first, last in itertools.pairwise(ends))


def check_blocks(shape: tuple[int, ...], factors: tuple[Array, ...], imaginary: tuple[Array, ...] | None) -> None:
    """Refuse factors that are not those of keys of that shape."""
    ranks = {factor.shape[-1] for factor in factors if factor.ndim > 1}
    held = tuple(n for factor in factors for n in factor.shape[:-1])
    if len(ranks) != 1 or 0 in ranks or held != shape or any(factor.ndim < 2 for factor in factors):
        raise BadInput(
            "a group's factors must be (N_e, R) for every direction, or (N_e, .., N_f, R) for a block of them, with one R."
        )
    if imaginary is not None and [one.shape for one in imaginary] != [one.shape for one in factors]:
        raise BadInput("the imaginary parts of a group's factors must have the shapes of the real ones.")


def check_listed(count: int) -> None:
    """Refuse to list more tokens than memory holds."""
    if count > LISTED:
        raise Refused(
            f"its {count_text(count)} tokens are implied by the keys of its directions, and {LISTED:,} are listed at most; "
            'run it by runtime="factorised", or export it by its structure.'
        )


def keys_text(shape: Sequence[int], sizes: Sequence[int]) -> str:
    """Keys per direction as a person reads them, blocks in brackets, runs of many directions alike as powers."""
    ends = itertools.accumulate(sizes, initial=0)
    parts = [" x ".join(str(n) for n in shape[a : a + d]) for a, d in zip(ends, sizes, strict=False)]
    words = [f"({part})" if d > 1 and len(sizes) > 1 else part for part, d in zip(parts, sizes, strict=True)]
    if len(words) <= RUN:
        return " x ".join(words)
    runs = [(word, len(list(run))) for word, run in itertools.groupby(words)]
    return " x ".join(f"{word}^{many}" if many > 1 else word for word, many in runs)


def multiplied_out(factors: tuple[Array, ...], imaginary: tuple[Array, ...] | None) -> Array:
    """The values of all tokens in row-major order, (N,) float64."""
    check_listed(math.prod(n for factor in factors for n in factor.shape[:-1]))
    total: Array = np.zeros(1)
    for r in range(factors[0].shape[-1]):
        columns: list[AnyArray] = [factor[..., r].astype(np.float64).ravel() for factor in factors]
        if imaginary is not None:
            columns = [a + 1j * b[..., r].astype(np.float64).ravel() for a, b in zip(columns, imaginary, strict=True)]
        total = total + reduce(lambda left, right: np.multiply.outer(left, right).ravel(), columns).real
    return np.asarray(total)


def moduli(factors: Sequence[Array], imaginary: Sequence[Array] | None) -> list[Array]:
    """|A_b + i B_b|, rounded up a little, in float64."""
    wide = [factor.astype(np.float64) for factor in factors]
    if imaginary is None:
        return [np.abs(factor) for factor in wide]
    return [np.hypot(a, b.astype(np.float64)) * (1 + 2.0**-50) for a, b in zip(wide, imaginary, strict=True)]


@np.errstate(over="ignore")
def largest_token(factors: Sequence[Array], imaginary: Sequence[Array] | None) -> float:
    """What no |value| of a token exceeds, up to rounding: the largest modulus of every factor, multiplied and summed."""
    tops = [one.max(axis=tuple(range(one.ndim - 1))) for one in moduli(factors, imaginary)]
    return float(np.prod(np.stack(tops), axis=0).sum())
