"""Experiments small enough to interrupt: chained random numbers, a tensor each, as slow as asked for."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from maxaffine.lab import Experiment, Result, Table, Verdict


def units(parameters):
    return [{"id": f"unit-{i}", "i": i} for i in range(parameters["count"] * parameters["seeds"])]


def run(unit, parameters, context):
    rng = np.random.default_rng(unit["i"])
    total = 0.0
    for _ in range(5):
        time.sleep(parameters["wait"] / 5)
        total += float(rng.normal())
        context.report("total", total)
    if parameters["deadly"] == unit["id"]:
        mark = Path(os.environ["TOY_MARK"])
        if not mark.exists():
            mark.write_text("died once")
            os.kill(os.getpid(), signal.SIGKILL)
    if parameters["failing"] == unit["id"]:
        raise RuntimeError("this unit fails")
    return Result({"total": total, "nothing": float("nan"), "pair": (1, 2)}, {"sample": rng.normal(size=4)})


def verdict(results, parameters):
    return Verdict("reproduced", "The sum was found.", {"sum": sum(row["values"]["total"] for row in results)})


def draw(results, parameters, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3, 2))
    figure.subplots().plot([row["values"]["total"] for row in results])
    figure.savefig(path, format="png", metadata={"Software": None})


def table(results, parameters):
    return Table(("unit", "total"), tuple((row["unit"]["id"], row["values"]["total"]) for row in results))


def see(unit, parameters, context):
    images = context.data.load(unit["id"])
    return Result({"mean": float(images.train_images.mean()), "synthetic": images.synthetic})


def see_verdict(results, parameters):
    return Verdict("incomplete", "The images were looked at.", {})


PARAMETERS = {"count": 6, "seeds": 1, "wait": 0.0, "deadly": "", "failing": "", "scale": 1.0, "names": ["a"]}
WORDS = {"claim": "Numbers add up.", "paper": "none", "protocol": "Add **them**.", "rule": "Always reproduced."}
EXPERIMENT = Experiment(
    name="toy", version=1, **WORDS, parameters=PARAMETERS, quick={"count": 2},
    units=units, run=run, verdict=verdict, draw=draw, table=table,
)  # fmt: skip
NEWER = Experiment(
    name="toy", version=2, **WORDS, parameters=PARAMETERS, quick={"count": 2},
    units=units, run=run, verdict=verdict, draw=draw, table=table,
)  # fmt: skip
LOOKING = Experiment(
    name="looking", version=1, **WORDS, parameters={"datasets": ["mnist", "cifar10"]}, quick={},
    units=lambda parameters: [{"id": name} for name in parameters["datasets"]], run=see, verdict=see_verdict,
    draw=lambda results, parameters, path: draw([{"values": {"total": r["values"]["mean"]}} for r in results], parameters, path),
    table=lambda results, parameters: Table(("set", "mean"), tuple((r["unit"]["id"], r["values"]["mean"]) for r in results)),
    datasets=("mnist", "fashion-mnist", "cifar10"), splits="all of them are looked at",
)  # fmt: skip
