"""Experiment 7, robustness: what relative noise and rounding of each matrix of a literal layer do to its error."""

import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from maxaffine.core.arrays import Array
from maxaffine.lab.experiment import Context, Experiment, Numbers, Parameters, Result, Rows, Table, Unit, Verdict, sweep
from maxaffine.lab.figures import band, figure
from maxaffine.report.style import CURVES, logarithmic

LAYERS = {
    "lookup": ("sin(x) + cos(y)", math.pi, 0.5, "lookup"),
    "spectral": ("sin(x) + cos(y)", math.pi, 1e-4, "spectral"),
    "kink": ("max(x, y, 0.5 - x)", 1.0, 1e-4, "piecewise"),
}
PARTS = ("W_Q", "W_K", "W_V", "W_O", "keys", "values", "temperature")
FORMATS = ("float32", "bfloat16", "float16", "float8_e4m3fn")
SIGMAS = 3.0  # the prediction is that of three standard deviations


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """One per layer and part."""
    return sweep("{layer}-{part}", layer=parameters["layers"], part=PARTS)


@lru_cache(maxsize=3)
def _layer(name: str) -> tuple[Any, Any]:
    import maxaffine as ma

    text, side, error, method = LAYERS[name]
    made = ma.compile(text, ma.Box(x=(-side, side), y=(-side, side)), error=error, method=method)
    return made, made.matrices("cross")


def forward(matrices: Any, x: Array) -> tuple[Array, Array, Array, Array]:
    """Cross-attention with these matrices at points (B, 2): outputs, weights, values per token, and |q| |W_K| |z| per logit."""
    Z_Q, Z_K = _linear(matrices.query, x), _linear(matrices.context, x)
    q, k, v = matrices.W_Q @ Z_Q, matrices.W_K @ Z_K, matrices.W_V @ Z_K
    weights = softmax(np.swapaxes(k, 1, 2) @ q, axis=1)
    return (v @ weights @ matrices.W_O)[:, 0, 0], weights, v, np.swapaxes(np.abs(k), 1, 2) @ np.abs(q)


def _linear(made: Any, x: Array) -> Array:
    Z = np.broadcast_to(made.R_0, (len(x), *made.R_0.shape))
    for P, Q in zip(made.P, made.Q, strict=True):
        Z = Z + (x @ P.T)[:, :, None] * Q[0]
    return np.asarray(Z)


def _changed(matrices: Any, part: str, change: Any) -> Any:
    """The matrices with `change` applied to one part; keys and values are rows of the context, the temperature scales W_K."""
    if part == "temperature":
        return replace(matrices, W_K=change(np.ones(())) * matrices.W_K)
    if part.startswith("W_"):
        return replace(matrices, **{part: change(getattr(matrices, part))})
    read = matrices.W_V if part == "values" else matrices.W_K
    rows = np.flatnonzero(np.abs(read).sum(axis=0) > 0)
    R = matrices.context.R_0.copy()
    R[rows] = change(R[rows])
    return replace(matrices, context=replace(matrices.context, R_0=R))


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """Sup errors on points under noise of growing size, under rounding, and the first-order prediction."""
    import ml_dtypes

    made, matrices = _layer(str(unit["layer"]))
    rng = np.random.default_rng([int(parameters["seed"]), PARTS.index(str(unit["part"]))])
    box = made.box
    x = np.concatenate([box.sample(int(parameters["points"]), rng), box.corners(), np.array([made.observed.at])])
    truth = made.target.values(x)[:, 0, 0]
    part = str(unit["part"])

    def error(matrices: Any) -> float:
        return float(np.abs(forward(matrices, x)[0] - truth).max())

    slope = _slope(part, np.abs(matrices.W_O)[:, 0], *forward(matrices, x)[1:])
    noise = []
    for delta in parameters["noise"]:
        errors = []
        for _ in range(int(parameters["draws"])):
            moved = _changed(matrices, part, lambda a, delta=delta: a * (1.0 + delta * rng.standard_normal(a.shape)))
            errors.append(error(moved))
        noise.append(errors)
        context.report(f"error at noise {delta:g}", float(np.mean(errors)))
    rounded = {}
    for name in FORMATS:
        kind = np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
        with np.errstate(over="ignore", invalid="ignore"):
            found = error(_changed(matrices, part, lambda a, kind=kind: a.astype(kind).astype(np.float64)))
        rounded[name] = found if math.isfinite(found) else None
    base = error(matrices)
    return Result({"base": base, "bound": made.bound, "slope": slope, "noise": noise, "rounded": rounded, "tokens": made.tokens})


def _slope(part: str, mix: Array, weights: Array, values: Array, sizes: Array) -> float:
    """First order, per unit of noise, three sigmas: sum_j w_j |v_j - g| |dl_j|, or sum_j w_j |v_j| for values; mix is |W_O|."""
    if part in ("W_V", "values", "W_O"):
        size = (np.abs(values) @ weights)[:, 0, :] @ mix
        return SIGMAS * float(size.max())
    centre = values @ weights  # (B, 1, n_q)
    spread = np.abs(np.swapaxes(values, 1, 2) - centre)  # (B, m, n_q)
    return SIGMAS * float(((weights * spread * sizes).sum(axis=1) @ mix).max())


def verdict(results: Rows, parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    small = [i for i, delta in enumerate(parameters["noise"]) if delta <= 1e-3]
    above: list[str] = []
    numbers: Numbers = {}
    worst: dict[str, tuple[float, str]] = {}
    for row in results:
        unit, values = row["unit"], row["values"]
        slope = float(values["slope"])
        numbers[f"error per unit of noise, first order: {unit['layer']} {unit['part']}"] = slope
        measured = max((float(np.mean(values["noise"][i])) - values["base"]) / parameters["noise"][i] for i in small)
        numbers[f"error per unit of noise, measured: {unit['layer']} {unit['part']}"] = measured
        for i in small:
            if float(np.mean(values["noise"][i])) > values["base"] + slope * parameters["noise"][i] + 1e-12:
                above.append(unit["id"])
        worst[unit["layer"]] = max(worst.get(unit["layer"], (-math.inf, "")), (measured, unit["part"]))
    critical = ", ".join(f"{part} ({size:.3g} per unit) in the {layer}" for layer, (size, part) in worst.items())
    if above:
        where = ", ".join(dict.fromkeys(above))
        return Verdict("not reproduced", f"Noise adds more than first order predicts in {where}.", numbers)
    sentence = f"Up to a relative noise of 1e-3 no part adds more error than first order predicts. The critical path: {critical}."
    return Verdict("reproduced", sentence, numbers)


def table(results: Rows, parameters: Parameters) -> Table:
    """Errors per layer and part."""
    header = ("layer", "part", "error", "first order", *(f"noise {d:g}" for d in parameters["noise"]), *FORMATS)
    rows = tuple(
        (
            row["unit"]["layer"], row["unit"]["part"], row["values"]["base"], row["values"]["slope"],
            *(float(np.mean(errors)) for errors in row["values"]["noise"]),
            *("not finite" if row["values"]["rounded"][f] is None else row["values"]["rounded"][f] for f in FORMATS),
        )
        for row in results
    )  # fmt: skip
    return Table(header, rows)


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """Error against noise, one panel per layer, the first-order prediction dashed."""
    layers, noise = list(parameters["layers"]), np.array(parameters["noise"])
    what = "Noise in one matrix at a time; dashed: first order"
    with figure(path, what, verdict(results, parameters), 1, len(layers), (12.0, 4.8)) as (_, grid):
        for axes, layer in zip(grid[0], layers, strict=True):
            for row in (row for row in results if row["unit"]["layer"] == layer):
                part, values = row["unit"]["part"], row["values"]
                colour = CURVES[PARTS.index(part)]
                band(axes, noise, np.maximum(np.array(values["noise"]).T, 1e-16), colour, part, log=True)
                axes.plot(noise, values["base"] + values["slope"] * noise, "--", lw=0.8, color=colour)
            axes.set(title=f"{layer}: {LAYERS[layer][0]}, {LAYERS[layer][2]:g}", xlabel="relative noise", ylabel="sup error")
            logarithmic(axes)
        grid[0][0].legend(fontsize=7)


EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table)
