"""Experiment 15, margin meeting: the mean-field task trained to the end beside the max-margin law; and learned walls."""

from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.lab.experiment import (
    EXPLAINED,
    INCOMPLETE,
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
from maxaffine.margin.certificate import certificate
from maxaffine.margin.flow import gradient_flow, slope
from maxaffine.margin.local import is_locally_optimal
from maxaffine.margin.problem import Tokens
from maxaffine.margin.walls import line_walls, walls
from maxaffine.meanfield.data import sample
from maxaffine.meanfield.problem import Overlaps, Problem
from maxaffine.meanfield.risk import SoftmaxRisk
from maxaffine.report.style import BLUE, CURVES, GREEN, INK, ORANGE, logarithmic

NEW = 1000  # seeds from here on: samples and points that no rule was made after


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """Samples of the mean-field task, and partitions of the line with few and with many points."""
    made = [{"id": f"field-{seed}", "way": "field", "seed": seed} for seed in range(parameters["seeds"])]
    return made + [{"id": f"walls-{count}", "way": "walls", "points": count} for count in parameters["points"]]


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """|p|, cosines and the exact population risk along the flow; or margins of walls built, solved and trained."""
    if unit["way"] == "walls":
        sites = np.linspace(-0.8, 0.8, 5)[:, None]
        points = np.random.default_rng(NEW + unit["points"]).uniform(-1, 1, (unit["points"], 1))
        found = walls(sites, np.sort(points, axis=0), steps=parameters["steps"], enough=parameters["enough"])
        return Result({
            "norm": float(np.linalg.norm(found.trained)),
            "built": found.built_margin, "best": found.machine.margin, "trained": found.trained_margin,
            "construction": [-0.6, -0.2, 0.2, 0.6], "learned": line_walls(found.trained, found.keys).tolist(),
            "solved": line_walls(found.best, found.keys).tolist(), "supports": sorted({i for i, _ in found.machine.supports}),
        })  # fmt: skip
    task = Problem(d=parameters["d"], L=parameters["L"], gamma=parameters["gamma"])
    data = sample(task, parameters["samples"], NEW + unit["seed"])
    v = np.zeros(task.d)
    v[1] = 1.0  # v*, which the risk knows; the query is what is trained
    problem = Tokens(data.tokens, np.sign(data.y)[:, None] * (data.tokens @ v))
    flow = gradient_flow(problem, "log", None, parameters["end"], 61)
    locality = is_locally_optimal(problem, flow.selected)
    svm = locality.svm
    if svm is None:
        return Result({"why": locality.status.value})
    risks = []
    for p, size in zip(flow.p[1:], flow.length[1:], strict=True):
        u = p / size
        risk = SoftmaxRisk(task, lam=float(size))
        risks.append(risk.risk(Overlaps(float(u[0]), 1.0, float(u[1]), 0.0, float(u[1]))))
    return Result({
        "time": flow.time[1:].tolist(), "length": flow.length[1:].tolist(), "to mm": flow.cosine(svm.p)[1:].tolist(),
        "to u*": (flow.p[1:, 0] / flow.length[1:]).tolist(), "risk": risks, "p_mm": svm.length, "slope": slope(flow) / svm.length,
        "certified": certificate(flow.p[-1], svm).least_cosine, "status": locality.status.name.lower(),
        "informative": float((flow.selected == data.secret).mean()),
    })  # fmt: skip


def verdict(results: Rows, parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    field = [v for v in select(results, way="field") if "risk" in v]
    parts = select(results, way="walls")
    rises = [v["risk"][-1] / min(v["risk"]) for v in field]
    gains = [v["trained"] / v["built"] for v in parts]
    reached = [v["trained"] / v["best"] for v in parts]
    numbers = {
        "samples": len(field), "least risk over last risk, median": float(np.median(rises)) if rises else float("nan"),
        "slope over the law, median": float(np.median([v["slope"] for v in field])) if field else float("nan"),
        "least gain of margin by training": min(gains), "least share of the best margin": min(reached),
    }  # fmt: skip
    if not field:
        return Verdict(INCOMPLETE, "No sample ends at a separable choice.", numbers)
    told = (
        f"On samples of the mean-field task |p| grows by {np.median([v['slope'] for v in field]):.3f} of the law's slope, "
        f"and the population risk ends at {np.median(rises):.3g} times its least value on the way; "
        f"trained walls have {min(gains):.2f} to {max(gains):.2f} times the margin of the construction "
        f"at the same norm, {min(reached):.0%} of the best or more."
    )
    if min(gains) <= 1.0 or abs(float(np.median([v["slope"] for v in field])) - 1) >= 0.1:
        return Verdict(NOT_REPRODUCED, told, numbers)
    slow = min(reached) < parameters["enough"]
    return Verdict(EXPLAINED + "training that is slow to reach the best margin" if slow else REPRODUCED, told, numbers)


def table(results: Rows, parameters: Parameters) -> Table:
    """Samples, then walls."""
    header = (
        "run",
        "slope or margin built",
        "certified or margin trained",
        "cosine to u* or best margin",
        "least risk or walls learned",
        "last risk or walls solved",
    )
    rows: list[Any] = []
    for row in results:
        v = row["values"]
        if "risk" in v:
            rows.append((row["unit"]["id"], v["slope"], v["certified"], v["to u*"][-1], min(v["risk"]), v["risk"][-1]))
        elif "built" in v:
            learned, solved = (", ".join(f"{w:.3f}" for w in v[name]) for name in ("learned", "solved"))
            rows.append((row["unit"]["id"], v["built"], v["trained"], v["best"], learned, solved))
    return Table(header, tuple(rows))


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """Length, cosines, risk against T, and walls."""
    field, parts = [v for v in select(results, way="field") if "risk" in v], select(results, way="walls")
    with figure(path, "The mean-field task beside the max-margin law", verdict(results, parameters), 2, 2, (11.0, 7.6)) as (
        _,
        grid,
    ):
        (one, two), (three, four) = grid
        for k, v in enumerate(field):
            T, colour = np.array(v["time"]), CURVES[k % 8]
            one.plot(T, v["length"], color=colour, lw=1.3)
            one.plot(T, v["length"][-1] + v["p_mm"] * np.log(T / T[-1]), color=INK, lw=0.7, ls="--")
            two.plot(T, v["to mm"], color=BLUE, lw=1.0, label="to p_mm" if k == 0 else None)
            two.plot(T, v["to u*"], color=ORANGE, lw=1.0, label="to u*, the signal" if k == 0 else None)
            three.plot(T, v["risk"], color=colour, lw=1.3)
        one.set(title="|p| (dashed: |p_mm| log T)", ylim=(0, None))
        two.set(title="cosine of p", xlabel="T")
        two.legend()
        three.set(title="exact population risk at |p| and direction", xlabel="T")
        for axes in (one, two, three):
            logarithmic(axes, y=False)
            axes.set_xlim(1e-1, parameters["end"])
        logarithmic(three)
        for k, v in enumerate(parts):
            for name, colour, mark in (("construction", INK, "|"), ("solved", GREEN, "x"), ("learned", BLUE, "o")):
                size = {"|": 9, "x": 5, "o": 9}[mark]
                four.plot(v[name], [k] * 4, mark, color=colour, mfc="none", ms=size, label=name if k == 0 else None)
        four.set(title="walls of five cells on the line", xlabel="x", xlim=(-1, 1), ylim=(-0.4, len(parts)))
        four.set_yticks(range(len(parts)), labels=[f"{n} points" for n in parameters["points"]])
        four.legend(loc="upper center", ncols=3)


EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table)
