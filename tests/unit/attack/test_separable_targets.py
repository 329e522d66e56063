"""Random formulas of many variables: finite on their box, of the sizes and kinds that they promise, drawn anew by every seed."""

import numpy as np
import pytest

from maxaffine.attack.separable_targets import KINDS, separated
from maxaffine.expression.expression import Expression


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.strip("_"))
def test_a_formula_is_finite_on_all_of_its_box(kind) -> None:
    rng = np.random.default_rng(3)
    for _ in range(40):
        text, sides = kind(rng)
        low, high = np.array(sides).T
        x = rng.uniform(low, high, (100, len(sides)))
        x[:50] = np.where(rng.random((50, len(sides))) < 0.5, low, high)
        values = Expression.parse(text, [f"x{i}" for i in range(1, len(sides) + 1)]).evaluate(x)
        assert np.isfinite(values).all(), text


def test_cases_have_three_to_twelve_variables_and_are_asked_for_digits_of_their_size() -> None:
    rng = np.random.default_rng(5)
    cases = [separated(rng) for _ in range(120)]
    assert {case.box.dimension for case in cases} >= set(range(3, 10)) and max(case.box.dimension for case in cases) == 12
    assert {case.method for case in cases} == {"separated"} and {case.dtype for case in cases} == {"float64", "float32"}
    for case in cases[:40]:
        size = np.abs(Expression.parse(case.text, case.box.names).evaluate(case.box.sample(500, rng))).max()
        assert 1e-7 * size < case.error < 20.0 * size, case.text
    assert separated(np.random.default_rng(1)) == separated(np.random.default_rng(1)) != separated(np.random.default_rng(2))
