"""Is a choice of tokens locally optimal: is every chosen token better than the tokens it touches on the margin?

Locally optimal: ATT-SVM(alpha) is feasible and gamma_i,alpha_i > gamma_it for every support pair (i, t). Two warnings go with
it: a pair with a small slack is nearly a support pair, and an input without any support pair is not decided by the limit at
all, since its own drive vanishes too fast ever to correct it.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from maxaffine.core.arrays import AnyArray
from maxaffine.margin.distance import NotSeparable
from maxaffine.margin.problem import Tokens
from maxaffine.margin.svm import AttSvm, att_svm

NEAR = 0.1  # slack of a pair below which what happens is not decidable in any practical time


class Optimality(Enum):
    """What a choice is."""

    GLOBAL = "globally optimal: every input has its token of the highest score"
    LOCAL = "locally optimal: better than every token that it touches on the margin"
    NOT = "not locally optimal: a token on the margin has at least the same score, so descent leaves it"
    INFEASIBLE = "not separable: no query selects these tokens"


@dataclass(frozen=True)
class Locality:
    """The answer, with what makes it late or empty."""

    status: Optimality
    svm: AttSvm | None
    worse: tuple[tuple[int, int], ...]  # support pairs (i, t) with a score not below the chosen token's
    near: tuple[tuple[int, int], ...]  # pairs with slack below 0.1 that are no support pairs
    undetermined: tuple[int, ...]  # inputs without a support pair, whose token the limit does not determine

    @property
    def attracts(self) -> bool:
        """Whether descent can end here."""
        return self.status in (Optimality.GLOBAL, Optimality.LOCAL)

    @property
    def decided(self) -> bool:
        """Whether no near-support could still overturn the answer in practical time."""
        return not self.near


def is_locally_optimal(problem: Tokens, tokens: AnyArray) -> Locality:
    """Decide it for one token per input."""
    alpha = problem.chosen(tokens)
    try:
        svm = att_svm(problem.keys, alpha)
    except NotSeparable:
        return Locality(Optimality.INFEASIBLE, None, (), (), ())
    i, t = svm.pairs.T
    better = problem.scores[i, alpha[i]] - problem.scores[i, t] > 0
    worse, near = svm.touching & ~better, ~svm.touching & (svm.slack < NEAR)
    alone = sorted(set(range(problem.shape[0])) - {i for i, _ in svm.supports})
    status = Optimality.NOT if worse.any() else Optimality.LOCAL
    top = problem.scores[np.arange(len(alpha)), alpha] >= problem.scores.max(axis=1)
    if status is Optimality.LOCAL and top.all():
        status = Optimality.GLOBAL
    return Locality(status, svm, _pairs(svm.pairs[worse]), _pairs(svm.pairs[near]), tuple(alone))


def _pairs(rows: AnyArray) -> tuple[tuple[int, int], ...]:
    return tuple((int(i), int(t)) for i, t in rows)
