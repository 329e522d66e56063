"""The attack on routes: random layers of every head and dtype, every route of each, and what was found in one table."""

import math
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maxaffine.attack.layers import DTYPES, HEADS, chosen
from maxaffine.attack.search import Effort
from maxaffine.attack.walk import Row, walk
from maxaffine.compiled import Compiled
from maxaffine.core.errors import MaxaffineError
from maxaffine.core.progress import Progress, silent
from maxaffine.run import Run

MOST_TOKENS = 3000
TRIES = 10  # requests per layer that a head may refuse
GROUPS: dict[str, tuple[str, ...]] = {
    "NumPy": ("arrays", "direct", "collapsed", "windowed", "two-level", "factorised", "blocked", "nearest"),
    "tensors": ("tensors",),
    "gradient, factorised": ("tensors with gradients", "factorised tensors"),
    "to_torch, ONNX": ("module", "kernel module", "onnx"),
    "literal module, MultiheadAttention": ("literal module", "multihead"),
    "dense, matrices, literal ONNX, safetensors": ("dense", "matrices", "literal onnx", "safetensors"),
}
THOROUGH = Effort(starts=2000, climbers=12, tries=6, rounds=24, integral=30_000)


@dataclass
class Tally:
    """All rows, how many layers they are of, and whether the attack ran to its end."""

    seed: int = 0
    layers: dict[tuple[str, str], int] = field(default_factory=dict)
    unserved: int = 0
    rows: list[tuple[int, Row]] = field(default_factory=list)  # with the number of the layer
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def judged(self) -> list[Row]:
        """The rows with a bound that was judged."""
        return [row for _, row in self.rows if row.judged]

    @property
    def pairs(self) -> int:
        """Layer-route pairs that were judged: variants of a route in the same arithmetic are one pair."""
        return len({(number, row.route, row.arithmetic) for number, row in self.rows if row.judged})

    @property
    def points(self) -> int:
        """Points looked at."""
        return sum(row.points for _, row in self.rows)

    @property
    def worst(self) -> Row | None:
        """The row that comes nearest to its bound, or farthest above."""
        return max(self.judged, key=lambda row: row.ratio, default=None)

    @property
    def violations(self) -> list[Row]:
        """Rows above their bound."""
        return [row for _, row in self.rows if row.violated]

    def summary(self) -> str:
        """One line."""
        worst, refused = self.worst, len(self.rows) - len(self.judged)
        where = "" if worst is None else f" ({worst.head}, {worst.dtype}, {worst.route})"
        ratio = f"worst ratio {0.0 if worst is None else worst.ratio:.7f}{where}"
        return (
            f"{sum(self.layers.values())} layers, {self.pairs:,} layer-route pairs judged in {len(self.judged):,} variants, "
            f"{refused:,} not covered or refused, {self.points:,} points, {ratio}, {len(self.violations)} violations, "
            f"seed {self.seed}, {self.seconds:.0f} s" + (", interrupted" if self.interrupted else "")
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        layers = [{"head": head, "dtype": dtype, "layers": count} for (head, dtype), count in self.layers.items()]
        return {
            "seed": self.seed, "layers": layers, "unserved": self.unserved, "pairs": self.pairs, "variants": len(self.judged),
            "points": self.points, "worst": None if self.worst is None else self.worst.ratio,
            "violations": [row.to_json() for row in self.violations], "seconds": self.seconds, "interrupted": self.interrupted,
            "rows": [{"layer": number, **row.to_json()} for number, row in self.rows],
        }  # fmt: skip


def random_layers(
    compile: Callable[..., Compiled], name: str, count: int, seed: int, until: float = math.inf,
    refused: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Compiled, np.random.Generator]]:  # fmt: skip
    """Up to `count` proved layers of a head in every dtype in turn, before the clock `until`; each with a generator."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    made = dict.fromkeys(DTYPES, 0)
    tried = dict(made)
    while time.perf_counter() < until:
        left = [one for one in DTYPES if made[one] < count and tried[one] < TRIES * count]
        if not left:
            return
        dtype = min(left, key=lambda one: (tried[one], DTYPES.index(one)))
        tried[dtype] += 1
        ask, own = HEADS[name](rng, dtype), np.random.default_rng(rng.integers(1 << 62))
        try:
            compiled = compile(ask.target, ask.box, dtype=dtype, run=Run(max_bytes=1 << 28), **ask.options)
        except MaxaffineError:
            refused()
            continue
        if compiled.bound is None or compiled.certificate.kind != "proved" or compiled.weights.work > MOST_TOKENS:
            refused()
            continue
        made[dtype] += 1
        yield compiled, own


def attack_routes(
    compile: Callable[..., Compiled], heads: Sequence[str] | None = None, *, layers: int = 2, seed: int = 0,
    seconds: float | None = None, effort: Effort = THOROUGH, progress: Progress = silent,
) -> Tally:  # fmt: skip
    """Every route of `layers` layers per head and dtype, or of as many as fit into the head's share of `seconds`."""
    names = chosen(heads)
    tally, begun = Tally(seed), time.perf_counter()

    def refused() -> None:
        tally.unserved += 1

    number = 0
    try:
        for place, name in enumerate(names):
            until = math.inf if seconds is None else begun + seconds * (place + 1) / len(names)
            progress("attack on routes", place, len(names))
            for compiled, rng in random_layers(compile, name, layers, seed, until, refused):
                number += 1
                key = (name, compiled.dtype)
                tally.layers[key] = tally.layers.get(key, 0) + 1
                progress(f"{name}", number, number)
                for row in walk(compiled, rng, effort, name):
                    tally.rows.append((number, row))
    except KeyboardInterrupt:
        tally.interrupted = True
    tally.seconds = time.perf_counter() - begun
    return tally


def table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Per head and group of routes the largest error in units of the route's own bound, float64 / float32 / bfloat16.

    A dash: no layer.  A dagger: some of these routes are not covered or refused; "refused": all of them are.
    """
    lines: list[tuple[str, ...]] = [("head, float64 / float32 / bfloat16", *GROUPS)]
    for head in dict.fromkeys(row.head for row in rows):
        mine = {dtype: [row for row in rows if (row.head, row.dtype) == (head, dtype)] for dtype in DTYPES}
        cells = [[_cell([row for row in mine[dtype] if row.route in routes]) for dtype in DTYPES] for routes in GROUPS.values()]
        lines.append((head, *(" / ".join(cell) for cell in cells)))
    return lines


def _cell(rows: Sequence[Row]) -> str:
    if not rows:
        return "–"
    judged = [row for row in rows if row.judged]
    if not judged:
        return "refused"
    ratio = max(row.ratio for row in judged)
    shown = f"**{ratio:.3g}**" if any(row.violated for row in judged) else f"{math.floor(ratio * 1000) / 1000:.3f}"
    missing = any(row.bound is None and row.variant not in ("in float64", "in float32", "I", "K") for row in rows)
    return shown + ("†" if missing else "")


def markdown(lines: Sequence[tuple[str, ...]]) -> str:
    """The table for a page."""
    first, *others = lines
    return "\n".join("| " + " | ".join(line) + " |" for line in (first, ("---",) * len(first), *others))
