"""The figure of norms under noise: a row per quantity, a column per data set, controls beside the primary run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from maxaffine.lab import trends
from maxaffine.lab.experiment import Parameters, Row
from maxaffine.lab.figures import band, figure, logarithmic, save, title
from maxaffine.lab.norms_judgement import DATASETS, TITLES, curves, is_synthetic, sigmas, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "primary": "#0072b2",
    "redrawn": "#56b4e9",
    "adamw": "#cc79a7",
    "standardised": "#8c8c00",
    "c1": "#d55e00",
    "c3": "#009e73",
    "c4": "#e69f00",
}
NAMES = {
    "primary": "primary: input noise",
    "redrawn": "noise redrawn each epoch",
    "adamw": "AdamW, decay 0.01",
    "standardised": "standardised pixels",
    "c1": "C1: inputs rescaled to equal size",
    "c3": "C3: all but W_Q, W_K frozen",
    "c4": "C4: label noise, clean inputs",
}


def _norms(axes: Axes, results: Sequence[Row], dataset: str) -> None:
    sigma = sigmas(results)
    for quantity, dash, name in (("key_frobenius", "-", "W_K"), ("query_frobenius", "--", "W_Q")):
        samples = curves(results, "primary", dataset, quantity)
        if len(samples):
            rho = trends.spearman(sigma, samples.mean(axis=0))
            rising = trends.increases(samples.mean(axis=0))
            label = f"|{name}|_F: Spearman {rho:.2f}, {rising} of {len(sigma) - 1} steps up"
            band(axes, sigma, samples, "#0072b2" if name == "W_K" else "#d55e00", label, ls=dash)
    axes.margins(y=0.25)
    axes.legend(loc="upper right")


def _variants(axes: Axes, results: Sequence[Row], dataset: str, quantity: str, relative: bool) -> None:
    for variant, colour in COLOURS.items():
        samples = curves(results, variant, dataset, quantity)
        if len(samples):
            shown = samples / samples[:, :1] if relative else samples
            band(axes, sigmas(results), shown, colour, NAMES[variant], lw=2.2 if variant == "primary" else 1.3)
    if relative:
        axes.axhline(1.0, color="#6b7280", lw=0.6)


def _dictionary(axes: Axes, results: Sequence[Row]) -> None:
    sigma = sigmas(results)
    kept = sigma > 0
    samples = curves(results, "c5", "dictionary", "train_inverse_temperature")
    if not len(samples):
        axes.set_axis_off()
        return
    axes.plot(sigma[kept], 1 / sigma[kept] ** 2, color="#1f2430", lw=1.0, ls=":", label="1 / sigma²: the best there is")
    band(axes, sigma[kept], samples[:, kept], "#009e73", "learned inverse temperature")
    logarithmic(axes)
    axes.set_xlabel("noise sigma")
    axes.set_title("C5: dictionary task, known answer")
    axes.legend(loc="best")


def draw(results: Sequence[Row], parameters: Parameters, path: Path) -> None:
    """Four rows: norms; |W_K|_F of all variants; the std of the logits (C2); accuracies and C5."""
    rows = ("Frobenius norm at the end", "|W_K|_F, divided by its value at the lowest level", "std of attention logits (C2)", "")
    with figure(4, 3, (12.0, 13.0)) as (canvas, grid):
        for column, dataset in enumerate(DATASETS):
            _norms(grid[0][column], results, dataset)
            _variants(grid[1][column], results, dataset, "key_frobenius", True)
            _variants(grid[2][column], results, dataset, "train_logit_std", False)
            grid[0][column].set_title(TITLES[dataset] + (" (SYNTHETIC IMAGES)" if is_synthetic(results) else ""))
            for row in range(3):
                grid[row][column].set_xlabel("noise sigma (C4: share of flipped labels)" if row else "noise sigma")
            if column == 0:
                for row in range(3):
                    grid[row][0].set_ylabel(rows[row])
        grid[1][0].legend(loc="best", fontsize=7)
        _accuracies(grid[3][0], results)
        _entropies(grid[3][1], results)
        _dictionary(grid[3][2], results)
        found = verdict(results, parameters)
        title(canvas, "Norms of W_K and W_Q against noise", found, "SYNTHETIC DATA" if is_synthetic(results) else "")
        save(canvas, path)


def _accuracies(axes: Axes, results: Sequence[Row]) -> None:
    for dataset, colour in zip(DATASETS, ("#0072b2", "#e69f00", "#009e73"), strict=True):
        for quantity, dash, name in (("test_accuracy", "-", "clean test"), ("train_accuracy", ":", "noised train")):
            samples = curves(results, "primary", dataset, quantity)
            if len(samples):
                band(axes, sigmas(results), samples, colour, f"{TITLES[dataset]}, {name}", ls=dash)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("noise sigma")
    axes.set_ylabel("accuracy")
    axes.set_title("Accuracy, primary run")
    axes.legend(loc="best", fontsize=7)


def _entropies(axes: Axes, results: Sequence[Row]) -> None:
    for dataset, colour in zip(DATASETS, ("#0072b2", "#e69f00", "#009e73"), strict=True):
        samples = curves(results, "primary", dataset, "train_entropy")
        if len(samples):
            tokens = {"cifar10": 64}.get(dataset, 16)
            band(axes, sigmas(results), samples / np.log(tokens), colour, TITLES[dataset])
    axes.set_xlabel("noise sigma")
    axes.set_ylabel("entropy / log(tokens)")
    axes.set_title("Mean attention entropy, primary run")
    axes.legend(loc="best", fontsize=7)
