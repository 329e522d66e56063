"""How fast the exact risk is, beside Monte Carlo of equal standard error.

    OMP_NUM_THREADS=1 python benchmarks/meanfield.py [--json FILE]

"cold" builds everything and evaluates risk and gradient once; "warm" is the next risk and gradient of the same model; "table"
comes from the Chebyshev table. Monte Carlo computes the risk alone, in its cheapest form: only the projections on u and v are
drawn, two dimensions instead of d. Its time to a standard error of 1e-12, the accuracy that the tests hold the exact risk to,
is extrapolated from a measured run by the square-root law; so is that to a relative error of 1e-4. Ratios are against "cold".
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from maxaffine import meanfield as mf
from maxaffine.core.records import write_atomically

GENERIC = mf.Overlaps(0.3, 0.2, 0.1, -0.05, 0.15)


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Best time of one call."""
    best = math.inf
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begun)
    return best


def monte_carlo(problem: mf.Problem, lam: float, o: mf.Overlaps, samples: int, seed: int = 0) -> tuple[float, float, float]:
    """Mean loss, its standard error and the time taken, drawing projections only."""
    rng, n = np.random.default_rng(seed), int(problem.L) - 1
    factor = np.linalg.cholesky(np.array([[1, o.rho, o.eta], [o.rho, 1, o.nu], [o.eta, o.nu, 1]]))
    losses = []
    begun = time.perf_counter()
    block = max(1, 400_000 // (n + 1))
    for start in range(0, samples, block):
        size = min(block, samples - start)
        s = rng.standard_normal((size, n))
        a = o.rho * s + math.sqrt(1 - o.rho**2) * rng.standard_normal((size, n))
        g = rng.standard_normal((size, 3)) @ factor.T
        logits = lam * np.concatenate([s, problem.C * o.mu + problem.gamma * g[:, :1]], axis=1)
        w = np.exp(logits - logits.max(axis=1, keepdims=True))
        values = np.concatenate([a, problem.C * o.zeta + problem.gamma * g[:, 1:2]], axis=1)
        losses.append(((w * values).sum(1) / w.sum(1) - problem.gamma * g[:, 2]) ** 2)
    each = np.concatenate(losses)
    return float(each.mean()), float(each.std(ddof=1) / math.sqrt(each.size)), time.perf_counter() - begun


def measure(name: str, problem: mf.Problem, lam: float, samples: int | None) -> dict[str, Any]:
    """One line of the table."""
    risk = mf.SoftmaxRisk(problem, lam=lam)
    risk.value_and_gradient(mf.Overlaps(-1, 0))
    risk.value_and_gradient(mf.Overlaps(1, 0))
    row: dict[str, Any] = {
        "setting": name,
        "cold_ms": 1e3 * seconds(lambda: mf.SoftmaxRisk(problem, lam=lam).value_and_gradient(GENERIC), 15),
        "warm_ms": 1e3 * seconds(lambda: risk.value_and_gradient(GENERIC), 50),
        "build_table_ms": 1e3 * seconds(lambda: mf.tabulate(risk), 3),
    }
    table = mf.tabulate(risk)
    row["table_ms"] = 1e3 * seconds(lambda: table.value_and_gradient(GENERIC), 200)
    if samples is not None:
        exact = risk.risk(GENERIC)
        mean, error, took = monte_carlo(problem, lam, GENERIC, samples)
        to_relative, to_absolute = took * (error / (1e-4 * exact)) ** 2, took * (error / 1e-12) ** 2
        row |= {
            "risk": exact, "monte_carlo": mean, "z": (mean - exact) / error, "samples": samples, "monte_carlo_s": took,
            "monte_carlo_s_to_1e-4": to_relative, "ratio_1e-4": to_relative / (row["cold_ms"] / 1e3),
            "monte_carlo_s_to_1e-12": to_absolute, "ratio_1e-12": to_absolute / (row["cold_ms"] / 1e3),
        }  # fmt: skip
    return row


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the numbers here")
    arguments = parser.parse_args()
    rows = [
        measure("paper, gamma 1/sqrt(2)", mf.Problem(100, 20, math.sqrt(0.5)), 10.0, 400_000),
        measure("paper, gamma 1/2", mf.Problem(100, 20, 0.5), 10.0, 400_000),
        measure("L = 2", mf.Problem(100, 2, 0.5), 10.0, 400_000),
        measure("L = 1e5", mf.Problem(100, 1e5, 0.5), 10.0, 400),
        measure("L = 1e9", mf.Problem(100, 1e9, 0.5), 10.0, None),
        measure("L = 1e60", mf.Problem(100, 1e60, 0.5), 10.0, None),
        measure("d = 1000, L = e^100", mf.Problem.from_alpha(1000, 0.1, 0.5), math.sqrt(1000), None),
    ]
    others = {
        "relu link, risk and gradient": lambda: mf.LinkRisk(mf.Problem(100, 20, 0.5), "relu", beta=1).value_and_gradient(GENERIC),
        "tanh by quadrature": lambda: mf.LinkRisk(mf.Problem(100, 20, 0.5), np.tanh, beta=1).value_and_gradient(GENERIC),
        "Bayes, gamma 0.9": lambda: mf.bayes_risk(mf.Problem(100, 20, 0.9)),
        "best lambda": lambda: mf.best_lambda(mf.Problem(100, 20, 0.9)),
    }
    extra = {name: 1e3 * seconds(call, 3) for name, call in others.items()}
    print(f"{'setting':<24}{'cold ms':>9}{'warm ms':>9}{'table ms':>10}{'build ms':>10}", end="")
    print(f"{'MC z':>7}{'MC/exact at 1e-4':>18}{'at 1e-12':>10}")
    for row in rows:
        line = f"{row['setting']:<24}{row['cold_ms']:>9.2f}{row['warm_ms']:>9.3f}{row['table_ms']:>10.4f}"
        line += f"{row['build_table_ms']:>10.1f}"
        if "z" in row:
            line += f"{row['z']:>7.2f}{row['ratio_1e-4']:>18.1e}{row['ratio_1e-12']:>10.0e}"
        print(line)
    for name, value in extra.items():
        print(f"{name:<32}{value:>9.1f} ms")
    record = {
        "rows": rows, "others_ms": extra, "machine": platform.processor() or platform.machine(), "numpy": np.__version__,
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }  # fmt: skip
    if arguments.json:
        write_atomically(arguments.json, (json.dumps(record, indent=1, allow_nan=False) + "\n").encode())


if __name__ == "__main__":
    main()
