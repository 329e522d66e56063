"""Separated heads from request to file: proved, confirmed, true at points, tokens of any size, refusals in a sentence."""

import json
import math

import numpy as np
import pytest

import maxaffine as ma


def box(names, low, high):
    return ma.Box(**dict.fromkeys(names, (low, high)))


TEN = [f"x{i}" for i in range(1, 11)]
SQUARES = "+".join(f"{n}**2" for n in TEN)
CASES = [  # text, box, relative error, most numbers stored for factors
    (f"1/(1+{SQUARES})", box(TEN, -1, 1), 1e-4, 915 * 2),
    (f"exp(sin({SQUARES}))", box(TEN, -1, 1), 1e-2, 1108 * 2),
    ("tanh(a*c+b*d)", box("abcd", -1, 1), 1e-4, 568 * 2),
    ("q1*q2*r/(4*pi*e0*r**3)", box(("q1", "q2", "e0", "r"), 1, 5), 1e-4, 200),
    ("(m1*r1+m2*r2)/(m1+m2)", box(("m1", "m2", "r1", "r2"), 1, 5), 1e-4, 200),
    ("n0*exp(-m*g*x/(kb*T))", box(("n0", "m", "g", "x", "kb", "T"), 1, 5), 1e-2, 900),
]


@pytest.mark.parametrize(("text", "where", "error", "numbers"), CASES, ids=[case[0][:24] for case in CASES])
def test_formulas_are_proved_confirmed_and_true(text, where, error, numbers, tmp_path):
    layer = ma.compile(text, where, error=error, relative=True, method="separated")
    assert layer.certificate.kind == "proved" and layer.bound <= layer.error
    (group,) = layer.weights.groups
    assert sum(f.size for f in group.factors) * (1 if group.imaginary is None else 2) <= numbers
    rng = np.random.default_rng(1)
    x = np.concatenate(
        [
            rng.uniform(where.low, where.high, (4000, where.dimension)),
            rng.choice([0, 1], (64, where.dimension)) * (where.high - where.low) + where.low,
        ]
    )
    exact = layer.target.values(x).ravel()
    assert np.abs(np.ravel(layer(x)) - exact).max() <= layer.bound
    layer.save(tmp_path / "f.safetensors")
    verdict = ma.check(tmp_path / "f.safetensors")
    assert verdict.passed and verdict.bound <= layer.error
    again = ma.load(tmp_path / "f.safetensors")
    assert np.array_equal(np.ravel(again(x)), np.ravel(layer(x)))


def test_tokens_of_many_variables_are_counted_exactly():
    names = [f"x{i}" for i in range(50)]
    layer = ma.compile("1/(1+" + "+".join(f"{n}**2" for n in names) + ")", box(names, -1, 1), error=1e-2)
    (group,) = layer.weights.groups
    assert layer.method == "separated" and layer.tokens == math.prod(len(axis) for axis in group.axes) > 10**35
    assert "e" in layer.explain().split(" tokens")[0].split()[-1]
    assert json.loads(json.dumps(layer.tokens)) == layer.tokens


def test_auto_takes_separated_heads_for_many_variables_and_not_for_few():
    assert ma.compile(f"1/(1+{SQUARES})", box(TEN, -1, 1), error=1e-2).method == "separated"
    assert ma.compile("sin(x)+cos(y)", box("xy", -3, 3), error=1e-4).method == "spectral"


def test_what_no_separation_holds_is_refused_with_the_directions():
    with pytest.raises(ma.Refused, match="directions"):
        ma.compile("1/(2+sin(a*b*c*d+a*h+b**2*h))", box("abcdh", -1, 1), error=1e-3, method="separated")


def test_four_directions_that_stay_together_are_held_as_one_block():
    text, names = "g/(5 + cos(a*b) + a*c*d + b*d*d)", "abcdg"
    made = ma.compile(text, dict.fromkeys(names, (0.0, 1.0)), error=0.05)
    verdict = made.check()
    assert made.method == "separated" and made.plan["choice"] == "fours" and made.plan["sizes"] == [4, 1]
    assert verdict.passed and verdict.confirmed and made.observed.error <= made.bound <= 0.05


def test_a_refusal_says_in_figures_what_was_missed():
    box = dict.fromkeys("abcdh", (0.0, 1.0))
    with pytest.raises(ma.Refused, match=r"5 directions \(a, b, c, d, h\) .* about \d+ x .* = [\d,]+, and blocks of more than 4"):
        ma.compile("sin(a*b + exp(c*d) + a*h*c*b)", box, error=1e-4)


def test_explain_says_how_a_formula_was_taken_apart():
    text = ma.compile("h/(a*b+c*d)", box("abcdh", 1, 3), error=1e-3).explain()
    assert "products over" in text and "exponential" in text and "by sums of two products by their ratio" in text


def test_inner_sums_far_from_nought_are_covered():
    names = "abcd"
    layer = ma.compile(
        "log(a+b**2+c**2+d**2)", ma.Box(a=(1e6, 1e6 + 1e-3), b=(-1, 1), c=(-1, 1), d=(-1, 1)), error=1e-6, method="separated"
    )
    x = np.random.default_rng(0).uniform(layer.target.box.low, layer.target.box.high, (500, len(names)))
    assert np.abs(np.ravel(layer(x)) - layer.target.values(x).ravel()).max() <= layer.bound <= 1e-6


def test_a_cone_is_held_by_a_sum_of_gaussians():
    layer = ma.compile("sqrt((a-b)**2+(c-d)**2)", box("abcd", 1, 5), error=2e-2, relative=True, method="separated")
    tip = np.array([[2.0, 2.0, 3.0, 3.0], [1.0, 5.0, 1.0, 5.0]])
    assert np.abs(np.ravel(layer(tip)) - layer.target.values(tip).ravel()).max() <= layer.bound <= layer.error
