"""Temperature sweep: does training sharpen the partition, and is sharper better?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.lab import trends
from maxaffine.lab.experiment import (
    EXPLAINED,
    INCOMPLETE,
    NOT_REPRODUCED,
    REPRODUCED,
    Context,
    Experiment,
    Parameters,
    Result,
    Row,
    Table,
    Unit,
    Verdict,
)

Array = NDArray[np.float64]

FREE = {
    "adam": ("adam", False),
    "sgd": ("sgd", False),
    "adam-decay": ("adam", True),
    "sgd-decay": ("sgd", True),
}
DECLINE = -0.9 + 1e-12
PLACES = 6  # digits kept of every number


def temperatures(parameters: Parameters) -> Array:
    """The inverse temperatures that are held fixed."""
    return np.geomspace(float(parameters["lowest"]), float(parameters["highest"]), int(parameters["temperatures"]))


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """Four ways of training with a free temperature, then one unit per temperature held fixed; every unit has all seeds."""
    found: list[dict[str, Any]] = [{"id": name, "way": name} for name in FREE]
    for number, value in enumerate(temperatures(parameters)):
        found.append({"id": f"held-{number:02d}", "way": "held", "inverse_temperature": float(f"{value:.6g}")})
    return found


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """Train all seeds at once and describe them at log-spaced steps."""
    import torch

    from maxaffine.lab import plane

    kind, decayed = FREE.get(str(unit["way"]), ("adam", False))
    rate = float(parameters["adam_rate"] if kind == "adam" else parameters["sgd_rate"])
    decay = float(parameters["adam_decay"] if kind == "adam" else parameters["sgd_decay"]) if decayed else 0.0
    seeds = list(range(int(parameters["seeds"])))
    side = int(parameters["side"])
    tokens = torch.from_numpy(plane.grid_tokens(side)).float().to(context.device)
    square = 1.0 if unit["way"] == "held" else None
    weights = plane.start(int(parameters["width"]), side * side, seeds, context.device, square)
    held = None
    if unit["way"] == "held":
        held = torch.full((len(seeds),), float(unit["inverse_temperature"]), device=context.device)
    points = plane.test_points(int(parameters["test_side"]))
    probe = torch.from_numpy(points).float().to(context.device)
    wanted = torch.from_numpy(plane.waves(points)).float().to(context.device)
    samples = np.random.default_rng([0, 7])
    batch = int(parameters["batch"])

    def loss(_: int) -> torch.Tensor:
        z = samples.uniform(-1, 1, (batch, 2))
        inputs = torch.from_numpy(z).float().to(context.device)
        errors = plane.predict(weights, tokens, inputs, held) - torch.from_numpy(plane.waves(z)).float().to(context.device)
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
    values: dict[str, Any] = {"steps": when, **{name: _plain(np.array(trace)) for name, trace in traces.items()}}
    if held is not None:
        values["best_values"] = _best_values(plane, side, points, float(unit["inverse_temperature"]))
    return Result(values, {name: np.array(trace) for name, trace in traces.items()})


def _best_values(plane: Any, side: int, points: Array, inverse_temperature: float) -> dict[str, float]:
    """Errors of square cells at this temperature with the values of least squares: what training could reach."""
    tokens = plane.grid_tokens(side)
    inputs = np.random.default_rng([0, 8]).uniform(-1, 1, (20_000, 2))
    values = plane.least_squares_values(tokens, inputs, plane.waves(inputs), inverse_temperature)
    scores = inverse_temperature * (points @ tokens[:, :2].T + tokens[:, 2])
    attention = np.exp(scores - scores.max(axis=1, keepdims=True))
    errors = np.abs(attention @ values / attention.sum(axis=1) - plane.waves(points))
    return {"sup_error": float(errors.max()), "l2_error": float(np.sqrt((errors**2).mean()))}


def _plain(array: Array) -> list[list[float]]:
    return [[float(f"{value:.{PLACES}g}") for value in row] for row in array]


def _trace(results: Sequence[Row], way: str, quantity: str) -> tuple[Array, Array]:
    """Steps and values (steps, seeds) of one way of training."""
    row = next(row for row in results if row["unit"]["id"] == way)
    return np.array(row["values"]["steps"], dtype=np.float64), np.array(row["values"][quantity], dtype=np.float64)


def _held(results: Sequence[Row]) -> list[Row]:
    return [row for row in results if row["unit"]["way"] == "held"]


def _at_the_end(results: Sequence[Row], quantity: str) -> Array:
    """(temperatures, seeds) after the last step."""
    return np.array([row["values"][quantity][-1] for row in _held(results)], dtype=np.float64)


def verdict(results: Sequence[Row], parameters: Parameters) -> Verdict:
    """The rule below."""
    if len(results) < len(units(parameters)):
        return Verdict(INCOMPLETE, "Some ways of training are missing.", {"units": len(results)})
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
            if quantity == "product_norm":
                grows &= agreeing == trace.shape[1]
            else:
                sharpens &= agreeing == trace.shape[1]
    held = temperatures(parameters)
    errors = {name: _at_the_end(results, name).mean(axis=1) for name in ("l2_error", "sup_error")}
    rho = {name: trends.spearman(held, curve) for name, curve in errors.items()}
    best = {name: float(held[int(np.argmin(curve))]) for name, curve in errors.items()}
    for name in errors:
        numbers[f"Spearman of held inverse temperature with {name}"] = round(rho[name], 4)
        numbers[f"held inverse temperature of least {name}"] = float(f"{best[name]:.4g}")
    limit = [float(row["values"]["best_values"]["l2_error"]) for row in _held(results)]
    numbers["least L2 error of square cells with the best values"] = float(f"{min(limit):.4g}")
    numbers["inverse temperature where it is"] = float(f"{held[int(np.argmin(limit))]:.4g}")
    better = all(value <= DECLINE for value in rho.values())
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
        return Verdict(NOT_REPRODUCED, f"In some seed {what}. {said}", numbers)
    if better:
        return Verdict(REPRODUCED, f"Norms grow, partitions sharpen, and sharper is better. {said}", numbers)
    explained = EXPLAINED + "a best temperature that is finite"
    return Verdict(explained, f"Norms grow and partitions sharpen from their start, but sharper is not better. {said}", numbers)


def table(results: Sequence[Row], parameters: Parameters) -> Table:
    """Where every way of training ends."""
    header = ("training", "|W_K^T W_Q|_F", "inverse temperature", "entropy (nats)", "median margin", "L2 error", "sup error")
    rows: list[tuple[str | float | int, ...]] = []
    for row in results:
        name = row["unit"]["id"]
        if row["unit"]["way"] == "held":
            name = f"Adam, held at {row['unit']['inverse_temperature']:.3g}"
        cells = [name]
        for quantity in ("product_norm", "inverse_temperature", "entropy", "margin_50", "l2_error", "sup_error"):
            mean, half = trends.mean_and_interval(row["values"][quantity][-1])
            cells.append(f"{float(mean):.3g} ± {float(half):.1g}")
        rows.append(tuple(cells))
    return Table(header, tuple(rows))


def draw(results: Sequence[Row], parameters: Parameters, path: Path) -> None:
    """Norm, temperature, entropy and error along training; error against the temperature held fixed."""
    from maxaffine.lab.figures import band, figure, logarithmic, save, title

    colours = {"adam": "#0072b2", "sgd": "#d55e00", "adam-decay": "#56b4e9", "sgd-decay": "#e69f00"}
    names = {"adam": "Adam", "sgd": "SGD", "adam-decay": "AdamW, decay", "sgd-decay": "SGD, decay"}
    panels = (
        ("product_norm", "|W_K^T W_Q|_F", True),
        ("inverse_temperature", "effective inverse temperature", True),
        ("entropy", "mean attention entropy (nats)", False),
        ("l2_error", "L2 error", True),
    )
    with figure(2, 3, (12.0, 8.0)) as (canvas, grid):
        places = (grid[0][0], grid[0][1], grid[0][2], grid[1][0])
        for axes, (quantity, label, log) in zip(places, panels, strict=True):
            for way, colour in colours.items():
                steps, values = _trace(results, way, quantity)
                band(axes, steps[1:], values[1:].T, colour, names[way], log=log)
            logarithmic(axes, True, log)
            axes.set_xlabel("training step")
            axes.set_ylabel(label)
        grid[0][0].legend(loc="best")
        axes = grid[1][1]
        for quantity, dash in (("margin_5", ":"), ("margin_50", "-"), ("margin_95", "--")):
            for way in ("adam", "sgd"):
                steps, values = _trace(results, way, quantity)
                shown = f"{names[way]}, {quantity[7:]}%"
                axes.plot(steps[1:], values[1:].mean(axis=1), color=colours[way], ls=dash, lw=1.4, label=shown)
        logarithmic(axes)
        axes.set_xlabel("training step")
        axes.set_ylabel("margin: gap of the two largest logits, quantiles")
        axes.legend(loc="best", ncols=2)
        axes = grid[1][2]
        held = temperatures(parameters)
        for quantity, colour, name in (("l2_error", "#009e73", "L2"), ("sup_error", "#cc79a7", "sup")):
            band(axes, held, _at_the_end(results, quantity).T, colour, f"{name} error, trained", log=True)
            best = [row["values"]["best_values"][quantity] for row in _held(results)]
            axes.plot(held, best, color=colour, ls=":", lw=1.4, label=f"{name} error, square cells, best values")
        logarithmic(axes)
        for way in ("adam", "sgd"):
            reached = float(_trace(results, way, "inverse_temperature")[1][-1].mean())
            axes.axvline(reached, color=colours[way], lw=1.0, ls="--", label=f"where free {names[way]} ends")
        axes.set_xlabel("inverse temperature, held fixed")
        axes.set_ylabel("error after training")
        axes.legend(loc="best", fontsize=7)
        title(canvas, "One attention head learns sin x + cos y: norms, temperature and error", verdict(results, parameters))
        save(canvas, path)


PROTOCOL = """\
**Task.** f(x, y) = sin x + cos y on [-pi, pi]^2, uniform inputs, fresh at every step; z = (x, y) / pi.

**Net.** One softmax head over 64 fixed tokens e_j = (p_j, -|p_j|^2 / 2), p_j the cell centres of an 8 x 8 grid over [-1,
1]^2: keys W_K e_j, queries W_Q (z, 1), both 8 wide, one learned value per token. Xavier-uniform W_Q, W_K, values 0. Mean
squared error, batches of 256.

**Free temperature.** SGD (rate 0.3) and Adam (rate 3e-3), constant rates, without weight decay and with it (SGD 1e-3, added
to the gradient; Adam 1e-2, decoupled; on every weight); 10,000 steps, 5 seeds trained as one stack.

**Held temperature.** The same net and Adam, 3,000 steps, with W_K^T W_Q rescaled in the forward pass to |W_K^T W_Q|_F =
sqrt(3) R, which is its norm when the cells are squares at inverse temperature R; 12 values of R from 0.5 to 2000; started at
square cells disturbed by a tenth of the random start, so that temperature and not the luck of the geometry is compared.
Beside it the errors of exactly square cells with the values of least squares, which no training of the values can beat in L2.

**Recorded** at step 0 and 100 log-spaced steps (10 where the temperature is held) on a 65 x 65 grid with edges: |W_Q|_F,
|W_K|_F, |W_K^T W_Q|_F; the effective inverse temperature, which is the slope of the gap of the two largest logits with the
distance from their face, per distance of their tokens, averaged over the plane; mean entropy of attention; quantiles 5, 50,
95% of that gap; sup and L2 error.
"""

RULE = """\
(a) Norms grow: for Adam and for SGD, without decay, |W_K^T W_Q|_F is larger at the end than at the start in every seed. (b)
Partitions sharpen: in the same runs the effective inverse temperature is larger and the mean attention entropy smaller at the
end than at the start in every seed. (c) Sharper is better: over the 12 temperatures held fixed, Spearman's correlation of the
inverse temperature with the L2 error and with the sup error after training (means over seeds) is at most -0.9. `reproduced`
if (a), (b) and (c); `reproduced, but explained by a best temperature that is finite` if (a) and (b) but not (c); otherwise
`not reproduced`.
"""

EXPERIMENT = Experiment(
    name="temperature-sweep",
    version=1,
    claim="Training makes the norms of W_Q and W_K grow and the max-affine partition sharp, as the construction with a large "
    "sharpness suggests, and a sharper partition approximates better.",
    paper="arXiv 2504.19901, sections 3 and 4: the construction sharpens the softmax until attention indicates cells",
    protocol=PROTOCOL,
    rule=RULE,
    parameters={
        "seeds": 5,
        "side": 8,
        "width": 8,
        "steps": 10_000,
        "held_steps": 3_000,
        "batch": 256,
        "adam_rate": 3e-3,
        "adam_decay": 1e-2,
        "sgd_rate": 0.3,
        "sgd_decay": 1e-3,
        "temperatures": 12,
        "lowest": 0.5,
        "highest": 2000.0,
        "moments": 100,
        "test_side": 65,
    },
    quick={"seeds": 2, "steps": 600, "held_steps": 300, "temperatures": 4, "moments": 12, "test_side": 41},
    units=units,
    run=run,
    verdict=verdict,
    draw=draw,
    table=table,
)
