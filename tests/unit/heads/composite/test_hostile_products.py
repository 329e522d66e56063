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
from maxaffine.checker import _scored, check
from maxaffine.checker import products as checker_products
from maxaffine.checker.axis_cluster import AxisParts as CheckedParts
from maxaffine.checker.axis_clusters import AxisCheck
from maxaffine.checker.products_stored import Stored, hints_of
from maxaffine.core.errors import Refused
from maxaffine.heads.axis.line import AxisTarget
from maxaffine.heads.axis.parts import AxisParts, HeadErrors
from maxaffine.heads.axis.prove import AxisProver, prover
from maxaffine.heads.composite import products_prove as products
from maxaffine.heads.composite.products_prove import certify_products
from maxaffine.layer.clusters import Cluster
from maxaffine.layer.file import from_tensors
from maxaffine.layer.keys import AxisKeys
from maxaffine.runtime import two_level

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
    program = two_level._program(two_level._Held(group, two_level.compute_dtype(layer.dtype)))
    with np.errstate(all="ignore"):
        return two_level.in_numpy(program, two_level.families(layer, group), layer.centre, x)[:, 0]


# ---------------------------------------------------------------------- numbers that leave their format


@pytest.mark.parametrize("radius", [1e-39, 1e-45, 1e-300])
def test_a_cluster_too_small_for_its_dtype_is_not_confirmed(radius):
    """A cluster of one constant token may have any radius, but in float32 its local coordinate is infinite far from it."""
    layer = compiled("max(x,0)*max(y,0)", dtype="float32")
    tensors, record = made(layer)
    constant = [row["affine"] for row in record["plan"]["factors"]].index(False)
    single = tensors["group.0.shapes"][:, constant] == 1
    assert single.any() and check(tensors, record).passed
    tensors["group.0.radii"][single, constant] = radius
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
    from maxaffine.heads.composite.products_build import build_products

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
    [("sites.slopes", 1e307), ("sites.offsets", 1e307), ("keys.1.slopes", 1e38), ("keys.1.offsets", 1e38), ("radii", 1e-39)],
)
def test_scores_must_be_numbers_of_their_format_throughout_the_box(name, number):
    tensors, record = made(compiled("max(x,0)*max(y,0)"))
    target = compiled("max(x,0)*max(y,0)").target
    assert _scored(tensors, target, "float32")
    tensors[f"group.0.{name}"].flat[-1] = number
    assert not _scored(tensors, target, "float32")
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
    zero = dict.fromkeys(("worst", "kinks", "leak", "far", "doubt", "eta", "rounding", "largest"), 0.0)
    rest = {"top": size, "count": 1, "cells": 1, "reach": np.ones(1), "edge": 0.0, "pace": 0.0}
    return AxisParts(**(zero | rest | known), size=size, heads=replace(QUIET, **(heads or {})))


def total(one, two, affine=0, off=0.0, shift=0.0, tiny=0.0):
    found = products._joined([one, two], affine, off, shift, tiny)
    return found.near + found.leak + found.rounding


@pytest.mark.parametrize(
    ("one", "two", "more", "least"),
    [
        (part(3.0, worst=0.1), part(5.0), {}, 0.5),
        (part(3.0, kinks=0.1), part(5.0, kinks=0.2), {}, 3.1 * 5.2 - 15.0),
        (part(3.0, worst=0.1, eta=0.01), part(5.0, eta=0.02), {}, 0.5 * math.exp(0.06)),
        (part(3.0, worst=0.1, far=0.05), part(5.0, far=0.1), {}, 0.5 / 0.85),
        (part(3.0, leak=0.1), part(5.0), {}, 0.5),
        (part(3.0, leak=0.1), part(5.0, leak=0.2), {}, 3.1 * 5.2 - 15.0),
        (part(3.0, leak=0.1), part(5.0, worst=0.2), {}, 0.1 * 5.2 + 3.0 * 0.2),
        (part(3.0, leak=0.1), part(5.0, {"lost": 0.2}), {}, 0.1 * 5.2 + 3.0 * 0.2),
        (part(3.0, leak=0.1, eta=0.1), part(5.0), {}, 0.5 * math.exp(0.1)),
        (part(3.0, leak=0.1), part(5.0, eta=0.1), {}, 0.5 * math.exp(0.2)),
        (part(3.0, leak=0.1, far=0.1), part(5.0, far=0.05), {}, 0.5 / 0.85),
        (part(3.0, {"lost": 0.1}), part(5.0), {}, 0.5),
        (part(3.0, {"lost": 0.1}), part(5.0, worst=0.2), {}, 3.0 * 0.2 + 0.1 * 5.2),
        (part(3.0, {"lost": 0.1, "eta": 0.2}), part(5.0), {}, 0.5 * math.exp(0.4)),
        (part(3.0, {"lost": 0.1}, eta=0.1), part(5.0), {}, 0.5 * math.exp(0.2)),
        (part(3.0, {"size": 4.0}), part(5.0, {"size": 6.0}), {"off": 0.01}, 0.24),
        (part(3.0, {"size": 4.0, "lean": 1.0, "reach": 2.0}), part(5.0, {"size": 6.0}), {"off": 0.01}, 0.48),
        (part(3.0, {"size": 4.0}, eta=0.1), part(5.0, {"size": 6.0}, far=0.1), {"off": 0.01}, 0.24 * math.exp(0.2) / 0.9),
        (part(3.0, {"size": 4.0}, leak=0.1), part(5.0, {"size": 6.0}), {"off": 0.01}, 0.5 + 0.01 * 4.1 * 6.0),
        (part(3.0, {"size": 4.0, "eta": 0.2}), part(5.0, {"size": 6.0}), {"off": 0.01}, 0.24 * math.exp(0.4)),
        (part(3.0, {"size": 4.0, "eta": 0.2, "keys": 10**9}), part(5.0, {"size": 6.0}), {}, 24e9 * 2.0**-53 * math.exp(0.4)),
        (part(3.0, {"size": 4.0}, leak=0.5), part(5.0, {"size": 6.0, "keys": 10**9}), {}, 2.5 + 27e9 * 2.0**-53),
        (part(3.0), part(5.0), {"off": 0.01, "shift": 7.0}, 0.07),
        (part(3.0, {"size": 4.0, "keys": 10**9}), part(5.0, {"size": 6.0}), {}, 24e9 * 2.0**-53),
        (part(3.0, {"size": 4.0}), part(5.0, {"size": 6.0, "keys": 10**9}), {}, 24e9 * 2.0**-53),
        (part(3.0), part(5.0, {"keys": 10**9}), {"shift": 7.0}, 7e9 * 2.0**-53),
        (part(3.0, {"largest": 4.0, "keys": 2}), part(5.0, {"largest": 6.0, "keys": 3}), {"tiny": 1e-3}, 0.144),
        (part(3.0, {"keys": 2}), part(5.0, {"keys": 3}), {"tiny": 1e-3, "shift": 7.0}, 0.042),
        (part(3.0, count=10**5), part(5.0, count=10**4), {}, 15e9 * 2.0**-53),
        (part(3.0, count=10**5, worst=1.0), part(5.0, count=10**4, eta=0.05), {}, 5.0 * math.exp(0.1) + 20e9 * 2.0**-53),
        (part(3.0, count=10**9), part(5.0), {"shift": 7.0}, 22e9 * 2.0**-53),
        (part(3.0, largest=1e20), part(5.0, largest=1e16, count=10), {}, 10.0 * 2.0**-120 * 1e36),
        (part(3.0, count=10), part(5.0), {"shift": 1e36}, 10.0 * 2.0**-120 * 1e36),
    ],
)
def test_every_term_of_a_product_is_counted_times_the_others(one, two, more, least):
    found = total(one, two, **more)
    assert least <= found <= 1.6 * least + 1e-13 * (1.0 + more.get("shift", 0.0))
    turned = total(two, one, **(more | ({"affine": 1 - more.get("affine", 0)})))
    assert turned == pytest.approx(found, rel=1e-9)


def test_the_local_coordinate_of_affine_values_is_rounded():
    one, two = part(3.0, {"lean": 1e9, "reach": 2.0}), part(5.0, {"size": 6.0})
    assert total(one, two) - total(one, two, affine=1) >= 0.99 * 4.0 * 2.0**-53 * 2e9 * 6.0


def test_products_whose_scores_are_lost_are_refused():
    for wrong in ({"eta": 0.6}, {"far": 0.13}):
        with pytest.raises(Refused, match="lost to rounding"):
            total(part(3.0, **wrong), part(5.0, **wrong))


def test_scores_of_several_coordinates_are_added_up():
    """Every product of a site and every top meets all sums behind it: errors of a score grow with the coordinates."""
    layer = compiled("abs(x)*exp(y)+x/3")
    plan = layer.prove.args[1]
    one = products.factor_layers(layer.weights, plan)[0]
    (group,) = one.groups
    target = AxisTarget(plan.found.factors[0].h, plan.found.factors[0].direction)
    offsets, last = np.full(len(group.clusters), 0.01), len(group.clusters) - 1
    errors = []
    for count in (1, 2, 3):
        made_prover = prover(one, group, target, plan.shares[0], None, count, None)
        with_slack = prover(one, group, target, plan.shares[0], None, count, offsets)
        errors.append(made_prover._score_error(last, 1.0))
        assert with_slack._score_error(last, 1.0) >= errors[-1] + 0.01
    site = abs(float(group.site_slopes[last, 0])) + abs(float(group.site_offsets[last]))
    assert site > 10.0
    keys = group.clusters[last].axes[0]
    top = float(np.abs(keys.offsets).max())
    assert min(np.diff(errors)) >= 2.0 * 2.0**-53 * (site + top)
    assert errors[0] >= 3.0 * 2.0**-53 * site


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


def test_factors_are_proved_beside_each_other(monkeypatch):
    """The proof of a factor knows how many scores are added to its own, and what the stored offsets lack."""
    layer = compiled("abs(x)*exp(y)+x/3")
    asked = []

    def seen(*args):
        asked.append(args[-2:])
        return prover(*args)

    lacks = [np.full(len(one.parts), 1e-12 * (i + 1)) for i, one in enumerate(layer.prove.args[1].factors)]
    monkeypatch.setattr(products, "prover", seen)
    monkeypatch.setattr(products, "_compare", lambda *args: products._Stored(lacks, 0.0))
    certify_products(layer.weights, layer.prove.args[1], layer.error)
    assert [count for count, _ in asked] == [2, 2] and all(a is b for (_, a), b in zip(asked, lacks, strict=True))


def test_what_the_shift_lacks_is_counted(monkeypatch):
    layer = compiled("abs(x)*exp(y)+x/3")
    plan, shift = layer.prove.args[1], layer.prove.args[1].shift
    monkeypatch.setattr(type(plan), "shift", property(lambda self: shift))
    monkeypatch.setattr(type(plan), "lift", property(lambda self: Fraction(shift) - Fraction(1, 1000)))
    assert certify_products(layer.weights, plan, 1.0).bound >= layer.bound + 0.999e-3


def test_another_tilt_is_counted():
    layer = compiled("abs(x)*exp(y)+x/3")
    other = replace(layer.weights, tilt=layer.weights.tilt + np.array([[0.0, 1e-3]]))
    assert certify_products(other, layer.prove.args[1], layer.error).bound >= layer.bound + 0.999e-3


def test_offsets_of_factors_have_room_for_what_their_sums_lack():
    layer = compiled("abs(sin(3*x))*abs(y-.3)", dtype="float32")
    plan = layer.prove.args[1]
    (group,) = layer.weights.groups
    offsets = group.site_offsets.copy()
    offsets[-1] = np.nextafter(offsets[-1], np.float32(np.inf))
    group = replace(group, site_offsets=offsets)
    factors = [one.groups[0] for one in products.factor_layers(layer.weights, plan)]
    found = products._compare(group, factors, plan.affine, plan.shift, 2.0**-23)
    exact = [one.site_offsets.astype(np.float64) for one in factors]
    lacks = np.abs(group.site_offsets.astype(np.float64).reshape(len(exact[0]), -1) - exact[0][:, None] - exact[1])
    assert lacks[-1, -1] > 0
    assert np.all(lacks <= found.offsets[0][:, None] + found.offsets[1])


@pytest.mark.parametrize("shift", [0.0, 7.0])
def test_stored_values_are_off_by_at_most_what_is_measured(shift):
    rng = np.random.default_rng(3)
    keys = AxisKeys(np.zeros(3), np.zeros(3))
    own = [
        Cluster(np.zeros(1), np.ones(1), (keys,), rng.normal(size=(3, 1)), lean)
        for lean in (rng.normal(size=(3, 1, 1)), None)
    ]
    values, slopes = np.multiply.outer(own[0].values[:, 0], own[1].values[:, 0]), np.zeros((3, 3, 1, 2))
    slopes[..., 0, 0] = np.multiply.outer(own[0].slopes[:, 0, 0], own[1].values[:, 0])
    for scale in (1e-3, 1e-9):
        for noise in (scale * rng.normal(size=(3, 3)), np.zeros((3, 3))):
            lean = slopes.copy()
            lean[..., 0, 0] *= 1.0 + (scale if not noise.any() else 0.0)
            stored = Cluster(np.zeros(2), np.ones(2), (keys, keys), (values + shift + noise)[..., None], lean)
            off = products._values_off(stored, own, 0, shift)
            away = np.abs(stored.values[..., 0] - values - shift) / (np.abs(values) + shift)
            assert max(away.max(), scale if not noise.any() else 0.0) <= off * (1 + 1e-6) <= 2.0 * (away.max() + scale) + 1e-15


# ---------------------------------------------------------------------- and of the checker's


def seen_part(size, **known):
    zero = dict.fromkeys(("near", "far", "mass", "eta", "lost", "head", "weight", "largest"), 0.0)
    return CheckedParts(**(zero | {"top": size, "keys": 1} | known), size=size)


def checked(one, two, affine=0, **known):
    names = ("off", "floor", "lean_floor", "shift", "shift_off", "tilt", "tilt_off")
    none = np.zeros(2)
    rest = dict.fromkeys(names, 0.0) | {"dtype": "float64", "counts": (1, 1)} | known
    stored = Stored(matrix=none, centre=none, low=none, high=none, clusters=[], slack=[], affine=affine, **rest)
    return checker_products._multiplied([one, two], stored)[0]


@pytest.mark.parametrize(
    ("one", "two", "more", "least"),
    [
        (seen_part(3.0, near=0.1), seen_part(5.0, near=0.2), {}, 3.1 * 5.2 - 15.0),
        (seen_part(3.0, near=0.1, eta=0.01), seen_part(5.0, eta=0.02), {}, 0.5 * math.exp(0.06)),
        (seen_part(3.0, near=0.1, mass=0.05), seen_part(5.0, mass=0.09), {}, 0.5 / 0.95 / 0.91),
        (seen_part(3.0, lost=0.1), seen_part(5.0, near=0.2), {}, 0.1 * 5.2 + 3.0 * 0.2),
        (seen_part(3.0, far=0.1), seen_part(5.0, far=0.2), {}, 3.1 * 5.2 - 15.0),
        (seen_part(3.0, far=0.1), seen_part(5.0, near=0.2), {}, 0.1 * 5.2 + 3.0 * 0.2),
        (seen_part(3.0, far=0.1), seen_part(5.0, lost=0.2), {}, 0.1 * 5.2 + 3.0 * 0.2),
        (seen_part(3.0, far=0.1, eta=0.1), seen_part(5.0, eta=0.05), {}, 0.5 * math.exp(0.2)),
        (seen_part(3.0, far=0.1, mass=0.05), seen_part(5.0, mass=0.09), {}, 0.5 / 0.95 / 0.91),
        (seen_part(3.0, weight=4.0), seen_part(5.0, weight=6.0), {"off": 0.01}, 0.24),
        (seen_part(3.0, weight=4.0, eta=0.1), seen_part(5.0, weight=6.0, mass=0.09), {"off": 0.01}, 0.24 * math.exp(0.2) / 0.91),
        (seen_part(3.0, weight=4.0, far=0.1), seen_part(5.0, weight=6.0), {"off": 0.01}, 0.5 + 0.01 * 4.1 * 6.0),
        (seen_part(3.0), seen_part(5.0), {"off": 0.01, "floor": 7.0}, 0.07),
        (seen_part(3.0, weight=4.0), seen_part(5.0), {"off": 0.01, "lean_floor": 7.0}, 0.56),
        (seen_part(3.0, weight=4.0, keys=10**9), seen_part(5.0, weight=6.0), {}, 1.1 * 24e9 * 2.0**-53),
        (seen_part(3.0, keys=10**9), seen_part(5.0), {"floor": 7.0}, 1.1 * 7e9 * 2.0**-53),
        (seen_part(3.0, largest=1e30, keys=2), seen_part(5.0, largest=1e14, keys=3), {}, 6e44 * 2.0**-147),
        (seen_part(3.0), seen_part(5.0), {"counts": (10**5, 10**4)}, 15e9 * 2.0**-53),
        (seen_part(3.0), seen_part(5.0), {"counts": (10**5, 10**4), "shift": -7.0}, 22e9 * 2.0**-53),
        (seen_part(3.0), seen_part(5.0), {"shift_off": 0.1}, 0.1),
        (seen_part(3.0), seen_part(5.0), {"dtype": "float32", "shift": -7.0, "tilt": 2.0}, 24.0 * 2.0**-24),
    ],
)
def test_every_term_of_the_checker_is_counted_times_the_others(one, two, more, least):
    found = checked(one, two, **more)
    assert least <= found <= 1.7 * least + 1e-13
    turned = checked(two, one, **(more | {"affine": 1, "counts": more.get("counts", (1, 1))[::-1]}))
    assert turned == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize("inputs", ["real", "float64"])
def test_the_checker_counts_what_rounding_does_to_z(inputs, monkeypatch):
    tensors, record = made(compiled("abs(x)*exp(y)+x/3"))
    record["certificate"]["scope"] = {"over": "box", "inputs": inputs}
    moves, sizes = [], (1.0, math.e)
    monkeypatch.setattr(AxisCheck, "_sway", lambda self, d: moves.append(d - self.drift) or 0.0)
    before = check(tensors, record).bound
    assert all((move > 0) == (inputs == "real") for move in moves) and len(moves) == 2
    for chosen in (0, 1):
        calls = itertools.count()
        monkeypatch.setattr(AxisCheck, "_sway", lambda self, d, calls=calls, chosen=chosen: 1e-4 * (next(calls) == chosen))
        assert check(tensors, record).bound - before == pytest.approx(1e-4 * sizes[1 - chosen], rel=1e-2)


def test_the_checker_adds_up_the_scores_of_several_coordinates():
    layer = compiled("abs(x)*exp(y)+x/3")
    tensors, record = made(layer)
    found = checker_products.product_of(layer.target.expression, layer.target.box)
    hints = hints_of(record["plan"]["factors"], found)
    stored = Stored.read(tensors, record["layer"], layer.target, found, hints)
    sites, locals_ = [], []
    for e, hint in enumerate(hints):
        one = stored.factor(e, found, hint.share)
        assert one.coordinates == 2 and one.slack == stored.slack[e]
        for k, cluster in enumerate(one.clusters):
            errors = []
            for count in (1, 2, 3):
                one.coordinates, one.slack = count, []
                errors.append(one._score_error(k, 1.0))
                one.slack = [0.01] * len(one.clusters)
                assert one._score_error(k, 1.0) >= errors[-1] + 0.01
            site, local = abs(cluster.A) + abs(cluster.b), float(np.abs(cluster.beta).max())
            assert min(np.diff(errors)) >= 0.999 * 2.0**-53 * (2.0 * site + local)
            assert errors[0] >= 3.0 * 2.0**-53 * site
            sites.append(site)
            locals_.append(local)
    assert max(sites) > 10.0 and max(locals_) > 0.5
