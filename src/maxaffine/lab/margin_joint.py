"""Experiment 13, margin joint: query and value trained together, and the fan of directions by the ratio kappa of their radii."""

from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.lab.experiment import Context, Experiment, Parameters, Result, Rows, Table, Unit, Verdict, sweep
from maxaffine.lab.figures import figure
from maxaffine.lab.margin_data import by_outcomes
from maxaffine.margin.examples import joint
from maxaffine.margin.joint import joint_flow, joint_ngd, joint_path, joint_svm, limit_direction
from maxaffine.report.style import BLUE, ORANGE


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """Paths by kappa, the flow, and the authors' normalised descent, on tight and loose data."""
    kinds = ["tight", "loose"]
    made = sweep("path-{kind}-{kappa:g}", way=["path"], kind=kinds, kappa=parameters["kappas"])
    return made + sweep("{way}-{kind}", way=["flow", "descent"], kind=kinds)


def _cosine(a: Array, b: Array) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """Cosines to the machines, and to the direction that kappa says."""
    problem = joint(unit["kind"])
    machines = joint_svm(problem)
    if unit["way"] == "path":
        law = limit_direction(problem, unit["kappa"], machines)
        try:
            v, p = joint_path(problem, unit["kappa"], parameters["radius"])
        except Refused as failure:
            return Result({"why": str(failure)})
        more = {"law": _cosine(p, law), "angle law": float(np.arccos(min(1.0, _cosine(law, machines.relaxed.p))))}
    elif unit["way"] == "flow":
        found = joint_flow(problem, parameters["end"])
        v, p = found.v[-1], found.p[-1]
        leaks = found.leak[-1] * np.log(parameters["end"]) ** 2
        more = {"law": _cosine(p, machines.relaxed.p), "leak log^2 T": leaks.tolist(), "length": float(np.linalg.norm(p))}
    else:
        found = joint_ngd(problem, 0.1, 200)
        v, p = found.v[-1], found.p[-1]
        more = {"law": _cosine(p, machines.relaxed.p)}
    relaxed, mm = _cosine(p, machines.relaxed.p), _cosine(p, machines.p.p)
    return Result(
        {**more, "v": _cosine(v, machines.v.p), "relaxed": relaxed, "mm": mm, "angle": float(np.arccos(min(1.0, relaxed)))}
    )


def verdict(results: Rows, parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    outcomes = []
    for row in results:
        v = row["values"]
        outcomes.append("not yet" if "why" in v else "pass" if min(v["law"], v["v"]) > 0.999 else "fail")
    known = [row["values"] for row in results if "why" not in row["values"]]
    numbers = {"least cosine of p": min(v["law"] for v in known), "least cosine of v": min(v["v"] for v in known)}
    what = f"p and v are within a cosine of {min(numbers.values()):.5f} of the directions that the ratio of their radii says"
    return by_outcomes(outcomes, what, "paths that could not be followed", numbers)


def table(results: Rows, parameters: Parameters) -> Table:
    """One row per run."""
    header = (
        "run",
        "data",
        "kappa",
        "cosine to the law",
        "cosine of v to v_mm",
        "of p to p_relax",
        "of p to p_mm",
        "angle to p_relax",
        "leak log^2 T",
    )
    rows = []
    for row in results:
        u, v = row["unit"], row["values"]
        if "why" not in v:
            leaks = ", ".join(f"{one:.3g}" for one in v.get("leak log^2 T", [])) or "-"
            rows.append((u["way"], u["kind"], u.get("kappa", "-"), v["law"], v["v"], v["relaxed"], v["mm"], v["angle"], leaks))
    return Table(header, tuple(rows))


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """The fan: the angle of p to p_relax by kappa."""
    with figure(
        path, "Joint training: which direction by the ratio of the radii", verdict(results, parameters), 1, 1, (7.6, 4.8)
    ) as (_, grid):
        axes = grid[0][0]
        for kind, colour in (("loose", BLUE), ("tight", ORANGE)):
            mine = [
                row
                for row in results
                if row["unit"]["way"] == "path" and row["unit"]["kind"] == kind and "why" not in row["values"]
            ]
            kappas = [row["unit"]["kappa"] for row in mine]
            axes.plot(
                kappas,
                [row["values"]["angle"] for row in mine],
                "o",
                color=colour,
                label=f"{kind}, at R = {parameters['radius']:g}",
            )
            axes.plot(kappas, [row["values"]["angle law"] for row in mine], color=colour, lw=1, label=f"{kind}, law")
        axes.set(xlabel="kappa = |v| / |p|", ylabel="angle of p to p_relax")
        axes.legend()


EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table)
