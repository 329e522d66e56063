"""Spectral layers against independent arithmetic: 200-bit balls for the layer, the target and the weights."""

import functools

import flint
import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.balls import precision
from maxaffine.heads.spectral import prove as certify
from maxaffine.proofs.normalisers import normaliser_range
from maxaffine.runtime import chooser


def box(names, low, high):
    return ma.Box(**dict.fromkeys(names, (low, high)))


LAYERS = {
    "sum head": ("sin(x) + cos(y)", box("xy", -3, 3), 1e-9, "float64"),
    "product": ("sin(x)*cos(y)", box("xy", -1, 1), 1e-8, "float64"),
    "factored": ("exp(-x**2-y**2-z**2)", box("xyz", -1, 1), 1e-5, "float64"),
    "gaussian keys": ("1/(1+25*x**2)", box("x", -1, 1), 1e-6, "float64"),
    "float32": ("sin(x) + cos(y)", box("xy", -3, 3), 1e-3, "float32"),
    "bfloat16": ("sin(x) + cos(y)", box("xy", -3, 3), 5e-2, "bfloat16"),
    "far away": ("sin(3*(x-1000)) + (y+50)**2", ma.Box(x=(1000, 1001), y=(-51, -49)), 1e-8, "float64"),
}


@functools.cache
def compiled(name):
    text, on, error, dtype = LAYERS[name]
    return ma.compile(text, on, error=error, dtype=dtype, method="spectral")


def exact(number):
    return flint.arb(float(number))


def ball_value(layer, x, literal=False):
    """The layer's function at a float64 point, nothing rounded but the stored numbers; `literal` with bonus and leak."""
    groups = []
    for group in layer.groups:
        z = [sum((exact(m) * (exact(v) - exact(c)) for m, v, c in zip(row, x, layer.centre, strict=True)), flint.arb(0))
             for row in group.matrix]  # fmt: skip
        top = bottom = flint.arb(0)
        for j in np.ndindex(*group.shape):
            logit = sum(
                (exact(a.slopes[i]) * t + exact(a.offsets[i]) for a, i, t in zip(group.axes, j, z, strict=True)), flint.arb(0)
            )
            if group.values is not None:
                value = exact(group.values[(*j, 0)])
                if group.slopes is not None:
                    value += sum((exact(g) * t for g, t in zip(group.slopes[(*j, 0)], z, strict=True)), flint.arb(0))
            else:
                value = flint.arb(0)
                for r in range(group.factors[0].shape[1]):
                    piece = flint.arb(1)
                    for factor, i in zip(group.factors, j, strict=True):
                        piece *= exact(factor[i, r])
                    value += piece
            weight = logit.exp()
            top, bottom = top + weight * value, bottom + weight
        groups.append((top, bottom))
    total = flint.arb(0)
    if layer.tilt is not None:
        moved = [exact(v) - exact(c) for v, c in zip(x, layer.centre, strict=True)]
        total += sum((exact(t) * d for t, d in zip(layer.tilt[0], moved, strict=True)), flint.arb(0))
    for g, (top, bottom) in enumerate(groups):
        if not literal:
            total += top / bottom
            continue
        bonus = exact(layer.bonus).exp()
        others = [pair for o, pair in enumerate(groups) if o != g]
        total += (bonus * top + sum((t for t, _ in others), flint.arb(0))) / (
            bonus * bottom + sum((b for _, b in others), flint.arb(0))
        )
    return total


def target_value(layer, x):
    return layer.target.expression.enclose_ball([flint.acb(exact(v)) for v in x])[0].real


@pytest.mark.parametrize("name", LAYERS)
def test_the_stored_function_is_within_the_approximation_that_was_proved(name):
    layer = compiled(name)
    parts = layer.certificate.parts
    rng = np.random.default_rng(0)
    points = np.concatenate([layer.box.sample(6 if layer.tokens < 400 else 2, rng), layer.box.corners()[:2]])
    with precision(200):
        for x in points:
            f = target_value(layer, x)
            plain, literal = ball_value(layer.weights, x), ball_value(layer.weights, x, literal=True)
            # at float64 points the stored matrix stands between z and its ideal: that is rounding
            allowed = parts["approximation"] + parts["target_rounding"] + parts["rounding"]
            assert float(abs(plain - f).upper()) <= allowed
            assert float(abs(literal - plain).upper()) <= parts["leakage"] + 1e-30
            for runtime in chooser.available(layer.weights):
                out = exact(float(chooser.evaluate(layer.weights, x[None], runtime)[0, 0, 0]))
                assert float(abs(out - f).lower()) <= layer.bound
                if layer.dtype == "float64":  # queries are not rounded again: rounding alone
                    whole = literal if runtime == "dense" else plain
                    assert float(abs(out - whole).upper()) <= parts["rounding"]


@pytest.mark.parametrize("name", ["sum head", "factored", "far away"])
def test_normalisers_lie_in_their_range(name):
    layer = compiled(name).weights
    rng = np.random.default_rng(1)
    for group in layer.groups:
        low, high = normaliser_range(layer, group)
        for z in [*rng.uniform(-1, 1, (20, len(group.axes))), np.ones(len(group.axes)), -np.ones(len(group.axes))]:
            total = sum(
                np.log(np.exp(a.slopes.astype(float) * t + a.offsets.astype(float)).sum())
                for a, t in zip(group.axes, z, strict=True)
            )
            assert low <= total <= high


def test_computed_coordinates_are_within_their_stated_error():
    layer = compiled("far away")
    with precision(200):
        for x in layer.box.sample(50, np.random.default_rng(2)):
            for group, made in zip(layer.weights.groups, layer.spectral.groups, strict=True):
                allowed = certify.query_error(layer.weights, group, made)
                z = (x - layer.weights.centre) @ group.matrix.T
                for e, w in enumerate(made.group.directions):
                    t = sum((flint.arb(flint.fmpq(c.numerator, c.denominator)) * (exact(v) - exact(m))
                             for c, v, m in zip(w, x, layer.weights.centre, strict=True)), flint.arb(0))  # fmt: skip
                    assert float(abs(exact(z[e]) - t / exact(made.half[e])).upper()) <= allowed[e]
