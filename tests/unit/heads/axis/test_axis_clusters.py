"""Clusters along one axis or direction: few tokens, bounds that hold next to every switch, and a checker that agrees."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import maxaffine as ma
from maxaffine import Box
from maxaffine.checker import check
from maxaffine.core import balls
from maxaffine.core.errors import Refused
from maxaffine.heads.axis.certificate import Asked, certify_axis
from maxaffine.heads.axis.plan import Aim, build_axis, expression_problem, make_plan
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.file import to_tensors
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.runtime import chooser
from maxaffine.structure.one_direction import one_direction
from maxaffine.target.target import Target

LINE = Box(x=(-1, 1))
PLANE = Box(x=(-1, 1), y=(-1, 1))


def exact(target, x):
    """The target at float64 points, by balls of 200 bits."""
    with balls.precision(200):
        rows = [target.expression.enclose_ball([balls.rectangle(float(v), float(v)) for v in row])[0] for row in x]
        return np.array([np.nan if not row.is_finite() else float(row.real) for row in rows])


def near_switches(layer, seed=0):
    """Points next to ends and hand-overs of an axis layer of one variable, at all scales."""
    group, rng = layer.groups[0], np.random.default_rng(seed)
    places = np.concatenate([(c.origin + s * c.radius * 0.909) for c in group.clusters for s in (-1, 1)])
    x = layer.centre[0] + places / group.matrix[0, 0]
    steps = 10.0 ** rng.uniform(-17, 0, (len(x), 30)) * rng.choice([-1, 1], (len(x), 30))
    return np.clip(np.concatenate([(x[:, None] + steps).ravel(), x, layer.low, layer.high]), layer.low[0], layer.high[0])[:, None]


def planned(text, box, error, dtype="float64", share=0.88):
    target = Target.of(text, box)
    found = one_direction(target.expression)
    problem = expression_problem(found, box.low, box.high, error)
    plan = make_plan(problem, Aim(share * error, 0.05 * error, error, 0.0), dtype, 500, None)
    return target, found, plan, build_axis(plan, target, dtype)


ROWS = [
    ("abs(sin(7*x))", LINE, 1e-6, 28), ("max(sin(3*x), cos(5*x))", LINE, 1e-4, 17), ("abs(x**2 - .3)", LINE, 1e-6, 13),
    ("relu(x + .37)**2", LINE, 1e-6, 6), ("log(x + 1.001)", LINE, 1e-4, 38), ("1/(2.2 - x - y)", PLANE, 1e-6, 30),
    ("exp(-abs(x - y)) + .3*x - y", PLANE, 1e-4, 8), ("1/(1 + 25*x**2)", LINE, 1e-4, 16),
    ("where(x < 0, -x, x**2)", LINE, 1e-4, 6), ("exp(-(x/.01)**2)", LINE, 1e-4, 34),
]  # fmt: skip


@pytest.mark.parametrize(("text", "box", "error", "tokens"), ROWS, ids=[row[0] for row in ROWS])
def test_few_tokens_proved_twice_and_true(text, box, error, tokens, tmp_path):
    layer = ma.compile(text, box, error=error, method="axis", require="proved")
    assert layer.tokens <= tokens and layer.certificate.kind == "proved" and layer.certificate.bound <= error
    x = near_switches(layer.weights) if box is LINE else box.sample(4000, np.random.default_rng(2))
    away = np.abs(chooser.evaluate(layer.weights, x)[:, 0, 0] - exact(layer.target, x))
    assert np.nanmax(away) <= layer.certificate.bound
    path = layer.save(tmp_path / "layer.safetensors")
    assert ma.load(path or tmp_path / "layer.safetensors").certificate.bound == layer.certificate.bound


def test_float32_halves_cells_whose_values_cancel(tmp_path):
    layer = ma.compile("abs(sin(7*x))", LINE, error=1e-6, dtype="float32")
    assert layer.method == "axis" and layer.tokens <= 84 and layer.bound <= 1e-6 and layer.dtype == "float32"
    layer.save(tmp_path / "a.safetensors")
    assert ma.check(tmp_path / "a.safetensors").passed


def test_a_refusal_in_float32_names_what_the_heads_hold_and_not_what_a_lookup_does():
    with pytest.raises(ma.Refused) as refusal:
        ma.compile("abs(sin(5*x))*exp(x)", LINE, error=1e-6, dtype="float32")
    nearest = refusal.value.nearest_error
    assert nearest < 2e-5
    assert ma.compile("abs(sin(5*x))*exp(x)", LINE, error=1.01 * nearest, dtype="float32").bound <= 1.01 * nearest


def test_the_sine_at_1e_8_and_in_float32():
    fine = ma.compile("abs(sin(7*x))", LINE, error=1e-8, method="axis")
    assert fine.certificate.kind == "proved" and fine.tokens <= 80
    x = near_switches(fine.weights)
    assert np.abs(fine(x).ravel() - exact(fine.target, x)).max() <= fine.certificate.bound
    short = ma.compile("abs(sin(7*x))", LINE, error=1e-4, method="axis", dtype="float32")
    assert short.certificate.kind == "proved" and short.tokens <= 22
    assert np.abs(short(x).ravel().astype(np.float64) - exact(short.target, x)).max() <= short.certificate.bound


SINGULAR = [("sqrt(x + 1)", 1e-6, 111), ("cbrt(x + 1)", 1e-4, 76), ("cbrt(x - .2)", 1e-2, 52)]


@pytest.mark.parametrize(("text", "error", "tokens"), SINGULAR)
def test_singular_points_are_proved(text, error, tokens):
    layer = ma.compile(text, LINE, error=error, method="axis")
    assert layer.certificate.kind == "proved" and layer.tokens <= tokens
    closer = np.concatenate([[0.0], 2.0 ** -np.arange(1.0, 60.0)])[:, None]
    x = np.concatenate([near_switches(layer.weights), layer.weights.centre + closer])
    x = x[np.abs(x[:, 0]) <= 1]
    assert np.abs(layer(x).ravel() - exact(layer.target, x)).max() <= layer.certificate.bound


def test_jumps_are_refused_left_out_or_integrated():
    for text in ("floor(3*x)", "sign(x - .1)*exp(x) + abs(x + .5)"):
        with pytest.raises(Refused, match=r"jumps at .*gap=1e-6.*norm=1"):
            ma.compile(text, LINE, error=1e-3, method="axis")
        layer = ma.compile(text, LINE, error=1e-3, gap=1e-6, method="axis")
        assert layer.certificate.bound <= 1e-3 and layer.certificate.scope.jumps and layer.tokens <= 8
        mean = ma.compile(text, LINE, error=1e-3, norm=1, method="axis")
        assert mean.certificate.norm == 1 and mean.certificate.bound <= 1e-3 and mean.tokens <= 8
        x = np.linspace(-1, 1, 200_001)[:, None]
        assert np.abs(mean(x).ravel() - mean.target.values(x)[:, 0, 0]).mean() * 2 <= mean.certificate.bound


def test_outside_the_gap_the_bound_holds():
    layer = ma.compile("sign(x - .1)*exp(x) + abs(x + .5)", LINE, error=1e-4, gap=1e-6, method="axis")
    steps = 1e-6 * (1 + 10.0 ** np.linspace(-9, 5.9, 300))
    x = np.concatenate([0.1 + steps, 0.1 - steps, -0.5 + steps, -0.5 - steps])[:, None]
    x = x[np.abs(x[:, 0]) <= 1]
    assert np.abs(layer(x).ravel() - exact(layer.target, x)).max() <= layer.certificate.bound


def test_callables_are_observed_and_never_proved():
    def step(x):
        return np.where(x[:, 0] < 0.12345678, 1.0, -0.5)

    def bend(x):
        return np.minimum(x[:, 0] ** 2, 0.3)

    with pytest.raises(Refused, match=r"seems to jump at 0.123457.*norm=1.*gap=1e-06"):
        ma.compile(step, LINE, trace=False, error=1e-4)
    seen = ma.compile(step, LINE, trace=False, error=1e-4, gap=1e-6)
    assert seen.certificate.kind == "none" and seen.tokens == 2 and seen.observed.error <= 1e-4
    mean = ma.compile(step, LINE, trace=False, error=1e-4, norm=1)
    assert mean.certificate.kind == "none" and mean.tokens == 2 and mean.observed.norm == 1 and mean.observed.error <= 1e-4
    assert ma.compile(bend, LINE, trace=False, error=1e-4, method="axis").tokens <= 6
    told = ma.compile(bend, LINE, trace=False, error=1e-4, method="axis", breaks=[-math.sqrt(0.3), math.sqrt(0.3)])
    assert told.tokens <= 6 and told.observed.error <= 1e-4
    with pytest.raises(Refused, match="without a proof"):
        ma.compile(bend, LINE, trace=False, error=1e-4, method="axis", require="proved")


def test_what_depends_on_two_directions_is_left_to_others():
    with pytest.raises(Refused, match="not a function of one direction"):
        ma.compile("abs(x) + sin(y)", PLANE, error=1e-3, method="axis")


# ---------------------------------------------------------------------- soundness


def shaken(layer, rng, size):
    """The layer with one kind of stored number perturbed."""
    group = layer.groups[0]
    kind = rng.integers(0, 4)

    def move(a, scale):
        return a + scale * rng.normal(size=a.shape) * (rng.random(a.shape) < 0.4)

    clusters, slopes, offsets = list(group.clusters), group.site_slopes, group.site_offsets
    if kind == 0:
        clusters = [replace(c, values=move(c.values, size)) for c in clusters]
    elif kind == 1:
        clusters = [replace(c, slopes=move(c.slopes, size)) for c in clusters]
    elif kind == 2:
        offsets = move(offsets, 3.0)
    else:
        slopes = move(slopes, 0.02 * float(np.abs(slopes).max() + 1.0))
    made = ClusterGroup(group.matrix, slopes, offsets, tuple(clusters))
    return GroupedLayer(layer.centre, (made,), 0.0, layer.low, layer.high, layer.inputs, layer.dtype, layer.tilt)


@pytest.mark.parametrize("text", ["abs(sin(7*x))", "sqrt(x + 1)", "max(sin(3*x), cos(5*x))", "relu(x + .37)**2 + abs(x)"])
def test_no_perturbed_layer_is_worse_than_what_is_proved_of_it(text):
    rng = np.random.default_rng(5)
    target, found, _, layer = planned(text, LINE, 1e-2)
    proofs = 0
    for _ in range(12):
        other = shaken(layer, rng, 10.0 ** rng.uniform(-4, -1.5))
        try:
            certificate = certify_axis(other, found, Asked(0.2, math.inf, None))
        except Refused:
            continue
        if certificate.bound is None or not math.isfinite(certificate.bound):
            continue
        proofs += 1
        x = np.concatenate([near_switches(other, 3), np.linspace(-1, 1, 3001)[:, None]])
        worst = float(np.abs(chooser.evaluate(other, x)[:, 0, 0] - target.values(x)[:, 0, 0]).max())
        assert worst <= certificate.bound * (1 + 1e-12)
    assert proofs >= 5


def test_the_bound_is_sharp():
    target, found, _, layer = planned("abs(sin(7*x))", LINE, 1e-4)
    bound = certify_axis(layer, found, Asked(1e-4, math.inf, None)).bound
    x = near_switches(layer)
    assert np.abs(chooser.evaluate(layer, x)[:, 0, 0] - exact(target, x)).max() > 0.6 * bound


def record_of(layer, target, plan, found, error):
    tensors, description = to_tensors(layer)
    certificate = certify_axis(layer, found, Asked(error, math.inf, None))
    record = {"layer": description, "target": target.to_json(), "error": error, "norm": "inf",
              "certificate": certificate.to_json(), "plan": plan.to_json()}  # fmt: skip
    return dict(tensors), record


def test_the_checker_refuses_what_is_not_so():
    target, found, plan, layer = planned("abs(sin(7*x)) + .2*x", LINE, 1e-4)
    tensors, record = record_of(layer, target, plan, found, 1e-4)
    assert check(tensors, record).passed
    rng = np.random.default_rng(0)
    for name in ("group.0.values", "group.0.value_slopes", "group.0.sites.offsets", "group.0.keys.0.offsets", "group.0.origins"):
        worse = dict(tensors)
        worse[name] = tensors[name] + 0.02 * rng.normal(size=tensors[name].shape) * (1 + np.abs(tensors[name]))
        assert not check(worse, record).passed, name
    tight = {**record, "error": 1e-6}
    assert not check(tensors, tight).passed
    other = {**record, "target": {**record["target"], "text": "abs(sin(7*x)) + .2001*x"}}
    assert not check(tensors, other).passed
    flipped = dict(tensors)
    flipped["group.0.sites.slopes"] = tensors["group.0.sites.slopes"][::-1].copy()
    assert not check(flipped, record).passed


def test_the_checker_holds_a_gap_against_the_certificate():
    layer = ma.compile("floor(3*x)", LINE, error=1e-3, gap=1e-4, method="axis")
    tensors, description = to_tensors(layer.weights)
    record = {"layer": description, "target": layer.target.to_json(), "error": 1e-3, "norm": "inf",
              "certificate": layer.certificate.to_json(), "plan": dict(layer.plan)}  # fmt: skip
    assert check(tensors, record).passed
    scope = {**record["certificate"]["scope"], "gap": 1e-7}
    closer = {**record, "certificate": {**record["certificate"], "scope": scope}}
    assert not check(tensors, closer).passed
    silent = {**record, "plan": {**record["plan"], "gap": None}}
    assert not check(tensors, silent).passed
    shorter = {**record, "plan": {**record["plan"], "gap": 1e-9}}
    assert not check(tensors, shorter).passed


def test_directions_and_affine_parts_are_read_exactly():
    found = one_direction(Target.of("exp(-abs(x - y)) + .3*x - y + 2", PLANE).expression)
    assert found.direction == (Fraction(1), Fraction(-1)) and found.slopes == (Fraction(3, 10), Fraction(-1))
    x = PLANE.sample(50, np.random.default_rng(0))
    values = found.h.evaluate((x[:, 0] - x[:, 1])[:, None])[:, 0] + 0.3 * x[:, 0] - x[:, 1]
    np.testing.assert_allclose(values, np.exp(-np.abs(x[:, 0] - x[:, 1])) + 0.3 * x[:, 0] - x[:, 1] + 2, rtol=1e-14)
    assert one_direction(Target.of("sin(x)*cos(y)", PLANE).expression) is None


def test_a_callable_that_jumps_by_less_than_the_error_is_not_refused():
    layer = ma.compile(lambda x: np.sin(x[:, 0]) + 1e-2 * np.sign(x[:, 0] - 0.2), ma.Box(-1, 1), error=0.02, trace=False)
    assert layer.observed.error <= 0.02


@pytest.mark.parametrize("width", [0.005, 0.0005])
def test_features_between_the_points_of_a_cell_are_found(width):
    """A bump that no point of a long cell meets: the segment is cut where it bends most."""
    layer = ma.compile(f"exp(-(x-.3217)**2/(2*{width}**2))", ma.Box(x=(-1, 1)), error=1e-2, method="axis")
    assert layer.certificate.kind == "proved" and layer.tokens <= 12
    both = ma.compile(
        f"exp(-((x-.549005)**2+(y-.554293)**2)/(2*{width}**2))", ma.Box(x=(-1, 1), y=(-1, 1)), error=1e-2, method="products"
    )
    assert both.certificate.kind == "proved" and both.tokens <= 180


def test_a_cell_that_cannot_grow_ends_the_search():
    """x^0.05 needs a cell of 1e-40 next to 0, which no halving reaches: refused at once, not after 1,500 tokens."""
    with pytest.raises(ma.Refused):
        ma.compile("x**0.05", ma.Box(x=(0, 1)), error=1e-3, method="axis")
