"""A case of the attack: a target, its box, and what is asked of the layer; and the patterns that targets are made of."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from maxaffine.target.box import Box

Rng = np.random.Generator
Sides = tuple[tuple[float, float], ...]

PATTERNS: dict[str, list[str]] = tomllib.loads((files("maxaffine.attack") / "patterns.toml").read_text())


@dataclass(frozen=True)
class Case:
    """A target, its box, and what is asked of the layer."""

    text: str
    box: Box
    error: float
    dtype: str
    method: str
    norm: float | str = "inf"
    gap: float | None = None  # about jumps, within which nothing is asked


def number(value: float) -> str:
    """A number of three digits as text."""
    return f"{value:.3g}"
