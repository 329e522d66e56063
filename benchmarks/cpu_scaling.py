"""How the cost of a query grows: `windowed` and the literal softmax in the number of tokens, `collapsed` in variables and batch.

    python benchmarks/cpu_scaling.py [--most 100000000] [--only tokens] [--json FILE] [--figure FILE]

Nanoseconds of processor time per query, medians of repeats that go through all sizes in turn, one thread unless said
otherwise; no query is asked twice within a pass, so that small batches do not find their values in a cache.  Beside them what
this machine takes to read one number at a random place of an array of the same size, one after the other (each place depends
on the last) and side by side.  The literal softmax over 1e8 tokens is streamed in blocks (`blocked`) for a few queries.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import maxaffine as ma
from cpu_tools import loaded, machine, median
from maxaffine.heads.lookup.grid import grid_coordinates, grid_keys
from maxaffine.layer.layer import Layer
from maxaffine.runtime import chooser

QUERIES = 200_000
BATCHES = (10_000, 200_000, 1_000_000, 4_000_000)
LITERAL = {10**4: 64, 10**6: 16, 10**8: 4}  # queries of the literal softmax
REPEATS = 7


def lookup(tokens: int, D: int, rho: float = 40.0) -> Layer:
    """A lookup of about that many tokens with smooth values."""
    P = round(tokens ** (1.0 / D))
    box = ma.Box([-1.0] * D, [1.0] * D)
    values = np.sin(np.arange(P, dtype=np.float64))
    for _ in range(D - 1):
        values = np.add.outer(values, np.cos(np.arange(P, dtype=np.float64)))
    return Layer(grid_coordinates(box, (P,) * D), grid_keys((P,) * D), rho, values[..., None, None], box.low, box.high, ((D, 1),))


def random_access(tokens: int) -> tuple[float, float]:
    """ns to read one number at a random place: one after the other, and independently of each other."""
    from numba import njit

    @njit
    def chase(table: Any, steps: int) -> int:
        at = 0
        for _ in range(steps):
            at = table[at]
        return at

    rng = np.random.default_rng(0)
    way = rng.permutation(np.arange(tokens, dtype=np.int32))  # one round trip through all places
    table = np.empty(tokens, dtype=np.int64)
    table[way[:-1]], table[way[-1]] = way[1:], way[0]
    order, steps = rng.integers(0, tokens, size=QUERIES), 1_000_000
    alone = median(lambda: chase(table, steps), 3) / steps * 1e9
    return alone, median(lambda: table[order], 3) / QUERIES * 1e9


def in_tokens(most: int) -> list[dict[str, Any]]:
    """Windowed and the literal softmax from 1e4 tokens on."""
    rows = []
    for D in (1, 2, 3):
        sizes = [tokens for tokens in LITERAL if tokens <= most]
        layers = [lookup(min(tokens, 2**26 - 1) if D == 1 else tokens, D) for tokens in sizes]  # 2^26 cells per variable at most
        x = np.random.default_rng(1).uniform(-1, 1, size=(max(BATCHES), D))
        taken: dict[tuple[int, int], list[float]] = {}
        for repeat in range(REPEATS + 1):  # the first for warming up
            for n, layer in enumerate(layers):
                for batch in BATCHES:
                    seconds = per_query(layer, x, batch)
                    if repeat:
                        taken.setdefault((n, batch), []).append(seconds)
        for n, (tokens, layer) in enumerate(zip(sizes, layers, strict=True)):
            row: dict[str, Any] = {"D": D, "tokens": layer.keys.count}
            row["windowed_ns"] = {str(batch): float(np.median(taken[n, batch])) * 1e9 for batch in BATCHES}
            few = LITERAL[tokens]
            row["literal_ns"] = median(lambda: chooser.evaluate(layer, x[:few], "blocked"), 3, 8.0) / few * 1e9  # noqa: B023
            if D == 1:
                row["random_ns"], row["gather_ns"] = random_access(layer.keys.count)
            rows.append(row)
            print(row, flush=True)
    return rows


def per_query(layer: Layer, x: np.ndarray, batch: int) -> float:
    """Processor seconds per query in batches of that many, over a million queries at least, none of them twice."""
    count = max(batch, min(len(x), 1_000_000))
    begun = time.process_time()
    for start in range(0, count, batch):
        chooser.evaluate(layer, x[start : start + batch], "windowed", threads=1)
    return (time.process_time() - begun) / count


def growth(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """From the first to the last size, per number of variables: windowed by batch, and the literal softmax."""
    found = {}
    for D in (1, 2, 3):
        own = [row for row in rows if row["D"] == D]
        first, last = own[0], own[-1]
        by_batch = {batch: last["windowed_ns"][batch] / first["windowed_ns"][batch] for batch in first["windowed_ns"]}
        found[str(D)] = {**by_batch, "literal": last["literal_ns"] / first["literal_ns"]}
    return found


def looped(kind: str) -> Any:
    """The sum or product of all variables in a loop over rows that numba compiles."""
    from numba import njit

    summed = kind == "sum"

    @njit
    def loop(x: Any, out: Any) -> None:
        for i in range(x.shape[0]):
            found = 0.0 if summed else 1.0
            for j in range(x.shape[1]):
                found = found + np.sin(2.0 * x[i, j]) if summed else found * np.cos(x[i, j])
            out[i] = found

    return loop


def in_variables() -> list[dict[str, Any]]:
    """Sums and products of growing numbers of variables at 1e-6: the formula, the direct form, the layer."""
    rows = []
    for D in (1, 2, 3, 4, 6, 8):
        names = [f"x{i}" for i in range(1, D + 1)]
        box = ma.Box.named(names, [-1.0] * D, [1.0] * D)
        texts = {"sum": " + ".join(f"sin(2*{n})" for n in names), "product": "*".join(f"cos({n})" for n in names)}
        for kind, text in texts.items():
            layer = ma.compile(text, box, error=1e-6, method="spectral")
            x = box.sample(QUERIES, np.random.default_rng(0))
            columns, out, loop = np.ascontiguousarray(x.T), np.empty(len(x)), looped(kind)
            plain = (lambda c: np.sin(2.0 * c).sum(axis=0)) if kind == "sum" else (lambda c: np.cos(c).prod(axis=0))
            ways: dict[str, Any] = {
                "formula": lambda: plain(columns), "numba": lambda: loop(x, out),  # noqa: B023
                "direct": lambda: layer(x, runtime="direct", threads=1), "ns": lambda: layer(x, threads=1),  # noqa: B023
            }  # fmt: skip
            taken = {name: median(run) / QUERIES * 1e9 for name, run in ways.items()}
            rows.append({"D": D, "kind": kind, "tokens": layer.tokens, "runtime": layer.runtime()[0], **taken})
            print(rows[-1], flush=True)
    return rows


def in_batch() -> list[dict[str, Any]]:
    """sin x + cos y at 1e-6: batches of 1 to 4e6, the formula in NumPy and the layer, one thread and all."""
    box = ma.Box.named(("x", "y"), [-3.0, -3.0], [3.0, 3.0])
    layer = ma.compile("sin(x)+cos(y)", box, error=1e-6, method="spectral")
    whole = box.sample(4_000_000, np.random.default_rng(0))
    layer(whole)  # compiled and warm
    rows = []
    for batch in (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 4_000_000):
        columns = np.ascontiguousarray(whole[:batch].T)
        seconds = median(lambda: np.sin(columns[0]) + np.cos(columns[1]), 9, wall=True)  # noqa: B023
        row: dict[str, Any] = {"batch": batch, "formula": batch / seconds}
        for threads in (1, os.cpu_count() or 1):
            seconds = median(lambda: layer(whole[:batch], threads=threads), 9, wall=True)  # noqa: B023
            row[f"queries_per_second_{threads}_threads"] = batch / seconds
        rows.append(row)
        print(row, flush=True)
    return rows


def draw(results: dict[str, Any], path: Path) -> None:
    """ns per query against tokens."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(6.4, 4.6))
    for D, color in ((1, "#0072B2"), (2, "#D55E00"), (3, "#009E73")):
        rows = [row for row in results["tokens"] if row["D"] == D]
        tokens = [row["tokens"] for row in rows]
        panel.loglog(tokens, [row["literal_ns"] for row in rows], "s:", color=color, label=f"literal softmax, D = {D}")
        for batch, style, name in (("1000000", "o-", "batches of 1e6"), ("10000", "^--", "of 1e4")):
            taken = [row["windowed_ns"][batch] for row in rows]
            told = {"color": color, "alpha": 1.0 if style == "o-" else 0.5, "label": f"windowed, D = {D}, {name}"}
            panel.loglog(tokens, taken, style, ms=5, **told)
    rows = [row for row in results["tokens"] if "random_ns" in row]
    panel.loglog([row["tokens"] for row in rows], [row["random_ns"] for row in rows], "k--", lw=1, label="one random read")
    panel.set_xlabel("tokens")
    panel.set_ylabel("ns per query, one thread")
    panel.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    panel.grid(alpha=0.2)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Run, print, keep."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--most", type=int, default=10**8)
    told = "measure this part; the others as --json kept them"
    arguments.add_argument("--only", choices=("tokens", "variables"), default=None, help=told)
    arguments.add_argument("--json", default=None)
    arguments.add_argument("--figure", default=None)
    asked = arguments.parse_args()
    loaded()
    results: dict[str, Any] = {}
    if asked.only:
        results = json.loads(Path(asked.json).read_text())
    if asked.only != "tokens":
        results.update(machine=machine(), variables=in_variables(), batch=in_batch())
    if asked.only != "variables":
        results["machine_tokens"] = machine()
        results["tokens"] = in_tokens(asked.most)
        results["growth"] = growth(results["tokens"])
    print(json.dumps(results["growth"], indent=1))
    if asked.json:
        Path(asked.json).write_text(json.dumps(results, indent=1) + "\n")
    if asked.figure:
        draw(results, Path(asked.figure))


if __name__ == "__main__":
    main()
