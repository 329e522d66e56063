"""The eight figures of docs/meanfield.md, and how each is made. Needs matplotlib, imported when something is drawn."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from maxaffine.core.errors import BadInput
from maxaffine.core.progress import Progress, silent
from maxaffine.meanfield.figures import dynamics, theory
from maxaffine.report.style import look, save

__all__ = ["FIGURES", "draw", "draw_all", "load_experiment", "look", "save"]

RECORD = "experiment.json"

FIGURES: dict[str, str] = {
    "1-experiment": "test, exact and paper risk against step, log scale",
    "2-retrieval": "retrieval probability against mu, d = 50, 100, 400",
    "3-phases": "phase diagrams over the exact oracle risk",
    "4-fields": "vector fields in (mu, nu), exact and paper",
    "5-length": "risk against L, with every baseline",
    "6-success": "success rate against initial overlap and n",
    "7-logarithmic": "mu(t) and R(t) on logarithmic time",
    "8-limit": "exact risk against d and its two candidate limits",
}
# The fields of the experiment's record that a figure shows, and who draws it; those without such fields report progress.
_MAKERS: dict[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "1-experiment": (("runs",), dynamics.experiment_figure), "2-retrieval": ((), theory.retrieval_figure),
    "3-phases": ((), theory.phase_figure), "4-fields": ((), dynamics.field_figure), "5-length": ((), theory.length_figure),
    "6-success": (("success", "gradient_noise"), dynamics.success_figure),
    "7-logarithmic": ((), dynamics.logarithmic_figure), "8-limit": ((), theory.limit_figure),
}  # fmt: skip


def load_experiment(path: Path | str) -> dict[str, Any]:
    """The record that ``maxaffine meanfield compare --full --save`` wrote."""
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
        if not {"runs", "success", "gradient_noise"} <= set(record):
            raise ValueError("fields are missing")
    except (OSError, ValueError, TypeError) as problem:
        raise BadInput(f"`record` (={str(path)!r}) is not a saved experiment ({problem}).") from None
    return dict(record)


def draw(name: str, experiment: dict[str, Any] | None = None, progress: Progress = silent) -> Any:
    """One of FIGURES as a matplotlib figure; 1 and 6 need the experiment's record."""
    if name not in FIGURES:
        raise BadInput(f"`name` (={name!r}) must be one of {', '.join(FIGURES)}.")
    fields, make = _MAKERS[name]
    if fields and experiment is None:
        raise BadInput(f"`name` (={name!r}) needs the record of an experiment; see load_experiment.")
    return make(*((experiment or {})[field] for field in fields)) if fields else make(progress)


def draw_all(
    folder: Path | str, experiment: dict[str, Any] | None, names: Sequence[str] | None = None, progress: Progress = silent
) -> list[Path]:
    """Draw figures into a folder as PNG; all eight unless named."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    wanted = list(FIGURES) if names is None else list(names)
    written = []
    for i, name in enumerate(wanted):
        with look():
            written.append(save(draw(name, experiment, progress), place / f"{name}.png", dots=100))
        progress("figures", i + 1, len(wanted))
    return written
