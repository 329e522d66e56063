"""The series of proofs/short_series.py against balls: no error is larger than what is proved, and what is proved is no guess."""

import flint
import numpy as np
import pytest

from maxaffine.core.errors import BadInput
from maxaffine.proofs.short_series import ENDS, of_length, series

COUNTS = {"exp": (1, 3, 6, 9, 12), "sin": (1, 2, 4, 6, 8), "atan": (1, 3, 7, 12, 20)}
CASES = [(name, count, dtype) for name, counts in COUNTS.items() for count in counts for dtype in ("float64", "float32")]


def away(name: str, coefficients: tuple[float, ...], r: float) -> float:
    """|g - P| at r, by balls of 200 bits."""
    with flint.ctx.workprec(200):
        ball = flint.arb(r)
        s = ball if name == "exp" else ball * ball
        total = flint.arb(0)
        for c in coefficients[::-1]:
            total = total * s + c
        if name == "exp":
            return float(abs(ball.exp() - total).mid())
        exact = ball.sin() if name == "sin" else ball.atan()
        return float(abs(exact - ball * (1 + s * total)).mid())


def points(name: str) -> np.ndarray:
    """Over the interval of r, ends included."""
    low, high = (float(end) for end in ENDS[name])
    return np.linspace(low, high, 801) if name == "exp" else np.sqrt(np.linspace(low, high, 801))


@pytest.mark.parametrize(("name", "count", "dtype"), CASES)
def test_no_error_exceeds_what_is_proved_and_half_of_it_is_reached(name, count, dtype):
    coefficients, error = of_length(name, count, dtype)
    seen = max(away(name, coefficients, float(r)) for r in points(name))
    assert 0.5 * error <= seen <= error


@pytest.mark.parametrize("name", ["exp", "sin", "atan"])
def test_float32_coefficients_are_float32_numbers(name):
    coefficients, _ = of_length(name, 6, "float32")
    assert all(float(np.float32(c)) == c for c in coefficients)


@pytest.mark.parametrize("name", ["exp", "sin", "atan"])
def test_the_series_that_is_asked_for_is_the_shortest(name):
    found = series(name, 1e-5)
    assert found is not None
    coefficients, error = found
    assert error <= 1e-5 < of_length(name, len(coefficients) - 1)[1]


def test_what_no_series_reaches_is_said():
    assert series("sin", 1e-12, "float32") is None
    coefficients, error = series("sin", None, "float32")
    assert error < 2.0**-24 and len(coefficients) <= 6


def test_other_functions_are_refused():
    with pytest.raises(BadInput, match=r"`name` \(='tan'\) must be one of exp, sin, atan"):
        of_length("tan", 3)
