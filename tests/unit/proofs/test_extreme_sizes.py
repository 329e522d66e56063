"""Targets of extreme size: near the smallest numbers of a dtype a bound still holds."""

import numpy as np
import pytest

from maxaffine import Box, compile
from maxaffine.core.errors import Refused


@pytest.mark.parametrize("method", ["piecewise", "axis"])
@pytest.mark.parametrize(
    ("text", "dtype", "error"), [("abs(x)*1e-40", "float32", 1e-43), ("abs(x)*1e-200*1e-116", "float64", 1e-319)]
)
def test_a_bound_among_subnormal_numbers_counts_what_underflows(method, text, dtype, error):
    if method == "piecewise" and dtype == "float64":
        with pytest.raises(Refused, match="beyond the range"):
            compile(text, Box(x=(-1, 1)), error=error, method=method, dtype=dtype)
        return
    compiled = compile(text, Box(x=(-1, 1)), error=error, method=method, dtype=dtype)
    x = np.concatenate([np.linspace(-1, 1, 4001), np.linspace(-0.02, 0.02, 4001)])[:, None]
    scale = 1e-40 if dtype == "float32" else 1e-316
    seen = np.abs(np.asarray(compiled(x), dtype=np.longdouble) - np.abs(x[:, 0]).astype(np.longdouble) * np.longdouble(scale))
    assert compiled.bound is not None and float(seen.max()) <= compiled.bound


def test_a_target_that_is_zero_on_its_box_is_compiled():
    compiled = compile("(abs(x) - x) * abs(x)", Box(x=(0, 1)), error=0.05)
    assert compiled.bound is not None and compiled.bound <= 0.05
    assert float(np.abs(compiled([[0.3], [1.0]])).max()) <= compiled.bound
