"""One look for every figure: colours that survive colour blindness, quiet axes, bytes that repeat."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maxaffine.core.errors import BadInput
from maxaffine.core.records import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Okabe and Ito's palette, which stays apart under all common colour blindness.
BLUE, ORANGE, GREEN, PURPLE, SKY, RED, OLIVE = "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c00"
CURVES = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, OLIVE, "#000000")
INK, QUIET = "#1f2430", "#6b7280"
TARGET, LAYER, PROVED, WORST = BLUE, RED, GREEN, "#e6007e"

# Perceptually uniform maps, monotone in lightness: readable in grey as well.
VALUES = "viridis"
ERRORS = "magma"
ENTROPY = "cividis"

# Small text on the pale band of a bound.
PROVED_TEXT = "#00664b"
LEGEND: dict[str, Any] = {"handlelength": 1.4, "columnspacing": 1.2, "borderpad": 0.1, "borderaxespad": 0.0}
WORST_MARK: dict[str, Any] = {
    "marker": "o", "ms": 6.5, "mfc": "none", "mec": WORST, "mew": 1.6, "ls": "none", "zorder": 5, "clip_on": False,
}  # fmt: skip

WIDTH_INCHES = 12.0
DOTS_PER_INCH = 150

LOOK = Path(__file__).with_name("look.mplstyle")  # fonts, sizes and colours, as matplotlib reads them

# No dates in any of them: the same figure gives the same bytes.
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": "maxaffine"},
    ".svg": {"Date": None, "Creator": "maxaffine"},
    ".pdf": {"CreationDate": None, "Creator": "maxaffine"},
}


def suffix_of(path: str | Path) -> str:
    """The kind of picture that a path asks for, ".png", ".svg" or ".pdf"; BadInput for any other."""
    suffix = Path(path).suffix.lower()
    if suffix not in _METADATA:
        raise BadInput(
            f"`path` (={str(path)!r}) must end in .png, .svg or .pdf, which chooses the kind of picture; "
            f"{suffix or 'no suffix'} is not one of them."
        )
    return suffix


def render(figure: Figure, suffix: str, dots: int | None = None) -> bytes:
    """The figure as bytes of that kind, drawn by matplotlib's Agg, SVG or PDF canvas without a display."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # A letter that the font lacks is drawn as a box; a warning would tell the reader nothing to act on.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(buffer, format=suffix[1:], dpi=dots or DOTS_PER_INCH, metadata=_METADATA[suffix])
    return buffer.getvalue()


@contextmanager
def look() -> Iterator[None]:
    """The look, for the duration of a drawing."""
    import matplotlib

    with matplotlib.rc_context(fname=LOOK):
        yield


def new_figure(size: tuple[float, float], rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A figure that no window and no pyplot state knows of, and its axes [row][column], with a faint grid."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    for axes in grid.ravel():
        clean(axes)
    return figure, grid


def save(figure: Figure, path: str | Path, dots: int | None = None) -> Path:
    """Write a figure, whole or not at all; .png, .svg or .pdf by suffix."""
    write_atomically(path, render(figure, suffix_of(path), dots))
    return Path(path)


@contextmanager
def sheet(path: str | Path, size: tuple[float, float], rows: int = 1, columns: int = 1) -> Iterator[tuple[Figure, Any]]:
    """A new figure in this look, saved when the block ends."""
    suffix_of(path)  # a wrong suffix is refused before anything is drawn
    with look():
        figure, grid = new_figure(size, rows, columns)
        yield figure, grid
        save(figure, path)


def headline(figure: Figure, text: str, size: float = 11.0, colour: str = INK) -> None:
    """A bold title at the left edge."""
    figure.suptitle(text, x=0.01, ha="left", fontsize=size, fontweight="bold", color=colour)


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


def coordinate(axis: Any, name: str, low: float, high: float) -> None:
    """Name and number an axis of a figure; in units where its numbers are long, from its middle where that is far from 0."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(5))
    axis.labelpad = 1
    middle, wide, far = 0.5 * (low + high), high - low, max(abs(low), abs(high))
    near = wide <= 2e-3 * abs(middle)
    power = math.floor(math.log10(wide if near else far))
    if not near and -2 <= power <= 3:
        axis.set_label_text(name)
        return
    unit, origin = 10.0**power, middle if near else 0.0
    ends = (low - origin) / unit, (high - origin) / unit
    shares = [share for share in MaxNLocator(5).tick_values(*ends) if ends[0] <= share <= ends[1]]
    axis.set_ticks([origin + share * unit for share in shares], [f"{share:g}".replace("-", "−") for share in shares])
    away = f" {'+' if middle < 0 else '−'} {abs(middle):.6g}" if near else ""
    axis.set_label_text(f"{name}{away}, in 1e{power}", fontsize=8)


def write_over(axes: Axes, texts: Any, white: Any, **look: Any) -> None:
    """The entries of a matrix written over its picture, in white where `white` says so."""
    for (i, j), text in np.ndenumerate(texts):
        colour = "white" if white[i, j] else INK
        axes.annotate(str(text), (j, i), ha="center", va="center", color=colour, **look)


def number(value: float, digits: int = 3) -> str:
    """A number as a reader wants it in a title: 0.0987, 12, 1500, 1.5e-07."""
    if math.isfinite(value) and 10**digits - 0.5 <= abs(value) < 1e6:
        return f"{value:.0f}"
    return f"{value:.{digits}g}"


def above(value: float, digits: int = 3) -> str:
    """The same, never below the value: a bound must not be rounded down in print."""
    text = number(value, digits)
    if math.isfinite(value) and float(text) < value:
        power = math.floor(math.log10(abs(value))) - digits + 1
        step = 10.0**power
        text = number((math.floor(value / step) + 1) * step, digits)
    return text


def shortened(text: str, length: int) -> str:
    """One line of at most that many characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def clean(axes: Axes) -> None:
    """Only the two axes that carry numbers, and a faint grid behind curves."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="#e7e9ee", linewidth=0.6)
    axes.set_axisbelow(True)


def note(axes: Axes, sentence: str) -> None:
    """A sentence in place of a picture."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, sentence, transform=axes.transAxes, ha="center", va="center", color=QUIET, wrap=True, fontsize=9)
