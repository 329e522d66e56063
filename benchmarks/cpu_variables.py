"""Queries per processor second of layers of many variables: collapsed, factorised, and the formula in NumPy, in one run.

    python benchmarks/cpu_variables.py

One thread, the least of some repetitions of each way in turn; writes results/cpu_variables.json, which docs/formulas.md shows
(`python benchmarks/formulas.py --page`).
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import maxaffine as ma
from formula_targets import Formula, classical

OUT = Path(__file__).with_name("results") / "cpu_variables.json"
QUERIES = {"collapsed": 200_000, "factorised": 20_000, "formula": 200_000}
REPETITIONS = 5


def _otl(x: np.ndarray) -> np.ndarray:
    b1, b2, f, c1, c2, beta = x.T
    load = beta * (c2 + 9)
    return np.asarray(
        (12 * b2 / (b1 + b2) + 0.74) * load / (load + f) + 11.35 * f / (load + f) + 0.74 * f * load / ((load + f) * c1)
    )


PEERS: dict[str, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    "OTL circuit": (1e-4, _otl),
    "1/(1+|x|^2), 10": (1e-4, lambda x: 1 / (1 + (x * x).sum(axis=1))),
    "1/(1+|x|^2), 50": (1e-4, lambda x: 1 / (1 + (x * x).sum(axis=1))),
    "softmax entry, 8": (1e-4, lambda x: np.exp(x[:, 0]) / np.exp(x).sum(axis=1)),
    "exp(sin |x|^2), 10": (1e-4, lambda x: np.exp(np.sin((x * x).sum(axis=1)))),
    "tanh(q.k), 4": (1e-4, lambda x: np.tanh(x[:, 0] * x[:, 2] + x[:, 1] * x[:, 3])),
}
BLOCKS = "(m1*r1 + m2*r2)/(m1 + m2)/(1 + m1*r1)"


def targets() -> list[tuple[Formula, float, Callable[[np.ndarray], np.ndarray]]]:
    """The formulas with their relative errors and peers, and one whose factors are blocks of two directions."""
    found = [(formula, *PEERS[formula.name]) for formula in classical() if formula.name in PEERS]
    box = dict.fromkeys(("m1", "m2", "r1", "r2"), (1.0, 5.0))
    centre = Formula("centre of mass", BLOCKS, box, (1e-4,))

    def peer(x: np.ndarray) -> np.ndarray:
        m1, m2, r1, r2 = x.T
        return np.asarray((m1 * r1 + m2 * r2) / (m1 + m2) / (1 + m1 * r1))

    return [*found, (centre, 1e-4, peer)]


def best(ways: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Processor seconds of every way, the least of some rounds in which each has its turn."""
    least = dict.fromkeys(ways, float("inf"))
    for one in ways.values():
        one()
    for _ in range(REPETITIONS):
        for name, one in ways.items():
            begun = time.process_time()
            one()
            least[name] = min(least[name], time.process_time() - begun)
    return least


def measure(formula: Formula, error: float, peer: Callable[[np.ndarray], np.ndarray]) -> dict[str, Any]:
    """One layer by both runtimes beside its formula."""
    layer = ma.compile(formula.text, ma.Box(**formula.box), error=error, relative=True)
    x = layer.target.box.sample(max(QUERIES.values()), np.random.default_rng(0))
    (group,) = layer.weights.groups
    seconds = best({
        "collapsed": lambda: layer(x, runtime="collapsed", threads=1),
        "factorised": lambda: layer(x[: QUERIES["factorised"]], runtime="factorised", threads=1),
        "formula": lambda: peer(x),
    })  # fmt: skip
    away = {name: float(np.abs(layer(x, runtime=name) - peer(x)).max()) for name in ("collapsed", "factorised")}
    for name, value in away.items():
        assert value <= (layer.statement(name).bound or 0.0) * (1 + 1e-9), name
    return {
        "name": formula.name, "variables": formula.dimension, "error": error, "factors": group.layout,
        "kind": "complex" if group.imaginary is not None else "blocks" if max(group.block_sizes) > 1 else "real",
        "rates": {name: QUERIES[name] / seconds[name] for name in seconds},
        "proved": layer.statement("collapsed").bound, "observed": away["collapsed"], "asked": layer.error,
    }  # fmt: skip


def main() -> None:
    """Every target, printed and kept."""
    rows = []
    for formula, error, peer in targets():
        rows.append(measure(formula, error, peer))
        rates = ", ".join(f"{name} {rate / 1e6:.3g} M/s" for name, rate in rows[-1]["rates"].items())
        print(f"{formula.name}, {rows[-1]['kind']}: {rates}", flush=True)
    OUT.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
