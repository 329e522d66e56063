"""From a layer to its literal matrices: tables per token, and the layouts that hold them.

    layout Q   rows x - centre, 1, a_j, b_j, e_c, value        x in the query, sites in the key
    layout K   rows s_j(x), e_c, value                         the scores themselves, the leanest
    layout I   rows x - centre, 1, I_m                         W_K and W_V are the tables

The x rows hold x - centre and W_Q holds sharpness times the metric, so that boxes far from the origin lose no digits.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.keys import Coordinates
from maxaffine.layer.layer import Layer
from maxaffine.layer.records import CrossMatrices, LinearMap, SelfMatrices

LAYOUTS = ("Q", "K", "I")
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
    return Tables(
        slopes=np.repeat(slopes.T, n_out, axis=1),
        offsets=np.repeat(offsets, n_out),
        groups=np.tile(identity, (1, count)),
        values=values.transpose(1, 0, 2).reshape(layer.d_out, count * n_out),
        value_slopes=value_slopes,
        output=inverse if correction == "output" else identity,
        bonus=chosen,
        coordinates=layer.coordinates,
        inputs=layer.inputs,
        first=np.arange(n_out),
        sharpness=layer.sharpness,
        column="output column",
    )


def group_tables(layer: GroupedLayer) -> Tables:
    """All keys of a grouped layer side by side: coordinates of all groups stacked, slopes zero outside the own group's.

    W_O adds one query column of every group; the exact correction B^-1 does not apply, since groups have keys of their own, and
    the leak of order e^-Lambda is part of the certificate.
    """
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


def _names(tables: Tables) -> tuple[list[str], list[str], list[str], list[str]]:
    inputs, labels = tables.inputs, []
    for which, (d, n) in enumerate(inputs):
        letter = "X" if len(inputs) == 1 else ("X_q", "X_kv")[which]
        labels += [f"{letter}[{i + 1},{t + 1}] - centre" for t in range(n) for i in range(d)]
    sites = [f"a_j[{e + 1}], slope of key j in coordinate {e + 1}" for e in range(tables.coordinates.matrix.shape[0])]
    groups = [f"e_c[{c + 1}], 1 in the tokens of {tables.column} {c + 1}" for c in range(tables.n_out)]
    values = [f"value of key j for output row {r + 1}, column c" for r in range(tables.d_out)]
    return labels, sites, groups, values


def _broadcast(d: int, n: int, rows: int, first: int, columns: int) -> tuple[list[Array], list[Array]]:
    """P_t, Q_t that put token t of X into rows first + t d .. of every column."""
    left, right = [], []
    for t in range(n):
        P, Q = np.zeros((rows, d)), np.zeros((n, columns))
        P[first + t * d : first + (t + 1) * d] = np.eye(d)
        Q[t] = 1.0
        left.append(P)
        right.append(Q)
    return left, right


def _affine_row(row: int, coefficients: Array, d: int, n: int, rows: int) -> tuple[list[Array], list[Array]]:
    """P_i = e_row e_i^T and Q_i[t, token] so that `row` becomes coefficients[:, token] . vec(X)."""
    left, right = [], []
    for i in range(d):
        P = np.zeros((rows, d))
        P[row, i] = 1.0
        left.append(P)
        right.append(np.ascontiguousarray(coefficients[i::d]))  # (n, m): entries t d + i for t = 0..n-1
    return left, right


def _affine_values(
    tables: Tables, centre: Array, d: int, n: int, rows: int, first: int
) -> tuple[list[Array], list[Array], Array]:
    """Terms and constant part of value rows that are affine in X."""
    left: list[Array] = []
    right: list[Array] = []
    constant = tables.values
    if tables.value_slopes is not None:
        constant = constant - np.einsum("rim,i->rm", tables.value_slopes, centre)
        for r in range(len(tables.values)):
            P, Q = _affine_row(first + r, tables.value_slopes[r], d, n, rows)
            left += P
            right += Q
    return left, right, constant


def build_self(tables: Tables, layout: str) -> SelfMatrices:
    """Self-attention from tables."""
    linear, W_Q, W_K, W_V, head = _LAYOUTS[layout](tables)
    W_O = np.zeros((tables.tokens, tables.output.shape[1]))
    W_O[tables.first] = tables.output
    outputs = tuple(f"output row {r + 1}" for r in range(tables.d_out))
    return SelfMatrices(W_Q, W_K, W_V, W_O, head, outputs, linear=linear, layout=layout)


_Built = tuple[LinearMap, Array, Array, Array, tuple[str, ...]]


def _head_names(tables: Tables) -> tuple[str, ...]:
    E = tables.coordinates.matrix.shape[0]
    scores = [f"sharpness * z_{e + 1}(x) * a_j[{e + 1}]" for e in range(E)]
    return (*scores, "sharpness * b_j", *_bonus_names(tables))


def _bonus_names(tables: Tables) -> tuple[str, ...]:
    return tuple(f"Lambda for {tables.column} {c + 1}" for c in range(tables.n_out))


def _query_weights(tables: Tables, width: int, x: int, one: int, group: int) -> Array:
    """W_Q: sharpness * M on the x rows, sharpness on the 1 row, Lambda on the group rows."""
    (E, D), n_out = tables.coordinates.matrix.shape, tables.n_out
    W_Q = np.zeros((E + 1 + n_out, width))
    W_Q[:E, x : x + D] = tables.sharpness * tables.coordinates.matrix
    W_Q[E, one] = tables.sharpness
    W_Q[E + 1 :, group : group + n_out] = tables.bonus * np.eye(n_out)
    return W_Q


def _layout_q(tables: Tables) -> _Built:
    (d, n), (E, D), n_out, d_out = tables.inputs[0], tables.coordinates.matrix.shape, tables.n_out, tables.d_out
    m = tables.tokens
    one, site, offset, group, value = D, D + 1, D + 1 + E, D + 2 + E, D + 2 + E + n_out
    p = value + d_out
    left, right = _broadcast(d, n, p, 0, m)
    more_left, more_right, constant = _affine_values(tables, tables.coordinates.centre, d, n, p, value)
    R_0 = np.concatenate([
        np.repeat(-tables.coordinates.centre[:, None], m, axis=1),
        np.ones((1, m)), tables.slopes, tables.offsets[None], tables.groups, constant,
    ])  # fmt: skip
    labels, sites, groups, values = _names(tables)
    rows = (*labels, "1", *sites, "b_j, offset of key j", *groups, *values)
    linear = LinearMap((*left, *more_left), (*right, *more_right), R_0, rows)
    W_Q = _query_weights(tables, p, 0, one, group)
    W_K = np.zeros((E + 1 + n_out, p))
    W_K[:E, site : site + E] = np.eye(E)
    W_K[E, offset] = 1.0
    W_K[E + 1 :, group : group + n_out] = np.eye(n_out)
    W_V = np.zeros((d_out, p))
    W_V[:, value:] = np.eye(d_out)
    return linear, W_Q, W_K, W_V, _head_names(tables)


def _layout_k(tables: Tables) -> _Built:
    (d, n), n_out, d_out = tables.inputs[0], tables.n_out, tables.d_out
    p = 1 + n_out + d_out
    in_x = tables.coordinates.matrix.T @ tables.slopes  # (D, m): scores are in_x . (x - centre) + b
    left, right = _affine_row(0, in_x, d, n, p)
    centre = tables.coordinates.centre
    more_left, more_right, constant = _affine_values(tables, centre, d, n, p, 1 + n_out)
    R_0 = np.concatenate([(tables.offsets - centre @ in_x)[None], tables.groups, constant])
    _, _, groups, values = _names(tables)
    linear = LinearMap((*left, *more_left), (*right, *more_right), R_0, ("s_j(x), score of key j", *groups, *values))
    W_K = np.eye(1 + n_out, p)
    W_Q = np.zeros((1 + n_out, p))
    W_Q[0, 1 : 1 + n_out] = tables.sharpness  # the group rows sum to one in every token
    W_Q[1:, 1 : 1 + n_out] = tables.bonus * np.eye(n_out)
    W_V = np.zeros((d_out, p))
    W_V[:, 1 + n_out :] = np.eye(d_out)
    head = ("sharpness * s_j(x)", *_bonus_names(tables))
    return linear, W_Q, W_K, W_V, head


def _layout_i(tables: Tables) -> _Built:
    if tables.value_slopes is not None and np.any(tables.value_slopes != tables.value_slopes[:, :, :1]):
        raise BadInput("layout I keeps its values in W_V: affine ones must have one slope for all tokens; ask for layout Q or K.")
    (d, n), (E, D), n_out = tables.inputs[0], tables.coordinates.matrix.shape, tables.n_out
    m = tables.tokens
    p = D + 1 + m
    left, right = _broadcast(d, n, p, 0, m)
    R_0 = np.concatenate([np.repeat(-tables.coordinates.centre[:, None], m, axis=1), np.ones((1, m)), np.eye(m)])
    labels, _, _, _ = _names(tables)
    rows = (*labels, "1", *(f"1 in token {token + 1}, key {token // n_out + 1}" for token in range(m)))
    W_K = np.zeros((E + 1 + n_out, p))
    W_K[:, D + 1 :] = np.concatenate([tables.slopes, tables.offsets[None], tables.groups])
    W_Q = np.zeros_like(W_K)
    W_Q[:E, :D] = tables.sharpness * tables.coordinates.matrix
    W_Q[E, D] = tables.sharpness
    W_Q[E + 1 :, D + 1 :] = tables.bonus * tables.groups
    W_V = np.zeros((tables.d_out, p))
    W_V[:, D + 1 :] = tables.values
    if tables.value_slopes is not None:
        W_V[:, :D] = tables.value_slopes[:, :, 0]
    return LinearMap(tuple(left), tuple(right), R_0, rows), W_Q, W_K, W_V, _head_names(tables)


_LAYOUTS = {"Q": _layout_q, "K": _layout_k, "I": _layout_i}


def build_cross(tables: Tables) -> CrossMatrices:
    """Cross-attention from tables: constant context for one input, X_kv in the keys for two."""
    (d_q, n_q), n_out, d_out = tables.inputs[0], tables.n_out, tables.d_out
    E, two = tables.coordinates.matrix.shape[0], len(tables.inputs) == 2
    D_q = d_q * n_q
    centre = tables.coordinates.centre
    m = tables.tokens
    labels, sites, groups, values = _names(tables)

    p_q = D_q + 1 + n_out
    left, right = _broadcast(d_q, n_q, p_q, 0, n_out)
    R_q = np.concatenate([np.repeat(-centre[:D_q, None], n_out, axis=1), np.ones((1, n_out)), np.eye(n_out)])
    query = LinearMap(tuple(left), tuple(right), R_q, (*labels[:D_q], "1", *groups))

    p_k = E + 1 + n_out + d_out
    offsets, terms = tables.offsets, (list[Array](), list[Array]())
    constant = tables.values
    d_k, n_k = tables.inputs[-1]
    if two:
        if tables.value_slopes is not None:
            raise BadInput("values of a two-input layer cannot be affine in x; use constant values.")
        in_kv = tables.coordinates.matrix[:, D_q:].T @ tables.slopes  # (D_kv, m)
        terms = _affine_row(E, in_kv, d_k, n_k, p_k)
        offsets = offsets - centre[D_q:] @ in_kv
    elif tables.value_slopes is not None:
        P, Q, constant = _affine_values(tables, centre, d_q, n_q, p_k, E + 1 + n_out)
        terms = (P, Q)
    if not terms[0]:  # constant context: one zero term keeps the form sum_i P_i X Q_i + R_0
        terms = ([np.zeros((p_k, d_k))], [np.zeros((n_k, m))])
    R_k = np.concatenate([tables.slopes, offsets[None], tables.groups, constant])
    score = "a^kv_j . z(X_kv) + b_j" if two else "b_j, offset of key j"
    context = LinearMap(tuple(terms[0]), tuple(terms[1]), R_k, (*sites, score, *groups, *values))

    W_Q = np.zeros((E + 1 + n_out, p_q))
    W_Q[:E, :D_q] = tables.sharpness * tables.coordinates.matrix[:, :D_q]
    W_Q[E, D_q] = tables.sharpness
    W_Q[E + 1 :, D_q + 1 :] = tables.bonus * np.eye(n_out)
    W_K = np.eye(E + 1 + n_out, p_k)
    W_V = np.zeros((d_out, p_k))
    W_V[:, E + 1 + n_out :] = np.eye(d_out)
    outputs = tuple(f"output row {r + 1}" for r in range(d_out))
    return CrossMatrices(W_Q, W_K, W_V, tables.output.copy(), _head_names(tables), outputs, query=query, context=context)
