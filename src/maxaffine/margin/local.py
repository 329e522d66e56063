"""Is a choice of tokens locally optimal: is every chosen token better than the tokens it touches on the margin?

Locally optimal: ATT-SVM(alpha) is feasible and gamma_i,alpha_i > gamma_it for every support pair (i, t). Two warnings go with
it: a pair with a small slack is nearly a support pair, and an input without any support pair is not decided by the limit at
all, since its own drive vanishes too fast ever to correct it.

Tokens of one score pull the query neither way, to first order. A choice is locally optimal up to ties if it is so in the
machine that asks of such pairs >= 0 alone; descent then goes in direction to that machine's query.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.margin.distance import NotSeparable
from maxaffine.margin.problem import Tokens
from maxaffine.margin.svm import AttSvm, att_svm

NEAR = 0.1  # slack of a pair below which what happens is not decidable in any practical time


class Optimality(Enum):
    """What a choice is."""

    GLOBAL = "globally optimal: every input has its token of the highest score"
    LOCAL = "locally optimal: better than every token that it touches on the margin"
    TIED = "locally optimal up to ties: better than every token on the margin but those of its own score"
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
        return self.status in (Optimality.GLOBAL, Optimality.LOCAL, Optimality.TIED)

    @property
    def decided(self) -> bool:
        """Whether no near-support could still overturn the answer in practical time."""
        return not self.near


def is_locally_optimal(problem: Tokens, tokens: AnyArray) -> Locality:
    """Decide it for one token per input; where ties decide, the machine is the one up to ties."""
    alpha = problem.chosen(tokens)
    plain = _machine(problem, alpha, None)
    if plain is not None and _status(problem, plain) is not Optimality.NOT:
        return _told(problem, plain)
    tied = _machine(problem, alpha, problem.scores)
    if tied is not None and ((tied.wanted == 0).all() or (plain is not None and _status(problem, tied) is Optimality.NOT)):
        tied = None
    svm = plain if tied is None else tied
    return Locality(Optimality.INFEASIBLE, None, (), (), ()) if svm is None else _told(problem, svm)


def _machine(problem: Tokens, alpha: AnyArray, scores: Array | None) -> AttSvm | None:
    try:
        return att_svm(problem.keys, alpha, scores=scores)
    except NotSeparable:
        return None


def _told(problem: Tokens, svm: AttSvm) -> Locality:
    asked, touching = svm.wanted > 0, svm.touching
    worse, near = asked & touching & ~_better(problem, svm), asked & ~touching & (svm.slack < NEAR)
    alone = sorted(set(range(problem.shape[0])) - {int(i) for i in svm.pairs[asked & touching, 0]})
    return Locality(_status(problem, svm), svm, _pairs(svm.pairs[worse]), _pairs(svm.pairs[near]), tuple(alone))


def _better(problem: Tokens, svm: AttSvm) -> AnyArray:
    i, t = svm.pairs.T
    found: AnyArray = problem.scores[i, svm.tokens[i]] > problem.scores[i, t]
    return found


def _status(problem: Tokens, svm: AttSvm) -> Optimality:
    asked = svm.wanted > 0
    if (asked & svm.touching & ~_better(problem, svm)).any():
        return Optimality.NOT
    chosen = problem.scores[np.arange(len(svm.tokens)), svm.tokens]
    if (chosen >= problem.scores.max(axis=1)).all():
        return Optimality.GLOBAL
    return Optimality.LOCAL if asked.all() else Optimality.TIED


def _pairs(rows: AnyArray) -> tuple[tuple[int, int], ...]:
    return tuple((int(i), int(t)) for i, t in rows)
