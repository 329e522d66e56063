"""Temperature sweep: does training sharpen the partition, and is sharper better?"""

from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.lab import trends
from maxaffine.lab.experiment import Cells, Context, Experiment, Parameters, Result, Rows, Table, Unit, Verdict, select
from maxaffine.lab.figures import band, figure
from maxaffine.report.style import BLUE, GREEN, ORANGE, PURPLE, RED, SKY, logarithmic

# Ways of training with a free temperature.
NAMES = {"adam": "Adam", "sgd": "SGD", "adam-decay": "AdamW, decay", "sgd-decay": "SGD, decay"}


def temperatures(parameters: Parameters) -> Array:
    """The inverse temperatures that are held fixed."""
    return np.geomspace(float(parameters["lowest"]), float(parameters["highest"]), int(parameters["temperatures"]))


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """Four ways of training with a free temperature, then one unit per temperature held fixed; every unit has all seeds."""
    found: list[dict[str, Any]] = [{"id": name, "way": name} for name in NAMES]
    for number, value in enumerate(temperatures(parameters)):
        found.append({"id": f"held-{number:02d}", "way": "held", "inverse_temperature": float(f"{value:.6g}")})
    return found


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """Train all seeds at once and describe them at log-spaced steps."""
    import torch

    from maxaffine.lab import plane

    way, device = str(unit["way"]), context.device
    kind = "sgd" if way.startswith("sgd") else "adam"
    rate, decay = float(parameters[f"{kind}_rate"]), float(parameters[f"{kind}_decay"]) if way.endswith("decay") else 0.0
    seeds = list(range(int(parameters["seeds"])))
    side = int(parameters["side"])
    tokens = plane.tensor(plane.grid_tokens(side), device)
    weights = plane.start(int(parameters["width"]), side * side, seeds, device, 1.0 if way == "held" else None)
    held = torch.full((len(seeds),), float(unit["inverse_temperature"]), device=device) if way == "held" else None
    points = plane.test_points(int(parameters["test_side"]))
    probe, wanted = plane.tensor(points, device), plane.tensor(plane.waves(points), device)
    samples = np.random.default_rng([0, 7])
    batch = int(parameters["batch"])

    def loss(_: int) -> torch.Tensor:
        z = samples.uniform(-1, 1, (batch, 2))
        errors = plane.predict(weights, tokens, plane.tensor(z, device), held) - plane.tensor(plane.waves(z), device)
        return errors.square().mean(dim=1)

    steps = int(parameters["held_steps"] if held is not None else parameters["steps"])
    when = plane.moments(steps, int(parameters["moments"]) if held is None else 10)
    learned = list(weights.values())
    traces: dict[str, list[Array]] = {}
    for step, _ in plane.descend(learned, loss, steps, plane.optimiser(kind, learned, rate, decay)):
        if step in when:
            found = plane.describe(weights, tokens, probe, wanted, held)
            for name, column in found.items():
                traces.setdefault(name, []).append(column)
            context.report("mean L2 error", float(found["l2_error"].mean()))
    values: dict[str, Any] = {"steps": when}
    values |= {name: [trends.digits(column, 6) for column in trace] for name, trace in traces.items()}
    if held is not None:
        values["best_values"] = _best_values(plane, side, points, float(unit["inverse_temperature"]))
    return Result(values, {name: np.array(trace) for name, trace in traces.items()})


def _best_values(plane: Any, side: int, points: Array, inverse_temperature: float) -> dict[str, float]:
    """Errors of square cells at this temperature with the values of least squares: what training could reach."""
    tokens = plane.grid_tokens(side)
    inputs = np.random.default_rng([0, 8]).uniform(-1, 1, (20_000, 2))
    values = plane.least_squares_values(tokens, inputs, plane.waves(inputs), inverse_temperature)
    attention = np.exp(plane.square_scores(tokens, points, inverse_temperature))
    errors = np.abs(attention @ values / attention.sum(axis=1) - plane.waves(points))
    return {"sup_error": float(errors.max()), "l2_error": float(np.sqrt((errors**2).mean()))}


def _trace(results: Rows, way: str, quantity: str) -> tuple[Array, Array]:
    """Steps and values (steps, seeds) of one way of training."""
    values = select(results, way=way)[0]
    return np.array(values["steps"], dtype=np.float64), np.array(values[quantity], dtype=np.float64)


def _at_the_end(results: Rows, quantity: str) -> Array:
    """(temperatures, seeds) after the last step."""
    return np.array([values[quantity][-1] for values in select(results, way="held")], dtype=np.float64)


def verdict(results: Rows, parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    if len(results) < len(units(parameters)):
        return Verdict("incomplete", "Some ways of training are missing.", {"units": len(results)})
    numbers: dict[str, Any] = {}
    grows = sharpens = True
    for way in ("adam", "sgd"):
        for quantity in ("product_norm", "inverse_temperature", "entropy"):
            trace = _trace(results, way, quantity)[1]
            sign = -1 if quantity == "entropy" else 1
            agreeing = int((sign * (trace[-1] - trace[0]) > 0).sum())
            numbers[f"{way}: {quantity} at the start"] = round(float(trace[0].mean()), 4)
            numbers[f"{way}: {quantity} at the end"] = round(float(trace[-1].mean()), 4)
            numbers[f"{way}: seeds in which {quantity} {'falls' if sign < 0 else 'grows'}"] = agreeing
            grows &= agreeing == trace.shape[1] or quantity != "product_norm"
            sharpens &= agreeing == trace.shape[1] or quantity == "product_norm"
    held = temperatures(parameters)
    errors = {name: _at_the_end(results, name).mean(axis=1) for name in ("l2_error", "sup_error")}
    rho = {name: trends.spearman(held, curve) for name, curve in errors.items()}
    best = {name: float(held[int(np.argmin(curve))]) for name, curve in errors.items()}
    for name in errors:
        numbers[f"Spearman of held inverse temperature with {name}"] = round(rho[name], 4)
        numbers[f"held inverse temperature of least {name}"] = float(f"{best[name]:.4g}")
    limit = [float(values["best_values"]["l2_error"]) for values in select(results, way="held")]
    numbers["least L2 error of square cells with the best values"] = float(f"{min(limit):.4g}")
    numbers["inverse temperature where it is"] = float(f"{held[int(np.argmin(limit))]:.4g}")
    better = all(value <= trends.DECLINE for value in rho.values())
    said = (
        f"The inverse temperature goes from {numbers['adam: inverse_temperature at the start']:.2g} to "
        f"{numbers['adam: inverse_temperature at the end']:.3g} with Adam and to "
        f"{numbers['sgd: inverse_temperature at the end']:.3g} with SGD; held fixed, the least L2 error is at "
        f"{best['l2_error']:.3g}, and Spearman of inverse temperature with error is {rho['l2_error']:.2f} (L2) and "
        f"{rho['sup_error']:.2f} (sup). Square cells with the best values err least, {min(limit):.2g} in L2, at "
        f"{held[int(np.argmin(limit))]:.3g}: soft attention can do far better than training finds."
    )
    if not (grows and sharpens):
        what = "norms do not grow" if not grows else "partitions do not sharpen"
        return Verdict("not reproduced", f"In some seed {what}. {said}", numbers)
    if better:
        return Verdict("reproduced", f"Norms grow, partitions sharpen, and sharper is better. {said}", numbers)
    explained = "reproduced, but explained by a best temperature that is finite"
    return Verdict(explained, f"Norms grow and partitions sharpen from their start, but sharper is not better. {said}", numbers)


def table(results: Rows, parameters: Parameters) -> Table:
    """Where every way of training ends."""
    header = ("training", "|W_K^T W_Q|_F", "inverse temperature", "entropy (nats)", "median margin", "L2 error", "sup error")
    quantities = ("product_norm", "inverse_temperature", "entropy", "margin_50", "l2_error", "sup_error")
    rows: list[Cells] = []
    for row in results:
        held = row["unit"].get("inverse_temperature")
        name = row["unit"]["id"] if held is None else f"Adam, held at {held:.3g}"
        rows.append((name, *(trends.in_words(row["values"][quantity][-1]) for quantity in quantities)))
    return Table(header, rows)


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """Norm, temperature, entropy and error along training; error against the temperature held fixed."""
    colours = {"adam": BLUE, "sgd": RED, "adam-decay": SKY, "sgd-decay": ORANGE}
    panels = (
        ("product_norm", "|W_K^T W_Q|_F", True),
        ("inverse_temperature", "effective inverse temperature", True),
        ("entropy", "mean attention entropy (nats)", False),
        ("l2_error", "L2 error", True),
    )
    what = "One attention head learns sin x + cos y: norms, temperature and error"
    with figure(path, what, verdict(results, parameters), 2, 3, (12.0, 8.0)) as (_, grid):
        for axes, (quantity, label, log) in zip(grid.ravel(), panels, strict=False):
            for way, colour in colours.items():
                steps, values = _trace(results, way, quantity)
                band(axes, steps[1:], values[1:].T, colour, NAMES[way], log=log)
            logarithmic(axes, True, log)
            axes.set(xlabel="training step", ylabel=label)
        grid[0][0].legend(loc="best")
        axes = grid[1][1]
        for quantity, dash in (("margin_5", ":"), ("margin_50", "-"), ("margin_95", "--")):
            for way in ("adam", "sgd"):
                steps, values = _trace(results, way, quantity)
                shown = f"{NAMES[way]}, {quantity[7:]}%"
                axes.plot(steps[1:], values[1:].mean(axis=1), color=colours[way], ls=dash, lw=1.4, label=shown)
        logarithmic(axes)
        axes.set(xlabel="training step", ylabel="margin: gap of the two largest logits, quantiles")
        axes.legend(loc="best", ncols=2)
        axes = grid[1][2]
        held = temperatures(parameters)
        for quantity, colour, name in (("l2_error", GREEN, "L2"), ("sup_error", PURPLE, "sup")):
            band(axes, held, _at_the_end(results, quantity).T, colour, f"{name} error, trained", log=True)
            best = [values["best_values"][quantity] for values in select(results, way="held")]
            axes.plot(held, best, color=colour, ls=":", lw=1.4, label=f"{name} error, square cells, best values")
        logarithmic(axes)
        for way in ("adam", "sgd"):
            reached = float(_trace(results, way, "inverse_temperature")[1][-1].mean())
            axes.axvline(reached, color=colours[way], lw=1.0, ls="--", label=f"where free {NAMES[way]} ends")
        axes.set(xlabel="inverse temperature, held fixed", ylabel="error after training")
        axes.legend(loc="best", fontsize=7)


EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table)
