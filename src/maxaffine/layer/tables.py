"""From a layer to tables per token: what all literal forms of it hold, whatever their layout."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.layer.blocks import check_listed
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.keys import Coordinates
from maxaffine.layer.layer import Layer

CORRECTIONS = ("output", "values", "none")


def group_bonus(n_out: int, bonus: float | None) -> float:
    """Lambda, by default log(1 + n_out): then |B^-1|_1 <= 3, so that the exact correction is harmless."""
    chosen = math.log(1 + n_out) if bonus is None else float(bonus)
    if not (math.isfinite(chosen) and (chosen > 0 or (n_out == 1 and chosen >= 0))):
        raise BadInput(f"`bonus` (={bonus}) must be positive and finite; leave it out for log(1 + n_out).")
    return chosen


def mixing(n_out: int, bonus: float) -> tuple[Array, Array]:
    """B = (a I + J)/s and its exact inverse (s/a)(I - J/s), a = e^Lambda - 1, s = a + n_out."""
    identity, ones = np.eye(n_out), np.ones((n_out, n_out))
    if n_out == 1:
        return identity, identity
    a = math.expm1(bonus)
    s = a + n_out
    return (a * identity + ones) / s, (s / a) * (identity - ones / s)


@dataclass(frozen=True)
class Tables:
    """What all layouts share, listed per token: slopes, offsets, group rows, values, and the output mixing."""

    slopes: Array  # (E, m)
    offsets: Array  # (m,)
    groups: Array  # (n_out, m)
    values: Array  # (d_out, m)
    value_slopes: Array | None  # (d_out, D, m): value = values + value_slopes . (x - centre)
    output: Array  # (n_out, columns), the part of W_O that acts
    bonus: float
    coordinates: Coordinates
    inputs: tuple[tuple[int, int], ...]
    first: NDArray[np.intp]  # (n_out,), the token whose query column belongs to a group row
    sharpness: float = 1.0
    column: str = "group"  # what a group row stands for

    @property
    def n_out(self) -> int:
        """Group rows."""
        return len(self.groups)

    @property
    def d_out(self) -> int:
        """Value rows."""
        return len(self.values)

    @property
    def tokens(self) -> int:
        """m."""
        return int(self.values.shape[1])


def layer_tables(layer: Layer, correction: str, bonus: float | None) -> Tables:
    """Keys, values and output mixing of a layer, listed per token."""
    if correction not in CORRECTIONS:
        raise BadInput(f"`correction` (={correction!r}) must be one of {', '.join(CORRECTIONS)}.")
    n_out, count = layer.n_out, layer.keys.count
    chosen = group_bonus(n_out, bonus)
    _, inverse = mixing(n_out, chosen)
    identity = np.eye(n_out)
    in_values = inverse if correction == "values" else identity
    slopes, offsets = (np.asarray(part, dtype=np.float64) for part in layer.keys.listed())
    values = np.asarray(layer.values, dtype=np.float64).reshape(count, layer.d_out, n_out) @ in_values
    value_slopes = None
    if layer.slopes is not None:
        in_x = np.asarray(layer.slopes, dtype=np.float64) @ layer.coordinates.matrix
        in_x = in_x.reshape(count, layer.d_out, n_out, layer.dimension)
        mixed = np.einsum("jrci,cC->rijC", in_x, in_values)
        value_slopes = mixed.reshape(layer.d_out, layer.dimension, count * n_out)
    keys = np.repeat(slopes.T, n_out, axis=1), np.repeat(offsets, n_out), np.tile(identity, (1, count))
    values = values.transpose(1, 0, 2).reshape(layer.d_out, count * n_out)
    output = inverse if correction == "output" else identity
    return Tables(
        *keys, values, value_slopes, output, chosen, layer.coordinates, layer.inputs, np.arange(n_out), layer.sharpness,
        column="output column",
    )  # fmt: skip


def group_tables(layer: GroupedLayer) -> Tables:
    """All keys of a grouped layer side by side: coordinates of all groups stacked, slopes zero outside the own group's.

    W_O adds one query column of every group; the exact correction B^-1 does not apply, since groups have keys of their own, and
    the leak of order e^-Lambda is part of the certificate.
    """
    for implied in () if layer.has_clusters else layer.products():
        if implied.factors is not None:
            check_listed(implied.count)
    for group in layer.groups:
        if group.factored:
            group.check_listed()
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
    coordinates = Coordinates(layer.centre, np.concatenate([group.matrix for group in layer.groups]))
    first = np.cumsum([0, *(group.count for group in layer.groups[:-1])])
    affine, adding = in_x if layer.is_affine else None, np.ones((len(layer.groups), 1))
    return Tables(slopes, offsets, groups, values, affine, adding, layer.bonus, coordinates, layer.inputs, first)


def tables_of(layer: Layer | GroupedLayer, correction: str = "output", bonus: float | None = None) -> Tables:
    """The tables of any layer; correction and bonus are a lookup's."""
    return group_tables(layer) if layer.grouped else layer_tables(layer, correction, bonus)
