"""Tables and samples: what is refused, what is proved at the entries, what the files keep, and what they look like outside."""

import json
from pathlib import Path

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker import check, check_file
from maxaffine.core.container import read_container, write_container
from maxaffine.heads.entries import segments as segments_of_table
from maxaffine.report.scope import in_words

X = np.linspace(0.0, 3.0, 41)
Y = np.geomspace(0.1, 10.0, 30)
SMOOTH = np.sin(X)[:, None] * np.log(Y)
NOISE = np.random.default_rng(5).normal(size=(24, 15))
UNEVEN = np.sort(np.random.default_rng(6).uniform(0.0, 1.0, 24))
POINTS = np.random.default_rng(7).uniform(-1.0, 1.0, (200, 2))
HEIGHTS = np.sin(2.0 * POINTS[:, 0]) + POINTS[:, 1] ** 2


def density(count: int) -> ma.Table:
    """Something like the density of water over temperature and pressure."""
    T, p = np.linspace(0.0, 100.0, count), np.linspace(0.1, 100.0, count + 3)
    at_one = (999.84 + 16.945 * T - 7.987e-3 * T**2 - 4.617e-5 * T**3) / (1.0 + 1.68979e-2 * T)
    return ma.Table([T, p], at_one[:, None] / (1.0 - 0.137 * np.log10(1.0 + p / 300.0)), names=["T", "p"], name="density")


@pytest.fixture(scope="module")
def smooth() -> ma.Compiled:
    return ma.compile(ma.Table([X, Y], SMOOTH, names=["x", "y"]), error=1e-5)


@pytest.fixture(scope="module")
def rough() -> ma.Compiled:
    return ma.compile(ma.Table([UNEVEN, np.arange(15.0)], NOISE), error=1e-6)


@pytest.fixture(scope="module")
def nearest() -> ma.Compiled:
    return ma.compile(ma.Table([UNEVEN, np.arange(15.0)], NOISE), method="nearest")


@pytest.fixture(scope="module")
def scattered() -> ma.Compiled:
    return ma.compile(ma.Samples(POINTS, HEIGHTS), error=1e-4)


# -- what is refused


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ma.Table([[0.0, 1.0, 1.0]], [1.0, 2.0, 3.0]), "must increase strictly, and its entries 1 and 2 are 1 and 1"),
        (lambda: ma.Table([[3.0, 1.0, 2.0]], [1.0, 2.0, 3.0]), "must decrease strictly, and its entries 1 and 2 are 1 and 2"),
        (lambda: ma.Table([[0.0, np.nan]], [1.0, 2.0]), "not finite, the first at index 1"),
        (lambda: ma.Table([[0.0]], [1.0]), "two numbers or more"),
        (lambda: ma.Table([], [1.0]), "`axes` must be"),
        (lambda: ma.Table([["a", "b"]], [1.0, 2.0]), "must be an array of real numbers"),
        (lambda: ma.Table([[0.0, 1.0]], [1.0, 2.0, 3.0]), r"must be \(2,\), the lengths of the axes, or \(2, K\)"),
        (lambda: ma.Table([[0.0, 1.0]], [1j, 2.0]), "must be an array of real numbers"),
        (lambda: ma.Table([[0.0, 1.0]], [1.0, np.nan]), r"1 of 2 entries .* the first at index \(1,\)"),
        (lambda: ma.Table([[1.0, 0.0]], [np.inf, 1.0]), r"the first at index \(0,\) \(1\)"),
        (lambda: ma.Table([[0.0, 1.0]], np.ma.masked_equal([1.0, 2.0], 2.0)), "1 of 2 entries"),
        (lambda: ma.Table([[0.0, 1.0]], [np.nan, np.nan], missing="ignore"), "every entry"),
        (lambda: ma.Table([[0.0, 1.0]], [1.0, 2.0], missing="drop"), '"refuse" or "ignore"'),
        (lambda: ma.Table([[0.0, 1.0]], [1.0, 2.0], names=["x", "y"]), "must be 1 names"),
        (lambda: ma.Samples([[0.0, 1.0]], [1.0, 2.0]), r"must be \(1,\) or \(1, K\)"),
        (lambda: ma.Samples([[0.0, np.nan]], [1.0]), "the first in row 0"),
        (lambda: ma.Samples([0.0, 1.0], [1.0, np.nan]), "1 of 2 rows .* the first is row 1"),
        (lambda: ma.Samples([[0.0, 1.0], [2.0, 1.0]], [1.0, 2.0]), "column 1 of `X` is 1 in every row"),
    ],
)  # fmt: skip
def test_malformed_tables_are_refused_in_words(make, words) -> None:
    with pytest.raises(ma.BadInput, match=words):
        make()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"error": 1e-3, "lipschitz": 1.0}, "`lipschitz` is about functions"),
        ({"error": 1e-3, "norm": 2}, "the largest error at an entry"),
        ({"error": 1e-3, "method": "tree"}, "choose one of auto, spectral, lookup, nearest"),
        ({"error": 1e-3, "box": ma.Box(x=(0, 1))}, "has its own box"),
        ({}, "`error` is missing"),
    ],
)
def test_what_makes_no_sense_for_a_table(asked, words) -> None:
    with pytest.raises(ma.BadInput, match=words):
        ma.compile(ma.Table([X], np.sin(X)), **asked)


def test_hard_is_for_tables() -> None:
    with pytest.raises(ma.BadInput, match="the target is a function"):
        ma.compile("sin(x)", ma.Box(x=(0, 1)), error=0.1, method="nearest")


def test_tables_do_not_change() -> None:
    table = ma.Table([X], np.sin(X))
    with pytest.raises(AttributeError, match="cannot assign"):
        table.values = np.zeros(3)
    with pytest.raises(ValueError, match="read-only"):
        table.values[0] = 1.0
    with pytest.raises(AttributeError, match="cannot assign"):
        ma.Samples([0.0, 1.0], [1.0, 2.0]).y = 0.0


def test_a_descending_axis_is_turned_round_with_its_values() -> None:
    turned, straight = ma.Table([Y[::-1]], np.log(Y[::-1])), ma.Table([Y], np.log(Y))
    assert np.array_equal(turned.axes[0], Y) and turned.entries == straight.entries


def test_the_hash_is_of_the_numbers() -> None:
    one = ma.Table([X], np.sin(X)).entries.sha256
    assert ma.Table([X], np.sin(X), names=["t"], name="other").entries.sha256 == one
    moved = np.sin(X)
    moved[3] = np.nextafter(moved[3], 2.0)
    assert ma.Table([X], moved).entries.sha256 != one
    assert ma.Samples(X, np.sin(X)).entries.sha256 != one


def test_samples_at_one_point_must_agree() -> None:
    samples = ma.Samples([0.0, 1.0, 2.0, 1.0], [0.0, 1.0, 2.0, 1.5])
    with pytest.raises(ma.Refused, match=r"rows 1 and 3 of `X` are the same point and their values 1 and 1\.5"):
        ma.compile(samples, error=0.1)
    with pytest.raises(ma.Refused, match="rows 1 and 3"):
        ma.compile(samples, method="nearest")
    assert ma.compile(samples, error=0.3).bound <= 0.3


# -- what is proved


@pytest.mark.parametrize("made", ["smooth", "rough", "scattered"])
@pytest.mark.parametrize("runtime", [None, "factorised", "dense"])
def test_the_bound_holds_at_every_entry_in_every_runtime(made, runtime, request) -> None:
    layer = request.getfixturevalue(made)
    if runtime is not None and runtime not in layer.runtimes():
        pytest.skip("not a runtime of this layer")
    bound = layer.certificate_for(runtime or "arrays").bound
    worst = 0.0
    for points, values in layer.target.data.blocks():
        worst = max(worst, float(np.abs(layer(points, runtime=runtime) - values[:, 0]).max()))
    assert worst <= bound <= layer.error * (1 + 1e-12) or (runtime and worst <= bound)
    assert worst > 0.2 * layer.certificate.parts["approximation"]  # the bound is about this layer


def test_it_cannot_be_read_as_a_bound_over_the_box(smooth) -> None:
    certificate = smooth.certificate
    assert certificate.kind == "proved" and certificate.scope.over == "entries" and certificate.norm_label == "entries"
    assert smooth.to_json()["norm"] == "entries" and smooth.semantics()["norm"] == "entries"
    assert "sup norm" not in str(certificate) and "entries" in str(certificate)
    assert certificate.scope.count == X.size * Y.size and f"{X.size * Y.size:,}" in in_words(certificate.scope)
    told = smooth.explain()
    assert "nowhere else" in told and "sup norm" not in told


def test_a_smooth_table_takes_few_tokens(smooth) -> None:
    assert smooth.tokens <= 100 and smooth.method == "spectral"
    between = np.stack([np.full(500, 1.2345), np.geomspace(0.1, 10.0, 500)], axis=1)
    assert np.abs(smooth(between) - np.sin(1.2345) * np.log(between[:, 1])).max() < 0.05  # an interpolant, and nothing proved


def test_noise_takes_a_token_per_entry_and_says_so(rough) -> None:
    assert rough.tokens == NOISE.size and rough.method == "lookup"
    assert "no fewer tokens than entries" in rough.explain()


def test_a_refusal_says_how_far_tokens_come() -> None:
    with pytest.raises(ma.Refused, match=r'tokens leave .*method="nearest"') as caught:
        ma.compile(ma.Table([UNEVEN, np.arange(15.0)], NOISE), error=1e-3, method="spectral")
    assert str(caught.value).count("tokens leave") == 1
    even = np.linspace(0, 1, 30)
    with pytest.raises(ma.Refused) as caught:
        ma.compile(ma.Table([even, even], np.abs(np.subtract.outer(even, even))), error=1e-6, method="spectral")
    assert str(caught.value).count("tokens leave") == 1
    assert all("tokens leave" in line for line in caught.value.tried)


@pytest.mark.parametrize(
    ("values", "tokens"),
    [(np.abs(X - 1.05), 2), (np.sign(X - 1.0) + X, 3), (np.floor(X), 4), (np.random.default_rng(3).normal(size=41), 21)],
)
def test_kinks_jumps_and_noise_of_one_variable_take_a_token_per_straight_piece(values, tokens) -> None:
    layer = ma.compile(ma.Table([X], values), error=1e-4)
    assert layer.tokens <= tokens and layer.bound <= 1e-4
    assert np.abs(layer(X) - values).max() <= layer.bound
    scattered = ma.compile(ma.Samples(X[::-1], np.stack([values, 2.0 * values], axis=1)[::-1]), error=1e-4)
    assert scattered.tokens <= tokens and np.abs(scattered(X)[:, 1] - 2.0 * values).max() <= scattered.bound


def test_a_line_is_the_nearest_in_the_largest_error() -> None:
    z, y = np.array([0.0, 1.0, 2.0]), np.array([[0.0], [1.0], [0.0]])
    level, slope, error = segments_of_table.line(z, y)
    assert abs(error - 0.5) < 1e-9 and abs(slope[0]) < 1e-9 and abs(level[0] - 0.5) < 1e-9
    runs = segments_of_table.runs(np.arange(9.0), np.abs(np.arange(9.0) - 4.0)[:, None], 1e-9, 9)
    assert runs == [(0, 5), (5, 9)] and segments_of_table.runs(np.arange(9.0), NOISE[:9, :1], 1e-9, 3) is None


def test_a_geometric_axis_is_advised_to_take_its_logarithm() -> None:
    t = np.geomspace(1e-6, 1e6, 60)
    with pytest.raises(ma.Refused, match=r"log\(t\) may be the better axis"):
        ma.compile(ma.Table([t], np.sin(np.log(t)), names=["t"]), error=1e-9)
    assert ma.compile(ma.Table([np.log(t)], np.sin(np.log(t))), error=1e-6).tokens < 30


def test_vectors_and_float32() -> None:
    y = np.linspace(1.0, 2.0, 12)
    values = np.stack([np.sin(X)[:, None] * np.log(y), np.cos(X)[:, None] * np.ones(len(y))], axis=-1)
    layer = ma.compile(ma.Table([X, y], values), error=1e-3, dtype="float32")
    got = np.stack([layer(np.stack([np.full(len(y), x), y], axis=1)) for x in X])
    assert got.dtype == np.float32 and got.shape == values.shape
    assert np.abs(got.astype(np.float64) - values).max() <= layer.bound <= 1e-3


def test_missing_entries_are_not_spoken_of(tmp_path: Path) -> None:
    values = SMOOTH.copy()
    values[5, 6], values[10:14, 3:9] = np.nan, np.inf
    table = ma.Table([X, Y], values, missing="ignore")
    assert table.entries.missing == 25 and table.entries.count == SMOOTH.size - 25
    layer = ma.compile(table, error=1e-4)
    assert layer.tokens <= 100 and layer.certificate.scope.missing == 25
    layer.save(tmp_path / "f.safetensors")
    assert check_file(tmp_path / "f.safetensors", table).passed
    layer.draw(tmp_path / "f.png")
    hard = ma.compile(table, method="nearest")
    assert hard.bound == 0.0 and np.isfinite(hard([X[5], Y[6]]))


def test_a_table_much_larger_than_its_layer(tmp_path: Path) -> None:
    table = density(300)
    layer = ma.compile(table, error=0.01)
    layer.save(tmp_path / "f.safetensors")
    assert table.nbytes > 200 * (tmp_path / "f.safetensors").stat().st_size
    assert layer.bound <= 0.01 and check_file(tmp_path / "f.safetensors", table).passed


def test_samples_of_many_variables_and_rough_ones() -> None:
    rng = np.random.default_rng(1)
    wide = rng.uniform(-1.0, 1.0, (120, 5))
    for samples in (ma.Samples(wide, np.sin(wide.sum(axis=1))), ma.Samples(POINTS, rng.normal(size=(200, 2)))):
        layer = ma.compile(samples, error=1e-3)
        got = layer(samples.X).reshape(samples.y.shape)
        assert np.abs(got - samples.y).max() <= layer.bound <= 1e-3


# -- the nearest entry


def test_the_nearest_entry_is_exact_in_both_dtypes(nearest) -> None:
    assert nearest.bound == 0.0 and nearest.runtime()[0] == "hard" and nearest.certificate.runtime == "hard"
    weights = nearest.attention([UNEVEN[3] + 1e-9, 4.2])
    assert weights.sum() == 1.0 and weights.max() == 1.0
    narrow = ma.compile(ma.Table([UNEVEN, np.arange(15.0)], NOISE), method="nearest", dtype="float32")
    assert 0.0 < narrow.bound <= 2.0**-24 * np.abs(NOISE).max()
    with pytest.raises(ma.Refused, match="use float64"):
        ma.compile(ma.Table([UNEVEN, np.arange(15.0)], NOISE), method="nearest", dtype="float32", error=1e-12)


@pytest.mark.parametrize("asked", [{"method": "nearest"}, {"error": 0.1}])
def test_tables_in_bfloat16(asked, tmp_path: Path) -> None:
    table = ma.Table([X], np.sin(X))
    layer = ma.compile(table, dtype="bfloat16", **asked)
    assert layer(X).dtype == np.float32 and np.abs(layer(X).astype(np.float64) - np.sin(X)).max() <= layer.bound <= 0.1
    layer.save(tmp_path / "f.safetensors")
    assert check_file(tmp_path / "f.safetensors", table).passed


def test_the_softmax_of_a_hard_layer_is_proved_at_its_entries(nearest) -> None:
    soft = nearest.certificate_for("factorised")
    assert soft.scope.over == "entries" and 0.0 < soft.bound < 1e-8
    far = ma.compile(ma.Table([np.geomspace(1e-2, 1e2, 50)], np.arange(50.0)), method="nearest")
    assert far.certificate_for("factorised").bound < 1e-5


def test_hard_layers_answer_tensors_alike(nearest) -> None:
    torch = pytest.importorskip("torch")
    x = nearest.box.sample(64, np.random.default_rng(0))
    assert np.array_equal(nearest(torch.tensor(x)).numpy(), nearest(x))
    assert np.array_equal(nearest(torch.tensor(x, requires_grad=True)).detach().numpy(), nearest(x))


# -- files


@pytest.mark.parametrize("made", ["smooth", "rough", "nearest", "scattered"])
def test_files_are_proved_again_with_their_table_alone(made, request, tmp_path: Path) -> None:
    layer, path = request.getfixturevalue(made), tmp_path / "f.safetensors"
    layer.save(path)
    loaded = ma.load(path)
    assert loaded.certificate == layer.certificate and loaded.target.entries == layer.target.entries
    x = layer.box.sample(50, np.random.default_rng(0))
    assert np.array_equal(loaded(x), layer(x))
    verdict = check_file(path, layer.target.data)
    assert verdict.passed and verdict.bound <= layer.error and "entries" in verdict.reason
    without = check_file(path)
    assert not without.passed and "does not keep" in without.reason
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_another_table_is_not_the_one(smooth) -> None:
    tensors, record = smooth._record()
    moved = SMOOTH.copy()
    moved[0, 0] = np.nextafter(moved[0, 0], 1.0)
    for other in (ma.Table([X, Y], moved), ma.Samples(POINTS, HEIGHTS)):
        verdict = check(tensors, record, other)
        assert not verdict.passed and "not the one" in verdict.reason
    record = json.loads(json.dumps(record))
    record["target"]["entries"]["sha256"] = "0" * 64
    assert not check(tensors, record, smooth.target.data).passed


def _moves(tensors):
    """Every tensor in turn with one number moved enough to matter."""
    for name, tensor in tensors.items():
        if name.startswith("box.") or (name.endswith("offsets") and tensor.size == 1):
            continue
        moved = np.array(tensor)
        place = np.unravel_index(int(np.abs(moved).argmax()), moved.shape)
        moved[place] = moved[place] * 1.01 + 0.01
        yield name, {**tensors, name: moved}


@pytest.mark.parametrize("made", ["smooth", "rough", "nearest", "scattered"])
def test_moved_numbers_are_found(made, request) -> None:
    layer = request.getfixturevalue(made)
    tensors, record = layer._record()
    assert check(tensors, record, layer.target.data).passed
    seen = 0
    for name, moved in _moves(tensors):
        if made == "nearest" and not name.startswith(("values", "sites")):
            continue  # the keys of the softmax have no part in the nearest entry
        verdict = check(moved, record, layer.target.data)
        assert not verdict.passed, name
        seen += 1
    assert seen >= 2


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("norm",), "inf"), (("certificate", "norm"), "inf"), (("certificate", "scope"), {"over": "box"}),
        (("certificate", "runtime"), "hard"), (("certificate", "dtype"), "float32"),
        (("certificate", "details", "collapse"), 1.0), (("target", "entries", "count"), 7),
        (("error",), 1e-9), (("layer", "dtype"), "float32"),
    ],
)  # fmt: skip
def test_a_record_that_claims_more_is_not_believed(smooth, path, value) -> None:
    tensors, record = smooth._record()
    record = json.loads(json.dumps(record))
    place = record
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert not check(tensors, record, smooth.target.data).passed


@pytest.mark.parametrize(
    "entries", [None, {}, {"kind": "table"}, {"kind": "samples", "shape": [0], "count": 1, "missing": 0, "sha256": "0" * 64}]
)
def test_malformed_records_of_tables_are_bad_input(smooth, entries, tmp_path: Path) -> None:
    tensors, record = smooth._record()
    record = json.loads(json.dumps(record))
    record["target"]["entries"] = entries
    with pytest.raises(ma.BadInput):
        check(tensors, record, smooth.target.data)
    write_container(tmp_path / "f.safetensors", tensors, record)
    with pytest.raises(ma.BadInput):
        ma.load(tmp_path / "f.safetensors")


def test_a_hard_layer_is_no_proof_of_a_function(nearest) -> None:
    layer = ma.compile("sin(x)", ma.Box(x=(0, 1)), error=0.1, method="lookup")
    tensors, record = layer._record()
    assert check(tensors, record).passed
    assert not check(tensors, {**record, "layer": {**record["layer"], "hard": True}}).passed


# -- outside


def test_exports_of_tables(smooth, scattered, nearest, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for name, layer in (("smooth", smooth), ("scattered", scattered), ("nearest", nearest)):
        rows = layer.export("safetensors", tmp_path / f"{name}.safetensors")
        assert rows[0].seen <= 1e-9
        rows = layer.export("torch", tmp_path / f"{name}-torch.safetensors")
        assert rows[0].dtype == "float64" and rows[0].seen <= 1e-9
        assert json.loads(json.dumps(layer.semantics()))["certificate"]["norm"] == "entries"
        assert read_container(tmp_path / f"{name}.safetensors")[1]["semantics"]["norm"] == "entries"


def test_pictures_of_tables(smooth, nearest, scattered, tmp_path: Path) -> None:
    for name, layer in (("smooth", smooth), ("nearest", nearest), ("scattered", scattered)):
        layer.draw(tmp_path / f"{name}.svg")
        drawn = (tmp_path / f"{name}.svg").read_text()
        assert f"at {layer.certificate.scope.count:,} entries; nothing between them" in drawn
        assert "target ± proved bound" not in drawn and "proved bound ±" not in drawn  # no band between entries
