"""Tables and black boxes, where no formula exists: the layer against what people use there, one thread.

    OMP_NUM_THREADS=1 python benchmarks/cpu_tables.py [--json FILE]

A table of 500 x 500 entries, and a Python function of three variables that is not read (`trace=False`).  Peers take the smallest
grid of entries, or of values of the function, that has the error asked for, or the largest one tried.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.interpolate import RectBivariateSpline, RegularGridInterpolator

import maxaffine as ma
from cpu_peers import network
from cpu_tools import Case, loaded, machine, median

Run = Callable[[np.ndarray], np.ndarray]
ERROR, MANY, FEW = 1e-3, 200_000, 20_000


def surface(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What the table holds."""
    return np.sin(3 * x) * np.cos(2 * y) + np.exp(-4 * (x - y) ** 2)


def black_box(x: np.ndarray) -> np.ndarray:
    """The function of three variables."""
    return np.cos(x[:, 0] * x[:, 1] + x[:, 2])


@dataclass(frozen=True)
class Source(Case):
    """Where values come from: the peers ask for them on grids."""

    grids: tuple[int, ...] = ()
    values_at: Callable[[np.ndarray], np.ndarray] | None = None

    def values(self, x: np.ndarray) -> np.ndarray:
        """f(x), as what was compiled says it."""
        assert self.values_at is not None
        return self.values_at(x)

    def grid(self, n: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Axes of n points each, and the values there."""
        axes = [np.linspace(low, high, n) for low, high in zip(self.box.low, self.box.high, strict=True)]
        mesh = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
        return axes, self.values(mesh).reshape([n] * len(axes))


SQUARE, CUBE = ma.Box.named(("x", "y"), [-1.0] * 2, [1.0] * 2), ma.Box.named(("x", "y", "z"), [-1.0] * 3, [1.0] * 3)
TABLE = Source("a table of 500 x 500", "", SQUARE, ERROR, None, (25, 50, 100, 250, 500), lambda x: surface(x[:, 0], x[:, 1]))
BOX = Source("a function of three variables", "", CUBE, ERROR, None, (16, 32, 48, 64, 96, 128), black_box)


def linear(source: Source, n: int) -> Run:
    """SciPy's RegularGridInterpolator."""
    return RegularGridInterpolator(*source.grid(n))


def spline(source: Source, n: int) -> Run:
    """SciPy's RectBivariateSpline."""
    axes, values = source.grid(n)
    made = RectBivariateSpline(*axes, values)
    return lambda x: made.ev(x[:, 0], x[:, 1])


def texture(source: Source, n: int, mode: str) -> Run:
    """torch's grid_sample."""
    values = torch.from_numpy(source.grid(n)[1])[None, None]

    def run(x: np.ndarray) -> np.ndarray:
        z = torch.from_numpy(x[:, ::-1].copy()).reshape(1, *[1] * (x.shape[1] - 1), len(x), x.shape[1])
        found = torch.nn.functional.grid_sample(values, z, mode=mode, align_corners=True, padding_mode="border")
        return found.reshape(-1).numpy()

    return run


def nearest(source: Source, n: int) -> Run:
    """FAISS: the value of the nearest entry, exact search."""
    import faiss

    faiss.omp_set_num_threads(1)
    axes, values = source.grid(n)
    entries = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
    index = faiss.IndexFlatL2(entries.shape[1])
    index.add(np.ascontiguousarray(entries, dtype=np.float32))
    flat = values.ravel()
    return lambda x: flat[index.search(x.astype(np.float32), 1)[1][:, 0]]


def smallest(make: Callable[[int], Run], source: Source, x: np.ndarray) -> tuple[str, Run]:
    """The first grid that has the error at the points, or the last."""
    for n in source.grids:
        run = make(n)
        if float(np.abs(run(x) - source.values(x)).max()) <= source.error:
            break
    return f"{n}^{source.box.dimension}", run


def peers(source: Source, layer: Any, x: np.ndarray) -> Iterator[tuple[str, str, Run | None, int]]:
    """(name, its size or why it did not run, the run, queries per repeat)."""
    D = source.box.dimension
    yield "maxaffine", f"{layer.tokens:,} tokens, {layer.runtime()[0]}", lambda x: layer(x, threads=1), MANY
    if D > 2:
        yield "the function itself", "NumPy", source.values, MANY
    yield "RegularGridInterpolator, linear", *smallest(lambda n: linear(source, n), source, x), FEW
    if D == 2:
        yield "RectBivariateSpline", *smallest(lambda n: spline(source, n), source, x), FEW
        yield "grid_sample, bicubic", *smallest(lambda n: texture(source, n, "bicubic"), source, x), FEW
    yield "grid_sample, linear", *smallest(lambda n: texture(source, n, "bilinear"), source, x), FEW
    if find_spec("faiss") is None:
        yield "FAISS, nearest entry", "not run: the package faiss-cpu is not installed", None, 0
    else:
        n = 500 if D == 2 else 32
        yield "FAISS, nearest entry", f"{n}^{D}", nearest(source, n), 200
    yield "network, trained for two seconds", "3 x 64 tanh, float32", network(source, 2.0), FEW


def measured(source: Source, layer: Any, x: np.ndarray) -> list[dict[str, Any]]:
    """One row per peer; errors at the points x."""
    rows = []
    for name, size, run, count in peers(source, layer, x):
        row: dict[str, Any] = {"peer": name, "size": size, "error": None, "queries_per_second": None}
        if run is not None:
            queries = source.box.sample(count, np.random.default_rng(1))
            row["queries_per_second"] = count / median(lambda run=run, queries=queries: run(queries), 3)
            seen = x if name[:5] != "FAISS" else x[:: max(1, len(x) // 500)]
            row["error"] = float(np.abs(np.asarray(run(seen)).reshape(-1) - source.values(seen)).max())
        rows.append(row)
        print(f"{source.name:30} {name:34} {size:30} {row['error']} {row['queries_per_second']}", flush=True)
    return rows


def main() -> None:
    """Run, print, keep."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--json", type=Path)
    told = arguments.parse_args()
    torch.set_num_threads(1)
    loaded()
    found: dict[str, Any] = {"machine": machine(), "sources": {}}
    axis = np.linspace(-1, 1, 500)
    entries = np.stack([a.ravel() for a in np.meshgrid(axis, axis, indexing="ij")], axis=1)
    table = ma.Table([axis, axis], surface(*np.meshgrid(axis, axis, indexing="ij")))
    layer = ma.compile(table, error=ERROR)
    note = f"proved {layer.bound:.2g} at every entry"
    found["sources"][TABLE.name] = {"note": note, "rows": measured(TABLE, layer, entries[::7])}
    layer = ma.compile(black_box, CUBE, error=ERROR, trace=False)
    said = layer.statement("arrays")
    note = f"proved {said.bound:.2g}" if said.bound is not None else said.statistical or f"nothing is proved: {said.why}"
    found["sources"][BOX.name] = {"note": note, "rows": measured(BOX, layer, CUBE.sample(FEW, np.random.default_rng(2)))}
    if told.json is not None:
        told.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
