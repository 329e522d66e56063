"""Cross-attention of two inputs in its literal form: what the context puts into a score is multiplied out in the keys.

A score a_j . M (x - centre) + b_j is formed in two parts there.  The query has M_q (x_q - centre_q) and meets a_j; the key has
the number  b_j + a_j M_k x_kv - a_j M_k centre_k,  formed in float64 without centring, rounded once.  What rounding does to a
score is not the movement of one z that all keys share, but is every key's own:

    delta_j <= gamma_u(D + E + 12) |a_j| |M| reach + gamma(2 (D + E) + 24) |a_j| |M| (|x| + |centre|) + gamma(D + 8) |b_j|,

u the unit of the form.  Weights off by e^(+-delta) on top of all else move the mean of their values by at most
(e^(2 delta) - 1) 2 max |v|.  Lookups count the same in proofs/literal.py.
"""

import math
from dataclasses import replace

import numpy as np

from maxaffine.core.errors import Refused
from maxaffine.core.rounding import Dtype, gamma
from maxaffine.layer.grouped import AnyGroup, GroupedLayer
from maxaffine.proofs.literal_form import UP, Column, Query, U

RESOLVED = 0.25  # errors of logits beyond which nothing is said


def with_crossed_keys(layer: GroupedLayer, group: AnyGroup, column: Column, form: Dtype) -> Column:
    """A group's column with what cross-attention of two inputs adds to it; of one input as it is."""
    if len(layer.inputs) == 1:
        return column
    D, E = layer.dimension, len(group.matrix)
    query = Query.of(layer, group.matrix, form)
    away = np.abs(group.matrix) @ (np.maximum(np.abs(layer.low), np.abs(layer.high)) + np.abs(layer.centre))
    unit = gamma(D + E + 12, form.unit) * query.size + gamma(2 * (D + E) + 24, U) * away
    if group.clustered or group.factored:
        slopes, offsets = group.listed()
        delta = float((np.abs(slopes) @ unit + gamma(D + 8, U) * np.abs(offsets)).max()) * UP
    else:
        tops = [float(np.abs(axis.offsets.astype(np.float64)).max()) for axis in group.axes]
        steep = np.array([float(np.abs(axis.slopes.astype(np.float64)).max()) for axis in group.axes])
        delta = (float(steep @ unit) + gamma(D + 8, U) * sum(tops)) * UP
    if not delta < RESOLVED:
        raise Refused(f"the keys of the literal cross-attention are not resolved in {form.name}.")
    lost = column.lost + math.expm1(2.0 * delta) * 2.0 * column.top * UP
    return replace(column, lost=lost, eta=column.eta + delta)
