"""The walk: every route of a layer, its error maximised, beside what is stated of that route.

A row is judged, or not covered with the reason that its statement gives, or refused with the reason that building it gave.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from maxaffine.attack.domain import domain_of
from maxaffine.attack.search import DRAWS, Effort, Found, at_entries, cells_of, integrated, running, worst
from maxaffine.attack.starts import start_points
from maxaffine.attack.ways import Way, ways
from maxaffine.compiled import Compiled
from maxaffine.core.errors import MaxaffineError

NOWHERE = Found()
QUICK = Effort(starts=500, climbers=8, tries=4, rounds=10, integral=3000)


@dataclass(frozen=True)
class Row:
    """One way to run one layer: its bound or why there is none, the largest sure error, and where that is."""

    head: str
    target: str
    dtype: str  # of the layer
    route: str
    variant: str
    arithmetic: str
    bound: float | None
    why: str  # why the statement holds, or why there is none
    worst: float
    at: tuple[float, ...]
    points: int

    @property
    def judged(self) -> bool:
        """Whether there was a bound to judge, and a place to judge it at."""
        return self.bound is not None and self.points > 0

    @property
    def ratio(self) -> float:
        """The largest error in units of the bound."""
        if not self.judged or self.worst == 0.0:
            return 0.0
        return self.worst / self.bound if self.bound else float("inf")

    @property
    def violated(self) -> bool:
        """Whether a point lies above the bound."""
        return self.bound is not None and self.judged and not self.worst <= self.bound

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "judged": self.judged, "ratio": self.ratio, "violated": self.violated}


def walk(
    compiled: Compiled, rng: np.random.Generator, effort: Effort = QUICK, head: str = "",
    kept: Callable[[str], bool] = lambda route: True,
) -> Iterator[Row]:  # fmt: skip
    """A row for every way whose route is `kept`."""
    layer, target, scope, norm = compiled.weights, compiled.target, compiled.certificate.scope, compiled.certificate.norm
    domain = domain_of(scope, target, layer) if compiled.bound is not None else None
    pool, cells = np.empty((0, layer.dimension)), []  # to start from; of an integral, and fewer of them for slow ways
    if scope.over == "integral" and domain is not None:
        run = running(layer)
        cells = [cells_of(run, target, norm, rng, one.integral // DRAWS) for one in (effort, effort.less(40.0))]
    elif scope.over != "entries" and domain is not None:
        pool = start_points(layer, target, domain, rng, compiled.observed.at)
    name = compiled.target.name or compiled.target.text or "callable"

    def row(way: Way, bound: float | None, why: str, found: Found = NOWHERE) -> Row:
        place = way.route, way.variant, way.statement.dtype
        return Row(head, name, compiled.dtype, *place, bound, why, found.error, found.at, found.points)

    for way in ways(compiled, kept):
        said = way.statement
        if said.bound is None:
            yield row(way, None, said.why)
            continue
        if domain is None:
            yield row(way, None, "the jumps that its certificate excludes are not found")
            continue
        try:
            run = way.build()
        except MaxaffineError as refusal:
            yield row(way, None, f"refused: {refusal}")
            continue
        except AssertionError as fault:  # an export that its own judge stops
            yield row(way, said.bound, f"fault: {fault}", Found(math.inf, (), 1))
            continue
        less = effort.less(way.slow)
        if scope.over == "entries":
            found = at_entries(run, target.data, way.narrow)
        elif scope.over == "integral":
            found = integrated(run, target, norm, cells[way.slow > 4.0], rng, way.narrow)
        else:
            relative = compiled.certificate.pointwise
            found = worst(run, layer, target, domain, pool, rng, less, narrow=way.narrow, relative=relative)
        why = said.why if found.points else "no entry is a float32 number"
        yield row(way, said.bound, why, found)
