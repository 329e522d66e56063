"""Properties of layers that hold whatever the keys, values, boxes and dtypes are."""

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import maxaffine as ma
from maxaffine.core.container import container_bytes, read_container
from maxaffine.heads.lookup.grid import grid_coordinates, grid_keys
from maxaffine.heads.lookup.prove_grid import certify_grid, runtime_rounding
from maxaffine.layer.file import from_tensors, to_tensors
from maxaffine.layer.keys import Coordinates, ListedKeys
from maxaffine.layer.layer import Layer
from maxaffine.layer.matrices import cross_matrices, self_matrices
from maxaffine.proofs.observe import face_biased
from maxaffine.proofs.rounding import rounding_of
from maxaffine.runtime import chooser
from maxaffine.target.evidence import Evidence
from maxaffine.target.target import Target

FEW = settings(max_examples=60, deadline=None)
SEEDS = st.integers(0, 2**31)


def inputs_of(dimension, rng):
    """A way to read D numbers as one input matrix (d, n), or as two."""
    pairs = [(d, dimension // d) for d in range(1, dimension + 1) if dimension % d == 0]
    return (pairs[int(rng.integers(len(pairs)))],)


@st.composite
def layers(draw, kinds=("product", "listed"), dtypes=("float64", "float32"), far=True):
    """A random layer: any box, any keys, several outputs."""
    rng = np.random.default_rng(draw(SEEDS))
    kind, dtype = draw(st.sampled_from(kinds)), draw(st.sampled_from(dtypes))
    D = draw(st.integers(1, 4))
    width = 10.0 ** rng.uniform(-2, 2, size=D)
    low = rng.normal(size=D) * (10.0 ** rng.uniform(-1, 3) if far else 1.0)
    d_out, n_out = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    sharpness = float(10.0 ** rng.uniform(-1, 3))
    if kind == "product":
        counts = tuple(int(n) for n in rng.integers(1, 6, size=D))
        coordinates, keys = grid_coordinates(ma.Box(low, low + width), counts), grid_keys(counts)
    else:
        count = int(rng.integers(1, 60))
        coordinates = Coordinates(low + width / 2, np.diag(2.0 / width))
        keys, counts = ListedKeys(rng.normal(size=(count, D)), 0.3 * rng.normal(size=count)), (count,)
    values = rng.normal(size=(*counts, d_out, n_out)) * 10.0 ** rng.uniform(-3, 3)
    return Layer(coordinates, keys, sharpness, values, low, low + width, inputs_of(D, rng), dtype)


def points(layer, count, seed=0):
    return face_biased(layer, count, np.random.default_rng(seed))


def allowance(layer, runtimes=None):
    """How far two runtimes of a layer may be apart: both within their rounding of the exact layer."""
    spread = float(np.ptp(layer.values.astype(np.float64).reshape(layer.keys.count, -1), axis=0).max())
    total = 0.0
    for runtime in runtimes or chooser.available(layer):
        rounding = rounding_of(layer, runtime)
        total = max(total, min(1.0, math.expm1(min(2 * rounding.joint, 700))) * spread + runtime_rounding(layer, rounding))
    return 2.0 * total


def inputs(layer, x):
    parts, first = [], 0
    for d, n in layer.inputs:
        parts.append(x[first : first + d * n].reshape(n, d).T)
        first += d * n
    return parts


@FEW
@given(layers(), SEEDS)
def test_the_output_lies_within_the_range_of_the_values(layer, seed):
    x = points(layer, 40, seed)
    flat = layer.values.astype(np.float64).reshape(layer.keys.count, layer.d_out, layer.n_out)
    for runtime in chooser.available(layer):
        out = chooser.evaluate(layer, x, runtime)
        slack = runtime_rounding(layer, rounding_of(layer, runtime))
        assert np.all(out >= flat.min(axis=0) - slack)
        assert np.all(out <= flat.max(axis=0) + slack)


@FEW
@given(layers(dtypes=("float64",), far=False), SEEDS)
def test_moving_the_domain_moves_the_layer_with_it(layer, seed):
    rng = np.random.default_rng(seed)
    # Whole numbers of the same size as the box: x + shift is then exact to an ulp of the sum.
    shift = np.rint(rng.normal(size=layer.dimension) * 8)
    moved = Layer(
        Coordinates(layer.coordinates.centre + shift, layer.coordinates.matrix), layer.keys, layer.sharpness, layer.values,
        layer.low + shift, layer.high + shift, layer.inputs, layer.dtype,
    )  # fmt: skip
    x = points(layer, 40, seed)
    beyond = np.clip(x + shift, moved.low, moved.high)
    allowed = allowance(layer) / 2 + allowance(moved) / 2
    # The query's own rounding is part of either allowance; the centre's is of the same size.
    assert np.abs(chooser.evaluate(moved, beyond) - chooser.evaluate(layer, x)).max() <= 2 * allowed + 1e-15


@FEW
@given(layers(kinds=("listed",)), SEEDS)
def test_the_order_of_the_keys_does_not_matter(layer, seed):
    order = np.random.default_rng(seed).permutation(layer.keys.count)
    other = Layer(
        layer.coordinates, ListedKeys(layer.keys.slopes[order], layer.keys.offsets[order]), layer.sharpness,
        layer.values[order], layer.low, layer.high, layer.inputs, layer.dtype,
    )  # fmt: skip
    x = points(layer, 30, seed)
    assert np.abs(chooser.evaluate(other, x) - chooser.evaluate(layer, x)).max() <= allowance(layer)
    assert np.allclose(chooser.attention(other, x), chooser.attention(layer, x)[:, order], atol=1e-5, rtol=0)


@FEW
@given(layers(), st.floats(-100, 100), SEEDS)
def test_a_constant_added_to_the_values_is_added_to_the_output(layer, constant, seed):
    other = Layer(
        layer.coordinates, layer.keys, layer.sharpness, layer.values.astype(np.float64) + constant, layer.low, layer.high,
        layer.inputs, layer.dtype,
    )  # fmt: skip
    x = points(layer, 30, seed)
    away = chooser.evaluate(other, x).astype(np.float64) - chooser.evaluate(layer, x) - constant
    unit = np.finfo(layer.dtype).eps
    stored = unit * float(np.abs(other.values).max())
    slack = sum(runtime_rounding(one, rounding_of(one, chooser.choose(one)[0])) for one in (layer, other))
    assert np.abs(away).max() <= stored + slack + unit * abs(constant)


@FEW
@given(layers(dtypes=("float64",)), SEEDS)
def test_growing_sharpness_gives_the_value_of_the_nearest_site_off_ties(layer, seed):
    x = points(layer, 60, seed)
    pieces = ma.MaxAffine(*(np.asarray(part, dtype=float) for part in layer.keys.listed()))
    z = layer.coordinates(x)
    clear = pieces.margin(z) > 1e-6
    assume(clear.any())
    sharp = Layer(
        layer.coordinates, layer.keys, 1e10, layer.values, layer.low, layer.high, layer.inputs, layer.dtype
    )
    winner = layer.values.reshape(layer.keys.count, layer.d_out, layer.n_out)[pieces.argmax(z[clear])]
    for runtime in chooser.available(layer):
        found = chooser.evaluate(sharp, x[clear], runtime)
        assert np.abs(found - winner).max() <= 1e-9 * max(1.0, float(np.abs(winner).max()))


@FEW
@given(layers(), SEEDS)
def test_dense_blocked_and_factorised_agree(layer, seed):
    x = points(layer, 30, seed)
    found = [chooser.evaluate(layer, x, runtime).astype(np.float64) for runtime in chooser.available(layer)]
    assert len(found) >= (3 if layer.is_product else 2)
    for other in found[1:]:
        assert np.abs(other - found[0]).max() <= allowance(layer)


@FEW
@given(layers(dtypes=("float64",)), SEEDS)
def test_weights_are_positive_and_sum_to_one_in_every_runtime(layer, seed):
    weights = chooser.attention(layer, points(layer, 20, seed))
    assert weights.shape == (20, layer.keys.count)
    assert np.all(weights >= 0)
    assert np.abs(weights.sum(axis=1) - 1).max() <= 1e-13


@FEW
@given(layers(dtypes=("float64",), far=False), SEEDS)
def test_self_and_cross_attention_agree_in_all_layouts_and_corrections(layer, seed):
    assume(layer.tokens <= 400)
    scale = max(1.0, float(np.abs(layer.values).max()))
    # Layout K forms the scores from x itself, so its logits round relative to the distance from the origin.
    reach = float(np.maximum(np.abs(layer.low), np.abs(layer.high)) @ np.abs(layer.coordinates.matrix).sum(axis=0))
    logits = layer.sharpness * (1.0 + max(float(np.abs(a.slopes).max(initial=0)) for a in layer.axes)) * (1.0 + reach)
    allowed = 1e-12 * scale + min(1.0, 64 * 2.0**-53 * logits) * float(np.ptp(layer.values))
    for x in points(layer, 4, seed):
        fast = chooser.evaluate(layer, x[None])[0]
        X = inputs(layer, x)
        for correction in ("output", "values"):
            made = [self_matrices(layer, layout, correction) for layout in "QKI"] + [cross_matrices(layer, correction)]
            for weights in made:
                assert np.abs(weights(*X) - fast).max() <= allowed
            assert np.abs(made[0](*X, full=False) - fast).max() <= allowed


@FEW
@given(layers(), SEEDS)
def test_what_is_saved_is_what_is_loaded_bytes_and_outputs(layer, seed):
    import tempfile
    from pathlib import Path

    tensors, record = to_tensors(layer)
    data = container_bytes(tensors, {"layer": record})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.safetensors"
        path.write_bytes(data)
        read, told = read_container(path)
    again = from_tensors(read, told["layer"])
    assert container_bytes(*to_tensors(again)[:1], {"layer": to_tensors(again)[1]}) == data
    x = points(layer, 20, seed)
    for runtime in chooser.available(layer):
        assert np.array_equal(chooser.evaluate(again, x, runtime), chooser.evaluate(layer, x, runtime))


@FEW
@given(layers(), st.integers(1, 60), SEEDS)
def test_results_do_not_depend_on_the_batch_beyond_rounding(layer, size, seed):
    x = points(layer, 60, seed)
    for runtime in chooser.available(layer):
        whole = chooser.evaluate(layer, x, runtime)
        parts = np.concatenate([chooser.evaluate(layer, x[i : i + size], runtime) for i in range(0, len(x), size)])
        assert whole.dtype == parts.dtype
        assert np.abs(whole.astype(np.float64) - parts).max() <= allowance(layer, (runtime,))


# -- certificates

LEAVES = ("x", "y", "0.5", "2", "(x+y)", "(x-y)")
UNARY = ("sin({})", "cos({})", "abs({})", "tanh({})", "exp(-({})**2)", "atan({})", "max({}, 0)", "min({}, 0.3)")
BINARY = ("({} + {})", "({} - {})", "({} * {})/2", "max({}, {})", "min({}, {})")

EXPRESSIONS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.builds(lambda form, one: form.format(one), st.sampled_from(UNARY), inner),
        st.builds(lambda form, one, two: form.format(one, two), st.sampled_from(BINARY), inner, inner),
    ),
    max_leaves=5,
)


@st.composite
def boxes(draw):
    far = draw(st.sampled_from([0.0, 1.0, 1000.0]))
    low = [draw(st.floats(-1, 1)) + sign * far for sign in (1.0, -1.0)]
    width = [draw(st.floats(0.05, 3)) for _ in range(2)]
    return ma.Box(x=(low[0], low[0] + width[0]), y=(low[1], low[1] + width[1]))


@settings(max_examples=40, deadline=None)
@given(st.lists(EXPRESSIONS, min_size=1, max_size=2), boxes(), st.sampled_from(["float64", "float32"]), SEEDS)
def test_the_certificate_is_not_below_the_error_on_adversarial_points(texts, box, dtype, seed):
    text = ", ".join(texts)
    target = Target.of(text, box)
    values = target.values(box.sample(200, np.random.default_rng(0)))
    error = max(0.15 * float(np.ptp(values, axis=0).max()), 1e-3 * max(1.0, float(np.abs(values).max())))
    try:
        layer = ma.compile(text, box, error=error, dtype=dtype, method="lookup", run=ma.Run(max_bytes=20_000_000))
    except ma.Refused:
        assume(False)
    assert layer.certificate.kind == "proved"
    assert layer.bound <= error
    x = points(layer.weights, 1500, seed)
    for runtime in chooser.available(layer.weights):
        count = 1500 if layer.tokens < 3000 else 100
        found = chooser.evaluate(layer.weights, x[:count], runtime).astype(np.float64)
        away = np.abs(found - target.values(x[:count])).max()
        assert away <= layer.certificate_for(runtime).bound + 1e-14 * np.abs(values).max()
        assert away <= layer.bound + 1e-14 * np.abs(values).max()


@settings(max_examples=15, deadline=None)
@given(st.floats(0.2, 5), st.integers(-100, 100), st.sampled_from([1.0, 2.0, 3.0]), st.sampled_from(["float64", "float32"]))
def test_the_lp_certificate_is_not_below_the_integral_of_a_jump(slope, place, p, dtype):
    at = place / 128
    text = f"where(x > {at!r}, 1, 0) + {slope!r}*abs(x)"
    try:
        layer = ma.compile(text, ma.Box(x=(-2, 2)), error=0.6, norm=p, dtype=dtype, method="lookup")
    except ma.Refused as reason:  # p = 3 asks for a sharpness whose logits float32 does not resolve
        assert dtype == "float32", reason
        assume(False)
    x = -2 + 4 * (np.arange(200_000) + 0.5) / 200_000
    away = np.abs(layer(x).astype(np.float64) - (x > at) - slope * np.abs(x))
    assert (float((away**p).mean()) * 4) ** (1 / p) <= layer.bound <= 0.6


@FEW
@given(EXPRESSIONS, boxes(), st.integers(1, 12), st.integers(2, 4))
def test_refining_the_grid_never_worsens_the_approximation_part(text, box, count, factor):
    from maxaffine.heads.lookup.build import build_grid
    from maxaffine.heads.lookup.plan import MARGIN, GridPlan
    from maxaffine.target.evidence import gather

    target = Target.of(text, box)
    evidence = gather(target, None, None, None).evidence
    assume(evidence.lipschitz is not None)
    known = Evidence(evidence.lipschitz, evidence.euclidean or 1.0, lambda r: 3.0 * r, lambda r: 2.0 * math.sqrt(r), spread=10.0)
    for route, margin in (("E1", 0.0), ("E2", 0.0), ("E3", 0.0), ("E4", 0.0), ("G4", MARGIN)):
        parts = []
        for cells in (count, count * factor):
            layer = build_grid(GridPlan(route, (cells, cells), 20.0, math.nan, margin=margin), target, "float64")
            parts.append(certify_grid(layer, target, known, route, margin).parts["approximation"])
        assert parts[1] <= parts[0] + 1e-9 * max(1.0, abs(parts[0]))
