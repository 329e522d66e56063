"""The literal weights: Linear(X) = sum_i P_i X Q_i + R_0 and W_Q, W_K, W_V, W_O of one head.

Tokens (j, c), key j in [N] and output column c in [n_out], stand in column j n_out + c.  All layouts have the logits

    <key (j, c), query (j', c')> = sharpness * s_j(x) + Lambda [c = c'],          s_j(x) = a_j . M (x - centre) + b_j,

so the weight of key (j, c) in query column c' is softmax_j(sharpness s(x)) * beta_{c c'} exactly (exp of a sum), and the
output before W_O is F(x) B with B = (a I + J)/(a + n_out), a = e^Lambda - 1, J all ones.  W_O = [B^-1; 0] undoes B
exactly for every Lambda > 0; `correction="values"` stores c_j B^-1 instead and lets W_O pick the first n_out columns.

    layout Q   rows x - centre, 1, a_j, b_j, e_c, value        x in the query, sites in the key
    layout K   rows s_j(x), e_c, value                         the scores themselves, the leanest
    layout I   rows x - centre, 1, I_m                         W_K and W_V are the tables

The x rows hold x - centre and W_Q holds sharpness times the metric, so that boxes far from the origin lose no digits.
"""

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput, Refused
from maxaffine.layer.layer import Layer
from maxaffine.layer.query import LEANS, leans_on_query
from maxaffine.layer.records import CrossMatrices, LinearMap, SelfMatrices
from maxaffine.layer.side_by_side import AnyLayer
from maxaffine.layer.tables import Tables, tables_of

CONSTANT = "constant context: Z_K does not depend on the input (d1)"
ONE_INPUT = "one input: the same X makes queries, and values that are affine in it (d1 but for the values)"
TWO_INPUTS = "two inputs: X_q makes the queries, X_kv keys and values (d2)"

Terms = list[tuple[Array, Array]]  # P_i and Q_i
Built = tuple[LinearMap, Array, Array, Array, tuple[str, ...]]


def matrices_bytes(layer: Layer, kind: str, layout: str) -> int:
    """Bytes of the literal matrices, known before anything is allocated."""
    E, D = (int(n) for n in layer.coordinates.matrix.shape)
    n_out, d_out, m = layer.n_out, layer.d_out, layer.tokens
    d, n = layer.inputs[0]
    if kind == "cross":
        return 8 * (m * (E + 1 + n_out + d_out) + sum(d_i * n_i * m for d_i, n_i in layer.inputs))
    width = {"Q": D + E + 2 + n_out + d_out, "K": 1 + n_out + d_out, "I": D + 1 + m}[layout]
    terms = d if layout == "K" else n
    return 8 * (width * m + terms * n * m + m * n_out + (3 * width * (E + 1 + n_out) if layout == "I" else 0))


def matrices(
    layer: AnyLayer, kind: str, layout: str | None = None, correction: str = "output", bonus: float | None = None
) -> SelfMatrices | CrossMatrices:
    """The literal matrices: kind "self" (layout Q, K or I) or "cross"."""
    if kind == "self":
        return self_matrices(layer, layout or "Q", correction, bonus)
    if kind == "cross":
        if layout is not None:
            raise BadInput(f"`layout` (={layout!r}) is for self-attention; cross-attention has one layout.")
        return cross_matrices(layer, correction, bonus)
    raise BadInput(f'`kind` (={kind!r}) must be "self" or "cross".')


def self_matrices(
    layer: AnyLayer, layout: str = "Q", correction: str = "output", bonus: float | None = None
) -> SelfMatrices:
    """The literal self-attention layer in layout Q, K or I."""
    if layout not in LAYOUTS:
        raise BadInput(f"`layout` (={layout!r}) must be one of {', '.join(LAYOUTS)}.")
    if len(layer.inputs) != 1:
        raise BadInput('a layer of two inputs has no self-attention matrices; ask for matrices("cross").')
    tables = tables_of(layer, correction, bonus)
    linear, W_Q, W_K, W_V, head = LAYOUTS[layout](tables)
    W_O = np.zeros((tables.tokens, tables.output.shape[1]))
    W_O[tables.first] = tables.output
    return SelfMatrices(W_Q, W_K, W_V, W_O, head, _outputs(tables), linear=linear, layout=layout)


def cross_matrices(layer: AnyLayer, correction: str = "output", bonus: float | None = None) -> CrossMatrices:
    """The literal cross-attention layer: constant context for one input, X_kv in the keys for two."""
    tables = tables_of(layer, correction, bonus)
    (d_q, n_q), (d_k, n_k), n_out = tables.inputs[0], tables.inputs[-1], tables.n_out
    E, D_q, two = len(tables.coordinates.matrix), d_q * n_q, len(tables.inputs) == 2
    centre = tables.coordinates.centre
    labels, sites, groups, values = _names(tables)

    own = [copy * tables.variables + i for copy in range(tables.copies) for i in range(D_q)]  # rows of the query's variables
    R_q = np.concatenate([np.repeat(-centre[own, None], n_out, axis=1), np.ones((1, n_out)), np.eye(n_out)])
    query = _linear(_broadcast(d_q, n_q, len(R_q), n_out, tables.copies), R_q, (*(labels[i] for i in own), "1", *groups))

    value = E + 1 + n_out
    p, offsets = value + tables.d_out, tables.offsets
    if two:
        if leans_on_query(layer):
            raise Refused(f"this layer has no cross-attention matrices: {LEANS}; compile its target again.")
        rest = [i for i in range(len(centre)) if i not in own]
        in_kv = (tables.coordinates.matrix[:, rest].T @ tables.slopes).reshape(tables.copies, -1, tables.tokens).sum(axis=0)
        terms, constant = _affine_values(tables, p, value, D_q)
        terms = _affine_row(E, in_kv, d_k, p) + terms
        offsets = offsets - centre[rest] @ (tables.coordinates.matrix[:, rest].T @ tables.slopes)
    else:
        terms, constant = _affine_values(tables, p, value)
    R_k = np.concatenate([tables.slopes, offsets[None], tables.groups, constant])
    score = "a^kv_j . z(X_kv) + b_j" if two else "b_j, offset of key j"
    zero = (np.zeros((p, d_k)), np.zeros((n_k, tables.tokens)))  # of a constant context: it keeps the form sum_i P_i X Q_i + R_0
    context = _linear(terms or [zero], R_k, (*sites, score, *groups, *values))

    W_Q, W_K, W_V = _query_weights(tables, own), np.eye(value, p), np.eye(tables.d_out, p, value)
    output = tables.output.copy()
    form = TWO_INPUTS if two else CONSTANT if not terms else ONE_INPUT
    return CrossMatrices(W_Q, W_K, W_V, output, _head_names(tables), _outputs(tables), query=query, context=context, form=form)


def _names(tables: Tables) -> tuple[list[str], list[str], list[str], list[str]]:
    inputs, labels = tables.inputs, []
    for which, (d, n) in enumerate(inputs):
        letter = "X" if len(inputs) == 1 else ("X_q", "X_kv")[which]
        labels += [f"{letter}[{i + 1},{t + 1}] - centre" for t in range(n) for i in range(d)]
    labels += [f"{one} {copy + 1}" for copy in range(1, tables.copies) for one in labels[: tables.variables]]
    sites = [f"a_j[{e + 1}], slope of key j in coordinate {e + 1}" for e in range(len(tables.coordinates.matrix))]
    groups = [f"e_c[{c + 1}], 1 in the tokens of {tables.column} {c + 1}" for c in range(tables.n_out)]
    values = [f"value of key j for output row {r + 1}, column c" for r in range(tables.d_out)]
    return labels, sites, groups, values


def _head_names(tables: Tables) -> tuple[str, ...]:
    scores = [f"sharpness * z_{e + 1}(x) * a_j[{e + 1}]" for e in range(len(tables.coordinates.matrix))]
    return (*scores, "sharpness * b_j", *_bonus_names(tables))


def _bonus_names(tables: Tables) -> tuple[str, ...]:
    return tuple(f"Lambda for {tables.column} {c + 1}" for c in range(tables.n_out))


def _outputs(tables: Tables) -> tuple[str, ...]:
    return tuple(f"output row {r + 1}" for r in range(tables.d_out))


def _linear(terms: Terms, R_0: Array, rows: tuple[str, ...]) -> LinearMap:
    P, Q = zip(*terms, strict=True)
    return LinearMap(P, Q, R_0, rows)


def _broadcast(d: int, n: int, rows: int, columns: int, copies: int = 1) -> Terms:
    """P_t, Q_t that put token t of X into rows t d .. of every column, and again d n rows below for every further copy."""
    places = [sum(np.eye(rows, d, -(copy * n + t) * d) for copy in range(copies)) for t in range(n)]
    return [(np.asarray(place), np.repeat(np.eye(n)[:, t : t + 1], columns, axis=1)) for t, place in enumerate(places)]


def _affine_row(row: int, coefficients: Array, d: int, rows: int) -> Terms:
    """P_i = e_row e_i^T and Q_i[t, token] so that `row` becomes coefficients[:, token] . vec(X)."""
    here = np.arange(rows) == row  # Q_i is (n, m): entries t d + i for t = 0..n-1
    return [(np.outer(here, one), np.ascontiguousarray(coefficients[i::d])) for i, one in enumerate(np.eye(d))]


def _affine_values(tables: Tables, rows: int, first: int, query: int = 0) -> tuple[Terms, Array]:
    """Terms and constant part of value rows that may be affine in X, or in X_kv, whose coordinates follow the query's."""
    if tables.value_slopes is None:
        return [], tables.values
    d, slopes = tables.inputs[-1][0], tables.folded(tables.value_slopes)[:, query:]
    terms = [term for r, own in enumerate(slopes) for term in _affine_row(first + r, own, d, rows)]
    return terms, tables.values - np.einsum("rim,i->rm", tables.value_slopes, tables.coordinates.centre)


def _query_weights(tables: Tables, columns: list[int] | slice = slice(None), groups: Array | None = None) -> Array:
    """W_Q: sharpness * M on the x rows, sharpness on the 1 row, Lambda on the group rows (one each, if not given)."""
    metric, bonus = tables.coordinates.matrix[:, columns], np.eye(tables.n_out) if groups is None else groups
    E, D = metric.shape
    weights = np.zeros((E + 1 + bonus.shape[0], D + 1 + bonus.shape[1]))
    weights[:E, :D], weights[E, D], weights[E + 1 :, D + 1 :] = tables.sharpness * metric, tables.sharpness, tables.bonus * bonus
    return weights


def _centred(tables: Tables) -> Array:
    """The constant part of the rows x - centre and 1, in every token."""
    return np.concatenate([np.repeat(-tables.coordinates.centre[:, None], tables.tokens, axis=1), np.ones((1, tables.tokens))])


def _layout_q(tables: Tables) -> Built:
    (E, D), n_out, d_out = tables.coordinates.matrix.shape, tables.n_out, tables.d_out
    group, value = D + 2 + E, D + 2 + E + n_out
    p = value + d_out
    more, constant = _affine_values(tables, p, value)
    R_0 = np.concatenate([_centred(tables), tables.slopes, tables.offsets[None], tables.groups, constant])
    labels, sites, groups, values = _names(tables)
    rows = (*labels, "1", *sites, "b_j, offset of key j", *groups, *values)
    linear = _linear(_broadcast(*tables.inputs[0], p, tables.tokens, tables.copies) + more, R_0, rows)
    W_Q = np.zeros((E + 1 + n_out, p))
    W_Q[:, [*range(D + 1), *range(group, value)]] = _query_weights(tables)
    return linear, W_Q, np.eye(E + 1 + n_out, p, D + 1), np.eye(d_out, p, value), _head_names(tables)


def _layout_k(tables: Tables) -> Built:
    value = 1 + tables.n_out
    p = value + tables.d_out
    in_x = tables.coordinates.matrix.T @ tables.slopes  # (D, m): scores are in_x . (x - centre) + b
    more, constant = _affine_values(tables, p, value)
    R_0 = np.concatenate([(tables.offsets - tables.coordinates.centre @ in_x)[None], tables.groups, constant])
    _, _, groups, values = _names(tables)
    scores = _affine_row(0, tables.folded(in_x), tables.inputs[0][0], p)
    linear = _linear(scores + more, R_0, ("s_j(x), score of key j", *groups, *values))
    W_Q = np.zeros((value, p))
    W_Q[0, 1:value] = tables.sharpness  # the group rows sum to one in every token
    W_Q[1:, 1:value] = tables.bonus * np.eye(tables.n_out)
    return linear, W_Q, np.eye(value, p), np.eye(tables.d_out, p, value), ("sharpness * s_j(x)", *_bonus_names(tables))


def _layout_i(tables: Tables) -> Built:
    if tables.value_slopes is not None and np.any(tables.value_slopes != tables.value_slopes[:, :, :1]):
        raise BadInput("layout I keeps its values in W_V: affine ones must have one slope for all tokens; ask for layout Q or K.")
    D, m = tables.coordinates.matrix.shape[1], tables.tokens
    R_0 = np.concatenate([_centred(tables), np.eye(m)])
    marks = (f"1 in token {token + 1}, key {token // tables.n_out + 1}" for token in range(m))
    linear = _linear(_broadcast(*tables.inputs[0], len(R_0), m, tables.copies), R_0, (*_names(tables)[0], "1", *marks))
    W_Q = _query_weights(tables, groups=tables.groups)
    W_K, W_V = np.zeros_like(W_Q), np.zeros((tables.d_out, len(R_0)))
    W_K[:, D + 1 :] = np.concatenate([tables.slopes, tables.offsets[None], tables.groups])
    W_V[:, D + 1 :] = tables.values
    if tables.value_slopes is not None:
        W_V[:, :D] = tables.value_slopes[:, :, 0]
    return linear, W_Q, W_K, W_V, _head_names(tables)


LAYOUTS = {"Q": _layout_q, "K": _layout_k, "I": _layout_i}
