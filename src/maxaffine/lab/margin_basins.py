"""Experiment 14, margin basins: which choice attracts which start, and whether equal scores suffice."""

from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.lab.experiment import REPRODUCED, Context, Experiment, Parameters, Result, Rows, Table, Unit, Verdict, select
from maxaffine.lab.figures import figure
from maxaffine.margin.basins import basins, grid_of_starts
from maxaffine.margin.distance import NotSeparable
from maxaffine.margin.examples import multi, random_tokens, single
from maxaffine.margin.local import Optimality
from maxaffine.margin.svm import att_svm
from maxaffine.report.style import BLUE, ORANGE, RED


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """Grids of starts on the paper's data, and random problems of equal other scores with one input or three."""
    made: list[dict[str, Any]] = [{"id": f"grid-{data}", "way": "grid", "data": data} for data in ("single-local", "multi")]
    for n, T, d in ((1, 5, 3), (3, 4, 4), (3, 4, 12)):
        made += [
            {"id": f"equal-{n}-{d}-{seed}", "way": "equal", "n": n, "T": T, "d": d, "seed": seed}
            for seed in range(parameters["seeds"])
        ]
    return made


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """Where normalised descent ends from many starts."""
    if unit["way"] == "grid":
        problem = single("local") if unit["data"] == "single-local" else multi()
        starts = grid_of_starts(3.0, parameters["grid"])
    else:
        problem = random_tokens(unit["seed"], unit["n"], unit["T"], unit["d"], equal=True)
        try:
            att_svm(problem.keys, problem.best)
        except NotSeparable:
            return Result({"separable": False})
        starts = np.random.default_rng(unit["seed"]).standard_normal((parameters["starts"], unit["d"]))
    found = basins(problem, starts, steps=parameters["steps"])
    shares = {status.name.lower(): found.share(status) for status in Optimality}
    tensors = {"label": found.label} if unit["way"] == "grid" else {}
    lonely = sum(bool(one.undetermined) for one in found.localities if one.status is Optimality.LOCAL)
    kinds = [one.status.name.lower() for one in found.localities]
    labels = [kinds[int(k)] for k in found.label] if unit["way"] == "grid" else []
    return Result(
        {**shares, "choices": len(found.choices), "vacuous": lonely, "mass": float(found.mass.min()), "labels": labels}, tensors
    )


def verdict(results: Rows, parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    known = [row["values"] for row in results if "choices" in row["values"]]
    astray = float(np.mean([v["not"] for v in known]))
    alone = [row["values"]["global"] for row in results if row["unit"].get("n") == 1 and "global" in row["values"]]
    several = [row["values"]["global"] for row in results if row["unit"].get("n") == 3 and "global" in row["values"]]
    (paper,) = select(results, data="single-local")
    numbers = {
        "starts that end where it is not locally optimal": astray, "single input, global share": paper["global"],
        "one input, equal scores, global share": float(np.mean(alone)), "three inputs, global share": float(np.mean(several)),
        "feasible random problems": len(alone) + len(several),
    }  # fmt: skip
    told = (
        f"{astray:.2%} of all starts end at tokens that are not locally optimal; "
        f"on the paper's single input {paper['global']:.0%} end globally optimal. "
        f"With equal scores of all other tokens {np.mean(alone):.1%} do for one input, {np.mean(several):.1%} for three."
    )
    if astray > 0.02 or abs(paper["global"] - 0.69) > 0.03:
        return Verdict("not reproduced", told, numbers)
    if np.mean(several) < 1.0 and np.mean(alone) == 1.0:
        return Verdict("reproduced, but explained by inputs without a support pair, which nothing corrects", told, numbers)
    return Verdict(REPRODUCED if np.mean(alone) == 1.0 else "not reproduced", told, numbers)


def table(results: Rows, parameters: Parameters) -> Table:
    """Shares by problem."""
    header = ("problem", "global", "local", "not locally optimal", "choices", "local ones with an input that nothing decides")
    rows = [(row["unit"]["id"], v["global"], v["local"], v["not"], v["choices"], v["vacuous"])
            for row in results if "choices" in (v := row["values"])]  # fmt: skip
    return Table(header, tuple(rows))


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """Both maps, and the shares of global ends."""
    colours = {"global": BLUE, "local": ORANGE, "not": RED, "infeasible": RED}
    line = np.linspace(-3, 3, parameters["grid"])
    first, second = (one.ravel() for one in np.meshgrid(line, line))
    with figure(path, "Which start goes to which choice", verdict(results, parameters), 1, 3, (12.0, 4.8)) as (_, grid):
        for axes, data in zip(grid[0][:2], ("single-local", "multi"), strict=True):
            (v,) = select(results, data=data)
            axes.scatter(first, second, c=[colours[name] for name in v["labels"]], s=6, marker="s")
            axes.set(title=f"{data}: global {v['global']:.0%}", aspect="equal")
        axes = grid[0][2]
        for k, (n, d) in enumerate(((1, 3), (3, 4), (3, 12))):
            shares = sorted(v["global"] for v in select(results, n=n, d=d) if "global" in v)
            axes.plot(
                np.arange(len(shares)), shares, "o-", ms=3, label=f"{n} inputs in {d} dimensions", color=(BLUE, ORANGE, RED)[k]
            )
        axes.set(xlabel="problem", title="share of starts that end globally optimal")
        axes.legend()


EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table)
