"""Forged files: every number of a file moved, zeroed or swapped.  None passes the checker unless what it says is true."""

import contextlib
import math
import os

import numpy as np
import pytest
from cases import CASES, stored
from forgery import attack_file, forge, observed

from maxaffine.checker import check
from maxaffine.core.errors import BadInput

FILES = int(os.environ.get("MAXAFFINE_FORGED_FILES", "0"))  # per case; 0: the number that its check allows in a test
FORGED = [(name, next(iter(case.errors))) for name, case in CASES.items() if case.forged] + [("axis", "float32")]


@pytest.mark.parametrize(("head", "dtype"), [pytest.param(*one, marks=pytest.mark.xdist_group(one[0])) for one in FORGED])
def test_no_forged_file_is_proved_falsely(head, dtype):
    tensors, record = stored(head, dtype)
    assert check(tensors, record, CASES[head].entries).passed
    counts = attack_file(tensors, record, np.random.default_rng(len(head)), FILES or CASES[head].forged, CASES[head].entries)
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
