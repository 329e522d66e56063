"""What once ended in a traceback or a false alarm: now a layer whose observed error is known, or one sentence."""

import json
import subprocess
import sys
from dataclasses import replace

import flint
import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core import balls
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.known_error import known_errors, worst_known
from maxaffine.proofs.observe import Observed
from maxaffine.report.text import observed_text
from maxaffine.runtime import grouped
from maxaffine.target.target import Target

FAR = ma.Box(x=(1e6, 1e6 + 1))
SQUARE = ma.Box(x=(0, 1), y=(0, 1))


def true_error(layer, x):
    """|layer(x) - f(x)| in a thousand bits."""
    with balls.precision(1000):
        (value,) = layer.target.expression.enclose_ball([flint.acb(float(v)) for v in x])
        return float(abs(value.real - flint.arb(float(layer(np.array([x]))[0]))).mid())


# ---------------------------------------------------------------------- observed errors are judged by enclosures


@pytest.mark.parametrize("text", ["abs(x-1000000.3)", "sin(x-1000000.3)"])
def test_a_true_layer_is_not_refuted_by_the_float64_value_of_a_literal(text):
    layer = ma.compile(text, FAR, error=1e-10)
    assert 0.0 < layer.observed.error <= layer.bound <= 1e-10
    assert layer.observed.error == pytest.approx(true_error(layer, layer.observed.at), rel=2e-3)


def test_beside_a_jump_the_observed_error_is_judged_by_enclosures_too():
    layer = ma.compile("where(x<1000000.3, x-1000000.3, 1)", FAR, error=1e-10, gap=1e-3)
    assert layer.observed.error <= layer.bound <= 1e-10
    assert ma.compile("where(x<1000000.3, x-1000000.3, 1)", FAR, error=1e-10, gap=0.6).observed.error == 0.0  # no point is left


@pytest.mark.parametrize("norm", [1, 2])
def test_an_integral_of_float64_noise_is_not_called_an_error(norm):
    layer = ma.compile("sin(x-1000000.3)", FAR, error=1e-10, norm=norm)
    assert 0.0 < layer.observed.error <= layer.bound <= 1e-10


def test_an_error_that_is_there_is_known():
    target = Target.of("abs(x-1000000.3)", FAR)
    x = np.linspace(1e6, 1e6 + 1, 101)[:, None]
    wrong = known_errors(lambda x: target.values(x) + 1e-9, target, x)
    assert np.all((wrong > 0.9e-9) & (wrong < 1.1e-9))
    right = known_errors(target.values, target, x)
    assert 0.0 < right.max() < 1e-10
    broken = known_errors(lambda x: np.full((len(x), 1, 1), np.nan), target, x)
    assert np.all(np.isinf(broken))


def test_where_branches_meet_intervals_say_what_balls_do_not():
    target = Target.of("max(x, y)", SQUARE)
    x = np.array([[0.5, 0.5], [0.25, 0.25]])
    assert known_errors(lambda x: target.values(x) + 0.125, target, x) == pytest.approx(0.125)


def test_a_callable_is_judged_by_its_own_values():
    target = Target.of(lambda x: x[:, 0], ma.Box(x=(0, 1)))
    x = np.array([[0.25], [0.75]])
    error, at = worst_known(lambda x: target.values(x) + x[:, :, None], target, x, x[:, 0])
    assert (error, at[0]) == (0.75, 0.75)


# ---------------------------------------------------------------------- equations hold on null sets


@pytest.mark.parametrize("norm", [1, 2])
def test_a_value_on_a_curve_alone_costs_nothing_in_the_integral(norm):
    layer = ma.compile("where(x*y==0.5, 1, 0)", SQUARE, error=1e-2, norm=norm)
    assert layer.bound <= 1e-2 and layer.observed.error == 0.0


@pytest.mark.parametrize("text", ["where(x==y,1,0)", "where(x!=y,1,0)", "where(x==y,1,0)+where(x*y==0.5,1,0)"])
def test_equations_in_switches_and_sums_compile(text):
    layer = ma.compile(text, SQUARE, error=5e-2, norm=1)
    assert layer.observed.error <= layer.bound <= 5e-2
    assert ma.compile(text, SQUARE, error=5e-2, norm=1, dtype="float32").bound <= 5e-2


# ---------------------------------------------------------------------- numbers at the end of float64


@pytest.mark.parametrize(
    ("text", "box", "error"),
    [
        ("x", ma.Box(x=(0, 1e-310)), 1e-312),
        ("abs(x)", ma.Box(x=(-1e-320, 1e-320)), 1e-321),
        ("abs(x)", ma.Box(x=(-1e-320, 1e-320)), 0.1),
        ("max(x, y)", ma.Box(x=(0, 1), y=(-1e-300, 1e-300)), 1e-302),
        ("max(x, y)", ma.Box(x=(-1e-200, 1e-200), y=(-1e-200, 1e-200)), 1e-202),
    ],
)
@pytest.mark.parametrize("norm", ["inf", 1])
def test_a_box_too_narrow_for_float64_is_named_with_the_rule_and_a_way_out(text, box, error, norm):
    with pytest.raises(ma.BadInput, match=r"`box`: the edges of `[xy]` \(=.* apart, and float64 needs at least 1e-100; scale"):
        ma.compile(text, box, error=error, norm=norm)


def test_a_box_may_begin_next_to_zero():
    assert ma.compile("sqrt(x)", ma.Box(x=(1e-310, 1)), error=1e-3).bound <= 1e-3
    assert ma.compile("x", ma.Box(x=(-5e-324, 1)), error=1e-3, norm=1).bound <= 1e-3


@pytest.mark.parametrize("norm", ["inf", 1, 2])
@pytest.mark.parametrize("text", ["abs(x)", "x*y", "abs(x)+y*y"])
def test_the_narrowest_boxes_compile(text, norm):
    box = ma.Box(x=(-1e-100, 1e-100), y=(0, 1)) if "y" in text else ma.Box(x=(-1e-100, 1e-100))
    layer = ma.compile(text, box, error=0.1, norm=norm)
    assert layer.observed.error <= layer.bound <= 0.1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_box_too_narrow_for_the_dtype_is_refused_with_the_dtype_that_can(dtype):
    with pytest.raises(ma.Refused, match=rf"`box`: the edges of `x` .* and {dtype} needs at least 1e-30; .* float64"):
        ma.compile("abs(x)", ma.Box(x=(-1e-42, 1e-42)), error=1e-44, dtype=dtype)


def test_what_float64_cannot_integrate_is_refused_and_never_bounded_by_zero():
    with pytest.raises(ma.Refused, match=r"`norm` .* volume 8e-300"):
        ma.compile("max(x, y, z)", ma.Box.named(("x", "y", "z"), -1e-100, 1e-100), error=0.1, norm=1)
    with pytest.raises(ma.Refused, match=r"`error` .*below what float64 can integrate in L_2"):
        ma.compile("1e-200*abs(x)", ma.Box(x=(-1, 1)), error=1e-202, norm=2)
    with pytest.raises(ma.Refused, match=r"float64 can integrate in L_32.* The nearest error within reach is about 1\.2e-08"):
        ma.compile("exp(x)", ma.Box(x=(0, 1)), error=1e-10, norm=32)
    lost = Certificate.proved(32.0, {"rounding": 0.0})
    assert lost.bound >= 7.4e-9 and lost.bound == pytest.approx(sum(lost.parts.values()))
    assert Certificate.proved(np.inf, {"rounding": 1e-320}).bound < 1e-319


def test_the_command_line_answers_bad_boxes_with_one_sentence_and_exit_2():
    command = [sys.executable, "-m", "maxaffine", "compile", "x", "--box", "x=0:1e-310", "--error", "1e-312"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "scale the variable" in done.stderr and not done.stdout


# ---------------------------------------------------------------------- estimates


def test_an_estimate_above_its_bound_by_noise_says_so():
    layer = ma.compile("sign(x-.3)+y*y", SQUARE, error=1e-2, norm=2)
    # the case that was met with other points: half of the estimate is its standard error
    seen = replace(layer.observed, error=1.4 * float(layer.bound), standard_error=0.7 * float(layer.bound))
    layer = replace(layer, observed=seen)
    assert seen.error > layer.bound > seen.surely
    told = layer.explain()
    assert f"{seen.standard_error:.1g} (standard error)" in told and "above the bound by the noise of the estimate alone" in told
    assert layer.to_json()["observed_standard_error"] == seen.standard_error
    json.dumps(layer.to_json(), allow_nan=False)


def test_more_than_noise_is_not_excused():
    far = Observed(1.0, (0.0,), 100, 0, 1.0, 0.01)
    assert far.surely == pytest.approx(0.96) and "noise" not in observed_text(far, 0.9) and "noise" in observed_text(far, 0.97)
    assert "noise" not in observed_text(Observed(1.0, (0.0,), 100, 0, 1.0), 0.9)
    assert Observed(1.0, (0.0,), 100, 0).surely == 1.0


# ---------------------------------------------------------------------- batches


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("text", "error"), [("abs(x-.3)+sin(3*y)", 1e-9), ("max(x,y)+sin(3*x+2*y)+exp(x-y)", 1e-6), ("abs(x)+exp(y)*cos(y*z)", 1e-4)]
)
def test_sums_with_smooth_parts_have_the_same_bits_in_every_batch(text, error, dtype):
    names = [name for name in "xyz" if name in text.replace("exp", "").replace("max", "")]
    box = ma.Box.named(names, -1.0, 1.0)
    layer = ma.compile(text, box, error=error if dtype == "float64" else max(error, 1e-3), method="sums", dtype=dtype)
    assert grouped.in_order(layer.weights) and "the same bits in every batch" in layer.explain()
    x = box.sample(5_000, np.random.default_rng(0))
    whole = layer(x)
    for size in (1, 2, 3, 17, 256, 1999):
        assert np.array_equal(np.concatenate([layer(x[i : i + size]) for i in range(0, 2000, size)])[:2000], whole[:2000])


def test_tables_that_are_left_to_a_blas_claim_no_bits(monkeypatch):
    layer = ma.compile("abs(x-.3)+sin(3*y)", ma.Box(x=(-1, 1), y=(-1, 1)), error=1e-6, method="sums")
    x = layer.target.box.sample(300, np.random.default_rng(0))
    ordered = layer(x)
    monkeypatch.setattr(grouped, "SMALL", 0)
    assert "batches differ by rounding alone, which the bound counts" in layer.explain()
    assert np.abs(layer(x) - ordered).max() <= layer.bound
