"""Layers of clusters (kinks, regions, trees), and the direct forms of their targets, against the formula itself, SciPy and the
literal softmax: queries per second, one thread.

    OMP_NUM_THREADS=1 python benchmarks/cpu_clusters.py [--json FILE]
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import RegularGridInterpolator

import maxaffine as ma
from cpu_tools import Case, in_numba, in_numpy, loaded, machine, median
from maxaffine.runtime import chooser, parallel, two_level

LINE = ma.Box.named(("x",), [-1.0], [1.0])
PLANE = ma.Box.named(("x", "y"), [-1.0, -1.0], [1.0, 1.0])
CASES = (
    Case("abs(sin 7x)", "abs(sin(7*x))", LINE, 1e-6, lambda x: np.abs(np.sin(7.0 * x))),
    Case("sqrt(x+1)", "sqrt(x+1)", LINE, 1e-4, lambda x: np.sqrt(x + 1.0)),
    Case("max(x, y)", "max(x,y)", PLANE, 1e-8, lambda x, y: np.maximum(x, y)),
    Case("abs(x+2y-.3) cos x", "abs(x+2*y-.3)*cos(x)", PLANE, 1e-6, lambda x, y: np.abs(x + 2.0 * y - 0.3) * np.cos(x)),
    Case(
        "(abs x + abs y) exp(xy)", "(abs(x)+abs(y))*exp(x*y)", PLANE, 1e-4,
        lambda x, y: (np.abs(x) + np.abs(y)) * np.exp(x * y),
    ),
    Case(
        "bump of width .02", "exp(-((x-.3)**2+(y+.2)**2)/.0008)", PLANE, 1e-4,
        lambda x, y: np.exp(-((x - 0.3) * (x - 0.3) + (y + 0.2) * (y + 0.2)) / 0.0008),
    ),
    Case("max(r^2, .5)", "max(x**2+y**2,.5)", PLANE, 1e-4, lambda x, y: np.maximum(x * x + y * y, 0.5)),
)  # fmt: skip
BEFORE = dict(zip((case.name for case in CASES), (13.2e6, 18e6, 51.1e6, 9.15e6, 6.57e6, 5.4e6, 2.54e6), strict=True))
"""What this page held of the two-level runtime before there were direct forms."""
BATCH, GRID = 200_000, 4_000_000


def interpolated(case: Case, x: np.ndarray) -> tuple[Any, int, float]:
    """SciPy's linear interpolation on the smallest grid tried that has the error, or the largest."""
    D, truth = case.box.dimension, case.values(x[:20_000])
    n = 64
    while True:
        axes = [np.linspace(low, high, n) for low, high in zip(case.box.low, case.box.high, strict=True)]
        mesh = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
        made = RegularGridInterpolator(axes, case.values(mesh).reshape([n] * D))
        error = float(np.abs(made(x[:20_000]) - truth).max())
        if error <= case.error or (2 * n) ** D > GRID:
            return made, n**D, error
        n *= 2


def measured(case: Case) -> dict[str, Any]:
    """One row."""
    layer = ma.compile(case.text, case.box, error=case.error)
    x = case.box.sample(BATCH, np.random.default_rng(0))
    row = {"target": case.name, "error": case.error, "method": layer.method, "tokens": layer.tokens}
    said, formula = layer.statement("direct"), in_numpy(case)
    row["formula"] = BATCH / median(lambda: formula(x))
    compiled = in_numba(case)
    row["numba"] = BATCH / median(lambda: compiled(x))
    seen = float(np.abs(layer(x, runtime="direct", threads=1) - case.values(x)).max())
    row |= {"proved": said.bound, "seen": seen, "bound": layer.bound, "before": BEFORE[case.name]}
    row["direct"] = BATCH / median(lambda: layer(x, runtime="direct", threads=1))
    pieces = layer.statement("pieces")
    row |= {"pieces_proved": pieces.bound, "pieces": None, "pieces_seen": None, "pieces_why": pieces.why}
    if pieces.bound is not None:
        row["pieces_seen"] = float(np.abs(layer(x, runtime="pieces", threads=1) - case.values(x)).max())
        row["pieces"] = BATCH / median(lambda: layer(x, runtime="pieces", threads=1))
    row["layer"] = BATCH / median(lambda: layer(x, threads=1))
    held = dict(parallel._loaded)
    parallel._loaded["two_level"] = None
    row["numpy"] = BATCH / median(lambda: two_level.evaluate(layer.weights, x, 1), repeats=3)
    parallel._loaded.clear()
    parallel._loaded.update(held)
    few = x[:5_000]
    row["literal"] = len(few) / median(lambda: chooser.evaluate(layer.weights, few, "dense"), repeats=3)
    peer, row["grid"], row["grid_error"] = interpolated(case, x)
    row["interpolator"] = BATCH / median(lambda: peer(x))
    return row


def exponentials() -> dict[str, float]:
    """exp per second in a loop: powers of two from bits, by a table as it was before, and NumPy's."""
    import numba

    from maxaffine.runtime.kernel_exp import OPTIONS, exponential
    from maxaffine.runtime.windowed import LN2_HIGH, LN2_LOW, LOG2E, POWERS, SHIFT, TAYLOR

    options = {**OPTIONS, "cache": False}

    @numba.njit(**options)
    def by_bits(y: np.ndarray, powers: np.ndarray, out: np.ndarray) -> None:
        for i in range(len(y)):
            out[i] = exponential(y[i])

    @numba.njit(**options)
    def by_table(y: np.ndarray, powers: np.ndarray, out: np.ndarray) -> None:
        for i in range(len(y)):
            n = np.floor(y[i] * LOG2E + 0.5)
            r = (y[i] - n * LN2_HIGH) - n * LN2_LOW
            v = TAYLOR[0]
            for k in range(1, len(TAYLOR)):
                v = v * r + TAYLOR[k]
            out[i] = v * powers[np.int64(n) + SHIFT]

    y, powers = np.random.default_rng(0).uniform(-30.0, 0.0, 20_000), np.array(POWERS)
    one, other = np.empty_like(y), np.empty_like(y)
    by_bits(y, powers, one)
    by_table(y, powers, other)
    assert np.array_equal(one, other)
    ways: dict[str, Callable[[], Any]] = {
        "bits": lambda: by_bits(y, powers, one), "table": lambda: by_table(y, powers, other), "numpy": lambda: np.exp(y),
    }  # fmt: skip
    return {name: len(y) / median(run) for name, run in ways.items()}


def main() -> None:
    """Measure all and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--json", type=Path)
    told = arguments.parse_args()
    loaded()
    found: dict[str, Any] = {"machine": machine(), "rows": [], "exponential": exponentials()}
    print(json.dumps(found["exponential"]), flush=True)
    for case in CASES:
        found["rows"].append(measured(case))
        print(json.dumps(found["rows"][-1]), flush=True)
    if told.json is not None:
        told.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
