"""The regression benchmark as tables and a figure, from the rows that benchmarks/regression.py keeps."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

OURS = "MaxAffineRegressor"
BEGIN, END = "<!-- measured -->", "<!-- /measured -->"
LEVEL = 0.05
VERSIONS = {"Python": "python", "scikit-learn": "scikit-learn", "NumPy": "numpy", "SciPy": "scipy"}
START = f"""# Regression

`MaxAffineRegressor` is one softmax attention head fitted to data. Here it stands beside what people would use instead.

{BEGIN}
{END}
"""


def scores(kept: dict[str, Any], data: str, model: str, kind: str, score: str) -> np.ndarray:
    """One score of all folds, in their order."""
    rows = [row for row in kept["rows"] if row["data"] == data and row["model"] == model]
    return np.array([row[kind][score] for row in sorted(rows, key=lambda row: row["fold"])])


def corrected(differences: np.ndarray, test_over_train: float) -> tuple[float, float, float]:
    """Mean difference over folds, half of its 95 % interval, and the two-sided p-value that it is zero (Nadeau and Bengio 2003).

    Training sets of different folds overlap, so the variance of the mean of J folds is not var / J; taken instead is
    (1 / J + test / train) var, with J - 1 degrees of freedom.
    """
    J = len(differences)
    mean = float(differences.mean())
    if J < 2:
        return mean, float("inf"), 1.0
    error = float(np.sqrt((1.0 / J + test_over_train) * differences.var(ddof=1)))
    if error == 0.0:
        return mean, 0.0, 1.0 if mean == 0.0 else 0.0
    return mean, float(student.ppf(0.975, J - 1)) * error, float(2.0 * student.sf(abs(mean) / error, J - 1))


def holm(values: list[float]) -> list[float]:
    """p-values adjusted for as many comparisons as there are (Holm 1979)."""
    order = np.argsort(values)
    adjusted, highest = np.ones(len(values)), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, values[place] * (len(values) - rank)))
        adjusted[place] = highest
    return [float(value) for value in adjusted]


def names(kept: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Data sets and models, in the order of the run."""
    return list(dict.fromkeys(row["data"] for row in kept["rows"])), list(dict.fromkeys(row["model"] for row in kept["rows"]))


def comparisons(kept: dict[str, Any]) -> list[dict[str, Any]]:
    """Ours against every peer on every data set: tuned RMSE, relative to the peer's mean."""
    sets, models = names(kept)
    found: list[dict[str, Any]] = []
    for data in sets:
        row = next(row for row in kept["rows"] if row["data"] == data)
        for peer in models:
            theirs, ours = scores(kept, data, peer, "tuned", "rmse"), scores(kept, data, OURS, "tuned", "rmse")
            if peer == OURS or len(theirs) != len(ours):
                continue
            mean, half, p = corrected(ours - theirs, row["test"] / row["train"])
            scale = float(theirs.mean())
            found.append({"data": data, "peer": peer, "percent": 100 * mean / scale, "half": 100 * half / scale, "p": p})
    for item, p in zip(found, holm([item["p"] for item in found]), strict=True):
        item["holm"] = p
        item["verdict"] = "tie" if p >= LEVEL else ("wins" if item["percent"] < 0 else "loses")
    return found


def figures(value: float) -> str:
    """Four significant figures, never in powers of ten."""
    return np.format_float_positional(value, precision=4, fractional=False, trim="-")


def table(kept: dict[str, Any]) -> list[str]:
    """RMSE and R2 of every model on every data set, tuned and untuned; the least tuned RMSE in bold."""
    sets, models = names(kept)
    lines = [
        "| data | model | RMSE, tuned | R2, tuned | RMSE, untuned | R2, untuned | seconds, tuned | seconds, untuned |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for data in sets:
        best = min(models, key=lambda model: scores(kept, data, model, "tuned", "rmse").mean())
        for model in models:
            cells = [data if model == models[0] else "", f"**{model}**" if model == OURS else model]
            for kind in ("tuned", "default"):
                for score in ("rmse", "r2"):
                    found = scores(kept, data, model, kind, score)
                    spread = found.std(ddof=1) if len(found) > 1 else 0.0
                    mean = figures(found.mean()) if score == "rmse" else f"{found.mean():.3f}"
                    if model == best and kind == "tuned" and score == "rmse":
                        mean = f"**{mean}**"
                    cells.append(f"{mean} ± {spread:.2g}" if score == "rmse" else f"{mean} ± {spread:.3f}")
            cells += [f"{np.median(scores(kept, data, model, kind, 'seconds')):.2g}" for kind in ("tuned", "default")]
            lines.append("| " + " | ".join(cells) + " |")
    lines += [f"| {name} | **not reachable here** |" + "  |" * 6 for name in kept["missing"]]
    return lines


def paired(kept: dict[str, Any]) -> list[str]:
    """The comparisons as a table: a row per data set, a column per peer."""
    sets, models = names(kept)
    peers = [model for model in models if model != OURS]
    found = {(item["data"], item["peer"]): item for item in comparisons(kept)}
    lines = ["| data | " + " | ".join(peers) + " |", "|---|" + "---|" * len(peers)]
    for data in sets:
        cells = []
        for peer in peers:
            item = found[data, peer]
            p = f"p = {item['holm']:.2g}" if item["holm"] >= 1e-4 else "p < 0.0001"
            cells.append(f"{item['verdict']}: {item['percent']:+.1f} ± {item['half']:.1f} %, {p}")
        lines.append(f"| {data} | " + " | ".join(cells) + " |")
    return lines


def chosen(kept: dict[str, Any]) -> list[str]:
    """What the tuned heads were: tokens, and how often they had a metric and a tilt."""
    lines = ["| data | tokens: least, median, most | with a metric | with a tilt |", "|---|---|---|---|"]
    for data in names(kept)[0]:
        heads = [row["tuned"]["head"] for row in kept["rows"] if row["data"] == data and row["model"] == OURS]
        tokens = sorted(head["tokens"] for head in heads)
        metric, tilt = (f"{sum(head[what] for head in heads)} of {len(heads)}" for what in ("metric", "tilt"))
        lines.append(f"| {data} | {tokens[0]}, {int(np.median(tokens))}, {tokens[-1]} | {metric} | {tilt} |")
    return lines


def measured(kept: dict[str, Any]) -> list[str]:
    """Everything that is measured, as Markdown."""
    plan, machine, software = kept["plan"], kept["machine"], kept["software"]
    sets, models = names(kept)
    per = {len(scores(kept, data, model, "tuned", "rmse")) for data in sets for model in models}
    whole = plan["splits"] * plan["repeats"]
    drawn = {row["tuned"]["candidates"] for row in kept["rows"]}
    if per != {whole}:
        raise ValueError(f"{sorted(per)} folds are done of {whole}: run benchmarks/regression.py to the end first.")
    if drawn != {plan["candidates"]}:
        raise ValueError(f"models were given {sorted(drawn)} candidates instead of {plan['candidates']} each.")
    about = kept["data"].items()
    words = [f"- **{name}**: {data['words']}; standard deviation {figures(data['spread'])}." for name, data in about]
    words += [f"- **{name}: not reachable here**; it is taken along where scikit-learn can fetch it." for name in kept["missing"]]
    wins = {kind: sum(item["verdict"] == kind for item in comparisons(kept)) for kind in ("wins", "tie", "loses")}
    versions = ", ".join(f"{name} {software[key]}" for name, key in VERSIONS.items())
    return [
        "",
        f"`benchmarks/regression.py`: {plan['splits']}-fold cross-validation, {plan['repeats']} times over ({whole} folds). "
        "Every model has its inputs standardised and is tuned inside each training fold by the same budget: "
        f"{plan['candidates']} candidates (its defaults, and {plan['candidates'] - 1} drawn as RandomizedSearchCV draws them), "
        f"{plan['inner']} inner folds, the same seed. "
        "`MaxAffineRegressor` chooses keys, temperature, ridge and metric by leave-one-out inside each candidate. Untuned are "
        "the defaults.",
        "",
        *words,
        "",
        *table(kept),
        "",
        "Mean ± standard deviation over folds. Seconds are medians of processor time for one fold (tuning and refitting, or one "
        "fit), one thread, on a machine that was busy with other work: good for orders of magnitude only. "
        f"Machine: {machine['processor']}, {machine['cores']} cores, {machine['memory']}; {versions}.",
        "",
        "![RMSE of every model on every data set](images/regression.png)",
        "",
        "## Paired comparisons",
        "",
        "Difference of the tuned RMSE, ours minus theirs, in percent of theirs, with its 95 % interval; negative is better for "
        "ours. Folds share training samples, so the variance is the corrected one of Nadeau and Bengio; p-values are Holm's for "
        f"all {sum(wins.values())} comparisons, and a verdict other than a tie needs p < {LEVEL}.",
        "",
        *paired(kept),
        "",
        f"`MaxAffineRegressor` wins {wins['wins']}, ties {wins['tie']}, loses {wins['loses']}.",
        "",
        "What its tuned heads were:",
        "",
        *chosen(kept),
        "",
    ]


def page(kept: dict[str, Any], before: str) -> str:
    """The page, with what is measured put between the marks and all else as it was."""
    before = before if BEGIN in before and END in before else START
    return before.split(BEGIN)[0] + BEGIN + "\n" + "\n".join(measured(kept)) + "\n" + END + before.split(END)[1]


def draw(kept: dict[str, Any], path: Path) -> None:
    """A panel per data set, a line per model: tuned folds as dots, their mean, and the mean of the untuned model."""
    from matplotlib.lines import Line2D

    from maxaffine.report.style import sheet

    sets, models = names(kept)
    colours = dict(zip(models, ("#0072b2", "#8c8c8c", "#e69f00", "#009e73", "#cc79a7"), strict=False))
    panels = [*sets, *kept["missing"]]
    rows = -(-len(panels) // 3)
    with sheet(path, (10.5, 2.7 * rows + 0.4), rows, 3) as (canvas, grid):
        for k, axes in enumerate(grid.ravel()):
            if k >= len(sets):
                axes.set_axis_off()
                absent = f"{panels[k]}:\nnot reachable here" if k < len(panels) else ""
                axes.text(0.5, 0.5, absent, ha="center", va="center", transform=axes.transAxes, fontsize=11, color="#b00020")
                continue
            for i, model in enumerate(models):
                tuned, plain = (scores(kept, sets[k], model, kind, "rmse") for kind in ("tuned", "default"))
                shake = 0.22 * np.sin(2.4 * np.arange(len(tuned)))
                axes.plot(tuned, i + shake, "o", color=colours[model], ms=3, alpha=0.45, mec="none")
                axes.plot(plain.mean(), i, "D", color=colours[model], mfc="white", ms=5)
                axes.plot([tuned.mean()] * 2, [i - 0.36, i + 0.36], color=colours[model], lw=2.4)
            axes.axvline(scores(kept, sets[k], OURS, "tuned", "rmse").mean(), color=colours[OURS], lw=0.7, ls=":", zorder=0)
            axes.set_title(sets[k])
            axes.set_xlabel("RMSE of a test fold")
            axes.set_yticks(range(len(models)), models if k % 3 == 0 else [""] * len(models))
            axes.set_ylim(len(models) - 0.5, -0.5)
        handles = [
            Line2D([], [], marker="o", ls="", ms=3, color="#444444", label="a fold, tuned"),
            Line2D([], [], color="#444444", lw=2.4, label="mean, tuned"),
            Line2D([], [], marker="D", ls="", color="#444444", mfc="white", label="mean, untuned"),
        ]
        canvas.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
