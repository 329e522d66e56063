"""Observed L_p errors: estimates that are right on average, with a standard error that is honest."""

import math
from functools import partial

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.heads.lookup.build import build_grid
from maxaffine.heads.lookup.plan import GridPlan
from maxaffine.proofs.observe import Observed
from maxaffine.proofs.observe_integral import observe_integral
from maxaffine.runtime import chooser
from maxaffine.target.target import Target

STEP = "where(x**2 + y**2 < 1, 1, 0) - .7*where(x + .3*y > .4, 1, 0)"
SQUARE = ma.Box(x=(-2, 2), y=(-2, 2))


def coarse_lookup(p):
    target = Target.of(STEP, SQUARE)
    return target, build_grid(GridPlan("L_p", (9, 9), 24.0, math.nan, norm=p), target, "float64")


def midpoint_rule(target, layer, p, side=1500):
    axis = -2.0 + 4.0 * (np.arange(side) + 0.5) / side
    x = np.stack([a.ravel() for a in np.meshgrid(axis, axis)], axis=1)
    away = np.abs(chooser.evaluate(layer, x) - target.values(x))[:, 0, 0]
    return float((away**p).mean() * 16.0) ** (1.0 / p)


@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("flops", [4_000, 10**6])
def test_jumps_are_estimated_without_bias_and_the_standard_error_says_how_well(p, flops):
    target, layer = coarse_lookup(p)
    rule = midpoint_rule(target, layer, p)
    seen = [observe_integral(partial(chooser.evaluate, layer), target, layer, p, seed, flops) for seed in range(8)]
    off = np.array([(one.error - rule) / one.standard_error for one in seen])
    assert abs(off.mean()) < 5.0 / math.sqrt(len(seen)) + 1e-4 * rule / min(one.standard_error for one in seen)
    assert 0.3 < math.sqrt((off**2).mean()) < 3.0
    assert all(one.standard_error < (0.005 if flops == 4_000 else 0.05) * rule for one in seen)


@pytest.mark.parametrize(("text", "area"), [("sign(x)", 4.0), ("sign(x + y - 3.5)", 0.5), ("sign(x - 2*y)", 2.0)])
def test_the_profile_across_a_jump_is_integrated_with_the_density_of_the_box(text, area):
    # The layer is tanh(a t) across the jump at t = 0, and the integral of |sign - tanh(a t)| over all t is 2 log 2 / a;
    # `area` is how much of the box's area there is per unit of t at the jump.
    layer = ma.compile(text, SQUARE, error=0.05, norm=1)
    assert layer.method == "axis"
    x = np.array({"sign(x)": [0.0, 0.0], "sign(x + y - 3.5)": [1.75, 1.75], "sign(x - 2*y)": [0.0, 0.0]}[text])
    w = np.array({"sign(x)": [1.0, 0.0], "sign(x + y - 3.5)": [1.0, 1.0], "sign(x - 2*y)": [1.0, -2.0]}[text])
    t = 10.0 ** np.linspace(-12, -0.5, 400)
    values = layer(x + t[:, None] * w / (w @ w))
    middle = int(np.abs(values - 0.5).argmin())
    a = math.atanh(float(values[middle])) / t[middle]
    assert layer.observed.error == pytest.approx(2 * math.log(2) / a * area, rel=0.03)
    assert layer.observed.standard_error is None and layer.observed.error <= layer.bound


def test_an_estimate_keeps_its_standard_error_in_its_record_and_older_records_are_read():
    made = Observed(0.5, (0.0,), 10, 0, 1.0, 0.01)
    assert Observed.from_json(made.to_json()) == made and made.to_json()["standard_error"] == 0.01
    old = {"error": 0.5, "at": [0.0], "points": 10, "seed": 0, "norm": 1.0}
    assert Observed.from_json(old).standard_error is None
    assert "standard_error" not in Observed(0.5, (0.0,), 10, 0).to_json()


def test_the_report_says_that_the_number_is_an_estimate(tmp_path):
    layer = ma.compile(STEP, SQUARE, error=0.8, norm=1, method="lookup")
    line = next(row for row in str(layer.explain()).splitlines() if row.startswith("observed"))
    assert " +- " in line and "(standard error), estimated from" in line and line.endswith("(not a bound)")
    assert layer.to_json()["observed_standard_error"] == layer.observed.standard_error > 0
    layer.save(tmp_path / "f.safetensors")
    assert ma.load(tmp_path / "f.safetensors").observed == layer.observed
    sup = ma.compile("x*y", SQUARE, error=0.1)
    assert "estimated" not in sup.explain() and sup.to_json()["observed_standard_error"] is None


def test_a_polygon_of_few_edges_is_seen_whole_and_one_of_many_across_its_edges():
    few = ma.compile("where(x**2 + y**2 < 0.489, 1, 0)", ma.Box(x=(-1, 1), y=(-1, 1)), error=0.8, norm=1, method="level")
    axis = (np.arange(1500) + 0.5) / 750 - 1.0
    x = np.stack([a.ravel() for a in np.meshgrid(axis, axis)], axis=1)
    rule = 4.0 * float(np.abs(few(x) - few.target.values(x)[:, 0, 0]).mean())
    assert few.tokens < 10 and few.observed.error == pytest.approx(rule, rel=0.01)
    many = ma.compile("where(x**2 + y**2 < 1, 1, 0)", SQUARE, error=0.01, norm=1, method="level")
    assert many.observed.standard_error is None and 0.0075 < many.observed.error < 0.0085
