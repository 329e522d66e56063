"""Figures of the theory alone: retrieval, phases, baselines, and the limit."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from maxaffine.core.progress import Progress, silent
from maxaffine.meanfield.baselines import bayes_risk, best_linear_risk, best_pointwise_lambda, null_risk
from maxaffine.meanfield.limit import MeanField
from maxaffine.meanfield.problem import Overlaps, Problem
from maxaffine.meanfield.risk import SoftmaxRisk
from maxaffine.report import style

ORACLE = Overlaps(1.0, 1.0)


def retrieval_figure(progress: Progress = silent) -> Any:
    """E[w_J] against mu: exact, the Gaussian step, the paper's logistic, at d = 50, 100, 400."""
    alpha, beta, gamma = 0.05, 1.0, math.sqrt(0.5)
    figure, grid = style.new_figure((9.5, 3.3), 1, 3, sharey=True)
    mus = np.linspace(0, 1, 161).tolist()
    for ax, d in zip(grid[0], (50, 100, 400), strict=True):
        risk, limit = SoftmaxRisk(Problem.from_alpha(d, alpha, gamma), beta=beta), MeanField(alpha, beta, gamma, d)
        ax.plot(mus, [risk.moments(mu)["P1"] for mu in mus], color=style.BLUE, lw=2.4, label="exact E[w_J]")
        ax.plot(mus, [limit.step(mu) for mu in mus], color=style.GREEN, ls="--", label="Gaussian step")
        ax.plot(mus, [limit.p(mu) for mu in mus], color=style.RED, ls=":", lw=2, label="paper's logistic")
        ax.axvline(limit.psi / limit.signal, color=style.QUIET, lw=0.8)
        ax.set(title=f"d = {d},  L − 1 = exp({alpha * d:g})", xlabel="μ")
    grid[0][0].set_ylabel("weight on the secret token")
    grid[0][0].legend(loc="upper left")
    words = "Retrieval is a Gaussian step of width γ/√d, not a logistic of width 1/(βd)"
    figure.suptitle(f"{words}   (α = {alpha}, β = {beta:g}, γ = 1/√2)", fontsize=10)
    return figure


def phase_figure(progress: Progress = silent, gamma: float = 0.8, d: int = 200, resolution: int = 33) -> Any:
    """The thresholds in (alpha, gamma), and condensation and retrieval in (alpha, beta) over the exact oracle risk."""
    figure, grid = style.new_figure((10.5, 4.2), 1, 2, width_ratios=[1, 1.2])
    _thresholds(grid[0][0])
    _oracle_phases(grid[0][1], progress, gamma, d, resolution)
    return figure


def _thresholds(ax: Any) -> None:
    gammas, top = np.linspace(0.02, 0.999, 400), 0.8
    softmax, bayes = (1 - gammas**2) / 2, np.log(1 / gammas)
    ax.fill_between(gammas, 0, softmax, color=style.BLUE, alpha=0.20, lw=0)
    ax.fill_between(gammas, softmax, np.minimum(bayes, top), color=style.ORANGE, alpha=0.25, lw=0)
    ax.fill_between(gammas, np.minimum(bayes, top), top, color=style.QUIET, alpha=0.12, lw=0)
    ax.plot(gammas, softmax, color=style.BLUE, label="softmax: (1 − γ²)/2")
    ax.plot(gammas, bayes, color=style.RED, label="Bayes: log(1/γ)")
    ax.text(0.16, 0.2, "softmax\nattention\nretrieves", ha="left", fontsize=8.5)
    ax.text(0.04, 0.60, "Bayes succeeds,\nno softmax attention\nwith a linear key can", ha="left", fontsize=8.5)
    ax.text(0.74, 0.52, "nothing\ncan", fontsize=8.5)
    ax.set(xlabel="token noise γ", ylabel="α = log(L−1)/d", ylim=(0, top), xlim=(0, 1), title="Who can solve the task")
    ax.legend(loc="upper right")


def _oracle_phases(ax: Any, progress: Progress, gamma: float, d: int, resolution: int) -> None:
    alphas, betas = np.linspace(0.01, 0.3, resolution), np.linspace(0.05, 1.8, resolution)
    values = np.empty((resolution, resolution))
    for i, alpha in enumerate(alphas.tolist()):
        problem = Problem.from_alpha(d, alpha, gamma)
        values[:, i] = [SoftmaxRisk(problem, beta=beta).value_and_gradient(ORACLE)[0] for beta in betas.tolist()]
        progress("phase diagram", i + 1, resolution)
    image = ax.pcolormesh(alphas, betas, values, cmap="viridis", shading="gouraud", vmin=0, rasterized=True)
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02)
    bar.set_label(f"exact risk at the oracle, d = {d}")
    bar.ax.axhline(gamma**2, color="white", lw=1.2)
    ticks = np.arange(0, float(values.max()), 0.2).tolist()
    bar.set_ticks([*ticks, gamma**2], labels=[*(f"{tick:.1f}" for tick in ticks), "      γ² (null)"])
    curves = MeanField(0.1, 1.0, gamma, d).boundaries()
    ax.plot(alphas, np.sqrt(2 * alphas), color="white", ls="--", lw=1.3, label="condensation β = √(2α)")
    ax.plot(curves["retrieval_alpha"], curves["retrieval"], color=style.ORANGE, lw=2, label="retrieval c = ψ")
    edge = float(curves["retrieval_alpha"][-1])
    ax.plot([edge, edge], [float(curves["retrieval"][-1]), betas[-1]], color=style.ORANGE, lw=2)
    ax.grid(False)
    ax.set(xlim=(alphas[0], alphas[-1]), ylim=(betas[0], betas[-1]), xlabel="α", ylabel="β")
    ax.set_title(f"Phases of the oracle, γ = {gamma:g}")
    ax.text(0.05, 1.25, "retrieval", color="white")
    ax.text(0.205, 1.45, "condensed,\nworse than null", color=style.INK, fontsize=8)
    ax.text(0.215, 0.3, "uncondensed", color="white")
    ax.legend(loc="upper left", labelcolor="white", fontsize=8, framealpha=0)


def length_figure(progress: Progress = silent, d: int = 100, gamma: float = 0.8) -> Any:
    """Risk against L from 2 to 1e9: softmax at the oracle, Bayes, projected Bayes, linear, pointwise erf."""
    figure, grid = style.new_figure((8.2, 4.0))
    ax = grid[0][0]
    lengths = np.unique(np.concatenate([[2.0, 3.0, 5.0], np.logspace(1, 9, 33)]))
    sharp = np.geomspace(2, 25, 22).tolist()

    def softmax(problem: Problem, lam: float) -> float:
        return SoftmaxRisk(problem, lam=lam).value_and_gradient(ORACLE)[0]

    rules: list[tuple[str, Callable[[Problem], float], dict[str, Any]]] = [
        ("pointwise erf attention, oracle at its best λ", lambda p: best_pointwise_lambda(p)[1], {"color": style.PURPLE}),
        ("best linear predictor", best_linear_risk, {"color": style.QUIET, "ls": "--"}),
        ("softmax oracle, β = 1", lambda p: softmax(p, math.sqrt(d)), {"color": style.BLUE}),
        ("softmax oracle at its best λ", lambda p: min(softmax(p, lam) for lam in sharp), {"color": style.SKY, "lw": 2.4}),
        ("Bayes from the two projections", lambda p: bayes_risk(p, "projected"), {"color": style.ORANGE, "ls": "--"}),
        ("Bayes", bayes_risk, {"color": style.RED}),
    ]
    rows = []
    for i, length in enumerate(lengths.tolist()):
        problem = Problem(d, length, gamma)
        rows.append([rule(problem) for _, rule, _ in rules])
        progress("lengths", i + 1, lengths.size)
    for column, (label, _, look) in zip(np.array(rows).T, rules, strict=True):
        ax.plot(lengths, column, label=label, **look)
    threshold = math.exp(d * (1 - gamma**2) / 2)
    ax.axhline(null_risk(Problem(d, 2, gamma)), color=style.QUIET, lw=0.8, ls=":")
    ax.text(2.2, gamma**2 * 1.12, "null: γ²", fontsize=7.5, color=style.QUIET)
    ax.axvline(threshold, color=style.SKY, lw=0.8)
    words = "softmax threshold  α = (1 − γ²)/2"
    ax.text(threshold * 0.85, 2e-8, words, rotation=90, fontsize=7, va="bottom", ha="right", color=style.QUIET)
    ax.set(xlabel="length L", ylabel="excess risk", ylim=(1e-8, 3), title=f"The price of length, d = {d}, γ = {gamma:g}")
    style.logarithmic(ax)
    ax.legend(loc="lower right", bbox_to_anchor=(0.8, 0.02))
    return figure


def limit_figure(progress: Progress = silent) -> Any:
    """Exact risk against d: it converges to the corrected limit, not to Corollary 1, in the condensed phase."""
    figure, grid = style.new_figure((10.2, 3.6), 1, 3)
    cases = [
        ("condensed, no retrieval", 0.1, 1.0, 0.95, ORACLE),
        ("uncondensed, no retrieval", 0.3, 0.5, 0.8, Overlaps(0.5, 0.6)),
        ("retrieval", 0.05, 1.0, 0.6, Overlaps(0.8, 0.5)),
    ]
    dims = [20, 40, 80, 160, 320, 640, 1280, 2000]
    for ax, (name, alpha, beta, gamma, o) in zip(grid[0], cases, strict=True):
        exact = []
        for i, d in enumerate(dims):
            exact.append(SoftmaxRisk(Problem.from_alpha(d, alpha, gamma), beta=beta).risk(o))
            progress(name, i + 1, len(dims))
        limits = [MeanField(alpha, beta, gamma, d) for d in dims]
        ax.plot(dims, exact, "o-", color=style.BLUE, ms=4, label="exact")
        ax.plot(dims, [limit.risk_corrected(o) for limit in limits], "--", color=style.GREEN, lw=2, label="corrected limit")
        ax.plot(dims, [limit.risk_paper(o) for limit in limits], ":", color=style.RED, lw=2, label="paper, Corollary 1")
        ax.set_title(f"{name}\nα = {alpha:g}, β = {beta:g}, γ = {gamma:g}, (μ, ν) = ({o.mu:g}, {o.nu:g})", fontsize=8.5)
        ax.set_xlabel("d")
        ax.margins(y=0.15)
        ax.set_xscale("log")
        ax.set_xticks([20, 100, 500, 2000], labels=["20", "100", "500", "2000"])
        ax.minorticks_off()
    grid[0][0].set_ylabel("risk")
    grid[0][0].legend(loc="center right", bbox_to_anchor=(1, 0.4))
    return figure


def risk_figure(risk: Any, o: Overlaps, limit: MeanField) -> Any:
    """The risk as mu moves with the other overlaps on M: exact, corrected, paper. For the command ``risk``."""
    figure, grid = style.new_figure((6.5, 3.6))
    ax = grid[0][0]
    mus = np.linspace(-1, 1, 201).tolist()
    where = [Overlaps(mu, o.nu) for mu in mus]
    ax.plot(mus, [risk.value_and_gradient(p)[0] for p in where], color=style.BLUE, lw=2.2, label="exact")
    ax.plot(mus, [limit.risk_corrected(p) for p in where], color=style.GREEN, ls="--", label="corrected limit")
    ax.plot(mus, [limit.risk_paper(p) for p in where], color=style.RED, ls=":", lw=2, label="paper")
    ax.axvline(o.mu, color=style.QUIET, lw=0.8)
    ax.set(xlabel="μ", ylabel="risk without label noise", title=f"ν = {o.nu:g}, η = ζ = ρ = 0")
    ax.legend()
    return figure
