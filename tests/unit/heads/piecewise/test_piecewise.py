"""Piecewise affine targets: exact pieces, few tokens, bounds that hold at every kink, and a checker that shares nothing."""

import contextlib
import functools
import math
from dataclasses import replace
from fractions import Fraction

import flint
import numpy as np
import pytest

import maxaffine as ma
from maxaffine.attack.heads import attack_heads
from maxaffine.attack.search import worst_point
from maxaffine.checker import check
from maxaffine.checker.piecewise_cells import cells_of
from maxaffine.checker.piecewise_dual import Frame
from maxaffine.core.errors import BadInput, MaxaffineError, Refused
from maxaffine.core.polytopes import Polytope
from maxaffine.expression.expression import Expression
from maxaffine.heads.piecewise.plan import PiecewisePlan, build_piecewise
from maxaffine.heads.piecewise.prove import certify_piecewise, stored_errors
from maxaffine.layer.file import from_tensors
from maxaffine.proofs.observe import near_switches
from maxaffine.proofs.soft_gap import soft_gap
from maxaffine.runtime import chooser
from maxaffine.structure.affine_pieces import NotPiecewise, needed, slack
from maxaffine.structure.convex_differences import differences
from maxaffine.structure.refinement import Token, refine, spread_over, tokens_of_cells
from maxaffine.target.piecewise_affine import PiecewiseAffine, ReluNetwork

SIDE = (-1, 1)


@functools.cache
def compiled(text, error, dtype="float64", names="xy", side=SIDE):
    return ma.compile(text, ma.Box(**dict.fromkeys(names, side)), error=error, dtype=dtype, method="piecewise")


def network(units, seed, D=2):
    """A one-layer ReLU network as text, with coefficients of six decimals."""
    rng = np.random.default_rng(seed)
    names = "xyz"[:D]
    terms = []
    for _ in range(units):
        inside = "+".join(f"({rng.normal():.6f})*{name}" for name in names)
        terms.append(f"({rng.normal():.6f})*relu({inside}+({0.5 * rng.normal():.6f}))")
    return "+".join(terms)


FEW = [
    ("max(x,y)", 2, "xy"),
    ("abs(2*x-y)", 2, "xy"),
    ("relu(x-.3)", 2, "x"),
    ("clip(x+y,-.5,.5)", 3, "xy"),
    ("min(x,y,0.2)", 3, "xy"),
    ("max(x,y)+min(x,y)", 1, "xy"),
    ("abs(abs(x)-.5)", 4, "x"),
    ("max(min(x,y),0)", 4, "xy"),
    ("max(x,y,z)", 3, "xyz"),
    ("max(abs(x),abs(y),abs(z))", 6, "xyz"),
    ("piecewise(x<-.5,-.5,x<.5,x,.5)", 3, "x"),
    ("where(x<y,x,y)", 2, "xy"),
    ("where(x<0,2*abs(x+y),2*abs(y)+x)", 6, "xy"),
    ("pi*abs(x)/sqrt(2)+0.1*y", 2, "xy"),
    ("clip(x+.5*y,-.4,.4)+clip(x-y,-.3,.3)", 9, "xy"),
    ("max(x,y), abs(x)-y", 4, "xy"),
    ("max(x, 2*y, -x-y) - max(x+y, -y, x-0.3)", 9, "xy"),
    ("3*x - 0.25", 1, "x"),
]


@pytest.mark.parametrize("text, tokens, names", FEW)
def test_few_tokens_are_proved_to_1e_8_and_confirmed(text, tokens, names, tmp_path):
    layer = compiled(text, 1e-8, "float64", names)
    assert layer.tokens <= tokens
    assert layer.certificate.kind == "proved" and layer.bound <= 1e-8 and layer.observed.error <= layer.bound
    layer.save(tmp_path / "layer.safetensors")
    assert ma.load(tmp_path / "layer.safetensors").bound == layer.bound


@pytest.mark.parametrize("text, tokens, names", FEW)
def test_float32_is_proved_as_well(text, tokens, names):
    layer = compiled(text, 2e-5, "float32", names)
    assert layer.tokens <= tokens and layer.bound <= 2e-5 and layer.observed.error <= layer.bound


def test_the_constant_is_sharp_where_pieces_meet_at_a_point():
    """max(x, y) attains W0(1/e)/R; with three pieces through one point W0(2/e)/R is nearly reached."""
    two = compiled("max(x,y)", 1e-6)
    assert two.observed.error > 0.999 * two.certificate.parts["leakage"]
    plan = three_pieces(R=100.0)
    layer = build_piecewise(plan, TARGET, "float64")
    u = np.linspace(-0.2, 0.2, 801)
    X, Y = np.meshgrid(u, u)
    x = np.stack([X.ravel(), Y.ravel()], axis=1)
    error = np.abs(chooser.evaluate(layer, x)[:, 0, 0] - TARGET.values(x)[:, 0, 0]).max()
    bound = certify_piecewise(layer, plan).bound
    assert 0.8 * bound < error <= bound == pytest.approx(soft_gap(3) / 100.0, rel=1e-9)


TARGET = ma.Target.of("max(x, -x/2+y, -x/2-y)", ma.Box(x=SIDE, y=SIDE))


def three_pieces(R):
    return PiecewisePlan(refine(differences(TARGET.expression, TARGET.box), TARGET.box), R)


@pytest.mark.parametrize("count, wanted", [(1, 0.0), (2, 0.2784645427610738), (3, 0.463056), (10, 1.10100), (100, 2.62865)])
def test_the_blend_constant_bounds_every_softmax(count, wanted):
    found = soft_gap(count)
    assert found == pytest.approx(wanted, rel=1e-5)
    rng = np.random.default_rng(count)
    z = np.concatenate([np.zeros((500, 1)), rng.uniform(0, 2 * found + 2, (500, count - 1))], axis=1)
    z[:200, 1:] = 1 + found * np.linspace(0.9, 1.1, 200)[:, None]  # all equal, near the worst
    w = np.exp(-z) / np.exp(-z).sum(axis=1, keepdims=True)
    top = (w * z).sum(axis=1).max()
    assert top <= found and (count == 1 or top > 0.999 * found)


@pytest.mark.parametrize("text, names", [(network(6, 1), "xy"), (network(9, 2), "xy"), (network(5, 3, 3), "xyz")])
def test_relu_networks_hold_their_bound_at_every_kink(text, names):
    layer = compiled(text, 1e-6, "float64", names)
    rng = np.random.default_rng(0)
    (group,) = layer.weights.groups
    x = near_switches(layer.weights, group, 3000, rng)
    error = np.abs(layer(x) - layer.target.values(x)[:, 0, 0])
    assert error.max() <= layer.bound
    assert error.max() > 0.05 * layer.bound  # the points do see the kinks


def exact_error(layer, x):
    """|layer - f| at a point with 200 bits: f by arb from the expression, the computed value as it is."""
    with flint.ctx.workprec(200):
        point = [flint.acb(float(c)) for c in x]
        found = layer.target.expression.enclose_ball(point)
        if not all(f.is_finite() for f in found):
            return 0.0
        values = np.atleast_1d(layer(x))
        return max(abs(float((flint.arb(float(v)) - f.real).mid())) for v, f in zip(values, found, strict=True))


@pytest.mark.parametrize("text, error, dtype", [
    ("max(x,y)", 1e-8, "float64"), ("abs(2*x-y)", 1e-10, "float64"), ("clip(x+y,-.5,.5)", 1e-6, "float32"),
    ("pi*abs(x)/sqrt(2)+0.1*y", 1e-9, "float64"), ("max(x, 2*y, -x-y) - max(x+y, -y, x-0.3)", 1e-5, "float32"),
])  # fmt: skip
def test_no_point_lies_above_a_bound_by_exact_values(text, error, dtype):
    layer = compiled(text, error, dtype)
    (group,) = layer.weights.groups
    rng = np.random.default_rng(1)
    x = near_switches(layer.weights, group, 400, rng)
    assert max(exact_error(layer, row) for row in x) <= layer.bound
    for runtime in ("two-level", "dense"):
        bound = layer.certificate_for(runtime).bound
        found = worst_point(layer.weights, layer.target, rng, runtime).error
        assert found <= bound


@pytest.mark.parametrize("scale", [1e-12, 1e-9, 1e-6, 1e-3, 1e-1])
@pytest.mark.parametrize("text", ["max(x,y)", "clip(x+y,-.5,.5)", "where(x<0,2*abs(x+y),2*abs(y)+x)", network(4, 1)])
def test_perturbed_layers_get_a_true_bound_or_none(text, scale):
    """Every stored number moved: what certificate and checker then say is still true of the moved layer."""
    whole = compiled(text, 1e-6)
    rng = np.random.default_rng(int(-math.log10(scale)))
    pieces = refine(differences(whole.target.expression, whole.target.box), whole.target.box, 1e-9)
    plan = PiecewisePlan(pieces, whole.plan["sharpness"])
    tensors, record = whole._record()
    for name in ("group.0.sites.slopes", "group.0.sites.offsets", "group.0.values", "group.0.value_slopes"):
        size = max(1.0, float(np.abs(tensors[name]).max()))
        tensors[name] = tensors[name] + scale * size * rng.normal(size=tensors[name].shape)
    layer = from_tensors(tensors, record["layer"])
    (group,) = layer.groups
    x = np.concatenate([near_switches(layer, group, 2000, rng), rng.uniform(-1, 1, (2000, 2))])
    error = np.abs(chooser.evaluate(layer, x) - whole.target.values(x)).max()
    assert error <= certify_piecewise(layer, plan).bound
    verdict = check(tensors, record)
    assert verdict.bound is None or error <= verdict.bound
    assert verdict.passed == (verdict.bound is not None and verdict.bound <= 1e-6)
    if scale >= 1e-3:
        assert not verdict.passed


def test_a_missing_piece_is_noticed():
    layer = compiled("max(x,y,z)", 1e-6, "float64", "xyz")
    tensors, record = layer._record()
    keep = [0, 1]
    for name in list(tensors):
        if name.startswith("group.0.") and name != "group.0.matrix":
            tensors[name] = tensors[name][keep]
    record["layer"] = {**record["layer"], "clusters": [2]}
    verdict = check(tensors, record)
    assert not verdict.passed and verdict.bound > 0.1


FORGED = {
    "another target": lambda t, r: r["target"].update(text="max(x,y)+1e-3*abs(x)"),
    "a target that jumps": lambda t, r: r["target"].update(text="where(x<y,y,x)+where(x<0,0,1)"),
    "a jump at the edge of the box": lambda t, r: r["target"].update(text="where(x<1,max(x,y),5)"),
    "a jump on a line": lambda t, r: r["target"].update(text="where(x==0,5,max(x,y))"),
    "a target that is not piecewise affine": lambda t, r: r["target"].update(text="max(x,y)+1e-9*x*y"),
    "keys inside the clusters": lambda t, r: t.__setitem__("group.0.keys.0.slopes", t["group.0.keys.0.slopes"] + 1),
    "a tilt": lambda t, r: t.__setitem__("tilt", np.ones((1, 2))),
    "radii": lambda t, r: t.__setitem__("group.0.radii", t["group.0.radii"] * 1.001),
    "origins": lambda t, r: t.__setitem__("group.0.origins", t["group.0.origins"] + 1e-3),
    "the centre": lambda t, r: t.__setitem__("coordinates.centre", t["coordinates.centre"] + 1e-3),
    "the matrix": lambda t, r: t.__setitem__("group.0.matrix", t["group.0.matrix"] * 1.001),
    "softer sites": lambda t, r: t.__setitem__("group.0.sites.slopes", t["group.0.sites.slopes"] * 0.5),
    "another method": lambda t, r: r["plan"].update(method="axis clusters?"),
    "the method of spectral heads": lambda t, r: r["plan"].update(method="spectral", groups=[]),
}


@pytest.mark.parametrize("what", FORGED)
def test_forged_records_are_not_proved(what):
    tensors, record = compiled("max(x,y)", 1e-6)._record()
    record = {**record, "target": dict(record["target"]), "plan": dict(record["plan"])}
    FORGED[what](tensors, record)
    with contextlib.suppress(BadInput):
        assert not check(tensors, record).passed


def test_steeper_sites_are_proved_again_because_they_are_better():
    tensors, record = compiled("max(x,y)", 1e-6)._record()
    tensors["group.0.sites.slopes"] = tensors["group.0.sites.slopes"] * 2.0
    assert check(tensors, record).passed and check(tensors, record).bound < 0.6e-6


def test_mutated_proofs_are_caught():
    """Halving the blend, or forgetting what storage loses, would let a true error through."""
    plan = three_pieces(100.0)
    layer = build_piecewise(plan, TARGET, "float64")
    u = np.linspace(-0.2, 0.2, 401)
    x = np.stack([a.ravel() for a in np.meshgrid(u, u)], axis=1)
    error = np.abs(chooser.evaluate(layer, x) - TARGET.values(x)).max()
    certificate = certify_piecewise(layer, plan)
    assert error > certificate.bound - 0.5 * certificate.parts["leakage"]
    (group,) = layer.groups
    moved = replace(group, clusters=tuple(replace(c, values=c.values + 1e-3) for c in group.clusters))
    shifted = replace(layer, groups=(moved,))
    assert stored_errors(shifted, moved, plan)[1] == pytest.approx(1e-3)
    assert certify_piecewise(shifted, plan).bound == pytest.approx(certificate.bound + 1e-3, rel=1e-9)


# ---------------------------------------------------------------------- the pieces


@pytest.mark.parametrize("seed", range(6))
def test_differences_and_cells_say_the_same_as_the_expression(seed):
    """Random nests of max, min, abs, relu, clip and sums: three ways to the same values, and every token obeys its inequality."""
    rng = np.random.default_rng(seed)

    def affine():
        return f"({rng.integers(-4, 5)}*x+({rng.integers(-8, 9)}/4)*y+({rng.integers(-4, 5)}/8))"

    def nest(depth):
        if depth == 0:
            return affine()
        kind = rng.choice(["max", "min", "abs", "relu", "clip", "sum", "scale"])
        a, b = nest(depth - 1), nest(depth - 1)
        return {
            "max": f"max({a},{b})", "min": f"min({a},{b})", "abs": f"abs({a})", "relu": f"relu({a})",
            "clip": f"clip({a},-1,1/2)", "sum": f"({a}-{b})", "scale": f"(3/2*{a}+{affine()})",
        }[kind]  # fmt: skip

    box = ma.Box(x=(-1, 1.5), y=(-0.5, 1))
    expression = Expression.parse(nest(3), box.names)
    try:
        found = refine(differences(expression, box), box, 1e-12)
    except NotPiecewise:
        pytest.skip("too many pieces")
    x = box.sample(400, rng)
    u = (x - np.array([float(m) for m in found.middle])) / np.array([float(h) for h in found.half])
    f = expression.evaluate(x)[:, 0]
    s = np.array([[float(c) for c in token.score] for token in found.tokens])
    v = np.array([[float(c) for c in token.values[0]] for token in found.tokens])
    scores, values = (u @ a[:, :-1].T + a[:, -1] for a in (s, v))
    gap = scores.max(axis=1, keepdims=True) - scores
    scale = 1 + np.abs(values).max() + np.abs(scores).max()
    assert (np.abs(values - f[:, None]) <= gap + float(found.error) + 1e-13 * scale).all()
    cells = list(cells_of(expression, Polytope.box(list(box.low), list(box.high)), box.low, box.high))
    for cell in cells:
        middle = np.array([[float(c) for c in cell.part.middle]])
        here = float(sum(a * c for a, c in zip(cell.outputs[0], cell.part.middle, strict=False)) + cell.outputs[0][-1])
        assert here == pytest.approx(expression.evaluate(middle)[0, 0], abs=1e-12)


def test_pieces_that_never_matter_are_left_out_and_the_slack_is_exact():
    from fractions import Fraction as F

    pieces = [(F(1), F(0)), (F(-1), F(0)), (F(0), F(-1, 100)), (F(1, 2), F(1, 4)), (F(0), F(0))]
    kept, lost = needed(pieces)
    assert set(kept) == {0, 1, 3} and lost <= F(1, 10**12)
    floats = np.array([[1.0, 0.0], [-1.0, 0.0]])
    assert slack((F(0), F(0)), pieces[:2], floats)[0] <= F(1, 10**15)
    assert slack((F(0), F(1, 10)), pieces[:2], floats)[0] is None


@pytest.mark.parametrize("text, word", [
    ("x*y", "product"), ("sin(x)", "sin"), ("where(x<0,0,1)", "jump"), ("where(x<0 and y<0,x,y)", "comparison"),
    ("where(x*x<1,x,x)+where(abs(x)<y,x,y)", "condition"), ("sign(x)*x", "product"), ("floor(3*x)", "floor"),
])  # fmt: skip
def test_what_is_not_piecewise_affine_is_refused_with_a_reason(text, word):
    with pytest.raises(Refused, match=word):
        compiled(text, 1e-3)


def test_the_literal_layer_warns_where_it_does_not_reach_the_error():
    layer = compiled("clip(x+y,-.5,.5)", 2e-6, "float32")
    assert layer.certificate_for("dense").bound > 2e-6 >= layer.bound
    assert "literal    the softmax over all tokens in float32 is proved to" in layer.explain()
    assert "literal    " not in compiled("max(x,y)", 1e-8).explain()


def test_boxes_far_from_the_origin_lose_no_digits():
    layer = ma.compile("abs(x-1000.25)", ma.Box(x=(1000, 1001)), error=1e-9, method="piecewise")
    assert layer.tokens == 2 and layer.observed.error <= layer.bound <= 1e-9


# ---------------------------------------------------------------------- networks and laws


def test_a_torch_network_of_16_units_is_proved_to_1e_6(tmp_path):
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    layer = ma.compile(net, ma.Box(x=SIDE, y=SIDE), error=1e-6, method="piecewise", require="proved")
    assert layer.bound <= 1e-6 and layer.tokens <= 137  # regions of 16 lines in the plane
    x = layer.box.sample(300, np.random.default_rng(0))
    wanted = net.double()(torch.tensor(x)).detach().numpy()[:, 0]
    assert np.abs(layer(x) - wanted).max() <= layer.bound + 1e-12
    layer.save(tmp_path / "net.safetensors")


def test_networks_of_several_layers_and_outputs():
    rng = np.random.default_rng(3)
    shapes = [(3, 2), (3, 3), (2, 3)]
    net = ReluNetwork([rng.normal(size=s) for s in shapes], [0.3 * rng.normal(size=s[0]) for s in shapes])
    layer = ma.compile(net, ma.Box(x=SIDE, y=SIDE), error=1e-6, method="piecewise")
    x = layer.box.sample(500, rng)
    assert layer.bound <= 1e-6 and np.abs(layer(x) - net(x)).max() <= layer.bound + 1e-12


def saturated_law():
    """clip(K x, -.6, .6) + clip(L x, -.5, .5) as nine regions with their pieces."""
    K, L = np.array([1.3, 0.4]), np.array([-0.5, 1.1])
    regions, slopes, offsets = [], [], []
    for i in (-1, 0, 1):
        for j in (-1, 0, 1):
            A, b, s, c = [], [], np.zeros(2), 0.0
            for side, gain, limit in ((i, K, 0.6), (j, L, 0.5)):
                if side == 0:
                    A, b, s = [*A, gain, -gain], [*b, limit, limit], s + gain
                else:
                    A, b, c = [*A, -side * gain], [*b, -limit], c + side * limit
            regions.append((A, b))
            slopes.append(s)
            offsets.append(c)
    return regions, slopes, offsets


def test_a_law_of_nine_regions_takes_nine_tokens():
    law = PiecewiseAffine(*saturated_law())
    layer = ma.compile(law, ma.Box(x=SIDE, y=SIDE), error=1e-6, method="piecewise")
    assert layer.tokens == 9 and layer.bound <= 1e-6
    x = layer.box.sample(500, np.random.default_rng(0))
    wanted = np.clip(1.3 * x[:, 0] + 0.4 * x[:, 1], -0.6, 0.6) + np.clip(-0.5 * x[:, 0] + 1.1 * x[:, 1], -0.5, 0.5)
    assert np.abs(layer(x) - wanted).max() <= layer.bound + 1e-12


def test_laws_with_gaps_jumps_or_wrong_shapes_are_refused():
    regions, slopes, offsets = saturated_law()
    box = ma.Box(x=SIDE, y=SIDE)
    with pytest.raises(BadInput, match="cover"):
        ma.compile(PiecewiseAffine(regions[:-1], slopes[:-1], offsets[:-1]), box, error=1e-3)
    with pytest.raises(BadInput, match="continuous"):
        ma.compile(PiecewiseAffine(regions, slopes, [o + 0.1 * (i == 4) for i, o in enumerate(offsets)]), box, error=1e-3)
    with pytest.raises(BadInput, match="slopes"):
        PiecewiseAffine(regions, slopes[:-1], offsets)
    with pytest.raises(BadInput, match="region"):
        PiecewiseAffine([(np.eye(3), np.ones(3))] * 9, slopes, offsets)
    with pytest.raises(BadInput, match="finite"):
        PiecewiseAffine(regions, np.full((9, 2), np.nan), offsets)
    with pytest.raises(BadInput, match="variables"):
        ma.compile(PiecewiseAffine(regions, slopes, offsets), ma.Box(x=SIDE), error=1e-3)


@pytest.mark.parametrize("weights, biases", [([], []), ([np.eye(2)], [[1.0]]), ([np.eye(2), np.ones((1, 3))], [[0, 0], [0]])])
def test_networks_that_do_not_fit_together_are_refused(weights, biases):
    with pytest.raises(BadInput):
        ReluNetwork(weights, biases)
    with pytest.raises(MaxaffineError):
        ma.compile(ReluNetwork([np.eye(3)], [np.zeros(3)]), ma.Box(x=SIDE), error=1e-3)


def test_a_network_too_long_to_write_out_is_refused():
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape) for shape in ((40, 2), (40, 40), (1, 40))]
    net = ReluNetwork(weights, [np.ones(40), np.ones(40), [0]])
    with pytest.raises(Refused, match="characters"):
        ma.compile(net, ma.Box(x=SIDE, y=SIDE), error=1e-3)


def test_attacked_layers_hold_their_bounds():
    """Random nests of switches in all dtypes, as compiled and with moved numbers, against certificate and checker."""
    (row,) = attack_heads(ma.compile, ["piecewise"], layers=6, seed=4, moves=2)
    assert row.violations == [] and row.layers >= 5 and row.moved == 2 * row.layers
    assert row.proved >= row.layers and row.worst > 0.3


def test_the_targets_own_rounding_is_no_error_of_the_layer():
    layer = ma.compile("-0.814*(x+99999) - 0.243", ma.Box(x=(-1e5, -99998)), error=5e-4, method="piecewise")
    assert layer.tokens == 1 and layer.observed.error <= layer.bound < 2e-11


def test_many_variables_are_checked_by_duality(tmp_path):
    box = ma.Box(**{f"x{i}": (-1, 1) for i in range(10)})
    text = f"relu({'+'.join(box.names)}-.3) - relu({'-'.join(box.names)})"
    layer = ma.compile(text, box, error=1e-6, method="piecewise")
    assert layer.tokens == 4 and layer.bound <= 1e-6
    tensors, record = layer._record()
    assert check(tensors, record).passed and "duality" in check(tensors, record).how
    moved = {**tensors, "group.0.values": tensors["group.0.values"] + 1e-4}
    assert check(moved, record).bound >= 1e-4 and not check(moved, record).passed
    softer = {**tensors, "group.0.sites.slopes": 0.5 * tensors["group.0.sites.slopes"]}
    assert not check(softer, record).passed
    forged = {**record, "plan": {**record["plan"], "sharpness": 1e30}}
    assert not check(tensors, forged).passed


def test_weak_duality_is_exact_and_finds_empty_cells():
    one, zero = Fraction(1), Fraction(0)
    frame = Frame([-one, -one], [one, one])
    x, y = (one, zero, zero), (zero, one, zero)
    cell = ((one, one, zero), (-one, one, zero))  # x + y <= 0, y <= x
    assert zero <= frame.upper(y, cell) <= Fraction(1, 10**12)
    assert frame.upper(x, cell) == 1 and frame.top((one, -one, one)) == 3
    assert frame.empty(((one, zero, one / 2), (-one, zero, one / 2))) and not frame.empty(cell)


@pytest.mark.parametrize("text", [network(7, 5), "max(x,y), abs(x)-y", "max(x, 2*y, -x-y) - max(x+y, -y, x-0.3), relu(x-y)"])
def test_cutting_the_box_and_pruning_sums_find_the_same_tokens(text):
    box = ma.Box(x=SIDE, y=SIDE)
    outputs = differences(Expression.parse(text, box.names), box)
    tokens = [Token(tuple(Fraction(0) for _ in range(3)), ())]
    for f in outputs:
        tokens, first = spread_over(tokens, f.P, 1)
        tokens, second = spread_over(tokens, f.Q, -1)
        assert first + second <= Fraction(1, 10**12)
    assert set(tokens_of_cells(outputs)) == set(tokens)
