"""Random programs that write into arrays, take views and count conditions: what is read of them computes what they compute.

MAXAFFINE_FUNCTIONS=10000 asks for so many of them (`make functions`).
"""

import operator
import os

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.expression.expression import Expression
from maxaffine.tracing.calling import Called
from maxaffine.tracing.record import Recorder, written
from maxaffine.tracing.trace import understood

COUNT = int(os.environ.get("MAXAFFINE_FUNCTIONS", "300"))
BOX = ma.Box(x=(-2, 2), y=(0.25, 3), z=(-1, 1))


def assign(array, key, value):
    array[key] = value


# What happens to arrays a, b of floats, of two axes, a number c and a choice k; what is returned is one more array.
FLOATS = {
    "column": lambda a, b, c, k: a[:, k % a.shape[1]],
    "view": lambda a, b, c, k: (a[:, ::-1], a[:, :1], a.T.T, np.flip(a, 1), a.reshape(len(a), -1), np.swapaxes(a, 0, 1).T)[k % 6],
    "copy": lambda a, b, c, k: (a.copy(), a[:, [k % a.shape[1], 0]], np.copy(a), a.astype(float), +a, np.roll(a, 1, axis=1))[
        k % 6
    ],
    "+": lambda a, b, c, k: a + b[:, :1],
    "*": lambda a, b, c, k: a[:, :1] * b * c,
    "-": lambda a, b, c, k: -a,
    "clip": lambda a, b, c, k: np.clip(a, -abs(c), np.inf if k % 2 else 1.0),
    "stack": lambda a, b, c, k: np.stack([a[:, 0], b[:, -1]], axis=1),
    "along": lambda a, b, c, k: (a.sum(axis=1), a.max(axis=1), a.mean(axis=1, keepdims=True), np.cumsum(a, axis=1))[k % 4],
    "@": lambda a, b, c, k: a @ np.full((a.shape[1], 2), c),
    "zeros": lambda a, b, c, k: np.zeros_like(a) if k % 2 else np.full_like(a, c),
    "=": lambda a, b, c, k: assign(a, (slice(None), k % a.shape[1]), b[:, 0] if k % 3 else c),
    "[:1]=": lambda a, b, c, k: assign(a, np.s_[:, :1], b[:, -1:]),
    "swap": lambda a, b, c, k: assign(a, np.s_[:], a[:, ::-1]),
    "+=": lambda a, b, c, k: operator.iadd(a, c),
    "*=": lambda a, b, c, k: operator.imul(a, b[:, :1] if k % 2 else c),
    "out": lambda a, b, c, k: np.sin(a, out=a),
}
# The same of conditions p, q.
MASKS = {
    "&": lambda p, q, k: p & q, "|": lambda p, q, k: p | q, "^": lambda p, q, k: p ^ q, "~": lambda p, q, k: ~p,
    "+": lambda p, q, k: p + q, "*": lambda p, q, k: p * q, "min": lambda p, q, k: np.minimum(p, q),
    "|=": lambda p, q, k: operator.ior(p, q), "&=": lambda p, q, k: operator.iand(p, q),
    "where": lambda p, q, k: np.where(p, q, ~q), "==": lambda p, q, k: p == q,
    "constant": lambda p, q, k: p & np.array([bool(k % 2)]),
}  # fmt: skip
# Floats of conditions.
COUNTED = {
    "sum": lambda a, p, k: p.sum(axis=1) * 1.0, "mean": lambda a, p, k: np.mean(p, axis=1), "*": lambda a, p, k: p[:, :1] * a,
    "where": lambda a, p, k: np.where(p[:, :1], a, k % 5), "astype": lambda a, p, k: p.astype(int if k % 2 else float) / 2,
    "@": lambda a, p, k: p @ np.full(p.shape[1], 2.0), "=": lambda a, p, k: assign(a, np.s_[:, :1], p[:, :1]),
}  # fmt: skip


def random_steps(rng):
    """Names of operations, and which arrays, numbers and choices they get."""
    table = [("floats", name) for name in FLOATS] + [("masks", name) for name in MASKS] + [("counted", name) for name in COUNTED]
    table += [("compare", "")] * 5
    steps = [table[i] for i in rng.integers(len(table), size=int(rng.integers(3, 14)))]
    return [(*step, rng.integers(1 << 20, size=3).tolist(), round(rng.normal(), 2)) for step in steps]


def two(array):
    return array if array.ndim == 2 else array[:, None]


def run(steps, X):
    """The sum of everything that the program made."""
    floats, masks = [X], []
    for kind, name, (i, j, k), c in steps:
        a, b = two(floats[i % len(floats)]), two(floats[j % len(floats)])
        if kind == "floats":
            made = FLOATS[name](a, b, c, k)
            floats += [] if made is None or made is a else [made]
        elif kind == "compare":
            masks.append(a > b[:, -1:] * c if k % 2 else a <= c)
        elif masks and kind == "masks":
            p, q = masks[i % len(masks)], masks[j % len(masks)][:, :1]
            made = MASKS[name](p, q, k)
            masks += [] if made is p else [made]
        elif masks:
            made = COUNTED[name](a, masks[j % len(masks)], k)
            floats += [] if made is None else [made]
    return sum(two(v).sum(axis=1) for v in (*floats, *masks))


@pytest.mark.parametrize("part", range(3))
def test_what_is_read_of_a_program_with_memory_is_what_it_computes(part):
    x, most = BOX.sample(100, np.random.default_rng(7)), 0
    for seed in range(part, COUNT, 3):
        steps = random_steps(np.random.default_rng(seed))
        seen = understood(Called(lambda X, steps=steps: run(steps, X)), BOX, None, False, Recorder())
        text = written(seen.outputs, BOX.names)
        most = max(most, len(text))
        if len(text) > 9_000:
            continue
        wanted = run(steps, x.copy())
        found = Expression.parse(text, BOX.names).evaluate(x).ravel()
        assert np.allclose(found, wanted, rtol=1e-9, atol=1e-9 * max(1.0, float(np.abs(wanted).max()))), (seed, steps)
    assert most > 200
