"""Experiment 6, dimension: tokens at equal error and error at equal tokens for D = 2 to 10, every method of the compiler."""

import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from maxaffine.heads import HEADS
from maxaffine.lab import dimension_growth as growth
from maxaffine.lab.dimension_growth import table
from maxaffine.lab.experiment import Context, Experiment, Numbers, Parameters, Result, Rows, Unit, Verdict, sweep
from maxaffine.lab.figures import figure
from maxaffine.report.style import CURVES, QUIET, logarithmic

FAMILIES = {
    "additive": "sum_i sin(2 x_i) / D",
    "multiplicative": "prod_i cos(x_i)",
    "non-separable": "1 / (1 + (x_1 x_2 + x_2 x_3 + ... + x_D x_1) / (2 D))",
}
SEARCHES = tuple(name for name, head in HEADS.items() if name != "lookup" and not head.by_name)
METHODS = ("lookup", *SEARCHES, "auto")
# `auto` takes what another method found: an open ring around its point, no line of its own.
MARKS = {"lookup": "o", "spectral": "s", "tree": "^", "piecewise": "v", "axis": "<", "regions": ">", "curved": "D", "level": "P"}


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
        target=target, error=1.0, norm=float("inf"), dtype="float64", facts=gather(target, None, None, None), partition=None,
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


def verdict(results: Rows, parameters: Parameters) -> Verdict:
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


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """Tokens at equal error above, errors at equal tokens below, one column per family."""
    known = growth.curves(results)
    shown = [method for method in parameters["methods"] if any(key[1] == method for key in known)]
    names, D = list(parameters["families"]), range(2, int(parameters["highest"]) + 1)
    what = "Tokens at equal error, and errors at equal tokens, against dimension"
    with figure(path, what, verdict(results, parameters), 2, len(names), (12.0, 8.4)) as (canvas, grid):
        for (upper, lower), family in zip(grid.T, names, strict=True):
            _tokens(upper, known, family, shown, parameters)
            _errors(lower, known, family, shown, parameters)
            flat = [one_constant(family, dimension) for dimension in D]
            lower.plot(D, flat, "-.", lw=1.0, color=QUIET, label="half the range of f: one constant", zorder=1)
            upper.set_title(f"{family}\n{FAMILIES[family]}", fontsize=8)
        handles: dict[str, Any] = {}
        for axes in grid.ravel():
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        columns = min(5, len(handles))
        canvas.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=columns, fontsize=8)


def _look(method: str, shown: list[str]) -> dict[str, Any]:
    if method == "auto":
        return {"marker": "o", "ls": "none", "ms": 8.5, "mfc": "none", "mec": "#000000", "mew": 1.0, "zorder": 4}
    plain = [one for one in shown if one != "auto"]
    return {"marker": MARKS.get(method, "o"), "ls": "-", "ms": 4.5, "color": CURVES[3 * plain.index(method) % len(CURVES)]}


def _tokens(axes: Any, known: growth.Curves, family: str, shown: list[str], parameters: Parameters) -> None:
    for k, error in enumerate(parameters["errors"]):
        alpha = 1.0 - 0.45 * k
        for method in shown:
            curve = known.get((family, method, error))
            if curve is None:
                continue
            look = _look(method, shown)
            axes.plot(curve.dimensions, curve.values, label=f"{method}, error {error:g}", alpha=alpha, **look)
            if method == "spectral":  # its factored layers imply more tokens than they store
                axes.plot(curve.dimensions, curve.stored, ":", lw=1.2, color=look["color"], alpha=alpha,
                          label=f"{method}, error {error:g}: numbers stored")  # fmt: skip
        lookup = known.get((family, "lookup", error))
        if lookup is not None:
            side, top = 10.0 ** growth.log_side(lookup), int(parameters["highest"])
            line = [side**dimension for dimension in range(2, top + 1)]
            axes.plot(range(2, top + 1), line, "--", lw=1.0, color=QUIET, alpha=alpha, label=f"P^D, error {error:g}")
    axes.set(xlabel="dimension D", ylabel="tokens", xticks=range(2, int(parameters["highest"]) + 1))
    logarithmic(axes, x=False)


def _errors(axes: Any, known: growth.Curves, family: str, shown: list[str], parameters: Parameters) -> None:
    for method in shown:
        curve = known.get((family, method, None))
        if curve is not None:
            axes.plot(curve.dimensions, curve.values, **_look(method, shown))
    ladder = [float(error) for error in parameters["ladder"]]
    axes.set(xlabel="dimension D", ylabel=f"least error within {parameters['budget']:,} tokens")
    axes.set_xticks(range(2, int(parameters["highest"]) + 1))
    axes.set_ylim(min(ladder) / 3.0, max(ladder) * 3.0)
    logarithmic(axes, x=False)


WORDS = {
    "families": "; ".join(f"`{name}`: {text}" for name, text in FAMILIES.items()),
    "searches": ", ".join(f"`{name}`" for name in SEARCHES),
}
EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table, words=WORDS, methods=list(METHODS))
