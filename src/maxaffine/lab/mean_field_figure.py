"""The figure of the mean-field experiment: training curves and success rates for both gammas, phase diagrams below."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.lab.experiment import Parameters, Row
from maxaffine.lab.mean_field import GAMMAS, trained

SHOWN = (0, 1, 3)  # starts that have a panel: uniform, mu0 = 0.1, mu0 = 0.3


def draw(results: Sequence[Row], parameters: Parameters, path: Path) -> None:
    """Three rows: gamma = 1/sqrt(2), gamma = 1/2, phases."""
    from maxaffine.meanfield.figures import style

    with style.look():
        figure = style.new_figure(13.0, 9.4)
        axes = figure.subplots(3, 4)
        runs = trained(results, parameters)
        for row, gamma in enumerate(GAMMAS):
            for column, start in enumerate(SHOWN):
                _curves(axes[row][column], runs[gamma][start], gamma, style)
            _success(axes[row][3], results, parameters, gamma, style)
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
        _phases(axes[2], next(row["values"] for row in results if row["unit"]["kind"] == "phases"), parameters, figure, style)
        figure.savefig(path, format="png", dpi=110, metadata={"Software": None})


def _curves(ax: Any, entry: dict[str, Any], gamma: str, style: Any) -> None:
    steps = entry["steps"]
    low, middle, high = np.quantile(np.array(entry["test"]), [0.1, 0.5, 0.9], axis=0)
    ax.fill_between(steps, low, high, color=style.BLUE, alpha=0.15, lw=0)
    ax.plot(steps, middle, color=style.BLUE, lw=2.8, alpha=0.7, label="test risk, 10-90 % shaded")
    exact, paper, train = (np.median(np.array(entry[name]), axis=0) for name in ("exact", "paper", "train"))
    ax.plot(steps, exact, color=style.BLACK, lw=1, ls=(0, (4, 2)), label="exact at the overlaps")
    ax.plot(steps, paper, color=style.RED, lw=1.4, label="paper's formula")
    ax.plot(steps, train, color=style.GREY, lw=0.9, label="training risk")
    ax.set_yscale("log")
    start = entry["start"].replace("mu0", "μ₀").replace("nu0", "ν₀").replace("uniform on both spheres", "uniform start")
    learned = f"{sum(entry['learned'])} of {len(entry['learned'])}"
    ax.set_title(f"γ = {gamma.replace('sqrt(2)', '√2')}, {start}: {learned} learned", fontsize=9)
    ax.set_xlabel("step")
    ax.set_ylabel("risk with ε²")


def _success(ax: Any, results: Sequence[Row], parameters: Parameters, gamma: str, style: Any) -> None:
    rows = [row["values"] for row in results if row["unit"]["kind"] == "success" and row["unit"]["gamma"] == gamma]
    counts = np.array([row["learned"] for row in rows])
    ax.imshow(counts / parameters["grid_seeds"], origin="lower", aspect="auto", cmap="cividis", vmin=0, vmax=1)
    for (i, j), count in np.ndenumerate(counts):
        shade = "white" if count < 0.6 * parameters["grid_seeds"] else style.BLACK
        ax.text(j, i, str(count), ha="center", va="center", fontsize=7.5, color=shade)
    ax.set_xticks(range(counts.shape[1]), labels=[f"{mu:g}" for mu in parameters["overlaps"]])
    ax.set_yticks(range(counts.shape[0]), labels=[f"{n}" for n in parameters["sample_sizes"]])
    ax.set(xlabel="initial overlap μ₀", ylabel="samples n")
    ax.set_title(f"γ = {gamma.replace('sqrt(2)', '√2')}: learned, of {parameters['grid_seeds']}", fontsize=9)
    ax.grid(False)


def _phases(axes: Any, values: dict[str, Any], parameters: Parameters, figure: Any, style: Any) -> None:
    alpha, beta = np.array(values["alpha"]), np.array(values["beta"])
    exact, corrected, paper = (np.array(values[name]) for name in ("exact", "corrected", "paper"))
    top = float(max(exact.max(), paper.max()))
    panels = [("exact risk of the oracle", exact), ("limit with what the paper drops", corrected), ("paper's limit", paper)]
    for ax, (title, field) in zip(axes[:3], panels, strict=True):
        image = ax.pcolormesh(alpha, beta, field, cmap="viridis", vmin=0, vmax=top, shading="nearest", rasterized=True)
        ax.set_title(f"{title}, d = {parameters['phase_d']}", fontsize=9)
    figure.colorbar(image, ax=axes[2], pad=0.02)
    gap = paper - exact
    size = float(np.abs(gap).max())
    image = axes[3].pcolormesh(alpha, beta, gap, cmap="RdBu_r", vmin=-size, vmax=size, shading="nearest", rasterized=True)
    axes[3].set_title("paper minus exact", fontsize=9)
    figure.colorbar(image, ax=axes[3], pad=0.02)
    line = np.linspace(alpha[0], alpha[-1], 200)
    for ax in axes:
        ax.plot(line, np.sqrt(2 * line), color="white" if ax is not axes[3] else style.BLACK, lw=1, ls="--")
        ax.set(xlabel="α = log(L−1)/d", ylabel="β", xlim=(alpha[0], alpha[-1]), ylim=(beta[0], beta[-1]))
        ax.grid(False)
