"""Products relative to |f(x)|: fits by the sizes of factors, bounds factor by factor, and where only absolute ones hold."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import Refused
from maxaffine.heads.separated.prove import Factors
from maxaffine.heads.separated.relative import _apart, _cells, _grown, certify_relative
from maxaffine.heads.separated.relative_fit import RelativeCurve
from maxaffine.heads.spectral.fit import AxisCurve
from maxaffine.proofs.pointwise import Pointwise
from maxaffine.structure.exponential_sums import rows


def _power(p, low=1.0, high=10.0):
    return lambda z: ((high + low) / 2 + (high - low) / 2 * z[:, None]) ** float(p)


def _compiled(text, box, error, **more):
    return ma.compile(text, box, error=error, relative="pointwise", method="separated", **more)


@pytest.fixture(scope="module")
def fifteen_decades():
    return _compiled("a**4*c**3/(b**4*d**4)", dict.fromkeys("abcd", (1.0, 10.0)), 1e-3)


def test_a_relative_fit_follows_small_values():
    f = _power(-4)
    relative, absolute = RelativeCurve(f, f, 1e-4, "float64"), AxisCurve(f, 1e-8, "float64")
    few, many = relative.smallest(1e-4, start=1, most=96), absolute.smallest(1e-8, start=1, most=96)
    assert few is not None
    assert len(few) <= 40
    assert many is None or len(many) > len(few)
    z = np.linspace(-1, 1, 999)
    keys = few.axis.keys
    scores = np.multiply.outer(z, keys.slopes) + keys.offsets
    mass = np.exp(scores - scores.max(axis=1, keepdims=True))
    away = np.abs(mass @ few.values / mass.sum(axis=1, keepdims=True) - f(z)) / f(z)
    assert away.max() <= 1.2e-4


def test_one_key_takes_the_value_whose_relative_error_is_least():
    fit = RelativeCurve(_power(1, 1.0, 3.0), _power(1, 1.0, 3.0), 1.0, "float64").best(1)
    assert float(fit.values[0, 0]) == pytest.approx(1.5, rel=1e-2)
    assert fit.error == pytest.approx(0.5, rel=1e-2)


def test_a_product_over_fifteen_decades_is_proved_relative_to_itself(fifteen_decades):
    c = fifteen_decades
    assert c.plan["relative"] is True
    assert c.bound <= 1e-3
    x = c.box.sample(20_000, np.random.default_rng(3))
    x[:5000] = np.where(np.random.default_rng(4).random((5000, 4)) < 0.5, c.box.low, c.box.high)
    exact = c.target.values(x).ravel()
    assert exact.max() / exact.min() > 1e14
    assert (np.abs(c(x) - exact) / exact).max() <= c.bound
    assert c.check().passed


def test_every_factor_counts_in_the_bound(fifteen_decades):
    found = fifteen_decades.found
    (group,) = found.layer.products()
    before = certify_relative(found.layer, found.plan, asked := _asked(fifteen_decades)).parts["approximation"]
    for b in range(4):
        factors = list(group.factors)
        factors[b] = factors[b] * (1 + 3e-3)
        moved = _with_factors(found.layer, group, factors)
        after = certify_relative(moved, found.plan, asked).parts["approximation"]
        assert after >= before + 1.5e-3


def _asked(c):
    return Pointwise(c.error, c.certificate.least)


def _with_factors(layer, group, factors):
    return replace(layer, groups=(replace(group, factors=tuple(factors)),))


def test_rows_are_multiplied_out():
    assert _grown(np.array([[0.1, 0.2], [0.0, 0.3]])) == pytest.approx(1.1 * 1.2 - 1)


def test_what_may_be_zero_is_no_factor():
    assert _apart(-3.0, -2.0, "it") == (2.0, -1)
    with pytest.raises(Refused, match="stay away from 0"):
        _apart(-1.0, 2.0, "it")


def test_cells_cover_the_range_and_the_factor_changes_little_on_each(fifteen_decades):
    found = fifteen_decades.found
    (group,) = found.layer.products()
    (row,) = rows(found.plan.separation, found.plan.sums)
    cells = sorted(_cells(Factors(group, found.plan), row.modulus[0], 0))
    assert cells[0][0][0] == -1.0
    assert cells[-1][0][1] == 1.0
    assert all(one[0][1] == two[0][0] for one, two in itertools.pairwise(cells))
    assert len(cells) > 8


@pytest.mark.parametrize(
    ("text", "ends", "turning"),
    [
        ("a**3*b**2/(c**2 + d**2 + g**2 + h**2)", (1.0, 2.0), False),
        ("a**3*b**2/(1 + (c**2 + d**2 + g**2 + h**2)**2)", (0.0, 1.0), True),
    ],
)
def test_outer_functions_are_followed_relative_to_themselves(text, ends, turning):
    c = _compiled(text, {**dict.fromkeys("ab", (1.0, 10.0)), **dict.fromkeys("cdgh", ends)}, 1e-2)
    assert c.plan["relative"] is True
    assert c.certificate.details["exponential_sums"] > 0.0
    assert (c.weights.products()[0].imaginary is not None) == turning
    assert c.observed.error <= c.bound <= 1e-2
    assert c.check().confirmed


def test_terms_of_both_signs_are_bounded_by_the_least_size_only():
    c = _compiled("a*b - c", {"a": (2.0, 4.0), "b": (2.0, 4.0), "c": (0.0, 1.0)}, 1e-3)
    assert "relative" not in c.plan
    assert c.bound <= 1e-3
    with pytest.raises(Refused, match="terms of one sign"):
        _compiled("a**8*b**8 - c", {"a": (2.0, 20.0), "b": (2.0, 20.0), "c": (0.5, 1.0)}, 1e-4)


def test_a_factor_of_many_decades_in_many_directions_is_refused_by_name():
    with pytest.raises(Refused, match=r"depends on 5 directions together spans 5\d decades"):
        _compiled("n*exp(-m*g*x/(k*T))", dict.fromkeys("nmgxkT", (1.0, 5.0)), 1e-2)


def test_rounding_of_small_factors_is_counted(fifteen_decades):
    parts = fifteen_decades.certificate.parts
    assert 2.0**-53 < parts["rounding"] < 1e-6
    assert math.fsum(parts.values()) == pytest.approx(fifteen_decades.bound)
