"""Products of clusters under attack: numbers that leave their formats, layers that are not their plan's, forged files."""

import functools
import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker import check
from maxaffine.checker import products as checker_products
from maxaffine.checker.axis_target import AxisTarget as CheckedTarget
from maxaffine.checker.formats import scores_fit
from maxaffine.checker.proved import NotProved
from maxaffine.checker.reader import Layer
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import compute_dtype, dtype_of
from maxaffine.heads.axis.line import AxisParts, AxisTarget, HeadErrors
from maxaffine.heads.axis.prove import AxisProver, prover
from maxaffine.heads.composite import products_prove as products
from maxaffine.heads.composite.products_prove import certify_products
from maxaffine.layer.file import from_tensors
from maxaffine.proofs.literal_clusters import factor_column
from maxaffine.proofs.literal_form import Softmax
from maxaffine.runtime import grouped, two_level

SQUARE = ma.Box(x=(-1, 1), y=(-1, 1))


@functools.cache
def compiled(text, error=1e-2, dtype="float64", method="products"):
    return ma.compile(text, SQUARE, error=error, method=method, dtype=dtype)


def made(layer):
    """Tensors and record as a file has them, to be changed."""
    tensors, record = layer._record()
    return {name: np.array(tensor) for name, tensor in tensors.items()}, json.loads(json.dumps(record))


def answers(layer, x):
    """The answers of the NumPy version of the two-level runtime, which small batches get."""
    (group,) = layer.groups
    product = np.ones(len(x))
    for factor in group.factors:
        program = two_level.program_of(factor, compute_dtype(layer.dtype))
        with np.errstate(all="ignore"):
            product *= two_level.in_numpy(program, two_level.families(factor, compute_dtype(layer.dtype)), layer.centre, x)[:, 0]
    return product + group.shift


# ---------------------------------------------------------------------- numbers that leave their format


@pytest.mark.parametrize("radius", [1e-39, 1e-45, 1e-300])
def test_a_cluster_too_small_for_its_dtype_is_not_confirmed(radius):
    """A cluster of one constant token may have any radius, but in float32 its local coordinate is infinite far from it."""
    layer = compiled("max(x,0)*max(y,0)", dtype="float32")
    tensors, record = made(layer)
    constant = [row["affine"] for row in record["plan"]["factors"]].index(False)
    single = tensors[f"group.0.factor.{constant}.shapes"][:, 0] == 1
    assert single.any() and check(tensors, record).passed
    tensors[f"group.0.factor.{constant}.radii"][single, 0] = radius
    assert np.isnan(answers(from_tensors(tensors, record["layer"]), SQUARE.sample(20, np.random.default_rng(0)))).any()
    verdict = check(tensors, record)
    assert not verdict.passed and "too large for its dtype" in verdict.reason


def with_radius(plan, number, radius):
    """The plan with another radius of the clusters of one token of a factor."""
    found = plan.factors[number].parts
    cells = tuple(replace(cell, first=-radius, last=radius) if len(cell.fit.keys) == 1 else cell for cell in found)
    factors = [replace(one, parts=cells) if i == number else one for i, one in enumerate(plan.factors)]
    return replace(plan, factors=tuple(factors))


@pytest.mark.parametrize(("radius", "proved"), [(0.5, True), (1e-20, True), (1e-39, False), (1e-300, False)])
def test_a_cluster_too_small_for_its_dtype_is_not_proved(radius, proved):
    from maxaffine.heads.composite.products_plan import build_products

    layer = compiled("max(x,0)*max(y,0)", dtype="float32")
    plan = layer.prove.args[1]
    other = with_radius(plan, 1 - plan.affine, radius)
    again = build_products(other, layer.target, "float32")
    assert np.isfinite(answers(again, SQUARE.sample(20, np.random.default_rng(0)))).all() == proved
    if proved:
        assert certify_products(again, other, 1e-2).bound == pytest.approx(layer.bound, rel=1e-3)
    else:
        with pytest.raises(Refused):
            certify_products(again, other, 1e-2)


@pytest.mark.parametrize(
    ("name", "number"),
    [("sites.slopes", 1e307), ("sites.offsets", 1e307), ("keys.0.slopes", 1e38), ("keys.0.offsets", 1e38), ("radii", 1e-39)],
)
def test_scores_must_be_numbers_of_their_format_throughout_the_box(name, number):
    tensors, record = made(compiled("max(x,0)*max(y,0)"))
    target = compiled("max(x,0)*max(y,0)").target
    assert scores_fit(Layer.read(tensors, record["layer"], target), "float32")
    tensors[f"group.0.factor.1.{name}"].flat[-1] = number
    assert not scores_fit(Layer.read(tensors, record["layer"], target), "float32")
    assert not check(tensors, record).passed


# ---------------------------------------------------------------------- layers that are not their plan's


def test_another_centre_is_refused():
    layer = compiled("abs(x)*exp(y)+x/3")
    moved = replace(layer.weights, centre=layer.weights.centre + 1e-6)
    with pytest.raises(Refused, match="centre"):
        certify_products(moved, layer.prove.args[1], layer.error)


# ---------------------------------------------------------------------- every term of the bound

QUIET = HeadErrors(lost=0.0, size=0.0, lean=0.0, eta=0.0, reach=0.0, keys=1, largest=0.0)


def part(size, heads=None, **known):
    """A factor of which nothing is wrong but what is named."""
    zero = dict.fromkeys(("worst", "kinks", "leak", "far", "uncertainty", "eta", "rounding", "largest"), 0.0)
    rest = {"top": size, "count": 1, "cells": 1, "reach": np.ones(1), "edge": 0.0, "pace": 0.0}
    return AxisParts(**(zero | rest | known), size=size, heads=replace(QUIET, **(heads or {})))


def total(one, two, lost=(0.0, 0.0), shift=0.0, off=0.0):
    found = products.multiplied([one, two], list(lost), shift, off)
    return found.near + found.leak + found.rounding


@pytest.mark.parametrize(
    ("one", "two", "more", "least"),
    [
        (part(3.0, worst=0.1), part(5.0), {}, 0.5),
        (part(3.0, kinks=0.1), part(5.0, kinks=0.2), {}, 3.1 * 5.2 - 15.0),
        (part(3.0, leak=0.1), part(5.0), {}, 0.5),
        (part(3.0, leak=0.1), part(5.0, leak=0.2), {}, 3.1 * 5.2 - 15.0),
        (part(3.0, leak=0.1), part(5.0, worst=0.2), {}, 3.1 * 5.2 - 15.0),
        (part(3.0), part(5.0), {"lost": (0.1, 0.0)}, 0.5),
        (part(3.0), part(5.0), {"lost": (0.1, 0.2)}, 3.1 * 5.2 - 15.0),
        (part(3.0, worst=0.1), part(5.0, leak=0.3), {"lost": (0.1, 0.2)}, 3.2 * 5.5 - 15.0),
        (part(3.0), part(5.0), {"off": 0.01}, 0.01),
        (part(3e10), part(5.0), {}, 4.0 * 15e10 * 2.0**-53),
        (part(3.0), part(5.0), {"shift": 1e10}, 4.0 * 1e10 * 2.0**-53),
    ],
)
def test_every_term_of_a_product_is_counted_times_the_others(one, two, more, least):
    found = total(one, two, **more)
    assert least <= found <= 1.001 * least + 1e-13
    turned = total(two, one, **(more | ({"lost": more["lost"][::-1]} if "lost" in more else {})))
    assert turned == pytest.approx(found, rel=1e-9)


def test_the_computed_size_of_a_product_is_bounded():
    found = products.multiplied([part(3.0, worst=0.1), part(5.0, leak=0.2)], [0.3, 0.4], -7.0, 0.0)
    assert found.whole == pytest.approx(3.4 * 5.6 + 7.0)
    with pytest.raises(Refused, match="bounded"):
        products.multiplied([part(1e200), part(1e200), part(1e-200)], [0.0] * 3, 0.0, 0.0)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_is_computed_of_every_factor_is_bounded(dtype):
    """Near, far and rounding of a factor alone: the product of what is proved of them is what is proved of the product."""
    layer = compiled("abs(sin(3*x))*abs(y-.3)", dtype=dtype)
    plan, x = layer.prove.args[1], SQUARE.sample(20_000, np.random.default_rng(0))
    (group,) = layer.weights.groups
    for factor, one, share in zip(group.factors, plan.found.factors, plan.shares, strict=True):
        made_prover = prover(layer.weights, factor, AxisTarget(one.h, one.direction), share)
        found, rounding = made_prover.computed()
        value = np.zeros((len(x), 1))
        two_level.cluster_group(layer.weights, factor, x, value)
        exact = one.h.evaluate((x @ np.array([float(c) for c in one.direction]))[:, None])[:, 0]
        bound = found.near + found.leak + rounding + made_prover.moved(True)
        assert np.abs(value[:, 0] - exact).max() <= bound <= 1.01 * share and np.abs(exact).max() <= found.size


def test_the_list_of_combinations_is_off_by_its_roundings():
    """Offsets are rounded sums and values rounded products: both count in every literal form, times what they move."""
    layer = compiled("abs(sin(3*x))*abs(y-.3)")
    (group,) = layer.weights.groups
    (heard,) = layer.certificate.blends
    form, stands = dtype_of("float64"), Softmax.of(layer.weights)
    before = factor_column(layer.weights, group, heard, form, stands).lost
    more = factor_column(layer.weights, group, replace(heard, weight=heard.weight + 1e12), form, stands).lost - before
    assert more >= 3e12 * 2.0**-53
    largest = np.abs(group.combined.site_offsets).max()
    more = factor_column(layer.weights, group, replace(heard, blend=heard.blend + 1e8), form, stands).lost - before
    assert more >= 2e8 * 2.0**-53 * largest
    assert math.isinf(factor_column(layer.weights, group, replace(heard, weight=math.inf), form, stands).lost)


def test_masses_times_values_of_combinations_are_known():
    """blend, far and weight of the product at points, from the masses and heads of its combinations, in exact scores."""
    layer = compiled("abs(sin(3*x))*abs(y-.3)+.5")
    (group,), (heard,) = layer.weights.groups, layer.certificate.blends
    x = SQUARE.sample(4000, np.random.default_rng(0))
    listed = group.combined
    scores, local = two_level.levels(layer.weights, listed, x)
    omega = grouped.weights(scores)
    exact = layer.target.expression.evaluate(x)[:, 0]
    blend, far, weight = (np.zeros(len(x)) for _ in range(3))
    for family, (t, weights) in zip(two_level.families(listed, compute_dtype(layer.weights.dtype)), local, strict=True):
        for f, k in enumerate(family.members):
            w = weights[0][:, f, :, None] * weights[1][:, f, None, :]
            cluster = listed.clusters[k]
            lean = np.einsum("pqe,be->bpq", cluster.slopes[..., 0, :], t[:, f])
            p = (w * (cluster.values[..., 0] + lean)).sum(axis=(1, 2))
            blend += omega[:, k] * np.abs(p - exact)
            size = (w * (np.abs(cluster.values[..., 0] - group.shift) + np.abs(lean))).sum(axis=(1, 2)) + np.abs(group.shift)
            weight += omega[:, k] * size
            beyond = np.any(np.abs(t[:, f]) > heard.reach[k] * (1 + 1e-12), axis=1)
            far += np.where(beyond, omega[:, k] * (np.abs(exact) + size), 0.0)
    assert blend.max() <= heard.blend and far.max() <= heard.far and weight.max() <= heard.weight
    assert np.abs(exact).max() <= heard.size


def test_what_rounding_does_to_z_counts_for_every_factor(monkeypatch):
    layer = compiled("abs(x)*exp(y)+x/3")
    plan = layer.prove.args[1]
    monkeypatch.setattr(AxisProver, "moved", lambda self, real: 0.0)
    before = certify_products(layer.weights, plan, 1.0).bound
    for chosen, other in ((0, math.e), (1, 1.0)):  # sup |h| of the other factor
        calls = itertools.count()

        def moved(self, real, calls=calls, chosen=chosen):
            return 1e-4 if next(calls) % 2 == chosen else 0.0

        monkeypatch.setattr(AxisProver, "moved", moved)
        assert certify_products(layer.weights, plan, 1.0).bound - before == pytest.approx(1e-4 * other, rel=1e-2)
    monkeypatch.setattr(AxisProver, "moved", lambda self, real: 1.0 if real else 1e-4)
    found = certify_products(layer.weights, plan, 1e-2)
    assert found.scope.inputs == "float64"
    assert found.bound - before == pytest.approx(1e-4 * (1.0 + math.e), rel=1e-2)


def test_what_the_shift_lacks_is_counted(monkeypatch):
    layer = compiled("abs(x)*exp(y)+x/3")
    plan, shift = layer.prove.args[1], layer.prove.args[1].lift
    monkeypatch.setattr(type(plan), "lift", property(lambda self: shift - Fraction(1, 1000)))
    assert certify_products(layer.weights, plan, 1.0).bound >= layer.bound + 0.999e-3


def test_another_tilt_is_counted():
    layer = compiled("abs(x)*exp(y)+x/3")
    other = replace(layer.weights, tilt=layer.weights.tilt + np.array([[0.0, 1e-3]]))
    assert certify_products(other, layer.prove.args[1], layer.error).bound >= layer.bound + 0.999e-3


# ---------------------------------------------------------------------- and of the checker's


def checked(sizes, errors, **known):
    names = ("shift", "shift_off", "affine_size", "affine_off")
    rest = {"dtype": "float64"} | dict.fromkeys(names, 0.0) | known
    return checker_products.multiplied(sizes, errors, checker_products.Stored(factors=[], **rest))


@pytest.mark.parametrize(
    ("sizes", "errors", "more", "least"),
    [
        ([3.0, 5.0], [0.1, 0.0], {}, 0.5),
        ([3.0, 5.0], [0.1, 0.2], {}, 3.1 * 5.2 - 15.0),
        ([3.0, 5.0, 2.0], [0.1, 0.2, 0.3], {}, 3.1 * 5.2 * 2.3 - 30.0),
        ([3e10, 5.0], [0.0, 0.0], {}, (5.0 + 7.0) * 15e10 * 2.0**-53),
        ([3.0, 5.0], [0.0, 0.0], {"shift": -1e10}, (5.0 + 7.0) * 1e10 * 2.0**-53),
        ([3.0, 5.0], [0.0, 0.0], {"shift_off": 0.1}, 0.1),
        ([3.0, 5.0], [0.0, 0.0], {"affine_off": 0.1}, 0.1),
        ([3.0, 5.0], [0.0, 0.0], {"dtype": "float32", "shift": -7.0, "affine_size": 2.0}, 24.0 * 2.0**-24),
    ],
)
def test_every_term_of_the_checker_is_counted_times_the_others(sizes, errors, more, least):
    found = checked(sizes, errors, **more)
    assert least <= found <= 1.001 * least + 1e-13
    assert checked(sizes[::-1], errors[::-1], **more) == pytest.approx(found, rel=1e-9)


def test_the_checker_refuses_products_that_leave_float64():
    with pytest.raises(NotProved, match="bounded"):
        checked([1e200, 1e200, 1e-200], [0.0] * 3)


def test_the_checker_counts_what_rounding_does_to_z(monkeypatch):
    tensors, record = made(compiled("abs(x)*exp(y)+x/3"))
    moves, sizes = {"float64": [], "real": []}, (1.0, math.e)
    for inputs, found in moves.items():
        record["certificate"]["scope"] = {"over": "box", "inputs": inputs}
        monkeypatch.setattr(CheckedTarget, "change", lambda self, d, found=found: found.append(d) or 0.0)
        before = check(tensors, record).bound
    assert len(moves["real"]) == 2 and all(a < b for a, b in zip(*moves.values(), strict=True))
    for chosen in (0, 1):
        calls = itertools.count()
        monkeypatch.setattr(CheckedTarget, "change", lambda self, d, calls=calls, chosen=chosen: 1e-4 * (next(calls) == chosen))
        assert check(tensors, record).bound - before == pytest.approx(1e-4 * sizes[1 - chosen], rel=1e-2)
