"""Experiment 16, ramp rate: the error of ramp heads against p, and of H heads against n H, with kappa(rho) as the constant."""

from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.lab.experiment import (
    REPRODUCED,
    Context,
    Experiment,
    Parameters,
    Result,
    Rows,
    Table,
    Unit,
    Verdict,
    select,
    sweep,
)
from maxaffine.lab.figures import figure
from maxaffine.ramp.constants import looser
from maxaffine.ramp.head import RampHead, RampHeads, ramp_head, ramp_heads
from maxaffine.ramp.matrices import head_matrices, heads_matrices
from maxaffine.report.style import CURVES, logarithmic

HARD = 400.0


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """One head by p, and H heads of n tokens, by sharpness."""
    made = sweep("p-{rho:g}-{p}", way=["p"], rho=parameters["rhos"], p=parameters["steps"])
    for n, H in parameters["sizes"]:
        made += sweep("nH-{rho:g}-{n}-{H}", way=["nH"], rho=parameters["rhos"], n=[n], H=[H])
    return made


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """The largest error over a grid with sites, middles, corners and outside, times the steps; and the literal matrices."""
    a, b = -25.0, 25.0
    rng = np.random.default_rng(0)
    if unit["way"] == "p":
        one = ramp_head(a, b, unit["p"], unit["rho"])
        head: RampHead | RampHeads = one
        total, literal = unit["p"], head_matrices(one, rng.standard_normal((4, 3)), rng.standard_normal(4))
    else:
        head = several = ramp_heads(a, b, unit["n"], unit["H"], unit["rho"])
        total = unit["H"] * (unit["n"] - 1)
        literal = heads_matrices(several, rng.standard_normal((unit["n"], 3)), rng.standard_normal(unit["n"]))
    rng = np.random.default_rng(0)
    n = 4 if unit["way"] == "p" else unit["n"]
    w, t, X = rng.standard_normal((n, 3)), rng.standard_normal(n), rng.standard_normal((3, n))
    s = a + head.step * np.concatenate(
        [np.arange(0, total + 1, 1 / 16), np.linspace(-4, 4, 8001), total + np.linspace(-4, 4, 8001)]
    )
    s = np.concatenate([s, [a - 100, b + 100]])
    worst = float(np.abs(head(s) - head.ramp(s)).max())
    apart = float(np.abs(literal(X)[0] - head((w * X.T).sum(axis=1) + t)).max())
    return Result(
        {"error": worst, "constant": worst * total / (b - a), "bound": head.bound() * total / (b - a), "literal": apart}
    )


def verdict(results: Rows, parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    spreads, above, numbers = {}, 0, {}
    for way, allowed in (("p", 0.01), ("nH", 0.02)):
        for rho in parameters["rhos"]:
            rows = select(results, way=way, rho=rho)
            constants = [v["constant"] for v in rows]
            # of a hard head the supremum is only approached, next to the walls
            spreads[way, rho] = (max(constants) - min(constants)) / max(constants) / allowed
            above += sum(v["constant"] > min(v["bound"], looser(rho) * (1 + 1e-9)) * (1 + 1e-12) for v in rows)
            numbers[f"constant by {way} at rho = {rho:g}"] = max(constants)
    literal = max(row["values"]["literal"] for row in results)
    worst = max(spreads.values())
    numbers |= {
        "largest spread, of what is allowed": worst,
        "above the proved bound": above,
        "literal against factorised": literal,
    }
    told = (
        f"sup error times the steps is constant to {worst:.0%} of what the rule allows, {above} of {len(results)} heads lie "
        f"above their proved bound, and literal matrices differ by {literal:.1e}."
    )
    ok = worst <= 1.0 and above == 0 and literal < 1e-11
    return Verdict(REPRODUCED if ok else "not reproduced", told[0].upper() + told[1:], numbers)


def table(results: Rows, parameters: Parameters) -> Table:
    """One row per head."""
    header = ("law", "rho", "p or n", "H", "sup error", "times steps / (b - a)", "proved", "literal - factorised")
    rows = []
    for row in results:
        u, v = row["unit"], row["values"]
        rows.append(
            (u["way"], u["rho"], u.get("p", u.get("n")), u.get("H", 1), v["error"], v["constant"], v["bound"], v["literal"])
        )
    return Table(header, tuple(rows))


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """Errors and bounds against the steps in all."""
    with figure(path, "Ramp heads: error against steps", verdict(results, parameters), 1, 2, (11.0, 4.6)) as (_, grid):
        for axes, way in zip(grid[0], ("p", "nH"), strict=True):
            for k, rho in enumerate(parameters["rhos"]):
                mine = [row for row in results if row["unit"]["way"] == way and row["unit"]["rho"] == rho]
                at = [row["unit"].get("p") or row["unit"]["H"] * (row["unit"]["n"] - 1) for row in mine]
                axes.plot(at, [row["values"]["error"] for row in mine], "o", ms=4, color=CURVES[k], label=f"rho = {rho:g}")
                order = np.argsort(at)
                bounds = np.array([row["values"]["bound"] / n * 50 for row, n in zip(mine, at, strict=True)])
                axes.plot(np.array(at)[order], bounds[order], color=CURVES[k], lw=0.8)
            axes.set(xlabel="p" if way == "p" else "H (n - 1)", ylabel="sup error (dots), proved (lines)")
            logarithmic(axes)
            axes.legend()


EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table)
