"""The terms of the proofs of spectral heads, each with a case that is false without it.

Where a constant is sharp this is an extremal case; elsewhere it is the written formula, or a layer whose error a proof without
the term would hide.
"""

import copy
import functools
import math
import re
from dataclasses import replace

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker import spectral as checker
from maxaffine.checker.head import Head as CheckedHead
from maxaffine.checker.local_error import strip as checked_strip
from maxaffine.checker.reader import Axis, Layer
from maxaffine.core import balls
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT32
from maxaffine.expression.expression import Expression
from maxaffine.heads.spectral import prove as certify
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.spectral_keys import bernstein
from maxaffine.proofs import head_bounds, local_error, product_head, sources
from maxaffine.runtime import chooser, grouped
from maxaffine.target.target import Target

NOTHING = AxisKeys(np.zeros(1), np.zeros(1))


def head(text, axes, values, deltas=None):
    E = len(axes)
    source = sources.FromExpression(
        Expression.parse(text, tuple(f"t{e + 1}" for e in range(E))), Interval.point(np.zeros(E)), np.ones(E)
    )
    shape = tuple(len(a) for a in axes)
    return product_head.Head(source, tuple(axes), deltas or (None,) * E, np.asarray(values, dtype=float).reshape(*shape, -1))


def test_the_constant_is_not_below_what_chebyshev_polynomials_attain():
    for m in (1, 2, 5, 12):
        n = local_error.nodes(m, 3)
        nodes = np.cos(np.pi * (2 * np.arange(n) + 1) / (2 * n))
        assert local_error.constant(m, n) * np.abs(np.cos(m * np.arccos(nodes))).max() >= 1.0


def test_the_remainder_is_the_written_one():
    with balls.precision(64):
        m, part = head("2", [NOTHING], [0.5]).degree(-np.ones(1), np.ones(1), 0, 1e-6)
    written = [4 * (2 + 0.5) * r**-m / (r - 1) for r in local_error.RADII]
    assert min(abs(part / one - 1) for one in written) < 1e-9  # that of one of the ellipses


def test_the_remainder_counts_the_head_on_the_ellipse():
    keys = bernstein(6, 2.0, "float64").keys
    with balls.precision(64):
        m, part = head("0*t1", [keys], np.full(6, 3.0), (2.0,)).degree(-np.ones(1), np.ones(1), 0, 1e-3)
    sizes = [(r, 2.0 * (r - 1 / r) / 4) for r in local_error.RADII]
    sizes = [(r, 3.0 * math.cos(angle) ** -5) for r, angle in sizes if angle < math.pi / 2]
    assert min(abs(part / (4 * size * r**-m / (r - 1)) - 1) for r, size in sizes) < 1e-6


def lebesgue(m):
    angles = np.pi * (2 * np.arange(m + 1) + 1) / (2 * (m + 1))
    x = np.cos(np.linspace(0, np.pi, 1501))
    terms = (-1.0) ** np.arange(m + 1) * np.sin(angles) / (x[:, None] - np.cos(angles) + 1e-15)
    return float((np.abs(terms).sum(axis=1) / np.abs(terms.sum(axis=1))).max())


def test_later_axes_carry_lebesgue_constants(monkeypatch):
    chosen, plain = [], product_head.Head.degree

    def spy(*arguments):
        chosen.append(plain(*arguments))
        return chosen[-1]

    monkeypatch.setattr(product_head.Head, "degree", spy)
    with balls.precision(64):
        pair, all_of_it = head("exp(t1+t2)", [NOTHING] * 2, [0.0]), local_error.Effort(share=1.0)
        degrees, remainder = local_error._degrees(pair, -np.ones(2), np.ones(2), all_of_it, 1e-4)
    assert remainder >= chosen[0][1] + lebesgue(degrees[0]) * chosen[1][1]


def test_the_bound_covers_every_cell():
    for text, top in (("1/(1.005-t1)", 200.0), ("1/(1.005+t1)", 200.0), ("1/(0.001+t1**2)", 1000.0)):
        proof = local_error.prove(head(text, [NOTHING], [0.0]), top)
        assert proof.cells > 1 and proof.bound >= top * (1 - 1e-9)


def test_the_points_speak_of_the_difference():
    # f = g + T_m/10: the supremum is attained at the ends, where no point lies
    for m in (3, 5, 7, 9):
        power = np.polynomial.chebyshev.cheb2poly([0] * m + [1])
        text = " + ".join(f"({int(c)})*t1**{k}" for k, c in enumerate(power) if c)
        assert local_error.prove(head(f"1 + ({text})/10", [NOTHING], [1.0]), 1e-9).bound >= 0.1


def test_strips_hold_for_stored_keys():
    for dtype, count, delta, part in (("bfloat16", 5, 1.0, 0.8), ("float32", 8, 0.3, 0.9)):
        keys = bernstein(count, delta, dtype).keys
        height = part * math.pi / delta
        z = (np.linspace(-1, 1, 161)[:, None] + 1j * np.linspace(0, height, 12)).ravel()
        e = np.exp(np.multiply.outer(z, keys.slopes) + keys.offsets)
        true = float((np.abs(e).sum(axis=1) / np.abs(e.sum(axis=1))).max())
        assert head_bounds.strip_factor(keys, delta, 0.0, 1.0, height) >= true
        assert checked_strip(Axis(keys.slopes, keys.offsets), 0.0, 1.0, height) >= true


def test_the_second_moment_is_not_halved():
    keys = AxisKeys(np.array([-1.0, 1.0]), np.zeros(2))
    assert head_bounds.strip_factor(keys, None, 0.0, 0.0, 0.3) >= 1 / math.cos(0.3)
    assert checked_strip(Axis(keys.slopes, keys.offsets), 0.0, 0.0, 0.3) >= 1 / math.cos(0.3)


def test_strips_see_keys_that_underflow():
    keys = AxisKeys(np.array([0.0, 1500.0]), np.array([0.0, -800.0]))
    assert math.isinf(head_bounds.strip_factor(keys, None, 0.0, 1.0, 0.003))
    assert math.isinf(checked_strip(Axis(keys.slopes, keys.offsets), 0.0, 1.0, 0.003))


@functools.cache
def compiled(text, error, dtype, side=1.0):
    names = [name for name in "xyz" if re.search(rf"\b{name}\b", text)]
    return ma.compile(text, ma.Box(**dict.fromkeys(names, (-side, side))), error=error, dtype=dtype, method="spectral")


def exact(layer, x):
    """The layer's own function at x in extended precision, nothing rounded: stored keys, ideal queries."""
    out = np.zeros(len(x), dtype=np.longdouble)
    for group in layer.groups:
        z = (x.astype(np.longdouble) - layer.centre) @ group.matrix.T.astype(np.longdouble)
        g = group.dense_values()[..., 0].astype(np.longdouble)
        if group.slopes is not None:  # one tensor of values per query
            values = np.stack([g, *np.moveaxis(group.slopes[..., 0, :].astype(np.longdouble), -1, 0)], axis=-1)
        else:
            values = g[..., None]
        total = None
        for e, axis in enumerate(group.axes):
            scores = np.multiply.outer(z[:, e], axis.slopes.astype(np.longdouble)) + axis.offsets.astype(np.longdouble)
            w = np.exp(scores - scores.max(axis=1, keepdims=True))
            w /= w.sum(axis=1, keepdims=True)
            total = np.tensordot(w, values, axes=(1, 0)) if total is None else np.einsum("bn,bn...->b...", w, total)
        out += total[:, 0]
        if group.slopes is not None:
            out += (total[:, 1:] * z).sum(axis=1)
    return out


def test_rounding_covers_what_the_runtimes_lose():
    """float32, at queries that float32 holds: logits of several hundred, little else."""
    keys = bernstein(120, 5.6, "float32").keys
    values = np.where(np.arange(120) % 2, 1.0, -1.0).astype(np.float32)[:, None]
    layer = GroupedLayer(
        np.zeros(1), (Group(np.ones((1, 1)), (keys,), values),), 0.0, -np.ones(1), np.ones(1), ((1, 1),), "float32"
    )
    x = np.random.default_rng(0).uniform(-1, 1, 3000).astype(np.float32).astype(np.float64)[:, None]
    lost = max(
        float(np.abs(chooser.evaluate(layer, x, name)[:, 0, 0] - exact(layer, x)).max()) for name in ("factorised", "dense")
    )
    plain = AxisKeys(keys.slopes.astype(float), keys.offsets.astype(float))
    etas = head_bounds.etas_for((plain,), FLOAT32, 3)
    allowed = head_bounds.moments((plain,), values.astype(float), None, etas).rounding
    assert FLOAT32.unit < lost <= allowed + FLOAT32.unit


def test_the_certificate_covers_rounded_queries():
    """bfloat16: 2^-9 times the smaller of the layer's and the target's slope, as the certificate states it."""
    layer = compiled("sin(3*x)", 0.05, "bfloat16")
    x = np.linspace(-1, 1, 4001)[:, None]
    g = exact(layer.weights, x)
    steep = min(float(np.abs(np.diff(g)).max()) / (x[1, 0] - x[0, 0]), 3.0)
    found = certify.certify_spectral(layer.weights, layer.spectral, 0.05)
    assert found.parts["rounding"] >= 2.0**-9 * steep
    assert float(np.abs(layer(x) - np.sin(3 * x[:, 0])).max()) <= found.bound
    z = x[:, 0] * layer.weights.groups[0].matrix[0, 0]
    moved = np.abs(grouped.coordinates(layer.weights, layer.weights.groups[0], x)[:, 0].astype(float) - z).max()
    assert 2.0**-10 < moved <= certify.query_error(layer.weights, layer.weights.groups[0], layer.spectral.groups[0])[0]


def test_the_stored_matrix_is_what_counts():
    layer = compiled("sin(x) + cos(y)", 1e-4, "float64")
    group, made = layer.weights.groups[0], layer.spectral.groups[0]
    for i in range(2):
        matrix = np.array(group.matrix)
        matrix[0, i] += 1e-3  # also where the direction has no part in that variable
        assert certify.query_error(layer.weights, replace(group, matrix=matrix), made)[0] >= 1e-3 * (1 - 1e-9)


def test_the_leak_is_in_the_bound():
    layer = compiled("sin(x) + cos(y)", 1e-4, "float64")
    weak = replace(layer.weights, bonus=8.0)
    x = np.random.default_rng(2).uniform(-1, 1, (2000, 2))
    leaked = float(np.abs(grouped.evaluate_dense(weak, x) - grouped.evaluate(weak, x)).max())
    found = certify.certify_spectral(weak, layer.spectral, 1e-4)
    assert 1e-5 < leaked <= found.parts["leakage"] + found.parts["rounding"]
    away = float(np.abs(grouped.evaluate_dense(weak, x)[:, :, 0] - layer.target.values(x)[:, :, 0]).max())
    assert away <= found.bound
    assert math.isclose(certify.certify_spectral(weak, layer.spectral, 1e-4, "factorised").parts["leakage"], 0.0)


def test_products_grow_with_their_partners():
    """An error of one factor is multiplied by the sizes of the others, about e^4 here."""
    layer = compiled("exp(2*x+2*y*y+2*z*z)", 1e-2, "float64")
    group = layer.weights.groups[0]
    assert group.factors is not None
    moved = (np.array(group.factors[0]) * 1.01, *group.factors[1:])
    one = replace(layer.weights, groups=(Group(group.matrix, group.axes, None, moved),))
    corner = np.ones((1, 3))
    away = float(np.abs(chooser.evaluate(one, corner)[:, 0, 0] - layer.target.values(corner)[:, 0, 0]).max())
    assert 3.0 < away <= certify.certify_spectral(one, layer.spectral, 1e-2).bound


def stored(layer):
    tensors, record = layer._record()
    return {name: np.array(tensor) for name, tensor in tensors.items()}, copy.deepcopy(record)


def bound_of(tensors, record):
    target = Target.from_json(record["target"])
    return checker.check_spectral(Layer.read(tensors, record["layer"], target), record, target, float(record["error"])).bound


def test_the_checker_covers_every_cell():
    for text, top in (("1/(1.005-t1)", 200.0), ("1/(1.005+t1)", 200.0), ("1/(0.001+t1**2)", 1000.0)):
        made = head(text, [NOTHING], [0.0])
        one = CheckedHead(
            made.source.expression, made.source.middle, made.source.half, (Axis(np.zeros(1), np.zeros(1)),), made.values
        )
        assert one.supremum(top) >= top * (1 - 1e-9)


def test_the_checker_counts_the_leak():
    tensors, record = stored(compiled("sin(x) + cos(y)", 1e-4, "float64"))
    before = bound_of(tensors, record)
    record["layer"]["bonus"] = 8.0
    assert bound_of(tensors, record) > before + 1e-4


def test_the_checker_counts_rounding():
    layer = compiled("sin(3*x)", 0.05, "bfloat16")
    x = np.linspace(-1, 1, 4001)[:, None]
    g = exact(layer.weights, x)
    steep = min(float(np.abs(np.diff(g)).max()) / (x[1, 0] - x[0, 0]), 3.0)
    assert bound_of(*stored(layer)) >= float(np.abs(g - np.sin(3 * x[:, 0])).max()) + 2.0**-9 * steep


def test_the_checker_refuses_hidden_groups():
    tensors, record = stored(compiled("sin(3*x)", 0.05, "bfloat16"))
    for name, tensor in list(tensors.items()):
        if name.startswith("group.0."):
            tensors[name.replace("group.0.", "group.1.")] = tensor
    record["layer"]["directions"] = [1, 1]
    with pytest.raises(checker.NotProved):
        bound_of(tensors, record)
