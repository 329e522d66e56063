"""A layer as one softmax head in the terms of other libraries: query rows, key rows, value rows, and what is done after.

    query c of point x  =  A_c z + a_c,   z = x - centre   c = 1..n_q (output columns, or groups of a sum)
    logits              =  query . key_j                    one softmax over all m tokens, scale 1
    output              =  sum_c mix_c (sum_j weight_cj (value_j + slope_j z))

Where parts of a layer count variables from different places, `centre` holds several points, and x stands as often in z.

Keys and values do not depend on x, so a batch of points is a batch of queries to one context: that is what makes an exported
graph small.  Numbers are float64 here; an exporter rounds them to its dtype.
"""

from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.layer.side_by_side import AnyLayer
from maxaffine.layer.tables import tables_of


@dataclass(frozen=True)
class Head:
    """One softmax head over m tokens; see the module for the formula."""

    centre: Array  # (D,), or (copies D,): D below is its length
    low: Array  # (D,)
    high: Array  # (D,)
    query_map: Array  # (n_q, k, D)
    query_constant: Array  # (n_q, k)
    keys: Array  # (m, k)
    values: Array  # (m, d_out)
    slopes: Array | None  # (m, d_out, D)
    mix: Array  # (n_q, n_out)

    @property
    def copies(self) -> int:
        """How often x stands in z."""
        return len(self.centre) // len(self.low)


def head_of(layer: AnyLayer) -> Head:
    """The head of a layer, listed token by token."""
    tables = tables_of(layer)
    n_q, E, D, sharpness = tables.n_out, len(tables.slopes), len(tables.coordinates.centre), tables.sharpness
    query_map = np.zeros((n_q, E + 1 + n_q, D))
    query_map[:, :E] = sharpness * tables.coordinates.matrix
    constant = np.zeros((n_q, E + 1 + n_q))
    constant[:, E] = sharpness
    constant[:, E + 1 :] = tables.bonus * np.eye(n_q)
    keys = np.concatenate([tables.slopes, tables.offsets[None], tables.groups]).T
    slopes = None if tables.value_slopes is None else np.ascontiguousarray(tables.value_slopes.transpose(2, 0, 1))
    return Head(
        centre=tables.coordinates.centre,
        low=layer.low,
        high=layer.high,
        query_map=query_map,
        query_constant=constant,
        keys=np.ascontiguousarray(keys),
        values=np.ascontiguousarray(tables.values.T),
        slopes=slopes,
        mix=tables.output,
    )
