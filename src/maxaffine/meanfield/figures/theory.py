"""Figures of the theory alone: retrieval, phases, baselines, and the limit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from maxaffine.core.progress import Progress, silent
from maxaffine.meanfield.baselines import best_linear_risk, null_risk
from maxaffine.meanfield.bayes import bayes_risk
from maxaffine.meanfield.figures import style
from maxaffine.meanfield.limit import MeanField
from maxaffine.meanfield.overlaps import Overlaps
from maxaffine.meanfield.pointwise import best_pointwise_lambda
from maxaffine.meanfield.problem import Problem
from maxaffine.meanfield.risk import SoftmaxRisk

__all__ = ["length_figure", "limit_figure", "phase_figure", "retrieval_figure", "risk_figure"]


def retrieval_figure(progress: Progress = silent) -> Any:
    """E[w_J] against mu: exact, the Gaussian step, the paper's logistic, at d = 50, 100, 400."""
    alpha, beta, gamma = 0.05, 1.0, math.sqrt(0.5)
    figure = style.new_figure(9.5, 3.3)
    axes = figure.subplots(1, 3, sharey=True)
    mus = np.linspace(0, 1, 161)
    for ax, d in zip(axes, (50, 100, 400), strict=True):
        risk, limit = SoftmaxRisk(Problem.from_alpha(d, alpha, gamma), beta=beta), MeanField(alpha, beta, gamma, d)
        ax.plot(mus, [risk.moments(mu)["P1"] for mu in mus.tolist()], color=style.BLUE, lw=2.4, label="exact $E[w_J]$")
        ax.plot(mus, [limit.step(mu) for mu in mus.tolist()], color=style.GREEN, ls="--", label="Gaussian step")
        ax.plot(mus, [limit.p(mu) for mu in mus.tolist()], color=style.RED, ls=":", lw=2, label="paper's logistic")
        ax.axvline(limit.psi / limit.signal, color=style.GREY, lw=0.8)
        ax.set(title=f"d = {d},  L − 1 = e$^{{{alpha * d:g}}}$", xlabel="$\\mu$")
    axes[0].set_ylabel("weight on the secret token")
    axes[0].legend(loc="upper left")
    figure.suptitle(
        f"Retrieval is a Gaussian step of width γ/√d, not a logistic of width 1/(βd)   (α = {alpha}, β = {beta:g}, γ = 1/√2)",
        fontsize=10,
    )
    return figure


def phase_figure(progress: Progress = silent, gamma: float = 0.8, d: int = 200, resolution: int = 33) -> Any:
    """The thresholds in (alpha, gamma), and condensation and retrieval in (alpha, beta) over the exact oracle risk."""
    figure = style.new_figure(10.5, 4.2)
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.2])
    gammas = np.linspace(0.02, 0.999, 400)
    softmax, bayes = (1 - gammas**2) / 2, np.log(1 / gammas)
    top = 0.8
    left.fill_between(gammas, 0, softmax, color=style.BLUE, alpha=0.20, lw=0)
    left.fill_between(gammas, softmax, np.minimum(bayes, top), color=style.ORANGE, alpha=0.25, lw=0)
    left.fill_between(gammas, np.minimum(bayes, top), top, color=style.GREY, alpha=0.12, lw=0)
    left.plot(gammas, softmax, color=style.BLUE, label="softmax: $(1-\\gamma^2)/2$")
    left.plot(gammas, bayes, color=style.RED, label="Bayes: $\\log(1/\\gamma)$")
    left.text(0.16, 0.2, "softmax\nattention\nretrieves", ha="left", fontsize=8.5)
    left.text(0.04, 0.60, "Bayes succeeds,\nno softmax attention\nwith a linear key can", ha="left", fontsize=8.5)
    left.text(0.74, 0.52, "nothing\ncan", fontsize=8.5)
    left.set(
        xlabel="token noise $\\gamma$",
        ylabel="$\\alpha = \\log(L-1)/d$",
        ylim=(0, top),
        xlim=(0, 1),
        title="Who can solve the task",
    )
    left.legend(loc="upper right")

    alphas, betas = np.linspace(0.01, 0.3, resolution), np.linspace(0.05, 1.8, resolution)
    values = np.empty((resolution, resolution))
    for i, alpha in enumerate(alphas.tolist()):
        problem = Problem.from_alpha(d, alpha, gamma)
        for j, beta in enumerate(betas.tolist()):
            values[j, i] = SoftmaxRisk(problem, beta=beta).value_and_gradient(Overlaps(1.0, 1.0))[0]
        progress("phase diagram", i + 1, resolution)
    image = right.pcolormesh(alphas, betas, values, cmap="viridis", shading="gouraud", vmin=0, rasterized=True)
    bar = figure.colorbar(image, ax=right, pad=0.02)
    bar.set_label(f"exact risk at the oracle, d = {d}")
    bar.ax.axhline(gamma**2, color="white", lw=1.2)
    bar.set_ticks([*np.arange(0, float(values.max()), 0.2).tolist(), gamma**2])
    bar.set_ticklabels([f"{tick:.1f}" for tick in np.arange(0, float(values.max()), 0.2)] + ["      γ² (null)"])
    curves = MeanField(0.1, 1.0, gamma, d).boundaries()
    right.plot(alphas, np.sqrt(2 * alphas), color="white", ls="--", lw=1.3, label="condensation $\\beta=\\sqrt{2\\alpha}$")
    right.plot(curves["retrieval_alpha"], curves["retrieval"], color=style.ORANGE, lw=2, label="retrieval $c=\\psi$")
    edge = float(curves["retrieval_alpha"][-1])
    right.plot([edge, edge], [float(curves["retrieval"][-1]), betas[-1]], color=style.ORANGE, lw=2)
    right.grid(False)
    right.set(xlim=(alphas[0], alphas[-1]), ylim=(betas[0], betas[-1]), xlabel="$\\alpha$", ylabel="$\\beta$")
    right.set_title(f"Phases of the oracle, γ = {gamma:g}")
    right.text(0.05, 1.25, "retrieval", color="white")
    right.text(0.205, 1.45, "condensed,\nworse than null", color=style.BLACK, fontsize=8)
    right.text(0.215, 0.3, "uncondensed", color="white")
    right.legend(loc="upper left", labelcolor="white", fontsize=8)
    return figure


def length_figure(progress: Progress = silent, d: int = 100, gamma: float = 0.8) -> Any:
    """Risk against L from 2 to 1e9: softmax at the oracle, Bayes, projected Bayes, linear, pointwise erf."""
    figure = style.new_figure(8.2, 4.0)
    ax = figure.subplots()
    lengths = np.unique(np.concatenate([[2.0, 3.0, 5.0], np.logspace(1, 9, 33)]))
    rows: dict[str, list[float]] = {name: [] for name in ("softmax", "sharp", "bayes", "projected", "linear", "erf")}
    for i, length in enumerate(lengths.tolist()):
        problem = Problem(d, length, gamma)
        oracle = Overlaps(1.0, 1.0)
        trials = [SoftmaxRisk(problem, lam=lam).value_and_gradient(oracle)[0] for lam in np.geomspace(2, 25, 22).tolist()]
        rows["softmax"].append(SoftmaxRisk(problem, beta=1.0).value_and_gradient(oracle)[0])
        rows["sharp"].append(min(trials))
        rows["bayes"].append(bayes_risk(problem))
        rows["projected"].append(bayes_risk(problem, "projected"))
        rows["linear"].append(best_linear_risk(problem))
        rows["erf"].append(best_pointwise_lambda(problem)[1])
        progress("lengths", i + 1, lengths.size)
    ax.loglog(lengths, rows["erf"], color=style.PURPLE, label="pointwise erf attention, oracle at its best λ")
    ax.loglog(lengths, rows["linear"], color=style.GREY, ls="--", label="best linear predictor")
    ax.loglog(lengths, rows["softmax"], color=style.BLUE, label="softmax oracle, β = 1")
    ax.loglog(lengths, rows["sharp"], color=style.SKY, lw=2.4, alpha=0.8, label="softmax oracle at its best λ")
    ax.loglog(lengths, rows["projected"], color=style.ORANGE, ls="--", label="Bayes from the two projections")
    ax.loglog(lengths, rows["bayes"], color=style.RED, label="Bayes")
    ax.axhline(null_risk(Problem(d, 2, gamma)), color=style.GREY, lw=0.8, ls=":")
    ax.text(2.2, gamma**2 * 1.12, "null: γ²", fontsize=7.5, color=style.GREY)
    ax.axvline(math.exp(d * (1 - gamma**2) / 2), color=style.SKY, lw=0.8)
    ax.text(
        math.exp(d * (1 - gamma**2) / 2) * 0.85,
        2e-8,
        "softmax threshold  $\\alpha = (1-\\gamma^2)/2$",
        rotation=90,
        fontsize=7,
        va="bottom",
        ha="right",
        color=style.GREY,
    )
    ax.set(xlabel="length L", ylabel="excess risk", ylim=(1e-8, 3), title=f"The price of length, d = {d}, γ = {gamma:g}")
    ax.legend(loc="lower right", bbox_to_anchor=(0.8, 0.02))
    return figure


def limit_figure(progress: Progress = silent) -> Any:
    """Exact risk against d: it converges to the corrected limit, not to Corollary 1, in the condensed phase."""
    figure = style.new_figure(10.2, 3.6)
    axes = figure.subplots(1, 3)
    cases = [
        ("condensed, no retrieval", 0.1, 1.0, 0.95, Overlaps(1.0, 1.0)),
        ("uncondensed, no retrieval", 0.3, 0.5, 0.8, Overlaps(0.5, 0.6)),
        ("retrieval", 0.05, 1.0, 0.6, Overlaps(0.8, 0.5)),
    ]
    dims = [20, 40, 80, 160, 320, 640, 1280, 2000]
    for ax, (name, alpha, beta, gamma, o) in zip(axes, cases, strict=True):
        exact = []
        for i, d in enumerate(dims):
            problem = Problem.from_alpha(d, alpha, gamma)
            exact.append(SoftmaxRisk(problem, beta=beta).risk(o))
            progress(name, i + 1, len(dims))
        limits = [MeanField(alpha, beta, gamma, d) for d in dims]
        ax.semilogx(dims, exact, "o-", color=style.BLUE, ms=4, label="exact")
        ax.semilogx(
            dims, [limit.risk_corrected(o) for limit in limits], color=style.GREEN, ls="--", lw=2, label="corrected limit"
        )
        ax.semilogx(dims, [limit.risk_paper(o) for limit in limits], color=style.RED, ls=":", lw=2, label="paper, Corollary 1")
        ax.set(xlabel="d", title=f"{name}\nα = {alpha:g}, β = {beta:g}, γ = {gamma:g}, (μ, ν) = ({o.mu:g}, {o.nu:g})")
        low, high = ax.get_ylim()
        ax.set_ylim(low - 0.12 * (high - low), high + 0.12 * (high - low))
        ax.set_xticks([20, 100, 500, 2000], labels=["20", "100", "500", "2000"])
        ax.minorticks_off()
    axes[0].set_ylabel("risk")
    axes[0].legend(loc="center right", bbox_to_anchor=(1, 0.4))
    return figure


def risk_figure(risk: Any, o: Overlaps, limit: MeanField) -> Any:
    """The risk as mu moves with the other overlaps on M: exact, corrected, paper. For the command ``risk``."""
    figure = style.new_figure(6.5, 3.6)
    ax = figure.subplots()
    mus = np.linspace(-1, 1, 201).tolist()
    where = [Overlaps(mu, o.nu) for mu in mus]
    ax.plot(mus, [risk.value_and_gradient(p)[0] for p in where], color=style.BLUE, lw=2.2, label="exact")
    ax.plot(mus, [limit.risk_corrected(p) for p in where], color=style.GREEN, ls="--", label="corrected limit")
    ax.plot(mus, [limit.risk_paper(p) for p in where], color=style.RED, ls=":", lw=2, label="paper")
    ax.axvline(o.mu, color=style.GREY, lw=0.8)
    ax.set(xlabel="$\\mu$", ylabel="risk without label noise", title=f"ν = {o.nu:g}, η = ζ = ρ = 0")
    ax.legend()
    return figure
