"""From a spectral plan to a grouped layer."""

import math
from dataclasses import replace

import numpy as np

from maxaffine.heads.assemble import layer_of
from maxaffine.heads.spectral.plan import SpectralPlan
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.target.target import Target


def build_spectral(plan: SpectralPlan, target: Target, dtype: str) -> GroupedLayer:
    """The layer of a spectral plan."""
    return layer_of([made.build() for made in plan.groups], target, dtype)


def with_bonus(layer: GroupedLayer, bonus: float) -> GroupedLayer:
    """The same layer with another bonus."""
    rounded = math.ceil(bonus)  # an integer is exact in every dtype up to 256
    return replace(layer, bonus=float(rounded))


def wanted_bonus(log_ratios: list[list[float]], largest: float, allowed: float) -> float:
    """Lambda for which the leak between groups is at most `allowed`."""
    pairs = [value for g, row in enumerate(log_ratios) for other, value in enumerate(row) if other != g]
    if not pairs:
        return 0.0
    worst = float(np.logaddexp.reduce(pairs))
    return max(1.0, worst + math.log(max(2.0 * largest, 1e-300) / allowed))
