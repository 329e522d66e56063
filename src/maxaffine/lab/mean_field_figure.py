"""The figure of the mean-field experiment: training curves and success rates for both gammas, phase diagrams below."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.lab.experiment import Parameters, Row
from maxaffine.lab.mean_field_rules import CURVES, trained
from maxaffine.lab.sweeps import select
from maxaffine.meanfield.figures.dynamics import success_panel, training_panel
from maxaffine.report import style

SHOWN = (0, 1, 3)  # starts that have a panel: uniform, mu0 = 0.1, mu0 = 0.3


def draw(results: Sequence[Row], parameters: Parameters, path: Path) -> None:
    """Three rows: gamma = 1/sqrt(2), gamma = 1/2, phases."""
    with style.sheet(path, (13.0, 9.4), 3, 4) as (figure, axes):
        for row, (gamma, entries) in enumerate(trained(results).items()):
            for ax, start in zip(axes[row], SHOWN, strict=False):
                entry = entries[start]
                spread = {curve: np.quantile(np.array(entry[curve]), [0.1, 0.5, 0.9], axis=0) for curve in CURVES}
                curves = {curve: dict(zip(("low", "median", "high"), rows, strict=True)) for curve, rows in spread.items()}
                training_panel(ax, {**entry, **curves, "learned": sum(entry["learned"]), "seeds": len(entry["learned"])}, gamma)
                ax.set(xlabel="step", ylabel="risk with ε²")
            learned = [values["learned"] for values in select(results, kind="success", gamma=gamma)]
            success_panel(axes[row][3], learned, parameters["grid_seeds"], parameters["overlaps"], parameters["sample_sizes"])
            axes[row][3].set_title(f"γ = {gamma.replace('sqrt(2)', '√2')}: learned, of {parameters['grid_seeds']}", fontsize=9)
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
        _phases(axes[2], select(results, kind="phases")[0], parameters)


def _phases(axes: Any, values: dict[str, Any], parameters: Parameters) -> None:
    alpha, beta = np.array(values["alpha"]), np.array(values["beta"])
    exact, corrected, paper = (np.array(values[name]) for name in ("exact", "corrected", "paper"))
    top, size = float(max(exact.max(), paper.max())), float(np.abs(paper - exact).max())
    line = np.linspace(alpha[0], alpha[-1], 200)
    panels = (
        (f"exact risk of the oracle, d = {parameters['phase_d']}", exact, "viridis", 0.0, top, "white"),
        ("limit with what the paper drops", corrected, "viridis", 0.0, top, "white"),
        ("paper's limit", paper, "viridis", 0.0, top, "white"),
        ("paper minus exact", paper - exact, "RdBu_r", -size, size, style.INK),
    )
    for place, (ax, (title, field, colours, low, high, ink)) in enumerate(zip(axes, panels, strict=True)):
        image = ax.pcolormesh(alpha, beta, field, cmap=colours, vmin=low, vmax=high, shading="nearest", rasterized=True)
        if place > 1:
            ax.figure.colorbar(image, ax=ax, pad=0.02)
        ax.plot(line, np.sqrt(2 * line), color=ink, lw=1, ls="--")
        ax.set_title(title, fontsize=9)
        ax.set(xlabel="α = log(L−1)/d", ylabel="β", xlim=(alpha[0], alpha[-1]), ylim=(beta[0], beta[-1]))
        ax.grid(False)
