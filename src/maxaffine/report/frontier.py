"""The picture of a frontier: tokens against error, one curve per method and argument."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maxaffine.core.records import write_atomically
from maxaffine.report.style import CURVES, INK, QUIET, clean, render, shortened, suffix_of

MARKS = ("o", "s", "^", "D", "v", "P")


def draw_frontier(rows: Sequence[dict[str, Any]], target: str, path: str | Path) -> Path:
    """Draw rows of `maxaffine.frontier.frontier`; .png, .svg or .pdf by suffix."""
    suffix = suffix_of(path)
    from matplotlib.figure import Figure

    curves: dict[str, list[tuple[float, int, bool]]] = {}
    for row in rows:
        name = row["method"] if row["method"] == row["argument"] else f"{row['method']} ({row['argument']})"
        curves.setdefault(name, []).append((row["error"], row["tokens"], row["affordable"]))
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes = figure.add_subplot()
    for index, (name, points) in enumerate(sorted(curves.items(), key=lambda item: min(p[1] for p in item[1]))):
        points.sort()
        colour, mark = CURVES[index % len(CURVES)], MARKS[index % len(MARKS)]
        axes.plot([p[0] for p in points], [float(p[1]) for p in points], color=colour, lw=1.6, zorder=2)
        for fits, face in ((True, colour), (False, "white")):
            chosen = [p for p in points if p[2] is fits]
            label = name if fits or not any(p[2] for p in points) else None
            axes.plot(
                [p[0] for p in chosen], [float(p[1]) for p in chosen], ls="none", marker=mark, ms=6,
                mfc=face, mec=colour, label=label if chosen else None, zorder=3,
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.invert_xaxis()
    axes.set_xlabel("error asked for", color=INK)
    axes.set_ylabel("tokens", color=INK)
    axes.set_title(shortened(f"tokens against error: {target}", 90), color=INK, fontsize=11, loc="left")
    words = "open marks: more than fits the memory here"
    axes.text(0.99, 0.02, words, transform=axes.transAxes, ha="right", color=QUIET, fontsize=8)
    axes.legend(frameon=False)
    axes.grid(True, which="major", color="#e5e7eb", lw=0.6)
    clean(axes)
    write_atomically(path, render(figure, suffix))
    return Path(path)
