"""Experiment 11, margin rate: |p| = |p_mm| log T and T (L - L_alpha) -> |p_mm|^2 under gradient flow."""

from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.lab.experiment import Context, Experiment, Parameters, Result, Rows, Table, Unit, Verdict, sweep
from maxaffine.lab.figures import figure
from maxaffine.lab.margin_data import by_outcomes, problem_of
from maxaffine.margin.flow import gradient_flow, slope
from maxaffine.margin.local import NEAR, is_locally_optimal
from maxaffine.report.style import CURVES, logarithmic


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """The paper's three inputs, and random problems, for every loss."""
    made = sweep("multi-0-{loss}", data=["multi"], seed=[2], loss=parameters["losses"])
    return made + sweep("random-{seed}-{loss}", data=["random"], seed=range(parameters["seeds"]), loss=parameters["losses"])


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """Slope over the last two decades and T times the gap, over what the law says."""
    problem, _ = problem_of(unit["data"], unit["seed"])
    found = gradient_flow(problem, unit["loss"], None, parameters["end"])
    locality = is_locally_optimal(problem, found.selected)
    svm = locality.svm
    if svm is None or not locality.attracts:
        return Result({"status": locality.status.name.lower(), "room": 0.0})
    return Result({
        "status": locality.status.name.lower(), "room": min(svm.room, 1e9), "length": svm.length,
        "slope": slope(found) / svm.length, "gap": float(found.time[-1] * found.gap[-1]) / svm.length**2,
        "curve": [float(v) for v in (found.time * found.gap / svm.length**2)[::4]], "times": [float(t) for t in found.time[::4]],
    })  # fmt: skip


def _outcome(value: float, judged: bool) -> str:
    off = abs(value - 1)
    return "pass" if judged and off <= 0.03 else "fail" if judged and off > 0.10 else "not yet"


def verdict(results: Rows, parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    judged = [row["values"] for row in results if row["values"]["room"] > NEAR]
    outcomes = [_outcome(v[name], True) for v in judged for name in ("slope", "gap")]
    late = len(results) - len(judged)
    worst = max((abs(v[name] - 1) for v in judged for name in ("slope", "gap")), default=float("nan"))
    numbers = {"runs with slack above .1": len(judged), "late by a near-support": late, "largest deviation": worst}
    if not judged:
        return Verdict("incomplete", "No run has a least slack above .1.", numbers)
    return by_outcomes(outcomes, f"Slope and gap are within {worst:.2%} of the law where the least slack is above .1",
                       "problems that settle later than T = 1e12", numbers)  # fmt: skip


def table(results: Rows, parameters: Parameters) -> Table:
    """One row per run."""
    header = ("data", "seed", "loss", "selected", "least slack", "slope over the law", "gap over the law")
    rows = [(row["unit"]["data"], row["unit"]["seed"], row["unit"]["loss"], row["values"]["status"], row["values"]["room"],
             row["values"].get("slope", "-"), row["values"].get("gap", "-")) for row in results]  # fmt: skip
    return Table(header, tuple(rows))


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """T times the gap over its limit, and both ratios against the least slack."""
    known = [row["values"] for row in results if "slope" in row["values"]]
    with figure(path, "How fast attention sharpens", verdict(results, parameters), 1, 2, (11.0, 4.6)) as (_, grid):
        left, right = grid[0]
        for k, v in enumerate(known):
            left.plot(v["times"], v["curve"], lw=0.9, color=CURVES[k % 8])
        left.set(xlabel="T", title="T (L - L_alpha) / |p_mm|^2", ylim=(0, 2), xlim=(1, parameters["end"]))
        logarithmic(left, y=False)
        room = np.array([v["room"] for v in known])
        for name, mark in (("slope", "o"), ("gap", "x")):
            right.plot(room, [v[name] for v in known], mark, ms=4, label=name)
        right.axhspan(0.97, 1.03, alpha=0.15)
        right.axvline(NEAR, lw=0.8, ls="--")
        right.set(xlabel="least slack", title="over the law")
        right.legend()


EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table)
