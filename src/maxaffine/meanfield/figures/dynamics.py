"""Figures of training: the paper's experiment, vector fields, success rates, logarithmic convergence."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from maxaffine.core.progress import Progress, silent
from maxaffine.meanfield.dynamics import Trajectory, flow, gd, velocity
from maxaffine.meanfield.limit import MeanField, PaperRisk
from maxaffine.meanfield.problem import Overlaps, Problem
from maxaffine.meanfield.risk import Risk, RiskTable, SoftmaxRisk
from maxaffine.report import style


def training_panel(ax: Any, entry: dict[str, Any], gamma: str) -> None:
    """Test risk, exact risk at the measured overlaps and the paper's formula against step, from one start."""
    steps = entry["steps"]
    ax.fill_between(steps, entry["test"]["low"], entry["test"]["high"], color=style.BLUE, alpha=0.15, lw=0)
    for name, label, look in (
        ("test", "test risk (10–90 % shaded)", {"color": style.BLUE, "lw": 2.6, "alpha": 0.7}),
        ("exact", "exact at the measured overlaps", {"color": style.INK, "lw": 1.0, "ls": (0, (4, 2))}),
        ("paper", "paper, α = log(L−1)/d", {"color": style.RED, "lw": 1.3}),
        ("paper0", "paper, α = 0", {"color": style.ORANGE, "lw": 1.3, "ls": ":"}),
        ("train", "training risk", {"color": style.QUIET, "lw": 0.9}),
    ):
        ax.plot(steps, entry[name]["median"], label=label, **look)
    ax.axhline(0.01, color=style.QUIET, lw=0.7, ls="--")
    style.logarithmic(ax, x=False)
    name = entry["start"] if isinstance(entry["start"], str) else f"start {entry['start']}"
    start = name.replace("mu0", "μ₀").replace("nu0", "ν₀")
    ax.set_title(f"γ = {_root(gamma)}: {start}\nlearned {entry['learned']} of {entry['seeds']}", fontsize=8.5)


def experiment_figure(runs: dict[str, list[dict[str, Any]]]) -> Any:
    """The paper's experiment: a row per gamma, a column per start, on a log scale."""
    starts = len(next(iter(runs.values())))
    figure, axes = style.new_figure((2.5 * starts + 0.6, 2.6 * len(runs) + 0.5), len(runs), starts, sharex=True, sharey=True)
    for row, (gamma, entries) in zip(axes, runs.items(), strict=True):
        for ax, entry in zip(row, entries, strict=True):
            training_panel(ax, entry, gamma)
        row[0].set_ylabel("risk with ε²")
    for ax in axes[-1]:
        ax.set_xlabel("step")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def _root(text: str) -> str:
    return text.replace("sqrt(2)", "√2")


def field_figure(progress: Progress = silent) -> Any:
    """The flow on M in the (mu, nu) square: exact, and driven by the paper's risk."""
    figure, grid_of_axes = style.new_figure((9.2, 4.5), 1, 2, sharey=True)
    axes = grid_of_axes[0]
    problem = Problem(100, 20, 0.5)
    exact = RiskTable(SoftmaxRisk(problem, beta=1.0))
    paper = PaperRisk(MeanField.of(problem, 1.0), problem)
    grid = np.linspace(-0.995, 0.995, 41)
    square = [[Overlaps(mu, nu) for mu in grid.tolist()] for nu in grid.tolist()]
    sources: list[tuple[str, Risk]] = [("exact", exact), ("paper's mean field, α = log(L−1)/d", paper)]
    for ax, (name, risk) in zip(axes, sources, strict=True):
        moves = np.array([[velocity(o, risk.value_and_gradient(o)[1])[:2] for o in row] for row in square])
        speed = np.hypot(moves[..., 0], moves[..., 1])
        shade = np.maximum(np.log10(speed + 1e-12), -8)
        image = ax.pcolormesh(grid, grid, shade, cmap="Blues", shading="gouraud", vmin=-8, vmax=0.5, rasterized=True)
        across, up = (moves[..., i] / (speed + 1e-300) for i in range(2))
        ax.streamplot(grid, grid, across, up, color=style.INK, linewidth=0.6, density=1.1, arrowsize=0.7)
        ax.plot([1], [1], "*", color=style.ORANGE, ms=13, clip_on=False, zorder=5)
        ax.set(title=name, xlabel="μ", xlim=(-1, 1), ylim=(-1, 1))
        ax.grid(False)
    axes[0].plot([0.2958], [-1], "s", color=style.RED, ms=6, clip_on=False, zorder=5)
    box = {"fc": "white", "ec": "none", "pad": 1.5}
    axes[0].annotate("extra saddle", (0.2958, -1), (0.38, -0.9), fontsize=8, color=style.RED, bbox=box)
    axes[0].set_ylabel("ν")
    figure.colorbar(image, ax=axes, pad=0.01).set_label("log10 of the speed of the flow")
    figure.suptitle("Gradient flow on η = ζ = ρ = 0 at d = 100, L = 20, β = 1, γ = 1/2", fontsize=10)
    return figure


def success_panel(ax: Any, learned: Any, seeds: int, mus: Sequence[float], counts: Sequence[int]) -> Any:
    """How many seeds learn, by initial overlap and number of samples; returns the image."""
    rate = np.array(learned) / seeds
    image = ax.imshow(rate, origin="lower", aspect="auto", cmap="cividis", vmin=0, vmax=1)
    style.write_over(ax, np.array(learned), rate < 0.6, fontsize=7.5, zorder=4)
    ax.set_xticks(range(len(mus)), labels=[f"{mu:g}" for mu in mus])
    ax.set_yticks(range(len(counts)), labels=[str(n) for n in counts])
    ax.set(xlabel="initial overlap μ₀", ylabel="training samples n")
    ax.grid(False)
    return image


def success_figure(grids: dict[str, dict[str, Any]], noise: dict[str, dict[str, Any]]) -> Any:
    """How often training on n samples learns from initial overlap mu0, with n*(mu0) of the gradient noise."""
    figure, grid_of_axes = style.new_figure((5.0 * len(grids), 3.9), 1, len(grids), sharey=True)
    axes = grid_of_axes[0]
    words = "n*(μ₀) = E|G|²/|∇R|²: noise of the gradient = gradient"
    for ax, (gamma, grid) in zip(axes, grids.items(), strict=True):
        image = success_panel(ax, grid["learned"], grid["seeds"], grid["mu0"], grid["n"])
        rows = np.arange(len(grid["n"]))
        log_n, log_star = (np.log2(np.array(n) / grid["n"][0]) for n in (grid["n"], noise[gamma]["n_star"]))
        star = np.interp(log_star, log_n, rows, left=-1, right=rows.size)
        ax.plot(np.arange(len(grid["mu0"])), star, "D-", color=style.RED, ms=4, lw=1.2, label=words)
        ax.set(xlim=(-0.5, len(grid["mu0"]) - 0.5), ylim=(-0.5, rows.size - 0.5))
        ax.set_title(f"γ = {_root(gamma)}: learned, of {grid['seeds']} seeds, {grid['steps']} steps")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center")
    figure.colorbar(image, ax=axes, pad=0.01).set_label("fraction that learned")
    return figure


def logarithmic_figure(progress: Progress = silent) -> Any:
    """mu(t) and R(t) on a logarithmic time axis, at the paper's size."""
    figure, axes = style.new_figure((9.2, 3.7), 1, 2)
    left, right = axes[0]
    times = np.concatenate([[0.0], np.logspace(-1, 5, 241)])
    for gamma, name, colour in ((math.sqrt(0.5), "1/√2", style.BLUE), (0.5, "1/2", style.RED)):
        table = RiskTable(SoftmaxRisk(Problem(100, 20, gamma), beta=1.0))
        path = flow(table, Overlaps(0.1, 0.0), times)
        steps = path.time / 0.01
        left.plot(steps[1:], path.overlaps[1:, 0], color=colour, label=f"μ, γ = {name}")
        left.plot(steps[1:], path.overlaps[1:, 1], color=colour, ls=":", label=f"ν, γ = {name}")
        right.plot(steps[1:], path.risk[1:], color=colour, label=f"γ = {name}")
        walk = gd(table, Overlaps(0.1, 0.0), 0.01, 3000, every=100)
        right.plot(walk.time[1:], walk.risk[1:], "o", ms=2.5, color=colour, alpha=0.6)
    style.logarithmic(left, y=False)
    style.logarithmic(right)
    left.set(xlabel="steps of size 0.01", ylabel="overlap", title="the key converges only logarithmically ...")
    words = "steps of size 0.01 (dots: gradient descent)"
    right.set(xlabel=words, ylabel="excess risk", title="... long after the risk is small")
    left.legend()
    right.legend()
    return figure


def trajectory_figure(path: Trajectory, unit: str = "step") -> Any:
    """Overlaps and risk of one trajectory, for the commands ``dynamics`` and ``simulate``."""
    figure, axes = style.new_figure((9.0, 3.4), 1, 2)
    left, right = axes[0]
    colours = (style.BLUE, style.RED, style.GREEN, style.ORANGE, style.PURPLE)
    for column, name, colour in zip(path.overlaps.T, "μνηζρ", colours, strict=True):
        left.plot(path.time, column, color=colour, label=name)
    right.plot(path.time, np.maximum(path.risk, 1e-300), color=style.BLUE)
    style.logarithmic(right, x=False)
    left.set(xlabel=unit, ylabel="overlap")
    right.set(xlabel=unit, ylabel="excess risk")
    left.legend(ncols=5)
    return figure
