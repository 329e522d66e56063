"""Figures of the lab: a grid of quiet axes in the house's look, a title that carries the verdict, a file written whole."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maxaffine.core.records import replace_atomically
from maxaffine.lab import trends
from maxaffine.lab.experiment import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@contextmanager
def figure(rows: int, columns: int, size: tuple[float, float]) -> Iterator[tuple[Figure, Any]]:
    """A figure and its axes [row][column], in the look of all figures of maxaffine."""
    import matplotlib
    from matplotlib.figure import Figure

    from maxaffine.report import style

    with matplotlib.rc_context(style.LOOK):
        canvas = Figure(figsize=size, layout="constrained")
        grid = canvas.subplots(rows, columns, squeeze=False)
        for axes in grid.ravel():
            style.clean(axes)
        yield canvas, grid


def logarithmic(axes: Axes, x: bool = True, y: bool = True) -> None:
    """Logarithmic axes whose ticks read 0.1, 1, 10 (the look draws no formulas)."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for wanted, axis, scale in ((x, axes.xaxis, axes.set_xscale), (y, axes.yaxis, axes.set_yscale)):
        if wanted:
            scale("log")
            low, high = axis.get_view_interval()
            decades = math.log10(high / low) if 0 < low < high else 9.0
            axis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0) if decades < 2.2 else (1.0,), numticks=12))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())


def band(axes: Axes, x: Any, samples: Any, colour: str, label: str, log: bool = False, **style: Any) -> None:
    """The mean of samples (seeds, points) as a curve, its 95% interval over seeds as a band; of logarithms with `log`."""
    values = np.asarray(samples, dtype=np.float64)
    mean, half = trends.mean_and_interval(np.log(values) if log else values)
    low, middle, high = (np.exp(curve) if log else curve for curve in (mean - half, mean, mean + half))
    axes.plot(x, middle, color=colour, label=label, **{"lw": 1.6, **style})
    if len(values) > 1:
        axes.fill_between(x, low, high, color=colour, alpha=0.18, lw=0)


def title(canvas: Figure, what: str, verdict: Verdict, warning: str = "") -> None:
    """What the figure shows, and the verdict under it; a warning first, loudly."""
    width = int(11.5 * canvas.get_figwidth())
    head = f"{warning}: {what}" if warning else what
    body = textwrap.fill(f"{verdict.outcome.upper()}. {verdict.sentence}", width)
    colour = "#b00020" if warning else "#1f2430"
    canvas.suptitle(f"{head}\n{body}", x=0.01, ha="left", fontsize=10, fontweight="bold", color=colour)


def save(canvas: Figure, path: Path) -> None:
    """Write the picture, whole or not at all."""
    from maxaffine.report import style

    picture = style.render(canvas, style.suffix_of(path))

    def write(temporary: Path) -> None:
        temporary.write_bytes(picture)

    replace_atomically(path, write)
