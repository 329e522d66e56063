"""Whatever the layer: `collapsed` and `windowed` stay within what certificates count for them."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import maxaffine as ma
from maxaffine.core.errors import Refused
from maxaffine.heads.lookup.grid import grid_coordinates, grid_keys
from maxaffine.heads.lookup.prove_grid import runtime_rounding
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.layer import Layer
from maxaffine.layer.spectral_keys import bernstein, gaussian
from maxaffine.proofs.rounding import rounding_of, window_leak
from maxaffine.runtime import collapsed, windowed
from maxaffine.runtime.collapse import collapse


@st.composite
def heads(draw):
    """One or two groups of one to three directions, keys of both families, moved a little; random values."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    D = draw(st.integers(1, 3))
    groups = []
    for _ in range(draw(st.integers(1, 2))):
        E = draw(st.integers(1, D))
        axes = []
        for _ in range(E):
            n = draw(st.integers(2, 11 if E == 1 else 6))
            if draw(st.booleans()):
                keys = bernstein(n, draw(st.floats(0.05, 4.0)), "float64").keys
            else:
                keys = gaussian(n + 4, 1, draw(st.floats(0.2, 1.5)), "float64").keys
            shake = draw(st.sampled_from([0.0, 1e-12, 1e-5, 1e-2]))
            moved = shake * rng.normal(size=(2, len(keys)))
            axes.append(AxisKeys(keys.slopes + moved[0], keys.offsets + moved[1]))
        matrix = rng.uniform(-1, 1, size=(E, D))
        matrix /= np.abs(matrix).sum(axis=1, keepdims=True) * (1 + 1e-12)
        shape = tuple(len(axis) for axis in axes)
        values = rng.normal(size=(*shape, 1)) * 10.0 ** draw(st.integers(-3, 3))
        slopes = rng.normal(size=(*shape, 1, E)) if draw(st.booleans()) else None
        groups.append(Group(matrix, tuple(axes), values, None, slopes))
    dtype = draw(st.sampled_from(["float64", "float32"]))
    return GroupedLayer(np.zeros(D), tuple(groups), 0.0, -np.ones(D), np.ones(D), ((D, 1),), dtype)


def exact(layer, x):
    """The stored layer in extended precision."""
    total = np.zeros(len(x), dtype=np.longdouble)
    for group in layer.products():
        z = x.astype(np.longdouble) @ group.matrix.T.astype(np.longdouble)
        for b, row in enumerate(z):
            held = group.values[..., 0].astype(np.longdouble)
            for e in range(len(row)) if group.slopes is not None else ():
                held = held + group.slopes[..., 0, e].astype(np.longdouble) * row[e]
            for e, axis in enumerate(group.axes):
                scores = axis.slopes.astype(np.longdouble) * row[e] + axis.offsets.astype(np.longdouble)
                weights = np.exp(scores - scores.max())
                held = np.tensordot(weights / weights.sum(), held, axes=(0, 0))
            total[b] += held
    return total


@settings(max_examples=40, deadline=None)
@given(heads(), st.sampled_from([1e-2, 1e-5, 1e-8]), st.integers(0, 2**32 - 1))
def test_a_collapsed_layer_is_within_its_proved_error(layer, tolerance, seed):
    try:
        made = collapse(layer, tolerance)
    except Refused:
        return
    rng = np.random.default_rng(seed)
    D = layer.dimension
    crowded = np.cos(rng.uniform(0, np.pi, (40, D)))
    x = np.concatenate([rng.uniform(-1, 1, size=(40, D)), np.sign(rng.normal(size=(8, D))), crowded])
    found = collapsed.in_numpy(collapsed.program(made, 1), x)[:, 0]
    # the queries' own rounding moves z by some units in the last place
    steep = 0.0
    for group in layer.products():
        size = float(np.abs(group.values).max()) + (0.0 if group.slopes is None else 4.0 * float(np.abs(group.slopes).max()))
        steep += sum(float(np.ptp(axis.slopes)) + 1.0 for axis in group.axes) * size
    assert float(np.abs(found - exact(layer, x)).max()) <= made.error + 2.0**-50 * steep
    assert made.error <= made.allowed


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3), st.floats(0.06, 800.0), st.sampled_from(["float64", "float32"]),
    st.integers(0, 2**32 - 1), st.floats(-50.0, 50.0),
)  # fmt: skip
def test_a_window_is_within_its_rounding_of_the_exact_layer(counts, rho, dtype, seed, shift):
    rng, D = np.random.default_rng(seed), len(counts)
    box = ma.Box([shift - 1.0] * D, [shift + 2.0] * D)
    values = rng.normal(size=(*counts, 1, 1))
    keys = grid_keys(tuple(counts))
    layer = Layer(grid_coordinates(box, tuple(counts)), keys, rho, values, box.low, box.high, ((D, 1),), dtype)
    assert windowed.reason_not(layer) is None
    x = np.clip(rng.uniform(box.low - 0.3, box.high + 0.3, size=(60, D)), box.low, box.high)
    found = windowed.evaluate(layer, x)[:, 0, 0].astype(float)
    slopes, offsets = (part.astype(np.longdouble) for part in layer.keys.listed())
    z = (x.astype(np.longdouble) - layer.coordinates.centre) @ layer.coordinates.matrix.T.astype(np.longdouble)
    scores = layer.sharpness * (z @ slopes.T + offsets)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    truth = (weights @ layer.values.reshape(-1).astype(np.longdouble)) / weights.sum(axis=1)
    rounding = rounding_of(layer, "windowed")
    spread = float(np.ptp(layer.values.astype(float)))
    allowed = math.expm1(2 * rounding.joint) * spread + runtime_rounding(layer, rounding) + window_leak(layer)
    assert float(np.abs(found - truth).max()) <= allowed
