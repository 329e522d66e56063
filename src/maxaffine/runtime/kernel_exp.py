# mypy: ignore-errors
"""What compiled kernels share: options, types of arrays, and exp, bit for bit as windowed.exponential has it.

Importing this module or a kernel imports numba; a kernel compiles at its first import after an installation.
"""

from typing import Any

import numba as nb
import numpy as np

from maxaffine.runtime.windowed import LN2_HIGH, LN2_LOW, LOG2E, TAYLOR


def given(kind: Any, dimensions: int) -> Any:
    """The type of an array that is only read."""
    return nb.types.Array(kind, dimensions, "C", readonly=True)


OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy", "boundscheck": False}
INTEGER, OUT = nb.int64, nb.float64[:, ::1]
ROW, TABLE, INDICES, INDEX_TABLE = (given(kind, n) for kind in (nb.float64, nb.int64) for n in (1, 2))


# 1.5 2^52: added to a whole number, it leaves that number in the last bits, where two shifts make 2^n of it without a table.
WHOLE = np.float64(6755399441055744.0)


@nb.njit(inline="always")
def exponential(y):
    """exp(y) for |y| <= 350: 2^n times a Taylor polynomial of the rest."""
    n = np.floor(y * LOG2E + 0.5)
    r = (y - n * LN2_HIGH) - n * LN2_LOW
    v = TAYLOR[0]
    for k in range(1, len(TAYLOR)):
        v = v * r + TAYLOR[k]
    bits = (np.float64(n + WHOLE).view(np.int64) + 1023) << 52
    return v * np.int64(bits).view(np.float64)
