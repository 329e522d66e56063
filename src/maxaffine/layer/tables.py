"""From a layer to tables per token: what all literal forms of it hold, whatever their layout."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.layer.blocks import check_listed
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.keys import Coordinates
from maxaffine.layer.layer import Layer
from maxaffine.layer.side_by_side import AnyLayer, OutputsLayer, Part

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
    value_slopes: Array | None  # (d_out, D, m): value = values + value_slopes . (x - centre), D rows x - centre
    output: Array  # (n_out, columns), the part of W_O that acts; n_out here counts group rows
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
    def variables(self) -> int:
        """Numbers of the input; there are as many rows x - centre, or that many from each of several centres."""
        return sum(d * n for d, n in self.inputs)

    @property
    def copies(self) -> int:
        """How many centres there are."""
        return len(self.coordinates.centre) // self.variables

    def folded(self, coefficients: Array) -> Array:
        """Coefficients (.., copies D, m) of the rows x - centre as those of x itself: (.., D, m)."""
        return np.asarray(coefficients.reshape(*coefficients.shape[:-2], self.copies, self.variables, -1).sum(axis=-3))

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


def group_tables(layer: GroupedLayer | OutputsLayer) -> Tables:
    """All keys of a grouped layer, or of the parts of an output, side by side: coordinates stacked, slopes zero outside the own.

    W_O adds one query column of every group to the output tokens that it writes to, or takes it from them; the exact correction
    B^-1 does not apply, since groups have keys of their own, and the leak of order e^-Lambda is part of the certificate.  A part
    has its own centre: where two of them count a variable from different places, it has a row for each.
    """
    parts = layer.parts if layer.several else (Part(tuple(range(layer.d_out)), tuple(range(layer.dimension)), layer),)
    groups = [group for part in parts for group in part.layer.groups]
    for one in groups:
        if one.factored:
            one.check_listed()
        elif not one.clustered and one.factors is not None:
            check_listed(one.count)
    centre, places = _centres(layer, parts)
    D, n_out, count, width = len(centre), layer.n_out, layer.tokens, sum(len(one.matrix) for one in groups)
    slopes, offsets, matrix = np.zeros((width, count)), np.zeros(count), np.zeros((width, D))
    marks, values, in_x = np.zeros((len(groups), count)), np.zeros((layer.d_out, count)), np.zeros((layer.d_out, D, count))
    output, row, column, g = np.zeros((len(groups), n_out)), 0, 0, 0
    for part, place in zip(parts, places, strict=True):
        rows, own = [e // n_out for e in part.entries], part.layer
        for number, group in enumerate(own.groups):
            a, b = group.listed()
            here, block = slice(row, row + a.shape[1]), slice(column, column + group.count)
            slopes[here, block], offsets[block], marks[g, block] = a.T, b, 1.0
            matrix[here, place] = group.matrix
            c, G = group.listed_values()
            values[rows, block] = c.T
            lean = np.moveaxis(G @ group.matrix, 0, -1)  # (K, D_p, N_g)
            if own.tilt is not None and number == 0:
                lean = lean + own.tilt.astype(np.float64)[:, :, None]
            in_x[np.ix_(rows, place, range(block.start, block.stop))] = lean
            for token, sign in part.columns(n_out):
                output[g, token] = sign
            row, column, g = here.stop, block.stop, g + 1
    first = np.cumsum([0, *(group.count for group in groups[:-1])])
    affine = in_x if layer.is_affine else None
    coordinates = Coordinates(centre, matrix)
    return Tables(slopes, offsets, marks, values, affine, output, layer.bonus, coordinates, layer.inputs, first)


def _centres(layer: GroupedLayer | OutputsLayer, parts: Sequence[Part]) -> tuple[Array, list[list[int]]]:
    """The centre of the rows x - centre, and for every part which of these rows are its variables.

    All variables once, from the centre of the first part that has them; then all again as often as parts differ about one.
    """
    D = layer.dimension
    known: list[dict[float, int]] = [{} for _ in range(D)]
    places = []
    for part in parts:
        copies = [known[i].setdefault(float(c), len(known[i])) for i, c in zip(part.variables, part.layer.centre, strict=True)]
        places.append([copy * D + i for copy, i in zip(copies, part.variables, strict=True)])
    middle = (layer.low + layer.high) / 2.0
    centre = np.tile(middle, max(1, *(len(one) for one in known)))
    for i, one in enumerate(known):
        for c, copy in one.items():
            centre[copy * D + i] = c
    return centre, places


def tables_of(layer: AnyLayer, correction: str = "output", bonus: float | None = None) -> Tables:
    """The tables of any layer; correction and bonus are a lookup's."""
    return group_tables(layer) if layer.grouped else layer_tables(layer, correction, bonus)
