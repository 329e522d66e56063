"""Figures of the lab: a grid of quiet axes in the house's look, a title that carries the verdict, a file written whole."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.lab import trends
from maxaffine.lab.experiment import Verdict
from maxaffine.report import style


@contextmanager
def figure(
    path: Path, what: str, verdict: Verdict, rows: int, columns: int, size: tuple[float, float], warning: str = ""
) -> Iterator[tuple[Any, Any]]:
    """A figure and its axes [row][column], titled with what it shows and the verdict, and written when the block ends.

    A warning stands first, loudly.
    """
    with style.sheet(path, size, rows, columns) as (canvas, grid):
        yield canvas, grid
        head = f"{warning}: {what}" if warning else what
        wide = float(canvas.get_figwidth())
        outcome = textwrap.fill(f"{verdict.outcome.upper()}.", int(9.0 * wide))  # capitals are wider
        body = textwrap.fill(verdict.sentence, int(11.5 * wide))
        style.headline(canvas, f"{head}\n{outcome}\n{body}", 10, "#b00020" if warning else style.INK)


def band(axes: Any, x: Any, samples: Any, colour: str, label: str, log: bool = False, **look: Any) -> None:
    """The mean of samples (seeds, points) as a curve, its 95% interval over seeds as a band; of logarithms with `log`.

    Nothing is drawn where there are no samples.
    """
    values = np.asarray(samples, dtype=np.float64)
    if not len(values):
        return
    mean, half = trends.mean_and_interval(np.log(values) if log else values)
    low, middle, high = (np.exp(curve) if log else curve for curve in (mean - half, mean, mean + half))
    axes.plot(x, middle, color=colour, label=label, **{"lw": 1.6, **look})
    if len(values) > 1:
        axes.fill_between(x, low, high, color=colour, alpha=0.18, lw=0)
