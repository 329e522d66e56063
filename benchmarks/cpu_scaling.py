"""How the cost of a query grows: `windowed` and `dense` in the number of tokens, `collapsed` in variables, batch and threads.

    python benchmarks/cpu_scaling.py [--most 100000000] [--json FILE] [--figure FILE]

Nanoseconds of processor time per query, medians of repeats, one thread unless said otherwise; beside them what this machine
takes to read one number at a random place of an array of the same size, one after the other (each place depends on the last)
and side by side.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

import maxaffine as ma
from cpu_tools import machine, median
from maxaffine.layer.layer import Layer
from maxaffine.plan.grid import grid_coordinates, grid_keys
from maxaffine.runtime import chooser

QUERIES = 200_000


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
    """Windowed from 1e4 tokens on, dense where it is bearable."""
    rows = []
    for D in (1, 2, 3):
        tokens = 10**4
        while tokens <= most:
            layer = lookup(min(tokens, 2**26 - 1) if D == 1 else tokens, D)  # 2^26 cells per variable at most
            x = np.random.default_rng(1).uniform(-1, 1, size=(QUERIES, D))
            row: dict[str, Any] = {"D": D, "tokens": layer.keys.count}
            row["windowed_ns"] = median(lambda: chooser.evaluate(layer, x, "windowed", threads=1)) / QUERIES * 1e9  # noqa: B023
            if tokens <= 10**6:
                few = max(2, 2_000_000 // tokens)
                name = "dense" if tokens <= 10**4 else "blocked"
                row["dense_ns"] = median(lambda: chooser.evaluate(layer, x[:few], name), 3) / few * 1e9  # noqa: B023
            if D == 1:
                row["random_ns"], row["gather_ns"] = random_access(layer.keys.count)
            rows.append(row)
            print(row, flush=True)
            tokens *= 100
    return rows


def in_variables() -> list[dict[str, Any]]:
    """Collapsed sums and products of growing numbers of variables at 1e-6."""
    rows = []
    for D in (1, 2, 3, 4, 6, 8):
        names = [f"x{i}" for i in range(1, D + 1)]
        box = ma.Box.named(names, [-1.0] * D, [1.0] * D)
        texts = {"sum": " + ".join(f"sin(2*{n})" for n in names), "product": "*".join(f"cos({n})" for n in names)}
        for kind, text in texts.items():
            layer = ma.compile(text, box, error=1e-6, method="spectral")
            x = box.sample(QUERIES, np.random.default_rng(0))
            taken = median(lambda: layer(x, threads=1)) / QUERIES * 1e9  # noqa: B023
            rows.append({"D": D, "kind": kind, "tokens": layer.tokens, "runtime": layer.runtime()[0], "ns": taken})
            print(rows[-1], flush=True)
    return rows


def in_batch() -> list[dict[str, Any]]:
    """sin x + cos y at 1e-6: batches of 1 to 4e6, one thread and all."""
    box = ma.Box.named(("x", "y"), [-3.0, -3.0], [3.0, 3.0])
    layer = ma.compile("sin(x)+cos(y)", box, error=1e-6, method="spectral")
    whole = box.sample(4_000_000, np.random.default_rng(0))
    layer(whole)  # compiled and warm
    rows = []
    for batch in (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 4_000_000):
        row: dict[str, Any] = {"batch": batch}
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

    figure, panel = pyplot.subplots(figsize=(6, 4.2))
    for D, color in ((1, "#0072B2"), (2, "#D55E00"), (3, "#009E73")):
        for key, style in (("windowed", "o-"), ("dense", "s:")):
            rows = [row for row in results["tokens"] if row["D"] == D and f"{key}_ns" in row]
            taken = [row[f"{key}_ns"] for row in rows]
            panel.loglog([row["tokens"] for row in rows], taken, style, color=color, label=f"{key}, D = {D}")
    rows = [row for row in results["tokens"] if "random_ns" in row]
    panel.loglog([row["tokens"] for row in rows], [row["random_ns"] for row in rows], "k--", lw=1, label="one random read")
    panel.set_xlabel("tokens")
    panel.set_ylabel("ns per query, one thread")
    panel.legend(fontsize=7)
    panel.grid(alpha=0.2)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Run, print, keep."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--most", type=int, default=10**8)
    arguments.add_argument("--json", default=None)
    arguments.add_argument("--figure", default=None)
    asked = arguments.parse_args()
    results = {"machine": machine(), "variables": in_variables(), "batch": in_batch(), "tokens": in_tokens(asked.most)}
    for D in (1, 2, 3):
        taken = [row["windowed_ns"] for row in results["tokens"] if row["D"] == D]
        results[f"growth_{D}"] = taken[-1] / taken[0]
        print(f"D = {D}: windowed grows {taken[-1] / taken[0]:.2f} times from 1e4 to {asked.most:.0e} tokens")
    if asked.json:
        Path(asked.json).write_text(json.dumps(results, indent=1) + "\n")
    if asked.figure:
        draw(results, Path(asked.figure))


if __name__ == "__main__":
    main()
