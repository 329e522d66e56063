"""The table of hard targets as a page and as a figure, from the results that benchmarks/hard_targets.py keeps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLOURS = {
    "piecewise": "#009e73",
    "axis": "#0072b2",
    "regions": "#e69f00",
    "products": "#000000",
    "curved": "#8c8c00",
    "spectral": "#56b4e9",
    "tree": "#cc79a7",
    "lookup": "#d55e00",
}


def met(made: dict[str, Any] | None) -> bool:
    """Whether a cell has a layer that is proved, or for a callable observed, to keep its error."""
    return made is not None and made["kind"] in ("proved", "none") and made["observed"] <= made["asked"]


def counts(rows: Sequence[Any], errors: Sequence[float], known: dict[str, Any]) -> dict[str, int]:
    """How many cells are met, proved, and within 1.2 times the yardstick."""
    total = {"cells": 0, "met": 0, "proved": 0, "compared": 0, "within": 0, "fewer": 0}
    for row in rows:
        for error, before in zip(errors, row.yardstick, strict=True):
            made = known.get(f"{row.name} @ {error:g}")
            total["cells"] += 1
            total["met"] += met(made)
            total["proved"] += met(made) and made["kind"] == "proved"
            if before is not None and met(made):
                total["compared"] += 1
                total["within"] += made["tokens"] <= 1.2 * before
                total["fewer"] += made["tokens"] < before
    return total


def text(made: dict[str, Any] | None, before: int | None) -> str:
    """One cell of the table."""
    if made is None:
        return "not run"
    yardstick = f" ({before})" if before is not None else " (-)"
    if not met(made):
        reason = str(made.get("reason", "observed error above the error asked")).replace("|", "\\|")
        return f"refused{yardstick}: {reason[:160]}"
    bound = f"bound {made['bound']:.2g}" if made["kind"] == "proved" else "observed only"
    seen = f"observed {made['observed']:.2g}, {made['seconds']:.1f} s"
    return f"{made['method']}: **{made['tokens']:,}**{yardstick} {bound}, {seen}"


def page(rows: Sequence[Any], beyond: Sequence[Any], errors: Sequence[float], known: dict[str, Any]) -> str:
    """The whole table as Markdown, and one of targets that have no yardstick."""
    total = counts(rows, errors, known)
    lines = [
        "# Hard targets through `auto`",
        "",
        "Made by `make hard-targets`. Kinks, jumps, singular edges, oblique and local features on [-1, 1]^D. Errors are relative "
        "to sup |f|; expressions are compiled by the command line and proved, callables by Python, which are read and proved as "
        "well. Jumps are asked for outside a gap of 1e-6 (`--gap 1e-6`). In brackets the tokens set as a yardstick, `-` where "
        "there was none. "
        "Seconds are those of one run, start of Python included, some of them on a machine busy with other work.",
        "",
        f"{total['cells']} cells: {total['met']} met, {total['proved']} of them proved. Of the {total['compared']} that the "
        f"yardstick has too, {total['within']} need at most 1.2 times its tokens and {total['fewer']} fewer than it.",
        "",
        "![tokens of every target](images/hard-targets.png)",
        "",
        *table(rows, errors, known),
        "",
        "## Products and sums of them",
        "",
        "Kinks and singular ends in the factors of a product, each factor along one direction, and sums with such parts "
        "([decision 17](decisions/0017-products-of-clusters.md)); roots of what is no straight line. These have no yardstick.",
        "",
        *table(beyond, errors, known),
    ]
    return "\n".join(lines) + "\n"


def table(rows: Sequence[Any], errors: Sequence[float], known: dict[str, Any]) -> list[str]:
    """Lines of a table, one per target."""
    lines = ["| target | D | " + " | ".join(f"{error:g}" for error in errors) + " |", "|---|---|" + "---|" * len(errors)]
    for row in rows:
        cells = [text(known.get(f"{row.name} @ {e:g}"), before) for e, before in zip(errors, row.yardstick, strict=True)]
        lines.append(f"| {row.name} | {row.dimension} | " + " | ".join(cells) + " |")
    return lines


def draw(rows: Sequence[Any], errors: Sequence[float], known: dict[str, Any], path: Path) -> None:
    """Tokens per target, one panel per error; the yardstick as a tick, refusals at the edge."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(13, 0.2 * len(rows) + 1.8), layout="constrained")
    panels = figure.subplots(1, len(errors), sharey=True)
    for k, (axes, error) in enumerate(zip(panels, errors, strict=True)):
        for i, row in enumerate(rows):
            made, before = known.get(f"{row.name} @ {error:g}"), row.yardstick[k]
            if before is not None:
                axes.plot(before, i, marker="|", color="black", markersize=8, zorder=1)
            if met(made):
                proved = made["kind"] == "proved"
                colour = COLOURS.get(made["method"], "grey")
                axes.plot(made["tokens"], i, "o", color=colour, mfc=colour if proved else "white", markersize=5, zorder=2)
            else:
                axes.plot(2e4, i, "x", color="#999999", markersize=5)
        axes.set_xscale("log")
        axes.set_xlim(0.7, 3e4)
        axes.set_title(f"relative error {error:g}")
        axes.set_xlabel("tokens")
        axes.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(rows)), [row.name for row in rows], fontsize=7)
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
    handles = [Line2D([], [], marker="o", ls="", color=colour, label=name) for name, colour in COLOURS.items()]
    handles += [
        Line2D([], [], marker="o", ls="", color="grey", mfc="white", label="observed only"),
        Line2D([], [], marker="|", ls="", color="black", label="yardstick"),
        Line2D([], [], marker="x", ls="", color="#999999", label="refused"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=9, fontsize=8)
    figure.savefig(path, dpi=110)
