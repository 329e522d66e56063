"""The picture of a frontier: tokens against error, one curve per method and argument."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maxaffine.report.style import CURVES, QUIET, logarithmic, sheet, shortened

MARKS = ("o", "s", "^", "D", "v", "P")


def draw_frontier(rows: Sequence[dict[str, Any]], target: str, path: str | Path) -> Path:
    """Draw rows of `maxaffine.frontier.frontier`; .png, .svg or .pdf by suffix."""
    curves: dict[str, list[tuple[float, int, bool]]] = {}
    for row in rows:
        name = row["method"] if row["method"] == row["argument"] else f"{row['method']} ({row['argument']})"
        curves.setdefault(name, []).append((row["error"], row["tokens"], row["affordable"]))
    with sheet(path, (8.0, 5.0)) as (_, grid):
        axes = grid[0][0]
        for index, (name, points) in enumerate(sorted(curves.items(), key=lambda item: min(p[1] for p in item[1]))):
            points.sort()
            colour, mark = CURVES[index % len(CURVES)], MARKS[index % len(MARKS)]
            axes.plot([p[0] for p in points], [float(p[1]) for p in points], color=colour, lw=1.6, zorder=2)
            for fits, face in ((True, colour), (False, "white")):
                chosen = [p for p in points if p[2] is fits]
                label = name if chosen and (fits or not any(p[2] for p in points)) else None
                look = {"ls": "none", "marker": mark, "ms": 6, "mfc": face, "mec": colour, "label": label, "zorder": 3}
                axes.plot([p[0] for p in chosen], [float(p[1]) for p in chosen], **look)
        logarithmic(axes)
        axes.invert_xaxis()
        axes.set(xlabel="error asked for", ylabel="tokens", title=shortened(f"tokens against error: {target}", 90))
        words = "open marks: more than fits the memory here"
        axes.text(0.99, 0.02, words, transform=axes.transAxes, ha="right", color=QUIET, fontsize=8)
        axes.legend()
    return Path(path)
