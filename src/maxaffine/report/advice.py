"""What the parts of a bound mean for a layer, and what would lower the largest of them."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from maxaffine.heads.lookup import theorems
from maxaffine.heads.spectral.plan import one_more

if TYPE_CHECKING:
    from maxaffine.compiled import Compiled

WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
FIT = "the fit dominates"
CELLS = "the size of the cells dominates"


def family(c: Compiled) -> str:
    """The family of a layer, as advice.toml names it."""
    if c.certificate.scope.over == "entries":
        return "entries"
    if c.method in ("spectral", "separated"):
        return c.method
    return "clusters" if c.weights.grouped else "cells"


def meaning(c: Compiled) -> dict[str, str]:
    """What each part of the bound is, in words."""
    return {**WORDS["meaning"]["cells"], **WORDS["meaning"][family(c)]}


def advice(c: Compiled) -> str:
    """Which part of the bound dominates, and what to change."""
    parts, kind = c.certificate.parts, family(c)
    if c.method == "hard":
        return "returns the nearest entry's value as stored; only a wider dtype is closer" if c.bound else "none: it is exact"
    if kind == "entries":
        return _entries(c)
    worst = max(parts, key=lambda name: parts[name])
    if kind == "spectral" and worst not in ("rounding", "target_rounding"):
        return _spectral(c)
    if kind == "cells" and worst == "approximation":
        return _cells(c)
    words = WORDS["advice"]
    return str(words.get(f"{kind} {worst}", words.get(worst, ""))).format(dtype=c.dtype)


def _entries(c: Compiled) -> str:
    entries, parts = c.target.entries, c.certificate.parts
    assert entries is not None
    if c.tokens >= entries.count:
        return "the values are too rough: no fewer tokens than entries reach this error; ask for a larger one"
    if parts["rounding"] > parts["approximation"]:
        return str(WORDS["advice"]["rounding"]).format(dtype=c.dtype)
    return f"{FIT}; a smaller `error` adds tokens, a larger one saves some"


def _cells(c: Compiled) -> str:
    counts = c.weights.keys.shape
    if c.certificate.argument == "C":
        return "one value for the whole box: half the range of the target is below the error; a smaller `error` adds tokens"
    if not c.weights.is_product:
        return f"{CELLS}; more or better placed sites would help"
    assert c.sharpness is not None
    more = math.prod(n + 1 for n in counts) * c.weights.n_out
    gain = 1.0 - min(n / (n + 1) for n in counts if n > 1) if max(counts) > 1 else 0.0
    excess = 2.0 * theorems.mean_distance(c.sharpness) - 1.0
    words = f"one more cell per axis ({more:,} tokens) lowers it by {100 * gain:.1f}%"
    return f"{CELLS}: {words}; the sharpness costs {100 * excess:.2g}% of it"


def _spectral(c: Compiled) -> str:
    """What one more token per direction would buy."""
    if c.spectral is None:
        return f"{FIT}; a smaller `error` adds tokens, each of which divides it by the target's rate of convergence"
    lines = []
    for made in c.spectral.groups:
        gains = one_more(made, c.error, c.dtype)
        if gains is not None:
            keys = " x ".join(str(len(axis)) for axis in made.axes)
            lines.append(f"a group of {keys} keys from {gains[0]:.2g} to {gains[1]:.2g}")
    more = "; ".join(lines[:4]) + (" ..." if len(lines) > 4 else "")
    return f"{FIT}; one more token per direction would take {more}" if more else FIT
