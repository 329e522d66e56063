"""Experiment 12, margin path: the regularisation path ends on the line of gradient flow."""

from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.errors import Refused
from maxaffine.lab.experiment import Context, Experiment, Parameters, Result, Rows, Table, Unit, Verdict, sweep
from maxaffine.lab.figures import figure
from maxaffine.lab.margin_data import by_outcomes, problem_of
from maxaffine.margin.asymptote import asymptote
from maxaffine.margin.path import regularisation_path
from maxaffine.margin.svm import att_svm
from maxaffine.report.style import CURVES, logarithmic

ARRIVED = 1e-6


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """The paper's data and random problems."""
    made = sweep("{data}-{seed}", data=["single", "multi"], seed=[0])
    return made + sweep("random-{seed}", data=["random"], seed=range(parameters["seeds"]))


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """Distance of the path from the asymptote of the tokens that it selects, at growing radii."""
    problem, _ = problem_of(unit["data"], unit["seed"])
    try:
        path = regularisation_path(problem, parameters["radii"])
        svm = att_svm(problem.keys, path.selected)
        line = asymptote(problem, svm)
    except Refused as failure:
        return Result({"why": str(failure)})
    away = np.linalg.norm(path.offset(svm.p) - line.offset, axis=1)
    best = bool((path.selected == problem.best).all())
    return Result(
        {"distance": away.tolist(), "room": min(svm.room, 1e9), "best": best, "angle": float(away[-1] / path.radii[-1])}
    )


def verdict(results: Rows, parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    outcomes = []
    for row in results:
        d = row["values"].get("distance")
        outcomes.append("not yet" if d is None else "pass" if d[-1] < max(d[-2], ARRIVED) else "fail")
    known = [row["values"]["distance"][-1] for row in results if "distance" in row["values"]]
    numbers = {"largest distance at the end": max(known, default=float("nan"))}
    what = f"From R = {parameters['radii'][-2]:g} to {parameters['radii'][-1]:g} the path comes nearer to the line of the flow"
    return by_outcomes(outcomes, what, "paths on which minima compete or whose line is degenerate", numbers)


def table(results: Rows, parameters: Parameters) -> Table:
    """Distances by radius."""
    header = ("data", "seed", "best tokens", "least slack", *(f"R = {r:g}" for r in parameters["radii"]))
    rows = []
    for row in results:
        v = row["values"]
        cells = v.get("distance", ["-"] * len(parameters["radii"]))
        rows.append((row["unit"]["data"], row["unit"]["seed"], str(v.get("best", "-")), v.get("room", "-"), *cells))
    return Table(header, tuple(rows))


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """Distance from the line against the radius."""
    with figure(path, "Regularisation path and gradient flow share a line", verdict(results, parameters), 1, 1, (7.6, 4.8)) as (
        _,
        grid,
    ):
        axes = grid[0][0]
        for k, row in enumerate(results):
            if "distance" in row["values"]:
                axes.plot(
                    parameters["radii"], np.maximum(row["values"]["distance"], 1e-12), "o-", ms=3, lw=1, color=CURVES[k % 8]
                )
        axes.set(xlabel="R", ylabel="distance of p_R from the line, across p_mm")
        logarithmic(axes)


EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table)
