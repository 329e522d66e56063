"""Tokens to choose from: keys k_it, scores gamma_it = Y_i v.x_it, and the softmax weights that a query p gives them.

    a_i = softmax_t(k_it . p),   f_i = sum_t a_it v.x_it,   L(p) = mean_i l(Y_i f_i)

n inputs of T tokens each; keys are (n, T, d), scores (n, T).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.errors import BadInput

LARGEST = 1e100  # of any entry: squares must not overflow


def numbers(name: str, value: Any, dimensions: int, rule: str) -> Array:
    """The value as finite float64 numbers of that many dimensions."""
    try:
        found = np.asarray(value)
        if np.iscomplexobj(found):
            raise TypeError
        found = np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"`{name}` must be real numbers, {rule}.") from None
    if found.ndim != dimensions:
        raise BadInput(f"`{name}` has the shape {found.shape}; it must be {rule}.")
    if not np.isfinite(found).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(found))[0])
        raise BadInput(f"`{name}` has {found[where]:g} at {where}; every entry must be a finite number: leave such tokens out.")
    if found.size and (worst := float(np.abs(found).max())) > LARGEST:
        raise BadInput(f"`{name}` has an entry of size {worst:.3g}; the largest that is served is {LARGEST:g}: rescale it.")
    return found


@dataclass(frozen=True)
class Tokens:
    """Keys (n, T, d) and scores (n, T) of n inputs of T tokens."""

    keys: Array
    scores: Array

    def __post_init__(self) -> None:
        keys = numbers("keys", self.keys, 3, "(inputs, tokens, dimension)")
        scores = numbers("scores", self.scores, 2, "(inputs, tokens)")
        if keys.shape[:2] != scores.shape:
            raise BadInput(f"`scores` has the shape {scores.shape}; with keys {keys.shape} it must be {keys.shape[:2]}.")
        if 0 in keys.shape:
            raise BadInput(f"`keys` has the shape {keys.shape}; there must be at least one input, two tokens and one dimension.")
        if keys.shape[1] < 2:
            raise BadInput("`keys` has 1 token per input; with a single token the softmax has no choice: give at least 2.")
        object.__setattr__(self, "keys", _locked(keys))
        object.__setattr__(self, "scores", _locked(scores))

    @classmethod
    def of(cls, X: Any, Y: Any, v: Any, W: Any = None) -> "Tokens":
        """From tokens X (n, T, d), labels Y of +-1, a value vector v, and keys W x; W is the identity where none is given."""
        x = numbers("X", X, 3, "(inputs, tokens, dimension)")
        y = labels(Y, len(x))
        value = numbers("v", v, 1, f"a vector of {x.shape[2]} numbers")
        if value.shape != x.shape[2:]:
            raise BadInput(f"`v` has {len(value)} entries where tokens have {x.shape[2]}; the score of a token is Y v.x.")
        if W is None:
            return cls(x, y[:, None] * (x @ value))
        matrix = numbers("W", W, 2, "(rows, dimension)")
        if matrix.shape[1] != x.shape[2]:
            raise BadInput(f"`W` has {matrix.shape[1]} columns where tokens have {x.shape[2]} entries; keys are W x.")
        return cls(x @ matrix.T, y[:, None] * (x @ value))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Inputs, tokens per input, dimension of a key."""
        n, T, d = self.keys.shape
        return n, T, d

    @property
    def best(self) -> AnyArray:
        """The globally optimal choice: of every input the token of the highest score, the first of equals."""
        return np.asarray(np.argmax(self.scores, axis=1))

    def query(self, p: Any, name: str = "p") -> Array:
        """The query, checked."""
        found = numbers(name, p, 1, f"a vector of {self.shape[2]} numbers")
        if found.shape != (self.shape[2],):
            raise BadInput(f"`{name}` has {len(found)} entries where keys have {self.shape[2]}.")
        return found

    def chosen(self, tokens: Any) -> AnyArray:
        """One token per input, checked."""
        n, T, _ = self.shape
        return choice(tokens, n, T)


def labels(Y: Any, count: int) -> Array:
    """Labels, each +1 or -1."""
    found = numbers("Y", Y, 1, f"one label per input, {count} in all")
    if found.shape != (count,):
        raise BadInput(f"`Y` has {len(found)} labels for {count} inputs; there must be one per input.")
    wrong = np.flatnonzero(np.abs(found) != 1)
    if wrong.size:
        raise BadInput(f"`Y` has the label {found[wrong[0]]:g} at input {wrong[0]}; labels are +1 or -1.")
    return found


def choice(tokens: Any, n: int, T: int) -> AnyArray:
    """One token number per input, 0 to T - 1."""
    found = np.asarray(tokens)
    if found.shape != (n,) or found.dtype.kind not in "iu":
        raise BadInput(f"`tokens` must be {n} whole numbers, the chosen token of every input; got {tokens!r}.")
    if found.min() < 0 or found.max() >= T:
        raise BadInput(f"`tokens` (={found.tolist()}) must lie between 0 and {T - 1}; every input has {T} tokens.")
    return found


def _locked(values: Array) -> Array:
    kept = values.copy()
    kept.setflags(write=False)
    return kept
