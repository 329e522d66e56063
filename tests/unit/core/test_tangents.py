"""The mean of tangent planes whose least value on a box is largest."""

import numpy as np
import pytest

from maxaffine.core.tangents import Tangents


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("E", [1, 2, 4])
def test_shares_of_growing_planes_reach_what_a_linear_program_finds(E: int, rounded: bool) -> None:
    from scipy.optimize import linprog

    rng = np.random.default_rng(E)
    size = rng.uniform(0.1, 3.0, E)
    planes, slopes, constants = Tangents(size), [], []
    for count in range(1, 25):
        slope, constant = 1e4 * rng.normal(size=E), 1e4 * rng.normal()
        if rounded:  # many ties
            slope, constant = 1e4 * np.rint(slope / 1e4), 1e4 * float(np.rint(constant / 1e4))
        slopes.append(slope)
        constants.append(constant)
        planes.add(constant, slope)
        if count % 6:
            continue
        found = planes.solve()
        assert found is not None
        shares, z = found
        reached = float(shares @ constants) - float(np.abs(shares @ np.array(slopes)) @ size)
        rows = np.concatenate([np.array(slopes), -np.ones((count, 1))], axis=1)
        bounds = [*((-s, s) for s in size), (None, None)]
        least = linprog([*([0.0] * E), 1.0], A_ub=rows, b_ub=-np.array(constants), bounds=bounds)
        assert np.all(shares >= 0.0) and float(shares.sum()) == pytest.approx(1.0, abs=1e-12)
        assert reached == pytest.approx(least.fun, abs=1e-6)
        assert np.all(np.abs(z) <= size * (1 + 1e-9))
        assert float((np.array(constants) + np.array(slopes) @ z).max()) == pytest.approx(least.fun, abs=1e-6)
