"""The mean of tangent planes whose least value on a box is largest: a linear program in few variables, grown plane by plane.

    max over l >= 0, sum l = 1:    sum_i l_i c_i - sum_e size_e |sum_i l_i s_ie|,       planes c_i + s_i . z, |z_e| <= size_e

By duality that is the least value of the planes' maximum, and the dual variables are the place z where it is taken.  The simplex
method keeps its basis from plane to plane, so that a further one costs a pivot or two; loading SciPy's solvers takes longer than
all of it.  Nobody has to believe the shares: any of them give a lower bound, which the caller adds up.
"""

import numpy as np

from maxaffine.core.arrays import Array

PIVOTS, DANTZIG = 400, 60  # pivots of a plane at most, and how many of them may go by the largest gain: later ones cannot cycle
FINE = 1e-11  # of the largest number, below which a gain is rounding


class Tangents:
    """Planes c + s . z over |z_e| <= size_e."""

    def __init__(self, size: Array) -> None:
        E = len(size)
        self.size = np.asarray(size, dtype=np.float64)
        # columns: how far the mean slope is above and below zero, then one per plane; rows: sum of shares, mean slopes
        self._columns = np.concatenate([np.zeros((1, 2 * E)), np.concatenate([np.eye(E), -np.eye(E)], axis=1)])
        self._gains = -np.concatenate([self.size, self.size])
        self._basis: list[int] = []

    def add(self, constant: float, slope: Array) -> None:
        """One more plane."""
        E = len(self.size)
        self._columns = np.concatenate([self._columns, np.array([1.0, *slope])[:, None]], axis=1)
        self._gains = np.append(self._gains, constant)
        if not self._basis:
            self._basis = [2 * E, *(e if slope[e] <= 0.0 else E + e for e in range(E))]

    def solve(self) -> tuple[Array, Array] | None:
        """Shares of the planes, and the place z; None where rounding stands in the way."""
        E = len(self.size)
        right = np.eye(E + 1)[0]
        fine = FINE * (1.0 + float(np.abs(self._gains).max()))
        for pivot in range(PIVOTS):
            try:
                inverse = np.linalg.inv(self._columns[:, self._basis])
            except np.linalg.LinAlgError:
                return None
            prices = self._gains[self._basis] @ inverse
            gain = self._gains - prices @ self._columns
            gain[self._basis] = 0.0
            shares = inverse @ right
            if not gain.max() > fine:
                found = np.zeros(len(gain))
                found[self._basis] = np.maximum(shares, 0.0)
                own = found[2 * E :]
                return (own / own.sum(), -prices[1:]) if own.sum() > 0.0 else None
            entering = int(gain.argmax()) if pivot < DANTZIG else int(np.flatnonzero(gain > fine)[0])
            step = inverse @ self._columns[:, entering]
            leaving = np.flatnonzero(step > 1e-12 * (1.0 + float(np.abs(step).max())))
            if not len(leaving):
                return None
            ratios = np.maximum(shares[leaving], 0.0) / step[leaving]
            close = leaving[ratios <= ratios.min() * (1 + 1e-12)]
            self._basis[min(close, key=lambda row: self._basis[row])] = entering
        return None
