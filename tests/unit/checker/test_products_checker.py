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
from maxaffine.checker import products_stored as stored
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


def value(tensors, record):
    tensors["group.0.values"][7, 0] += 1e-3


def key(tensors, record):
    tensors["group.0.keys.1.offsets"][1] += 1e-3


def all_keys(tensors, record):
    """The same key in every combination: a product still, of another function."""
    offsets = tensors["group.0.keys.1.offsets"]
    offsets[offsets == offsets.max()] += 1e-2


def offset(tensors, record):
    tensors["group.0.sites.offsets"][1] += 1e4


def site(tensors, record):
    tensors["group.0.sites.slopes"][0, 0] *= 1.01


def place(tensors, record):
    tensors["group.0.origins"][0, 0] += 1e-3


def lean(tensors, record):
    """Slopes in the coordinate of a factor whose values are constant."""
    affine = [row["affine"] for row in rows(record)].index(True)
    tensors["group.0.value_slopes"][3, 0, 1 - affine] = 1e-3


def steep(tensors, record):
    affine = [row["affine"] for row in rows(record)].index(True)
    tensors["group.0.value_slopes"][3, 0, affine] += 1e-3


def permuted(tensors, record):
    for one in ("origins", "radii", "sites.slopes", "sites.offsets"):
        tensors[f"group.0.{one}"] = tensors[f"group.0.{one}"][::-1].copy()


def swapped(tensors, record):
    """The factors in the other order."""
    tensors["group.0.matrix"] = tensors["group.0.matrix"][::-1].copy()


def tilted(tensors, record):
    tensors["tilt"] = np.array([[0.0, 1e-3]])


def anchor(tensors, record):
    constant = next(row for row in rows(record) if not row["affine"])
    constant["anchor"] = (constant["anchor"] + 1) % constant["tokens"]


def told(tensors, record):
    constant = next(row for row in rows(record) if not row["affine"])
    constant["value"] *= 1.01


def other(tensors, record):
    record["target"]["text"] = "abs(sin(7.01*x))*exp(y)"


def no_product(tensors, record):
    record["target"]["text"] = "abs(sin(7*x))+exp(y)"


def dtype(tensors, record):
    record["layer"]["dtype"] = record["certificate"]["dtype"] = "float32"


def stored_dtype(tensors, record):
    tensors["group.0.values"] = tensors["group.0.values"].astype(np.float32)


def spoken(tensors, record):
    record["certificate"]["scope"] = {"over": "integral"}


def infinite(tensors, record):
    tensors["group.0.values"][0, 0] = math.nan


def more(tensors, record):
    tensors["group.1.matrix"] = tensors["group.0.matrix"]


def fewer(tensors, record):
    tensors["group.0.values"] = tensors["group.0.values"][:-1]


CHANGES = [
    value, key, all_keys, offset, site, place, lean, steep, permuted, swapped, tilted, anchor, told, other, no_product, dtype,
    stored_dtype, spoken, infinite, more, fewer,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_was_changed_is_not_confirmed(change):
    assert check(*made("fine waves")).passed
    verdict = check(*changed("fine waves", change))
    assert not verdict.passed and verdict.reason


@pytest.mark.parametrize(("field", "numbers"), [
    ("clusters", (0, -1, 2, 1.0, True, 10**7, 10**30)),
    ("tokens", (0, 4, 5.0, 10**9)),
    ("anchor", (-1, 10**6, 0.0, None)),
    ("share", (0.0, -1.0, math.inf, math.nan, "1", True)),
    ("value", (0.0, math.inf, math.nan, "1", 1e-310, 1e300)),
    ("affine", (True, None, 1)),
    ("direction", (["1", "1"], [], ["0"])),
])  # fmt: skip
def test_a_record_of_factors_that_lies_is_not_believed(field, numbers):
    for number in numbers:
        tensors, record = made("fine waves")
        constant = next(row for row in rows(record) if not row["affine"])
        constant[field] = number
        assert not check(tensors, record).passed, number


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
    tensors["group.0.values"] *= 1.1
    verdict = check(tensors, record)
    assert not verdict.passed


def _moves(tensors, record, rng):
    """One kind of number moved: a single one, or all of a cluster of one factor, so that it stays a product."""
    counts = [row["clusters"] for row in rows(record)]
    names = sorted(name for name in tensors if name.startswith("group.0.") and not name.endswith("shapes"))
    name = str(rng.choice([*names, *({"tilt"} & set(tensors))]))
    tensor, size = tensors[name], 10.0 ** rng.uniform(-6, -0.5) * rng.choice([-1, 1])
    numbers = np.arange(math.prod(counts)).reshape(counts)
    e = int(rng.integers(len(counts)))
    members = np.take(numbers, int(rng.integers(counts[e])), axis=e).ravel()
    if name.endswith(("sites.slopes", "origins", "radii")):
        tensor[members, e] *= 1.0 + size
    elif name.endswith("sites.offsets"):
        tensor[members if rng.random() < 0.5 else members[:1]] += size
    elif rng.random() < 0.5:
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


def test_stored_values_that_are_no_products_cost_what_they_lack():
    tensors, record = made("waves")
    before = check(tensors, record | {"error": 1.0}).bound
    rng = np.random.default_rng(0)
    tensors["group.0.values"] *= 1.0 + 1e-3 * rng.choice([-1.0, 1.0], tensors["group.0.values"].shape)
    after = check(tensors, record | {"error": 1.0}).bound
    assert seen("waves", tensors, record) <= after
    assert 1e-3 < after - before < 1.0


def test_offsets_are_taken_apart_and_what_they_lack_is_shared_out():
    rng = np.random.default_rng(1)
    parts = [rng.normal(0, 300, n) for n in (4, 3, 5)]
    table = parts[0][:, None, None] + parts[1][:, None] + parts[2]
    table[1, 2, 3] += 0.25
    offsets, slack = stored._offsets(table)
    lacks = np.abs(table - (offsets[0][:, None, None] + offsets[1][:, None] + offsets[2]))
    shared = [np.array(one) for one in slack]
    assert lacks.max() > 0.2
    assert np.all(lacks <= shared[0][:, None, None] + shared[1][:, None] + shared[2])
    plain = stored._offsets(table - 0.25 * (np.arange(60).reshape(4, 3, 5) == 28))[1]
    assert max(map(max, plain)) < 1e-11


def _waves_parts():
    tensors, record = made("waves")
    target = _compiled("waves").target
    found = products.product_of(target.expression, target.box)
    hints = stored.hints_of(rows(record), found)
    read = stored.Stored.read(tensors, record["layer"], target, found, hints)
    with axis_clusters.balls.precision(axis_clusters.BITS):
        return [read.factor(e, found, hint.share).parts() for e, hint in enumerate(hints)], read


def test_every_part_of_a_factor_counts_times_the_others():
    parts, read = _waves_parts()
    before = products._multiplied(parts, read)[0]
    for i, (part, beside) in enumerate(zip(parts, parts[::-1], strict=True)):
        for field in ("near", "lost", "far", "size"):
            grown = replace(part, **{field: getattr(part, field) + 0.01})
            after = products._multiplied([grown if n == i else one for n, one in enumerate(parts)], read)[0]
            least = 0.01 * (beside.near if field == "size" else beside.size)
            assert after - before >= 0.999 * least, field
        for field, times in (("eta", 2.0), ("mass", 1.0)):
            grown = replace(part, **{field: getattr(part, field) + 0.01})
            after = products._multiplied([grown if n == i else one for n, one in enumerate(parts)], read)[0]
            assert after >= before * (1.0 + 0.0099 * times)
    top = math.prod(part.weight for part in parts)
    assert products._multiplied(parts, replace(read, off=1e-3))[0] - before >= 1e-3 * top
    assert products._multiplied(parts, replace(read, shift_off=1e-3))[0] - before >= 1e-3
    with pytest.raises(stored.NotProved, match="lost to rounding"):
        products._multiplied([replace(parts[0], eta=0.3), parts[1]], read)


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
