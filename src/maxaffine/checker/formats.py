"""Whether everything that leads to an answer is a number of its format, and what is lost below the smallest normal number."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from maxaffine.checker.certificate import stated_norm
from maxaffine.checker.literal_groups import MOST_TOKENS
from maxaffine.checker.proved import Form, NotProved, Proved
from maxaffine.checker.reader import Factored, Layer, ProductKeys
from maxaffine.core.arrays import Array
from maxaffine.core.rounding import compute_format
from maxaffine.target.target import Target


def doubt_formats(layer: Layer, followed: bool = False) -> None:
    """NotProved where a number that leads to an answer may leave its format.

    `followed`: of groups whose values are sums of products, the rule itself bounds every factor and asks `products_fit`.
    """
    compute = compute_format(layer.dtype).name
    if not scores_fit(layer, compute):
        raise NotProved("far from its clusters, local coordinates or scores may be too large for its dtype.")
    if not answers_fit(layer, compute, followed):
        raise NotProved("its answers may be too large for its dtype.")


def with_underflow(found: Proved, tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target) -> Proved:
    """A proof of a grouped layer with what is lost below the smallest normal number.

    That is the answer in its dtype, and every product and sum of a stored number.
    """
    volume = float(target.box.volume ** (1.0 / stated_norm(record)))
    return with_more(found, lost_below(tensors, record, target) * max(volume, 1.0) * (1 + 1e-9))


def with_more(found: Proved, added: float) -> Proved:
    """The proof with so much added to its bounds."""
    literal = found.literal

    def more(form: Form, claimed: float) -> float:
        assert literal is not None
        return literal(form, claimed) + added

    return replace(found, bound=found.bound + added, literal=None if literal is None else more)


def lost_below(tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target) -> float:
    """What an answer and every product and sum of a stored number lose below the smallest normal number."""
    numbers = sum(int(np.size(tensor)) for tensor in tensors.values())
    return compute_format(str(record["layer"]["dtype"])).tiny + 100.0 * (target.box.dimension + 2) * numbers * 2.0**-1074


def products_fit(sizes: Array, compute: str, beside: float = 0.0) -> bool:
    """Whether sums of products of factors of these sizes (blocks, R), in any order, are numbers of their formats.

    `beside` bounds what is added to them.
    """
    with np.errstate(over="ignore"):
        partial = float(np.prod(np.maximum(sizes, 1.0), axis=0).sum()) * 4.0
        whole = float(np.prod(sizes, axis=0).sum()) * 1.01 + beside
    return partial < 2.0**1000 and whole < 0.4 * float(np.finfo(compute).max)


def scores_fit(layer: Layer, compute: str) -> bool:
    """Whether what leads to the scores of clusters are numbers of their formats: t of the farthest query, logits and sites."""
    span, most = layer.high - layer.low, 0.1 * float(np.finfo(compute).max)
    return all(group.scores_fit(span, most) for group in layer.groups if not isinstance(group, ProductKeys))


def answers_fit(layer: Layer, compute: str, followed: bool = False) -> bool:
    """Whether |layer| over the box is a number of its dtype: of every group the largest value that a token may have.

    Sums that are divided by their normaliser at the end are as many times larger as there are tokens, in float64.  A product sums
    up its factors one by one, and all combinations where a literal form lists them.
    """
    span, largest = layer.high - layer.low, []
    inner: list[tuple[float, float]] = []  # factors, whose sums are divided before they are multiplied
    for group in layer.groups:
        if followed and isinstance(group, ProductKeys) and group.factors is not None:
            if not all(size * (tokens + 8.0) ** 2 < 2.0**1019 for size, tokens in group.block_sums()):
                return False
        else:
            product = isinstance(group, Factored)
            largest.append((group.largest(span), float(min(group.tokens, MOST_TOKENS if product else 2**1000))))
            inner += [(one.largest(span), float(one.tokens)) for one in group.factors] if isinstance(group, Factored) else []
    with np.errstate(over="ignore"):
        if not all(size * np.float64(tokens + 8.0) ** 2 < 2.0**1019 for size, tokens in [*largest, *inner]):
            return False
    total = sum(size for size, _ in largest)
    if layer.affine_part is not None:
        total += float((np.abs(layer.affine_part) @ span).max())
    return total * 1.01 < 0.4 * float(np.finfo(compute).max)
