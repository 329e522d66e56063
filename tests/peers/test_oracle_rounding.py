"""The rounding model against ball arithmetic with 120 digits: what every runtime does to the exact layer."""

import math

import flint
import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.rounding import DTYPES
from maxaffine.heads.lookup.build import build_grid
from maxaffine.heads.lookup.plan import GridPlan
from maxaffine.heads.lookup.prove_grid import certify_grid, runtime_rounding
from maxaffine.heads.lookup.prove_integral import certify_integral
from maxaffine.layer.keys import Coordinates, ListedKeys
from maxaffine.layer.layer import Layer
from maxaffine.proofs.observe import face_biased
from maxaffine.proofs.rounding import coordinate_error, offset_error, rounding_of
from maxaffine.runtime import chooser, softmax
from maxaffine.target.evidence import Evidence
from maxaffine.target.target import Target

arb = flint.arb


@pytest.fixture(autouse=True)
def many_digits():
    before = flint.ctx.dps
    flint.ctx.dps = 120
    yield
    flint.ctx.dps = before


def exact(number):
    """A floating-point number as a ball of radius zero."""
    return arb(float(number))


def exact_coordinates(layer, x):
    """z = M (x - centre), the stored numbers taken literally: list of E balls."""
    away = [one - exact(c) for one, c in zip(x, layer.coordinates.centre, strict=True)]
    return [sum((exact(m) * a for m, a in zip(row, away, strict=True) if m != 0), arb(0)) for row in layer.coordinates.matrix]


def exact_logits(layer, z, slopes, offsets):
    """sharpness (a_j . z + b_j) for every key, as balls."""
    sharpness = exact(layer.sharpness)
    rows = np.asarray(slopes, dtype=np.float64).reshape(len(offsets), -1)
    return [
        sharpness * (sum((exact(a) * one for a, one in zip(row, z, strict=True)), arb(0)) + exact(b))
        for row, b in zip(rows, np.asarray(offsets, dtype=np.float64), strict=True)
    ]


def exact_output(layer, x):
    """sum_j alpha_j y_j of the stored layer at the exact query, one ball per output entry."""
    z = exact_coordinates(layer, x)
    if layer.is_product:
        axes = [exact_logits(layer, [z[i]], axis.slopes, axis.offsets) for i, axis in enumerate(layer.axes)]
    else:
        axes = [exact_logits(layer, z, layer.keys.slopes, layer.keys.offsets)]
    values = layer.values.astype(np.float64)
    table = [[exact(v) for v in row] for row in values.reshape(-1, layer.d_out * layer.n_out)]
    for logits in reversed(axes):
        top = max(logits, key=lambda ball: float(ball.mid()))
        weight = [(one - top).exp() for one in logits]
        total = sum(weight, arb(0))
        K, P = len(table[0]), len(logits)
        table = [
            [sum((weight[j] * table[lead * P + j][k] for j in range(P)), arb(0)) / total for k in range(K)]
            for lead in range(len(table) // P)
        ]
    return table[0]


def grid_layer(dtype, counts=(6, 5), rho=20.0, text="sin(3*x) + 50*cos(y), x*y", low=(-1.0, 2.0), high=(0.5, 3.3)):
    box = ma.Box(x=(low[0], high[0]), y=(low[1], high[1]))
    target = Target.of(text, box)
    return build_grid(GridPlan("E1", counts, rho, math.nan), target, dtype), target


def listed_layer(dtype, seed=0, sharpness=300.0):
    rng = np.random.default_rng(seed)
    return Layer(
        Coordinates(np.array([5.0, -3.0]), np.diag([0.7, 1.3])), ListedKeys(rng.normal(size=(30, 2)), 0.3 * rng.normal(size=30)),
        sharpness, rng.normal(size=(30, 2, 1)), np.array([4.0, -4.0]), np.array([6.0, -2.0]), ((2, 1),), dtype,
    )  # fmt: skip


LAYERS = {
    "a coarse grid": lambda dtype: grid_layer(dtype)[0],
    "a sharp grid": lambda dtype: grid_layer(dtype, (40, 30), 200.0)[0],
    "a grid far from the origin": lambda dtype: grid_layer(
        dtype, (12, 9), 14.0, "sin(x) + cos(y), x", (1000, -2001), (1001, -2000)
    )[0],
    "a power diagram": listed_layer,
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", LAYERS)
def test_computed_coordinates_and_logits_are_within_eta_of_the_exact_ones(name, dtype):
    layer = LAYERS[name](dtype)
    x = face_biased(layer, 24, np.random.default_rng(1))
    z = softmax.coordinates(layer, x)
    reach, doubt = coordinate_error(layer)
    slopes, offsets = layer.keys.listed()
    computed = softmax.logits(layer, z, slopes, offsets)
    eta = rounding_of(layer, "dense").eta
    drift = layer.sharpness * offset_error(layer) if layer.is_product else 0.0
    assert drift <= eta or drift == 0.0
    per_axis = rounding_of(layer, "factorised").eta if layer.is_product else None
    # A query is a real number rounded once: the exact one lies up to half an ulp away.
    nudges = np.spacing(np.abs(x)) / 2 * np.random.default_rng(2).choice([-0.999, 0.0, 0.999], size=x.shape)
    keys = np.random.default_rng(3).choice(layer.keys.count, size=min(60, layer.keys.count), replace=False)
    largest = 0.0
    for point, nudge, row, found in zip(x, nudges, z, computed, strict=True):
        true = [exact(a) + exact(b) for a, b in zip(point, nudge, strict=True)]
        coordinates = exact_coordinates(layer, true)
        for ball, one, bound, most in zip(coordinates, row, doubt, reach, strict=True):
            assert abs(ball - exact(one)) <= bound
            assert abs(ball) <= most * (1 + 1e-9)
        for j, logit in zip(keys, exact_logits(layer, coordinates, slopes[keys], offsets[keys]), strict=True):
            away = abs(logit - exact(found[j]))
            assert away <= eta
            largest = max(largest, float(away.mid()))
        if layer.is_product:
            for i, axis in enumerate(layer.keys.axes):
                mine = softmax.logits(layer, np.array([row[i]]), axis.slopes, axis.offsets)[0]
                for logit, one in zip(exact_logits(layer, [coordinates[i]], axis.slopes, axis.offsets), mine, strict=True):
                    assert abs(logit - exact(one)) <= per_axis
    assert largest >= 1e-3 * eta  # a bound that is not a thousand times too large: dropping a term would be seen


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", LAYERS)
def test_ratios_of_computed_weights_are_within_two_eta_of_the_exact_ones(name, dtype):
    layer = LAYERS[name](dtype)
    x = face_biased(layer, 12, np.random.default_rng(4))
    slopes, offsets = layer.keys.listed()
    eta = rounding_of(layer, "dense").eta
    tiny = float(np.finfo(dtype).tiny)
    for point, weights in zip(x, softmax.attention(layer, x, "dense"), strict=True):
        z = exact_coordinates(layer, [exact(one) for one in point])
        heard = np.flatnonzero(weights > tiny)
        logits = exact_logits(layer, z, slopes[heard], offsets[heard])
        best = int(np.argmax(weights[heard]))
        for j, logit in zip(heard, logits, strict=True):
            ratio = (exact(weights[j]) / exact(weights[heard[best]])).log()
            assert abs(ratio - (logit - logits[best])) <= 2 * eta


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", LAYERS)
def test_the_weighted_sum_is_within_its_summation_bound_of_the_computed_weights(name, dtype):
    layer = LAYERS[name](dtype)
    x = face_biased(layer, 10, np.random.default_rng(5))
    values = layer.values.astype(np.float64).reshape(layer.keys.count, -1)
    largest = float(np.abs(values).max())
    weights = {"dense": softmax.attention(layer, x, "dense")}
    if layer.is_product:
        one, two = softmax.axis_weights(layer, x)
        weights["factorised"] = None
    for runtime in weights:
        out = chooser.evaluate(layer, x, runtime).reshape(len(x), -1)
        allowed = rounding_of(layer, runtime).summation * largest
        for b in range(len(x)):
            if runtime == "dense":
                w = [exact(v) for v in weights["dense"][b]]
            else:
                w = [exact(u) * exact(v) for u in one[b] for v in two[b]]
            total = sum(w, arb(0))
            for k in range(values.shape[1]):
                mean = sum((w[j] * exact(values[j, k]) for j in range(len(w))), arb(0)) / total
                assert abs(mean - exact(out[b, k])) <= allowed


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", LAYERS)
def test_every_runtime_is_within_its_rounding_of_the_exact_layer(name, dtype):
    layer = LAYERS[name](dtype)
    x = face_biased(layer, 8, np.random.default_rng(6))
    values = layer.values.astype(np.float64).reshape(layer.keys.count, -1)
    spread = float(np.ptp(values, axis=0).max())
    exacts = [exact_output(layer, [exact(one) for one in point]) for point in x]
    for runtime in chooser.available(layer):
        rounding = rounding_of(layer, runtime)
        allowed = math.expm1(2 * rounding.joint) * spread + runtime_rounding(layer, rounding)
        out = chooser.evaluate(layer, x, runtime).reshape(len(x), -1)
        for row, balls in zip(out, exacts, strict=True):
            for found, ball in zip(row, balls, strict=True):
                assert abs(ball - exact(found)) <= allowed


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_error_against_the_exact_target_is_within_the_certificate_for_every_real_query(dtype):
    text = "sin(3*x) + cos(y)/2, exp(x*y/4)"
    layer, target = grid_layer(dtype, (30, 20), 20.0, text)
    evidence = Evidence(lipschitz=np.array([4.0, 3.0]), origin={"lipschitz": "derived: by hand"})
    rng = np.random.default_rng(8)
    x = face_biased(layer, 60, rng)
    nudges = np.spacing(np.abs(x)) / 2 * rng.choice([-0.999, 0.0, 0.999], size=x.shape)
    for runtime in ("arrays", *chooser.available(layer)):
        certificate = certify_grid(layer, target, evidence, "E1", runtime=runtime)
        out = chooser.evaluate(layer, x, None if runtime == "arrays" else runtime).reshape(len(x), -1)
        for point, nudge, row in zip(x, nudges, out, strict=True):
            real = [flint.acb(exact(a) + exact(b)) for a, b in zip(point, nudge, strict=True)]
            for ball, found in zip(target.expression.enclose_ball(real), row, strict=True):
                assert abs(ball.real - exact(found)) <= certificate.bound


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_layer_that_is_exact_at_its_sites_has_nothing_but_the_rounding_part_there(dtype):
    # At a site of a sharp grid the approximation error is gone: what is left must be covered by rounding alone.
    layer, target = grid_layer(dtype, (9, 7), 400.0, "3000 + x + y")
    certificate = certify_grid(layer, target, Evidence(lipschitz=np.ones(2)), "E1")
    scale, centre = np.diag(layer.coordinates.matrix), layer.coordinates.centre
    i, j = np.meshgrid(np.arange(9) - 4.0, np.arange(7) - 3.0, indexing="ij")
    x = centre + np.stack([i.ravel(), j.ravel()], axis=1) / scale
    for runtime in chooser.available(layer):
        out = chooser.evaluate(layer, x, runtime)[:, 0, 0]
        allowed = certificate.parts["rounding"] + certificate.parts["target_rounding"] + 1e-15
        worst = max(
            float(abs(target.expression.enclose_ball([flint.acb(exact(a)) for a in point])[0].real - exact(found)))
            for point, found in zip(x, out, strict=True)
        )
        assert worst <= allowed
        if dtype == "float32":
            assert worst >= 1e-3 * allowed


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_exp_is_accurate_to_the_ulps_that_the_model_assumes(dtype):
    kind = DTYPES[dtype]
    rng = np.random.default_rng(9)
    floor = {"float64": -708.0, "float32": -87.0}[dtype]
    near = -rng.exponential(1.0, size=4000)
    x = np.concatenate([rng.uniform(floor, 0.0, size=4000), near, -np.geomspace(1e-8, -floor, 2000)]).astype(dtype)
    flint.ctx.dps = 40
    worst = 0.0
    for chunk in np.array_split(x, 7):  # odd lengths: vector loops and their remainders
        for one, found in zip(chunk, np.exp(chunk), strict=True):
            true = exact(one).exp()
            worst = max(worst, float(abs(exact(found) / true - 1).mid()))
    assert worst <= kind.exp_ulps * kind.unit
    assert worst <= 4 * kind.unit  # measured: below 2 ulp


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_exp_below_the_stated_floor_is_zero_and_subnormal_results_are_off_by_a_subnormal(dtype):
    kind = DTYPES[dtype]
    below = np.array([kind.exp_floor * 1.0001, kind.exp_floor * 2], dtype=dtype)
    with np.errstate(under="ignore"):
        assert np.all(np.exp(below) == 0.0)
        start = {"float64": -709.0, "float32": -88.0}[dtype]
        x = np.linspace(kind.exp_floor * 0.9999, start, 500).astype(dtype)
        for one, found in zip(x, np.exp(x), strict=True):
            assert abs(exact(found) - exact(one).exp()) <= 2 * kind.tiny + kind.exp_ulps * kind.unit * exact(one).exp()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_gamma_of_the_model_covers_sums_in_any_order(dtype):
    rng = np.random.default_rng(10)
    unit = DTYPES[dtype].unit
    for count in (3, 100, 5000):
        terms = (rng.normal(size=count) * 10.0 ** rng.uniform(-3, 3, size=count)).astype(dtype)
        true = sum((exact(t) for t in terms), arb(0))
        size = float(np.abs(terms.astype(np.float64)).sum())
        for found in (terms.sum(dtype=dtype), np.cumsum(terms, dtype=dtype)[-1], terms @ np.ones(count, dtype=dtype)):
            assert abs(true - exact(found)) <= count * unit / (1 - count * unit) * size


def test_float32_far_from_the_origin_is_as_good_as_near_it():
    near = ma.compile("sin(3*x) + cos(2*y)", ma.Box(x=(0, 1), y=(0, 1)), error=0.05, dtype="float32", method="lookup")
    far = ma.compile(
        "sin(3*(x-1000)) + cos(2*(y-1000))", ma.Box(x=(1000, 1001), y=(1000, 1001)), error=0.05, dtype="float32", method="lookup"
    )
    assert far.tokens == near.tokens
    assert far.bound == pytest.approx(near.bound, rel=1e-4)
    assert far.certificate.parts["rounding"] <= 1.01 * near.certificate.parts["rounding"]
    assert far.observed.error <= 1.02 * near.observed.error
    x = np.random.default_rng(11).uniform(0, 1, size=(5000, 2))
    moved = x + 1000.0  # float64 queries
    true = np.sin(3 * (moved[:, 0] - 1000)) + np.cos(2 * (moved[:, 1] - 1000))
    assert np.abs(far(moved) - true).max() <= 1.02 * np.abs(near(x) - np.sin(3 * x[:, 0]) - np.cos(2 * x[:, 1])).max()
    coarse = moved.astype(np.float32)  # queries representable in float32
    here = coarse.astype(np.float64) - 1000.0
    assert np.abs(far(coarse) - np.sin(3 * here[:, 0]) - np.cos(2 * here[:, 1])).max() <= far.bound
    assert far.certificate_for("factorised").bound <= far.bound


def test_the_lp_bound_counts_the_logit_errors_of_every_coordinate_of_a_factorised_runtime():
    layer, target = grid_layer("float32", (40, 30), 2000.0, "x + y")
    rounding = rounding_of(layer, "factorised")
    assert rounding.joint > 1.2 * rounding.eta
    certificate = certify_integral(layer, target, Evidence(lipschitz=np.ones(2)), 1.0, "factorised")
    soft = certificate.parts["leakage"]
    assert certificate.parts["rounding"] >= soft * math.expm1(2 * rounding.joint)
