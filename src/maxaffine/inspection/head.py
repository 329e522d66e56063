"""One head seen as a max-affine partition of its queries.

    q_i = W_Q x_i + b_Q,   k_j = W_K x_j + b_K,   v_j = W_V x_j + b_V
    l_ij = scale k_j . q_i,   o_i = sum_j softmax_j(l_i) v_j

In the space of queries the keys of one sequence are the affine pieces scale k_j . q of a max-affine function; the key that leads
is the cell of a power diagram that the query lies in.  The logit gap between the two leading keys grows with the distance to the
facet between their cells at the rate scale |k_a - k_b|: times the spread of the queries across the facet, that is the inverse
temperature of the head, in units in which the queries have spread one.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.layer.maxaffine import MaxAffine
from maxaffine.report.diagnosis import DEAD_WEIGHT, Signature, diagnose, softmax

QUANTILES = (0.1, 0.5, 0.9)
NEAR_HARD_WEIGHT = 0.9  # median leading weight
NEAR_HARD_ERROR = 0.2  # relative error of the hard lookup


@dataclass(frozen=True)
class Sequence:
    """One sequence through the head: queries, keys, values, logits (-inf where masked), the same tokens in rows throughout."""

    queries: Array
    keys: Array
    values: Array
    logits: Array

    @property
    def weights(self) -> Array:
        """Attention weights (n, n)."""
        return softmax(self.logits)


@dataclass(frozen=True)
class HeadInspection:
    """What was seen of a head on some sequences; every number is an observation about these tokens."""

    sequences: tuple[Sequence, ...]
    scale: float
    name: str
    inverse_temperature: float  # median spread of the logit difference of the two leading keys over the queries
    slope: float  # median scale |k_a - k_b|, logits per unit of query
    margins: tuple[float, ...]  # quantiles of the gap between the two leading logits
    top_weights: tuple[float, ...]  # quantiles of the leading weight
    entropy: float  # mean, nats
    relative_entropy: float  # mean of entropy / log(number of keys)
    effective_keys: float  # mean of exp(entropy)
    keys: float  # mean number of keys a query sees
    dead_keys: float  # share of keys that never lead and never get a weight of DEAD_WEIGHT
    hard_error: float  # relative error of the outputs when softmax is replaced by argmax
    signatures: tuple[Signature, ...]

    @property
    def near_hard(self) -> bool:
        """Whether the head is close to a hard lookup: it leads clearly, and argmax hardly changes its output."""
        return self.top_weights[1] >= NEAR_HARD_WEIGHT and self.hard_error <= NEAR_HARD_ERROR

    def partition(self, sequence: int = 0) -> MaxAffine:
        """The max-affine partition of query space that the keys of one sequence cut."""
        keys = self.scale * self.sequences[sequence].keys
        return MaxAffine(keys, np.zeros(len(keys)))

    def slice(self, sequence: int = 0) -> tuple[MaxAffine, Array, Array]:
        """The partition in the plane of largest query variance: pieces and queries in the plane, and its axes (2, E)."""
        chosen = self.sequences[sequence]
        centre = chosen.queries.mean(axis=0)
        axes = np.linalg.svd(chosen.queries - centre, full_matrices=False)[2][:2]
        if len(axes) < 2:
            raise BadInput("a plane needs at least two queries and a head of at least two dimensions.")
        keys = self.scale * chosen.keys
        return MaxAffine(keys @ axes.T, keys @ centre), (chosen.queries - centre) @ axes.T, axes

    def explain(self) -> str:
        """The numbers and the signatures that fired, as a person reads them."""
        lines = [
            f"head       {self.name}: {len(self.sequences)} sequences, {self.keys:.1f} keys per query",
            f"sharpness  inverse temperature {self.inverse_temperature:.3g} per spread of the queries, {self.slope:.3g} per unit",
            f"margins    logit gap of the two leading keys {_three(self.margins)} (10%, median, 90%)",
            f"weights    leading weight {_three(self.top_weights)}; entropy {self.entropy:.3g} nats, "
            f"{100 * self.relative_entropy:.0f}% of uniform; effective keys {self.effective_keys:.3g}",
            f"hard       argmax instead of softmax changes the output by {100 * self.hard_error:.1f}%"
            + (": a near-hard lookup" if self.near_hard else ""),
            f"dead keys  {100 * self.dead_keys:.0f}%",
        ]
        fired = [s for s in self.signatures if s.fired]
        lines += [f"signature  {s.name}: {s.value:.3g} against {s.threshold:g}; {s.advice}" for s in fired]
        return "\n".join(lines if fired else [*lines, "signature  none"])

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary of the numbers."""
        names = ("name", "scale", "inverse_temperature", "slope", "entropy", "relative_entropy", "effective_keys", "keys")
        out = {name: getattr(self, name) for name in (*names, "dead_keys", "hard_error", "near_hard")}
        out |= {"margins": list(self.margins), "top_weights": list(self.top_weights), "sequences": len(self.sequences)}
        return {**out, "signatures": [signature.to_json() for signature in self.signatures]}

    def draw(self, path: str | Path, tokens: list[str] | None = None, sequence: int = 0) -> None:
        """One page of figures."""
        from maxaffine.inspection.figures import draw_head

        draw_head(self, path, tokens, sequence)

    def __repr__(self) -> str:
        seen = f"inverse temperature {self.inverse_temperature:.3g}, {self.effective_keys:.3g} effective keys"
        return f"<maxaffine.HeadInspection {self.name}: {seen}>"


def inspect(
    W_Q: ArrayLike,
    W_K: ArrayLike,
    W_V: ArrayLike,
    X: Any,
    *,
    b_Q: ArrayLike | None = None,
    b_K: ArrayLike | None = None,
    b_V: ArrayLike | None = None,
    scale: float | None = None,
    causal: bool = False,
    dtype: str = "float32",
    name: str = "head",
) -> HeadInspection:
    """Look at one head on the tokens X.

    Args:
        W_Q: (d_head, d_model), as in torch.nn.Linear.
        W_K: as W_Q.
        W_V: as W_Q; `b_Q`, `b_K`, `b_V` are their biases.
        X: tokens in rows (n, d_model), a batch (B, n, d_model), or a list of sequences of different lengths.
        scale: of the logits; 1/sqrt(d_head) if not given.
        causal: token i sees the keys up to i alone.
        dtype: what the head runs in, for the signature `saturated`.
        name: what to call it.
    """
    maps = [np.asarray(W, dtype=np.float64) for W in (W_Q, W_K, W_V)]
    for label, W in zip(("W_Q", "W_K", "W_V"), maps, strict=True):
        if W.ndim != 2 or 0 in W.shape or not np.isfinite(W).all():
            raise BadInput(f"`{label}` of shape {W.shape} must be a finite matrix (d_head, d_model).")
    width = maps[0].shape[1]
    if maps[1].shape != maps[0].shape or maps[2].shape[1] != width:
        shapes = ", ".join(str(W.shape) for W in maps)
        raise BadInput(f"`W_Q`, `W_K`, `W_V` have shapes {shapes}; they must be (d_head, d_model), W_Q and W_K alike.")
    given = zip((b_Q, b_K, b_V), maps, strict=True)
    biases = [np.zeros(len(W)) if b is None else np.asarray(b, dtype=np.float64) for b, W in given]
    for label, b, W in zip(("b_Q", "b_K", "b_V"), biases, maps, strict=True):
        if b.shape != (len(W),) or not np.isfinite(b).all():
            raise BadInput(f"`{label}` of shape {b.shape} must be ({len(W)},) finite numbers.")
    factor = 1.0 / np.sqrt(len(maps[0])) if scale is None else float(scale)
    sequences = []
    for tokens in _sequences(X, width):
        q, k, v = (tokens @ W.T + b for W, b in zip(maps, biases, strict=True))
        logits = factor * q @ k.T
        if causal:
            logits = np.where(np.tri(len(q), dtype=bool), logits, -np.inf)
        sequences.append(Sequence(q, k, v, logits))
    return summarise(sequences, factor, name, dtype)


def summarise(sequences: list[Sequence], scale: float, name: str, dtype: str) -> HeadInspection:
    """The numbers of a head from its sequences, each query counted once."""
    gathered: dict[str, list[Array]] = {k: [] for k in ("gap", "slope", "beta", "top", "entropy", "relative", "seen", "dead")}
    wrong = size = 0.0
    for one in sequences:
        weights, seen = one.weights, np.isfinite(one.logits).sum(axis=1)
        several = seen > 1
        if several.any():
            order = np.argsort(one.logits[several], axis=1)[:, -2:]
            rows = np.arange(len(order))
            kept = one.logits[several]
            gathered["gap"].append(kept[rows, order[:, 1]] - kept[rows, order[:, 0]])
            apart = one.keys[order[:, 1]] - one.keys[order[:, 0]]
            gathered["slope"].append(scale * np.linalg.norm(apart, axis=1))
            gathered["beta"].append(scale * np.std(one.queries @ apart.T, axis=0))
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = -np.where(weights > 0, weights * np.log(weights), 0.0).sum(axis=1)
        gathered["top"].append(weights.max(axis=1))
        gathered["entropy"].append(entropy)
        gathered["relative"].append(entropy[several] / np.log(seen[several]))
        gathered["seen"].append(seen.astype(np.float64))
        leads = np.bincount(weights.argmax(axis=1), minlength=weights.shape[1])
        gathered["dead"].append(((leads == 0) & (weights.max(axis=0) < DEAD_WEIGHT)).astype(np.float64))
        soft, hard = weights @ one.values, one.values[one.logits.argmax(axis=1)]
        wrong += float(np.square(soft - hard).sum())
        size += float(np.square(soft).sum())
    flat = {key: np.concatenate(parts) if parts else np.zeros(0) for key, parts in gathered.items()}
    if not len(flat["gap"]):
        raise BadInput("`X` has only sequences of one token, for which attention is trivial; give longer ones.")
    longest = max(sequences, key=lambda one: len(one.queries))
    return HeadInspection(
        sequences=tuple(sequences),
        scale=scale,
        name=name,
        inverse_temperature=float(np.median(flat["beta"])),
        slope=float(np.median(flat["slope"])),
        margins=tuple(float(v) for v in np.quantile(flat["gap"], QUANTILES)),
        top_weights=tuple(float(v) for v in np.quantile(flat["top"], QUANTILES)),
        entropy=float(flat["entropy"].mean()),
        relative_entropy=float(flat["relative"].mean()),
        effective_keys=float(np.exp(flat["entropy"]).mean()),
        keys=float(flat["seen"].mean()),
        dead_keys=float(flat["dead"].mean()),
        hard_error=float(np.sqrt(wrong / max(size, 1e-300))),
        signatures=diagnose(longest.logits, dtype=dtype),
    )


def _sequences(X: Any, width: int) -> list[Array]:
    parts = list(X) if isinstance(X, (list, tuple)) and len(X) and np.ndim(X[0]) == 2 else None
    if parts is None:
        array = np.asarray(X, dtype=np.float64)
        if array.ndim not in (2, 3):
            raise BadInput(f"`X` of shape {array.shape} must be tokens in rows (n, {width}) or a batch (B, n, {width}).")
        parts = [array] if array.ndim == 2 else list(array)
    out = [np.asarray(part, dtype=np.float64) for part in parts]
    for part in out:
        if part.ndim != 2 or part.shape[1] != width or not len(part) or not np.isfinite(part).all():
            raise BadInput(f"`X` has a sequence of shape {part.shape}; each must be finite tokens in rows (n, {width}).")
    return out


def _three(numbers: tuple[float, ...]) -> str:
    return " / ".join(f"{number:.3g}" for number in numbers)
