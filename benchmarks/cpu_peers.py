"""The layer against what people use instead, side by side in one run at equal error: error and queries per second, one thread.

    OMP_NUM_THREADS=1 python benchmarks/cpu_peers.py [--quick] [--json FILE] [--figure FILE]

Seconds are processor time, medians of repeats.  Peers are given the smallest grid (degree, texture) that reaches the error
asked for, or their best where they do not.
FAISS needs the package faiss-cpu; where KeOps is missing, its place is taken by the streaming log-sum-exp of `blocked`.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.interpolate import RectBivariateSpline, RegularGridInterpolator

import maxaffine as ma
from cpu_tools import CASES, Case, in_numba, in_numpy, literal, loaded, machine, median

Run = Callable[[np.ndarray], np.ndarray]
SIZES = {1: (64, 128, 256, 512, 1024, 4096, 16384), 2: (48, 64, 96, 128, 192, 256, 512, 1024), 3: (16, 24, 32, 48, 64, 96, 128)}


def axes(case: Case, n: int) -> list[np.ndarray]:
    """n points per variable, ends included."""
    return [np.linspace(low, high, n) for low, high in zip(case.box.low, case.box.high, strict=True)]


def on_grid(case: Case, n: int) -> np.ndarray:
    """f on that grid."""
    mesh = np.meshgrid(*axes(case, n), indexing="ij")
    return case.values(np.stack([a.ravel() for a in mesh], axis=1)).reshape(mesh[0].shape)


def interpolator(case: Case, n: int, method: str) -> Run:
    """SciPy's RegularGridInterpolator."""
    return RegularGridInterpolator(axes(case, n), on_grid(case, n), method=method)


def spline(case: Case, n: int) -> Run:
    """SciPy's RectBivariateSpline."""
    made = RectBivariateSpline(*axes(case, n), on_grid(case, n))
    return lambda x: made.ev(x[:, 0], x[:, 1])


def texture(case: Case, n: int, mode: str, kind: Any = torch.float64) -> Run:
    """torch's grid_sample."""
    values = torch.from_numpy(on_grid(case, n)).to(kind)[None, None]
    middle, half = (case.box.low + case.box.high) / 2, (case.box.high - case.box.low) / 2

    def run(x: np.ndarray) -> np.ndarray:
        z = torch.from_numpy(((x - middle) / half)[:, ::-1].copy()).to(kind)
        z = z.reshape(1, *[1] * (x.shape[1] - 1), len(x), x.shape[1])
        found = torch.nn.functional.grid_sample(values, z, mode=mode, align_corners=True, padding_mode="border")
        return found.reshape(-1).numpy()

    return run


def chebval(case: Case, degree: int) -> Run:
    """NumPy's chebval of the interpolant at Chebyshev points."""
    D = case.box.dimension
    nodes = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    middle, half = (case.box.low + case.box.high) / 2, (case.box.high - case.box.low) / 2
    mesh = np.stack([a.ravel() for a in np.meshgrid(*[nodes] * D, indexing="ij")], axis=1)
    c = case.values(middle + half * mesh).reshape([degree + 1] * D)
    inverse = np.linalg.inv(np.polynomial.chebyshev.chebvander(nodes, degree))
    for axis in range(D):
        c = np.moveaxis(np.tensordot(inverse, c, axes=(1, axis)), 0, axis)
    rule = {1: np.polynomial.chebyshev.chebval, 2: np.polynomial.chebyshev.chebval2d, 3: np.polynomial.chebyshev.chebval3d}[D]
    return lambda x: rule(*((x - middle) / half).T, c)


def network(case: Case, seconds: float) -> Run:
    """A tanh network of three layers of 64, trained in float32 for that much processor time."""
    torch.manual_seed(0)
    D = case.box.dimension
    sizes = (D, 64, 64, 64, 1)
    layers: list[Any] = []
    for a, b in itertools.pairwise(sizes):
        layers += [torch.nn.Linear(a, b), torch.nn.Tanh()]
    model = torch.nn.Sequential(*layers[:-1])
    middle, half = (case.box.low + case.box.high) / 2, (case.box.high - case.box.low) / 2
    rng, optimiser = np.random.default_rng(0), torch.optim.Adam(model.parameters(), lr=2e-3)
    begun = time.process_time()
    while (spent := time.process_time() - begun) < seconds:
        for group in optimiser.param_groups:
            group["lr"] = 2e-3 * (1 - spent / seconds) ** 2 + 1e-6
        z = rng.uniform(-1, 1, size=(2048, D))
        f = torch.from_numpy(case.values(middle + half * z)).float()[:, None]
        loss = ((model(torch.from_numpy(z).float()) - f) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    @torch.no_grad()
    def run(x: np.ndarray) -> np.ndarray:
        return model(torch.from_numpy((x - middle) / half).float())[:, 0].numpy()

    return run


def nearest(layer: Any) -> Run:
    """FAISS: the value of the nearest key, exact search."""
    import faiss

    faiss.omp_set_num_threads(1)
    slopes, _ = layer.weights.keys.listed()
    index = faiss.IndexFlatL2(slopes.shape[1])
    index.add(np.ascontiguousarray(slopes, dtype=np.float32))
    values = layer.weights.values.reshape(-1)

    def run(x: np.ndarray) -> np.ndarray:
        _, found = index.search(layer.weights.coordinates(x).astype(np.float32), 1)
        return values[found[:, 0]]

    return run


def smallest(make: Callable[[int], Run], sizes: tuple[int, ...], case: Case, x: np.ndarray, f: np.ndarray) -> tuple[int, Run]:
    """The first size that reaches the error, or the last."""
    for n in sizes:
        run = make(n)
        if float(np.abs(run(x) - f).max()) <= case.error:
            break
    return n, run


def peers(case: Case, quick: bool) -> Iterator[tuple[str, str, Run | None, int, float | None]]:
    """(name, its size or why it did not run, the run, queries per repeat, proved bound)."""
    D = case.box.dimension
    probe = case.box.sample(2_000, np.random.default_rng(9))
    f = case.values(probe)
    many = 100_000 if quick else 500_000
    yield "the formula, NumPy", "contiguous columns", in_numpy(case), many, None
    yield "the formula, numba", "a loop over rows", in_numba(case), many, None
    layer = ma.compile(case.text, case.box, error=case.error, method="spectral")
    direct = layer.statement("direct").bound
    yield "maxaffine, direct", "the target itself", lambda x: layer(x, runtime="direct", threads=1), many, direct
    size = f"{layer.tokens:,} tokens"
    yield "maxaffine", f"{size}, {layer.runtime()[0]}", lambda x: layer(x, threads=1), many, layer.bound
    by_axis = layer.certificate_for("factorised").bound
    yield "maxaffine, factorised", size, lambda x: layer(x, runtime="factorised"), 10_000, by_axis
    if "dense" in layer.runtimes() and layer.weights.d_out == 1:
        yield "SDPA, the same layer", f"{size}, float64", literal(layer.weights), 4_000, None
    rough = Case(case.name, case.text, case.box, 1e-2)
    lookup = ma.compile(rough.text, rough.box, error=1e-2 if D < 3 else 0.1, method="lookup")
    note = f"{lookup.tokens:,} tokens, error {lookup.error:g}"
    yield "maxaffine, lookup", f"{note}, {lookup.runtime()[0]}", lambda x: lookup(x, threads=1), 100_000, lookup.bound
    yield "SDPA, the lookup", note, literal(lookup.weights), 16 if D > 1 else 2_000, None
    yield "lazy reduction, the lookup", f"{note}, streaming log-sum-exp", lambda x: lookup(x, runtime="blocked"), 16, None
    if find_spec("faiss") is not None:
        yield "FAISS, nearest key", note, nearest(lookup), 200 if D > 1 else 20_000, None
    else:
        yield "FAISS, nearest key", "not run: the package faiss-cpu is not installed", None, 0, None
    n, run = smallest(lambda n: interpolator(case, n, "linear"), SIZES[D], case, probe, f)
    yield "RegularGridInterpolator, linear", f"{n}^{D}", run, 50_000, None
    if D == 2:
        yield "RegularGridInterpolator, linear, 1024^2", "1024^2", interpolator(case, 1024, "linear"), 50_000, None
        yield "RectBivariateSpline, 64^2", "64^2", spline(case, 64), 50_000, None
        n, run = smallest(lambda n: spline(case, n), SIZES[2], case, probe, f)
        yield "RectBivariateSpline", f"{n}^2", run, 50_000, None
        n, run = smallest(lambda n: texture(case, n, "bicubic"), SIZES[2], case, probe, f)
        yield "grid_sample, bicubic", f"{n}^2", run, 50_000, None
    if D > 1:
        n, run = smallest(lambda n: texture(case, n, "bilinear"), SIZES[D], case, probe, f)
        yield "grid_sample, bilinear", f"{n}^{D}", run, 50_000, None
    n, run = smallest(lambda n: chebval(case, n), tuple(range(8, 160, 4)), case, probe, f)
    yield "numpy chebval", f"degree {n}", run, 50_000 if D < 3 else 1_000, None
    yield "network, trained", "3 x 64 tanh, float32", network(case, 2.0 if quick else 8.0), 50_000, None


def measure(case: Case, quick: bool) -> list[dict[str, Any]]:
    """One row per peer."""
    rows = []
    for name, size, run, count, bound in peers(case, quick):
        if run is None:
            rows.append({"peer": name, "size": size, "bound": None, "error": None, "queries_per_second": None})
            continue
        x = case.box.sample(count, np.random.default_rng(1))
        seconds = median(lambda run=run, x=x: run(x), 3 if quick else 5)
        check = x[: min(count, 20_000)]
        error = float(np.abs(np.asarray(run(check)).reshape(-1) - case.values(check)).max())
        rows.append({"peer": name, "size": size, "bound": bound, "error": error, "queries_per_second": count / seconds})
        print(f"{case.name:15} {name:42} {size:38} {error:9.2g} {count / seconds:14,.0f}/s", flush=True)
    return rows


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The direct form, or the layer where there is none, over the formula, the faster SciPy interpolator, and attention."""
    speed = {row["peer"]: row["queries_per_second"] for row in rows if row["queries_per_second"] is not None}
    own = speed.get("maxaffine, direct", speed["maxaffine"])
    named = {
        "the formula in NumPy": ("the formula, NumPy",),
        "the formula in numba": ("the formula, numba",),
        "the layer": ("maxaffine",),
        "faster SciPy": ("RectBivariateSpline, 64^2", "RegularGridInterpolator, linear, 1024^2"),
        "SDPA, the same layer": ("SDPA, the same layer",),
        "SDPA, the lookup": ("SDPA, the lookup",),
    }
    return {name: own / max(speed[one] for one in ones) for name, ones in named.items() if all(one in speed for one in ones)}


def draw(results: dict[str, Any], path: Path) -> None:
    """Error against queries per second, one panel per target."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(results["cases"]), figsize=(4.2 * len(results["cases"]), 4.4), sharey=True)
    for panel, (name, rows) in zip(np.atleast_1d(panels), results["cases"].items(), strict=True):
        for row in (one for one in rows if one["queries_per_second"] is not None):
            own = row["peer"].startswith("maxaffine")
            panel.loglog(row["error"], row["queries_per_second"], "o" if own else "s", color="#0072B2" if own else "#999999")
            place = (row["error"], row["queries_per_second"])
            panel.annotate(row["peer"], place, fontsize=6, xytext=(3, 3), textcoords="offset points")
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("largest error seen")
        panel.grid(alpha=0.2)
    np.atleast_1d(panels)[0].set_ylabel("queries per second, one thread")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Run, print, keep."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--json", default=None)
    arguments.add_argument("--figure", default=None)
    asked = arguments.parse_args()
    torch.set_num_threads(1)
    loaded()
    results: dict[str, Any] = {"machine": machine(), "cases": {}, "ratios": {}}
    for case in CASES:
        results["cases"][case.name] = measure(case, asked.quick)
        results["ratios"][case.name] = ratios(results["cases"][case.name])
        print(f"{case.name:15} ratios {results['ratios'][case.name]}", flush=True)
    if asked.json:
        Path(asked.json).write_text(json.dumps(results, indent=1) + "\n")
    if asked.figure:
        draw(results, Path(asked.figure))


if __name__ == "__main__":
    main()
