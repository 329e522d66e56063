"""Experiment 2, explicit weights: literal softmax attention on sin x + cos y, proved bound against the worst error found.

The matrices W_Q, W_K, W_V, W_O and Linear(X) = sum_i P_i X Q_i + R_0 are written down, and 200,000 points go through them.
In layout Q the rows that W_K and W_V read do not depend on X (checked: W_K P_i = W_V P_i = 0), so keys and values of the
definition are computed once and queries in batches; some points go through the definition whole, as a check on that.
"""

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.lab.experiment import Context, Experiment, Numbers, Parameters, Result, Rows, Table, Unit, Verdict, sweep
from maxaffine.lab.figures import figure
from maxaffine.report.style import CURVES, ERRORS, QUIET, logarithmic

EXPRESSION, SIDE = "sin(x) + cos(y)", math.pi
WORKSPACE = 8 << 20  # weights in flight
FULL_SOFTMAX = 1_500  # tokens up to which the whole m x m softmax of the definition is formed
CONSTRUCTIONS = ("continuity", "lipschitz", "compiled")  # the protocol says what they are


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """One per construction, error and share of the points."""
    axes = {"construction": parameters["constructions"], "error": parameters["errors"], "part": range(parameters["parts"])}
    return sweep("{construction}-{error:g}-{part}", **axes)


@lru_cache(maxsize=2)
def _layer(construction: str, error: float) -> tuple[Any, Any, Any]:
    """Layer, target and certificate."""
    import maxaffine as ma
    from maxaffine.heads.lookup.build import build_grid
    from maxaffine.heads.lookup.plan import GridPlan
    from maxaffine.heads.lookup.prove_grid import certify_grid
    from maxaffine.heads.lookup.theorems import RHO0
    from maxaffine.target.evidence import Evidence
    from maxaffine.target.target import Target

    box = ma.Box(x=(-SIDE, SIDE), y=(-SIDE, SIDE))
    if construction == "compiled":
        compiled = ma.compile(EXPRESSION, box, error=error, method="lookup")
        return compiled.weights, compiled.target, compiled.certificate
    target = Target.of(EXPRESSION, box)
    evidence = Evidence(lipschitz=np.ones(2), modulus=_modulus, spread=4.0, origin={"lipschitz": "derived: by hand"})
    if construction == "lipschitz":
        route, count, rho = "E1", math.ceil(1.10 * SIDE * 2.0 / error), RHO0
    else:
        route, rho = "E3", 2.0 * math.log1p(16.0 / error)
        count = next(P for P in range(1, 100_000) if _modulus(2.0 * SIDE / P) <= error / 2.0)
    layer = build_grid(GridPlan(route, (count, count), rho, math.nan), target, "float64")
    return layer, target, certify_grid(layer, target, evidence, route)


def _modulus(reach: float) -> float:
    return 4.0 * math.sin(min(reach, math.pi) / 2.0)  # |sin x - sin x'| <= 2 sin(r/2) for |x - x'| <= r <= pi


def literal(weights: Any, x: Array) -> Array:
    """Attn(Linear(x)) at points (B, 2) from the matrices alone: softmax((W_K Z)^T W_Q Z) in batches of queries."""
    constant = all(not (matrix @ P).any() for P in weights.P for matrix in (weights.W_K, weights.W_V))
    if not constant:
        raise Refused("keys or values of this layout depend on the input; the batched form does not apply.")
    keys = np.ascontiguousarray((weights.W_K @ weights.R_0).T)  # (N, k)
    values = (weights.W_V @ weights.R_0)[0]  # (N,)
    used = np.flatnonzero(weights.W_O.any(axis=1))
    if used.size != 1:
        raise Refused("the layer has more than one output column; the batched form does not apply.")
    column, scale = int(used[0]), float(weights.W_O[used[0], 0])
    out = np.empty(len(x))
    batch = max(1, WORKSPACE // len(keys))
    for start in range(0, len(x), batch):
        block = x[start : start + batch]
        tokens = np.repeat(weights.R_0[:, column : column + 1], len(block), axis=1)  # (p, B)
        for P, Q in zip(weights.P, weights.Q, strict=True):
            tokens = tokens + P @ block.T * Q[0, column]
        logits = keys @ (weights.W_Q @ tokens)  # (N, B)
        logits -= logits.max(axis=0)
        np.exp(logits, out=logits)
        out[start : start + batch] = (values @ logits) / logits.sum(axis=0) * scale
    return out


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """Literal attention on one share of the points of one layer."""
    from maxaffine.layer.matrices import self_matrices
    from maxaffine.proofs.observe import face_biased

    layer, target, certificate = _layer(unit["construction"], unit["error"])
    weights = self_matrices(layer, "Q")
    count = parameters["points"] // parameters["parts"]
    rng = np.random.default_rng([parameters["seed"], unit["part"]])
    x = face_biased(layer, count, rng)
    said = np.empty(count)
    step = max(1, count // 20)
    worst = 0.0
    truth = target.values(x)[:, 0, 0]
    for start in range(0, count, step):
        part = slice(start, min(start + step, count))
        said[part] = literal(weights, x[part])
        worst = max(worst, float(np.abs(said[part] - truth[part]).max()))
        context.report("sup error", worst)
    error = np.abs(said - truth)
    at = int(error.argmax())
    checked = rng.choice(count, parameters["checked"], replace=False)
    whole = np.array([weights(x[i][:, None], full=layer.tokens <= FULL_SOFTMAX)[0, 0] for i in checked])
    return Result(
        {
            "tokens": layer.tokens,
            "cells": [int(n) for n in layer.keys.shape],
            "sharpness": float(layer.sharpness),
            "route": certificate.argument,
            "parameters": weights.parameters,
            "bound": float(certificate.bound),
            "rounding": float(certificate.parts["rounding"]),
            "measured": float(error[at]),
            "worst_point": x[at].tolist(),
            "mean_error": float(error.mean()),
            "points": count,
            "deviation": float(np.abs(whole - said[checked]).max()),
        }
    )


def _layers(results: Rows) -> list[dict[str, Any]]:
    """Results of one layer together, over its shares of the points."""
    found: dict[tuple[str, float], dict[str, Any]] = {}
    for row in results:
        unit, values = row["unit"], row["values"]
        key = (unit["construction"], unit["error"])
        fresh = {**values, "construction": key[0], "error": key[1], "points": 0, "measured": 0.0, "deviation": 0.0}
        one = found.setdefault(key, fresh)
        one["points"] += values["points"]
        one["measured"] = max(one["measured"], values["measured"])
        one["deviation"] = max(one["deviation"], values["deviation"])
    return list(found.values())


def verdict(results: Rows, parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    layers = _layers(results)
    proved = all(one["bound"] <= one["error"] for one in layers)
    kept = all(one["measured"] <= one["bound"] for one in layers)
    agree = all(one["deviation"] <= max(1e-12, one["rounding"]) for one in layers)
    ratios = [one["measured"] / one["bound"] for one in layers]
    points = sum(one["points"] for one in layers)
    numbers: Numbers = {
        "layers": len(layers),
        "points in all": points,
        "largest measured / proved": max(ratios),
        "smallest measured / proved": min(ratios),
        "batched against the definition": max(one["deviation"] for one in layers),
    }
    if proved and kept and agree:
        sentence = (
            f"All {len(layers)} layers are proved to be within their error, and none of {points:,} points through the literal "
            f"matrices lies above its bound; the worst error found is between {min(ratios):.0%} and {max(ratios):.0%} of what is "
            "proved."
        )
        return Verdict("reproduced", sentence, numbers)
    wrong = [one for one in layers if not one["measured"] <= one["bound"] <= one["error"]]
    broken = [f"{one['construction']} at {one['error']:g}" for one in wrong]
    return Verdict("not reproduced", f"The rule fails for {', '.join(broken) or 'the batched form'}.", numbers)


def table(results: Rows, parameters: Parameters) -> Table:
    """One row per layer."""
    header = ("error asked", "construction", "cells", "tokens", "parameters", "sharpness", "bound", "measured", "points")
    rows = tuple(
        (one["error"], one["construction"], " x ".join(map(str, one["cells"])), one["tokens"], one["parameters"],
         one["sharpness"], one["bound"], one["measured"], one["points"])
        for one in sorted(_layers(results), key=lambda one: (-one["error"], CONSTRUCTIONS.index(one["construction"])))
    )  # fmt: skip
    return Table(header, rows)


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """Errors and sizes against the error asked for, and where one of the layers errs."""
    layers, what = _layers(results), "Literal attention: proved bounds and the worst errors found"
    asked = sorted(parameters["errors"])
    with figure(path, what, verdict(results, parameters), 1, 3, (12.0, 4.8)) as (canvas, grid):
        left, middle, right = grid[0]
        for name, colour in zip(CONSTRUCTIONS, CURVES, strict=False):
            mine = sorted((one for one in layers if one["construction"] == name), key=lambda one: one["error"])
            eps = [one["error"] for one in mine]
            left.plot(eps, [one["measured"] for one in mine], "o-", ms=5, color=colour, label=name)
            left.plot(eps, [one["bound"] for one in mine], "_", ms=11, mew=1.8, color=colour)
            middle.plot(eps, [one["tokens"] for one in mine], "o-", ms=5, color=colour)
            middle.plot(eps, [one["parameters"] for one in mine], ls="--", color=colour)
        left.plot(asked, asked, color=QUIET, lw=0.8)
        left.set(xlabel="error asked for", ylabel="sup error", title="Measured (dots) under proved (bars)")
        middle.set(xlabel="error asked for", title="Tokens (solid) and parameters (dashed)")
        for axes in (left, middle):
            logarithmic(axes)
            axes.set_xticks(asked, labels=[f"{eps:g}" for eps in asked])
            axes.minorticks_off()
        canvas.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        _error_map(right, max(asked), parameters["constructions"][-1])


def _error_map(axes: Any, error: float, construction: str) -> None:
    """|layer - f| over the square, by the literal matrices."""
    from maxaffine.layer.matrices import self_matrices

    layer, target, _ = _layer(construction, error)
    line = np.linspace(-SIDE, SIDE, 201)
    x = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    gap = np.abs(literal(self_matrices(layer, "Q"), x) - target.values(x)[:, 0, 0]).reshape(201, 201)
    image = axes.pcolormesh(line, line, gap, cmap=ERRORS, rasterized=True)
    axes.set(xlabel="x", ylabel="y", title=f"|layer - f|, {construction}, error {error:g}", aspect="equal")
    axes.grid(False)
    axes.figure.colorbar(image, ax=axes, shrink=0.85)


EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table)
