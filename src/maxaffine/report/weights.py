"""Attention weights of a compiled layer, group by group: every group of tokens answers its own query column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from maxaffine.core.arrays import Array

if TYPE_CHECKING:
    from maxaffine.compiled import Compiled


def columns(layer: Compiled, x: Array) -> list[Array]:
    """Attention weights (B, N_g) of every group at points (B, D); each row sums to one."""
    weights = np.asarray(layer.attention(*layer.target.split(x)), dtype=np.float64).reshape(len(x), -1)
    counts = layer.weights.keys.shape if layer.weights.grouped else (weights.shape[1],)
    return np.split(weights, np.cumsum(counts)[:-1], axis=1)


def largest(layer: Compiled, x: Array) -> tuple[Array, Array]:
    """max_j alpha_j(x), the mean over groups (B,); and which token has it in every group, (B, groups)."""
    found = columns(layer, x)
    return np.mean([part.max(axis=1) for part in found], axis=0), np.stack([part.argmax(axis=1) for part in found], axis=1)
