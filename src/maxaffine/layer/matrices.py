"""The literal weights: Linear(X) = sum_i P_i X Q_i + R_0 and W_Q, W_K, W_V, W_O of one head.

Tokens (j, c), key j in [N] and output column c in [n_out], stand in column j n_out + c.  All layouts have the logits

    <key (j, c), query (j', c')> = sharpness * s_j(x) + Lambda [c = c'],          s_j(x) = a_j . M (x - centre) + b_j,

so the weight of key (j, c) in query column c' is softmax_j(sharpness s(x)) * beta_{c c'} exactly (exp of a sum), and the
output before W_O is F(x) B with B = (a I + J)/(a + n_out), a = e^Lambda - 1, J all ones.  W_O = [B^-1; 0] undoes B
exactly for every Lambda > 0; `correction="values"` stores c_j B^-1 instead and lets W_O pick the first n_out columns.

    layout Q   rows x - centre, 1, a_j, b_j, e_c, value        x in the query, sites in the key
    layout K   rows s_j(x), e_c, value                         the scores themselves, the leanest
    layout I   rows x - centre, 1, I_m                         W_K and W_V are the tables
"""

from maxaffine.core.errors import BadInput
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.layer.layouts import LAYOUTS, build_cross, build_self, tables_of
from maxaffine.layer.records import CrossMatrices, SelfMatrices


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
    layer: Layer | GroupedLayer, kind: str, layout: str | None = None, correction: str = "output", bonus: float | None = None
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
    layer: Layer | GroupedLayer, layout: str = "Q", correction: str = "output", bonus: float | None = None
) -> SelfMatrices:
    """The literal self-attention layer in layout Q, K or I."""
    if layout not in LAYOUTS:
        raise BadInput(f"`layout` (={layout!r}) must be one of {', '.join(LAYOUTS)}.")
    if len(layer.inputs) != 1:
        raise BadInput('a layer of two inputs has no self-attention matrices; ask for matrices("cross").')
    return build_self(tables_of(layer, correction, bonus), layout)


def cross_matrices(layer: Layer | GroupedLayer, correction: str = "output", bonus: float | None = None) -> CrossMatrices:
    """The literal cross-attention layer."""
    return build_cross(tables_of(layer, correction, bonus))
