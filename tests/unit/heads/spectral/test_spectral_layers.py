"""Spectral layers from end to end: the tokens promised, proofs close to the truth, dtypes, refusals and their reasons."""

import math

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.attack.search import worst_point
from maxaffine.core.errors import Refused
from maxaffine.heads.spectral.directions import spectral_plans
from maxaffine.runtime import chooser
from maxaffine.target.target import Target

PI = math.pi
FRANKE = (
    "0.75*exp(-((9*x-2)**2+(9*y-2)**2)/4) + 0.75*exp(-(9*x+1)**2/49-(9*y+1)/10)"
    " + 0.5*exp(-((9*x-7)**2+(9*y-3)**2)/4) - 0.2*exp(-(9*x-4)**2-(9*y-7)**2)"
)


def box(names, low, high):
    return ma.Box(**dict.fromkeys(names, (low, high)))


PROMISED = [
    ("sin(x)+cos(y)", box("xy", -PI, PI), 1e-2, 16, 1.3),
    ("sin(x)+cos(y)", box("xy", -PI, PI), 1e-6, 26, 1.3),
    ("sin(x)+cos(y)", box("xy", -PI, PI), 1e-10, 20, 2.2),  # half of its bound is rounding
    ("sin(x)*cos(y)", box("xy", -PI, PI), 1e-4, 81, 1.3),
    ("exp(-x**2-y**2-z**2)", box("xyz", -2, 2), 1e-4, 1331, 1.6),
    (FRANKE, box("xy", 0, 1), 1e-2, 121, 1.3),
    ("1/(1+25*x**2)", box("x", -1, 1), 1e-4, 32, 1.3),
    ("tanh(5*(x+y))", box("xy", -1, 1), 1e-6, 40, 1.3),
    ("exp(-(x-y)**2)", box("xy", -1, 1), 1e-6, 16, 1.3),
    ("x*y", box("xy", -1, 1), 1e-8, 16, 1.3),
]


@pytest.mark.parametrize("text, on, error, most, ratio", PROMISED, ids=lambda value: str(value)[:24])
def test_the_tokens_promised_suffice_and_the_proof_is_close_to_the_truth(text, on, error, most, ratio):
    layer = ma.compile(text, on, error=error, require="proved", method="spectral")
    assert layer.tokens <= most and layer.bound <= error and layer.certificate.kind == "proved"
    runtimes = chooser.available(layer.weights)
    found = max(worst_point(layer.weights, layer.target, np.random.default_rng(0), runtime).error for runtime in runtimes)
    # far below the error asked for a proof looks at fewer points, and its bound is looser
    assert found <= layer.bound <= max(ratio * max(found, layer.observed.error), error / 5.0)


def test_six_variables_are_proved_factor_by_factor():
    names = [f"x{i}" for i in range(1, 7)]
    text = "exp(-(" + "+".join(f"{name}**2" for name in names) + "))"
    layer = ma.compile(text, box(names, -1, 1), error=1e-6, require="proved")
    assert layer.tokens == math.prod(layer.weights.groups[0].shape) > 10_000 and layer.weights.nbytes < 10_000
    x = layer.box.sample(3000, np.random.default_rng(0))
    x[:64] = np.sign(x[:64])
    assert np.abs(layer(x) - np.exp(-(x**2).sum(axis=1))).max() <= layer.bound <= 1e-6


def test_sines_of_eight_variables_are_one_sum_head():
    names = [f"x{i}" for i in range(1, 9)]
    text = " + ".join(f"sin({i}*x{i})" for i in range(1, 9))
    layer = ma.compile(text, box(names, -1, 1), error=1e-4, require="proved")
    assert layer.tokens <= 8 * 14 and len(layer.weights.groups) == 8
    x = layer.box.sample(2000, np.random.default_rng(0))
    for runtime in ("dense", "factorised"):
        assert np.abs(layer(x, runtime=runtime) - layer.target.values(x)[:, 0, 0]).max() <= layer.bound


@pytest.mark.parametrize("text, on, error, dtype", [
    ("sin(x)+cos(y)", box("xy", -PI, PI), 1e-4, "float32"),
    ("sin(x)+cos(y)", box("xy", -PI, PI), 5e-2, "bfloat16"),
    ("tanh(2*x-y)", box("xy", -1, 1), 5e-2, "bfloat16"),
    ("sin(x-1000)*cos(y)", ma.Box(x=(1000, 1001), y=(-1, 1)), 1e-3, "float32"),
])  # fmt: skip
def test_narrow_dtypes_are_proved_and_keep_their_bound(text, on, error, dtype):
    layer = ma.compile(text, on, error=error, dtype=dtype, require="proved", method="spectral")
    assert layer.weights.groups[0].axes[0].slopes.dtype.name == dtype
    for runtime in ("dense", "factorised"):
        assert worst_point(layer.weights, layer.target, np.random.default_rng(1), runtime).error <= layer.bound <= error


@pytest.mark.parametrize("text, on, error, dtype, words", [
    ("sin(x)+cos(y)", box("xy", -PI, PI), 1e-9, "float32", "float32 can represent"),
    ("sin(x)+cos(y)", box("xy", -PI, PI), 1e-4, "bfloat16", "bfloat16 can represent"),
    ("abs(x)", box("x", -1, 1), 5e-2, "float64", "analytic|not smooth enough"),
    ("sin(x) + 1e9", box("x", -1, 1), 1e-9, "float64", "float64 can represent"),
])  # fmt: skip
def test_a_refusal_names_what_stands_in_the_way(text, on, error, dtype, words):
    with pytest.raises(Refused, match=words):
        ma.compile(text, on, error=error, dtype=dtype, method="spectral")


def test_plans_grow_and_say_how_their_keys_were_made():
    target = Target.of("sin(3*x) + cos(y)*sin(x)", box("xy", -1, 1))
    plans = list(spectral_plans(target, 1e-3, "float64"))
    assert plans and [plan.cells for plan in plans] == sorted({plan.cells for plan in plans})
    rows = plans[0].to_json()["groups"]
    assert all(axis["family"] in ("bernstein", "gaussian") for row in rows for axis in row["axes"])


def test_a_constant_part_far_from_zero_costs_rounding_and_no_more():
    plain = ma.compile("sin(x)", box("x", -1, 1), error=1e-8)
    lifted = ma.compile("sin(x) + 1000", box("x", -1, 1), error=1e-8)
    assert lifted.tokens <= plain.tokens + 2 and lifted.certificate.parts["rounding"] > plain.certificate.parts["rounding"]


def test_callables_are_proved_only_from_what_is_declared():
    """A ridge seen on samples is no fact: a bump that no sample sees must not be called proved."""

    def bumpy(x):
        return np.sin(x[:, 0] + x[:, 1]) + 0.5 * np.exp(-((x[:, 0] - 0.301) ** 2 + (x[:, 1] + 0.207) ** 2) / 0.02**2)

    facts = ma.Analytic(radii=1.05, bound=2000.0)
    try:
        layer = ma.compile(bumpy, box("xy", -1, 1), error=1e-3, trace=False, analytic=facts, method="spectral")
    except Refused:
        return
    assert (
        layer.certificate.kind != "proved"
        or abs(layer(np.array([0.301, -0.207])) - bumpy(np.array([[0.301, -0.207]]))[0]) <= layer.bound
    )


def test_an_analytic_callable_is_proved():
    layer = ma.compile(
        lambda x: np.exp(x[:, 0]) * np.cos(x[:, 1]), box("xy", -1, 1), error=1e-5, trace=False,
        analytic=ma.Analytic(radii=3.0, bound=60.0),
    )
    assert layer.certificate.kind == "proved"
    x = layer.box.sample(4000, np.random.default_rng(0))
    assert np.abs(layer(x) - np.exp(x[:, 0]) * np.cos(x[:, 1])).max() <= layer.bound


def test_four_variables_at_once_are_proved_and_checked_where_that_is_affordable(tmp_path):
    where = ma.Box(x=(-1, 1), y=(-1, 1), z=(-1, 1), w=(-1, 1))
    compiled = ma.compile("sin(x*y+z*w)", where, error=1e-1, method="spectral")
    assert compiled.method == "spectral" and compiled.certificate.kind == "proved" and compiled.tokens <= 120
    assert compiled.observed.error <= compiled.certificate.bound <= 1e-1
    compiled.save(tmp_path / "f.safetensors")  # the checker has confirmed it


def test_a_proof_that_would_take_too_many_points_is_refused():
    with pytest.raises(ma.Refused, match="more than -1 points"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("maxaffine.proofs.local_error.ALL_POINTS", -1)
        ma.compile("exp(x*y)", ma.Box(x=(-1, 1), y=(-1, 1)), error=1e-4, method="spectral")
