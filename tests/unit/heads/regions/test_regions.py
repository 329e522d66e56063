"""Heads on regions: exact arrangements, proofs against sampling, hostile files, gaps, and every term counts."""

import contextlib
import copy
import functools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker import check
from maxaffine.checker import regions as checker
from maxaffine.checker.reader import Layer
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.scope import Scope
from maxaffine.expression.expression import Expression
from maxaffine.heads.regions import prove as certify
from maxaffine.heads.regions.prove import plane_slopes
from maxaffine.layer.file import from_tensors
from maxaffine.runtime import chooser
from maxaffine.structure.planes import NotRegions, arrangement
from maxaffine.target.target import Target


def box(names="xy", side=1.0):
    return ma.Box(**dict.fromkeys(names, (-side, side)))


def arranged(text, names="xy"):
    return arrangement(Expression.parse(text, tuple(names)), box(names))


@functools.cache
def compiled(text, error=1e-3, dtype="float64", names="xy", gap=None):
    return ma.compile(text, box(names), error=error, dtype=dtype, method="regions", gap=gap)


def near_planes(layer, count=4000, seed=0):
    """Points of the box, most of them within a few widths of a switch."""
    rng = np.random.default_rng(seed)
    points = [layer.target.box.sample(count, rng), layer.target.box.corners()]
    for plane, lam in zip(arrangement(layer.target.expression, layer.target.box).planes, layer.plan["steepness"], strict=True):
        a, c = np.array([float(v) for v in plane[:-1]]), float(plane[-1])
        x = layer.target.box.sample(count, rng)
        x -= np.outer((x @ a + c) / (a @ a), a)
        points.append(x + np.outer(rng.normal(size=count) * rng.choice([0.0, 1.0, 5.0], count) / lam, a / (a @ a)))
    return layer.target.box.clip(np.concatenate(points))


def error_of(layer, x, runtime="two-level"):
    return float(np.abs(chooser.evaluate(layer.weights, x, runtime) - layer.target.values(x)).max())


# ---------------------------------------------------------------------- arrangements


def test_planes_are_shared_and_regions_complete():
    found = arranged("abs(x - y)*x + max(2*x, 2*y) + abs(x + 0.5)")
    assert found.planes == ((Fraction(1), Fraction(-1), Fraction(0)), (Fraction(1), Fraction(0), Fraction(1, 2)))
    assert sorted(found.regions) == [(-1, -1), (-1, 1), (1, -1), (1, 1)]
    assert [(one.plane, one.ratio) for one in found.crossings] == [(0, 1), (0, 2), (1, 1)]


def test_regions_that_are_empty_are_left_out():
    assert sorted(arranged("abs(x - 0.5) + abs(x + 0.5)*y").regions) == [(-1, -1), (-1, 1), (1, 1)]


def test_small_regions_are_not_missed():
    found = arranged("abs(x + y - 1.999) + abs(x)*y")  # a corner of area 5e-7
    assert (1, 1) in found.regions and len(found.regions) == 3


def test_branches_are_the_target_on_their_region():
    rng = np.random.default_rng(1)
    text = "abs(x*y)*exp(x) + max(x + y - 0.3, 0)**2 - min(x, 2*y)*y"
    found, expression = arranged(text), Expression.parse(text, ("x", "y"))
    x = rng.uniform(-1, 1, (3000, 2))
    signs = np.stack([np.sign(x @ [float(c) for c in p[:-1]] + float(p[-1])) for p in found.planes], axis=1).astype(int)
    for row in {tuple(s) for s in signs}:
        assert row in found.regions
        here = x[(signs == row).all(axis=1)]
        np.testing.assert_allclose(found.branch(row).evaluate(here), expression.evaluate(here), atol=1e-13)


@pytest.mark.parametrize("text", ["abs(x*x - y)", "floor(x) + y", "sin(x)*y", "max(sin(x), y)", "atan2(y, x)"])
def test_other_switches_are_refused(text):
    with pytest.raises(NotRegions):
        arranged(text)


@pytest.mark.parametrize(
    "text", ["abs(x+2*y-0.3)*cos(x)", "exp(abs(x))*abs(y)", "max(x, y)*max(x, y)*sin(y)", "min(abs(x)+y, abs(x))*x"]
)
def test_slopes_bound_the_difference_of_branches(text):
    found = arranged(text)
    slopes, x = plane_slopes(found, box()), np.random.default_rng(2).uniform(-1, 1, (4000, 2))
    h = [np.abs(x @ [float(c) for c in p[:-1]] + float(p[-1])) for p in found.planes]
    signs = [tuple(2 * i - 1 for i in row) for row in np.ndindex(*(2,) * len(found.planes))]
    values = {row: found.branch(row).evaluate(x)[:, 0] for row in signs}
    for i, steep in enumerate(slopes):
        worst = 0.0
        for row in signs:
            other = (*row[:i], -row[i], *row[i + 1 :])
            worst = max(worst, float((np.abs(values[row] - values[other]) / np.maximum(h[i], 1e-9)).max()))
        assert worst <= steep * (1 + 1e-6) <= 4.0 * worst


# ---------------------------------------------------------------------- proofs

KINDS = {
    "one plane": ("abs(x+2*y-0.3)*cos(x)", 1e-4, "float64", "xy", None),
    "two planes": ("abs(x*y) + abs(x)*sin(y)", 1e-3, "float64", "xy", None),
    "three variables": ("abs(x+y+z-0.2)*exp(-x**2)", 1e-2, "float64", "xyz", None),
    "float32": ("max(x+y-0.3, 0)*sin(3*y)", 1e-2, "float32", "xy", None),
    "a jump": ("sign(x-0.3*y)*(1+y**2) + abs(y)", 1e-4, "float64", "xy", 1e-5),
}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_seen_above_the_bound(kind):
    layer = compiled(*KINDS[kind])
    assert layer.certificate.kind == "proved" and layer.bound <= layer.error
    x = near_planes(layer)
    if KINDS[kind][-1] is not None:
        x = x[np.abs(x[:, 0] - 0.3 * x[:, 1]) >= KINDS[kind][-1] * math.hypot(1, 0.3)]
    assert error_of(layer, x) <= layer.bound
    if layer.dtype == "float64":
        assert error_of(layer, x, "dense") <= layer.certificate_for("dense").bound
    tensors, record = layer._record()
    assert check(tensors, record).passed


def test_few_tokens_suffice():
    assert compiled("abs(x+2*y-0.3)*cos(x)", 1e-6).tokens <= 24
    assert compiled("abs(x*y)", 1e-6).tokens <= 32
    assert compiled("abs(x+y+z-0.2)*exp(-x**2)", 1e-2, names="xyz").tokens <= 20


def test_jumps_need_a_gap_and_the_scope_says_so():
    with pytest.raises(Refused, match="gap"):
        compiled("sign(x-0.3*y)*(1+y**2)", 1e-3)
    layer = compiled("sign(x-0.3*y)*(1+y**2)", 1e-3, gap=1e-4)
    assert layer.certificate.scope == Scope(gap=1e-4, measure="distance", jumps=1)
    # just outside the gap the bound holds; inside nothing is claimed, and nothing could be
    y = np.linspace(-1, 1, 401)
    for shift, inside in ((1.0001e-4, False), (1e-8, True)):
        x = np.stack([0.3 * y + shift * math.hypot(1, 0.3), y], axis=1)
        assert (error_of(layer, x) > layer.bound) == inside


@pytest.mark.parametrize("kind", ["one plane", "two planes", "three variables"])
def test_perturbed_layers_stay_below_what_is_proved_of_them(kind):
    layer = compiled(*KINDS[kind])
    rng = np.random.default_rng(4)
    tensors, record = layer._record()
    x = near_planes(layer, 1500)
    for size in (1e-6, 1e-3, 0.1):
        for name in ("group.0.values", "group.0.value_slopes"):
            moved = {key: np.array(tensor) for key, tensor in tensors.items()}
            moved[name] = moved[name] + size * rng.normal(size=moved[name].shape)
            changed = from_tensors(moved, record["layer"])
            away = float(np.abs(chooser.evaluate(changed, x) - layer.target.values(x)).max())
            try:
                verdict = check(moved, record)
            except BadInput:
                continue
            assert verdict.bound is None or away <= verdict.bound


EDITS = {
    "a smaller steepness": lambda t, r: t.update({"group.0.sites.slopes": t["group.0.sites.slopes"] / 3}),
    "a shifted plane": lambda t, r: t["group.0.sites.offsets"].__iadd__(np.array([-1.0, 1.0]) * 0.01 * r["plan"]["steepness"][0]),
    "swapped regions": lambda t, r: r["plan"]["signs"].reverse(),
    "a region missing": lambda t, r: r["plan"]["signs"].pop(),
    "a region twice": lambda t, r: r["plan"]["signs"].__setitem__(0, r["plan"]["signs"][1]),
    "a steepness that is no number": lambda t, r: r["plan"]["steepness"].__setitem__(0, float("nan")),
    "keys of one region": lambda t, r: t["group.0.keys.0.offsets"].__setitem__(0, t["group.0.keys.0.offsets"][0] + 0.1),
    "a radius": lambda t, r: t["group.0.radii"].__imul__(0.9),
    "an origin": lambda t, r: t["group.0.origins"].__iadd__(0.1),
    "another target": lambda t, r: r["target"].__setitem__("text", "abs(x+2*y-0.31)*cos(x)"),
    "another scope": lambda t, r: r["certificate"].__setitem__("scope", {"over": "integral"}),
}


@pytest.mark.parametrize("edit", EDITS)
def test_edited_files_are_refused(edit):
    tensors, record = compiled(*KINDS["one plane"])._record()
    tensors, record = {name: np.array(tensor) for name, tensor in tensors.items()}, copy.deepcopy(record)
    EDITS[edit](tensors, record)
    with contextlib.suppress(BadInput):
        assert not check(tensors, record).passed


def test_a_smaller_gap_than_was_proved_is_refused():
    tensors, record = compiled(*KINDS["a jump"])._record()
    record = copy.deepcopy(record)
    record["plan"]["gap"] = 1e-7
    assert not check(tensors, record).passed
    record["certificate"]["scope"]["gap"] = 1e-7
    assert not check(tensors, record).passed


# ---------------------------------------------------------------------- every term counts


def blunt():
    """Scores a hundred times less steep: the kink is rounded off, and the bound must say so."""
    layer = compiled(*KINDS["one plane"])
    from maxaffine.heads.regions import search

    found = {}
    original = search.certify_regions

    def keep(made, plan, error, slopes, runtime="arrays"):
        found["plan"], found["slopes"] = plan, slopes
        return original(made, plan, error, slopes, runtime)

    search.certify_regions = keep
    try:
        ma.compile(KINDS["one plane"][0], box(), error=1e-4, method="regions")
    finally:
        search.certify_regions = original
    plan = replace(found["plan"], steepness=(found["plan"].steepness[0] / 128.0,))
    from maxaffine.heads.regions.plan import build_regions

    made = build_regions(plan, layer.target, "float64")
    slopes = certify.plane_slopes(plan.arrangement, layer.target.box)
    a = np.array([1.0, 2.0])
    x = layer.target.box.sample(3000, np.random.default_rng(0))
    x = layer.target.box.clip(x - np.outer((x @ a - 0.3) / 5.0, a))
    return float(np.abs(chooser.evaluate(made, x) - layer.target.values(x)).max()), made, plan, slopes


def test_the_blend_is_counted():
    away, made, plan, slopes = blunt()
    assert 3e-4 < away <= certify.certify_regions(made, plan, 1e-4, slopes).bound


def test_the_checker_counts_the_blend():
    layer = compiled(*KINDS["one plane"])
    tensors, record = layer._record()
    tensors, record = {name: np.array(t) for name, t in tensors.items()}, copy.deepcopy(record)
    for name in ("group.0.sites.slopes", "group.0.sites.offsets"):
        tensors[name] /= 128.0
    record["plan"]["steepness"] = [s / 128.0 for s in record["plan"]["steepness"]]
    changed = from_tensors(tensors, record["layer"])
    x = near_planes(layer, 2000)
    away = float(np.abs(chooser.evaluate(changed, x) - layer.target.values(x)).max())
    target = Target.from_json(record["target"])
    assert away <= checker.check_regions(Layer.read(tensors, record["layer"], target), record, target, 1e-4).bound


def test_the_stored_scores_count():
    layer = compiled(*KINDS["one plane"])
    tensors, record = layer._record()
    tensors = {name: np.array(t) for name, t in tensors.items()}
    tensors["group.0.sites.offsets"] += np.array([-1.0, 1.0]) * 0.01 * record["plan"]["steepness"][0]
    changed = from_tensors(tensors, record["layer"])
    x = near_planes(layer, 2000)
    away = float(np.abs(chooser.evaluate(changed, x) - layer.target.values(x)).max())
    target = Target.from_json(record["target"])
    assert 1e-3 < away <= checker.check_regions(Layer.read(tensors, record["layer"], target), record, target, 1e-4).bound
