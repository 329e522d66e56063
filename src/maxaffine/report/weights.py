"""Attention weights of a compiled layer, group by group: every group of tokens answers its own query column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.layer.grouped import GroupedLayer

if TYPE_CHECKING:
    from maxaffine.compiled import Compiled


@dataclass(frozen=True)
class Column:
    """One query column at one point: what is asked, what every key answers, and what the values add up to."""

    query: Array  # (E,): z = M (x - centre); a last entry 1, which meets the offsets of the keys, goes without saying
    logits: Array  # (N_g,)
    weights: Array  # (N_g,): softmax of the logits; of a hard layer one for the nearest site
    adds: Array  # (K,): sum of weight times value


def columns(layer: Compiled, x: Array) -> list[Array]:
    """Attention weights (B, N_g) of every group at points (B, D); each row sums to one."""
    weights = np.asarray(layer.attention(*layer.target.split(x)), dtype=np.float64).reshape(len(x), -1)
    counts = layer.weights.keys.shape if layer.weights.grouped else (weights.shape[1],)
    return np.split(weights, np.cumsum(counts)[:-1], axis=1)


def largest(layer: Compiled, x: Array) -> tuple[Array, Array]:
    """max_j alpha_j(x), the mean over groups (B,); and which token has it in every group, (B, groups)."""
    found = columns(layer, x)
    return np.mean([part.max(axis=1) for part in found], axis=0), np.stack([part.argmax(axis=1) for part in found], axis=1)


def asked(layer: Compiled, x: Array) -> list[Column]:
    """Every query column at one point (D,)."""
    whole, weights = layer.weights, [column[0] for column in columns(layer, x[None])]
    if whole.grouped:
        parts = [(part.layer, part.seen(x[None])[0]) for part in whole.parts] if whole.several else [(whole, x)]
        found = [one for own, at in parts for one in _groups(own, at)]
    else:
        query, count = whole.coordinates(x[None])[0], whole.keys.count
        slopes, offsets = (np.asarray(part, dtype=np.float64) for part in whole.keys.listed())
        leans = 0.0 if whole.slopes is None else np.asarray(whole.slopes, dtype=np.float64) @ query
        values = np.asarray(whole.values, dtype=np.float64) + leans
        found = [(query, whole.sharpness * (slopes @ query + offsets), values.reshape(count, -1))]
    return [Column(q, s, w, w @ v) for (q, s, v), w in zip(found, weights, strict=True)]


def _groups(layer: GroupedLayer, x: Array) -> list[tuple[Array, Array, Array]]:
    """Query (E,), logits (N_g,) and values (N_g, K) of every group at one point."""
    found = []
    for number, group in enumerate(layer.groups):
        z = group.matrix @ (x - layer.centre)
        slopes, offsets = group.listed()
        constant, lean = group.listed_values()
        tilt = layer.tilt @ (x - layer.centre) if layer.tilt is not None and number == 0 else 0.0
        found.append((z, slopes @ z + offsets, constant + lean @ z + tilt))
    return found
