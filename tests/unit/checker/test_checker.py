"""The independent checker: it proves every kind of layer again, and never one whose error exceeds the promise."""

import copy
import functools
import math

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker import CONFIRMS, check, grid
from maxaffine.checker.listed import check_partition
from maxaffine.checker.reader import Lookup
from maxaffine.core.container import container_bytes, read_container
from maxaffine.core.errors import BadInput, Refused
from maxaffine.layer.file import from_tensors
from maxaffine.proofs.observe import face_biased
from maxaffine.runtime import chooser
from maxaffine.target.target import Target

lookup = functools.partial(ma.compile, method="lookup")

STEP = "where(x**2 + y**2 < 1, 1, 0) - .7*where(x + .3*y > .4, 1, 0)"
SQUARE = ma.Box(x=(-1, 1), y=(-1, 1))
WIDE = ma.Box(x=(-2, 2), y=(-2, 2))


@pytest.fixture(autouse=True)
def small_budget(monkeypatch):
    """What cannot be proved is given up sooner; a smaller budget proves less, never more."""
    monkeypatch.setattr(grid, "PIECES", 400_000)


def _ring():
    t = np.linspace(0, 2 * math.pi, 300)
    return np.c_[np.cos(t), np.sin(t)]


def _sites():
    return ma.MaxAffine.from_power_diagram(np.random.default_rng(0).uniform(-1, 1, (25, 2)))


def _pair():
    return ma.Box.sequence(d=1, n=2, low=-1, high=1), ma.Box.sequence(d=2, n=1, low=-1, high=1)


KINDS = {
    "E1": lambda: lookup("sin(3*x) + y", SQUARE, error=0.5),
    "E1 declared": lambda: lookup("sin(3*x) + y", SQUARE, error=0.2, lipschitz=[3, 1]),
    "E2": lambda: lookup("sin(x + y)", SQUARE, error=0.3),
    "E2 declared": lambda: lookup("sin(x + y)", SQUARE, error=0.3, lipschitz=1.4143),
    "G4": lambda: lookup("sqrt(x)", ma.Box(x=(0, 1)), error=0.1),
    "I": lambda: lookup("sin(2*x) + y/2", WIDE, error=0.4, keys=_ring()),
    "I float32": lambda: lookup("sin(2*x) + y/2", WIDE, error=0.4, keys=_ring(), dtype="float32"),
    "partition": lambda: lookup("x + y/2", SQUARE, error=1.2, keys=_sites()),
    "L1": lambda: lookup(STEP, WIDE, error=0.8, norm=1),
    "L2": lambda: lookup(STEP, WIDE, error=0.8, norm=2),
    "L3 in one variable": lambda: lookup("sign(x - .3) + x", ma.Box(x=(-1, 1)), error=0.2, norm=3),
    "float32": lambda: lookup("sin(3*x) + abs(x)", ma.Box(x=(-1, 1)), error=0.1, dtype="float32"),
    "vector": lambda: lookup("sin(x), cos(x), x*abs(x)", ma.Box(x=(-1, 2)), error=0.1),
    "sequence": lambda: lookup(
        Target.of("x11*x22, sin(x12), x21, x11", ma.Box.sequence(d=2, n=2, low=-1, high=1), output_shape=(2, 2)), error=1.0
    ),
    "pair": lambda: lookup(Target.of("sin(q_x11 + k_x11), q_x12*k_x21", _pair(), output_shape=(1, 2)), error=1.0),
    "far from the origin": lambda: lookup("sin(x - 1000)", ma.Box(x=(1000, 1003)), error=0.05, dtype="float32"),
    "constant": lambda: lookup("1.5 + 0*x", ma.Box(x=(0, 1)), error=1e-9),
}


@functools.cache
def compiled(kind):
    return KINDS[kind]()


def stored(kind):
    """Fresh, writable copies of what a file of that kind holds."""
    tensors, record = compiled(kind)._record()
    return {name: np.array(tensor) for name, tensor in tensors.items()}, copy.deepcopy(record)


def true_error(tensors, record, points=4000, seed=0):
    """The largest error found of the layer that the tensors describe, where the file speaks about it (sup norm)."""
    layer = from_tensors(tensors, record["layer"])
    target = Target.from_json(record["target"])
    x = face_biased(layer, points, np.random.default_rng(seed))
    if record["plan"]["plan"] == "centres":
        sites = layer.keys.slopes.astype(float) / layer.coordinates.matrix[0, 0] + layer.coordinates.centre
        radius = record["certificate"]["details"]["radius"]
        rng = np.random.default_rng(seed)
        away = rng.normal(size=(points, len(layer.low)))
        away *= radius * rng.random((points, 1)) / np.linalg.norm(away, axis=1, keepdims=True)
        x = np.clip(sites[rng.integers(0, len(sites), points)] + away, layer.low, layer.high)
    return float(np.abs(chooser.evaluate(layer, x) - target.values(x)).max())


def refuses(tensors, record):
    """Whether the checker answers no, with a verdict or a sentence."""
    try:
        return not check(tensors, record).passed
    except BadInput:
        return True


@pytest.mark.parametrize("edited", [0.0, -1.0, None, True, "0.1", math.nan])
def test_a_stated_bound_that_is_no_bound_is_not_confirmed(edited):
    tensors, record = stored("I")
    record["certificate"]["bound"] = edited
    verdict = check(tensors, record)
    assert not verdict.passed and not verdict.confirmed and "is not confirmed, only the error is" in verdict.reason


def test_a_proof_that_stops_at_the_error_is_taken_further_where_the_stated_bound_asks_for_it():
    tensors, record = stored("partition")
    layer, target = Lookup.read(tensors, record["layer"], Target.from_json(record["target"])), Target.from_json(record["target"])
    assert check_partition(layer, target, record["error"]).bound > CONFIRMS * record["certificate"]["bound"]
    verdict = check(tensors, record)
    assert verdict.confirmed and verdict.bound <= CONFIRMS * verdict.claimed


def test_what_is_not_proved_confirms_nothing():
    tensors, record = stored("E1")
    record["error"] = 0.1 * record["error"]
    verdict = check(tensors, record)
    assert not verdict.passed and not verdict.confirmed


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("L")])
def test_it_refuses_any_single_value_moved_beyond_the_bound(kind):
    tensors, record = stored(kind)
    rng = np.random.default_rng(5)
    flat = tensors["values"].reshape(-1)
    for index, sign in zip(rng.choice(flat.size, size=2), (-1.0, 1.0), strict=True):
        before = flat[index]
        flat[index] = before + sign * 3.0 * record["error"]
        assert refuses(tensors, record), f"value {index} moved by {sign * 3 * record['error']}"
        flat[index] = before


@pytest.mark.parametrize("kind", ["L1", "L2", "L3 in one variable"])
def test_it_refuses_values_moved_so_far_that_the_integral_exceeds_the_promise(kind):
    tensors, record = stored(kind)
    cell = float(np.prod(1 / np.diag(tensors["coordinates.matrix"])))
    flat = tensors["values"].reshape(-1)
    for index in (0, flat.size // 2):
        before = flat[index]
        flat[index] = before + 2.0 * (record["error"] / cell ** (1 / record["norm"]) + 1.0)
        assert refuses(tensors, record)
        flat[index] = before


@pytest.mark.parametrize("kind", KINDS)
def test_it_refuses_a_sharpness_that_blurs_the_cells(kind):
    tensors, record = stored(kind)
    record["layer"]["sharpness"] = float(np.float32(1e-3))
    if kind == "constant":
        assert check(tensors, record).passed  # nothing to blur
    else:
        assert refuses(tensors, record)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("I", "I float32", "partition", "constant")])
def test_it_refuses_keys_that_are_shifted(kind):
    for change in ("slopes", "offsets", "one slope", "one offset"):
        tensors, record = stored(kind)
        name = "keys.0.slopes" if "slope" in change else "keys.0.offsets"
        part = slice(0, 1) if "one" in change else slice(None, None, 2)
        tensors[name][part] += 1.0
        assert refuses(tensors, record), change


@pytest.mark.parametrize("kind", ["I", "partition"])
def test_it_refuses_listed_keys_that_are_permuted_against_their_values(kind):
    tensors, record = stored(kind)
    order = np.random.default_rng(1).permutation(len(tensors["keys.offsets"]))
    tensors["keys.slopes"], tensors["keys.offsets"] = tensors["keys.slopes"][order], tensors["keys.offsets"][order]
    assert refuses(tensors, record) or true_error(tensors, record) <= record["error"]
    tensors["values"] = tensors["values"][order]
    assert check(tensors, record).passed  # the same layer with its keys in another order


@pytest.mark.parametrize("kind", ["E1", "E2", "G4", "float32", "vector"])
def test_it_refuses_a_larger_box_in_layer_and_target_alike(kind):
    tensors, record = stored(kind)
    target = Target.from_json(record["target"])
    bounds = {name: (low, high + 1.0) for name, low, high in zip(target.box.names, target.box.low, target.box.high, strict=True)}
    record["target"] = Target.of(target.text, ma.Box(**bounds)).to_json()
    tensors["box.high"] = tensors["box.high"] + 1.0
    assert refuses(tensors, record)


def test_it_says_that_a_callable_cannot_be_proved_again():
    layer = lookup(lambda X: np.sin(X[:, 0]), ma.Box(x=(0, 1)), error=0.1, trace=False, lipschitz=[1.0])
    verdict = check(*layer._record())
    assert layer.certificate.kind == "proved"
    assert not verdict.passed
    assert "callable" in verdict.reason


def test_it_says_that_nothing_was_promised_where_nothing_was_proved():
    layer = lookup(lambda X: np.sin(X[:, 0]), ma.Box(x=(0, 1)), error=0.1, trace=False)
    verdict = check(*layer._record())
    assert (verdict.passed, verdict.claimed) == (False, None)
    assert "nothing proved" in verdict.reason


def test_it_refuses_sites_outside_the_box_where_constants_do_not_hold():
    # f = max(x, 1) is constant on [0, 0.9]; sites beyond 1 say otherwise, and their stored values agree with f there.
    tensors, record = stored("vector")
    box = ma.Box(x=(0, 0.9))
    record["target"] = Target.of("max(x, 1)", box).to_json()
    sites = tensors["keys.0.slopes"]
    tensors |= {"box.low": box.low.copy(), "box.high": box.high.copy(), "coordinates.centre": np.array([0.45])}
    tensors["coordinates.matrix"] = np.array([[1.0]])
    tensors["values"] = np.maximum(sites + 0.45, 1.0).reshape(-1, 1, 1)
    record["error"] = 0.01
    assert true_error(tensors, record) > record["error"]
    verdict = check(tensors, record)
    assert not verdict.passed
    assert "outside the box" in verdict.reason


@pytest.mark.parametrize("declared", [{"lipschitz": [0.01, 0.01]}, {"euclidean": 0.01}])
@pytest.mark.parametrize("kind", ["E1", "I"])
def test_it_doubts_declared_constants_that_the_expression_refutes(kind, declared):
    tensors, record = stored(kind)
    record["declared"], record["error"] = declared, 0.02
    assert refuses(tensors, record)


MALFORMED = [{"lipschitz": [math.nan, 1.0]}, {"lipschitz": [1.0]}, {"euclidean": math.inf}, {"lipschitz": "x"}]


@pytest.mark.parametrize("declared", MALFORMED)
def test_malformed_declared_constants_prove_nothing(declared):
    tensors, record = stored("E1")
    record["declared"], record["error"] = declared, 0.02
    assert refuses(tensors, record)


@pytest.mark.parametrize("sharpness", [0.0, -20.0, math.nan, math.inf, 1e39, 0.1])
def test_a_sharpness_that_is_no_positive_number_of_the_dtype_proves_nothing(sharpness):
    tensors, record = stored("float32")
    record["layer"]["sharpness"] = sharpness
    assert refuses(tensors, record)


def test_logits_that_overflow_prove_nothing():
    tensors, record = stored("E1")
    record["layer"]["sharpness"] = 1e308
    assert "overflow" in check(tensors, record).reason


@pytest.mark.parametrize("norm", [0.5, 0, -1, "two", None, math.nan, 1e300, [1]])
def test_a_norm_that_is_none_proves_nothing(norm):
    tensors, record = stored("L1")
    record["norm"] = norm
    assert refuses(tensors, record)


def _leaves(record, path=()):
    if isinstance(record, dict):
        for key, value in record.items():
            yield from _leaves(value, (*path, key))
            yield (*path, key)
    elif isinstance(record, list):
        for index, value in enumerate(record):
            yield from _leaves(value, (*path, index))


JUNK = (None, "", "x", -1, 0, 1e308, 2**70, [], [1, 2], {}, {"a": 1}, True, math.nan, "sin(", "1/x")


@pytest.mark.parametrize("kind", ["E1", "G4", "I", "partition", "L1", "pair"])
def test_junk_anywhere_in_the_record_is_answered_by_a_verdict_or_a_sentence(kind):
    rng = np.random.default_rng(11)
    tensors, record = stored(kind)
    paths = sorted(set(_leaves(record)), key=str)
    for path in [paths[i] for i in rng.permutation(len(paths))[:14]]:
        broken = copy.deepcopy(record)
        where = functools.reduce(lambda part, key: part[key], path[:-1], broken)
        if rng.random() < 0.25:
            del where[path[-1]]
        else:
            where[path[-1]] = JUNK[int(rng.integers(len(JUNK)))]
        try:
            verdict = check(tensors, broken)
        except (BadInput, Refused):
            continue
        if verdict.passed and broken["norm"] == "inf":
            told = {**broken, "plan": record["plan"], "certificate": record["certificate"], "layer": record["layer"]}
            assert verdict.bound <= broken["error"]
            assert true_error(tensors, told, 500) <= broken["error"], path


@pytest.mark.parametrize("kind", ["E1", "partition"])
def test_tensors_that_are_missing_surplus_or_of_another_shape_prove_nothing(kind):
    tensors, record = stored(kind)
    for name in tensors:
        assert refuses({other: tensors[other] for other in tensors if other != name}, record)
        assert refuses({**tensors, name: tensors[name].reshape(1, *tensors[name].shape)}, record)
        assert refuses({**tensors, name: tensors[name].astype(np.float32)}, record)
        assert refuses({**tensors, name: np.concatenate([tensors[name], tensors[name]])}, record)
    assert refuses({**tensors, "value_slopes": np.zeros((3, 1, 1, 2))}, record)
    assert refuses({**tensors, "more": np.zeros(3)}, record)


CORRUPTIONS = 10  # the loop was also run with 40 and found nothing


@pytest.mark.parametrize("kind", ["E1", "E2", "G4", "I", "partition", "float32", "vector", "far from the origin"])
def test_it_never_passes_a_corrupted_layer_whose_error_exceeds_the_promise(kind):
    rng = np.random.default_rng(2024)
    passed = 0
    for trial in range(CORRUPTIONS):
        tensors, record = stored(kind)
        for _ in range(int(rng.integers(1, 3))):
            _corrupt(tensors, record, rng)
        try:
            verdict = check(tensors, record)
        except BadInput:
            continue
        if verdict.passed:
            passed += 1
            found = true_error(tensors, record, 2000, seed=trial)
            assert found <= verdict.bound <= record["error"], f"trial {trial}: {found} > {verdict.bound}"
    assert passed < CORRUPTIONS


def _corrupt(tensors, record, rng):
    """One random change, small or large, to a tensor, the sharpness, the promise or the target's text."""
    size = 10.0 ** rng.uniform(-6, 1)
    choice = int(rng.integers(8))
    names = sorted(tensors)
    if choice <= 3:
        name = names[int(rng.integers(len(names)))] if choice else "values"
        array = tensors[name].reshape(-1)
        index = rng.integers(array.size)
        array[index] = array[index] + rng.normal() * size * max(1.0, abs(float(array[index])) ** rng.integers(2))
    elif choice == 4:
        kind = np.dtype(record["layer"]["dtype"]).type
        record["layer"]["sharpness"] = float(kind(record["layer"]["sharpness"] * 10.0 ** rng.uniform(-3, 3)))
    elif choice == 5:
        record["error"] = record["error"] * float(rng.uniform(0.2, 1.5))
    elif choice == 6:
        tensors["values"] = np.ascontiguousarray(np.roll(tensors["values"], 1, axis=0))
    else:
        scale = np.diag(tensors["coordinates.matrix"]) * (1.0 + rng.normal() * size)
        tensors["coordinates.matrix"] = np.diag(scale)


def test_a_changed_file_is_refused_by_its_hash_and_a_rehashed_one_by_the_proof(tmp_path):
    path = tmp_path / "layer.safetensors"
    tensors, record = stored("E1")
    tensors["values"][0, 0] += 1.0
    path.write_bytes(container_bytes(tensors, record))  # hashed again
    assert not check(*read_container(path)).passed


def test_a_layer_that_the_checker_does_not_confirm_is_not_saved(tmp_path, monkeypatch):
    layer = compiled("E1")
    path = tmp_path / "layer.safetensors"
    forged = copy.copy(layer)
    object.__setattr__(forged, "error", 0.25 * layer.observed.error)
    with pytest.raises(Refused, match="checker"):
        forged.save(path)
    assert not path.exists()
