"""Norms under noise, judged: the tests of every curve, the verdict by the rule that was fixed before the run, and the table."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.lab import trends
from maxaffine.lab.experiment import Cells, Numbers, Parameters, Row, Table, Verdict
from maxaffine.lab.sweeps import curves

DATASETS = ("mnist", "fashion-mnist", "cifar10")
TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "dictionary": "dictionary"}
OTHERS = {  # variants that do not decide
    "redrawn": "noise redrawn each epoch",
    "adamw": "AdamW",
    "standardised": "standardised pixels",
    "c3": "C3 (all but W_Q and W_K frozen)",
    "c4": "C4 (label noise)",
}
NORMS = ("key_frobenius", "query_frobenius")
SLOPE_FROM = 0.3  # sigma from which the log-log slope is taken
FULL = {"levels": 25, "images": 0, "epochs": 20}


def seeds_of(variant: str, parameters: Parameters) -> int:
    """Seeds of a variant: all for the primary run, `control_seeds` at most for the others."""
    seeds = int(parameters["seeds"])
    return seeds if variant == "primary" else min(seeds, int(parameters["control_seeds"]))


def sigmas(results: Sequence[Row]) -> Array:
    """The levels of the run."""
    return np.array(results[0]["values"]["sigma"], dtype=np.float64)


def is_synthetic(results: Sequence[Row]) -> bool:
    """Whether any image of the run was made up."""
    return any(row["values"].get("synthetic") for row in results)


def _missing(results: Sequence[Row], parameters: Parameters, variant: str) -> list[str]:
    needed = seeds_of(variant, parameters)
    return [TITLES[name] for name in DATASETS if len(curves(results, "key_frobenius", variant=variant, dataset=name)) < needed]


def _spearmans(results: Sequence[Row], variant: str, quantities: Sequence[str] = NORMS) -> dict[str, float]:
    sigma = sigmas(results)
    return {
        f"{variant} {TITLES[name]} {quantity}": trends.spearman(
            sigma, curves(results, quantity, variant=variant, dataset=name).mean(axis=0)
        )
        for name in DATASETS
        for quantity in quantities
    }


def _declines(values: dict[str, float]) -> bool:
    return all(value <= trends.DECLINE for value in values.values())


def _listed(values: dict[str, float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values.values())


def verdict(results: Sequence[Row], parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    missing = _missing(results, parameters, "primary")
    if missing:
        return Verdict("incomplete", f"The primary run lacks units on {', '.join(missing)}.", {"units": len(results)})
    norms = _spearmans(results, "primary")
    numbers: Numbers = {f"Spearman {name}": round(value, 4) for name, value in norms.items()}
    reduced = any(parameters[name] != value for name, value in FULL.items())
    size = f"{parameters['levels']} levels, {parameters['epochs']} epochs, {parameters['images'] or 'all'} images"
    short = f" (a reduced run: {size})" if reduced else ""
    said = f"Spearman of sigma with |W_K|_F and |W_Q|_F on MNIST, Fashion-MNIST and CIFAR-10: {_listed(norms)}{short}"
    tested = not _missing(results, parameters, "c1")
    survives = still = False
    if tested:
        logits, rescaled = _spearmans(results, "c1", ("train_logit_std",)), _spearmans(results, "c1")
        numbers |= {f"Spearman {name}": round(value, 4) for name, value in {**logits, **rescaled}.items()}
        survives, still = _declines(logits), _declines(rescaled)
        said += f"; with inputs of equal size (C1) the std of the logits has {_listed(logits)} and the norms {_listed(rescaled)}"
    run = [variant for variant in OTHERS if not _missing(results, parameters, variant)]
    if run:
        names = "; ".join(OTHERS[variant] for variant in run if _declines(_spearmans(results, variant))) or "none"
        numbers["other variants that decline on all three"] = names
        said += f"; of {len(run)} other variants the norms decline on all three in {names}"
    outcome = "reproduced"
    if is_synthetic(results):
        outcome, words = "incomplete", "SYNTHETIC DATA, which say nothing about the claim."
    elif not _declines(norms):
        outcome, words = "not reproduced", "Not every norm declines monotonically."
    elif not tested:
        words = "The norms decline; whether blur is the reason was not tested."
    elif survives:
        words = "The norms decline, and the decline survives C1 in the logits, as partition blur predicts."
    elif still:
        words = "The norms decline, in C1 as well, but the logits there do not: partition blur is not shown."
    else:
        outcome = "reproduced, but explained by the growth of the inputs under noise"
        words = "The norms decline, but neither the logits nor all norms do once inputs have equal size."
    return Verdict(outcome, f"{words} {said}.", numbers)


_TABLE = {
    "key_frobenius": "|W_K|_F",
    "query_frobenius": "|W_Q|_F",
    "product_frobenius": "|W_K^T W_Q|_F",
    "train_logit_std": "std of logits",
}


def table(results: Sequence[Row], parameters: Parameters) -> Table:
    """Every test of every curve, variant by variant."""
    header = (
        "variant", "data", "quantity", "Spearman of the mean", "highest of a seed", "seeds falling", "sign test p", "increases",
        "decreasing fit R2", "log-log slope from 0.3", "last / first",
    )  # fmt: skip
    rows: list[Cells] = []
    pairs = dict.fromkeys((row["unit"]["variant"], row["unit"]["dataset"]) for row in results)
    for (variant, dataset), (quantity, title) in itertools.product(pairs, _TABLE.items()):
        samples = curves(results, quantity, variant=variant, dataset=dataset)
        if len(samples):
            rows.append((variant, TITLES[dataset], title, *_tests(sigmas(results), samples)))
    return Table(header, rows)


def _tests(sigma: Array, samples: Array) -> list[str]:
    """All tests of one quantity, samples (seeds, levels), in the order of the table's columns."""
    mean, seeds = samples.mean(axis=0), len(samples)
    each = [trends.spearman(sigma, sample) for sample in samples]
    falling = sum(value < 0 for value in each)
    slope, half = trends.mean_and_interval([trends.log_log_slope(sigma, sample, SLOPE_FROM) for sample in samples])
    fall = float(mean[-1] / mean[0]) if mean[0] else float("nan")
    return [
        f"{trends.spearman(sigma, mean):.3f}", f"{max(each):.3f}", f"{falling} of {seeds}",
        f"{trends.sign_test(falling, seeds):.3g}", f"{trends.increases(mean)} of {len(sigma) - 1}",
        f"{trends.decreasing_r2(mean):.3f}", f"{float(slope):.2f} ± {float(half):.2f}", f"{fall:.3f}",
    ]  # fmt: skip
