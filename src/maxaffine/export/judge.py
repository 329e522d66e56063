"""The judge of exports: run where they land, at points chosen against them, beside the layer and their statement."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.side_by_side import AnyLayer, clusters_of
from maxaffine.proofs.statement import Statement
from maxaffine.runtime import two_level

POINTS = 2048
SWITCHES = 64  # segments on which the hand-over between two clusters is looked for
LISTED = 1 << 16  # tokens up to which forms of all of them are compared
WORK = 1 << 25  # tokens times points that one judgement may take
STEPS = np.concatenate([[0.0], 10.0 ** np.arange(-17.0, -1.0, 1.0)])


@dataclass(frozen=True)
class Judged:
    """An export in one dtype: the largest difference from the layer that was seen, at how many points, and its statement."""

    form: str
    dtype: str
    seen: float
    points: int
    statement: Statement

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary."""
        found = {"form": self.form, "dtype": self.dtype, "difference_seen": self.seen, "points": self.points}
        return {**found, "statement": self.statement.to_json()}


def points(layer: AnyLayer, worst: Iterable[float], seed: int = 0) -> Array:
    """Points to compare at: random ones, corners, faces, the worst one known, and both sides of where clusters hand over."""
    rng = np.random.default_rng(seed)
    low, high, D = layer.low, layer.high, layer.dimension
    met = layer.work if layer.tokens > LISTED else layer.tokens  # implied tokens are not met
    count = int(np.clip(WORK // max(met, 1), 48, POINTS))
    inside = rng.uniform(low, high, size=(count, D))
    corners = np.where(rng.random((min(2**D, 32), D)) < 0.5, low, high)
    faces = inside[: count // 8].copy()
    axis, side = rng.integers(D, size=len(faces)), rng.random(len(faces)) < 0.5
    faces[np.arange(len(faces)), axis] = np.where(side, low[axis], high[axis])
    special = np.array(list(worst), dtype=np.float64).reshape(-1, D)
    found = [inside, corners, faces, (low + high)[None] / 2, special, hand_overs(layer, rng, max(4, min(SWITCHES, count // 32)))]
    return np.asarray(np.clip(np.concatenate(found), low, high))


def hand_overs(layer: AnyLayer, rng: np.random.Generator, segments: int) -> Array:
    """Points next to places where another cluster takes the lead: segments between random points, halved to the last bit."""
    found = []
    if not layer.grouped:
        return np.empty((0, layer.dimension))
    for own, variables, group in clusters_of(layer):
        if len(group.clusters) == 1:
            continue

        def leads(
            x: Array, own: GroupedLayer = own, seen: list[int] = list(variables), group: ClusterGroup = group  # noqa: B006
        ) -> NDArray[np.intp]:
            return np.asarray(two_level.levels(own, group, x[:, seen])[0].argmax(axis=1))

        a, b = (rng.uniform(layer.low, layer.high, size=(4 * segments, layer.dimension)) for _ in range(2))
        place, direction = halved(leads, a, b, segments)
        found += [place + step * direction for step in (*STEPS, *-STEPS[1:])]
    return np.concatenate(found) if found else np.empty((0, layer.dimension))


def halved(leads: Callable[[Array], NDArray[np.intp]], a: Array, b: Array, most: int) -> tuple[Array, Array]:
    """Where another one takes the lead on up to `most` of the segments from a to b, to the last bit; and these segments."""
    before = leads(a)
    rows = np.flatnonzero(before != leads(b))[:most]
    a, b, before = a[rows], b[rows], before[rows]
    direction = b - a
    for _ in range(60 if len(rows) else 0):
        middle = (a + b) / 2.0
        same = (leads(middle) == before)[:, None]
        a, b = np.where(same, middle, a), np.where(same, b, middle)
    return a, direction


def judge(
    form: str, dtype: str, run: Callable[[Array], Any], x: Array, expected: Array, said: Statement, allowed: float | None
) -> Judged:
    """How far an export is from the layer, at points chosen against it.

    Refused where it does not run, or differs by more than is `allowed` (None: nothing is stated, and the difference is told).
    """
    try:
        got = np.asarray(run(x), dtype=np.float64)
    except Exception as failure:
        what = f"{type(failure).__name__}: {failure}"
        raise Refused(f"the {form} export in {dtype} does not run where it lands ({what}); nothing is written.") from failure
    if got.shape != expected.shape or not np.isfinite(got).all():
        raise Refused(f"the {form} export in {dtype} gives {got.shape} instead of {expected.shape} finite numbers.")
    seen = float(np.abs(got - expected).max())
    if allowed is not None and not seen <= allowed * (1 + 1e-12):
        raise Refused(
            f"the {form} export in {dtype} differs from the layer by {seen:.3g}, and {allowed:.3g} is what its statement allows; "
            "nothing is written. Please report this, with the versions that `maxaffine doctor` prints."
        )
    return Judged(form, dtype, seen, len(x), said)


def table(rows: Iterable[Judged]) -> list[tuple[str, ...]]:
    """Rows for a person."""
    shown: list[tuple[str, ...]] = [("export", "dtype", "difference seen", "points", "error proved")]
    for row in rows:
        bound = "observed only" if row.statement.bound is None else f"{row.statement.bound:.4g}"
        shown.append((row.form, row.dtype, f"{row.seen:.3g}", f"{row.points:,}", bound))
    return shown
