"""Layers of clusters (kinks, regions, trees) against the formula, SciPy and the literal softmax: queries per second, one thread.

    OMP_NUM_THREADS=1 python benchmarks/cpu_clusters.py [--json FILE]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import RegularGridInterpolator

import maxaffine as ma
from cpu_tools import Case, machine, median
from maxaffine.runtime import chooser, parallel, two_level

LINE = ma.Box.named(("x",), [-1.0], [1.0])
PLANE = ma.Box.named(("x", "y"), [-1.0, -1.0], [1.0, 1.0])
CASES = (
    Case("abs(sin 7x)", "abs(sin(7*x))", LINE, 1e-6),
    Case("sqrt(x+1)", "sqrt(x+1)", LINE, 1e-4),
    Case("max(x, y)", "max(x,y)", PLANE, 1e-8),
    Case("abs(x+2y-.3) cos x", "abs(x+2*y-.3)*cos(x)", PLANE, 1e-6),
    Case("(abs x + abs y) exp(xy)", "(abs(x)+abs(y))*exp(x*y)", PLANE, 1e-4),
    Case("bump of width .02", "exp(-((x-.3)**2+(y+.2)**2)/.0008)", PLANE, 1e-4),
    Case("max(r^2, .5)", "max(x**2+y**2,.5)", PLANE, 1e-4),
)
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
    if not layer.weights.has_clusters:
        return {**row, "two_level": BATCH / median(lambda: layer(x))}
    row["two_level"] = BATCH / median(lambda: two_level.evaluate(layer.weights, x, 1))
    held = dict(parallel._loaded)
    parallel._loaded["two_level"] = None
    row["numpy"] = BATCH / median(lambda: two_level.evaluate(layer.weights, x, 1), repeats=3)
    parallel._loaded.clear()
    parallel._loaded.update(held)
    few = x[:5_000]
    row["literal"] = len(few) / median(lambda: chooser.evaluate(layer.weights, few, "dense"), repeats=3)
    row["formula"] = BATCH / median(lambda: case.values(x))
    peer, row["grid"], row["grid_error"] = interpolated(case, x)
    row["interpolator"] = BATCH / median(lambda: peer(x))
    return row


def main() -> None:
    """Measure all and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--json", type=Path)
    told = arguments.parse_args()
    found: dict[str, Any] = {"machine": machine(), "rows": []}
    for case in CASES:
        found["rows"].append(measured(case))
        print(json.dumps(found["rows"][-1]), flush=True)
    if told.json is not None:
        told.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
