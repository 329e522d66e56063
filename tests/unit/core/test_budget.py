"""Budgets: known before anything is allocated."""

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core import budget
from maxaffine.core.budget import Cost, afford, free_memory, lookup_cost, size
from maxaffine.core.errors import Refused


def test_the_stored_bytes_of_a_lookup_are_told_exactly():
    for text, dtype in (("sin(x)+cos(y)", "float64"), ("sin(x)+cos(y), x", "float32")):
        layer = ma.compile(text, ma.Box(x=(0, 1), y=(0, 1)), error=0.3, dtype=dtype, method="lookup")
        assert layer.cost.bytes == layer.weights.nbytes
        assert layer.cost.tokens == layer.tokens


def test_tokens_are_exact_integers_however_many():
    cost = lookup_cost(10**30, (10**15, 10**15), 2, 1, 1, 8)
    assert cost.tokens == 10**30


def test_what_does_not_fit_is_refused_with_numbers_and_a_way_out(monkeypatch):
    cost = Cost(10**9, 2**33, 2**35, 1)
    afford(cost, 2**36, "the layer")
    with pytest.raises(Refused, match=r"32 GiB.*`max_bytes` allows 16 GiB.*larger"):
        afford(cost, 2**34, "the layer")
    monkeypatch.setattr(budget, "free_memory", lambda: 2**35)
    with pytest.raises(Refused, match="16 GiB may be used"):
        afford(cost, None, "the layer")


def test_a_compile_that_cannot_be_afforded_allocates_nothing(monkeypatch):
    monkeypatch.setattr(np, "empty", lambda *a, **k: pytest.fail("allocated"))
    with pytest.raises(Refused, match="tokens"):
        afford(lookup_cost(10**12, (10**6, 10**6), 2, 1, 1, 8), None, "the lookup")


@pytest.mark.parametrize(("amount", "text"), [(1, "1 B"), (2048, "2 KiB"), (3 << 30, "3 GiB")])
def test_sizes_are_readable(amount, text):
    assert size(amount) == text


def test_free_memory_is_a_positive_number_and_respects_the_control_group(monkeypatch):
    assert free_memory() > 0
    monkeypatch.setattr(budget, "_control_group", lambda: 12345)
    assert free_memory() == 12345
    monkeypatch.setattr(budget, "_control_group", lambda: None)
    monkeypatch.setattr(budget, "_meminfo", lambda: None)
    assert free_memory() == 4 << 30
