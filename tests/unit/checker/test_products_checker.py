"""The checker proves products of one-axis clusters from their file alone, and trusts nothing that the file says."""

import contextlib
import json
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker import axis_clusters, check, products
from maxaffine.checker.literal_clusters import Tokens
from maxaffine.checker.reader import Layer
from maxaffine.core.errors import BadInput
from maxaffine.layer.file import from_tensors
from maxaffine.runtime import chooser

SQUARE = {"x": (-1, 1), "y": (-1, 1)}
CASES = {
    "waves": ("abs(sin(7*x))*exp(y)", SQUARE, 1e-2, "float64"),
    "fine waves": ("abs(sin(7*x))*exp(y)", SQUARE, 1e-4, "float64"),
    "roots": ("sqrt(x*y)", {"x": (0, 1), "y": (0, 2)}, 1e-2, "float64"),
    "three": ("abs(x)*abs(y)*abs(z)", {**SQUARE, "z": (-1, 1)}, 1e-2, "float64"),
    "leaning": ("abs(x)*sin(3*y)+2*x/3-y-1", SQUARE, 1e-4, "float64"),
    "single": ("abs(x)*sin(3*y)+2*x/3-1", SQUARE, 1e-3, "float32"),
    "vanishing": ("(x+y)*abs(x-y)+100+x/3", SQUARE, 1e-5, "float64"),
}


@cache
def _compiled(name):
    text, box, error, dtype = CASES[name]
    return ma.compile(text, ma.Box(**box), error=error, method="products", dtype=dtype)


def made(name):
    """Tensors and record as a file has them, to be changed."""
    tensors, record = _compiled(name)._record()
    return {key: np.array(tensor) for key, tensor in tensors.items()}, json.loads(json.dumps(record))


def rows(record):
    return record["plan"]["factors"]


def seen(name, tensors, record):
    """The largest error on a dense grid, of the layer that the tensors hold."""
    target = _compiled(name).target
    low, high = target.box.low, target.box.high
    count = {2: 241, 3: 37}[len(low)]
    grids = np.meshgrid(*(np.linspace(a, b, count) for a, b in zip(low, high, strict=True)), indexing="ij")
    x = np.concatenate([np.stack([grid.ravel() for grid in grids], axis=1), target.box.sample(20_000, np.random.default_rng(4))])
    got = chooser.evaluate(from_tensors(tensors, record["layer"]), x)[:, 0, 0]
    return float(np.abs(got - target.expression.evaluate(x)[:, 0]).max())


def changed(name, change):
    tensors, record = made(name)
    change(tensors, record)
    return tensors, record


def moved(name, at, by):
    """One number of a factor's tensor moved."""

    def change(tensors, record):
        tensors[f"group.0.factor.{name}"][at] += by

    change.__name__ = f"{name}, {by}"
    return change


def lean(tensors, record):
    """Slopes of a factor whose values are constant: products of two affine functions are not affine."""
    constant = [row["affine"] for row in rows(record)].index(False)
    tensors[f"group.0.factor.{constant}.value_slopes"][:] = 1e-9


def steep(tensors, record):
    affine = [row["affine"] for row in rows(record)].index(True)
    tensors[f"group.0.factor.{affine}.value_slopes"][3, 0, 0] += 1e-2


def permuted(tensors, record):
    for one in ("origins", "radii", "sites.slopes", "sites.offsets"):
        tensors[f"group.0.factor.0.{one}"] = tensors[f"group.0.factor.0.{one}"][::-1].copy()


def swapped(tensors, record):
    """The factors in the other order."""
    first = {name: tensor for name, tensor in tensors.items() if ".factor.0." in name}
    for name in [name for name in tensors if ".factor.1." in name]:
        tensors[name.replace(".factor.1.", ".factor.0.")] = tensors.pop(name)
    tensors |= {name.replace(".factor.0.", ".factor.1."): tensor for name, tensor in first.items()}
    record["layer"]["factors"][0].reverse()


def shifted(tensors, record):
    tensors["group.0.shift"] += 1e-3


def two_shifts(tensors, record):
    tensors["group.0.shift"] = np.zeros(2)


def narrow_shift(tensors, record):
    tensors["group.0.shift"] = tensors["group.0.shift"].astype(np.float32)


def tilted(tensors, record):
    tensors["tilt"] = np.array([[0.0, 1e-3]])


def other(tensors, record):
    record["target"]["text"] = "abs(sin(7.01*x))*exp(y)"


def no_product(tensors, record):
    record["target"]["text"] = "abs(sin(7*x))+exp(y)"


def dtype(tensors, record):
    record["layer"]["dtype"] = record["certificate"]["dtype"] = "float32"


def stored_dtype(tensors, record):
    tensors["group.0.factor.0.values"] = tensors["group.0.factor.0.values"].astype(np.float32)


def spoken(tensors, record):
    record["certificate"]["scope"] = {"over": "integral"}


def infinite(tensors, record):
    tensors["group.0.factor.1.values"][0, 0] = math.nan


def more(tensors, record):
    tensors["group.1.matrix"] = tensors["group.0.factor.0.matrix"]


def third(tensors, record):
    tensors["group.0.factor.2.matrix"] = tensors["group.0.factor.0.matrix"]


def fewer(tensors, record):
    tensors["group.0.factor.0.values"] = tensors["group.0.factor.0.values"][:-1]


def clusters(tensors, record):
    record["layer"]["clusters"] = [1]


MOVES = [
    moved("0.values", (7, 0), 1e-3), moved("0.keys.0.offsets", 3, 1e-2), moved("0.sites.offsets", 1, 1e4),
    moved("0.sites.slopes", (0, 0), 1e9), moved("0.origins", (0, 0), 1e-3), moved("1.values", (0, 0), 1e-2),
    moved("1.keys.0.offsets", 1, 1e-2),
]  # fmt: skip
CHANGES = [
    *MOVES, lean, steep, permuted, swapped, shifted, two_shifts, narrow_shift, tilted, other, no_product, dtype, stored_dtype,
    spoken, infinite, more, third, fewer, clusters,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_was_changed_is_not_confirmed(change):
    assert check(*made("fine waves")).passed
    verdict = check(*changed("fine waves", change))
    assert not verdict.passed and verdict.reason


@pytest.mark.parametrize(("field", "numbers"), [
    ("clusters", (0, -1, 2, 1.0, True, 10**7, 10**30)),
    ("share", (0.0, -1.0, math.inf, math.nan, "1", True)),
    ("direction", (["1", "1"], [], ["0"])),
])  # fmt: skip
def test_a_record_of_factors_that_lies_is_not_believed(field, numbers):
    for number in numbers:
        tensors, record = made("fine waves")
        constant = next(row for row in rows(record) if not row["affine"])
        constant[field] = number
        assert not check(tensors, record).passed, number


@pytest.mark.parametrize(
    "wrong", [[], [[]], [[8]], [[8, 1, 1]], [["8", 1]], [[8.0, 1]], [[True, 1]], [None], [[10**9, 1]], [[0, 1]]]
)
def test_counts_of_clusters_that_lie_are_not_believed(wrong):
    tensors, record = made("fine waves")
    record["layer"]["factors"] = wrong
    with contextlib.suppress(BadInput):
        assert not check(tensors, record).passed


def test_rows_that_are_no_rows_are_refused():
    for wrong in ([], [1, 2], None, "ab"):
        tensors, record = made("waves")
        record["plan"]["factors"] = wrong
        with contextlib.suppress(BadInput):
            assert not check(tensors, record).passed


@pytest.mark.parametrize("factor", [1e-6, 1e-2, 30.0, 1e6])
def test_forged_shares_prove_nothing_false(factor):
    tensors, record = made("waves")
    for row in rows(record):
        row["share"] *= factor
    verdict = check(tensors, record | {"error": 1e3})
    assert verdict.bound is None or verdict.bound >= seen("waves", tensors, record)
    tensors["group.0.factor.1.values"] *= 1.1
    verdict = check(tensors, record)
    assert not verdict.passed


def _moves(tensors, record, rng):
    """One kind of number moved: a single one, or all of a tensor."""
    names = sorted(name for name in tensors if name.startswith("group.0.") and not name.endswith("shapes"))
    tensor = tensors[str(rng.choice([*names, *({"tilt"} & set(tensors))]))]
    size = 10.0 ** rng.uniform(-6, -0.5) * rng.choice([-1, 1])
    if rng.random() < 0.5:
        tensor *= 1.0 + size
    else:
        tensor.reshape(-1)[int(rng.integers(tensor.size))] *= 1.0 + size


@pytest.mark.parametrize("name", ["waves", "roots", "three", "leaning", "single", "vanishing"])
def test_moved_numbers_are_counted(name):
    """Whatever was moved: the bound is above what is seen, or there is none."""
    rng = np.random.default_rng(len(name))
    bounded = 0
    for _ in range(12):
        tensors, record = made(name)
        _moves(tensors, record, rng)
        verdict = check(tensors, record | {"error": 1e3})
        if verdict.bound is not None:
            bounded += 1
            assert seen(name, tensors, record) <= verdict.bound
    assert bounded >= 3


def test_moved_values_cost_what_they_are_off_by():
    tensors, record = made("waves")
    before = check(tensors, record | {"error": 1.0}).bound
    tensors["group.0.factor.1.values"] *= 1.0 + 1e-2
    tensors["group.0.factor.1.value_slopes"] *= 1.0 + 1e-2
    after = check(tensors, record | {"error": 1.0}).bound
    assert seen("waves", tensors, record) <= after
    assert 5e-3 < after - before < 0.1


def _waves_parts():
    tensors, record = made("waves")
    target = _compiled("waves").target
    found = products.product_of(target.expression, target.box)
    with axis_clusters.balls.precision(axis_clusters.BITS):
        layer = Layer.read(tensors, record["layer"], target)
        read = products.Stored.of(layer, layer.groups[0], found, rows(record), True)
        return [one.computed() for one in read.factors], read


def test_every_part_of_a_factor_counts_in_what_is_computed_of_it():
    pairs, read = _waves_parts()
    for (part, error), one in zip(pairs, read.factors, strict=True):
        whole = {"near": 0.01, "far": 0.01, "head": 0.01}
        for field, least in (whole | {"eta": 0.02 * part.near, "mass": 0.0099 * part.near}).items():
            grown = replace(part, **{field: getattr(part, field) + 0.01})
            after = replace(one)
            after.parts = lambda grown=grown: grown
            assert after.computed()[1] - error >= 0.999 * least, field


def test_the_list_of_combinations_is_off_by_its_roundings():
    pairs, read = _waves_parts()
    parts = [part for part, _ in pairs]
    heard, off = products._listed(parts, read)
    assert 0 < off < 1e-9 and heard.blend >= math.prod(p.size + p.blend for p in parts) - math.prod(p.size for p in parts)
    heavy = [replace(parts[0], weight=1e9), parts[1]]
    assert products._listed(heavy, read)[1] - off >= 2.9e9 * 2.0**-53 * parts[1].weight
    assert products._listed(parts, replace(read, shift=1e9))[1] - off >= 2.9e9 * 2.0**-53
    near = [replace(parts[0], near=1e6), parts[1]]
    largest = sum(max(abs(cluster.b) for cluster in one.clusters) for one in read.factors)
    assert products._listed(near, read)[1] - off >= 3.9e6 * 2.0**-53 * largest * parts[1].size


@pytest.mark.parametrize("name", ["waves", "three", "leaning", "single"])
def test_what_the_checker_lists_is_what_the_layer_lists(name):
    """Two lists of all combinations, by the layer and by the checker: the same tokens, up to rounding."""
    tensors, record = made(name)
    (group,) = _compiled(name).weights.groups
    own = group.combined
    listed = Layer.read(tensors, record["layer"], _compiled(name).target).groups[0].combined()
    read = Tokens.listed(listed)
    slopes, offsets = group.listed()
    values, leans = group.listed_values()
    assert np.array_equal(listed.sizes, [cluster.shape for cluster in own.clusters])
    assert read.slopes == pytest.approx(slopes, rel=1e-13) and read.offsets == pytest.approx(offsets, rel=1e-12, abs=1e-12)
    assert read.c - np.einsum("nke,ne->nk", read.G, read.origin) == pytest.approx(values, rel=1e-12, abs=1e-12)
    assert pytest.approx(leans, rel=1e-13) == read.G


def test_masses_far_away_are_missing_near_the_query(monkeypatch):
    """Computed masses add up to one with those far away: near ones are larger than exact ones by what those had."""
    made_axis = ma.compile("abs(x)", ma.Box(x=(-1, 1)), error=1e-2, method="axis")
    tensors, record = made_axis._record()
    record |= {"error": 1.0, "certificate": {**record["certificate"], "bound": 1.0}}  # no closer proof is asked for
    plain = axis_clusters.AxisCheck.parts
    before = check(tensors, record).bound
    near = []

    def heavier(self):
        found = plain(self)
        near.append(found.near)
        return replace(found, mass=0.25)

    monkeypatch.setattr(axis_clusters.AxisCheck, "parts", heavier)
    after = check(tensors, record).bound
    assert near[0] > 0
    assert after - before == pytest.approx(near[0] / 3.0, rel=1e-3)


@pytest.mark.parametrize("wrong", ["factor", "constant", "slopes"])
def test_factors_that_are_not_the_target_are_noticed(wrong, monkeypatch):
    tensors, record = made("leaning")
    plain = products.product_of

    def other_product(expression, box):
        found = plain(expression, box)
        if wrong == "constant":
            return replace(found, constant=found.constant + 1)
        if wrong == "slopes":
            return replace(found, slopes=found.slopes[::-1])
        return replace(found, factors=(replace(found.factors[0], h=found.factors[1].h), found.factors[1]))

    assert check(tensors, record).passed
    monkeypatch.setattr(products, "product_of", other_product)
    assert "not its target" in check(tensors, record).reason


def test_products_among_the_parts_of_a_sum_are_compared_with_their_factors(monkeypatch):
    from maxaffine.checker import sums

    tensors, record = ma.compile(
        "abs(x)*abs(y)+abs(x-y)+x/3+0.5", ma.Box(**SQUARE), error=1e-2, method="products"
    )._record()  # fmt: skip
    assert check(tensors, record).passed
    plain = sums.Sum.product

    def wrong(self, number, box):
        found = plain(self, number, box)
        return replace(found, factors=(found.factors[0], replace(found.factors[1], h=found.factors[0].shifted(1))))

    monkeypatch.setattr(sums.Sum, "product", wrong)
    assert "sum of its parts" in check(tensors, record).reason
