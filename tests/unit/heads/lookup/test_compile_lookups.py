"""compile(): what it promises, what it refuses, and with which words.  (Lookups; other methods have tests of their own.)"""

import functools
import math

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.layer.matrices import cross_matrices, self_matrices

lookup = functools.partial(ma.compile, method="lookup")
PI2 = ma.Box(x=(-math.pi, math.pi), y=(-math.pi, math.pi))
LINE = ma.Box(x=(-1, 1))
STEP = "where(x**2 + y**2 < 1, 1, 0) - .7*where(x + .3*y > .4, 1, 0)"


# -- what must show


@pytest.mark.parametrize(("error", "most"), [(0.1, 4_900), (0.05, 19_321)])
def test_sin_plus_cos_takes_no_more_tokens_than_the_paper_and_is_proved(error, most):
    layer = lookup("sin(x)+cos(y)", PI2, error=error)
    assert layer.tokens <= most
    assert layer.bound <= error
    assert layer.certificate.kind == "proved"
    assert layer.observed.error <= layer.bound
    assert sum(layer.certificate.parts.values()) == pytest.approx(layer.bound, rel=1e-14)


def test_a_larger_sharpness_saves_tokens():
    layer = lookup("sin(x)+cos(y)", PI2, error=0.1)
    assert (layer.tokens, layer.sharpness) == (3_969, 20.0)


@pytest.mark.parametrize(("norm", "error"), [(1, 0.4), (2, 0.6)])
def test_a_discontinuous_target_is_proved_in_l1_and_l2_by_its_split(norm, error):
    layer = lookup(STEP, ma.Box(x=(-2, 2), y=(-2, 2)), error=error, norm=norm)
    details = layer.certificate.details
    assert layer.bound <= error
    assert layer.observed.error <= layer.bound
    assert layer.observed.norm == layer.norm == norm
    soft = min(details["soft_F1"], details["soft_F2"])
    assert details["hard"] + soft <= layer.bound * (1 + 1e-9)
    assert layer.certificate.parts["approximation"] == pytest.approx(details["hard"], rel=1e-9)


SEQUENCE = "sin(2*x11) + x12*x21, cos(x11 - x22), tanh(x21 + 2*x22), x11*x12/2 + x21**2"


def as_matrix(x, d, n):
    return x.reshape(n, d).T


def test_a_sequence_layer_is_within_its_bound_literally_and_all_layouts_agree():
    box = ma.Box.sequence(d=2, n=2, low=-1, high=1)
    target = ma.Target.of(SEQUENCE, box, output_shape=(2, 2))
    layer = lookup(target, error=1.3)
    assert layer.certificate.kind == "proved"
    weights, cross = [layer.matrices("self", layout=layout) for layout in "QKI"], layer.matrices("cross")
    x = box.sample(25, np.random.default_rng(0))
    fast = layer(box.unflatten(x))
    for point, true, quick in zip(x, target.values(x), fast, strict=True):
        literal = [w(as_matrix(point, 2, 2)) for w in weights]
        assert np.abs(literal[0] - true).max() <= layer.bound
        for other in (*literal[1:], quick, cross(as_matrix(point, 2, 2))):
            assert np.abs(other - literal[0]).max() <= 1e-12


def test_a_two_input_cross_layer_is_within_its_bound_literally():
    boxes = ma.Box.sequence(d=1, n=2, low=-1, high=1), ma.Box.sequence(d=2, n=1, low=-1, high=1)
    target = ma.Target.of("sin(q_x11 + k_x11) + q_x12*k_x21, cos(q_x11 - k_x21) + q_x12/2", boxes, output_shape=(1, 2))
    layer = lookup(target, error=1.0)
    assert layer.attention_kind == "cross"
    weights = layer.matrices()
    rng = np.random.default_rng(1)
    q, k = rng.uniform(-1, 1, size=(200, 1, 2)), rng.uniform(-1, 1, size=(200, 2, 1))
    fast = layer(q, k)
    for i in range(len(q)):
        literal = weights(q[i], k[i])
        (q1, q2), (k1, k2) = q[i, 0], k[i, :, 0]
        true = [[math.sin(q1 + k1) + q2 * k2, math.cos(q1 - k2) + q2 / 2]]
        assert np.abs(literal - true).max() <= layer.bound
        assert np.abs(literal - fast[i]).max() <= 1e-12
    with pytest.raises(ma.BadInput, match="self-attention"):
        layer.matrices("self")


def test_a_callable_of_sequences_with_declared_constants_is_proved():
    def f(X):
        return np.stack([X[:, 0].sum(axis=1), X[:, 1, ::-1].max(axis=1)], axis=1)[:, :, None]

    layer = lookup(f, ma.Box.sequence(d=2, n=2, low=-1, high=1), error=1.5, lipschitz=[1, 1, 1, 1], trace=False)
    assert layer.certificate.kind == "proved"
    assert layer(np.zeros((3, 2, 2))).shape == (3, 2, 1)
    assert any("callable" in word for word in layer.certificate.assumptions)


# -- every argument


def test_every_route_of_the_sup_norm_can_be_taken():
    f = lambda X: np.sqrt(np.abs(X[:, 0]))  # noqa: E731
    assert lookup("sin(x) + y", PI2, error=0.5).certificate.argument == "E1"
    norm = lambda X: np.linalg.norm(X, axis=1)  # noqa: E731
    assert lookup(norm, ma.Box([-1, -1, -1], [1, 1, 1]), error=0.5, lipschitz=1.0).certificate.argument == "E2"
    assert lookup(f, LINE, error=0.2, modulus=math.sqrt).certificate.argument == "E3"
    assert lookup(f, LINE, error=0.2, modulus=ma.ConcaveModulus(math.sqrt)).certificate.argument == "E4"
    assert lookup("sqrt(x)", ma.Box(x=(0, 1)), error=0.2).certificate.argument == "G4"
    ring = np.c_[np.cos(np.arange(200)), np.sin(np.arange(200))]
    layer = lookup("x*y", ma.Box(x=(-2, 2), y=(-2, 2)), error=0.9, keys=ring)
    assert layer.certificate.argument == "I"
    assert layer.certificate.scope.over == "centres" and layer.certificate.scope.count == layer.tokens
    partition = ma.MaxAffine.grid(ma.Box(x=(-1, 1), y=(-1, 1)), 6)
    layer = lookup("x*y", ma.Box(x=(-1, 1), y=(-1, 1)), error=0.9, keys=partition)
    assert layer.certificate.argument.startswith("G4")
    assert layer.tokens == 36


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_centres_are_within_the_radius_of_the_points_they_cover(dtype):
    ring = np.c_[np.cos(np.arange(400)), np.sin(np.arange(400))]
    layer = lookup("x*y", ma.Box(x=(-2, 2), y=(-2, 2)), error=0.5, keys=ring, dtype=dtype)
    sites = layer.weights.keys.slopes.astype(float) / layer.weights.coordinates.matrix[0, 0] + layer.weights.coordinates.centre
    far = np.sqrt(((ring[:, None] - sites) ** 2).sum(axis=2)).min(axis=1).max()
    assert far <= layer.certificate.details["radius"]


def test_callables_of_one_variable_are_proved_in_lp_by_total_variation_or_a_constant():
    jump = lambda X: np.where(X[:, 0] > 0.1, 1.0, 0.0)  # noqa: E731
    layer = lookup(jump, LINE, error=0.2, norm=1, modulus=ma.TotalVariation(1.0))
    assert layer.certificate.kind == "proved"
    x = np.linspace(-1, 1, 100_001)
    assert np.abs(layer(x) - (x > 0.1)).mean() * 2 <= layer.bound
    layer = lookup(lambda X: np.abs(X[:, 0]), LINE, error=0.2, norm=2, lipschitz=[1.0])
    assert layer.certificate.kind == "proved"


def test_a_callable_without_facts_is_compiled_and_only_observed():
    layer = lookup(lambda X: np.sin(X[:, 0]), LINE, error=0.1, trace=False)
    assert (layer.certificate.kind, layer.bound) == ("none", None)
    assert layer.observed.error <= 0.1
    with pytest.raises(ma.Refused, match=r"facts|lipschitz"):
        lookup(lambda X: np.sin(X[:, 0]), LINE, error=0.1, require="proved", trace=False)


def test_a_scalar_callable_runs_with_vectorize():
    layer = lookup(lambda x: math.sin(x[0]), LINE, error=0.2, vectorize=True, lipschitz=[1.0])
    assert abs(layer(0.3) - math.sin(0.3)) <= 0.2
    one = lookup(lambda x: math.sin(x[0]), LINE, error=0.2, trace=False, lipschitz=[1.0])  # found out to take points
    assert one(0.3) == layer(0.3)


def test_a_relative_error_is_measured_in_units_of_the_target():
    layer = lookup("1000*sin(x)", LINE, error=0.1, relative=True)
    assert 80 <= layer.error <= 85
    assert layer.bound <= layer.error


def test_a_gallery_entry_is_compiled_by_its_name():
    assert lookup("franke", error=0.5).certificate.kind == "proved"


def test_variables_that_the_target_does_not_use_cost_nothing():
    assert lookup("sin(3*x)", ma.Box(x=(0, 1), y=(0, 1), z=(-5, 5)), error=0.2).weights.keys.shape[1:] == (1, 1)


def test_single_points_batches_and_one_variable_have_their_shapes():
    one = lookup("sin(x)", LINE, error=0.2)
    assert np.ndim(one(0.3)) == 0
    assert one([0.1, 0.2, 0.3]).shape == (3,)
    assert one(np.zeros((4, 1))).shape == (4,)
    assert one(np.zeros((0, 1))).shape == (0,)
    two = lookup("x, y, x*y", ma.Box(x=(0, 1), y=(0, 1)), error=0.5)
    assert two([0.1, 0.2]).shape == (3,)
    assert two(np.zeros((5, 2))).shape == (5, 3)
    assert two.attention(np.zeros((5, 2))).shape == (5, two.tokens)
    assert two.attention([0.1, 0.2]).sum() == pytest.approx(1.0)


def test_the_frontier_costs_what_compile_then_takes():
    rows = ma.plan("sin(x)+cos(y)", PI2, errors=[0.5, 0.1])
    for error in (0.5, 0.1):
        best = min((row for row in rows if row["error"] == error and row["method"] == "lookup"), key=lambda row: row["tokens"])
        assert best["tokens"] == lookup("sin(x)+cos(y)", PI2, error=error).tokens
        assert best["affordable"]


# -- bad input, each with its own sentence


def sentence(*arguments, error=0.1, kind=ma.BadInput, **options):
    with pytest.raises(kind) as caught:
        ma.compile(*arguments, error=error, **{"method": "lookup", **options})
    text = str(caught.value)
    assert text[-1] in ".^" or text.endswith(")")
    return text


@pytest.mark.parametrize("error", [0, -1, -0.0, math.nan, math.inf, "small", None, [1, 2]])
def test_an_error_that_is_not_a_positive_number_is_named(error):
    assert "`error`" in sentence("sin(x)", LINE, error=error)


def test_an_error_below_what_the_dtype_can_hold_is_refused():
    text = sentence("sin(x)", LINE, error=1e-300, kind=ma.Refused)
    assert "float64" in text
    assert "1e-300" in text
    assert "float32" in sentence("sin(x)", LINE, error=1e-9, dtype="float32", kind=ma.Refused)


def test_values_beyond_the_dtype_are_refused():
    assert "overflow" in sentence("1e39*x", ma.Box(x=(0, 1)), error=1e38, dtype="float32", kind=ma.Refused)


@pytest.mark.parametrize("edges", [(1, 1), (2, 1), (math.nan, 1), (0, math.inf)])
def test_a_box_that_is_empty_inverted_or_infinite_is_refused(edges):
    with pytest.raises(ma.BadInput):
        ma.Box(x=edges)


def test_a_missing_box_is_asked_for():
    assert "`box`" in sentence(lambda X: X[:, 0])


def test_a_box_may_be_a_dictionary_of_pairs_for_compile_frontier_and_partitions():
    named = {"x": (-1, 1), "y": (0, 1)}
    layer = ma.compile("x*y", box=named, error=1e-3)
    assert layer.box == ma.Box(**named)
    assert ma.plan("x*y", named, errors=[0.1])
    assert ma.MaxAffine.grid(named, 2) == ma.MaxAffine.grid(ma.Box(**named), 2)
    with pytest.raises(ma.BadInput, match=r'write Box\(x=\(-1, 1\), y=\(0, 1\)\) or \{"x": \(-1, 1\), "y": \(0, 1\)\}'):
        ma.compile("x*y", [(-1, 1), (0, 1)], error=0.1)


def test_unknown_functions_imports_and_variables_are_named():
    assert "`sine`" in sentence("sine(x)", LINE)
    assert "__import__" in sentence('__import__("os")', LINE)
    assert "`z`" in sentence("sin(z)", LINE, kind=ma.Refused)


def test_ten_thousand_nested_parentheses_are_refused():
    assert sentence("(" * 10_000 + "x" + ")" * 10_000, LINE)


@pytest.mark.parametrize(("function", "word"), [
    (lambda X: np.zeros((2, 3, 4, 5)), "shape"),
    (lambda X: X[:, 0] * np.nan, "x="),
    (lambda X: np.where(X[:, 0] > 0.2, np.inf, 0.0), "x="),
    (lambda X: 1 / 0, "ZeroDivisionError"),
    (lambda X: "text", "number"),
    (lambda X: None, "None"),
])  # fmt: skip
def test_a_callable_that_returns_nonsense_or_raises_is_refused(function, word):
    text = sentence(function, LINE, lipschitz=[1.0], trace=False)
    assert word in text or "vectorize" in text


def test_a_step_in_the_sup_norm_is_refused_with_the_reason_and_the_way_out():
    text = sentence("sign(x)", LINE, kind=ma.Refused)
    assert "norm=1" in text
    assert "sup norm" in text
    text = sentence(lambda X: np.sign(X[:, 0]), LINE, kind=ma.Refused)
    assert "jump" in text
    assert "norm=1" in text


def test_what_was_tried_stands_in_the_details_of_a_refusal():
    with pytest.raises(ma.Refused) as auto:
        ma.compile("sign(x - .1)*exp(x) + abs(x + .5)", LINE, error=1e-3)
    assert "piecewise" not in str(auto.value) and len(str(auto.value)) < 500
    assert len(auto.value.tried) > 5 and auto.value.details == "\n".join(auto.value.tried)
    assert auto.value.tried[1].startswith("axis: the target jumps at 0.1")
    with pytest.raises(ma.Refused) as one:
        lookup("sign(x)", LINE, error=1e-3)
    assert one.value.tried == ()
    with pytest.raises(ma.Refused, match=r"no regions head was proved: .*jumps on a plane"):
        ma.compile("sign(x)", LINE, error=1e-3, method="regions")


def test_more_tokens_than_memory_are_refused_with_the_numbers_and_the_way_out():
    text = sentence("+".join(f"sin(x{i})" for i in range(1, 9)), ma.Box([-3] * 8, [3] * 8), error=1e-3, kind=ma.Refused)
    assert "tokens" in text
    assert "larger" in text
    text = sentence("sin(x)+cos(y)", PI2, error=0.01, run=ma.Run(max_bytes=1000), kind=ma.Refused)
    assert "`max_bytes`" in text
    assert "1e+03 B" in text or "1000" in text or "B" in text


@pytest.mark.parametrize("text", ["1/x", "log(x)", "sqrt(x)", "tan(2*x)", "x**-0.5", "asin(2*x)"])
def test_a_target_that_is_not_finite_on_the_box_is_refused(text):
    assert "box" in sentence(text, LINE, kind=ma.Refused)
    assert "box" in sentence(text, LINE, norm=1, kind=ma.Refused)


@pytest.mark.parametrize(("option", "value"), [
    ("method", "magic"), ("method", "nearest"), ("dtype", "float8"), ("norm", 0.5), ("norm", "two"), ("norm", math.nan),
    ("norm", 1000), ("require", "hope"), ("run", 3), ("literal", 1),
    ("lipschitz", [-1.0]), ("lipschitz", [1.0, 2.0]), ("lipschitz", [math.nan]), ("lipschitz", "steep"), ("keys", 3),
    ("keys", [[5.0]]), ("keys", [[math.nan]]), ("keys", np.zeros((0, 1))), ("keys", [[0.0, 0.0]]), ("keys", "x"),
    ("analytic", 3),
])  # fmt: skip
def test_an_option_out_of_range_is_named(option, value):
    assert f"`{option}`" in sentence("sin(x)", LINE, **{option: value})


def test_declared_constants_that_the_target_contradicts_are_refused():
    assert "contradicted" in sentence("sin(9*x)", LINE, lipschitz=[1.0])
    assert "contradicted" in sentence(lambda X: np.sin(9 * X[:, 0]), LINE, lipschitz=[1.0])
    assert "contradicted" in sentence(lambda X: np.sin(9 * X[:, 0]), LINE, modulus=lambda r: r)


def test_a_partition_too_coarse_for_the_error_is_refused_with_the_way_out():
    assert "`keys`" in sentence("x", LINE, keys=ma.MaxAffine([[0.0], [1.0]], [0.0, 0.0]), kind=ma.Refused)


def test_queries_outside_the_box_are_errors_unless_clamped():
    layer = lookup("sin(x)", LINE, error=0.2)
    with pytest.raises(ma.BadInput, match="outside"):
        layer(1.5)
    assert layer(1.5, outside="clamp") == layer(1.0)
    with pytest.raises(ma.BadInput, match="runtime"):
        layer(0.5, runtime="fast")
    with pytest.raises(ma.BadInput, match="runtime"):
        layer.certificate_for("fast")


def test_matrices_beyond_memory_are_refused_with_the_number():
    layer = lookup("sin(x)+cos(y)", PI2, error=0.01)
    with pytest.raises(ma.Refused, match="layout"):
        layer.matrices("self", layout="I")


def test_every_matrix_row_is_described():
    layer = lookup("x, y", ma.Box(x=(0, 1), y=(0, 1)), error=0.6)
    for layout in "QKI":
        weights = self_matrices(layer.weights, layout)
        text = weights.describe()
        assert len(weights.linear.rows) == weights.R_0.shape[0]
        assert len(weights.head) == weights.W_Q.shape[0] == weights.W_K.shape[0]
        assert text.count("row") >= len(weights.linear.rows) + len(weights.head)
    cross = cross_matrices(layer.weights)
    assert len(cross.query.rows) == cross.query.R_0.shape[0]
    assert len(cross.context.rows) == cross.context.R_0.shape[0]
    assert "context" in cross.describe()


def test_the_public_names_check_plan_and_error(tmp_path):
    path = tmp_path / "f.safetensors"
    layer = ma.compile("sin(3*x)", ma.Box(x=(-1, 1)), error=1e-3)
    layer.save(path)
    verdict = ma.check(path)
    assert verdict.passed and verdict.bound <= verdict.error == 1e-3
    rows = ma.plan("sin(3*x)", ma.Box(x=(-1, 1)), errors=[1e-3])
    assert layer.tokens in [row["tokens"] for row in rows]
    with pytest.raises(ma.MaxaffineError, match="not compiled from a table"):
        ma.check(path, table=ma.Table([np.arange(3.0)], np.arange(3.0)))
    assert set(ma.__all__) <= set(dir(ma)) and all(getattr(ma, name) is not None for name in ma.__all__)


def test_layer_is_the_old_name_of_weights():
    layer = ma.compile("x", ma.Box(x=(-1, 1)), error=1e-3)
    with pytest.warns(DeprecationWarning, match="`weights`"):
        assert ma.Compiled.layer.fget(layer) is layer.weights


@pytest.mark.parametrize(("field", "value"), [
    ("seed", -1), ("seed", 1.5), ("max_bytes", 0), ("max_bytes", "much"), ("executor", 3), ("progress", 3), ("out", 3),
])  # fmt: skip
def test_a_field_of_run_out_of_range_is_named(field, value):
    with pytest.raises(ma.BadInput, match=f"`{field}`"):
        ma.Run(**{field: value})


def test_every_old_keyword_still_works_and_names_the_new_one(tmp_path):
    def warned(new, *arguments, **options):
        with pytest.warns(DeprecationWarning, match=new) as told:
            layer = ma.compile(*arguments, **options)
        assert told[0].filename == __file__
        return layer

    cells = ma.MaxAffine.grid(LINE, 4)
    new = ma.compile("x", LINE, error=0.6, method="lookup", keys=cells)
    assert warned("`keys=`", "x", LINE, error=0.6, method="lookup", partition=cells).to_bytes() == new.to_bytes()
    points = np.array([[0.0], [0.5]])
    new = ma.compile("x", LINE, error=0.2, method="lookup", keys=points)
    assert warned("`keys=`", "x", LINE, error=0.2, method="lookup", centres=points).to_bytes() == new.to_bytes()
    table = ma.Table([np.arange(4.0)], np.arange(4.0) ** 2)
    assert warned('method="nearest"', table, hard=True).to_bytes() == ma.compile(table, method="nearest").to_bytes()
    layer = warned(r'matrices\("cross"\)', "x", LINE, error=0.1, method="lookup", attention="cross")
    assert layer.attention_kind == "cross"
    path = tmp_path / "f.safetensors"
    assert warned(r"ma.Run\(out=", "x", LINE, error=0.1, out=path).file == str(path)
    with pytest.raises(TypeError, match="colour"):
        ma.compile("x", LINE, error=0.1, colour="red")
    with pytest.raises(ma.BadInput, match="`keys`"), pytest.warns(DeprecationWarning):
        ma.compile("x", LINE, error=0.6, method="lookup", keys=cells, partition=cells)


@pytest.mark.parametrize(
    ("target", "box", "error"),
    [("x", {"x": (-2686.451, -2680.344)}, 0.038199875), ("sqrt(abs(x))", {"x": (35.743, 36.715)}, 1.7348182e-4)],
)
def test_a_float32_lookup_that_is_offered_can_be_saved_where_rounding_takes_the_rest_of_the_error(target, box, error, tmp_path):
    layer = ma.compile(target, box, error=error, dtype="float32", method="lookup")
    layer.save(tmp_path / "a.safetensors")
    assert ma.check(tmp_path / "a.safetensors").passed


def test_a_lookup_that_is_too_large_for_the_checker_is_not_offered():
    with pytest.raises(ma.Refused, match=r"the checker proves at most 20,000,000 again") as refused:
        ma.compile("sin(50*x)*cos(50*y)", {"x": (-3, 3), "y": (-3, 3)}, error=0.05, method="lookup")
    assert refused.value.nearest_error > 0.05
