"""Norms by folding: hypot(u, w) by absolute values, each taken after a turn by half the angle of the turn before.

    p_0 = |u|,  q_0 = |w|                            the point (p, q) has length r, and its angle is between 0 and t_0 = pi/2
    p_k =  cos t_k p_{k-1} + sin t_k q_{k-1}         t_k = t_{k-1}/2: turned back by t_k, its angle is within t_k of 0,
    q_k = |cos t_k q_{k-1} - sin t_k p_{k-1}|        and mirrored, between 0 and t_k
    hypot(u, w)  =  2 p_K / (1 + cos t_K)            up to r tan(t_K / 2)^2, because r cos t_K <= p_K <= r

Every p_k is affine in |u| and the q before it, so that only absolute values take tokens:

    p_k  =  P_k / (2^k sin t_k),    P_0 = |u|,    P_k = P_{k-1} + 2^k (sin t_k)^2 q_{k-1}

What is never negative needs no absolute value: it is `bare`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from maxaffine.expression.graph import Graph

MOST_FOLDS = 26  # the error of the identity is below 1e-15 of r then


def angle(k: int) -> float:
    """t_k."""
    return math.pi / 2.0 ** (k + 1)


def unfolded(graph: Graph, u: int, w: int, folds: int, bare: tuple[bool, ...], absolute: Callable[[int], int]) -> int:
    """The place of 2 p_K / (1 + cos t_K) for affine u and w; `absolute` gives the place of a new node |.| of an affine form."""

    def wave(op: str, k: int) -> int:
        return graph.apply(op, graph.multiply(graph.number(Fraction(1, 2 ** (k + 1))), graph.make("pi")))

    whole = u if bare[0] else absolute(u)
    q = w if bare[1] else absolute(w)
    for k in range(1, folds + 1):
        sine, cosine = wave("sin", k), wave("cos", k)
        more = graph.multiply(graph.multiply(graph.number(2**k), graph.integer_power(sine, 2)), q)
        if k < folds:
            turned = graph.divide(whole, graph.multiply(graph.number(2**k), cosine))
            q, whole = absolute(graph.subtract(graph.multiply(cosine, q), turned)), graph.add(whole, more)
        else:
            length = graph.multiply(graph.number(2**k), sine)
            middle = graph.multiply(graph.number(Fraction(1, 2)), graph.add(graph.one, cosine))
            whole = graph.divide(graph.add(whole, more), graph.multiply(length, middle))
    return whole


def absolutes(folds: int, bare: tuple[bool, ...]) -> int:
    """How many absolute values there are."""
    return folds + 1 - sum(bare)
