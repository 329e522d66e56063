"""Properties of spectral proofs: random heads and targets under attack, never a point above a bound."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import maxaffine as ma
from maxaffine.attack.heads import Row, attack_heads
from maxaffine.attack.search import Found, worst_point
from maxaffine.attack.targets import Case, random_case
from maxaffine.checker.head import Head as CheckedHead
from maxaffine.checker.local_error import strip as checked_strip
from maxaffine.checker.proved import NotProved
from maxaffine.checker.reader import Axis
from maxaffine.cli.app import main
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.layer.keys import AxisKeys
from maxaffine.proofs.head_bounds import strip_factor
from maxaffine.proofs.local_error import prove
from maxaffine.proofs.product_head import Head
from maxaffine.proofs.sources import FromExpression


def _many(count):
    return settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


numbers = st.floats(-30, 30, allow_subnormal=False)
key_rows = st.integers(1, 9).flatmap(
    lambda n: st.tuples(st.lists(numbers, min_size=n, max_size=n), st.lists(numbers, min_size=n, max_size=n))
)


@given(key_rows, st.floats(-1, 1), st.floats(0, 1.5), st.floats(1e-4, 1.0))
@_many(150)
def test_strips_dominate_the_weights_of_any_keys(rows, centre, reach, height):
    keys = AxisKeys(np.array(rows[0]), np.array(rows[1]))
    z = (np.linspace(centre - reach, centre + reach, 41)[:, None] + 1j * np.linspace(0, height, 9)).ravel()
    scores = np.multiply.outer(z, keys.slopes) + keys.offsets
    e = np.exp(scores - scores.real.max(axis=1, keepdims=True))
    true = float((np.abs(e).sum(axis=1) / np.maximum(np.abs(e.sum(axis=1)), 1e-300)).max())
    step = float(np.ptp(keys.slopes)) / max(1, len(keys) - 1)
    for bound in (strip_factor(keys, None, centre, reach, height), strip_factor(keys, step or 1.0, centre, reach, height),
                  checked_strip(Axis(keys.slopes, keys.offsets), centre, reach, height)):  # fmt: skip
        assert bound >= true * (1 - 1e-9)


@given(key_rows, st.sampled_from(["sin(4*t1)", "exp(t1)", "1/(1.2-t1)", "tanh(5*t1)", "0*t1", "t1**5-t1"]), st.integers(0, 99))
@_many(40)
def test_the_bound_of_any_head_is_above_its_error(rows, text, seed):
    keys, rng = AxisKeys(np.array(rows[0]), np.array(rows[1])), np.random.default_rng(seed)
    values = rng.normal(size=(len(keys), 1))
    source = FromExpression(Expression.parse(text, ("t1",)), Interval.point(np.zeros(1)), np.ones(1))
    z = np.linspace(-1, 1, 2001)
    scores = np.multiply.outer(z, keys.slopes) + keys.offsets
    w = np.exp(scores - scores.max(axis=1, keepdims=True))
    error = float(np.abs((w / w.sum(axis=1, keepdims=True)) @ values - source.expression.evaluate(z[:, None])).max())
    axis = Axis(keys.slopes, keys.offsets)
    try:
        assert prove(Head(source, (keys,), (None,), values), error).bound >= error * (1 - 1e-9)
        assert CheckedHead(source.expression, source.middle, source.half, (axis,), values).supremum(error) >= error * (1 - 1e-9)
    except (Refused, NotProved):
        assert float(np.ptp(keys.slopes)) > 5  # steep keys may need more cells than there are


@pytest.mark.parametrize("head", ["spectral", "lookup", "lookup, L_p"])
def test_no_point_lies_above_a_bound_in_a_short_attack(head):
    (row,) = attack_heads(ma.compile, [head], layers=1, seed=32, seconds=11, moves=2)
    assert row.layers >= 1 and row.statements >= row.layers
    assert row.violations == [] and 0.0 < row.worst <= 1.0
    json.dumps(row.to_json())


def test_the_attack_notices_a_bound_that_is_too_small():
    layer = ma.compile("sin(3*x)", ma.Box(x=(-1, 1)), error=1e-3, method="spectral")
    found = worst_point(layer.weights, layer.target, np.random.default_rng(0), "dense")
    case, row = Case("sin(3*x)", layer.box, 1e-3, "float64", "spectral", "inf"), Row("spectral")
    row.judge("as compiled", case, layer.bound, found)
    assert not row.violations and 0.5 < row.worst <= 1.0
    row.judge("as compiled", case, 0.9 * found.error, Found(found.error, found.at, 1))
    assert len(row.violations) == 1 and row.worst > 1.0


def test_random_cases_are_targets_that_can_be_evaluated():
    rng = np.random.default_rng(0)
    dtypes, methods = set(), set()
    for _ in range(200):
        case = random_case(rng)
        dtypes.add(case.dtype)
        methods.add((case.method, case.norm))
        x = case.box.sample(20, rng)
        assert np.isfinite(Expression.parse(case.text, case.box.names).evaluate(x)).all(), case.text
    assert dtypes == {"float64", "float32", "bfloat16"} and len(methods) >= 3


def test_the_command_prints_what_was_found(capsys):
    assert main(["attack", "--heads", "spectral;lookup", "--layers", "1", "--seed", "36", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["head"] for row in found["heads"]] == ["spectral", "lookup"] and found["seed"] == 36
    assert all(row["layers"] == 1 and row["violations"] == [] for row in found["heads"])
    assert main(["attack", "--layers", "0"]) == 2
