"""Sums some parts of which switch: taken apart exactly, planned, proved in both runtimes, checked again, saved and exported."""

import contextlib
import functools

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.attack.domain import Domain
from maxaffine.attack.search import worst_point
from maxaffine.checker import check
from maxaffine.core.errors import BadInput, Refused
from maxaffine.expression.expression import Expression
from maxaffine.heads.composite.sums_prove import certify_sums
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.literal import literal
from maxaffine.proofs.normalisers import normaliser_range
from maxaffine.runtime import chooser
from maxaffine.structure.groups import groups_of
from maxaffine.structure.sums import sum_of

SIDE = (-1, 1)
NAMES = ("x", "y", "z")
BOX = ma.Box(x=SIDE, y=SIDE, z=SIDE)


@functools.cache
def compiled(text, error, names="xy", method="sums", dtype="float64"):
    return ma.compile(text, ma.Box(**dict.fromkeys(names, SIDE)), error=error, method=method, dtype=dtype)


def parsed(text):
    return Expression.parse(text, NAMES)


# ---------------------------------------------------------------------- the sum


@pytest.mark.parametrize("text, dimensions, switching, slopes", [
    ("abs(x)+sin(y)", [1, 1], [False, True], [0, 0, 0]),
    ("relu(x-.2)+exp(-y*y)+z", [1, 1], [False, True], [0, 0, 1]),
    ("abs(x)+x*y", [2, 1], [False, True], [0, 0, 0]),
    ("max(x,y)+sin(z)", [1, 1], [False, True], [0.5, 0.5, 0]),
    ("min(x+z,y+z)+sin(z)+4", [1, 1], [False, True], [0.5, 0.5, 0]),
    ("max(x+sin(y), sin(y))+1", [1, 1], [False, True], [0, 0, 0]),
    ("sqrt(x+1)+abs(y)+x*y*z", [3, 1, 1], [False, True, True], [0, 0, 0]),
    ("relu(x+y+3)+abs(z)+sin(x)+max(y,-2)", [1, 1], [True, False], [0, 2, 0]),
])  # fmt: skip
def test_parts_add_up_to_the_target(text, dimensions, switching, slopes):
    found = sum_of(parsed(text), BOX)
    assert [group.dimension for group in found.parts] == dimensions and list(found.switching) == switching
    assert [float(c) for c in found.slopes] == slopes and found.switching[found.first]
    x = np.random.default_rng(0).uniform(-1, 1, (200, 3))
    total = x @ np.array(slopes, dtype=float)
    for group in found.parts:
        total = total + group.expression.evaluate(x @ group.matrix().T)[:, 0]
    assert np.abs(total - parsed(text).evaluate(x)[:, 0]).max() < 1e-14


@pytest.mark.parametrize("text", ["sin(x)+cos(y)", "abs(x*y+1)+sin(z)", "max(abs(x),abs(y))", "abs(x)+2*y", "x+y", "abs(x)"])
def test_what_is_no_such_sum_is_none(text):
    assert sum_of(parsed(text), BOX) is None


def test_switching_groups_stay_apart_only_where_asked():
    text = parsed("abs(x)+x*y+sin(x)")
    assert [group.dimension for group in groups_of(text)] == [2]
    assert sorted(group.dimension for group in groups_of(text, apart=True)) == [1, 2]


# ---------------------------------------------------------------------- layers


@pytest.mark.parametrize("text, error, names, most", [
    ("abs(x)+sin(y)", 1e-6, "xy", 6), ("relu(x-.2)+exp(-y*y)+z", 1e-6, "xyz", 7), ("abs(sin(5*x))+cos(y)**2", 1e-3, "xy", 15),
    ("max(x,y)+sin(3*z)", 1e-5, "xyz", 6),
])  # fmt: skip
def test_tokens_add_up_and_both_runtimes_hold_their_bounds(text, error, names, most):
    layer = compiled(text, error, names)
    assert layer.tokens <= most and layer.bound <= error and layer.certificate.argument == "sums"
    assert layer.weights.has_clusters and len(layer.weights.groups) == 2 and layer.runtime()[0] == "two-level"
    rng = np.random.default_rng(3)
    literal = layer.certificate_for("dense")
    assert literal.bound <= error and literal.parts["rounding"] > layer.certificate.parts["rounding"]
    for runtime, bound in (("two-level", layer.bound), ("dense", literal.bound)):
        found = worst_point(layer.weights, layer.target, rng, runtime, Domain())
        assert 0.5 * layer.bound < found.error <= bound


def test_auto_takes_the_fewest_proved_tokens():
    layer = compiled("abs(x)+sin(3*y)", 1e-5, method="auto")
    assert layer.method == "sums" and layer.tokens <= 6
    assert compiled("abs(x)+sin(3*y)", 1e-5, method="regions").tokens > layer.tokens


def test_a_network_costs_two_tokens_per_unit():
    """Pieces multiply where units cross; parts add."""
    text = "relu(x+y-.3)-2*relu(x-.4*y)+relu(.2*x+y+.1)-relu(y-.5*x-.2)+.7*relu(x+.1)"
    layer = compiled(text, 1e-5)
    assert layer.tokens == 10 and layer.bound <= 1e-5 < layer.certificate_for("dense").bound * 100
    assert compiled(text, 1e-5, method="piecewise").tokens > 10


def test_float32_is_proved_by_two_levels_and_explained_literally():
    layer = compiled("abs(x)+sin(y)", 1e-3, dtype="float32")
    assert layer.bound <= 1e-3
    assert worst_point(layer.weights, layer.target, np.random.default_rng(0), "two-level", Domain()).error <= layer.bound
    literal = layer.certificate_for("dense").bound
    assert literal > 1e-3 and "the softmax over all tokens in float32 is proved to" in layer.explain()


def test_the_bonus_keeps_the_groups_apart_in_the_literal_layer():
    """log Z of a kink is as large as its steepest site: a bonus below that lets the wrong group answer."""
    layer = compiled("abs(x)+sin(y)", 1e-4)
    ((low, high),) = (normaliser_range(layer.weights, one) for one in layer.weights.groups if isinstance(one, ClusterGroup))
    x = np.random.default_rng(1).uniform(-1, 1, (400, 2))
    (group,) = [one for one in layer.weights.groups if isinstance(one, ClusterGroup)]
    slopes, offsets = group.listed()
    level = np.logaddexp.reduce(((x - layer.weights.centre) @ group.matrix.T) @ slopes.T + offsets, axis=1)
    assert low <= level.min() and level.max() <= high and high - low > 100
    heard = layer.certificate.blends
    assert literal(layer.weights, heard).leakage < 1e-12
    weak = GroupedLayer(**{**vars(layer.weights), "bonus": 30.0})
    away = np.abs(chooser.evaluate(weak, x, "dense") - chooser.evaluate(weak, x, "two-level")).max()
    assert away > 0.1 and literal(weak, heard).leakage >= away
    assert certify_sums(weak, layer.prove.args[1], 1e-4).bound <= 1e-4  # by two levels groups are run one by one


def test_boxes_off_the_origin_with_an_affine_part():
    """The affine part is slopes . (x - centre), and slopes . centre belongs to the first part that switches."""
    box = ma.Box(x=(1, 2), y=(-7, -4), z=(10, 12))
    layer = ma.compile("abs(x-1.4)+sin(y)+.3*z", box, error=1e-5, method="sums")
    assert layer.weights.tilt is not None and layer.weights.centre.any() and layer.tokens <= 8
    for runtime in ("two-level", "dense"):
        bound = layer.certificate_for(runtime).bound
        assert worst_point(layer.weights, layer.target, np.random.default_rng(0), runtime, Domain()).error <= bound <= 1e-5
    assert check(*layer._record()).passed


def test_refusals_say_why():
    with pytest.raises(Refused, match="each depend on one direction"):
        compiled("abs(x)*cos(y)", 1e-3)
    with pytest.raises(Refused, match="jumps"):
        compiled("sign(x-.1)+sin(y)", 1e-3)


# ---------------------------------------------------------------------- the checker


def test_the_checker_proves_again_and_doubts_everything(tmp_path):
    layer = compiled("relu(x-.2)+exp(-y*y)+z", 1e-6, "xyz")
    tensors, record = layer._record()
    verdict = check(tensors, record)
    assert verdict.passed and verdict.bound <= 1e-6 and "2 parts" in verdict.how
    switched = np.array([0.0, 10.0])
    for name, move in (("tilt", 1e-5), ("group.0.values", 1e-4), ("group.1.values", 1e-4), ("group.1.sites.offsets", switched)):
        other = {**tensors, name: tensors[name] + move}
        assert not check(other, record).passed, name
    for forged in (
        {"plan": {**record["plan"], "groups": record["plan"]["groups"][:1]}},
        {"plan": {**record["plan"], "groups": [{**row, "share": -1.0} for row in record["plan"]["groups"]]}},
        {"layer": {**record["layer"], "clusters": [2, 0]}},
        {"certificate": {**record["certificate"], "scope": {"over": "everywhere"}}},
        {"certificate": {**record["certificate"], "runtime": "dense"}},
        {"target": {**record["target"], "text": "relu(x-.2)+exp(-y*y)+1.00001*z"}},
    ):
        with contextlib.suppress(BadInput):
            assert not check(tensors, {**record, **forged}).passed
    without = {name: tensor for name, tensor in tensors.items() if name != "tilt"}
    assert not check(without, record).passed
    layer.save(tmp_path / "sum.safetensors")
    x = np.random.default_rng(0).uniform(-1, 1, (100, 3))
    assert np.array_equal(ma.load(tmp_path / "sum.safetensors")(x), layer(x))


def test_exports_and_literal_matrices_are_the_same_layer(tmp_path):
    layer = compiled("abs(x)+sin(y)", 1e-3)
    x = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    for kind in ("self", "cross"):
        matrices = layer.matrices(kind)
        got = np.array([float(np.ravel(matrices(point.reshape(2, 1)))[0]) for point in x])
        assert np.abs(got - layer(x)).max() < 1e-9
    for to in ("torch", "mha", "onnx", "safetensors"):
        (introduced, *_) = layer.export(to, tmp_path / f"{to}.{'onnx' if to == 'onnx' else 'safetensors'}")
        assert introduced.seen < 1e-6
