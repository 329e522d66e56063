"""The figure of the experiment on dimension: tokens at equal error above, errors at equal tokens below, one column per family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maxaffine.lab import dimension_growth as growth
from maxaffine.lab.experiment import Parameters, Row, Verdict
from maxaffine.lab.figures import figure
from maxaffine.report.style import CURVES, QUIET, logarithmic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# `auto` takes what another method found: an open ring around its point, no line of its own.
MARKS = {"lookup": "o", "spectral": "s", "tree": "^", "piecewise": "v", "axis": "<", "regions": ">", "curved": "D", "level": "P"}


def draw(
    results: Sequence[Row], parameters: Parameters, verdict: Verdict, path: Path, families: Mapping[str, str],
    one_constant: Callable[[str, int], float],
) -> None:  # fmt: skip
    """Write the figure."""
    known = growth.curves(results)
    shown = [method for method in parameters["methods"] if any(key[1] == method for key in known)]
    names = list(parameters["families"])
    what = "Tokens at equal error, and errors at equal tokens, against dimension"
    with figure(path, what, verdict, 2, len(names), (12.0, 8.4)) as (canvas, grid):
        for column, family in enumerate(names):
            _tokens(grid[0][column], known, family, shown, parameters)
            _errors(grid[1][column], known, family, shown, parameters)
            D = range(2, int(parameters["highest"]) + 1)
            flat = [one_constant(family, dimension) for dimension in D]
            grid[1][column].plot(D, flat, "-.", lw=1.0, color=QUIET, label="half the range of f: one constant", zorder=1)
            grid[0][column].set_title(f"{family}\n{families[family]}", fontsize=8)
        handles: dict[str, Any] = {}
        for axes in grid.ravel():
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        columns = min(5, len(handles))
        canvas.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=columns, fontsize=8)


def _look(method: str, shown: Sequence[str]) -> dict[str, Any]:
    if method == "auto":
        return {"marker": "o", "ls": "none", "ms": 8.5, "mfc": "none", "mec": "#000000", "mew": 1.0, "zorder": 4}
    plain = [one for one in shown if one != "auto"]
    return {"marker": MARKS.get(method, "o"), "ls": "-", "ms": 4.5, "color": CURVES[3 * plain.index(method) % len(CURVES)]}


def _tokens(axes: Axes, known: growth.Curves, family: str, shown: Sequence[str], parameters: Parameters) -> None:
    for k, error in enumerate(parameters["errors"]):
        alpha = 1.0 - 0.45 * k
        for method in shown:
            curve = known.get((family, method, error))
            if curve is None:
                continue
            look = _look(method, shown)
            axes.plot(curve.dimensions, curve.values, label=f"{method}, error {error:g}", alpha=alpha, **look)
            if method == "spectral":  # its factored layers imply more tokens than they store
                axes.plot(curve.dimensions, curve.stored, ":", lw=1.2, color=look["color"], alpha=alpha,
                          label=f"{method}, error {error:g}: numbers stored")  # fmt: skip
        lookup = known.get((family, "lookup", error))
        if lookup is not None:
            side, top = 10.0 ** growth.log_side(lookup), int(parameters["highest"])
            line = [side**dimension for dimension in range(2, top + 1)]
            axes.plot(range(2, top + 1), line, "--", lw=1.0, color=QUIET, alpha=alpha, label=f"P^D, error {error:g}")
    axes.set(xlabel="dimension D", ylabel="tokens", xticks=range(2, int(parameters["highest"]) + 1))
    logarithmic(axes, x=False)


def _errors(axes: Axes, known: growth.Curves, family: str, shown: Sequence[str], parameters: Parameters) -> None:
    for method in shown:
        curve = known.get((family, method, None))
        if curve is not None:
            axes.plot(curve.dimensions, curve.values, **_look(method, shown))
    ladder = [float(error) for error in parameters["ladder"]]
    axes.set(xlabel="dimension D", ylabel=f"least error within {parameters['budget']:,} tokens")
    axes.set_xticks(range(2, int(parameters["highest"]) + 1))
    axes.set_ylim(min(ladder) / 3.0, max(ladder) * 3.0)
    logarithmic(axes, x=False)
