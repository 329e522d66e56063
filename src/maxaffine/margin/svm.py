"""ATT-SVM: the shortest query that separates chosen tokens, max-margin token selection as a support vector machine.

    p_mm(alpha) = argmin |p|  subject to  (k_i,alpha_i - k_it) . p >= 1  for every input i and token t != alpha_i

Its length is one over the margin: 1/|p_mm| = max_{|u| = 1} min_it (k_i,alpha_i - k_it) . u.  In the relaxed problem inputs may
ask for >= 0 alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.errors import BadInput
from maxaffine.margin.distance import TOUCHES, NotSeparable, shortest
from maxaffine.margin.problem import choice, numbers

SOLVED = 1e-8  # residuals above this are a failure of the solver


@dataclass(frozen=True)
class AttSvm:
    """A solved ATT-SVM.  Rows are pairs (i, t), t != tokens[i], in the order of `pairs`."""

    p: Array  # (d,)
    tokens: AnyArray  # (n,) the chosen ones
    pairs: AnyArray  # (rows, 2)
    differences: Array  # (rows, d): g_it = k_i,alpha_i - k_it
    wanted: Array  # (rows,): 1, or 0 for relaxed inputs
    duals: Array  # (rows,)
    slack: Array  # (rows,): g.p - wanted
    kkt: dict[str, float]

    @property
    def length(self) -> float:
        """|p_mm|."""
        return float(np.linalg.norm(self.p))

    @property
    def margin(self) -> float:
        """1/|p_mm|."""
        return 1.0 / self.length

    @property
    def touching(self) -> AnyArray:
        """Which rows are support pairs, g.p = 1."""
        return self.slack < TOUCHES

    @property
    def supports(self) -> list[tuple[int, int]]:
        """The support pairs (i, t)."""
        return [(int(i), int(t)) for i, t in self.pairs[self.touching]]

    @property
    def room(self) -> float:
        """The least slack among pairs that are no support pairs: when it is small, everything settles late."""
        rest = self.slack[~self.touching]
        return float(rest.min()) if rest.size else float("inf")

    @property
    def residual(self) -> float:
        """The largest residual of the conditions of Karush, Kuhn and Tucker."""
        return max(self.kkt.values())


def rows_of(keys: Array, tokens: AnyArray) -> tuple[AnyArray, Array]:
    """Pairs (i, t) with t != tokens[i], and the differences k_i,alpha_i - k_it."""
    n, T, _ = keys.shape
    pairs = np.array([(i, t) for i in range(n) for t in range(T) if t != tokens[i]])
    return pairs, keys[pairs[:, 0], tokens[pairs[:, 0]]] - keys[pairs[:, 0], pairs[:, 1]]


def att_svm(keys: Any, tokens: Any, relax: Sequence[int] | None = None, scores: Any = None) -> AttSvm:
    """Solve it for keys (n, T, d) and one chosen token per input; inputs in `relax` ask for >= 0 instead of >= 1.

    With `scores` (n, T) pairs of one score ask for >= 0 as well: the machine up to ties.

    Raises NotSeparable, with weights that certify it, where no query separates the chosen tokens.
    """
    checked = numbers("keys", keys, 3, "(inputs, tokens, dimension)")
    n, T, _ = checked.shape
    if T < 2:
        raise BadInput("`keys` has 1 token per input; with a single token the softmax has no choice: give at least 2.")
    alpha = choice(tokens, n, T)
    eased = sorted(set(relax or ()))
    if eased and not 0 <= eased[0] <= eased[-1] < n:
        raise BadInput(f"`relax` (={eased}) must name inputs, 0 to {n - 1}.")
    pairs, G = rows_of(checked, alpha)
    wanted = np.where(np.isin(pairs[:, 0], eased), 0.0, 1.0)
    if scores is not None:
        said = numbers("scores", scores, 2, "(inputs, tokens)")
        if said.shape != (n, T):
            raise BadInput(f"`scores` has the shape {said.shape}; with keys {checked.shape} it must be {(n, T)}.")
        i, t = pairs.T
        wanted[said[i, alpha[i]] == said[i, t]] = 0.0
    try:
        found = shortest(G, wanted)
    except NotSeparable as failure:
        raise NotSeparable.by(_why(alpha, pairs, failure.weights), failure.weights, failure.least) from None
    return AttSvm(found.p, alpha, pairs, G, wanted, found.duals, found.slack, found.kkt)


def _why(alpha: AnyArray, pairs: AnyArray, weights: Array) -> str:
    used = [f"{t} of input {i}" for i, t in pairs[weights > 1e-12]]
    shown = ", ".join(used[:4]) + (f" and {len(used) - 4} more" if len(used) > 4 else "")
    tokens = ", ".join(map(str, alpha[:8])) + (", .." if len(alpha) > 8 else "")
    return (
        f"no query separates the tokens {tokens}: the differences of their keys to token {shown} have 0 as a weighted mean; "
        "choose tokens whose keys are corners of the hull of their input's keys, or raise the dimension."
    )


def hard_margin(X: Any, Y: Any) -> AttSvm:
    """The classical hard-margin machine without bias: argmin |v| subject to Y_i v.x_i >= 1, as rows (i, 0)."""
    x = numbers("X", X, 2, "(inputs, dimension)")
    y = numbers("Y", Y, 1, "one label per input")
    try:
        found = shortest(y[:, None] * x, np.ones(len(x)))
    except NotSeparable as failure:
        reason = "no plane through the origin separates the labels: change tokens or labels."
        raise NotSeparable.by(reason, failure.weights, failure.least) from None
    pairs = np.stack([np.arange(len(x)), np.zeros(len(x), dtype=int)], axis=1)
    tokens = np.zeros(len(x), dtype=int)
    return AttSvm(found.p, tokens, pairs, y[:, None] * x, np.ones(len(x)), found.duals, found.slack, found.kkt)
