"""Experiment 10, margin direction: does descent go to the max-margin query of locally optimal tokens, certified by its margin?"""

from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.lab.experiment import Context, Experiment, Parameters, Result, Rows, Table, Unit, Verdict, sweep
from maxaffine.lab.figures import figure
from maxaffine.lab.margin_data import by_outcomes, problem_of
from maxaffine.margin.descent import gd, ngd
from maxaffine.margin.report import examine
from maxaffine.report.style import CURVES, logarithmic

CLAIMS = ("ATT-SVM is solved", "the direction is p_mm", "what is not locally optimal does not attract")


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """Every start of the paper's data, and seeds of random problems."""
    made = sweep("{data}-{seed}", data=["single", "single-local", "multi"], seed=range(6))
    return made + sweep("{data}-{seed}", data=["random", "sibling"], seed=range(parameters["seeds"]))


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """Flow, normalised descent until certified, and cosines at fixed steps, which decide nothing."""
    problem, start = problem_of(unit["data"], unit["seed"])
    found = examine(problem, "log", start, parameters["end"])
    svm, outcomes = found.svm, {one.claim: one.outcome for one in found.findings}
    steps = ngd(problem, "log", start, 0.1, 1000, 200)
    plain = gd(problem, "log", start, 1.0, 1000, 1000)
    return Result({
        "status": found.locality.status.name.lower(), "near": len(found.locality.near), "room": min(svm.room, 1e9),
        "undetermined": len(found.locality.undetermined), "flow": found.now.least_cosine, "certified": found.late.least_cosine,
        "cosine": found.late.cosine, "mass": float(1.0 - found.run.leak[-1].max()),
        "ngd": [float(c) for c in steps.cosine(svm.p)[1:]], "gd": float(plain.cosine(svm.p)[-1]),
        "outcomes": [outcomes.get(claim, "pass") for claim in CLAIMS],
    })  # fmt: skip


def verdict(results: Rows, parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    outcomes = [one for row in results for one in row["values"]["outcomes"]]
    least = min(row["values"]["certified"] for row in results)
    numbers = {
        "least certified cosine": least, "runs": len(results),
        "globally optimal": sum(row["values"]["status"] == "global" for row in results),
        "locally optimal": sum(row["values"]["status"] == "local" for row in results),
    }  # fmt: skip
    what = f"The margin certifies the direction of {len(results)} runs to a cosine of {least:.4f} at least"
    return by_outcomes(outcomes, what, "near-supports, which settle late", numbers)


def table(results: Rows, parameters: Parameters) -> Table:
    """One row per run."""
    header = ("data", "start or seed", "selected", "least slack", "certified by the flow", "certified by descent",
              "cosine of NGD at 200", "at 1000", "of GD at 1000", "on the chosen tokens")  # fmt: skip
    rows = []
    for row in results:
        unit, v = row["unit"], row["values"]
        rows.append(
            (
                unit["data"],
                unit["seed"],
                v["status"],
                v["room"],
                v["flow"],
                v["certified"],
                v["ngd"][0],
                v["ngd"][-1],
                v["gd"],
                v["mass"],
            )
        )
    return Table(header, tuple(rows))


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """Certified cosines, and cosines at fixed steps."""
    names = list(dict.fromkeys(row["unit"]["data"] for row in results))
    with figure(path, "Direction of descent, certified by its margin", verdict(results, parameters), 1, 2, (11.0, 4.6)) as (
        _,
        grid,
    ):
        left, right = grid[0]
        for k, name in enumerate(names):
            mine = [row["values"] for row in results if row["unit"]["data"] == name]
            at = k + np.linspace(-0.3, 0.3, len(mine))
            left.plot(at, [1 - v["certified"] for v in mine], "o", ms=4, color=CURVES[k])
            left.plot(at, [max(1 - v["flow"], 1e-9) for v in mine], "x", ms=4, color=CURVES[k])
            for v in mine:
                right.plot(
                    [200, 400, 600, 800, 1000], np.maximum(1 - np.array(v["ngd"]), 1e-12), color=CURVES[k], lw=0.8, alpha=0.7
                )
        left.axhline(1e-3, lw=0.8, ls="--", color="black")
        left.set(title="1 - certified cosine (x: flow, o: descent)")
        for axes in (left, right):
            logarithmic(axes, x=False)
        left.set_xticks(range(len(names)), labels=names)
        right.set(title="1 - cosine of normalised descent", xlabel="step")


EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table)
