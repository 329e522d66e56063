"""The round-trip judge: an export is run where it lands and compared with the layer, dtype by dtype, before it is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.errors import Refused

Array = NDArray[np.float64]
POINTS = 512


@dataclass(frozen=True)
class Introduced:
    """What an export in one dtype adds to the error: the largest difference seen, and what is allowed (None: told only)."""

    form: str
    dtype: str
    difference: float
    allowed: float | None

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary."""
        return asdict(self)


def points(low: Array, high: Array, worst: Iterable[float], seed: int = 0) -> Array:
    """Points to compare at: random ones, corners, the centre, and the worst point known."""
    rng = np.random.default_rng(seed)
    D = len(low)
    inside = rng.uniform(low, high, size=(POINTS, D))
    corners = np.where(rng.random((min(2**D, 32), D)) < 0.5, low, high)
    special = np.array(list(worst), dtype=np.float64).reshape(-1, D)
    return np.asarray(np.clip(np.concatenate([inside, corners, (low + high)[None] / 2, special]), low, high))


def judge(form: str, dtype: str, run: Callable[[Array], Any], x: Array, expected: Array, allowed: float | None) -> Introduced:
    """The difference that an export introduces; refused where it is above what is allowed."""
    try:
        got = np.asarray(run(x), dtype=np.float64)
    except Exception as failure:
        what = f"{type(failure).__name__}: {failure}"
        raise Refused(f"the {form} export in {dtype} does not run where it lands ({what}); nothing is written.") from failure
    if got.shape != expected.shape or not np.isfinite(got).all():
        raise Refused(f"the {form} export in {dtype} gives {got.shape} instead of {expected.shape} finite numbers.")
    difference = float(np.abs(got - expected).max())
    if allowed is not None and difference > allowed:
        raise Refused(
            f"the {form} export in {dtype} differs from the layer by {difference:.3g}, and {allowed:.3g} is allowed; nothing is "
            "written. Use float64, or the fast form, which keeps the structure."
        )
    return Introduced(form, dtype, difference, allowed)


def table(rows: Iterable[Introduced]) -> list[tuple[str, ...]]:
    """Rows for a person."""
    shown: list[tuple[str, ...]] = [("export", "dtype", "error introduced", "allowed")]
    for row in rows:
        shown.append((row.form, row.dtype, f"{row.difference:.3g}", "" if row.allowed is None else f"{row.allowed:.3g}"))
    return shown
