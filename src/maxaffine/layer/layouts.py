"""From a layer to its literal matrices: tables per token, and the layouts that hold them.

    layout Q   rows x - centre, 1, a_j, b_j, e_c, value        x in the query, sites in the key
    layout K   rows s_j(x), e_c, value                         the scores themselves, the leanest
    layout I   rows x - centre, 1, I_m                         W_K and W_V are the tables

The x rows hold x - centre and W_Q holds sharpness times the metric, so that boxes far from the origin lose no digits.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
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
    output: Array  # (n_out, n_out), the part of W_O that acts
    bonus: float


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
    )


def _names(layer: Any) -> tuple[list[str], list[str], list[str], list[str]]:
    inputs, labels = layer.inputs, []
    for which, (d, n) in enumerate(inputs):
        letter = "X" if len(inputs) == 1 else ("X_q", "X_kv")[which]
        labels += [f"{letter}[{i + 1},{t + 1}] - centre" for t in range(n) for i in range(d)]
    sites = [f"a_j[{e + 1}], slope of key j in coordinate {e + 1}" for e in range(layer.coordinates.matrix.shape[0])]
    kind = getattr(layer, "group_kind", "output column")
    groups = [f"e_c[{c + 1}], 1 in the tokens of {kind} {c + 1}" for c in range(layer.n_out)]
    values = [f"value of key j for output row {r + 1}, column c" for r in range(layer.d_out)]
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


def self_matrices(layer: Layer, layout: str = "Q", correction: str = "output", bonus: float | None = None) -> SelfMatrices:
    """The literal self-attention layer in layout Q, K or I."""
    if layout not in LAYOUTS:
        raise BadInput(f"`layout` (={layout!r}) must be one of {', '.join(LAYOUTS)}.")
    if len(layer.inputs) != 1:
        raise BadInput('a layer of two inputs has no self-attention matrices; ask for matrices("cross").')
    tables = layer_tables(layer, correction, bonus)
    W_O = np.zeros((tables.values.shape[1], layer.n_out))
    W_O[: layer.n_out] = tables.output
    return build_self(layer, tables, layout, W_O)


def build_self(layer: Any, tables: Tables, layout: str, W_O: Array) -> SelfMatrices:
    """Self-attention from tables; `layer` gives coordinates, inputs, sharpness, d_out, and n_out, the number of groups."""
    linear, W_Q, W_K, W_V, head = _LAYOUTS[layout](layer, tables)
    outputs = tuple(f"output row {r + 1}" for r in range(layer.d_out))
    return SelfMatrices(W_Q, W_K, W_V, W_O, head, outputs, linear=linear, layout=layout)


_Built = tuple[LinearMap, Array, Array, Array, tuple[str, ...]]


def _head_names(layer: Any) -> tuple[str, ...]:
    E = layer.coordinates.matrix.shape[0]
    scores = [f"sharpness * z_{e + 1}(x) * a_j[{e + 1}]" for e in range(E)]
    return (*scores, "sharpness * b_j", *_bonus_names(layer))


def _bonus_names(layer: Any) -> tuple[str, ...]:
    kind = getattr(layer, "group_kind", "output column")
    return tuple(f"Lambda for {kind} {c + 1}" for c in range(layer.n_out))


def _query_weights(layer: Any, tables: Tables, width: int, x: int, one: int, group: int) -> Array:
    """W_Q: sharpness * M on the x rows, sharpness on the 1 row, Lambda on the group rows."""
    (E, D), n_out = layer.coordinates.matrix.shape, layer.n_out
    W_Q = np.zeros((E + 1 + n_out, width))
    W_Q[:E, x : x + D] = layer.sharpness * layer.coordinates.matrix
    W_Q[E, one] = layer.sharpness
    W_Q[E + 1 :, group : group + n_out] = tables.bonus * np.eye(n_out)
    return W_Q


def _layout_q(layer: Any, tables: Tables) -> _Built:
    (d, n), (E, D), n_out, d_out = layer.inputs[0], layer.coordinates.matrix.shape, layer.n_out, layer.d_out
    m = tables.values.shape[1]
    one, site, offset, group, value = D, D + 1, D + 1 + E, D + 2 + E, D + 2 + E + n_out
    p = value + d_out
    left, right = _broadcast(d, n, p, 0, m)
    more_left, more_right, constant = _affine_values(tables, layer.coordinates.centre, d, n, p, value)
    R_0 = np.concatenate([
        np.repeat(-layer.coordinates.centre[:, None], m, axis=1),
        np.ones((1, m)), tables.slopes, tables.offsets[None], tables.groups, constant,
    ])  # fmt: skip
    labels, sites, groups, values = _names(layer)
    rows = (*labels, "1", *sites, "b_j, offset of key j", *groups, *values)
    linear = LinearMap((*left, *more_left), (*right, *more_right), R_0, rows)
    W_Q = _query_weights(layer, tables, p, 0, one, group)
    W_K = np.zeros((E + 1 + n_out, p))
    W_K[:E, site : site + E] = np.eye(E)
    W_K[E, offset] = 1.0
    W_K[E + 1 :, group : group + n_out] = np.eye(n_out)
    W_V = np.zeros((d_out, p))
    W_V[:, value:] = np.eye(d_out)
    return linear, W_Q, W_K, W_V, _head_names(layer)


def _layout_k(layer: Any, tables: Tables) -> _Built:
    (d, n), n_out, d_out = layer.inputs[0], layer.n_out, layer.d_out
    p = 1 + n_out + d_out
    in_x = layer.coordinates.matrix.T @ tables.slopes  # (D, m): scores are in_x . (x - centre) + b
    left, right = _affine_row(0, in_x, d, n, p)
    centre = layer.coordinates.centre
    more_left, more_right, constant = _affine_values(tables, centre, d, n, p, 1 + n_out)
    R_0 = np.concatenate([(tables.offsets - centre @ in_x)[None], tables.groups, constant])
    _, _, groups, values = _names(layer)
    linear = LinearMap((*left, *more_left), (*right, *more_right), R_0, ("s_j(x), score of key j", *groups, *values))
    W_K = np.eye(1 + n_out, p)
    W_Q = np.zeros((1 + n_out, p))
    W_Q[0, 1 : 1 + n_out] = layer.sharpness  # the group rows sum to one in every token
    W_Q[1:, 1 : 1 + n_out] = tables.bonus * np.eye(n_out)
    W_V = np.zeros((d_out, p))
    W_V[:, 1 + n_out :] = np.eye(d_out)
    head = ("sharpness * s_j(x)", *_bonus_names(layer))
    return linear, W_Q, W_K, W_V, head


def _layout_i(layer: Any, tables: Tables) -> _Built:
    if tables.value_slopes is not None and np.any(tables.value_slopes != tables.value_slopes[:, :, :1]):
        raise BadInput("layout I keeps its values in W_V: affine ones must have one slope for all tokens; ask for layout Q or K.")
    (d, n), (E, D), n_out = layer.inputs[0], layer.coordinates.matrix.shape, layer.n_out
    m = tables.values.shape[1]
    p = D + 1 + m
    left, right = _broadcast(d, n, p, 0, m)
    R_0 = np.concatenate([np.repeat(-layer.coordinates.centre[:, None], m, axis=1), np.ones((1, m)), np.eye(m)])
    labels, _, _, _ = _names(layer)
    rows = (*labels, "1", *(f"1 in token {token + 1}, key {token // n_out + 1}" for token in range(m)))
    W_K = np.zeros((E + 1 + n_out, p))
    W_K[:, D + 1 :] = np.concatenate([tables.slopes, tables.offsets[None], tables.groups])
    W_Q = np.zeros_like(W_K)
    W_Q[:E, :D] = layer.sharpness * layer.coordinates.matrix
    W_Q[E, D] = layer.sharpness
    W_Q[E + 1 :, D + 1 :] = tables.bonus * tables.groups
    W_V = np.zeros((layer.d_out, p))
    W_V[:, D + 1 :] = tables.values
    if tables.value_slopes is not None:
        W_V[:, :D] = tables.value_slopes[:, :, 0]
    return LinearMap(tuple(left), tuple(right), R_0, rows), W_Q, W_K, W_V, _head_names(layer)


_LAYOUTS = {"Q": _layout_q, "K": _layout_k, "I": _layout_i}


def cross_matrices(layer: Layer, correction: str = "output", bonus: float | None = None) -> CrossMatrices:
    """The literal cross-attention layer: constant context for one input, X_kv in the keys for two."""
    tables = layer_tables(layer, correction, bonus)
    return build_cross(layer, tables, tables.output.copy())


def build_cross(layer: Any, tables: Tables, W_O: Array) -> CrossMatrices:
    """Cross-attention from tables, as `build_self`."""
    (d_q, n_q), n_out, d_out = layer.inputs[0], layer.n_out, layer.d_out
    E, two = layer.coordinates.matrix.shape[0], len(layer.inputs) == 2
    D_q = d_q * n_q
    centre = layer.coordinates.centre
    m = tables.values.shape[1]
    labels, sites, groups, values = _names(layer)

    p_q = D_q + 1 + n_out
    left, right = _broadcast(d_q, n_q, p_q, 0, n_out)
    R_q = np.concatenate([np.repeat(-centre[:D_q, None], n_out, axis=1), np.ones((1, n_out)), np.eye(n_out)])
    query = LinearMap(tuple(left), tuple(right), R_q, (*labels[:D_q], "1", *groups))

    p_k = E + 1 + n_out + d_out
    offsets, terms = tables.offsets, (list[Array](), list[Array]())
    constant = tables.values
    d_k, n_k = layer.inputs[-1]
    if two:
        if tables.value_slopes is not None:
            raise BadInput("values of a two-input layer cannot be affine in x; use constant values.")
        in_kv = layer.coordinates.matrix[:, D_q:].T @ tables.slopes  # (D_kv, m)
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
    W_Q[:E, :D_q] = layer.sharpness * layer.coordinates.matrix[:, :D_q]
    W_Q[E, D_q] = layer.sharpness
    W_Q[E + 1 :, D_q + 1 :] = tables.bonus * np.eye(n_out)
    W_K = np.eye(E + 1 + n_out, p_k)
    W_V = np.zeros((d_out, p_k))
    W_V[:, E + 1 + n_out :] = np.eye(d_out)
    outputs = tuple(f"output row {r + 1}" for r in range(d_out))
    return CrossMatrices(W_Q, W_K, W_V, W_O, _head_names(layer), outputs, query=query, context=context)
