"""Hostile files of spectral layers: whatever is edited, the checker refuses or the layer still keeps its promise."""

import copy
import functools

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker import check
from maxaffine.core.errors import BadInput
from maxaffine.layer.file import from_tensors
from maxaffine.runtime import chooser
from maxaffine.target.target import Target


def box(low=-1.0, high=1.0, names="xy"):
    return ma.Box(**dict.fromkeys(names, (low, high)))


KINDS = {
    "one direction": lambda: ma.compile("sin(x)/1000", box(names="x"), error=0.01, method="spectral"),
    "sum head": lambda: ma.compile("sin(x) + cos(y)", box(-3.14, 3.14), error=1e-4, method="spectral"),
    "product": lambda: ma.compile("sin(x)*cos(y) + sin(x*y)", box(), error=1e-5, method="spectral"),
    "factored": lambda: ma.compile("exp(-x**2-y**2-z**2-u**2)", box(-1, 1, "xyzu"), error=1e-2, method="spectral"),
    "oblique float32": lambda: ma.compile("sin(x+y)/1000", box(), error=0.05, dtype="float32", method="spectral"),
    "float32": lambda: ma.compile("sin(x) + cos(2*y)", box(), error=1e-3, dtype="float32", method="spectral"),
    "bfloat16": lambda: ma.compile("sin(x) + cos(y)", box(), error=5e-2, dtype="bfloat16", method="spectral"),
    "vector": lambda: ma.compile("sin(x)*cos(y), x - y, exp(x)", box(), error=1e-3, method="spectral"),
    "far from the origin": lambda: ma.compile("sin(x - 1000)", ma.Box(x=(1000, 1003)), error=1e-6, method="spectral"),
}


@functools.cache
def compiled(kind):
    return KINDS[kind]()


def stored(kind):
    tensors, record = compiled(kind)._record()
    return {name: np.array(tensor) for name, tensor in tensors.items()}, copy.deepcopy(record)


def true_error(tensors, record, x=None):
    layer, target = from_tensors(tensors, record["layer"]), Target.from_json(record["target"])
    if x is None:
        x = target.box.clip(target.box.sample(3000, np.random.default_rng(0)))
        x = np.concatenate([x, target.box.corners()]) if target.box.dimension < 6 else x
    return max(float(np.abs(chooser.evaluate(layer, x, name) - target.values(x)).max()) for name in chooser.available(layer))


def bound_of(tensors, record):
    """The checker's own bound; infinite where it refuses."""
    try:
        found = check(tensors, record)
    except BadInput:
        return np.inf
    assert found.bound is not None and found.bound <= found.error if found.passed else True
    return np.inf if found.bound is None else found.bound


@pytest.mark.parametrize("kind", KINDS)
def test_its_bound_covers_any_tensor_moved_a_little_or_much(kind):
    rng = np.random.default_rng(7)
    for scale in (1e-4, 0.1):
        for name in stored(kind)[0]:
            if name.startswith("group") and (rng.random() < 0.6):
                tensors, record = stored(kind)
                wide = tensors[name].astype(np.float64)
                moved = wide + scale * (np.abs(wide).max() + 1e-3) * rng.normal(size=wide.shape)
                tensors[name] = moved.astype(tensors[name].dtype)
                bound = bound_of(tensors, record)
                assert np.isinf(bound) or true_error(tensors, record) <= bound, (name, scale)


def test_a_spike_between_the_points_of_the_proof_is_seen():
    # Keys whose weight underflows at the centre of the box, and rule on [0.5301, 0.5325] alone.
    tensors, record = stored("one direction")
    steep = 2e4
    tensors["group.0.0.slopes"] = np.array([0.0, steep, 2 * steep])
    tensors["group.0.0.offsets"] = np.array([0.0, -steep * 0.5301, -steep * (0.5301 + 0.5325)])
    tensors["group.0.values"] = np.array([[0.0], [1.0], [0.0]])
    tensors.pop("group.0.value_slopes", None)
    assert true_error(tensors, record, np.linspace(0.52, 0.54, 401)[:, None]) > 0.9
    assert bound_of(tensors, record) > 0.9


def test_a_group_that_the_plan_does_not_name_is_refused():
    tensors, record = stored("one direction")
    tensors.update({"group.1.matrix": np.ones((1, 1)), "group.1.0.slopes": np.zeros(1), "group.1.0.offsets": np.zeros(1),
                    "group.1.values": np.full((1, 1), 100.0)})  # fmt: skip
    record["layer"]["directions"] = [1, 1]
    assert true_error(tensors, record) > 99
    assert np.isinf(bound_of(tensors, record))


@pytest.mark.parametrize("steep", [1500.0, 2500.0, 4000.0, 20000.0])
def test_a_matrix_that_carries_queries_beyond_the_range_is_seen(steep):
    # z reaches 1.003 and a key waits there; what is proved on [-1, 1] says nothing about it.
    tensors, record = stored("oblique float32")
    tensors["group.0.matrix"][0, 1] *= 1.006
    tensors["group.0.0.slopes"] = np.array([0, steep], dtype=np.float32)
    tensors["group.0.0.offsets"] = np.array([0, -1.0019 * steep], dtype=np.float32)
    tensors["group.0.values"] = np.array([[0.0], [1.0]], dtype=np.float32)
    tensors.pop("group.0.value_slopes", None)
    corner = np.ones((1, 2))
    assert true_error(tensors, record, corner) > 0.5
    assert bound_of(tensors, record) >= true_error(tensors, record, corner)


@pytest.mark.parametrize("kind", KINDS)
def test_coordinates_that_leave_the_range_are_refused(kind):
    tensors, record = stored(kind)
    tensors["group.0.matrix"] *= 1 + 1e-9
    assert np.isinf(bound_of(tensors, record))


@pytest.mark.parametrize("kind", KINDS)
def test_a_moved_centre_is_refused_or_covered(kind):
    for shift in (1e-3, 0.2, 3.0):
        tensors, record = stored(kind)
        tensors["coordinates.centre"] += shift
        assert np.isinf(bound_of(tensors, record))


def test_a_smaller_bonus_is_in_the_bound():
    for bonus in (0.0, 5.0, 20.0):
        tensors, record = stored("sum head")
        record["layer"]["bonus"] = bonus
        assert true_error(tensors, record) <= bound_of(tensors, record)
    for bonus in (-60.0, float("nan"), float("inf")):
        tensors, record = stored("sum head")
        record["layer"]["bonus"] = bonus
        assert not bound_of(tensors, record) <= record["error"]


def test_groups_swapped_between_their_names_are_refused():
    tensors, record = stored("sum head")
    record["plan"]["groups"] = record["plan"]["groups"][::-1]
    assert np.isinf(bound_of(tensors, record))
    for directions in ([["1", "0"]], [["1", "1"]], [["2", "0"]]):
        tensors, record = stored("sum head")
        record["plan"]["groups"][0]["directions"] = directions
        assert np.isinf(bound_of(tensors, record))


def test_groups_swapped_altogether_are_the_same_layer():
    tensors, record = stored("sum head")
    swapped = {name.replace("group.0", "group.2").replace("group.1", "group.0").replace("group.2", "group.1"): t
               for name, t in tensors.items()}  # fmt: skip
    record["plan"]["groups"] = record["plan"]["groups"][::-1]
    assert check(swapped, record).passed


@pytest.mark.parametrize("kind", ["factored"])
def test_edited_factors_are_refused(kind):
    tensors, record = stored(kind)
    tensors["group.0.1.factor"] = tensors["group.0.1.factor"] * 1.5
    assert bound_of(tensors, record) >= true_error(tensors, record) > record["error"]
    tensors, record = stored(kind)
    tensors["group.0.values"] = np.zeros((*(len(tensors[f"group.0.{e}.slopes"]) for e in range(4)), 1))
    assert np.isinf(bound_of(tensors, record)) or bound_of(tensors, record) > record["error"]
    tensors, record = stored(kind)
    del tensors["group.0.2.factor"]
    assert np.isinf(bound_of(tensors, record))


@pytest.mark.parametrize(
    "text", ["abs(x)", "sign(x)", "where(x < 0.1, 0, 1)", "sqrt(x + 1)", "1/x", "floor(x)", "max(x, 0)", "tan(2*x)"]
)
def test_a_target_that_is_not_analytic_is_refused(text):
    tensors, record = stored("one direction")
    record["target"]["text"] = text
    record["error"] = 1e9
    assert np.isinf(bound_of(tensors, record))


def test_another_target_box_or_dtype_is_refused():
    tensors, record = stored("sum head")
    record["target"]["text"] = "sin(x) + cos(2*y)"
    assert bound_of(tensors, record) > 0.5
    tensors, record = stored("sum head")
    tensors["box.high"] = tensors["box.high"] * 2
    assert np.isinf(bound_of(tensors, record))
    tensors, record = stored("float32")
    record["layer"]["dtype"] = "float64"
    assert np.isinf(bound_of(tensors, record))
    tensors, record = stored("sum head")
    tensors["group.0.values"] = tensors["group.0.values"].astype(np.float32)
    assert np.isinf(bound_of(tensors, record))


def test_numbers_that_are_not_finite_are_refused():
    for name in ("group.0.values", "group.0.0.slopes", "group.0.0.offsets", "group.0.matrix"):
        for bad in (np.nan, np.inf):
            tensors, record = stored("sum head")
            tensors[name].reshape(-1)[0] = bad
            assert np.isinf(bound_of(tensors, record))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_near_the_largest_are_refused():
    for name in ("group.0.values", "group.0.0.slopes", "group.0.0.offsets"):
        tensors, record = stored("sum head")
        tensors[name].reshape(-1)[0] = 1.7e308
        assert not bound_of(tensors, record) <= record["error"]


@pytest.mark.parametrize("field", ["directions", "bonus", "dtype", "keys"])
def test_a_layer_description_without_a_field_is_malformed(field):
    tensors, record = stored("sum head")
    del record["layer"][field]
    assert np.isinf(bound_of(tensors, record))


def test_every_output_counts():
    for k in range(3):
        tensors, record = stored("vector")
        tensors["group.0.values"][..., k] += 0.1
        assert bound_of(tensors, record) >= 0.09
