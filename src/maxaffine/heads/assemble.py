"""Layers from their groups: what all builders share."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.boxes import AXES
from maxaffine.core.errors import Refused
from maxaffine.layer.clusters import Cluster
from maxaffine.layer.grouped import AnyGroup, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.target.target import Target


def layer_of(
    groups: Sequence[AnyGroup], target: Target, dtype: str, centre: Array | None = None,
    slopes: Sequence[Fraction] = (),
) -> GroupedLayer:  # fmt: skip
    """The layer of these groups on the target's box, with slopes . (x - centre) added."""
    box = target.box
    about = box.centre if centre is None else centre
    affine = np.array([[float(c) for c in slopes]]) if any(slopes) else None
    return GroupedLayer(about, tuple(groups), 0.0, box.low, box.high, target.input_shapes, dtype, affine)


def single_token(values: Array, slopes: Array, radius: float = 1.0) -> Cluster:
    """A cluster of one token with values (K,) and slopes (K, E), about the origin of its coordinates."""
    K, E = slopes.shape
    if E > AXES:
        raise Refused(f"a token with affine values in {E} variables cannot be stored, in {AXES} at most.")
    one = (1,) * E
    keys = (AxisKeys(np.zeros(1), np.zeros(1)),) * E
    return Cluster(np.zeros(E), np.full(E, radius), keys, values.reshape(*one, K), slopes.reshape(*one, K, E))
