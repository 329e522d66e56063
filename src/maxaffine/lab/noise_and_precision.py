"""Noise against precision: is the inverse temperature that training finds under input noise the known best, 1 / sigma^2?"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.lab import trends
from maxaffine.lab.experiment import Cells, Context, Experiment, Parameters, Result, Rows, Table, Unit, Verdict, curves, sweep
from maxaffine.lab.figures import band, figure
from maxaffine.report.style import BLUE, GREEN, INK, ORANGE, QUIET, RED, SKY, logarithmic

TASKS = {
    "dictionary-2": "dictionary of 64 entries in the plane",
    "dictionary-6": "dictionary of 40 entries in 6 dimensions",
    "plane": "sin x + cos y, input noise, values fixed at f(p_j)",
    "plane-values": "sin x + cos y, input noise, values learned",
    "plane-labels": "sin x + cos y, label noise, values fixed at f(p_j)",
}
ENTRIES = {"dictionary-2": (64, 2), "dictionary-6": (40, 6)}
SLOPE, SLOPE_TOLERANCE = -2.0, 0.1  # in the dictionary task
PLANE_TOLERANCE = 0.2
RATIO = (0.8, 1.25)  # of learned to best inverse temperature, median over levels
LEAST_LOSS = 0.05  # nats: below it the best head names the entry almost surely, and nothing pins its temperature


def levels_of(task: str, parameters: Parameters) -> Array:
    """Noise levels, evenly spaced on a logarithmic axis."""
    low = float(parameters["lowest_plane"] if task.startswith("plane") else parameters["lowest_dictionary"])
    return np.geomspace(low, float(parameters["highest"]), int(parameters["levels"]))


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """One unit per task and seed; all noise levels are one stack."""
    return sweep("{task}-{seed}", task=TASKS, seed=range(int(parameters["seeds"])))


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """Train a head at every noise level and measure its effective inverse temperature."""
    work = _dictionary if unit["task"] in ENTRIES else _plane
    values = work(str(unit["task"]), int(unit["seed"]), parameters, context)
    return Result({name: trends.digits(column) for name, column in values.items()})


def _descend(learned: list[Any], loss: Callable[[int], Any], steps: int, parameters: Parameters, context: Context) -> None:
    """Adam without decay, cooled along half a cosine."""
    from maxaffine.lab import plane

    method = plane.optimiser("adam", learned, float(parameters["rate"]), 0.0)
    for step, losses in plane.descend(learned, loss, steps, method, cool=True):
        if step and step % 200 == 0:
            context.report("mean loss", float(losses.mean()))


def _dictionary(task: str, seed: int, parameters: Parameters, context: Context) -> dict[str, Array]:
    import torch

    from maxaffine.lab.dictionary import Task, dictionary, measure, start
    from maxaffine.lab.stacked import norms

    levels = levels_of(task, parameters)
    book = dictionary(*ENTRIES[task], seed)
    batch, renewed = int(parameters["batch"]), 50
    samples = Task(book, levels, renewed * batch, seed, context.device)
    weights = start(book, 8, len(levels), seed, context.device)
    objective = samples.objective(weights)
    places = torch.arange(renewed * batch, device=context.device).view(renewed, batch)

    def loss(step: int) -> torch.Tensor:
        if step and step % renewed == 0:
            samples.draw(step // renewed)
        return objective(places[step % renewed])

    _descend(list(weights.values()), loss, int(parameters["steps"]), parameters, context)
    final = Task(book, levels, int(parameters["samples"]), seed + 1000, context.device)
    found = measure(weights, final)
    return {"sigma": levels, "best": 1 / levels**2, "product_norm": norms(weights)["product_frobenius"], **found}


def _plane(task: str, seed: int, parameters: Parameters, context: Context) -> dict[str, Array]:
    import torch

    from maxaffine.lab import plane

    levels, device = levels_of(task, parameters), context.device
    side, batch = int(parameters["side"]), int(parameters["batch"])
    grid = plane.grid_tokens(side)
    tokens, sigma = plane.tensor(grid, device), plane.tensor(levels, device).view(-1, 1, 1)
    weights = plane.start(8, side * side, [seed] * len(levels), device, square=1.0)
    weights["values"] = plane.tensor(plane.waves(grid[:, :2]), device).expand(len(levels), -1).contiguous()
    generator = np.random.default_rng([seed, 9])

    def loss(_: int) -> torch.Tensor:
        z = generator.uniform(-1, 1, (batch, 2))
        drawn = torch.from_numpy(generator.standard_normal((batch, 2), dtype=np.float32)).to(device)
        clean, wanted = plane.tensor(z, device), plane.tensor(plane.waves(z), device)
        if task == "plane-labels":
            errors = plane.predict(weights, tokens, clean) - wanted - sigma[:, :, 0] * drawn[:, 0]
        else:
            errors = plane.predict(weights, tokens, clean + sigma * drawn) - wanted
        return errors.square().mean(dim=1)

    learned = [weights[name] for name in (("query", "key", "values") if task == "plane-values" else ("query", "key"))]
    _descend(learned, loss, int(parameters["plane_steps"]), parameters, context)
    points = plane.test_points(41)
    found = plane.describe(weights, tokens, plane.tensor(points, device), plane.tensor(plane.waves(points), device))
    noise = np.zeros_like(levels) if task == "plane-labels" else levels
    best = np.array([best_on_the_plane(side, value, int(parameters["samples"])) for value in noise])
    kept = ("inverse_temperature", "product_norm", "entropy", "l2_error")
    return {"sigma": levels, "best": best, **{name: found[name] for name in kept}}


def best_on_the_plane(side: int, sigma: float, samples: int) -> float:
    """The inverse temperature of least mean squared error for square cells with values f(p_j), by golden section on log R.

    For cells much smaller than sigma it is 1 / sigma^2, as in the dictionary; for cells much larger the width of a cell decides.
    """
    from maxaffine.lab import plane

    grid = plane.grid_tokens(side)
    values = plane.waves(grid[:, :2])
    generator = np.random.default_rng([0, 10])
    clean = generator.uniform(-1, 1, (min(samples, 4000), 2))
    scores = plane.square_scores(grid, clean + sigma * generator.standard_normal(clean.shape), 1.0)
    wanted = plane.waves(clean)

    def risk(log_r: float) -> float:
        attention = np.exp(np.exp(log_r) * scores)
        return float((((attention @ values) / attention.sum(axis=1) - wanted) ** 2).mean())

    ratio = (np.sqrt(5) - 1) / 2
    low, high = np.log(0.05), np.log(5000.0)
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    at_a, at_b = risk(a), risk(b)
    while high - low > 0.01:
        if at_a < at_b:
            high, b, at_b = b, a, at_a
            a = high - ratio * (high - low)
            at_a = risk(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + ratio * (high - low)
            at_b = risk(b)
    return float(np.exp((low + high) / 2))


def _decided(results: Rows, task: str, parameters: Parameters) -> NDArray[np.bool_]:
    """The levels at which the best temperature is pinned down: by the data, or by cells smaller than half of sigma."""
    sigma = levels_of(task, parameters)
    if task in ENTRIES:
        return np.asarray(curves(results, "least_loss", task=task).mean(axis=0) >= LEAST_LOSS)
    return np.asarray(sigma >= 4.0 / int(parameters["side"]) - 1e-12)


def summary(results: Rows, task: str, parameters: Parameters) -> dict[str, float]:
    """Slope of log R on log sigma with its interval over seeds, median ratio to the best, Spearman over all levels."""
    sigma, kept = levels_of(task, parameters), _decided(results, task, parameters)
    learned, best = curves(results, "inverse_temperature", task=task), curves(results, "best", task=task)
    if kept.sum() < 2:
        kept = np.ones_like(kept)
    slopes = np.array([trends.log_log_slope(sigma[kept], sample[kept]) for sample in learned])
    slope, half = trends.mean_and_interval(slopes)
    return {
        "levels": int(kept.sum()),
        "slope": float(slope),
        "slope_half_interval": float(half),
        "ratio": float(np.median((learned / best)[:, kept])),
        "spearman": trends.spearman(sigma, learned.mean(axis=0)),
        "fall": float(learned.mean(axis=0)[-1] / learned.mean(axis=0)[0]),
    }


def verdict(results: Rows, parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    if len(results) < len(units(parameters)):
        return Verdict("incomplete", "Some tasks or seeds are missing.", {"units": len(results)})
    found = {task: summary(results, task, parameters) for task in TASKS}
    numbers: dict[str, Any] = {
        f"{task}: {name}": round(value, 4) for task in TASKS for name, value in found[task].items() if np.isfinite(value)
    }
    known = all(
        abs(found[task]["slope"] - SLOPE) <= SLOPE_TOLERANCE and RATIO[0] <= found[task]["ratio"] <= RATIO[1] for task in ENTRIES
    )
    plane = found["plane"]
    follows = plane["spearman"] <= trends.DECLINE and abs(plane["slope"] - SLOPE) <= PLANE_TOLERANCE
    said = (
        f"Slope of log R on log sigma: {found['dictionary-2']['slope']:.2f} and {found['dictionary-6']['slope']:.2f} in the "
        f"dictionary tasks (learned over best R: {found['dictionary-2']['ratio']:.2f}, {found['dictionary-6']['ratio']:.2f}), "
        f"{plane['slope']:.2f} on the plane with fixed values, {found['plane-values']['slope']:.2f} with learned values; label "
        f"noise changes R by a factor {found['plane-labels']['fall']:.2f} where input noise changes it by {plane['fall']:.3f}."
    )
    if known and follows:
        return Verdict("reproduced", f"Training finds the inverse temperature 1 / sigma^2 where it is the best. {said}", numbers)
    if known:
        explained = "reproduced, but explained by a dictionary: on the plane training does not follow 1 / sigma^2"
        return Verdict(explained, f"The known answer is found in the dictionary tasks alone. {said}", numbers)
    return Verdict("not reproduced", f"Training does not find the known answer. {said}", numbers)


def table(results: Rows, parameters: Parameters) -> Table:
    """Learned against best inverse temperature, level by level."""
    header = ("task", "sigma", "1 / sigma^2", "best inverse temperature", "learned", "learned / best", "|W_K^T W_Q|_F")
    rows: list[Cells] = []
    for task in TASKS:
        learned, half = trends.mean_and_interval(curves(results, "inverse_temperature", task=task))
        best, norm = (curves(results, quantity, task=task).mean(axis=0) for quantity in ("best", "product_norm"))
        for i, sigma in enumerate(levels_of(task, parameters)):
            cells = (f"{sigma:.3f}", f"{1 / sigma**2:.4g}", f"{best[i]:.4g}", f"{learned[i]:.4g} ± {half[i]:.1g}")
            rows.append((task, *cells, f"{learned[i] / best[i]:.3f}", f"{norm[i]:.4g}"))
    return Table(header, rows)


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """Learned inverse temperature against sigma, task by task, with the known best; then the norms."""
    what = "Learned inverse temperature under noise, against the known best"
    with figure(path, what, verdict(results, parameters), 2, 3, (12.0, 8.0)) as (_, grid):
        for axes, task in zip(grid.ravel(), TASKS, strict=False):
            sigma, kept = levels_of(task, parameters), _decided(results, task, parameters)
            found = summary(results, task, parameters)
            if task != "plane-labels":
                axes.plot(sigma, 1 / sigma**2, color=INK, lw=1.0, ls=":", label="1 / sigma²")
            if task in ("plane", "plane-labels"):
                best = curves(results, "best", task=task).mean(axis=0)
                axes.plot(sigma, best, color=QUIET, lw=1.2, ls="--", label="best for these cells and values")
            label = f"learned: slope {found['slope']:.2f} ± {found['slope_half_interval']:.2f}"
            band(axes, sigma, curves(results, "inverse_temperature", task=task), BLUE, label, log=True, marker="o", ms=4)
            if not kept.all() and kept.any():
                axes.axvspan(sigma[0] * 0.93, sigma[kept][0] * 0.97, color=QUIET, alpha=0.12, lw=0)
            logarithmic(axes)
            axes.set_title(TASKS[task], fontsize=9)
            axes.set_xlabel("noise sigma (grey: not decided by the data)" if not kept.all() else "noise sigma")
            axes.set_ylabel("inverse temperature R")
            axes.legend(loc="best")
        axes = grid[1][2]
        for task, colour in zip(TASKS, (BLUE, SKY, RED, ORANGE, GREEN), strict=True):
            norms = curves(results, "product_norm", task=task)
            band(axes, levels_of(task, parameters), norms, colour, task, log=True, marker="o", ms=3)
        logarithmic(axes)
        axes.set_title("What weight norms show of it", fontsize=9)
        axes.set(xlabel="noise sigma", ylabel="|W_K^T W_Q|_F")
        axes.legend(loc="best")


EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table)
