"""Experiment 6, dimension: tokens at equal error and error at equal tokens for D = 2 to 10, every method of the compiler."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from maxaffine.heads import HEADS
from maxaffine.lab import dimension_figure
from maxaffine.lab import dimension_growth as growth
from maxaffine.lab.dimension_growth import table
from maxaffine.lab.experiment import Context, Experiment, Numbers, Parameters, Result, Row, Unit, Verdict
from maxaffine.lab.sweeps import sweep

FAMILIES = {
    "additive": "sum_i sin(2 x_i) / D",
    "multiplicative": "prod_i cos(x_i)",
    "non-separable": "1 / (1 + (x_1 x_2 + x_2 x_3 + ... + x_D x_1) / (2 D))",
}
SEARCHES = tuple(name for name in HEADS if name != "lookup")
METHODS = ("lookup", *SEARCHES, "auto")


def expression(family: str, dimension: int) -> str:
    """The target of a family in so many variables, each in [-1, 1]."""
    names = [f"x{i + 1}" for i in range(dimension)]
    if family == "additive":
        return "(" + " + ".join(f"sin(2*{name})" for name in names) + f")/{dimension}"
    if family == "multiplicative":
        return "*".join(f"cos({name})" for name in names)
    pairs = " + ".join(f"{a}*{b}" for a, b in zip(names, names[1:] + names[:1], strict=True))
    return f"1/(1 + ({pairs})/{2 * dimension})"


def one_constant(family: str, dimension: int) -> float:
    """The error of the best constant, half the range of the target: what one token reaches without looking at x."""
    if family == "additive":
        return 1.0
    if family == "multiplicative":
        return (1.0 - math.cos(1.0) ** dimension) / 2.0
    lowest = dimension if dimension % 2 == 0 else dimension - 2  # of odd many neighbours in a ring two have equal signs
    return (1.0 / (1.0 - lowest / (2.0 * dimension)) - 1.0 / 1.5) / 2.0


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """One per family, dimension, method and error, and one per family, dimension and method for the budget."""
    axes = {"family": parameters["families"], "dimension": range(2, int(parameters["highest"]) + 1)}
    found = sweep("{family}-{dimension}-{method}", **axes, method=parameters["methods"], error=[*parameters["errors"], None])
    for unit in found:
        unit["id"] += "-budget" if unit["error"] is None else f"-{unit['error']:g}"
    return found


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """Tokens that a method needs for the error, or the least error of `ladder` that it reaches within the budget."""
    cap = parameters["caps"].get(f"{unit['family']}/{unit['method']}")
    if cap is not None and int(unit["dimension"]) > int(cap):
        return Result(_refused(f"not asked: the parameter `caps` ends {unit['method']} on this family at D = {cap}"))
    if unit["error"] is not None:
        return Result(_ask(unit, float(unit["error"]), parameters, None))
    return Result(_within_budget(unit, parameters, context))


def _within_budget(unit: Unit, parameters: Parameters, context: Context) -> dict[str, Any]:
    """The least error of the ladder that at most `budget` tokens reach, by bisection, and why the next one is not reached."""
    ladder, budget = sorted((float(error) for error in parameters["ladder"]), reverse=True), int(parameters["budget"])
    best, why = _refused("nothing was asked"), "the ladder ends here"
    low, high = -1, len(ladder)
    while high - low > 1:
        middle = 0 if low < 0 else (low + high) // 2
        made = _ask(unit, ladder[middle], parameters, budget + 1)
        if made["tokens"] is not None and made["tokens"] <= budget:
            best, low = {**made, "reached": ladder[middle]}, middle
            context.report("error within the budget", ladder[middle])
            continue
        why, high = made.get("reason", f"{made['tokens'] or 0:,} tokens are above the budget of {budget:,}"), middle
        if low < 0:
            return {**_refused(why), "reached": None}
    return {**best, "stopped_by": why}


@lru_cache(maxsize=2)
def _request(family: str, dimension: int, max_bytes: int) -> Any:
    """The request of `ma.compile` for a target, its facts derived once for all methods and errors."""
    from maxaffine.core.progress import silent
    from maxaffine.request import Request, resolve
    from maxaffine.target.evidence import gather

    target = resolve(expression(family, dimension), _box(dimension), False)
    return Request(
        target=target, error=1.0, norm=float("inf"), dtype="float64", evidence=gather(target, None, None, None), partition=None,
        centres=None, require=None, max_bytes=max_bytes, seed=0, progress=silent,
    )  # fmt: skip


def _box(dimension: int) -> Any:
    import maxaffine as ma

    return ma.Box(**{f"x{i + 1}": (-1.0, 1.0) for i in range(dimension)})


def _ask(unit: Unit, error: float, parameters: Parameters, fewest: int | None) -> dict[str, Any]:
    """What a method makes of a target at this error; of searches that can stop early, with fewer tokens than `fewest`."""
    import maxaffine as ma
    from maxaffine.heads.found import search_worst
    from maxaffine.heads.lookup import search as lookup
    from maxaffine.search import attempt

    family, D, method = str(unit["family"]), int(unit["dimension"]), str(unit["method"])
    if method == "auto":
        try:
            made = ma.compile(expression(family, D), _box(D), error=error, run=ma.Run(max_bytes=int(parameters["max_bytes"])))
        except ma.Refused as refusal:
            return _refused(str(refusal))
        return _made(made.tokens, made.weights, made.method, made.certificate, made.observed)
    request = replace(_request(family, D, int(parameters["max_bytes"])), error=error)
    counts = {}
    if method == "lookup":
        plan = next(lookup.proposals(request), None)
        if plan is None:
            return _refused(f"no plan fits `error` (={error:g})")
        counts = {"counts": [int(count) for count in getattr(plan, "counts", (plan.cells,))]}
        if plan.cells > int(parameters["built"]):
            return {"tokens": plan.cells, "stored": plan.cells, "kind": "planned", "chosen": method, **counts}
        found = lookup.search(request)
        counts = {"counts": [int(count) for count in getattr(found.plan, "counts", (found.cost.tokens,))]}
    else:
        reasons: list[str] = []
        tried = attempt(method, request, reasons, fewest)
        if tried is None:
            return _refused("; ".join(reasons[-2:]) or f"the next plan has more than {(fewest or 0) - 1:,} tokens")
        found = tried
    return {**_made(found.cost.tokens, found.layer, method, found.certificate, search_worst(request, found)), **counts}


def _made(tokens: int, layer: Any, method: str, certificate: Any, observed: Any) -> dict[str, Any]:
    return {"tokens": tokens, "stored": layer.nbytes // 8, "kind": certificate.kind, "chosen": method,
            "bound": certificate.bound, "observed": observed.error}  # fmt: skip


def _refused(sentence: str) -> dict[str, Any]:
    return {"tokens": None, "stored": None, "kind": "refused", "chosen": "none", "reason": sentence.rstrip(".") + "."}


def verdict(results: Sequence[Row], parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    below: list[str] = []
    numbers: Numbers = {}
    polynomial: dict[str, list[str]] = {}
    judged, sides = 0, []
    for (family, method, error), curve in growth.curves(results).items():
        if error is None or len(curve.dimensions) < growth.JUDGED:
            continue
        place = f"{family} at {error:g}"
        if method == "lookup":
            judged += 1
            slope, half = growth.fit(curve.dimensions, curve.values, power=False)
            needed = 0.9 * growth.log_side(curve)
            sides.append(slope / growth.log_side(curve))
            numbers[f"{place}: log10 tokens of the lookup per D"] = f"{slope:.3f} ± {half:.3f} against {needed:.3f}"
            below += [] if slope - half > needed else [f"{place} ({slope:.2f} ± {half:.2f} against {needed:.2f})"]
            continue
        power, near = growth.fit(curve.dimensions, curve.values, power=True)
        if power + near <= 1.5:
            polynomial.setdefault(place, []).append(method)
    refusals = growth.Refusals(results)
    idle = [method for method in parameters["methods"] if refusals.counts[method] == refusals.asked[method]]
    for method in parameters["methods"]:
        numbers[f"requests refused by {method}"] = f"{refusals.counts[method]} of {refusals.asked[method]}"
    numbers |= refusals.legend
    others = ", ".join(f"{place} ({' and '.join(methods)})" for place, methods in polynomial.items())
    refuse = f" Every target is refused by {', '.join(idle)}." if idle else ""
    if judged < len(parameters["families"]) * len(parameters["errors"]):
        sentence = f"Too few dimensions to judge every curve of the lookup: {judged} have four.{refuse}"
        return Verdict("incomplete", sentence, numbers)
    if below:
        sentence = (
            f"For {judged - len(below)} of {judged} curves of the lookup log10 tokens rise with D faster than the rule asks, "
            f"beyond their interval; not for {', '.join(below)}. In units of log10 P the slopes are {min(sides):.2f} to "
            f"{max(sides):.2f}, where P^D has 1. Other methods' tokens grow at most like D^1.5 for "
            f"{others or 'none'}.{refuse}"
        )
        return Verdict("not reproduced", sentence, numbers)
    if not polynomial:
        said = f"Tokens grow exponentially with the dimension for every family and method that has a layer.{refuse}"
        return Verdict("reproduced", said, numbers)
    sentence = (
        "The lookup needs exponentially many tokens in every family, at least P^D; other methods of the same architecture "
        f"grow at most like D^1.5 for {others}, so the exponential is a property of the lookup.{refuse}"
    )
    return Verdict("reproduced, but explained by the lookup, not by the architecture", sentence, numbers)


def draw(results: Sequence[Row], parameters: Parameters, path: Path) -> None:
    """Tokens and errors against dimension, one column of panels per family."""
    dimension_figure.draw(results, parameters, verdict(results, parameters), path, FAMILIES, one_constant)


WORDS = {
    "families": "; ".join(f"`{name}`: {text}" for name, text in FAMILIES.items()),
    "searches": ", ".join(f"`{name}`" for name in SEARCHES),
}
EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table, words=WORDS, methods=list(METHODS))
