"""The value of a stored grouped layer as a ball: every product, sum and exponential in as many bits as are asked for."""

from collections.abc import Sequence
from functools import reduce
from itertools import product
from operator import mul
from typing import Any

import flint
import numpy as np

from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import AnyGroup, Group, GroupedLayer
from maxaffine.layer.side_by_side import OutputsLayer


def exact_value(layer: GroupedLayer | OutputsLayer, x: Sequence[Any]) -> list[Any]:
    """F(x) at a real point, one ball per output: groups added up, without leak between them and without rounding."""
    if layer.several:
        found = [flint.arb(0)] * (layer.d_out * layer.n_out)
        for part, rows in zip(layer.parts, layer.writes(), strict=True):
            said = exact_value(part.layer, [x[i] for i in part.variables])
            for k, e, sign in rows:
                found[e] = found[e] + sign * said[k]
        return found
    shift = [one - flint.arb(float(c)) for one, c in zip(x, layer.centre, strict=True)]
    total = [flint.arb(0)] * layer.d_out
    if layer.tilt is not None:
        total = [_dot(row, shift) for row in layer.tilt.astype(np.float64)]
    for group in layer.groups:
        total = [a + b for a, b in zip(total, _group(group, shift), strict=True)]
    return total


def _group(group: AnyGroup, shift: Sequence[Any]) -> list[Any]:
    """F_g, one ball per output."""
    if group.factored:
        values = [_group(factor, shift)[0] for factor in group.factors]
        return [reduce(mul, values) + flint.arb(float(group.shift[0]))]
    z = [_dot(row, shift) for row in group.matrix]
    return _clusters(group, z) if group.clustered else _product(group, z)


def _dot(row: Any, z: Sequence[Any]) -> Any:
    found = flint.arb(0)
    for c, one in zip(row, z, strict=True):
        if float(c):
            found += flint.arb(float(c)) * one
    return found


def _powers(slopes: Any, offsets: Any, z: Any) -> list[Any]:
    """e^{a z + b} of every key of one coordinate."""
    return [(flint.arb(float(a)) * z + flint.arb(float(b))).exp() for a, b in zip(slopes, offsets, strict=True)]


def _summed(keys: list[list[Any]], values: Any, slopes: Any, z: Sequence[Any]) -> tuple[list[Any], Any]:
    """sum_j e_j (c_j + G_j z) of every output, and sum_j e_j, over the product of the keys."""
    outputs = values.shape[-1]
    top, bottom = [flint.arb(0)] * outputs, flint.arb(0)
    for index in product(*(range(len(k)) for k in keys)):
        weight = flint.arb(1)
        for e, j in enumerate(index):
            weight *= keys[e][j]
        bottom += weight
        for k in range(outputs):
            value = flint.arb(float(values[(*index, k)]))
            if slopes is not None:
                value += _dot(slopes[(*index, k)], z)
            top[k] = top[k] + weight * value
    return top, bottom


def _product(group: Group, z: Sequence[Any]) -> list[Any]:
    keys = [_powers(axis.slopes, axis.offsets, one) for axis, one in zip(group.axes, z, strict=True)]
    if group.factors is None:
        top, bottom = _summed(keys, group.values, group.slopes, z)
        return [one / bottom for one in top]
    pieces = [flint.acb(1)] * group.rank
    for b, (cut, factor) in enumerate(zip(group.block_slices, group.factors, strict=True)):
        real, bottom = _summed(keys[cut], factor, None, z)
        imaginary = [flint.arb(0)] * group.rank if group.imaginary is None else _summed(keys[cut], group.imaginary[b], None, z)[0]
        pieces = [p * flint.acb(x, y) / bottom for p, x, y in zip(pieces, real, imaginary, strict=True)]
    return [sum(pieces, flint.acb(0)).real]


def _clusters(group: ClusterGroup, z: Sequence[Any]) -> list[Any]:
    top, bottom = [flint.arb(0)] * group.outputs, flint.arb(0)
    for a, b, cluster in zip(group.site_slopes, group.site_offsets, group.clusters, strict=True):
        frame = zip(z, cluster.origin, cluster.radius, strict=True)
        t = [(one - flint.arb(float(o))) / flint.arb(float(r)) for one, o, r in frame]
        keys = [_powers(axis.slopes, axis.offsets, one) for axis, one in zip(cluster.axes, t, strict=True)]
        mass = (_dot(a, z) + flint.arb(float(b))).exp()
        own, total = _summed(keys, cluster.values, cluster.slopes, t)
        top = [one + mass * more for one, more in zip(top, own, strict=True)]
        bottom += mass * total
    return [one / bottom for one in top]
