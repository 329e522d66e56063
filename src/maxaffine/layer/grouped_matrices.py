"""The literal weights of a grouped layer: the layouts of layer/matrices.py with one group row per group.

W_O adds one query column of every group; the exact correction B^-1 does not apply, since groups have keys of their own, and the
leak of order e^-Lambda is part of the certificate.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np

from maxaffine.core.errors import BadInput
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.keys import Coordinates
from maxaffine.layer.layouts import LAYOUTS, Tables, build_cross, build_self
from maxaffine.layer.records import CrossMatrices, SelfMatrices


def grouped_matrices(layer: GroupedLayer, kind: str, layout: str | None = None) -> SelfMatrices | CrossMatrices:
    """The literal matrices: kind "self" (layout Q, K or I) or "cross"."""
    shell, tables = listed_tables(layer)
    firsts = np.cumsum([0, *(group.count for group in layer.groups[:-1])])
    if kind == "cross":
        if layout is not None:
            raise BadInput(f"`layout` (={layout!r}) is for self-attention; cross-attention has one layout.")
        return build_cross(shell, tables, np.ones((len(layer.groups), 1)))
    if kind != "self":
        raise BadInput(f'`kind` (={kind!r}) must be "self" or "cross".')
    if (layout or "Q") not in LAYOUTS:
        raise BadInput(f"`layout` (={layout!r}) must be one of {', '.join(LAYOUTS)}.")
    W_O = np.zeros((layer.tokens, 1))
    W_O[firsts] = 1.0
    return build_self(shell, tables, layout or "Q", W_O)


def listed_tables(layer: GroupedLayer) -> tuple[Any, Tables]:
    """All keys side by side: coordinates of all groups stacked, slopes zero outside the own group's."""
    count, width = layer.tokens, sum(len(group.matrix) for group in layer.groups)
    slopes, offsets = np.zeros((width, count)), np.zeros(count)
    groups, values = np.zeros((len(layer.groups), count)), np.zeros((layer.d_out, count))
    in_x = np.zeros((layer.d_out, layer.dimension, count))
    row = column = 0
    for g, group in enumerate(layer.groups):
        a, b = group.listed()
        block = slice(column, column + group.count)
        slopes[row : row + a.shape[1], block] = a.T
        offsets[block] = b
        groups[g, block] = 1.0
        c, G = group.listed_values()
        values[:, block] = c.T
        in_x[:, :, block] = np.moveaxis(G @ group.matrix, 0, -1)
        row, column = row + a.shape[1], column + group.count
    if layer.tilt is not None:
        in_x[:, :, : layer.groups[0].count] += layer.tilt.astype(np.float64)[:, :, None]
    matrix = np.concatenate([group.matrix for group in layer.groups])
    shell = SimpleNamespace(
        coordinates=Coordinates(layer.centre, matrix), inputs=layer.inputs, n_out=len(layer.groups), d_out=layer.d_out,
        sharpness=1.0, dimension=layer.dimension, group_kind="group",
    )  # fmt: skip
    affine = in_x if layer.is_affine else None
    return shell, Tables(slopes, offsets, groups, values, affine, np.eye(len(layer.groups)), layer.bonus)
