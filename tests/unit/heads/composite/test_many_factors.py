"""Products of many factors: tokens are implied, nothing lists them, and every bound is that of the factors multiplied out."""

import functools
import json
import math
from dataclasses import replace

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.attack.domain import Domain
from maxaffine.attack.search import worst_point
from maxaffine.checker import check
from maxaffine.checker.formats import answers_fit
from maxaffine.checker.products import Multiplied
from maxaffine.checker.proved import NotProved
from maxaffine.checker.reader import Layer
from maxaffine.core.errors import Refused
from maxaffine.heads.axis.line import AxisParts
from maxaffine.heads.composite.products_prove import excess, multiplied
from maxaffine.layer.factors import LISTED, FactorGroup
from maxaffine.layer.file import from_tensors
from maxaffine.layer.tables import group_tables
from maxaffine.proofs.combine import underflow
from maxaffine.runtime import chooser

SOBOL = "*".join(f"(abs(4*x{i + 1}-2)+{a})/(1+{a})" for i, a in enumerate((0, 1, 4.5, 9, 99)))
FIVE = ma.Box(**{f"x{i + 1}": (0, 1) for i in range(5)})
STEEP = "abs(x)*sqrt(y)*exp(z)*tanh(20*w)"
FOUR = ma.Box(x=(-1, 1), y=(0, 1), z=(-1, 1), w=(-1, 1))


@functools.cache
def compiled(text, error, names):
    return ma.compile(text, {"five": FIVE, "four": FOUR}[names], error=error, relative=True, method="products")


def made(layer):
    """Tensors and record as a file has them, to be changed."""
    tensors, record = layer._record()
    return {name: np.array(tensor) for name, tensor in tensors.items()}, json.loads(json.dumps(record))


def many(count):
    """A layer of `count` factors along variables of their own, all of them the second factor of Sobol's g."""
    own = compiled(SOBOL, 1e-2, "five").weights.groups[0].factors[1]
    factors = []
    for e in range(count):
        matrix = np.zeros((1, count))
        matrix[0, e] = own.matrix[0, 1]
        factors.append(replace(own, matrix=matrix))
    ends, like = np.zeros(count), compiled(SOBOL, 1e-2, "five").weights
    group = FactorGroup(tuple(factors), np.zeros(1))
    return replace(
        like, centre=ends + like.centre[1], groups=(group,), low=ends, high=ends + 1.0, inputs=((count, 1),), tilt=None
    )


@pytest.mark.parametrize(("text", "names", "error"), [(SOBOL, "five", 1e-2), (STEEP, "four", 1e-2)])
def test_many_factors_are_proved_confirmed_and_never_exceeded(text, names, error):
    layer = compiled(text, error, names)
    assert len(layer.weights.groups[0].factors) == layer.target.box.dimension
    assert layer.tokens == math.prod(layer.weights.groups[0].shape)
    tensors, record = made(layer)
    verdict = check(tensors, record)
    assert verdict.passed and verdict.bound <= layer.error
    found = worst_point(layer.weights, layer.target, np.random.default_rng(1), "two-level", Domain((), True))
    assert 0.1 * layer.bound < found.error <= layer.bound


def test_tokens_are_implied_and_listed_nowhere():
    layer = many(40)
    (group,) = layer.groups
    assert layer.tokens == 4**40 and group.work == 160  # an integer of any size
    assert math.isfinite(underflow(layer))
    x = np.random.default_rng(0).uniform(size=(50, 40))
    alone = [np.abs(4 * x[:, e] - 2) for e in range(40)]
    wanted = np.prod([one + 1 for one in alone], axis=0)
    got = chooser.evaluate(layer, x)[:, 0, 0]
    assert np.abs(got / wanted - 1).max() < 0.2
    for listing in (lambda: group.combined, lambda: group.listed(), lambda: group.listed_values(), lambda: group_tables(layer),
                    lambda: layer.site_pieces(), lambda: chooser.attention(layer, x)):  # fmt: skip
        with pytest.raises(Refused, match=f"all combinations of 4 x 4 .* and {LISTED:,} are listed at most"):
            listing()
    assert not chooser.can(layer, "dense")


def test_listing_begins_to_be_refused_above_the_limit():
    assert len(many(8).groups[0].combined.clusters) == 2**8  # 4^8 = 65,536 tokens
    with pytest.raises(Refused, match="listed at most"):
        _ = many(9).groups[0].combined


def parts(near, size):
    """What is known of a factor, made up."""
    known = dict.fromkeys(AxisParts.__dataclass_fields__, 0.0)
    return AxisParts(**{**known, "worst": near, "size": size})


def test_errors_of_many_factors_are_multiplied_out():
    near, size = 1e-4, 1.5
    found = multiplied([parts(near, size)] * 20, [0.0] * 20, 0.0, 0.0)
    assert (size + near) ** 20 - size**20 <= found.near <= ((size + near) ** 20 - size**20) * (1 + 1e-9)
    assert found.rounding >= 20 * 2.0**-53 * size**20  # a rounding per factor
    assert excess([size] * 20, [near] * 20) >= (size + near) ** 20 - size**20


def test_partial_products_that_vanish_are_counted():
    """1e-200 x 1e-200 is 0 before 1e290 makes a number of it again: that is the whole of the product."""
    found = multiplied([parts(0.0, 1e-200), parts(0.0, 1e-200), parts(0.0, 1e290)], [0.0] * 3, 0.0, 0.0)
    assert found.rounding > 1e-110
    with pytest.raises(Refused, match="could not be bounded"):
        multiplied([parts(0.0, 1e20)] * 20, [0.0] * 20, 0.0, 0.0)


def value(tensors, record):
    tensors["group.0.factor.4.values"][1] += 0.2


def site(tensors, record):
    tensors["group.0.factor.3.sites.offsets"][0] += 1e3


def swapped(tensors, record):
    for name in [name for name in tensors if name.startswith("group.0.factor.1.") and "matrix" not in name]:
        other = name.replace("factor.1.", "factor.3.")
        tensors[name], tensors[other] = tensors[other], tensors[name]


def missing(tensors, record):
    for name in [name for name in tensors if name.startswith("group.0.factor.4.")]:
        del tensors[name]


def fewer(tensors, record):
    missing(tensors, record)
    record["layer"]["factors"][0] = record["layer"]["factors"][0][:4]
    record["layer"]["clusters"] = [math.prod(record["layer"]["factors"][0])]
    record["plan"]["factors"] = record["plan"]["factors"][:4]


def lean(tensors, record):
    for row, number in zip(record["plan"]["factors"], range(5), strict=True):
        if not row["affine"]:
            tensors[f"group.0.factor.{number}.value_slopes"][:] = 1e-9


def claimed(tensors, record):
    record["certificate"]["bound"] = float(record["certificate"]["bound"]) / 1e3


@pytest.mark.parametrize("forge", [value, site, swapped, missing, fewer, lean, claimed])
def test_forged_files_are_refused(forge):
    tensors, record = made(compiled(SOBOL, 1e-2, "five"))
    forge(tensors, record)
    try:
        verdict = check(tensors, record)
    except ma.MaxaffineError:
        return
    assert not verdict.passed


def test_more_factors_than_are_proved_are_refused():
    box = ma.Box(**{f"x{i}": (1, 2) for i in range(25)})
    with pytest.raises(Refused, match="more than 24 directions"):
        ma.compile("*".join(f"abs(x{i}-1.5)" for i in range(25)), box, error=1e-1, method="products")


def test_the_checker_lists_no_more_than_literal_forms_have():
    known = Multiplied(0.0, 1.0, 4**9, None, math.inf, None)
    group = type("group", (), {"tokens": 4**9})()
    with pytest.raises(NotProved, match="implied by its factors and listed nowhere"):
        replace(known, group=group).column(None)


def test_the_checker_looks_at_the_sums_of_every_factor():
    layer = compiled(SOBOL, 1e-2, "five")
    tensors, record = made(layer)
    read = Layer.read(tensors, record["layer"], layer.target)
    assert answers_fit(read, "float64")
    (group,) = read.groups
    big = replace(group.factors[1], values=[one * 1e304 for one in group.factors[1].values])
    small = replace(group.factors[2], values=[one * 1e-304 for one in group.factors[2].values])
    forged = replace(group, factors=(group.factors[0], big, small, *group.factors[3:]))
    assert not answers_fit(replace(read, groups=(forged,)), "float64")


def test_a_sum_holds_products_of_many_factors():
    layer = ma.compile(f"{STEEP} + abs(x-0.3)", FOUR, error=3e-2, method="products")
    assert layer.certificate.argument == "sums" and layer.bound <= 3e-2
    tensors, record = made(layer)
    assert check(tensors, record).passed
    assert from_tensors(tensors, record["layer"]).tokens == layer.tokens
