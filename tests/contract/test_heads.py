"""The contract of a head: what it compiles is proved twice and true, comes back from its file, is not believed when it is edited;
what it does not serve is refused in a sentence.

The routes of the same layers are walked in test_routes.py, their files forged in test_forged_files.py, the terms of their bounds
taken away in test_terms.py.
"""

import copy
import math
import pickle
from functools import cache

import numpy as np
import pytest
from cases import CASES, EXAMPLES, compiled, grouped, in_dtypes, stored
from forgery import observed

import maxaffine as ma
from maxaffine.checker import check, grid
from maxaffine.core.container import read_container
from maxaffine.core.errors import BadInput, Refused
from maxaffine.expression.texts import pieces
from maxaffine.heads import HEADS
from maxaffine.target.target import Target

EDITED = [name for name, case in CASES.items() if case.entries is None and not callable(case.target) and name not in EXAMPLES]


@pytest.fixture(autouse=True)
def small_budget(monkeypatch):
    """What cannot be proved is given up sooner; a smaller budget proves less, never more."""
    monkeypatch.setattr(grid, "PIECES", 300_000)


@cache
def seen(name):
    """A certain lower bound of the error of a case in its first dtype."""
    return observed(*stored(name, next(iter(CASES[name].errors))), np.random.default_rng(1), None, 1500).default


def passes(tensors, record, entries):
    """Whether the checker says yes; a record that cannot be read is a no."""
    try:
        return check(tensors, record, entries).passed
    except BadInput:
        return False


@pytest.mark.parametrize(("name", "dtype"), in_dtypes(CASES))
def test_it_is_proved_twice_and_true(name, dtype):
    layer, case = compiled(name, dtype), CASES[name]
    error = case.errors[dtype]
    assert layer.certificate.kind == "proved" and layer.dtype == dtype
    if case.options.get("method") in HEADS:
        assert layer.method == case.options["method"]
    assert layer.bound == pytest.approx(math.fsum(layer.certificate.parts.values())) or layer.bound == 0.0
    assert layer.observed.error <= layer.bound <= (layer.error if error is None else error)
    if callable(case.target):  # its values are not in the file, and nobody can prove them again
        assert not passes(*stored(name, dtype), None)
        return
    tensors, record = stored(name, dtype)
    verdict = check(tensors, record, case.entries)
    assert verdict.passed and verdict.confirmed, verdict.reason
    assert verdict.claimed == layer.bound and verdict.bound <= verdict.error
    truth = observed(tensors, record, np.random.default_rng(1), case.entries, 1500)
    assert truth.default <= min(layer.bound, verdict.bound)


@pytest.mark.parametrize(("name", "dtype"), in_dtypes(CASES))
def test_its_file_comes_back_as_the_same_layer(name, dtype, tmp_path):
    layer, path = compiled(name, dtype), tmp_path / "layer.safetensors"
    layer.save(path)
    again = ma.load(path)
    assert again.standing == "stated" and again.bound == layer.bound and again.method == layer.method
    assert again.to_bytes() == layer.to_bytes() == path.read_bytes()
    x = [part[:40] for part in inputs(layer)]
    for runtime in layer.runtimes():
        if runtime != "dense" or layer.tokens <= 4096:
            assert np.array_equal(again(*x, runtime=runtime), layer(*x, runtime=runtime)), runtime
    if not callable(CASES[name].target):
        assert passes(*read_container(path), CASES[name].entries)


@pytest.mark.parametrize("name", grouped(CASES))
def test_it_is_pickled_and_copied(name):
    layer = compiled(name, next(iter(CASES[name].errors)))
    x = [part[:7] for part in inputs(layer)]
    for made in (pickle.loads(pickle.dumps(layer)), copy.copy(layer), copy.deepcopy(layer)):  # noqa: S301
        assert np.array_equal(made(*x), layer(*x)) and repr(made) == repr(layer) and dict(made.literal) == dict(layer.literal)
        assert made.to_bytes() == layer.to_bytes()


def inputs(layer):
    """What users hand in: points, sequences, pairs of them, entries."""
    rng, shapes = np.random.default_rng(2), layer.weights.inputs
    if layer.target.entries is not None:
        return [np.concatenate([block[0] for block in layer.target.data.blocks()])]
    x, parts, first = rng.uniform(layer.weights.low, layer.weights.high, (40, layer.weights.dimension)), [], 0
    for d, n in shapes:
        part = x[:, first : first + d * n]
        parts.append(part if n == 1 and len(shapes) == 1 else part.reshape(-1, n, d).transpose(0, 2, 1))
        first += d * n
    return parts


@pytest.mark.parametrize("name", grouped(EDITED))
def test_a_stated_bound_that_is_too_small_is_not_confirmed(name):
    tensors, record = stored(name, next(iter(CASES[name].errors)))
    if not seen(name) > 0.0:
        pytest.skip("no error is seen")
    record["certificate"]["bound"] = 0.5 * seen(name)
    verdict = check(tensors, record)
    assert not verdict.passed and not verdict.confirmed and "is not confirmed, only the error is" in verdict.reason


@pytest.mark.parametrize("name", grouped(EDITED))
def test_a_promise_below_the_error_found_is_refused(name):
    tensors, record = stored(name, next(iter(CASES[name].errors)))
    if not seen(name) > 0.0:
        pytest.skip("no error is seen")
    record["error"] = 0.9 * seen(name)
    assert not passes(tensors, record, None)


@pytest.mark.parametrize("name", grouped(EDITED))
def test_another_target_is_refused(name):
    tensors, record = stored(name, next(iter(CASES[name].errors)))
    target = compiled(name, next(iter(CASES[name].errors))).target
    away = 20.0 * record["error"]
    others = ", ".join(f"({part}) + {away}" for part in _outputs(target.text))
    boxes = target.boxes if target.inputs == "pair" else target.box
    record["target"] = Target.of(others, boxes, output_shape=target.output_shape).to_json()
    assert not passes(tensors, record, None)


def _outputs(text):
    """The expressions of a target of several outputs, row by row."""
    return [one for row in zip(*pieces(text), strict=True) for one in row]


@pytest.mark.parametrize("name", grouped(EDITED))
def test_an_edited_box_is_refused(name):
    tensors, record = stored(name, next(iter(CASES[name].errors)))
    tensors["box.high"] = tensors["box.high"] + 1.0
    assert not passes(tensors, record, None)


@pytest.mark.parametrize("name", grouped(EDITED))
def test_values_that_are_all_off_by_three_errors_are_refused(name):
    tensors, record = stored(name, next(iter(CASES[name].errors)))
    size = float(np.prod(tensors["box.high"] - tensors["box.low"])) if record["norm"] != "inf" else 1.0
    away = 3.0 * record["error"] / min(1.0, size ** (1.0 / record["norm"]) if size != 1.0 else 1.0)
    for key in tensors:
        if key.endswith("values"):
            tensors[key] = (tensors[key].astype(np.float64) + away).astype(tensors[key].dtype)
        if key.endswith("factor"):
            tensors[key] = (tensors[key].astype(np.float64) * 1.5).astype(tensors[key].dtype)
    assert not passes(tensors, record, None)


# ---------------------------------------------------------------------- all heads


def test_every_head_has_examples_and_cases():
    assert {name.partition(" of ")[2] for name in EXAMPLES} == set(HEADS)
    served = {compiled(name, next(iter(case.errors))).method for name, case in CASES.items()}
    assert set(HEADS) <= served


UNSERVED = {  # a request that the head does not serve
    "piecewise": ("sin(x)*y", 1e-3, {}), "axis": ("sin(x*y)", 1e-3, {}), "sums": ("sin(x*y)", 1e-3, {}),
    "regions": ("sin(x*y)", 1e-3, {}), "curved": ("sin(x*y)", 1e-3, {}), "level": ("sin(x*y)", 1e-3, {}),
    "spectral": ("abs(x*y)", 1e-6, {}), "products": ("sin(x*y)", 1e-3, {}), "tree": ("sign(x)*y", 1e-3, {}),
    "lookup": ("sign(x)*y", 1e-3, {}), "separated": ("abs(x*y)", 1e-6, {}),
    "outputs": ("x, floor(9*x*y)", 1e-3, {}),
    "ramp": ("sin(x*y)", 1e-3, {}),
}  # fmt: skip


@pytest.mark.parametrize("head", HEADS)
def test_what_a_head_does_not_serve_is_refused_in_a_sentence(head):
    text, error, options = UNSERVED[head]
    with pytest.raises(Refused) as refusal:
        ma.compile(text, ma.Box(x=(-1, 1), y=(-1, 1)), error=error, method=head, **options)
    said = str(refusal.value)
    assert len(said.split()) >= 6 and "Traceback" not in said and "\n" not in said.splitlines()[0]
