"""Every term of the certificate of a sum is needed, in both runtimes; the checker trusts no decomposition."""

import json
import math
from dataclasses import replace
from functools import cache

import flint
import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker import check
from maxaffine.checker import sums as checker
from maxaffine.core import balls
from maxaffine.heads.composite import sums_prove as sums
from maxaffine.heads.composite.sums_plan import SumPlanner, build_sums
from maxaffine.proofs.exact_layer import exact_value
from maxaffine.proofs.literal import literal
from maxaffine.proofs.normalisers import normaliser_range
from maxaffine.runtime.chooser import evaluate
from maxaffine.structure.sums import sum_of

SIDE = (-1, 1)


@cache
def compiled(text, error, names="xy", dtype="float64"):
    return ma.compile(text, ma.Box(**dict.fromkeys(names, SIDE)), error=error, method="sums", dtype=dtype)


def away(layer, x, runtime):
    """max |computed - exact|, the exact layer without any leak between its groups."""
    worst = 0.0
    with balls.precision(300):
        for got, point in zip(evaluate(layer, x, runtime)[:, 0, 0], x, strict=True):
            (ball,) = exact_value(layer, [flint.arb(float(v)) for v in point])
            worst = max(worst, abs(float((ball - flint.arb(float(got))).mid())))
    return worst


def test_a_stored_tilt_that_is_not_the_affine_part_is_counted():
    made = compiled("abs(x)+abs(y)+z/3", 1e-3, "xyz")
    plan = SumPlanner(sum_of(made.target.expression, made.target.box), made.target.box, 1e-3, "float64").plan(0.9e-3)
    layer = build_sums(plan, made.target, "float64")
    assert layer.tilt.tolist() == [[0.0, 0.0, 1 / 3]]
    tilted = replace(layer, tilt=layer.tilt + np.array([[0.0, 0.01, 0.0]]))
    before, after = (sums.certify_sums(one, plan, 1e-3).bound for one in (layer, tilted))
    assert before < 1e-3 and before + 0.0099 <= after <= before + 0.0101
    tensors, record = made._record()
    record = json.loads(json.dumps(record)) | {"error": 0.1}
    lean = tensors["tilt"] + np.array([[0.0, 0.01, 0.0]])
    first, second = check(tensors, record), check(dict(tensors) | {"tilt": lean}, record)
    assert not second.passed and 0.0095 <= second.bound - first.bound <= 0.012


def test_literal_logits_are_rounded_and_that_is_counted():
    """Logits as large as the bonus move the weights inside a cluster, by much more than two levels do."""
    made = compiled("abs(sin(3*x))+abs(y)", 1e-5)
    x = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    fine, rough = (made.certificate_for(runtime).parts for runtime in ("two-level", "dense"))
    error = away(made.weights, x, "dense")
    assert away(made.weights, x, "two-level") <= fine["rounding"]
    assert 4.0 * fine["rounding"] < error <= rough["rounding"]


def test_the_tilt_leaks_with_the_tokens_that_carry_it():
    """Columns of other groups see the tilt of the first one's tokens, e^-bonus of it."""
    made = compiled("abs(x)+abs(y)+3000*z", 1e-1, "xyz")
    levels = [normaliser_range(made.weights, group) for group in made.weights.groups]
    spread = max(b[1] - a[0] for a in levels for b in levels)
    layer = replace(made.weights, bonus=spread + 4.0)
    x = np.array([[a, b, 1.0] for a in (-1.0, 0.0, 1.0) for b in (-1.0, 0.0, 1.0)])
    error, leak = away(layer, x, "dense"), literal(layer, made.certificate.blends).leakage
    plain = replace(layer, tilt=None)
    assert error > 10.0 * literal(plain, made.certificate.blends).leakage and error <= leak < math.inf


def test_errors_of_parts_add_up_in_the_checker():
    made = compiled("abs(x)+abs(y)+x/3-y/5", 1e-3)
    tensors, record = made._record()
    record = json.loads(json.dumps(record)) | {"error": 1.0}
    moved = dict(tensors)
    for g in (0, 1):
        moved[f"group.{g}.values"] = tensors[f"group.{g}.values"] + 0.1
    assert 0.199 < check(moved, record).bound - check(tensors, record).bound < 0.21


@pytest.mark.parametrize("change", ["part", "slopes"])
def test_a_decomposition_that_is_not_the_target_is_noticed(change, monkeypatch):
    made = compiled("abs(x)+abs(y)+x/3-y/5", 1e-3)
    tensors, record = made._record()

    def wrong(*arguments):
        found = sum_of(*arguments)
        if change == "slopes":
            return replace(found, slopes=tuple(c + 1 for c in found.slopes))
        return replace(found, parts=found.parts[:1] * 2)

    assert check(tensors, record).passed
    monkeypatch.setattr(checker, "sum_of", wrong)
    verdict = check(tensors, record)
    assert not verdict.passed and "sum of its parts" in verdict.reason


def test_the_scope_is_compared():
    tensors, record = compiled("abs(x)+abs(y)+x/3-y/5", 1e-3)._record()
    record = json.loads(json.dumps(record))
    record["certificate"]["scope"] = {"over": "integral"}
    assert "speaks of" in check(tensors, record).reason


def test_answers_of_a_sum_are_rounded_once_more():
    """In float32 the answer is rounded by u32 times its size, which is most of the bound of a large constant."""
    made = compiled("abs(x)+abs(y)+3000", 1e-2, "xy", "float32")
    x = np.random.default_rng(0).uniform(-1, 1, (400, 2))
    error = away(made.weights, x, "two-level")
    tensors, record = made._record()
    wide = json.loads(json.dumps(record)) | {"error": 1.0}
    exact = max(made.certificate.parts["approximation"] + made.certificate.parts["leakage"], 0.0)
    assert 1e-4 < error <= made.certificate.parts["rounding"]
    assert check(tensors, wide).bound >= 0.5 * exact + error
