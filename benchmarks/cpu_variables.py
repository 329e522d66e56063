"""Queries per processor second of formulas of many variables: in NumPy, in numba, their direct forms, and layers, in one run.

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
QUERIES = {"formula": 200_000, "numba": 200_000, "direct": 200_000, "collapsed": 200_000, "factorised": 20_000}
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


def _square(x: np.ndarray) -> float:
    total = 0.0
    for v in x:
        total += v * v
    return total


def _entry(x: np.ndarray) -> float:
    total = 0.0
    for v in x:
        total += np.exp(v)
    return np.exp(x[0]) / total


def _otl_row(x: np.ndarray) -> float:
    b1, b2, f, c1, c2, beta = x[0], x[1], x[2], x[3], x[4], x[5]
    load = beta * (c2 + 9.0)
    return (12 * b2 / (b1 + b2) + 0.74) * load / (load + f) + 11.35 * f / (load + f) + 0.74 * f * load / ((load + f) * c1)


ROWS: dict[str, tuple[Callable[[np.ndarray], float], Callable[[float], float]]] = {
    "OTL circuit": (_otl_row, lambda s: s),
    "1/(1+|x|^2), 10": (_square, lambda s: 1.0 / (1.0 + s)),
    "1/(1+|x|^2), 50": (_square, lambda s: 1.0 / (1.0 + s)),
    "softmax entry, 8": (_entry, lambda s: s),
    "exp(sin |x|^2), 10": (_square, lambda s: np.exp(np.sin(s))),
    "tanh(q.k), 4": (lambda x: x[0] * x[2] + x[1] * x[3], lambda s: np.tanh(s)),
    "centre of mass": (lambda x: (x[0] * x[2] + x[1] * x[3]) / (x[0] + x[1]) / (1.0 + x[0] * x[2]), lambda s: s),
}
"""Of one row: an inner function of it, and an outer one of that."""
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


def looped(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """The formula in a loop over rows that numba compiles."""
    from numba import njit

    inner, outer = (njit(one, inline="always") for one in ROWS[name])

    @njit
    def loop(x: np.ndarray, out: np.ndarray) -> None:
        for i in range(len(x)):
            out[i] = outer(inner(x[i]))

    def run(x: np.ndarray) -> np.ndarray:
        out = np.empty(len(x))
        loop(x, out)
        return out

    return run


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
    compiled = looped(formula.name)
    assert np.allclose(compiled(x), peer(x), rtol=1e-9)
    seconds = best({
        "numba": lambda: compiled(x),
        "direct": lambda: layer(x, runtime="direct", threads=1),
        "collapsed": lambda: layer(x, runtime="collapsed", threads=1),
        "factorised": lambda: layer(x[: QUERIES["factorised"]], runtime="factorised", threads=1),
        "formula": lambda: peer(x),
    })  # fmt: skip
    away = {name: float(np.abs(layer(x, runtime=name) - peer(x)).max()) for name in ("collapsed", "factorised", "direct")}
    for name, value in away.items():
        assert value <= (layer.statement(name).bound or 0.0) * (1 + 1e-9), name
    return {
        "name": formula.name, "variables": formula.dimension, "error": error, "factors": group.layout,
        "kind": "complex" if group.imaginary is not None else "blocks" if max(group.block_sizes) > 1 else "real",
        "rates": {name: QUERIES[name] / seconds[name] for name in seconds},
        "direct": layer.statement("direct").bound,
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
