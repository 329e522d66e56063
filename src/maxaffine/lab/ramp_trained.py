"""Experiment 18, ramp trained: does training find what ramps can do? Three settings of the second paper on their data."""

from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.lab.experiment import REPRODUCED, Context, Experiment, Parameters, Result, Rows, Table, Unit, Verdict, sweep
from maxaffine.lab.figures import figure
from maxaffine.lab.trends import log_log_slope, mean_and_interval
from maxaffine.report.style import CURVES, logarithmic

AXES = ("heads", "p", "range")


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """Truncated linear targets by heads, p and range; attention maps; and sequence to sequence."""
    made: list[dict[str, Any]] = []
    for axis in AXES:
        for value in parameters[axis]:
            at = {"heads": 1, "p": 60, "range": 50.0, axis: value}
            made += sweep(f"{axis}-{value:g}-{{seed}}", setting=["truncated"], axis=[axis], **{k: [v] for k, v in at.items()},
                          seed=range(parameters["seeds"]))  # fmt: skip
    made += sweep("map-{range:g}-{seed}", setting=["map"], axis=["map"], range=[0.5, 1.5, 3.0], seed=range(parameters["seeds"]))
    for heads in parameters["sequence_heads"]:
        made += sweep(
            f"sequence-{heads}-{{seed}}",
            setting=["sequence"],
            axis=["sequence"],
            heads=[heads],
            p=[20],
            seed=range(parameters["seeds"]),
        )
    return made


def _truncated(unit: Unit, count: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """x ~ U[-5, 5], w and t normal by position, y = clamp(w.x + t) in output 0 and zeros in the others."""
    n, d = 50, 10
    w, t = rng.standard_normal((n, d)), rng.standard_normal(n)
    x = rng.uniform(-5, 5, (count, n, d))
    return x, np.clip((x * w).sum(axis=2) + t, -unit["range"] / 2, unit["range"] / 2)


def _sequence(count: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """X ~ U[0, 1] of 20 x 5, a two-layer ReLU net of width 10 on all of it."""
    x = rng.uniform(0, 1, (count, 20, 5))
    A, b = rng.standard_normal((100, 10)) / 10.0, rng.standard_normal(10)
    B = rng.standard_normal((10, 100)) / np.sqrt(10.0)
    return x, (np.maximum(x.reshape(count, 100) @ A + b, 0.0) @ B).reshape(count, 20, 5)


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """Train one model and measure it on the rest of the data."""
    import torch

    torch.manual_seed(unit["seed"])
    rng = np.random.default_rng([1234, unit["seed"]])
    if unit["setting"] == "map":
        return _map(unit, parameters, rng)
    many, epochs = parameters["samples"], parameters["epochs"]
    x, y = _sequence(parameters["sequences"], rng) if unit["setting"] == "sequence" else _truncated(unit, many, rng)
    if unit["setting"] == "sequence":
        epochs = parameters["sequence_epochs"]
    inputs, wanted = (torch.tensor(one, dtype=torch.float32) for one in (x, y if y.ndim == 3 else y[..., None]))
    layers, out = (2, 5) if unit["setting"] == "sequence" else (1, 32)
    model = _model(x.shape[1], x.shape[2], unit["p"], unit["heads"], out, layers)
    if out == 32:
        wanted = torch.nn.functional.pad(wanted, (0, 31))
    split = int(0.8 * len(x))
    optimiser, order = torch.optim.Adam(model.parameters(), 1e-3), np.random.default_rng(unit["seed"])
    for epoch in range(epochs):
        for batch in np.array_split(order.permutation(split), max(1, split // 32)):
            loss = ((model(inputs[batch]) - wanted[batch]) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        context.report("loss", float(loss))
        if epoch % 10 == 9:
            context.report("epoch", epoch + 1)
    with torch.no_grad():
        off = model(inputs[split:]) - wanted[split:]
    # the first output is the target of the truncated setting; of sequences all are
    own = off[..., 0] if out == 32 else off
    spread = float((wanted[split:] - wanted[:split].mean(dim=0))[..., : 1 if out == 32 else 5].pow(2).mean())
    return Result({"mse": float((off**2).mean()), "target": float((own**2).mean()), "spread": spread})


def _model(n: int, d: int, p: int, heads: int, out: int, layers: int) -> Any:
    """A linear map that lengthens n tokens to p, attention of hidden width 32, and n tokens read out."""
    import torch

    class Attend(torch.nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.up, self.longer = torch.nn.Linear(width, 32), torch.nn.Linear(n, p)
            self.attention = torch.nn.MultiheadAttention(32, heads, batch_first=True)
            self.back = torch.nn.Linear(p, n)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            z = self.longer(self.up(x).transpose(1, 2)).transpose(1, 2)
            y = self.attention(z, z, z, need_weights=False)[0]
            read: torch.Tensor = self.back(y.transpose(1, 2))
            return read.transpose(1, 2)

    body = [Attend(d if i == 0 else 32) for i in range(layers)]
    return torch.nn.Sequential(*body, *([torch.nn.Linear(32, out)] if out != 32 else []))


def _map(unit: Unit, parameters: Parameters, rng: np.random.Generator) -> Result:
    """Keys and values are the theorem's (beta = 25), the query is learned: how far attention is from the ramp's own."""
    import torch

    n = p = 30
    half = unit["range"] / 2
    w, t = rng.standard_normal((n, 10)), rng.standard_normal(n)
    x = rng.uniform(-1, 1, (parameters["samples"], n, 10))
    s = (x * w).sum(axis=2) + t
    sites = torch.linspace(-half, half, p)
    k = torch.arange(p, dtype=torch.float32)
    query = torch.nn.Parameter(torch.zeros(n, 11))
    data = torch.tensor(np.concatenate([x, np.ones((*x.shape[:2], 1))], axis=2), dtype=torch.float32)
    wanted, exact = torch.tensor(np.clip(s, -half, half), dtype=torch.float32), torch.tensor(s, dtype=torch.float32)

    def attention(said: torch.Tensor) -> torch.Tensor:
        return torch.softmax(25.0 * (2 * k * said[..., None] - k * (sites + sites[0])), dim=-1)

    optimiser, split = torch.optim.Adam([query], 1e-2), int(0.8 * len(x))
    for _ in range(parameters["map_steps"]):
        loss = ((attention((data[:split] * query).sum(dim=2)) @ sites - wanted[:split]) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        learned, built = attention((data[split:] * query).sum(dim=2)), attention(exact[split:])
        off = learned @ sites - wanted[split:]
        apart = float((learned - built).abs().sum(dim=-1).mean() / 2)
        spread = float((wanted[split:] - wanted[:split].mean(dim=0)).pow(2).mean())
    return Result({"mse": float((off**2).mean()), "target": float((off**2).mean()), "spread": spread, "apart": apart})


def _curve(results: Rows, axis: str) -> tuple[list[float], list[list[float]]]:
    """Values of an axis, and per value the errors of the seeds."""
    rows = [row for row in results if row["unit"]["axis"] == axis]
    name = "heads" if axis == "sequence" else "range" if axis == "map" else axis
    at = sorted({row["unit"][name] for row in rows})
    return at, [[row["values"]["mse"] for row in rows if row["unit"][name] == value] for value in at]


def _slope(results: Rows, axis: str) -> tuple[float, float]:
    """The slope of log MSE against the logarithm of the axis, and the half width of its interval over seeds."""
    at, errors = _curve(results, axis)
    if len(at) < 2:
        return float("nan"), float("nan")
    mean, half = mean_and_interval([log_log_slope(at, curve) for curve in zip(*errors, strict=True)])
    return float(mean), float(half)


def verdict(results: Rows, parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    numbers: dict[str, Any] = {}
    told = []
    for axis in (*AXES, "sequence"):
        mean, half = _slope(results, axis)
        numbers[f"slope against {axis}"], numbers[f"its interval, {axis}"] = mean, half
        told.append(f"{mean:.2f} ± {half:.2f} against {axis}")
    found = [row["values"] for row in results if row["unit"]["setting"] == "truncated"]
    p = min(row["unit"]["p"] for row in results if row["unit"]["setting"] == "truncated")
    built = (0.0619 * 50.0 / p) ** 2
    numbers |= {"least MSE of the target, trained": min(v["target"] for v in found), "of the explicit head, at most": built}
    beats = numbers["least MSE of the target, trained"] <= built
    sentence = (
        f"Slopes of log MSE: {', '.join(told)}. Training reaches a target MSE of "
        f"{numbers['least MSE of the target, trained']:.3g} at best, "
        f"the explicit head of {p} steps has {built:.2g} at most: trained curves neither confirm nor refute the theorems."
    )
    # training tests optimisation; the claim judged is that it finds heads as good as the construction
    return Verdict(REPRODUCED if beats else "not reproduced", sentence, numbers)


def table(results: Rows, parameters: Parameters) -> Table:
    """Means over seeds."""
    header = (
        "setting",
        "value",
        "seeds",
        "MSE as the paper counts it",
        "95 % of seeds",
        "MSE of the target",
        "of the mean",
        "attention apart",
    )
    rows = []
    for axis in (*AXES, "map", "sequence"):
        at, errors = _curve(results, axis)
        name = "heads" if axis == "sequence" else "range" if axis == "map" else axis
        for value, own in zip(at, errors, strict=True):
            values = [row["values"] for row in results if row["unit"]["axis"] == axis and row["unit"][name] == value]
            mean, half = mean_and_interval(own)
            target, spread = (float(np.mean([v[key] for v in values])) for key in ("target", "spread"))
            apart = float(np.mean([v["apart"] for v in values])) if "apart" in values[0] else "-"
            rows.append((axis, value, len(own), float(mean), float(half), target, spread, apart))
    return Table(header, tuple(rows))


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """Test errors against heads, p, range."""
    with figure(path, "Trained attention on truncated linear targets", verdict(results, parameters), 1, 4, (14.0, 4.4)) as (
        _,
        grid,
    ):
        for k, (axes, axis) in enumerate(zip(grid[0], (*AXES, "sequence"), strict=True)):
            at, errors = _curve(results, axis)
            for value, own in zip(at, errors, strict=True):
                axes.plot([value] * len(own), own, "o", ms=4, color=CURVES[k])
            axes.plot(at, [np.exp(np.mean(np.log(own))) for own in errors], color=CURVES[k], lw=1.2)
            axes.set(xlabel=axis, title="test MSE")
            logarithmic(axes)


EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table)
