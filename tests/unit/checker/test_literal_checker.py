"""The checker's bounds of literal forms: above what is seen of them, refused where they are claimed to be smaller, and useful."""

import copy
import functools
import math

import numpy as np
import pytest
from forgery import observed

import maxaffine as ma
from maxaffine.checker import check, literal_clusters, literal_groups
from maxaffine.checker.head_rounding import variation
from maxaffine.checker.literal import CONFIRMS
from maxaffine.checker.normaliser import log_normaliser
from maxaffine.checker.proved import FORMS, rounded
from maxaffine.checker.reader import Axis, Factored, Layer

LINE, SQUARE, UNIT = ma.Box(x=(-1, 1)), ma.Box(x=(-1, 1), y=(-1, 1)), ma.Box(x=(0, 1))

HEADS = {
    "axis": ("abs(sin(7*x))", LINE, 1e-4, {}),
    "axis, steep": ("abs(sin(7*x))", LINE, 1e-8, {}),
    "axis in float32": ("abs(sin(7*x))", LINE, 1e-2, {"dtype": "float32"}),
    "axis, a singular end": ("sqrt(x)", UNIT, 1e-4, {}),
    "axis in L_1": ("where(x > .3, 1, sin(x))", LINE, 1e-3, {"norm": 1}),
    "sums": ("abs(x - .2) + sin(3*y)", SQUARE, 1e-5, {}),
    "sums in float32": ("abs(x - .2) + sin(3*y) + x*y", SQUARE, 1e-2, {"dtype": "float32"}),
    "products": ("abs(x - .2)*cos(y)", SQUARE, 1e-4, {"method": "products"}),
    "products in float32": ("abs(x - .2)*cos(y)", SQUARE, 1e-2, {"method": "products", "dtype": "float32"}),
    "regions": ("abs(x + 2*y - .3)*cos(x)", SQUARE, 1e-4, {"method": "regions"}),
    "regions in float32": ("abs(x + 2*y - .3)*cos(x)", SQUARE, 1e-2, {"method": "regions", "dtype": "float32"}),
    "regions in L_2": ("where(x + y > .1, cos(x), y)", SQUARE, 1e-1, {"norm": 2, "method": "regions"}),
    "curved kink": ("max(x**2 + y**2, .5)", SQUARE, 1e-2, {"method": "curved"}),
    "curved maximum": ("max(sin(3*x), y)", SQUARE, 1e-2, {"method": "curved"}),
    "curved maximum in float32": ("max(sin(3*x), y) + cos(y)", SQUARE, 2e-1, {"method": "curved", "dtype": "float32"}),
    "tree": ("exp(-9*((x - .2)**2 + y**2))", SQUARE, 1e-2, {"method": "tree"}),
    "tree in float32": ("exp(-9*((x - .2)**2 + y**2))", SQUARE, 1e-1, {"method": "tree", "dtype": "float32"}),
    "piecewise": ("max(x, y, .3)", SQUARE, 1e-6, {}),
    "piecewise in float32": ("max(x, y, .3)", SQUARE, 1e-4, {"dtype": "float32"}),
    "level": ("where(x**2 + y**2 < .5, 1, 0)", SQUARE, 4e-1, {"norm": 1, "method": "level"}),
    "spectral, a sum": ("sin(x) + cos(y)", SQUARE, 1e-8, {"method": "spectral"}),
    "spectral, listed": ("exp(x*y)", SQUARE, 1e-6, {"method": "spectral"}),
    "spectral, factored": ("sin(3*x)*cos(y)", SQUARE, 1e-4, {"method": "spectral"}),
    "spectral in float32": ("sin(3*x) + cos(y)", SQUARE, 1e-3, {"method": "spectral", "dtype": "float32"}),
    "lookup": ("sin(3*x) + y", SQUARE, 0.5, {"method": "lookup"}),
    "lookup in float32": ("sin(3*x)", LINE, 3e-2, {"method": "lookup", "dtype": "float32"}),
    "lookup in L_1": ("sign(x - .3) + x", LINE, 0.2, {"norm": 1, "method": "lookup"}),
}
ERROR_TWICE = ("axis", "curved kink", "regions", "spectral, a sum")  # as useful as the brief of literal forms asks


@functools.cache
def compiled(head):
    text, box, error, more = HEADS[head]
    return ma.compile(text, box, error=error, **more)


def stored(head):
    tensors, record = compiled(head)._record()
    return {name: np.array(tensor) for name, tensor in tensors.items()}, copy.deepcopy(record)


def arithmetics(record):
    return ("float64",) if record["layer"]["dtype"] == "float64" else ("float32", "float64")


def own_bound(tensors, record, arithmetic, claim=1e6):
    """The checker's own bound of the literal form, from a claim that is too large to be refused."""
    verdict = check(tensors, {**record, "literal": {arithmetic: {"bound": claim}}})
    (found,) = verdict.claims
    return found.checked


@pytest.mark.parametrize("head", HEADS)
def test_what_the_compiler_claims_is_confirmed_and_no_point_lies_above_the_checkers_own_bound(head):
    tensors, record = stored(head)
    verdict = check(tensors, record)
    assert verdict.passed and verdict.claims, verdict.reason
    seen = observed(tensors, record, np.random.default_rng(5), points=4000).dense
    for claim in verdict.claims:
        assert claim.checked <= CONFIRMS * claim.stated
        if claim.arithmetic == arithmetics(record)[0]:  # dense runs in the arithmetic of the dtype
            assert seen <= claim.checked and (seen > 0 or record["norm"] != "inf")  # an integral may be lost in its noise


@pytest.mark.parametrize("head", HEADS)
def test_a_claim_below_what_is_seen_is_refused_and_one_above_its_own_bound_passes(head):
    tensors, record = stored(head)
    arithmetic = check(tensors, record).claims[0].arithmetic
    claim = 1e6 if record["norm"] == "inf" else check(tensors, record).claims[0].stated
    own = own_bound(tensors, record, arithmetic, claim)
    assert own is not None
    passes = check(tensors, {**record, "literal": {arithmetic: {"bound": 1.01 * own}}})
    assert passes.passed, passes.reason
    seen = observed(tensors, record, np.random.default_rng(1)).dense or own
    for less in (0.5 * own / CONFIRMS, seen / CONFIRMS / 1.01):
        refused = check(tensors, {**record, "literal": {arithmetic: {"bound": less}}})
        assert not refused.passed and "literal form" in refused.reason and refused.confirmed


@pytest.mark.parametrize("head", ERROR_TWICE)
def test_literal_bounds_are_useful(head):
    tensors, record = stored(head)
    assert own_bound(tensors, record, "float64") <= 2.0 * record["error"]


@pytest.mark.parametrize("head", ["sums", "spectral, a sum", "curved kink", "curved maximum in float32", "sums in float32"])
def test_a_smaller_bonus_leaks_and_that_is_counted(head):
    arithmetic = arithmetics(stored(head)[1])[0]
    for times in (0.0, 0.5, 0.8, 0.9, 1.1):
        tensors, record = stored(head)
        record["layer"]["bonus"] *= times
        record["literal"] = {arithmetic: {"bound": 1e6}}
        verdict = check(tensors, record)
        seen = observed(tensors, record, np.random.default_rng(2)).dense
        for claim in verdict.claims:
            assert claim.checked is None or seen <= claim.checked
        if times < 1 and seen > 2.0 * record["error"]:
            record["literal"] = stored(head)[1]["literal"]
            assert not check(tensors, record).passed


@pytest.mark.parametrize("bonus", [1e12, 1e300, -1.0, math.nan, math.inf])
def test_a_bonus_that_drowns_the_logits_of_a_single_group_proves_nothing(bonus):
    tensors, record = stored("axis")
    record["layer"]["bonus"] = bonus
    assert not check(tensors, record).passed


# -- the parts


@pytest.mark.parametrize("seed", range(6))
def test_log_normalisers_are_enclosed_closely(seed):
    rng = np.random.default_rng(seed)
    E, N = 1 + seed % 3, 12
    slopes, offsets = rng.normal(size=(N, E)) * 10.0 ** rng.uniform(0, 4), rng.normal(size=N) * 30.0
    size = rng.uniform(0.5, 2.0, E)
    low, high = log_normaliser(slopes, offsets, size)
    z = rng.uniform(-size, size, (60_000, E))
    z = np.concatenate([z, np.where(rng.random((200, E)) < 0.5, -size, size), np.zeros((1, E))])
    scores = z @ slopes.T + offsets
    level = scores.max(axis=1) + np.log(np.exp(scores - scores.max(axis=1, keepdims=True)).sum(axis=1))
    assert low <= level.min() and level.max() <= high
    assert high - level.max() < 0.1  # corners are among the points
    if E == 1:
        fine = np.linspace(-size[0], size[0], 400_001)[:, None] @ slopes.T + offsets
        top = fine.max(axis=1)
        assert (top + np.log(np.exp(fine - top[:, None]).sum(axis=1))).min() - low < 0.3


@pytest.mark.parametrize("E", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_values_are_no_farther_from_their_mean_than_that(E, seed):
    rng = np.random.default_rng(10 * E + seed)
    counts = rng.integers(1, 6, E)
    keys = tuple((np.sort(rng.normal(size=n) * rng.choice([0.5, 3.0])), rng.normal(size=n)) for n in counts)
    c, G = rng.normal(size=(*counts, 2)) * 10.0, rng.normal(size=(*counts, 2, E))
    low = -rng.uniform(0, 2, E)
    high = low + rng.uniform(0, 3, E)
    t = rng.uniform(low, high, (3000, E))
    w = np.ones((len(t), 1))
    for e, (a, b) in enumerate(keys):
        one = np.exp(np.multiply.outer(t[:, e], a) + b)
        w = (w[:, :, None] * (one / one.sum(axis=1, keepdims=True))[:, None, :]).reshape(len(t), -1)
    v = c.reshape(-1, 2) + np.einsum("jke,me->mjk", G.reshape(-1, 2, E), t)
    p = np.einsum("mj,mjk->mk", w, v)
    seen = float(np.einsum("mj,mjk->mk", w, np.abs(v - p[:, None])).max())
    axes = tuple(Axis(a, b) for a, b in keys)
    crude, fine = (variation(axes, c, G, low, high, rough) for rough in (True, False))
    assert seen <= fine <= crude
    if E == 1 and counts[0] > 1:
        assert fine <= 1.3 * seen + 1e-9


def test_listed_tokens_are_those_of_the_layer():
    for head in ("axis", "products", "tree", "curved kink"):
        tensors, record = stored(head)
        layer = Layer.read(tensors, record["layer"], compiled(head).target)
        for g, group in enumerate(compiled(head).weights.groups):
            own_group = layer.groups[g].combined() if isinstance(layer.groups[g], Factored) else layer.groups[g]
            listed = literal_clusters.Tokens.listed(own_group)
            slopes, offsets = group.listed()
            assert np.allclose(listed.slopes, slopes, rtol=1e-12) and np.allclose(listed.offsets, offsets, rtol=1e-9, atol=1e-9)
            c, G = group.listed_values()
            own = listed.c - np.einsum("nke,ne->nk", listed.G, listed.origin)
            assert np.allclose(own, c, rtol=1e-9, atol=1e-9) and np.allclose(listed.G, G, rtol=1e-12)


def test_errors_of_logits_cover_float32_arithmetic():
    """Logits of listed float32 numbers, formed in float32, against exact ones: within what is counted, and not far below."""
    head = "axis in float32"
    tensors, record = stored(head)
    layer = compiled(head).weights
    read = Layer.read(tensors, record["layer"], compiled(head).target)
    frame = literal_groups.Frame(read, FORMS["float32"])
    listed, matrix = literal_clusters.Tokens.listed(read.groups[0]), read.groups[0].matrix
    at = literal_groups.Coordinates.read(frame, matrix)
    x = np.random.default_rng(0).uniform(-1, 1, (2000, 1))
    z = (x - layer.centre) @ matrix.T
    counted = literal_clusters.logits_of(listed, at, at.size, frame)
    slopes, offsets = layer.groups[0].listed()
    computed = z.astype(np.float32) @ slopes.astype(np.float32).T + offsets.astype(np.float32)
    away = np.abs(computed.astype(np.float64) - (z @ slopes.T + offsets)).max(axis=0)
    assert np.all(away <= counted.shared + counted.own)
    assert float(away.max()) > 1e-3 * float((counted.shared + counted.own).max())


def test_the_rounding_of_many_operations_is_bounded_or_infinite():
    assert rounded(4, 2.0**-53) == pytest.approx(2.0**-51) and math.isinf(rounded(1e17, 2.0**-53))


def test_more_variables_than_one_matrix_column_have_absolute_errors():
    layer = Layer(-np.ones(2), np.ones(2), np.zeros(2), "float64", None, 0.0, ())
    frame = literal_groups.Frame(layer, FORMS["float64"])
    at = literal_groups.Coordinates.read(frame, np.array([[1.0, 0.0], [1.0, 1.0]]))
    small = at.error(np.array([1e-9, 1e-9]))
    assert small[0] < 1e-20 < small[1]
