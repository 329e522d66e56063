# mypy: ignore-errors
"""What compiled kernels share: options, types of arrays, and exp, bit for bit as windowed.exponential has it.

Importing this module or a kernel imports numba; a kernel compiles at its first import after an installation.
"""

from typing import Any

import numba as nb
import numpy as np

from maxaffine.runtime.windowed import LN2_HIGH, LN2_LOW, LOG2E, SHIFT, TAYLOR


def given(kind: Any, dimensions: int) -> Any:
    """The type of an array that is only read."""
    return nb.types.Array(kind, dimensions, "C", readonly=True)


OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy", "boundscheck": False}
INTEGER, OUT = nb.int64, nb.float64[:, ::1]
ROW, TABLE, INDICES, INDEX_TABLE = (given(kind, n) for kind in (nb.float64, nb.int64) for n in (1, 2))


@nb.njit(inline="always")
def exponential(y, powers):
    """exp(y) for |y| <= 350: 2^n times a Taylor polynomial of the rest."""
    n = np.floor(y * LOG2E + 0.5)
    r = (y - n * LN2_HIGH) - n * LN2_LOW
    v = TAYLOR[0]
    for k in range(1, len(TAYLOR)):
        v = v * r + TAYLOR[k]
    return v * powers[np.int64(n) + SHIFT]
