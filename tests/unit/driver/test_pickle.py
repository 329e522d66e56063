"""Layers travel: every kind is pickled and copied, workers run them, and what cannot travel says so when it is needed."""

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import maxaffine as ma

BOX = ma.Box(x=(-1, 1))


def bump(x):
    return np.exp(-(x[:, 0] ** 2))


class Bumps:
    """A callable with a part that pickle cannot take."""

    def __init__(self, hold=None):
        self.hold = hold

    def __call__(self, x):
        return bump(x)


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (lambda x: bump(x), "it has no name that it can be imported by"),
        (Bumps(hold=lambda: 0), "pickle says: "),
    ],
    ids=["a lambda", "an object with a lambda"],
)
def test_a_function_that_cannot_travel_is_replaced_by_a_stand_in(f, why):
    layer = ma.compile(f, BOX, error=1e-3, trace=False)
    other = pickle.loads(pickle.dumps(layer))  # noqa: S301
    x = BOX.sample(9, np.random.default_rng(0))
    assert np.array_equal(other(x), layer(x)) and other.explain() == layer.explain() and other.to_bytes() == layer.to_bytes()
    with pytest.raises(ma.BadInput, match=f"did not travel with this layer .{why}"):
        other.target.values(x)
    assert np.array_equal(copy.deepcopy(layer).target.values(x), bump(x)[:, None, None])  # a copy stays where the function is


@pytest.mark.parametrize("f", [bump, Bumps()], ids=["a function of a module", "an object"])
def test_a_function_that_can_travel_does(f):
    x = BOX.sample(9, np.random.default_rng(0))
    target = ma.Target.of(f, BOX)
    assert np.array_equal(pickle.loads(pickle.dumps(target)).values(x), bump(x)[:, None, None])  # noqa: S301


def test_a_function_whose_module_is_elsewhere_is_a_stand_in(monkeypatch):
    target = ma.Target.of(bump, BOX)
    kept = pickle.dumps(target)
    monkeypatch.delitem(globals(), "bump")
    with pytest.raises(ma.BadInput, match="has no bump in this process"):
        pickle.loads(kept).values([[0.0]])  # noqa: S301


def test_a_copy_proves_anew_like_the_layer():
    layer = ma.compile("sin(x)", BOX, error=1e-6)
    assert copy.copy(layer).certificate_for("dense") == layer.certificate_for("dense")
    other = pickle.loads(pickle.dumps(layer))  # noqa: S301
    assert other.certificate_for("dense") == layer.certificate_for("dense") and other.check().passed


def test_workers_run_layers():
    layer = ma.compile(lambda x: bump(x), BOX, error=1e-3, trace=False)
    parts = np.array_split(BOX.sample(40, np.random.default_rng(0)), 2)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as workers:
        found = list(workers.map(layer, parts))
    assert all(np.array_equal(values, layer(part)) for values, part in zip(found, parts, strict=True))
