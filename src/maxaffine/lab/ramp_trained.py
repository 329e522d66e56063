"""Experiment 18, ramp trained: does training find what ramps can do? Three settings of the second paper on their data."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.lab.experiment import (
    NOT_REPRODUCED,
    REPRODUCED,
    Context,
    Experiment,
    Parameters,
    Result,
    Row,
    Rows,
    Table,
    Unit,
    Verdict,
    sweep,
)
from maxaffine.lab.figures import figure
from maxaffine.lab.ramp_layers import WIDTH, attention_model, map_model, ramp_attention, sequence_data, truncated_data
from maxaffine.lab.trends import log_log_slope, mean_and_interval
from maxaffine.report.style import CURVES, logarithmic

BASE = {"heads": 1, "p": 60, "range": 50.0}  # one of them varies at a time
KAPPA = 0.0619  # of the explicit head at its best sharpness
AXES = {"heads": "truncated", "p": "truncated", "range": "truncated", "sequence heads": "sequence", "sequence p": "sequence"}


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """Truncated linear targets by heads, p and range; attention maps; and sequence to sequence by heads and p."""
    seeds = range(parameters["seeds"])
    settings = {(k, value): BASE | {k: value} for k in BASE for value in parameters[k]}
    made: list[dict[str, Any]] = []
    seen: list[dict[str, Any]] = []
    for (axis, value), at in settings.items():
        if at not in seen:
            made += sweep(f"{axis}-{value:g}-{{seed}}", setting=["truncated"], **{k: [v] for k, v in at.items()}, seed=seeds)
            seen.append(at)
    made += sweep("map-{range:g}-{seed}", setting=["map"], range=parameters["map_ranges"], seed=seeds)
    many = {"setting": ["sequence"], "seed": seeds}
    made += sweep("sequence-heads-{heads}-{seed}", heads=parameters["sequence_heads"], n=[20], p=[20], width=[32], **many)
    made += sweep("sequence-p-{p}-{seed}", heads=[8], n=[10], p=parameters["sequence_p"], width=[16], **many)
    return made


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """Train one model and measure it on the rest of the data."""
    import torch

    torch.manual_seed(1234 + unit["seed"])
    rng = np.random.default_rng([1234, unit["seed"]])
    if unit["setting"] == "sequence":
        x, wanted = sequence_data(unit["n"], 5, parameters["sequences"], rng)
        model = attention_model(unit["n"], 5, unit["p"], unit["heads"], 5, 2, unit["width"])
        off = _trained(model, x, wanted, parameters["sequence_epochs"], unit["seed"], context)
        return Result({"mse": float((off**2).mean()), "target": float((off**2).mean()), "spread": _spread(wanted)})
    mapped = unit["setting"] == "map"
    n = 30 if mapped else 50
    x, s, y = truncated_data(n, 10, unit["range"], parameters["samples"], rng)
    where, width = (int(rng.integers(11)), 11) if mapped else (0, WIDTH)
    model = map_model(n, 10, unit["range"], where) if mapped else attention_model(n, 10, unit["p"], unit["heads"], WIDTH, 1)
    wanted = np.zeros((*y.shape, width))
    wanted[:, :, where] = y
    off = _trained(model, x, wanted, parameters["map_epochs" if mapped else "epochs"], unit["seed"], context)
    found = {"mse": float((off**2).mean()), "target": float((off[..., where] ** 2).mean()), "spread": _spread(y)}
    if mapped:
        rest = slice(_split(len(x)), None)
        with torch.no_grad():
            weights = model.attention(torch.tensor(x[rest], dtype=torch.float32))[0].numpy()
        found["apart"] = float(np.abs(weights - ramp_attention(s[rest], unit["range"], n)).sum(axis=-1).mean() / 2)
    return Result(found)


def _split(count: int) -> int:
    return int(0.8 * count)


def _spread(wanted: Array) -> float:
    """The mean squared error of saying, at every place, the mean of the training data."""
    split = _split(len(wanted))
    return float(((wanted[split:] - wanted[:split].mean(axis=0)) ** 2).mean())


def _trained(model: Any, x: Array, wanted: Array, epochs: int, seed: int, context: Context) -> Array:
    """Adam with step 1e-3 on batches of 32 of the first four fifths; what it is off by on the rest."""
    import torch

    inputs, targets = (torch.tensor(one, dtype=torch.float32) for one in (x, wanted))
    split, order = _split(len(x)), np.random.default_rng(seed)
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(epochs):
        for batch in np.array_split(order.permutation(split), math.ceil(split / 32)):
            loss = ((model(inputs[batch]) - targets[batch]) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        context.report("epoch", epoch + 1)
        context.report("loss", loss.item())
    with torch.no_grad():
        return np.asarray((model(inputs[split:]) - targets[split:]).numpy(), dtype=np.float64)


def _rows(results: Rows, axis: str) -> tuple[str, list[Row]]:
    """The name of the entry that varies along the axis, and the rows on it."""
    name, rows = axis.split()[-1], [row for row in results if row["unit"]["setting"] == AXES.get(axis, axis)]
    if axis in BASE:
        return name, [row for row in rows if all(row["unit"][k] == v for k, v in BASE.items() if k != name)]
    if axis in AXES:
        return name, [row for row in rows if row["unit"]["id"].startswith(f"sequence-{name}-")]
    return "range", rows


def curve(results: Rows, axis: str) -> tuple[list[float], list[list[float]]]:
    """Values of an axis, and per value the errors of the seeds, as the paper counts them."""
    name, rows = _rows(results, axis)
    at = sorted({row["unit"][name] for row in rows})
    return at, [[row["values"]["mse"] for row in rows if row["unit"][name] == value] for value in at]


def _built(unit: Unit) -> float:
    """The squared error of the explicit head of the same p and range, at most."""
    return float((KAPPA * unit["range"] / unit["p"]) ** 2)


def verdict(results: Rows, parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    numbers: dict[str, Any] = {}
    told = []
    for axis in AXES:
        at, errors = curve(results, axis)
        if len(at) < 2:
            continue
        slopes = [log_log_slope(at, list(one)) for one in zip(*errors, strict=True)]
        mean, half = (float(one) for one in mean_and_interval(slopes))
        numbers[f"slope against {axis}"] = mean
        if len(slopes) > 1:
            numbers[f"its interval, {axis}"] = half
        told.append(f"{mean:.2f} ± {half:.2f} against {axis}" if len(slopes) > 1 else f"{mean:.2f} against {axis} (one seed)")
    rows = [row for row in results if row["unit"]["setting"] == "truncated"]
    behind = [row["values"]["target"] / _built(row["unit"]) for row in rows]
    explained = [1.0 - row["values"]["target"] / row["values"]["spread"] for row in rows]
    numbers |= {
        "least MSE of the target over that of the explicit head": min(behind), "most": max(behind),
        "least share of the variance explained": min(explained), "largest": max(explained),
    }  # fmt: skip
    sentence = (
        f"Slopes of log MSE: {', '.join(told)}. Training explains {min(explained):.1%} to {max(explained):.1%} of the target's "
        f"variance, and its squared error is {min(behind):.3g} to {max(behind):.3g} times what the explicit head of the same "
        "size has at most: trained curves neither confirm nor refute the theorems."
    )
    # training tests optimisation; the claim judged is that it finds heads as good as the construction
    return Verdict(REPRODUCED if min(behind) <= 1.0 else NOT_REPRODUCED, sentence, numbers)


def table(results: Rows, parameters: Parameters) -> Table:
    """Means over seeds."""
    header = (
        "setting", "value", "seeds", "MSE as the paper counts it", "95 % of seeds", "MSE of the target", "of the mean",
        "attention apart",
    )  # fmt: skip
    cells = []
    for axis in (*AXES, "map"):
        name, rows = _rows(results, axis)
        for value, own in zip(*curve(results, axis), strict=True):
            values = [row["values"] for row in rows if row["unit"][name] == value]
            mean, half = mean_and_interval(own)
            target, spread = (float(np.mean([v[key] for v in values])) for key in ("target", "spread"))
            apart = float(np.mean([v["apart"] for v in values])) if "apart" in values[0] else "-"
            width = float(half) if len(own) > 1 else "-"
            cells.append((axis, value, len(own), float(mean), width, target, spread, apart))
    return Table(header, tuple(cells))


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """Test errors against heads, p, range, and for sequences."""
    title = "Trained attention on truncated linear targets, and on sequences"
    with figure(path, title, verdict(results, parameters), 1, len(AXES), (16.0, 4.6)) as (_, grid):
        for k, (axes, axis) in enumerate(zip(grid[0], AXES, strict=True)):
            at, errors = curve(results, axis)
            for value, own in zip(at, errors, strict=True):
                axes.plot([value] * len(own), own, "o", ms=4, color=CURVES[k])
            axes.plot(at, [np.exp(np.mean(np.log(own))) for own in errors], color=CURVES[k], lw=1.2)
            axes.set(xlabel=axis, title="test MSE" if k == 0 else "")
            logarithmic(axes)


EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table)
