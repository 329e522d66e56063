"""Experiment 6, dimension: tokens at equal error and error at equal tokens for D = 2 to 10, lookup against spectral heads."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.lab.experiment import Context, Experiment, Parameters, Result, Row, Table, Unit, Verdict

FAMILIES = {
    "additive": "sum_i sin(2 x_i) / D",
    "multiplicative": "prod_i cos(x_i)",
    "non-separable": "1 / (1 + (x_1 x_2 + x_2 x_3 + ... + x_D x_1) / (2 D))",
}
METHODS = ("lookup", "spectral")


def expression(family: str, dimension: int) -> str:
    """The target of a family in so many variables, each in [-1, 1]."""
    names = [f"x{i + 1}" for i in range(dimension)]
    if family == "additive":
        return "(" + " + ".join(f"sin(2*{name})" for name in names) + f")/{dimension}"
    if family == "multiplicative":
        return "*".join(f"cos({name})" for name in names)
    pairs = " + ".join(f"{a}*{b}" for a, b in zip(names, names[1:] + names[:1], strict=True))
    return f"1/(1 + ({pairs})/{2 * dimension})"


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """One per family, dimension, method and error, and one per family, dimension and method for the budget."""
    found = []
    for family in parameters["families"]:
        for dimension in range(2, int(parameters["highest"]) + 1):
            for method in METHODS:
                base = {"family": family, "dimension": dimension, "method": method}
                for error in parameters["errors"]:
                    found.append({"id": f"{family}-{dimension}-{method}-{error:g}", **base, "error": error})
                found.append({"id": f"{family}-{dimension}-{method}-budget", **base, "error": None})
    return found


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """Tokens that a method needs for the error, or the least error of `ladder` that it reaches within the budget."""
    if unit["error"] is not None:
        return Result(_tokens(unit, float(unit["error"])))
    best: dict[str, Any] = {"tokens": None, "reached": None}
    for error in sorted(parameters["ladder"], reverse=True):
        made = _tokens(unit, float(error))
        if made["tokens"] is None or made["tokens"] > parameters["budget"]:
            break
        best = {**made, "reached": float(error)}
        context.report("error within the budget", float(error))
    return Result(best)


def _tokens(unit: Unit, error: float) -> dict[str, Any]:
    import maxaffine as ma
    from maxaffine.frontier import frontier

    D = int(unit["dimension"])
    box = ma.Box(**{f"x{i + 1}": (-1.0, 1.0) for i in range(D)})
    text = expression(str(unit["family"]), D)
    begun = time.perf_counter()
    if unit["method"] == "lookup":
        rows = [row for row in frontier(text, box, errors=[error]) if row["method"] == "lookup"]
        best = min(rows, key=lambda row: int(row["tokens"]))
        cells = [int(n) for n in best["counts"]]
        return {"tokens": int(best["tokens"]), "stored": int(best["tokens"]), "cells": cells, "kind": "planned", "reason": "",
                "seconds": time.perf_counter() - begun}  # fmt: skip
    try:
        made = ma.compile(text, box, error=error, method="spectral")
    except ma.Refused as refusal:
        return {"tokens": None, "stored": None, "cells": [], "kind": "refused", "reason": str(refusal)[:300],
                "seconds": time.perf_counter() - begun}  # fmt: skip
    return {"tokens": made.tokens, "stored": made.layer.nbytes // 8, "cells": [], "kind": made.certificate.kind, "reason": "",
            "bound": made.bound, "observed": made.observed.error, "seconds": time.perf_counter() - begun}  # fmt: skip


def growth(dimensions: Sequence[int], tokens: Sequence[int], power: bool) -> tuple[float, float]:
    """Slope of log10 tokens against D, or against log10 D, and half its 95% interval."""
    from scipy import stats

    x = np.log10(dimensions) if power else np.asarray(dimensions, dtype=np.float64)
    fit = stats.linregress(x, np.log10(np.asarray(tokens, dtype=np.float64)))
    half = float(stats.t.ppf(0.975, len(x) - 2) * fit.stderr) if len(x) > 2 else math.inf
    return float(fit.slope), half


def _curves(results: Sequence[Row]) -> dict[tuple[str, str, float], tuple[list[int], list[int], list[int]]]:
    """(family, method, error) -> dimensions, tokens and stored numbers, where there is a layer."""
    found: dict[tuple[str, str, float], tuple[list[int], list[int], list[int]]] = {}
    for row in results:
        unit, values = row["unit"], row["values"]
        if unit["error"] is None or values["tokens"] is None:
            continue
        lists = found.setdefault((unit["family"], unit["method"], unit["error"]), ([], [], []))
        for into, value in zip(lists, (unit["dimension"], values["tokens"], values["stored"]), strict=True):
            into.append(value)
    return found


def verdict(results: Sequence[Row], parameters: Parameters) -> Verdict:
    """The rule below."""
    curves = _curves(results)
    numbers: dict[str, float | int | str | bool] = {}
    below: list[str] = []
    judged, polynomial = 0, []
    for (family, method, error), (dimensions, tokens, _) in curves.items():
        if len(dimensions) < 4:
            continue
        slope, half = growth(dimensions, tokens, power=False)
        power, near = growth(dimensions, tokens, power=True)
        label = f"{family}, {method}, error {error:g}"
        numbers[f"log10 tokens per dimension: {label}"] = f"{slope:.3f} +- {half:.3f}"
        numbers[f"power of D: {label}"] = f"{power:.3f} +- {near:.3f}"
        if method == "lookup":
            judged += 1
            needed = 0.9 * math.log10(tokens[0]) / 2.0
            below += [] if slope - half > needed else [f"{family} at {error:g} ({slope:.2f} +- {half:.2f} against {needed:.2f})"]
        elif power + near <= 1.5:
            polynomial.append(f"{family} at {error:g}")
    refused = sum(1 for row in results if row["values"].get("kind") == "refused")
    numbers["requests refused by spectral heads"] = refused
    if below:
        sentence = (
            f"For {judged - len(below)} of {judged} curves of the lookup log10 tokens rise with D faster than the rule asks, "
            f"beyond their interval; not for {', '.join(below)}. Spectral heads grow at most like D^1.5 for "
            f"{', '.join(polynomial) or 'none'}."
        )
        return Verdict("not reproduced", sentence, numbers)
    if not polynomial:
        return Verdict("reproduced", "Tokens grow exponentially with the dimension for every family and method.", numbers)
    sentence = (
        "The lookup needs exponentially many tokens in every family, at least P^D; spectral heads of the same architecture "
        f"grow at most like D^1.5 for {', '.join(polynomial)}, so the exponential is a property of the lookup."
    )
    return Verdict("reproduced, but explained by the lookup, not by the architecture", sentence, numbers)


def table(results: Sequence[Row], parameters: Parameters) -> Table:
    """Tokens per family, dimension, method and error; the error within the budget in the last column."""
    errors = list(parameters["errors"])
    cells: dict[tuple[str, int, str], dict[Any, Any]] = {}
    for row in results:
        unit, values = row["unit"], row["values"]
        key = (unit["family"], unit["dimension"], unit["method"])
        said = values.get("reached") if unit["error"] is None else values["tokens"]
        cells.setdefault(key, {})[unit["error"]] = "refused" if said is None else said
    header = ("family", "D", "method", *(f"tokens at {e:g}" for e in errors), f"error within {parameters['budget']:,} tokens")
    rows = tuple((*key, *(_short(got.get(e, "")) for e in errors), _short(got.get(None, ""))) for key, got in cells.items())
    return Table(header, rows)


def _short(value: Any) -> Any:
    return f"{float(value):.3g}" if isinstance(value, int) and value > 10**7 else value


def draw(results: Sequence[Row], parameters: Parameters, path: Path) -> None:
    """Tokens against dimension, one panel per family."""
    from maxaffine.lab import figures
    from maxaffine.report.style import CURVES

    curves = _curves(results)
    with figures.figure(1, len(parameters["families"]), (12.0, 4.6)) as (canvas, grid):
        for axes, family in zip(grid[0], parameters["families"], strict=True):
            for i, method in enumerate(METHODS):
                for k, error in enumerate(parameters["errors"]):
                    if (family, method, error) not in curves:
                        continue
                    dimensions, tokens, stored = curves[family, method, error]
                    look = {"color": CURVES[i * 3], "alpha": 1.0 - 0.45 * k}
                    axes.plot(dimensions, tokens, "o-", ms=4, label=f"{method}, {error:g}", **look)
                    if stored != tokens:
                        axes.plot(dimensions, stored, ":", lw=1.2, label=f"{method}, {error:g}: numbers stored", **look)
            axes.set(title=f"{family}: {FAMILIES[family]}", xlabel="dimension D", ylabel="tokens")
            axes.title.set_fontsize(7)
            figures.logarithmic(axes, x=False)
            axes.legend(fontsize=7)
        figures.title(canvas, "Tokens against dimension", verdict(results, parameters))
        figures.save(canvas, path)


PROTOCOL = f"""
**Targets** on [-1, 1]^D, D = 2 to `highest`: {"; ".join(f"`{name}`: {text}" for name, text in FAMILIES.items())}.

**Methods.** `lookup`, the paper's construction: cells from derived Lipschitz constants, the cheapest route, planned and not
built (1e10 tokens and more); `spectral`, built and proved by `ma.compile(method="spectral")`, or refused with a reason.

**Asked.** Tokens of the literal layer for each of `errors` (absolute, sup norm, float64), and the least error of `ladder`
for which at most `budget` tokens suffice. Factored layers imply more tokens than they store; the numbers stored are drawn
dotted.

**Growth.** Least-squares slopes of log10 tokens against D and against log10 D over the dimensions that have a layer, with
95% Student intervals.
"""

RULE = (
    "The claim holds where, for the lookup, the slope of log10 tokens against D exceeds 0.9 log10 P, P^2 the tokens at D = 2, "
    "beyond its 95% interval, for every family and error; otherwise `not reproduced`. If it holds and for some family and error "
    "another method's tokens grow at most like D^1.5 (upper end of the 95% interval of the power), the outcome is `reproduced, "
    "but explained by the lookup, not by the architecture`; else `reproduced`. Curves of fewer than four dimensions are not "
    "judged."
)

EXPERIMENT = Experiment(
    name="dimension",
    version=1,
    claim="Approximating a function of d n variables by the construction takes P^(d n) tokens, exponentially many.",
    paper="arXiv 2504.19901, Theorem 4.1 and its remark on the number of pieces",
    protocol=PROTOCOL,
    rule=RULE,
    parameters={
        "families": list(FAMILIES), "highest": 10, "errors": [1e-1, 1e-2], "budget": 4096,
        "ladder": [10.0**-k for k in range(1, 9)],
    },
    quick={"highest": 5, "errors": [1e-1], "ladder": [1e-1, 1e-2]},
    units=units,
    run=run,
    verdict=verdict,
    draw=draw,
    table=table,
)  # fmt: skip
