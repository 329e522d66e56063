"""Norms under noise, judged: tests of every curve, the verdict by the rule fixed before the run, the table and the figure."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.lab import trends
from maxaffine.lab.experiment import Cells, Numbers, Parameters, Rows, Table, Verdict, curves
from maxaffine.lab.figures import band, figure
from maxaffine.report.style import BLUE, GREEN, INK, OLIVE, ORANGE, PURPLE, QUIET, RED, SKY, logarithmic

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
SHOWN = {
    "primary": (BLUE, "primary: input noise"),
    "redrawn": (SKY, "noise redrawn each epoch"),
    "adamw": (PURPLE, "AdamW, decay 0.01"),
    "standardised": (OLIVE, "standardised pixels"),
    "c1": (RED, "C1: inputs rescaled to equal size"),
    "c3": (GREEN, "C3: all but W_Q, W_K frozen"),
    "c4": (ORANGE, "C4: label noise, clean inputs"),
}
FULL = {"levels": 25, "images": 0, "epochs": 20}


def seeds_of(variant: str, parameters: Parameters) -> int:
    """Seeds of a variant: all for the primary run, `control_seeds` at most for the others."""
    seeds = int(parameters["seeds"])
    return seeds if variant == "primary" else min(seeds, int(parameters["control_seeds"]))


def sigmas(results: Rows) -> Array:
    """The levels of the run."""
    return np.array(results[0]["values"]["sigma"], dtype=np.float64)


def is_synthetic(results: Rows) -> bool:
    """Whether any image of the run was made up."""
    return any(row["values"].get("synthetic") for row in results)


def _missing(results: Rows, parameters: Parameters, variant: str) -> list[str]:
    needed = seeds_of(variant, parameters)
    return [TITLES[name] for name in DATASETS if len(curves(results, "key_frobenius", variant=variant, dataset=name)) < needed]


def _spearmans(results: Rows, variant: str, quantities: Sequence[str] = NORMS) -> dict[str, float]:
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


def verdict(results: Rows, parameters: Parameters) -> Verdict:
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


def table(results: Rows, parameters: Parameters) -> Table:
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


def _norms(axes: Any, results: Rows, dataset: str) -> None:
    sigma = sigmas(results)
    for quantity, dash, name, colour in (("key_frobenius", "-", "W_K", BLUE), ("query_frobenius", "--", "W_Q", RED)):
        samples = curves(results, quantity, variant="primary", dataset=dataset)
        if len(samples):
            mean = samples.mean(axis=0)
            rising = f"{trends.increases(mean)} of {len(sigma) - 1} steps up"
            band(axes, sigma, samples, colour, f"|{name}|_F: Spearman {trends.spearman(sigma, mean):.2f}, {rising}", ls=dash)
    axes.margins(y=0.25)
    axes.legend(loc="upper right")


def _variants(axes: Any, results: Rows, dataset: str, quantity: str, relative: bool) -> None:
    for variant, (colour, name) in SHOWN.items():
        samples = curves(results, quantity, variant=variant, dataset=dataset)
        shown = samples / samples[:, :1] if relative and len(samples) else samples
        band(axes, sigmas(results), shown, colour, name, lw=2.2 if variant == "primary" else 1.3)
    if relative:
        axes.axhline(1.0, color=QUIET, lw=0.6)


def _dictionary(axes: Any, results: Rows) -> None:
    sigma = sigmas(results)
    kept = sigma > 0
    samples = curves(results, "train_inverse_temperature", variant="c5", dataset="dictionary")
    if not len(samples):
        axes.set_axis_off()
        return
    axes.plot(sigma[kept], 1 / sigma[kept] ** 2, color=INK, lw=1.0, ls=":", label="1 / sigma²: the best there is")
    band(axes, sigma[kept], samples[:, kept], GREEN, "learned inverse temperature")
    logarithmic(axes)
    axes.set(xlabel="noise sigma", title="C5: dictionary task, known answer")
    axes.legend(loc="best")


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """Four rows: norms; |W_K|_F of all variants; the std of the logits (C2); accuracies and C5."""
    rows = ("Frobenius norm at the end", "|W_K|_F, divided by its value at the lowest level", "std of attention logits (C2)")
    what, warning = "Norms of W_K and W_Q against noise", "SYNTHETIC DATA" if is_synthetic(results) else ""
    with figure(path, what, verdict(results, parameters), 4, 3, (12.0, 13.0), warning) as (_, grid):
        for column, dataset in zip(grid.T, DATASETS, strict=True):
            _norms(column[0], results, dataset)
            _variants(column[1], results, dataset, "key_frobenius", True)
            _variants(column[2], results, dataset, "train_logit_std", False)
            column[0].set_title(TITLES[dataset] + (" (SYNTHETIC IMAGES)" if warning else ""))
            for row, axes in enumerate(column[:3]):
                axes.set_xlabel("noise sigma (C4: share of flipped labels)" if row else "noise sigma")
        for axes, words in zip(grid[:3, 0], rows, strict=True):
            axes.set_ylabel(words)
        grid[1][0].legend(loc="best", fontsize=7)
        _primary(grid[3][0], results, (("test_accuracy", "-", ", clean test"), ("train_accuracy", ":", ", noised train")))
        grid[3][0].set(ylim=(0, 1.02), ylabel="accuracy", title="Accuracy, primary run")
        _primary(grid[3][1], results, (("train_entropy", "-", ""),))
        grid[3][1].set(ylabel="entropy / log(tokens)", title="Mean attention entropy, primary run")
        _dictionary(grid[3][2], results)


def _primary(axes: Any, results: Rows, quantities: tuple[tuple[str, str, str], ...]) -> None:
    """Quantities of the primary run, a colour per data set; entropies per logarithm of the number of tokens."""
    for dataset, colour in zip(DATASETS, (BLUE, ORANGE, GREEN), strict=True):
        for quantity, dash, name in quantities:
            samples = curves(results, quantity, variant="primary", dataset=dataset)
            scale = np.log(64 if dataset == "cifar10" else 16) if quantity == "train_entropy" else 1.0
            band(axes, sigmas(results), samples / scale, colour, f"{TITLES[dataset]}{name}", ls=dash)
    axes.set_xlabel("noise sigma")
    axes.legend(loc="best", fontsize=7)
