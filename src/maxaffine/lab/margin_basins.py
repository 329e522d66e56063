"""Experiment 14, margin basins: which choice attracts which start, and whether equal scores suffice."""

from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.lab.experiment import (
    EXPLAINED,
    NOT_REPRODUCED,
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
)
from maxaffine.lab.figures import figure
from maxaffine.margin.basins import basins, grid_of_starts
from maxaffine.margin.distance import NotSeparable
from maxaffine.margin.examples import multi, random_tokens, single
from maxaffine.margin.local import Optimality
from maxaffine.margin.report import CERTAIN
from maxaffine.margin.svm import att_svm
from maxaffine.report.style import BLUE, GREEN, ORANGE, RED

NEW = 1000  # seeds from here on: problems that no rule was made after


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
        problem = random_tokens(NEW + unit["seed"], unit["n"], unit["T"], unit["d"], equal=True)
        try:
            att_svm(problem.keys, problem.best)
        except NotSeparable:
            return Result({"separable": False})
        starts = np.random.default_rng(NEW + unit["seed"]).standard_normal((parameters["starts"], unit["d"]))
    found = basins(problem, starts, steps=parameters["steps"], further=parameters["further"])
    shares = {status.name.lower(): found.share(status) for status in Optimality}
    tensors = {"label": found.label} if unit["way"] == "grid" else {}
    several = [one for one in found.localities if one.status in (Optimality.LOCAL, Optimality.TIED)]
    kinds = [one.status.name.lower() for one in found.localities]
    labels = [kinds[int(k)] for k in found.label] if unit["way"] == "grid" else []
    held = found.held()
    return Result({
        **shares, "choices": len(found.choices), "several": len(several), "mass": float(found.mass.min()), "labels": labels,
        "vacuous": sum(bool(one.undetermined) for one in several), "starts": len(found.starts), "held": len(held),
        "certified": int((held >= CERTAIN).sum()), "surest": float(held.max()) if held.size else None,
    }, tensors)  # fmt: skip


def verdict(results: Rows, parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    known = [row["values"] for row in results if "choices" in row["values"]]
    total, held, certified = (sum(v[name] for v in known) for name in ("starts", "held", "certified"))
    alone = [row["values"]["global"] for row in results if row["unit"].get("n") == 1 and "global" in row["values"]]
    several = [row["values"] for row in results if row["unit"].get("n") == 3 and "global" in row["values"]]
    ends = {name: float(np.mean([v[name] for v in several])) for name in ("global", "local", "tied", "not")}
    (paper,) = select(results, data="single-local")
    vacuous = all(v["vacuous"] == v["several"] for v in several)
    numbers = {
        "starts": total, "still where it is not locally optimal": held, "of these in the direction of its machine": certified,
        "single input, global share": paper["global"], "one input, equal scores, global share": float(np.mean(alone)),
        **{f"three inputs, share of {name}": share for name, share in ends.items()},
        "every other end has an undetermined input": vacuous, "feasible random problems": len(alone) + len(several),
    }  # fmt: skip
    told = (
        f"Of {total:,} starts {held} are still at tokens that are not locally optimal, {certified} of them in the direction of "
        f"their machine. On the paper's single input {paper['global']:.0%} end globally optimal. With equal scores of all "
        f"others {np.mean(alone):.1%} do for one input; for three {ends['global']:.1%} do, "
        f"{ends['local']:.1%} end locally optimal and {ends['tied']:.1%} so up to ties."
    )
    if certified or abs(paper["global"] - 0.69) > 0.03 or np.mean(alone) < 1.0:
        return Verdict(NOT_REPRODUCED, told, numbers)
    if ends["global"] == 1.0:
        return Verdict(REPRODUCED, told, numbers)
    if vacuous:
        return Verdict(EXPLAINED + "inputs without a support pair, which nothing corrects", told, numbers)
    return Verdict(NOT_REPRODUCED, told, numbers)


def table(results: Rows, parameters: Parameters) -> Table:
    """Shares by problem."""
    header = ("problem", "global", "local", "local up to ties", "still elsewhere", "surest of these", "choices",
              "other local ends", "of these with an input that nothing decides")  # fmt: skip
    rows = [
        (row["unit"]["id"], v["global"], v["local"], v["tied"], v["not"], "-" if v["surest"] is None else v["surest"],
         v["choices"], v["several"], v["vacuous"])
        for row in results if "choices" in (v := row["values"])
    ]  # fmt: skip
    return Table(header, tuple(rows))


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """Both maps, and the shares of global ends."""
    colours = {"global": BLUE, "local": ORANGE, "tied": GREEN, "not": RED, "infeasible": RED}
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
            name = f"{n} input{'s' * (n > 1)} in {d} dimensions"
            axes.plot(np.arange(len(shares)), shares, "o-", ms=3, label=name, color=(BLUE, ORANGE, RED)[k])
        axes.set(xlabel="problem", title="share of starts that end globally optimal")
        axes.legend()


EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table)
