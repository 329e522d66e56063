"""`ma.sweep`: one layer at many temperatures: the error that is proved and the one observed, attention entropy, and cells.

    error      of softmax(r l) against the target: proved anew at every r, and the largest one seen
    entropy    H = -sum_j alpha_j log alpha_j in nats at random points of the box; e^H tokens share the answer
    cells      the share of the box in which one token has at least nine tenths of the weight
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from maxaffine.compiled import Compiled
from maxaffine.core.arrays import Array
from maxaffine.core.budget import count_text
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.progress import Progress, silent
from maxaffine.layer.temperature import check_factor
from maxaffine.report.weights import columns

FACTORS = tuple(float(f"{2.0 ** (k / 2):.6g}") for k in range(-12, 13))  # 1/64 to 64
MOST = 1000  # temperatures of one sweep
POINTS = 2048
DECIDED = 0.9  # of the weight on one token
WEIGHTS = 30_000_000  # attention weights computed at one temperature


@dataclass(frozen=True)
class Temperature:
    """The layer with every logit times r."""

    r: float
    bound: float | None  # proved, None where nothing is
    why: str  # what proves it, or why nothing does
    observed: float
    entropy: tuple[float, float, float] | None  # mean, and the least and largest but for a twentieth of the points each
    decided: float | None  # share of the box in which one token has at least nine tenths of the weight


@dataclass(frozen=True)
class Sweep:
    """One layer at many temperatures, in increasing order of r."""

    layer: Compiled
    rows: tuple[Temperature, ...]
    why_no_weights: str = ""

    @property
    def best(self) -> Temperature:
        """The temperature with the smallest proved bound, or where none is proved the smallest error seen."""
        return min(self.rows, key=lambda one: (one.bound is None, one.bound or one.observed, one.observed))

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        layer = self.layer
        return {
            "target": layer.target.name or layer.target.text or "callable", "method": layer.method, "tokens": layer.tokens,
            "norm": layer.certificate.norm_label, "error": layer.error, "why_no_weights": self.why_no_weights,
            "best": self.best.r, "temperatures": [asdict(one) for one in self.rows],
        }  # fmt: skip

    def draw(self, path: str | Path) -> None:
        """Error, entropy and cells against r, and the largest weight over the box at some of them; .png, .svg or .pdf."""
        from maxaffine.report.temperatures import draw

        draw(self.layer, self.rows, path)


def sweep(layer: Compiled, factors: ArrayLike | None = None, *, progress: Progress | None = None) -> Sweep:
    """The layer at temperatures r, by default 25 of them from 1/64 to 64: `layer.with_sharpness(r)` for each.

    Args:
        layer: what `compile` or `load` returned.
        factors: positive numbers r in any order.
        progress: called as progress(stage, done, total).
    """
    if not isinstance(layer, Compiled):
        raise BadInput(f"`layer` (a {type(layer).__name__}) must be a compiled layer; compile the target first.")
    chosen, told = _factors(factors), progress or silent
    points = min(POINTS, WEIGHTS // max(1, layer.weights.keys.count))
    why = "" if points >= 64 else f"{count_text(layer.tokens)} tokens are too many for attention weights at many points"
    x = layer.box.sample(max(points, 1), np.random.default_rng(0))
    rows = []
    for done, r in enumerate(chosen):
        told("temperatures", done, len(chosen))
        made = layer.with_sharpness(r)
        entropy, decided, why = (None, None, why) if why else _weights(made, x)
        certificate = made.certificate
        rows.append(Temperature(r, certificate.bound, certificate.theorem, made.observed.error, entropy, decided))
    told("temperatures", len(chosen), len(chosen))
    return Sweep(layer, tuple(rows), why)


def _weights(layer: Compiled, x: Array) -> tuple[tuple[float, float, float] | None, float | None, str]:
    """Entropy and the share of decided points; or why there are no weights."""
    try:
        found = columns(layer, x)
    except Refused as failure:
        return None, None, failure.reason
    logs = [np.log(part, out=np.zeros_like(part), where=part > 0) for part in found]
    entropy = np.maximum(-np.mean([(part * log).sum(axis=1) for part, log in zip(found, logs, strict=True)], axis=0), 0.0)
    low, high = (float(np.quantile(entropy, share)) for share in (0.05, 0.95))
    decided = float(np.mean([part.max(axis=1) >= DECIDED for part in found]))
    return (float(entropy.mean()), low, high), decided, ""


def _factors(factors: ArrayLike | None) -> Sequence[float]:
    """The factors in increasing order, each once."""
    if factors is None:
        return FACTORS
    try:
        given = np.asarray(factors, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        raise BadInput(f"`factors` (={factors!r:.60}) must be positive numbers, such as [0.5, 1, 2].") from None
    if not 1 <= len(given) <= MOST:
        raise BadInput(f"`factors` has {len(given):,} numbers; give 1 to {MOST:,} of them.")
    return sorted({check_factor(r, "factors") for r in given.tolist()})


def spread(low: float, high: float, count: int) -> list[float]:
    """So many factors from `low` to `high` at equal ratios."""
    first, last = check_factor(low, "from"), check_factor(high, "to")
    if not first < last:
        raise BadInput(f"`from` (={low:g}) must be below `to` (={high:g}).")
    if not 2 <= count <= MOST:
        raise BadInput(f"`count` (={count}) must be a whole number from 2 to {MOST:,}.")
    return [float(f"{value:.6g}") for value in np.geomspace(first, last, count)]
