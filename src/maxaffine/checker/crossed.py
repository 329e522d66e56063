"""Two inputs re-proved: values that are none of the query's, and keys whose scores are formed from the context uncentred.

In the literal form of cross-attention a key holds b + a . M_k (x_kv - centre) as one number, multiplied out in float64, rounded
once, and the query holds M_q (x_q - centre).  Beside a query that all keys share that leaves every key an error of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from maxaffine.checker.product_keys import ProductKeys
from maxaffine.checker.proved import DOUBLE, NotProved, rounded
from maxaffine.checker.reader import Clusters, Factored, Layer
from maxaffine.core.arrays import Array
from maxaffine.target.target import Target

if TYPE_CHECKING:
    from maxaffine.checker.literal_groups import Column, Frame

MARGIN = 1.0 + 1e-11  # for the rounding of these sums themselves
TOLD = 0.3  # errors of scores, beyond which nothing is said


def doubt_inputs(record: Mapping[str, Any], target: Target) -> None:
    """Refuse a record that speaks of other inputs than its target, or calls two inputs something else than cross-attention."""
    if record["layer"].get("inputs") != [list(shape) for shape in target.input_shapes]:
        raise NotProved("its layer and its target have different inputs.")
    if target.inputs == "pair" and record.get("attention", "cross") != "cross":
        raise NotProved("its target has two inputs, and its record does not call it cross-attention.")


def doubt_values(layer: Layer, target: Target) -> None:
    """Refuse values that are affine in the query, which the tokens of cross-attention cannot hold."""
    if target.inputs != "pair":
        return
    tilted = layer.affine_part is not None and bool(np.any(layer.affine_part[:, : target.query]))
    for group in layer.groups:
        for part in group.factors if isinstance(group, Factored) else (group,):
            own = np.any(part.matrix[:, : target.query] != 0.0, axis=1)
            held = part.slopes if isinstance(part, Clusters) else [] if part.slopes is None else [part.slopes]
            tilted = tilted or any(bool(np.any(slopes[..., own])) for slopes in held)
    if tilted:
        raise NotProved("its values are affine in the query, and the tokens of cross-attention are made of the context alone.")


def crossed(frame: Frame, columns: list[Column]) -> list[Column]:
    """The columns of a literal form with what keys made of the context add to each."""
    layer, form = frame.layer, frame.form
    D, found = len(layer.centre), []
    far = np.maximum(np.abs(layer.low), np.abs(layer.high)) + np.abs(layer.centre)
    for group, column in zip(layer.groups, columns, strict=True):
        row = np.abs(group.matrix)
        each = form.gamma(D + len(row) + 14) * (row @ layer.reach) + rounded(2 * D + 2 * len(row) + 28, DOUBLE) * (row @ far)
        slopes, offset = _largest(group)
        off = (float(slopes @ each) + rounded(D + 9, DOUBLE) * offset) * MARGIN
        if not off < TOLD:
            raise NotProved(f"the keys of its cross-attention are not resolved in {form.name}.")
        found.append(replace(column, lost=column.lost + math.expm1(2.0 * off) * 2.0 * column.top * MARGIN, eta=column.eta + off))
    return found


def _largest(group: Any) -> tuple[Array, float]:
    """The largest |slope| of a token per coordinate, and the largest |offset|, each from its parts."""
    if isinstance(group, Factored):
        parts = [_largest(factor) for factor in group.factors]
        return np.concatenate([slopes for slopes, _ in parts]), sum(offset for _, offset in parts)
    if isinstance(group, ProductKeys):
        return np.array([np.abs(axis.a).max() for axis in group.axes]), float(sum(np.abs(axis.b).max() for axis in group.axes))
    assert isinstance(group, Clusters)
    slopes, offset = np.zeros(len(group.matrix)), 0.0
    for k, axes in enumerate(group.axes):
        own = np.array([np.abs(axis.a).max() for axis in axes]) / group.radii[k]
        slopes = np.maximum(slopes, np.abs(group.sites[k, :-1]) + own)
        beside = float(sum(np.abs(axis.b).max() for axis in axes) + own @ np.abs(group.origins[k]))
        offset = max(offset, abs(float(group.sites[k, -1])) + beside)
    return slopes, offset
