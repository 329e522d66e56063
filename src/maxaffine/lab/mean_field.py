"""Experiment 9, mean field: training against the exact risk and the paper's formula, phases, success rates, ten claims."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.progress import Progress
from maxaffine.lab import mean_field_rules as rules
from maxaffine.lab.experiment import Context, Experiment, Numbers, Parameters, Result, Rows, Table, Unit, Verdict, select, sweep
from maxaffine.meanfield import MeanField, Overlaps, Problem, SoftmaxRisk
from maxaffine.meanfield import experiment as paper
from maxaffine.meanfield.claims import check
from maxaffine.meanfield.experiment import GAMMAS, STARTS
from maxaffine.meanfield.figures.dynamics import success_panel, training_panel
from maxaffine.report import style

SHOWN = (0, 1, 3)  # starts that have a panel: uniform, mu0 = 0.1, mu0 = 0.3


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """Claims, the phase diagram, blocks of training runs, and one cell row of the success table each."""
    found = sweep("claim-{claim}", kind=["claim"], claim=parameters["claims"])
    found.append({"id": "phases", "kind": "phases"})
    for g, gamma in enumerate(GAMMAS):
        for first in range(0, parameters["seeds"], parameters["block"]):
            size = min(parameters["block"], parameters["seeds"] - first)
            found.append({"id": f"training-{g}-{first}", "kind": "training", "gamma": gamma, "first": first, "size": size})
    for g, gamma in enumerate(GAMMAS):
        found += sweep(f"success-{g}-{{n}}", kind=["success"], gamma=[gamma], n=parameters["sample_sizes"])
    return found


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """One unit, by its kind."""
    kinds = {"claim": _claim, "phases": _phases, "training": _training, "success": _success}
    return Result(kinds[unit["kind"]](unit, parameters, context))


def _claim(unit: Unit, parameters: Parameters, context: Context) -> dict[str, Any]:
    return asdict(check(unit["claim"], _reporter(context)))


def _phases(unit: Unit, parameters: Parameters, context: Context) -> dict[str, Any]:
    """The oracle's risk over (alpha, beta): exact at finite d, the paper's limit, and the corrected one."""
    d, gamma, oracle = parameters["phase_d"], parameters["phase_gamma"], Overlaps(1.0, 1.0)
    alphas = np.linspace(0.02, 0.32, parameters["phase_grid"]).tolist()
    betas = np.linspace(0.1, 2.0, parameters["phase_grid"]).tolist()
    found: dict[str, Any] = {"alpha": alphas, "beta": betas, "exact": [], "paper": [], "corrected": []}
    for row, beta in enumerate(betas):
        limits = [MeanField(alpha, beta, gamma, d) for alpha in alphas]
        found["paper"].append([limit.risk_paper(oracle) for limit in limits])
        found["corrected"].append([limit.risk_corrected(oracle) for limit in limits])
        found["exact"].append([SoftmaxRisk(Problem.from_alpha(d, alpha, gamma), beta=beta).risk(oracle) for alpha in alphas])
        context.report("phases", row + 1)
    return found


def _reporter(context: Context) -> Progress:
    return lambda stage, done, total: context.report(stage, done)


def _where(context: Context) -> tuple[Any, str | None]:
    """Backend and device of the training."""
    return ("torch", "cuda") if context.device == "cuda" else ("numpy", None)


def _training(unit: Unit, parameters: Parameters, context: Context) -> dict[str, Any]:
    """Seeds of the paper's experiment from all starts: curves per seed, and how far test and exact risk are apart."""
    settings = paper.paper_settings(GAMMAS[unit["gamma"]], steps=parameters["steps"], every=parameters["every"])
    seeds = range(unit["first"], unit["first"] + unit["size"])
    records = paper.run_seeds(settings, seeds, *_where(context), _reporter(context))
    each = [paper.compare(settings, [record], tuple(STARTS)) for record in records]
    starts = []
    for start, mine in zip(STARTS, zip(*each, strict=True), strict=True):
        starts.append({
            "start": start,
            **{curve: [entry[curve]["median"] for entry in mine] for curve in rules.CURVES},
            "learned": [entry["learned"] for entry in mine],
            "z_squared": sum((entry["z_rms"] or 0.0) ** 2 * entry["z_count"] for entry in mine),
            "z_count": sum(entry["z_count"] for entry in mine),
            "z_max": max((entry["z_max"] or 0.0) for entry in mine),
        })  # fmt: skip
    return {"steps": [int(k) for k in records[0].steps], "starts": starts}


def _success(unit: Unit, parameters: Parameters, context: Context) -> dict[str, Any]:
    """How many of the grid's seeds learn from every initial overlap with n samples."""
    gamma, mus = GAMMAS[unit["gamma"]], parameters["overlaps"]
    seeds = range(1000, 1000 + parameters["grid_seeds"])
    grid = paper.success_grid(gamma, mus, [unit["n"]], seeds, parameters["steps"], *_where(context), _reporter(context))
    noise = []
    if unit["n"] == parameters["sample_sizes"][0]:  # it does not depend on n
        settings = paper.paper_settings(gamma)
        noise = [paper.gradient_noise(settings.problem, settings.beta, mu) for mu in mus]
    return {"learned": grid["learned"][0], "median_steps": grid["median_steps"][0], "gradient_noise": noise}


def verdict(results: Rows, parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    found = rules.claims(results, parameters)
    tally = {word: sum(one["verdict"] == word for one in found) for word in (rules.HOLDS, rules.PARTLY, rules.FAILS)}
    runs = rules.trained(results)
    z = [(entry["z_squared"], entry["z_count"]) for entries in runs.values() for entry in entries]
    rms = math.sqrt(sum(s for s, _ in z) / max(1, sum(c for _, c in z)))
    numbers: Numbers = {
        "claims that hold": tally[rules.HOLDS],
        "claims that hold in part": tally[rules.PARTLY],
        "claims that fail": tally[rules.FAILS],
        "z rms, test against exact, before learning": rms,
    }
    for gamma, entries in runs.items():
        numbers[f"uniform starts that learn, gamma {gamma}"] = f"{sum(entries[0]['learned'])} of {len(entries[0]['learned'])}"
    fails = [one["claim"] for one in found if one["verdict"] == rules.FAILS]
    sentence = (
        f"Of the paper's {len(found)} headline claims {tally[rules.HOLDS]} hold, {tally[rules.PARTLY]} hold in part and "
        f"{tally[rules.FAILS]} fail{': ' + '; '.join(fails) if fails else ''}. Simulated test risk and the exact risk at the "
        f"measured overlaps differ by {rms:.2f} standard errors (rms) until a run has learned."
    )
    if len(found) < len(rules.WORDS):
        return Verdict("incomplete", sentence, numbers)
    return Verdict("reproduced" if tally[rules.HOLDS] == len(found) else "not reproduced", sentence, numbers)


def table(results: Rows, parameters: Parameters) -> Table:
    """The claims, one per row."""
    rows = [(one["claim"], one["verdict"], one["finding"]) for one in rules.claims(results, parameters)]
    return Table(("claim", "verdict", "finding"), rows)


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """Three rows: gamma = 1/sqrt(2), gamma = 1/2, phases."""
    with style.sheet(path, (13.0, 9.4), 3, 4) as (figure, axes):
        for row, (gamma, entries) in enumerate(rules.trained(results).items()):
            for ax, start in zip(axes[row], SHOWN, strict=False):
                entry = entries[start]
                spread = {curve: np.quantile(np.array(entry[curve]), [0.1, 0.5, 0.9], axis=0) for curve in rules.CURVES}
                curves = {curve: dict(zip(("low", "median", "high"), rows, strict=True)) for curve, rows in spread.items()}
                training_panel(ax, {**entry, **curves, "learned": sum(entry["learned"]), "seeds": len(entry["learned"])}, gamma)
                ax.set(xlabel="step", ylabel="risk with ε²")
            learned = [values["learned"] for values in select(results, kind="success", gamma=gamma)]
            success_panel(axes[row][3], learned, parameters["grid_seeds"], parameters["overlaps"], parameters["sample_sizes"])
            axes[row][3].set_title(f"γ = {gamma.replace('sqrt(2)', '√2')}: learned, of {parameters['grid_seeds']}", fontsize=9)
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
        _phase_panels(axes[2], select(results, kind="phases")[0], parameters)


def _phase_panels(axes: Any, values: dict[str, Any], parameters: Parameters) -> None:
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


RULES = "; ".join(f"{name}: {words}" for name, words in rules.WORDS.items())
EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table, words={"rules": RULES})
