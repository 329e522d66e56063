"""The figure of norms under noise: a row per quantity, a column per data set, controls beside the primary run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from maxaffine.lab import trends
from maxaffine.lab.experiment import Parameters, Row
from maxaffine.lab.figures import band, figure
from maxaffine.lab.norms_judgement import DATASETS, TITLES, is_synthetic, sigmas, verdict
from maxaffine.lab.sweeps import curves
from maxaffine.report.style import BLUE, GREEN, INK, OLIVE, ORANGE, PURPLE, QUIET, RED, SKY, logarithmic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VARIANTS = {
    "primary": (BLUE, "primary: input noise"),
    "redrawn": (SKY, "noise redrawn each epoch"),
    "adamw": (PURPLE, "AdamW, decay 0.01"),
    "standardised": (OLIVE, "standardised pixels"),
    "c1": (RED, "C1: inputs rescaled to equal size"),
    "c3": (GREEN, "C3: all but W_Q, W_K frozen"),
    "c4": (ORANGE, "C4: label noise, clean inputs"),
}


def _norms(axes: Axes, results: Sequence[Row], dataset: str) -> None:
    sigma = sigmas(results)
    for quantity, dash, name, colour in (("key_frobenius", "-", "W_K", BLUE), ("query_frobenius", "--", "W_Q", RED)):
        samples = curves(results, quantity, variant="primary", dataset=dataset)
        if len(samples):
            mean = samples.mean(axis=0)
            rising = f"{trends.increases(mean)} of {len(sigma) - 1} steps up"
            band(axes, sigma, samples, colour, f"|{name}|_F: Spearman {trends.spearman(sigma, mean):.2f}, {rising}", ls=dash)
    axes.margins(y=0.25)
    axes.legend(loc="upper right")


def _variants(axes: Axes, results: Sequence[Row], dataset: str, quantity: str, relative: bool) -> None:
    for variant, (colour, name) in VARIANTS.items():
        samples = curves(results, quantity, variant=variant, dataset=dataset)
        if len(samples):
            shown = samples / samples[:, :1] if relative else samples
            band(axes, sigmas(results), shown, colour, name, lw=2.2 if variant == "primary" else 1.3)
    if relative:
        axes.axhline(1.0, color=QUIET, lw=0.6)


def _dictionary(axes: Axes, results: Sequence[Row]) -> None:
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


def draw(results: Sequence[Row], parameters: Parameters, path: Path) -> None:
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


def _primary(axes: Axes, results: Sequence[Row], quantities: tuple[tuple[str, str, str], ...]) -> None:
    """Quantities of the primary run, a colour per data set; entropies per logarithm of the number of tokens."""
    for dataset, colour in zip(DATASETS, (BLUE, ORANGE, GREEN), strict=True):
        for quantity, dash, name in quantities:
            samples = curves(results, quantity, variant="primary", dataset=dataset)
            if len(samples):
                scale = np.log(64 if dataset == "cifar10" else 16) if quantity == "train_entropy" else 1.0
                band(axes, sigmas(results), samples / scale, colour, f"{TITLES[dataset]}{name}", ls=dash)
    axes.set_xlabel("noise sigma")
    axes.legend(loc="best", fontsize=7)
