"""The checker proves sums of products over blocks from their file alone, and rejects what was changed in it."""

import copy
import json
import math
import time
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker import check
from maxaffine.checker.separated import grown
from maxaffine.core.errors import BadInput
from maxaffine.layer.file import from_tensors
from maxaffine.runtime import chooser, grouped

CUBE = dict.fromkeys("xyz", (-1, 1))
CASES = {
    "exponentials": ("1/(1 + x**2 + y**2 + z**2)", CUBE, 1e-3, "float64"),
    "waves": ("cos(x**2 + y**2 + z)", CUBE, 1e-3, "float64"),
    "products": ("(a*r + b*s)/(a + b)", dict.fromkeys("abrs", (1, 5)), 1e-2, "float64"),
    "blocks": ("cos(x*y)*z + x", CUBE, 1e-3, "float64"),
    "single": ("(a*r + b*s)/(a + b)", dict.fromkeys("abrs", (1, 5)), 1e-2, "float32"),
}


@cache
def _compiled(name):
    text, box, error, dtype = CASES[name]
    return ma.compile(text, ma.Box(**box), error=error, method="separated", dtype=dtype)


def made(name):
    """Tensors and record as a file has them, to be changed."""
    tensors, record = _compiled(name)._record()
    return {key: np.array(tensor) for key, tensor in tensors.items()}, json.loads(json.dumps(record))


def refused(tensors, record):
    try:
        return not check(tensors, record).passed
    except BadInput:
        return True


@pytest.mark.parametrize("name", CASES)
def test_layers_are_proved_again(name):
    verdict = check(*made(name))
    assert verdict.passed, verdict.reason
    assert all(claim.confirmed for claim in verdict.claims)
    assert verdict.bound <= 1.1 * verdict.claimed


@pytest.mark.parametrize("name", CASES)
def test_no_error_is_seen_above_the_bound(name):
    tensors, record = made(name)
    target = _compiled(name).target
    x = target.box.sample(20_000, np.random.default_rng(5))
    got = chooser.evaluate(from_tensors(tensors, record["layer"]), x)[:, 0, 0]
    assert np.abs(got - target.expression.evaluate(x)[:, 0]).max() <= check(tensors, record).bound


def columns(tensors):
    return [key for key in tensors if key.endswith((".factor", ".imaginary"))]


@pytest.mark.parametrize("name", CASES)
def test_the_bound_follows_what_a_factor_is_changed_by(name):
    """Every column of every block, made larger: what the file claims is not believed."""
    for key in columns(made(name)[0]):
        tensors, record = made(name)
        before = np.abs(tensors[key]).max()
        if before == 0.0:
            continue
        tensors[key] = (tensors[key] * 1.01).astype(tensors[key].dtype)
        assert refused(tensors, record), key


def test_a_factor_that_is_off_by_a_ten_thousandth_is_not_the_one_that_was_proved():
    tensors, record = made("products")
    aim = 2.5e-4
    record["error"], record["certificate"]["bound"] = aim, aim
    small = ma.compile("(a*r + b*s)/(a + b)", ma.Box(**CASES["products"][1]), error=aim, method="separated")
    tensors, record = small._record()
    tensors = {key: np.array(tensor) for key, tensor in tensors.items()}
    assert check(tensors, record).passed
    tensors["group.0.0.factor"] *= 1.0001
    assert refused(tensors, record)


def test_a_key_that_is_moved_is_noticed():
    for part in ("slopes", "offsets"):
        tensors, record = made("exponentials")
        tensors[f"group.0.0.{part}"][1] += 0.05
        assert refused(tensors, record)


def test_blocks_that_change_places_are_noticed():
    tensors, record = made("products")
    for name in ("slopes", "offsets", "factor"):
        one, other = (f"group.0.{e}.{name}" for e in (0, 1))
        tensors[one], tensors[other] = tensors[other], tensors[one]
    assert refused(tensors, record)


def test_columns_that_change_places_are_noticed():
    tensors, record = made("exponentials")
    tensors["group.0.1.factor"] = tensors["group.0.1.factor"][:, ::-1].copy()
    assert refused(tensors, record)


@pytest.mark.parametrize("name", ["exponentials", "waves"])
def test_an_exponent_or_a_coefficient_that_is_moved_is_noticed(name):
    for field in ("exponents", "coefficients"):
        for part in (0, 1):
            tensors, record = made(name)
            record["plan"]["sums"][0][field][0][part] += 0.02
            assert refused(tensors, record), (field, part)
    for lie in (0.01, -0.01):
        tensors, record = made(name)
        record["plan"]["sums"][0]["constant"] += lie
        assert refused(tensors, record)


def test_another_target_is_not_proved_by_the_same_layer():
    tensors, record = made("exponentials")
    text = json.dumps(record["target"])
    assert "1/(1 + x**2" in text
    record["target"] = json.loads(text.replace("1/(1 + x**2", "1/(1.01 + x**2"))
    assert refused(tensors, record)


LIES = [
    ("choice", "both"), ("choice", None), ("choice", ["sums"]), ("choice", "blocks "),
    ("sizes", [3]), ("sizes", [1, 1]), ("sizes", 3), ("sizes", None), ("sizes", [1, 1, 1.5]),
    ("directions", []), ("directions", None), ("directions", [["1", "0", "0"]] * 3),
    ("directions", [["1e999999999", "0", "0"]] * 3), ("directions", [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
    ("directions", ["100", "010", "001"]),
    ("sums", []), ("sums", None), ("sums", [None]), ("sums", [{}]), ("sums", [{"constant": math.nan}]),
]  # fmt: skip


@pytest.mark.parametrize(("field", "lie"), LIES)
def test_records_that_cannot_be_those_of_the_target_are_refused(field, lie):
    tensors, record = made("exponentials")
    record["plan"][field] = lie
    assert refused(tensors, record)
    del record["plan"][field]
    assert refused(tensors, record)


@pytest.mark.parametrize("lie", [math.nan, math.inf, 1e308, 1e200, -1e100, "1", None, True, 10**3000])
def test_forged_numbers_are_refused_quickly(lie):
    for field in ("exponents", "coefficients", "ends"):
        tensors, record = made("exponentials")
        record["plan"]["sums"][0][field][0][0] = lie
        start = time.process_time()
        assert refused(tensors, record)
        assert time.process_time() - start < 5.0


def test_a_million_terms_are_refused_quickly():
    tensors, record = made("exponentials")
    one = record["plan"]["sums"][0]
    one["exponents"], one["coefficients"] = one["exponents"] * 300_000, one["coefficients"] * 300_000
    start = time.process_time()
    assert refused(tensors, record)
    record["plan"]["sums"] = record["plan"]["sums"] * 100_000
    assert refused(tensors, record)
    assert time.process_time() - start < 5.0


@pytest.mark.parametrize(
    "change",
    [
        lambda factor: factor[:, :-1],
        lambda factor: np.concatenate([factor, factor], axis=1),
        lambda factor: factor[..., None],
        lambda factor: factor[:0],
        lambda factor: factor * np.nan,
        lambda factor: factor * 1e300,
        lambda factor: factor.astype(np.float32),
    ],
)
def test_factors_of_another_shape_or_size_are_refused(change):
    tensors, record = made("exponentials")
    tensors["group.0.1.factor"] = change(tensors["group.0.1.factor"])
    with np.errstate(all="ignore"):
        assert refused(tensors, record)


def test_imaginary_parts_cannot_be_left_out_or_added():
    tensors, record = made("waves")
    assert refused({key: tensor for key, tensor in tensors.items() if not key.endswith(".imaginary")}, record)
    tensors, record = made("exponentials")
    for e in range(3):
        tensors[f"group.0.{e}.imaginary"] = 0.1 * np.ones_like(tensors[f"group.0.{e}.factor"])
    assert refused(tensors, record)


@pytest.mark.parametrize("name", ["waves", "blocks"])
def test_the_literal_form_of_complex_factors_and_blocks_is_proved_as_well(name):
    tensors, record = made(name)
    bound = record["certificate"]["bound"]
    record["literal"] = {"float64": {"bound": bound * 1.001}}
    verdict = check(tensors, record)
    assert verdict.passed, verdict.reason
    x = _compiled(name).target.box.sample(500, np.random.default_rng(6))
    layer = from_tensors(tensors, record["layer"])
    dense, factorised = grouped.evaluate_dense(layer, x), chooser.evaluate(layer, x)
    assert np.abs(dense - factorised).max() <= verdict.claims[0].checked
    record["literal"] = {"float64": {"bound": bound * 0.5}}
    assert refused(tensors, record)


def test_smaller_bounds_than_proved_are_not_confirmed():
    tensors, record = made("products")
    lie = copy.deepcopy(record)
    claimed = record["certificate"]["bound"]
    lie["certificate"]["bound"] = claimed / 3.0
    lie["certificate"]["parts"] = {"approximation": claimed / 3.0}
    assert refused(tensors, lie)


def test_products_of_errors_are_those_of_exact_arithmetic():
    rng = np.random.default_rng(0)
    for count in (0, 1, 2, 5, 80):
        sizes, more = rng.uniform(0.5, 1.5, count), 10.0 ** rng.uniform(-14, -2, count)
        exact = math.prod(Fraction(a) + Fraction(b) for a, b in zip(sizes, more, strict=True)) - math.prod(map(Fraction, sizes))
        assert float(exact) <= grown(list(sizes), list(more)) <= float(exact) * (1 + 1e-11)
