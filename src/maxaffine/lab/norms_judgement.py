"""Norms under noise, judged: the tests of every curve, the verdict by the rule that was fixed before the run, and the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.lab import trends
from maxaffine.lab.experiment import EXPLAINED, INCOMPLETE, NOT_REPRODUCED, REPRODUCED, Parameters, Row, Table, Verdict

Array = NDArray[np.float64]

DATASETS = ("mnist", "fashion-mnist", "cifar10")
TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "dictionary": "dictionary"}
DECLINE = -0.9 + 1e-12  # Spearman's correlation up to which a curve counts as declining; the rest is for rounding
OTHERS = {  # variants that do not decide
    "redrawn": "noise redrawn each epoch",
    "adamw": "AdamW",
    "standardised": "standardised pixels",
    "c3": "C3 (all but W_Q and W_K frozen)",
    "c4": "C4 (label noise)",
}
SLOPE_FROM = 0.3  # sigma from which the log-log slope is taken
FULL = {"levels": 25, "images": 0, "epochs": 20}


def seeds_of(variant: str, parameters: Parameters) -> int:
    """Seeds of a variant: all for the primary run, `control_seeds` at most for the others."""
    seeds = int(parameters["seeds"])
    return seeds if variant == "primary" else min(seeds, int(parameters["control_seeds"]))


def curves(results: Sequence[Row], variant: str, dataset: str, quantity: str) -> Array:
    """One curve over the levels per seed, (seeds, levels); no rows where nothing was run."""
    found = [
        row["values"][quantity]
        for row in results
        if row["unit"]["variant"] == variant and row["unit"]["dataset"] == dataset and quantity in row["values"]
    ]
    return np.array(found, dtype=np.float64)


def sigmas(results: Sequence[Row]) -> Array:
    """The levels of the run."""
    return np.array(results[0]["values"]["sigma"], dtype=np.float64)


def tests(sigma: Array, samples: Array) -> dict[str, float]:
    """All tests of one quantity: samples (seeds, levels)."""
    mean = samples.mean(axis=0)
    each = [trends.spearman(sigma, sample) for sample in samples]
    slopes = np.array([trends.log_log_slope(sigma, sample, SLOPE_FROM) for sample in samples])
    slope, half = trends.mean_and_interval(slopes)
    falling = sum(value < 0 for value in each)
    return {
        "spearman": trends.spearman(sigma, mean),
        "spearman_highest_seed": max(each),
        "seeds_falling": falling,
        "seeds": len(samples),
        "sign_test": trends.sign_test(falling, len(samples)),
        "increases": trends.increases(mean),
        "decreasing_r2": trends.decreasing_r2(mean),
        "slope": float(slope),
        "slope_half_interval": float(half),
        "fall": float(mean[-1] / mean[0]) if mean[0] else float("nan"),
    }


def is_synthetic(results: Sequence[Row]) -> bool:
    """Whether any image of the run was made up."""
    return any(row["values"].get("synthetic") for row in results)


def _missing(results: Sequence[Row], parameters: Parameters, variant: str) -> list[str]:
    needed = seeds_of(variant, parameters)
    return [TITLES[name] for name in DATASETS if len(curves(results, variant, name, "key_frobenius")) < needed]


def _spearmans(results: Sequence[Row], variant: str, quantities: Sequence[str]) -> dict[str, float]:
    sigma = sigmas(results)
    return {
        f"{variant} {TITLES[name]} {quantity}": trends.spearman(sigma, curves(results, variant, name, quantity).mean(axis=0))
        for name in DATASETS
        for quantity in quantities
    }


def _declines(results: Sequence[Row], variant: str) -> bool:
    return all(value <= DECLINE for value in _spearmans(results, variant, ("key_frobenius", "query_frobenius")).values())


def _listed(values: dict[str, float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values.values())


def verdict(results: Sequence[Row], parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    missing = _missing(results, parameters, "primary")
    if missing:
        return Verdict(INCOMPLETE, f"The primary run lacks units on {', '.join(missing)}.", {"units": len(results)})
    norms = _spearmans(results, "primary", ("key_frobenius", "query_frobenius"))
    numbers: dict[str, Any] = {f"Spearman {name}": round(value, 4) for name, value in norms.items()}
    reduced = any(parameters[name] != value for name, value in FULL.items())
    size = f"{parameters['levels']} levels, {parameters['epochs']} epochs, {parameters['images'] or 'all'} images"
    short = f" (a reduced run: {size})" if reduced else ""
    falls = _declines(results, "primary")
    said = f"Spearman of sigma with |W_K|_F and |W_Q|_F on MNIST, Fashion-MNIST and CIFAR-10: {_listed(norms)}{short}"
    tested = not _missing(results, parameters, "c1")
    survives, still = False, False
    if tested:
        logits = _spearmans(results, "c1", ("train_logit_std",))
        rescaled = _spearmans(results, "c1", ("key_frobenius", "query_frobenius"))
        numbers |= {f"Spearman {name}": round(value, 4) for name, value in {**logits, **rescaled}.items()}
        survives = all(value <= DECLINE for value in logits.values())
        still = all(value <= DECLINE for value in rescaled.values())
        said += f"; with inputs of equal size (C1) the std of the logits has {_listed(logits)} and the norms {_listed(rescaled)}"
    run = [variant for variant in OTHERS if not _missing(results, parameters, variant)]
    if run:
        names = [OTHERS[variant] for variant in run if _declines(results, variant)]
        numbers["other variants that decline on all three"] = "; ".join(names) or "none"
        said += f"; of {len(run)} other variants the norms decline on all three in {'; '.join(names) or 'none'}"
    if is_synthetic(results):
        return Verdict(INCOMPLETE, f"SYNTHETIC DATA, which say nothing about the claim. {said}.", numbers)
    if not falls:
        return Verdict(NOT_REPRODUCED, f"Not every norm declines monotonically. {said}.", numbers)
    if not tested:
        return Verdict(REPRODUCED, f"The norms decline; whether blur is the reason was not tested. {said}.", numbers)
    if survives:
        words = "The norms decline, and the decline survives C1 in the logits, as partition blur predicts."
        return Verdict(REPRODUCED, f"{words} {said}.", numbers)
    if still:
        words = "The norms decline, in C1 as well, but the logits there do not: partition blur is not shown."
        return Verdict(REPRODUCED, f"{words} {said}.", numbers)
    return Verdict(
        EXPLAINED + "the growth of the inputs under noise",
        f"The norms decline, but neither the logits nor all norms do once inputs have equal size. {said}.",
        numbers,
    )


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
    rows: list[tuple[str | float | int, ...]] = []
    pairs = dict.fromkeys((row["unit"]["variant"], row["unit"]["dataset"]) for row in results)
    for variant, dataset in pairs:
        for quantity, title in _TABLE.items():
            samples = curves(results, variant, dataset, quantity)
            if not len(samples):
                continue
            found = tests(sigmas(results), samples)
            rows.append(
                (
                    variant, TITLES[dataset], title, f"{found['spearman']:.3f}", f"{found['spearman_highest_seed']:.3f}",
                    f"{found['seeds_falling']} of {found['seeds']}", f"{found['sign_test']:.3g}",
                    f"{found['increases']} of {len(sigmas(results)) - 1}", f"{found['decreasing_r2']:.3f}",
                    f"{found['slope']:.2f} ± {found['slope_half_interval']:.2f}", f"{found['fall']:.3f}",
                )
            )  # fmt: skip
    return Table(header, tuple(rows))
