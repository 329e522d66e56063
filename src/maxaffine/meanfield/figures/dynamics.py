"""Figures of training: the paper's experiment, vector fields, success rates, logarithmic convergence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from maxaffine.core.progress import Progress, silent
from maxaffine.meanfield.dynamics import Trajectory, flow, gd, velocity
from maxaffine.meanfield.figures import style
from maxaffine.meanfield.limit import MeanField, PaperRisk
from maxaffine.meanfield.overlaps import Overlaps
from maxaffine.meanfield.problem import Problem
from maxaffine.meanfield.risk import Risk, SoftmaxRisk
from maxaffine.meanfield.table import RiskTable

__all__ = ["experiment_figure", "field_figure", "logarithmic_figure", "success_figure", "trajectory_figure"]


def experiment_figure(runs: dict[str, list[dict[str, Any]]], starts: list[int] | None = None) -> Any:
    """Test risk, exact risk at the measured overlaps and the paper's formula against step, on a log scale."""
    gammas = list(runs)
    chosen = starts if starts is not None else list(range(len(runs[gammas[0]])))
    figure = style.new_figure(2.5 * len(chosen) + 0.6, 2.6 * len(gammas) + 0.5)
    axes = figure.subplots(len(gammas), len(chosen), sharex=True, sharey=True, squeeze=False)
    for row, gamma in zip(axes, gammas, strict=True):
        for ax, index in zip(row, chosen, strict=True):
            entry = runs[gamma][index]
            steps = entry["steps"]
            ax.fill_between(steps, entry["test"]["low"], entry["test"]["high"], color=style.BLUE, alpha=0.15, lw=0)
            ax.plot(steps, entry["test"]["median"], color=style.BLUE, lw=2.6, alpha=0.7, label="test risk (10–90 % shaded)")
            ax.plot(
                steps, entry["exact"]["median"], color=style.BLACK, lw=1.0, ls=(0, (4, 2)), label="exact at the measured overlaps"
            )
            ax.plot(steps, entry["paper"]["median"], color=style.RED, lw=1.3, label="paper, α = log(L−1)/d")
            ax.plot(steps, entry["paper0"]["median"], color=style.ORANGE, lw=1.3, ls=":", label="paper, α = 0")
            ax.plot(steps, entry["train"]["median"], color=style.GREY, lw=0.9, label="training risk")
            ax.axhline(0.01, color=style.GREY, lw=0.7, ls="--")
            ax.set_yscale("log")
            name = entry["start"] if isinstance(entry["start"], str) else f"start {entry['start']}"
            name = name.replace("mu0", "μ₀").replace("nu0", "ν₀")
            ax.set_title(f"γ = {_root(gamma)}: {name}\nlearned {entry['learned']} of {entry['seeds']}", fontsize=8.5)
    for ax in axes[-1]:
        ax.set_xlabel("step")
    for row in axes:
        row[0].set_ylabel("risk with ε²")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5)
    return figure


def _root(text: str) -> str:
    return text.replace("sqrt(2)", "√2")


def field_figure(progress: Progress = silent) -> Any:
    """The flow on M in the (mu, nu) square: exact, and driven by the paper's risk."""
    figure = style.new_figure(9.2, 4.5)
    axes = figure.subplots(1, 2, sharey=True)
    problem = Problem(100, 20, 0.5)
    exact = RiskTable(SoftmaxRisk(problem, beta=1.0))
    paper = PaperRisk(MeanField.of(problem, 1.0), problem)
    grid = np.linspace(-0.995, 0.995, 41)
    sources: list[tuple[str, Risk]] = [("exact", exact), ("paper's mean field, α = log(L−1)/d", paper)]
    for ax, (name, risk) in zip(axes, sources, strict=True):
        moves = np.array(
            [
                [velocity(Overlaps(mu, nu), risk.value_and_gradient(Overlaps(mu, nu))[1])[:2] for mu in grid.tolist()]
                for nu in grid.tolist()
            ]
        )
        speed = np.log10(np.hypot(moves[..., 0], moves[..., 1]) + 1e-12)
        image = ax.pcolormesh(
            grid, grid, np.maximum(speed, -8), cmap="Blues", shading="gouraud", vmin=-8, vmax=0.5, rasterized=True
        )
        scale = np.hypot(moves[..., 0], moves[..., 1]) + 1e-300
        ax.streamplot(
            grid, grid, moves[..., 0] / scale, moves[..., 1] / scale, color=style.BLACK, linewidth=0.6, density=1.1, arrowsize=0.7
        )
        ax.plot([1], [1], "*", color=style.ORANGE, ms=13, clip_on=False, zorder=5)
        ax.set(title=name, xlabel="$\\mu$", xlim=(-1, 1), ylim=(-1, 1))
        ax.grid(False)
    axes[0].plot([0.2958], [-1], "s", color=style.RED, ms=6, clip_on=False, zorder=5)
    axes[0].annotate(
        "extra saddle", (0.2958, -1), (0.38, -0.9), fontsize=8, color=style.RED, bbox={"fc": "white", "ec": "none", "pad": 1.5}
    )
    axes[0].set_ylabel("$\\nu$")
    bar = figure.colorbar(image, ax=axes, pad=0.01)
    bar.set_label("log$_{10}$ speed of the flow")
    figure.suptitle("Gradient flow on η = ζ = ρ = 0 at d = 100, L = 20, β = 1, γ = 1/2", fontsize=10)
    return figure


def success_figure(grids: dict[str, dict[str, Any]], noise: dict[str, dict[str, Any]]) -> Any:
    """How often training on n samples learns from initial overlap mu0, with n*(mu0) of the gradient noise."""
    figure = style.new_figure(5.0 * len(grids), 3.9)
    axes = figure.subplots(1, len(grids), sharey=True, squeeze=False)[0]
    for ax, (gamma, grid) in zip(axes, grids.items(), strict=True):
        rate = np.array(grid["learned"]) / grid["seeds"]
        image = ax.imshow(rate, origin="lower", aspect="auto", cmap="cividis", vmin=0, vmax=1)
        for i in range(rate.shape[0]):
            for j in range(rate.shape[1]):
                ax.text(
                    j,
                    i,
                    f"{grid['learned'][i][j]}",
                    ha="center",
                    va="center",
                    fontsize=7.5,
                    zorder=4,
                    color="white" if rate[i, j] < 0.6 else style.BLACK,
                )
        log_n = np.log2(np.array(grid["n"]) / grid["n"][0])
        star = np.interp(
            np.log2(np.array(noise[gamma]["n_star"]) / grid["n"][0]), log_n, np.arange(log_n.size), left=-1, right=log_n.size
        )
        ax.plot(
            np.arange(len(grid["mu0"])),
            star,
            "D-",
            color=style.RED,
            ms=4,
            lw=1.2,
            label="n*(μ₀) = E|G|²/|∇R|²: noise of the gradient = gradient",
        )
        ax.set_xticks(range(len(grid["mu0"])), labels=[f"{mu:g}" for mu in grid["mu0"]])
        ax.set_yticks(range(len(grid["n"])), labels=[str(n) for n in grid["n"]])
        ax.set(xlabel="initial overlap $\\mu_0$", xlim=(-0.5, len(grid["mu0"]) - 0.5), ylim=(-0.5, len(grid["n"]) - 0.5))
        ax.set_title(f"γ = {_root(gamma)}: learned, of {grid['seeds']} seeds, {grid['steps']} steps")
        ax.grid(False)
    axes[0].set_ylabel("training samples n")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center")
    figure.colorbar(image, ax=axes, pad=0.01).set_label("fraction that learned")
    return figure


def logarithmic_figure(progress: Progress = silent) -> Any:
    """mu(t) and R(t) on a logarithmic time axis, at the paper's size."""
    figure = style.new_figure(9.2, 3.7)
    left, right = figure.subplots(1, 2)
    times = np.concatenate([[0.0], np.logspace(-1, 5, 241)])
    for gamma, name, colour in ((math.sqrt(0.5), "1/√2", style.BLUE), (0.5, "1/2", style.RED)):
        table = RiskTable(SoftmaxRisk(Problem(100, 20, gamma), beta=1.0))
        path = flow(table, Overlaps(0.1, 0.0), times)
        steps = path.time / 0.01
        left.semilogx(steps[1:], path.overlaps[1:, 0], color=colour, label=f"$\\mu$, γ = {name}")
        left.semilogx(steps[1:], path.overlaps[1:, 1], color=colour, ls=":", label=f"$\\nu$, γ = {name}")
        right.loglog(steps[1:], path.risk[1:], color=colour, label=f"γ = {name}")
        walk = gd(table, Overlaps(0.1, 0.0), 0.01, 3000, every=100)
        right.plot(walk.time[1:], walk.risk[1:], "o", ms=2.5, color=colour, alpha=0.6)
    left.set(xlabel="steps of size 0.01", ylabel="overlap", title="the key converges only logarithmically ...")
    right.set(
        xlabel="steps of size 0.01", ylabel="excess risk", title="... long after the risk is small (dots: gradient descent)"
    )
    left.legend()
    right.legend()
    return figure


def trajectory_figure(path: Trajectory, unit: str = "step") -> Any:
    """Overlaps and risk of one trajectory, for the commands ``dynamics`` and ``simulate``."""
    figure = style.new_figure(9.0, 3.4)
    left, right = figure.subplots(1, 2)
    names = ("$\\mu$", "$\\nu$", "$\\eta$", "$\\zeta$", "$\\rho$")
    colours = (style.BLUE, style.RED, style.GREEN, style.ORANGE, style.PURPLE)
    for i, (name, colour) in enumerate(zip(names, colours, strict=True)):
        left.plot(path.time, path.overlaps[:, i], color=colour, label=name)
    right.semilogy(path.time, np.maximum(path.risk, 1e-300), color=style.BLUE)
    left.set(xlabel=unit, ylabel="overlap")
    right.set(xlabel=unit, ylabel="excess risk")
    left.legend(ncols=5)
    return figure
