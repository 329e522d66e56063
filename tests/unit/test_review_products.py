"""Products of clusters under attack: numbers that leave their formats, layers that are not their plan's, forged files."""

import functools
import json
from dataclasses import replace

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.certify.checker import _scored, check
from maxaffine.certify.products import certify_products
from maxaffine.core.errors import Refused
from maxaffine.layer.file import from_tensors
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
    from maxaffine.layer.build_products import build_products

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
    moved = replace(layer.layer, centre=layer.layer.centre + 1e-6)
    with pytest.raises(Refused, match="centre"):
        certify_products(moved, *layer.prove.args[1:])
