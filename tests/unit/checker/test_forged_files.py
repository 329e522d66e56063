"""Forged files: every number of a file moved, zeroed or swapped.  None passes the checker unless what it says is true."""

import contextlib
import copy
import functools
import math
import os

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.attack.files import attack_file, forge, observed
from maxaffine.checker import check
from maxaffine.core.errors import BadInput
from maxaffine.target.target import Target

LINE, SQUARE, WIDE = ma.Box(x=(-1, 1)), ma.Box(x=(-1, 1), y=(-1, 1)), ma.Box(x=(-2, 2), y=(-2, 2))
FILES = int(os.environ.get("MAXAFFINE_FORGED_FILES", "0"))  # per head; 0: the number that its check allows in a test


def _ring():
    t = np.linspace(0, 2 * math.pi, 60)
    return np.c_[np.cos(t), np.sin(t)]


def _sites():
    return ma.MaxAffine.from_power_diagram(np.random.default_rng(0).uniform(-1, 1, (25, 2)))


def _matrix():
    return Target.of("sin(x), x, cos(x), x*x", LINE, output_shape=(2, 2))


@functools.cache
def _table():
    a, b = np.linspace(0, 1, 9), np.linspace(-1, 1, 7)
    return ma.Table([a, b], np.sin(2 * a)[:, None] * np.cos(b))


HEADS = {
    "axis": (lambda: ma.compile("abs(sin(3*x))", LINE, error=1e-2), 60),
    "axis in float32": (lambda: ma.compile("abs(sin(3*x))", LINE, error=1e-2, dtype="float32"), 60),
    "axis with a gap": (lambda: ma.compile("sign(x - .3) + x", LINE, error=1e-2, gap=1e-3), 60),
    "axis in L_1": (lambda: ma.compile("sign(x - .3) + sin(x)", LINE, error=1e-2, norm=1), 60),
    "sums": (lambda: ma.compile("abs(x - .2) + sin(2*y)", SQUARE, error=1e-2), 60),
    "products": (lambda: ma.compile("abs(x - .1)*cos(y)", SQUARE, error=2e-2, method="products"), 60),
    "regions": (lambda: ma.compile("abs(x + 2*y - .3)*cos(x)", SQUARE, error=1e-1, method="regions"), 50),
    "regions in L_2": (lambda: ma.compile("where(x + y > .1, cos(x), y)", SQUARE, error=1e-1, norm=2, method="regions"), 50),
    "curved kink": (lambda: ma.compile("max(x**2 + y**2, .5)", SQUARE, error=1e-1, method="curved"), 40),
    "curved maximum": (lambda: ma.compile("max(sin(3*x), y)", SQUARE, error=1e-1, method="curved"), 40),
    "tree": (lambda: ma.compile("exp(-9*((x - .2)**2 + y**2))", SQUARE, error=1e-1, method="tree"), 15),
    "piecewise": (lambda: ma.compile("max(x, y, .3)", SQUARE, error=1e-3), 80),
    "level": (lambda: ma.compile("where(x**2 + y**2 < .5, 1, 0)", SQUARE, error=4e-1, norm=1, method="level"), 15),
    "spectral, listed": (lambda: ma.compile("sin(x*y)", SQUARE, error=1e-2, method="spectral"), 50),
    "spectral, factored": (lambda: ma.compile("sin(x)*cos(2*y)", SQUARE, error=1e-2, method="spectral"), 50),
    "spectral, affine": (lambda: ma.compile("sin(x)", LINE, error=1e-3, method="spectral"), 60),
    "spectral, a sum": (lambda: ma.compile("sin(x) + cos(y)", SQUARE, error=1e-3, method="spectral"), 60),
    "lookup E1": (lambda: ma.compile("sin(3*x) + y", SQUARE, error=0.5, method="lookup"), 30),
    "lookup G4": (lambda: ma.compile("sqrt(x)", ma.Box(x=(0, 1)), error=0.1, method="lookup"), 6),
    "partition": (lambda: ma.compile("x + y/2", SQUARE, error=1.2, method="lookup", partition=_sites()), 60),
    "centres": (lambda: ma.compile("sin(2*x) + y/2", WIDE, error=0.8, method="lookup", centres=_ring()), 60),
    "lookup in L_1": (lambda: ma.compile("sign(x - .3) + x", LINE, error=0.2, norm=1, method="lookup"), 50),
    "a matrix": (lambda: ma.compile(_matrix(), error=0.3, method="lookup"), 40),
    "table": (lambda: ma.compile(_table(), error=1e-2), 60),
}


@functools.cache
def compiled(head):
    return HEADS[head][0]()


def stored(head):
    tensors, record = compiled(head)._record()
    return {name: np.array(tensor) for name, tensor in tensors.items()}, copy.deepcopy(record)


def table_of(head):
    return _table() if head == "table" else None


@pytest.mark.parametrize("head", HEADS)
def test_no_forged_file_is_proved_falsely(head):
    tensors, record = stored(head)
    assert check(tensors, record, table_of(head)).passed
    counts = attack_file(tensors, record, np.random.default_rng(len(head)), FILES or HEADS[head][1], table_of(head))
    print(f"{head}: {counts.refused} refused, {counts.unreadable} not read, {counts.passed} passed ({counts.slightly} state a "
          f"bound too small by less than the checker's constants), {len(counts.false)} proved falsely")  # fmt: skip
    assert not counts.false, counts.false
    assert counts.refused + counts.unreadable > 0


def test_the_engine_changes_one_thing_at_a_time_and_the_truth_is_seen():
    tensors, record = stored("axis")
    seen = set()
    for what, made, told in forge(tensors, record, np.random.default_rng(0)):
        changed = [name for name in tensors if not np.array_equal(made[name], tensors[name])]
        assert len(changed) == 1 if told == record else not changed, what
        seen.add(what.split(":")[0])
    assert set(tensors) <= seen and {"error", "certificate.bound", "layer.bonus"} <= seen
    truth = observed(tensors, record, np.random.default_rng(0))
    assert 0 < truth.default <= record["certificate"]["bound"]


def test_a_bonus_set_to_zero_is_no_file_of_every_runtime():
    tensors, record = stored("sums")
    record["layer"]["bonus"] = 0.0
    assert observed(tensors, record, np.random.default_rng(0)).dense > 0.5
    record["certificate"]["runtime"] = "any"
    assert not check(tensors, record).passed
    record["literal"] = {"float64": {"bound": record["certificate"]["bound"]}}
    assert not check(tensors, record).passed


UNREAD = [{"float64": {"bound": bound}} for bound in (0.0, True, math.nan, "1")]
UNREAD += [3.0, {"float16": {"bound": 1.0}}, {"float32": {"bound": 1.0}}, {"float64": 1.0}]


@pytest.mark.parametrize("literal", UNREAD)
def test_claims_of_the_literal_form_that_cannot_be_read_prove_nothing(literal):
    tensors, record = stored("axis")
    record["literal"] = literal
    with contextlib.suppress(BadInput):
        assert not check(tensors, record).passed


@pytest.mark.parametrize("literal", [None, {}, {"float64": None}, {"float64": {}}, {"float64": {"bound": None}}])
def test_where_nothing_is_claimed_nothing_is_said(literal):
    tensors, record = stored("axis")
    record["literal"] = literal
    assert check(tensors, record).passed
