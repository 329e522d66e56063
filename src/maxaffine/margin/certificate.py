"""What the margin of a query proves about its direction, without any asymptotics.

    cos(u, p_mm) >= m(u) |p_mm|,   m(u) = min_it g_it.u > 0,  |u| = 1

since u.p_mm = sum lambda_it g_it.u >= m(u) sum lambda_it = m(u) |p_mm|^2.  And the attention on other tokens of input i is at
most (T - 1) e^{-m_i}, m_i = min_t g_it.p.  Both hold for every query, trained or not.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.margin.problem import numbers
from maxaffine.margin.svm import AttSvm


@dataclass(frozen=True)
class Certificate:
    """Of one query and one choice of tokens."""

    margin: float  # m(u), the least margin of the unit query; at or below 0 nothing is certified
    least_cosine: float  # m(u)|p_mm|, a lower bound of the cosine
    cosine: float  # as computed
    leak: Array  # (n,) an upper bound of 1 - a_i,alpha


def certificate(p: Any, svm: AttSvm) -> Certificate:
    """What the margin of p says about its angle to p_mm and about its attention."""
    query = numbers("p", p, 1, f"a vector of {len(svm.p)} numbers")
    if query.shape != svm.p.shape:
        raise BadInput(f"`p` has {len(query)} entries where keys have {len(svm.p)}.")
    length = float(np.linalg.norm(query))
    if length == 0:
        raise BadInput("`p` is 0, which has no direction; take a query after some steps of descent.")
    margins = svm.differences @ query
    inputs = np.unique(svm.pairs[:, 0])
    others = [margins[svm.pairs[:, 0] == i] for i in inputs]
    leak = np.array([len(own) * np.exp(-max(float(own.min()), 0.0)) for own in others])  # beyond 1 it says nothing
    asked = svm.wanted > 0
    # rows that ask for 0 have no share in sum lambda wanted = |p_mm|^2: where their margins are >= 0 they may be left out
    eased = (~asked).any()
    counted = margins[asked] if eased and margins[~asked].min() >= 0 else margins
    least = float(counted.min()) / length
    bound = -1.0 if eased and least < 0 else least * svm.length
    return Certificate(least, bound, float(query @ svm.p) / (length * svm.length), np.minimum(leak, 1.0))
