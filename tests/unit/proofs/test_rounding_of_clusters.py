"""Every term of the rounding of clusters is needed: layers whose error is made of that term alone."""

import flint
import numpy as np
import pytest

from maxaffine.core import balls
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.proofs.combine import output_rounding
from maxaffine.proofs.exact_layer import exact_value
from maxaffine.proofs.two_level import GroupErrors
from maxaffine.runtime import two_level
from maxaffine.runtime.chooser import evaluate

U = 2.0**-53


def layer_of(clusters, site_slopes, site_offsets, dtype="float64", low=-1.0, high=1.0, centre=0.0):
    """Clusters of one variable, in z = x - centre."""
    slopes, offsets = np.array(site_slopes, dtype=float)[:, None], np.array(site_offsets, dtype=float)
    group = ClusterGroup(np.eye(1), slopes, offsets, tuple(clusters))
    return GroupedLayer(np.array([centre]), (group,), 0.0, np.array([low]), np.array([high]), ((1, 1),), dtype)


def cluster(slopes, offsets, values, lean=None, radius=1.0):
    keys = AxisKeys(np.array(slopes, dtype=float), np.array(offsets, dtype=float))
    lean = np.zeros(len(values)) if lean is None else np.array(lean, dtype=float)
    return Cluster(np.zeros(1), np.array([radius]), (keys,), np.array(values, dtype=float)[:, None], lean[:, None, None])


def worst(layer, x, between=(0.0,)):
    """max |computed - exact| over x and over real numbers that are rounded to them: x (1 + s u) for s of `between`."""
    error = 0.0
    with balls.precision(240):
        for value, got in zip(x, evaluate(layer, x[:, None])[:, 0, 0], strict=True):
            for s in between:
                real = flint.arb(float(value)) * (1 + flint.arb(s) * flint.arb(U))
                (ball,) = exact_value(layer, [real])
                error = max(error, abs(float((ball - flint.arb(float(got))).mid())))
    return error


def bound_of(layer, blend, size):
    return GroupErrors.of(layer, layer.groups[0]).blended(blend, size) + output_rounding(layer, size)


def near(place, width, count=200):
    return place + width * np.random.default_rng(0).uniform(-1, 1, count)


def test_logits_of_single_keys_count_as_errors_of_scores():
    """Two clusters of one steep key each in float32: near their tie the masses are off by u32 times the logits."""
    layer = layer_of([cluster([9e4], [-27001.3], [1.0]), cluster([-9e4], [27001.1], [-1.0])], [0, 0], [0, 0], "float32")
    error = worst(layer, near(0.3, 2e-5))
    assert 1e-4 < error <= bound_of(layer, 1.0, 1.0) < 1.0


def test_logits_inside_a_cluster_count_as_errors_of_its_head():
    layer = layer_of([cluster([9e4, -9e4], [-27001.3, 27001.1], [1.0, -1.0])], [0], [0], "float32")
    error = worst(layer, near(0.3, 2e-5))
    assert 1e-4 < error <= bound_of(layer, 0.0, 1.0) < 10.0


def test_real_numbers_that_are_rounded_move_the_scores():
    """Far from the origin x is rounded by u |x|, which is much in units of the box."""
    pair = [cluster([0], [0], [1.0]), cluster([0], [0], [-1.0])]
    layer = layer_of(pair, [1e6, -1e6], [0, 0], low=1e6, high=1e6 + 2, centre=1e6 + 1)
    error = worst(layer, near(1e6 + 1, 1e-6), (-0.49, 0.0, 0.49))
    assert 1e-5 < error <= bound_of(layer, 1.0, 1.0) < 1e-2


def test_real_numbers_that_are_rounded_move_affine_values():
    layer = layer_of([cluster([0], [0], [0.0], [1e3], 1e-3)], [0], [0], low=1e6, high=1e6 + 2, centre=1e6 + 1)
    x = np.array([1e6 + 0.5, 1e6 + 1.25, 1e6 + 1.7])
    error = worst(layer, x, (-0.49, 0.0, 0.49))
    assert 2e-5 < error <= bound_of(layer, 0.0, 1e6) < 1e-2


@pytest.mark.parametrize("count", [300, 1500])
def test_sums_over_clusters_are_counted_term_by_term(count):
    """Equal masses and equal values: every addition errs to the same side."""
    layer = layer_of([cluster([0], [0], [0.1])] * count, np.zeros(count), np.zeros(count))
    error = worst(layer, np.array([0.0]))
    assert 0.1 * 40.0 * U < error <= bound_of(layer, 0.0, 0.1)


def test_a_cluster_that_is_left_out_is_counted():
    """Masses below SKIP are left out: values 1e36 times the others' are seen again."""
    gap, large = 100.0, 1e38
    layer = layer_of([cluster([0], [0], [0.0]), cluster([0], [0], [large])], [0, 0], [0, -gap])
    error = worst(layer, np.array([0.25]))
    assert two_level.SKIP * large < error * 1e9 and 0.5 * large * np.exp(-gap) < error
    assert error <= GroupErrors.of(layer, layer.groups[0]).blended(2 * large * np.exp(-gap), 1e-5)


def test_answers_are_rounded_to_their_dtype():
    layer = layer_of([cluster([0], [0], [1.0], [0.1])], [0], [0], "float32")
    error = worst(layer, near(0.0, 1.0))
    assert 4e-8 < error <= bound_of(layer, 0.0, 1.1) < 2e-7
