"""The seven figures of docs/margin.md, and the picture of one run. Needs matplotlib, imported when something is drawn."""

from collections.abc import Callable, Sequence
from pathlib import Path

from maxaffine.core.errors import BadInput
from maxaffine.core.progress import Progress, silent
from maxaffine.margin.figures import geometry, laws

__all__ = ["FIGURES", "draw_all"]

# name: what it shows, and who draws it to a path
FIGURES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "margin-1-paths": ("descent over the tokens, with the ray of ATT-SVM", geometry.paths),
    "margin-2-length": ("|p| against T with slope |p_mm|", laws.length),
    "margin-3-gap": ("T times the loss gap over |p_mm|^2", laws.gap),
    "margin-4-line": ("regularisation path and gradient flow on one line", laws.line),
    "margin-5-joint": ("query and value trained together, and the fan of kappa", laws.joint),
    "margin-6-basins": ("which start goes to which choice", geometry.basin_map),
    "margin-7-walls": ("walls of a partition before and after training", geometry.walls_before_and_after),
}


def draw_all(folder: Path | str, names: Sequence[str] | None = None, progress: Progress = silent) -> list[Path]:
    """Draw figures into a folder as PNG; all seven unless named."""
    wanted = list(FIGURES) if names is None else list(names)
    for name in wanted:
        if name not in FIGURES:
            raise BadInput(f"`names` has {name!r}; the figures are {', '.join(FIGURES)}.")
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    written = []
    for i, name in enumerate(wanted):
        written.append(place / f"{name}.png")
        FIGURES[name][1](written[-1])
        progress("figures", i + 1, len(wanted))
    return written
