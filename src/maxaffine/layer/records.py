"""Records of literal attention: the linear maps, the four matrices of a head, and what every row of them means."""

from dataclasses import dataclass

import numpy as np

from maxaffine import reference
from maxaffine.core.arrays import Array


@dataclass(frozen=True)
class LinearMap:
    """Linear(X) = sum_i P_i X Q_i + R_0, with the meaning of every row of its result."""

    P: tuple[Array, ...]
    Q: tuple[Array, ...]
    R_0: Array
    rows: tuple[str, ...]

    def __call__(self, X: Array) -> Array:
        """Tokens (p, m) of an input (d, n)."""
        return reference.linear(X, self.P, self.Q, self.R_0)

    @property
    def parameters(self) -> int:
        """Dense count of numbers."""
        return sum(a.size for a in (*self.P, *self.Q, self.R_0))


@dataclass(frozen=True)
class HeadMatrices:
    """W_Q, W_K (k, p), W_V (d_out, p), W_O (m, n_out) and the meaning of the head's k dimensions."""

    W_Q: Array
    W_K: Array
    W_V: Array
    W_O: Array
    head: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def parameters(self) -> int:
        """Dense count of numbers in the four matrices."""
        return sum(a.size for a in (self.W_Q, self.W_K, self.W_V, self.W_O))


@dataclass(frozen=True)
class SelfMatrices(HeadMatrices):
    """Self-attention: one linear map feeds queries, keys and values."""

    linear: LinearMap
    layout: str
    said: str = ""  # what is proved of these matrices, multiplied by hand

    @property
    def P(self) -> list[Array]:
        """Left factors of Linear."""
        return list(self.linear.P)

    @property
    def Q(self) -> list[Array]:
        """Right factors of Linear."""
        return list(self.linear.Q)

    @property
    def R_0(self) -> Array:
        """Constant part of Linear."""
        return self.linear.R_0

    @property
    def parameters(self) -> int:
        """Dense count of numbers, as in the size formulas of docs/theory.md."""
        return super().parameters + self.linear.parameters

    def __call__(self, X: Array, full: bool = True) -> Array:
        """Attn_s(Linear(X)) by the definition; full=False computes only the query columns that W_O reads."""
        Z = self.linear(X)
        if full:
            return reference.self_attention(Z, self.W_Q, self.W_K, self.W_V, self.W_O)
        used = np.flatnonzero(self.W_O.any(axis=1))
        return reference.cross_attention(Z, Z[:, used], self.W_Q, self.W_K, self.W_V, self.W_O[used])

    def describe(self) -> str:
        """The meaning of every row of every matrix, as text."""
        return _describe(f"self-attention, layout {self.layout}", {"Z = Linear(X)": self.linear}, self, self.said)


@dataclass(frozen=True)
class CrossMatrices(HeadMatrices):
    """Cross-attention: `query` makes Z_Q from X (or X_q), `context` makes Z_K (from X_kv where there is one)."""

    query: LinearMap
    context: LinearMap
    said: str = ""  # what is proved of these matrices, multiplied by hand
    form: str = ""  # which of the paper's two: a constant context, or two inputs

    @property
    def parameters(self) -> int:
        """Dense count of numbers."""
        return super().parameters + self.query.parameters + self.context.parameters

    def __call__(self, X_q: Array, X_kv: Array | None = None) -> Array:
        """Attn_c(context(X_kv), query(X_q)) by the definition; one input feeds both where X_kv is not given."""
        Z_Q, Z_K = self.query(X_q), self.context(X_q if X_kv is None else X_kv)
        return reference.cross_attention(Z_K, Z_Q, self.W_Q, self.W_K, self.W_V, self.W_O)

    def describe(self) -> str:
        """The meaning of every row of every matrix, as text."""
        maps = {"Z_Q = query(X)": self.query, "Z_K = context(X)": self.context}
        return _describe(f"cross-attention, {self.form}", maps, self, self.said)


def _describe(title: str, maps: dict[str, LinearMap], head: HeadMatrices, said: str) -> str:
    lines = [title, *([said] if said else [])]
    for name, linear in maps.items():
        lines.append(f"{name}: {linear.R_0.shape[0]} rows, {linear.R_0.shape[1]} tokens, {len(linear.P)} terms P_i X Q_i")
        lines += [f"  row {i}: {meaning}" for i, meaning in enumerate(linear.rows)]
    lines.append(f"W_Q {head.W_Q.shape}, W_K {head.W_K.shape}: head dimensions (query side * key side)")
    lines += [f"  row {i}: {meaning}" for i, meaning in enumerate(head.head)]
    lines.append(f"W_V {head.W_V.shape}: output rows")
    lines += [f"  row {i}: {meaning}" for i, meaning in enumerate(head.outputs)]
    lines.append(f"W_O {head.W_O.shape}: row (j, c) mixes query column (j, c) into the output columns")
    return "\n".join(lines)
