"""One look for the figures of this package, and files that are written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from maxaffine.core.errors import BadInput
from maxaffine.core.records import replace_atomically

__all__ = ["BLACK", "BLUE", "GREEN", "GREY", "ORANGE", "PURPLE", "RED", "SKY", "look", "new_figure", "save"]

# Okabe and Ito's palette, which stays apart under all common colour blindness.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"
BLACK, GREY = "#1f2430", "#6b7280"

LOOK: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": BLACK,
    "axes.edgecolor": "#9aa1ac",
    "axes.labelcolor": BLACK,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e8eaee",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "lines.linewidth": 1.5,
    "svg.hashsalt": "maxaffine",
}


@contextmanager
def look() -> Iterator[None]:
    """The look, for the duration of a drawing."""
    import matplotlib

    with matplotlib.rc_context(LOOK):
        yield


def new_figure(width: float = 9.0, height: float = 3.6) -> Any:
    """An empty figure that no global state knows of."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, path: Path | str) -> Path:
    """Write a figure; the suffix chooses png, svg or pdf."""
    path = Path(path)
    kind = path.suffix.lower().lstrip(".")
    if kind not in ("png", "svg", "pdf"):
        raise BadInput(f"`figure` (={str(path)!r}) must end in .png, .svg or .pdf.")
    # no dates and no version: the same figure gives the same bytes
    metadata: dict[str, Any] = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    replace_atomically(path, lambda temporary: figure.savefig(temporary, format=kind, dpi=100, metadata=metadata))
    return path
