"""How tokens and errors grow with the dimension: curves, slopes with intervals, refusals in words, one table of all methods."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from maxaffine.lab.experiment import Cells, Parameters, Row, Rows, Table

JUDGED = 4  # dimensions that a curve needs to be judged
LONGEST = 1000  # letters of a refusal that the page repeats
NUMBER = re.compile(r"\d[\d.,]*(?:e[+-]?\d+)?(?: [KMGTPEZY]i?B| bytes)?")

Curves = dict[tuple[str, str, float | None], "Curve"]


@dataclass
class Curve:
    """Tokens at one error, or errors within the budget, over the dimensions that have a layer."""

    dimensions: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    stored: list[int] = field(default_factory=list)


def curves(results: Rows) -> Curves:
    """(family, method, error) -> tokens over D; with None for the error, the error within the budget over D."""
    found: Curves = {}
    for row in results:
        unit, values = row["unit"], row["values"]
        if values["tokens"] is None:
            continue
        curve = found.setdefault((unit["family"], unit["method"], unit["error"]), Curve())
        curve.dimensions.append(int(unit["dimension"]))
        curve.values.append(values["reached"] if unit["error"] is None else values["tokens"])
        curve.stored.append(values["stored"])
    return found


def fit(dimensions: Sequence[int], values: Sequence[float], power: bool) -> tuple[float, float]:
    """Slope of log10 values against D, or against log10 D, and half its 95% interval."""
    from scipy import stats

    if len(set(values)) == 1:
        return 0.0, 0.0
    x = np.log10(dimensions) if power else np.asarray(dimensions, dtype=np.float64)
    line = stats.linregress(x, np.log10(np.asarray(values, dtype=np.float64)))
    half = float(stats.t.ppf(0.975, len(x) - 2) * line.stderr) if len(x) > 2 else math.inf
    return float(line.slope), half


def log_side(curve: Curve) -> float:
    """log10 P, P^2 the tokens of a lookup at D = 2."""
    return math.log10(curve.values[0]) / 2.0


class Refusals:
    """Who refused how often, and every kind of sentence under a short name R1, R2, ..."""

    def __init__(self, results: Rows) -> None:
        """Read all results; sentences that differ in their numbers alone share a name."""
        self.counts: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.legend: dict[str, str] = {}
        self._names: dict[tuple[str, str], str] = {}
        for row in results:
            method = str(row["unit"]["method"])
            self.asked[method] += 1
            if row["values"]["kind"] != "refused":
                continue
            self.counts[method] += 1
            key = self._key(row)
            if key not in self._names:
                self._names[key] = f"R{len(self._names) + 1}"
                self.legend[f"{self._names[key]}, {method}"] = _shortened(str(row["values"]["reason"]))

    def name(self, row: Row) -> str:
        """The short name of a refusal."""
        return self._names[self._key(row)]

    @staticmethod
    def _key(row: Row) -> tuple[str, str]:
        return str(row["unit"]["method"]), NUMBER.sub("#", str(row["values"]["reason"]))


def _shortened(sentence: str) -> str:
    if len(sentence) <= LONGEST:
        return sentence
    return sentence[: sentence.rindex(" ", 0, LONGEST)] + " ..."


def table(results: Rows, parameters: Parameters) -> Table:
    """Per family: tokens at each error and errors within the budget for every D, then their growth.

    One column per method, those with layers first.
    """
    refusals = Refusals(results)
    methods = sorted(parameters["methods"], key=lambda method: refusals.counts[method] == refusals.asked[method])
    cells: dict[tuple[str, float | None, int], dict[str, str | int]] = {}
    for row in results:
        unit, values = row["unit"], row["values"]
        said = values.get("reached") if unit["error"] is None else values["tokens"]
        into = cells.setdefault((unit["family"], unit["error"], int(unit["dimension"])), {})
        into[unit["method"]] = f"refused, {refusals.name(row)}" if said is None else _short(said)
    known = curves(results)
    rows: list[Cells] = []
    for family in parameters["families"]:
        for error in (*parameters["errors"], None):
            asked = f"error within {parameters['budget']:,} tokens" if error is None else f"tokens at {error:g}"
            for dimension in range(2, int(parameters["highest"]) + 1):
                rows.append((family, asked, dimension, *(cells[family, error, dimension][method] for method in methods)))
            for label, entries in _growth(known, family, error, methods):
                rows.append((family, asked, label, *entries))
    return Table(("family", "asked", "D", *methods), rows)


def _growth(known: Curves, family: str, error: float | None, methods: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Slopes with their 95% intervals, one list of cells per kind of slope."""
    side = 0.0
    if error is not None and (family, "lookup", error) in known:
        side = log_side(known[family, "lookup", error])
    wanted = [("log10 per D", False, 1.0)]
    if error is not None:
        wanted += [("the same / log10 P", False, side)] if side else []
        wanted.append(("power of D", True, 1.0))
    found = []
    for label, power, scale in wanted:
        entries = []
        for method in methods:
            curve = known.get((family, method, error), Curve())
            count = len(curve.dimensions)
            if count < JUDGED:
                entries.append(f"only {count} D" if count else "no layer")
                continue
            slope, half = fit(curve.dimensions, curve.values, power)
            entries.append(f"{slope / scale:.2f} ± {half / scale:.2f}")
        found.append((label, entries))
    return found


def _short(value: float | int) -> str | int:
    """Tokens as they are up to ten million, then three digits; errors as they are."""
    if isinstance(value, int) and value <= 10**7:
        return value
    return f"{float(value):.3g}"
