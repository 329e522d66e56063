"""The mean-field claims judged: training runs put together, and from the numbers of a check to holds, in part, or fails."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.lab.experiment import Parameters, Rows

CURVES = ("test", "exact", "paper", "paper0", "train")
CLOSE = 0.05  # relative distance at which a formula agrees with a test risk
HOLDS, PARTLY, FAILS = "holds", "holds in part", "fails"

WORDS: dict[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))  # of every rule

Numbers = Mapping[str, Any]


def _share(good: Sequence[bool]) -> str:
    return HOLDS if all(good) else PARTLY if any(good) else FAILS


def _all(good: Sequence[bool]) -> str:
    return HOLDS if all(good) else FAILS


def _transition(numbers: Numbers) -> str:
    rows = [numbers[d] for d in sorted(numbers, key=int)]
    falls = all(after["below"] < before["below"] for before, after in pairwise(rows))
    return _share([falls, abs(rows[-1]["above"] - 0.8**2) <= 0.05])


def _bayes(numbers: Numbers) -> str:
    first, last = (numbers[choose(numbers, key=int)] for choose in (min, max))
    if last["bayes"] < first["bayes"] and last["softmax"] < first["softmax"]:
        return HOLDS
    return PARTLY if last["bayes"] < first["bayes"] else FAILS


def _stationary(numbers: Numbers) -> str:
    points = [point for row in numbers.values() for point in row]
    others = [point for point in points if not (abs(point["overlaps"][0]) == 1 and abs(point["overlaps"][1]) == 1)]
    if not others:
        return HOLDS
    return FAILS if any(point["kind"] == "minimum" for point in others) else PARTLY


def _initialisation(numbers: Numbers) -> str:
    population = min(row["learned"] / row["of"] for row in numbers["population"].values())
    sampled = min(numbers["sampled"].values())
    good = [population >= 0.9, sampled >= 0.9]
    return _share(good) if any(good) else PARTLY if population > 0.5 else FAILS


_RULES: dict[str, Callable[[Numbers], str]] = {
    "risk": lambda rows: _share([abs(row["paper"] - row["exact"]) <= 0.01 for row in rows.values()]),
    "transition": _transition,
    "optimality": lambda found: _all([found["largest_slope"] <= 0, found["smallest_eigenvalue"] > -1e-12]),
    "bayes": _bayes,
    "stationary": _stationary,
    "initialisation": _initialisation,
    "length": lambda rows: _all([row["defect"] <= 1e-9 for row in rows.values()]),
    "linear": lambda risk: _all([1 - risk["linear"] / risk["null"] < 0.05, risk["oracle"] < 0.01 * risk["null"]]),
    "experiment": lambda rows: _share([share >= 0.95 for row in rows.values() for share in row.values()]),
}


def judge(name: str, numbers: Numbers, said: str) -> str:
    """The verdict on a claim; `said` is the check's own word, taken where there are no numbers to weigh."""
    return _RULES[name](numbers) if name in _RULES else said


def trained(results: Rows) -> dict[str, list[dict[str, Any]]]:
    """The training runs by gamma and start, all seeds together: curves (seeds, steps), who learned, z."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for row in results:
        if row["unit"]["kind"] != "training":
            continue
        values = row["values"]
        parts = [{**part, "steps": values["steps"]} for part in values["starts"]]
        before = runs.get(row["unit"]["gamma"], [{}] * len(parts))
        runs[row["unit"]["gamma"]] = [
            part if not entry else {
                **part,
                **{name: entry[name] + part[name] for name in ("learned", "z_squared", "z_count", *CURVES)},
                "z_max": max(entry["z_max"], part["z_max"]),
            }
            for entry, part in zip(before, parts, strict=True)
        ]  # fmt: skip
    return runs


def agreement(entry: dict[str, Any], formula: str) -> float:
    """The share of checkpoints at which a formula's median lies within 5 % of the median test risk."""
    test, said = (np.median(np.array(entry[name]), axis=0) for name in ("test", formula))
    return float(np.mean(np.abs(said - test) <= CLOSE * test))


def claims(results: Rows, parameters: Parameters) -> list[dict[str, str]]:
    """Every claim with its check, its finding and its verdict by the rules."""
    runs = trained(results)
    found = []
    for row in results:
        if row["unit"]["kind"] != "claim":
            continue
        name, values = row["unit"]["claim"], row["values"]
        numbers, finding = values["numbers"], values["finding"]
        if name == "initialisation":
            sampled = {gamma: float(np.mean(entries[0]["learned"])) for gamma, entries in runs.items()}
            numbers = {"population": numbers, "sampled": sampled}
            finding = finding.removesuffix(". With n = 1000 samples most uniform starts memorise: see the last claim")
            shares = " and ".join(f"{sum(entries[0]['learned'])}/{len(entries[0]['learned'])}" for entries in runs.values())
            finding += f". With n = 1000 samples {shares} uniform starts learn in {parameters['steps']} steps"
        found.append({"claim": values["claim"], "finding": finding, "verdict": judge(name, numbers, values["verdict"])})
    shares_of = {gamma: {entry["start"]: agreement(entry, "paper") for entry in entries} for gamma, entries in runs.items()}
    flat = [share for row in shares_of.values() for share in row.values()]
    exact = [agreement(entry, "exact") for entries in runs.values() for entry in entries]
    close, close_exact = (sum(share >= 0.95 for share in shares) for shares in (flat, exact))
    finding = (
        f"the paper's formula is within 5 % of the median test risk at 95 % of the checkpoints in {close} of {len(flat)} cases "
        f"(five starts, two gammas), and at {np.median(flat):.0%} of them in the median case; the exact risk at the measured "
        f"overlaps in {close_exact} of {len(exact)}, at {min(exact):.0%} of them at least"
    )
    verdict = judge("experiment", shares_of, FAILS)
    found.append({"claim": "the experiment agrees perfectly with the theory (Fig. 2)", "finding": finding, "verdict": verdict})
    return found
