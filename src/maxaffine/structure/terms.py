"""Outputs as signed sums of terms that they share: f_e = sum over the parts p of e of sign_pe T_pk.

    sin(a) + cos(b); sin(a) - cos(b)        T_1 = sin(a), added to both;  T_2 = cos(b), added to one, taken from the other

An entry (r, c), row r of output token c, is numbered r n_out + c.  In the literal layer the values of a key are the same for
all output tokens, and W_O adds columns of attention up: two output tokens share terms that are equal up to their sign, in all
rows.  Rows have values of their own, so terms of the same directions are one part, whatever its rows say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from maxaffine.expression import printing
from maxaffine.expression.expression import Expression
from maxaffine.structure.directions import Directed, Direction

MOST_TERMS = 200

Columns = tuple[tuple[int, int], ...]  # output tokens with signs, the first one +1
Rows = tuple[Fraction, ...]  # the coefficient of a term in every row of an output token


@dataclass(frozen=True)
class Term:
    """A part of some outputs: its entries in its first output token, the further tokens with signs, and its outputs as text."""

    entries: tuple[int, ...]
    also: Columns
    text: str

    def writes(self, n_out: int) -> list[tuple[int, int, int]]:
        """(k, e, sign): output k is added to entry e with that sign."""
        found = [(k, e, 1) for k, e in enumerate(self.entries)]
        return found + [(k, e // n_out * n_out + c, sign) for c, sign in self.also for k, e in enumerate(self.entries)]

    def reach(self, n_out: int) -> set[int]:
        """The entries that it is a term of."""
        return {e for _, e, _ in self.writes(n_out)}


def terms_of(expression: Expression, n_out: int) -> list[Term] | None:
    """The terms of all outputs, those of the same directions and output tokens together; None where they cannot be written."""
    work = Directed(expression)
    rows, graph = expression.count // n_out, work.graph
    known: dict[int, list[list[Fraction]]] = {}  # of a node, coefficients [c][r]
    for e, place in enumerate(expression.outputs):
        constant, parts = graph.terms(work.place[place])
        for node, c in [(graph.one, constant), *parts.items()]:
            value, more = graph.constant_terms(c)
            if more:  # an irrational coefficient stays with its term
                node, value = graph.multiply(c, node), Fraction(1)
            if value:
                known.setdefault(node, [[Fraction(0)] * rows for _ in range(n_out)])[e % n_out][e // n_out] += value
    if len(known) > MOST_TERMS:
        return None
    gathered: dict[tuple[Columns, frozenset[Direction]], list[tuple[int, Rows]]] = {}
    for node, columns in known.items():
        for pattern, own in _patterns(columns):
            gathered.setdefault((pattern, work.directions(node)), []).append((node, own))
    found = [_term(work, pattern, pairs, n_out) for (pattern, _), pairs in _settled(work, gathered).items()]
    return None if any(one is None for one in found) else [one for one in found if one is not None]


def _patterns(columns: Sequence[Sequence[Fraction]]) -> list[tuple[Columns, Rows]]:
    """Output tokens in which a term has the same coefficients, up to one sign."""
    found: list[tuple[list[tuple[int, int]], Rows]] = []
    for c, column in enumerate(columns):
        if not any(column):
            continue
        for pattern, own in found:
            signs = [s for s in (1, -1) if all(a == s * b for a, b in zip(column, own, strict=True))]
            if signs:
                pattern.append((c, signs[0]))
                break
        else:
            found.append(([(c, 1)], tuple(column)))
    return [(tuple(pattern), own) for pattern, own in found]


def _settled(
    work: Directed, gathered: dict[tuple[Columns, frozenset[Direction]], list[tuple[int, Rows]]],
) -> dict[tuple[Columns, frozenset[Direction]], list[tuple[int, Rows]]]:
    """Affine terms of the same output tokens are one, or go with another term of these that has their variables."""
    made: dict[tuple[Columns, frozenset[Direction]], list[tuple[int, Rows]]] = {}
    affine: dict[Columns, list[tuple[int, Rows]]] = {}
    for key, pairs in gathered.items():
        curved = [pair for pair in pairs if work.affine(pair[0]) is None and not work.graph.is_constant(pair[0])]
        if curved:
            made[key] = pairs
        else:
            affine.setdefault(key[0], []).extend(pairs)
    for pattern, pairs in affine.items():
        used = frozenset().union(*(work.variables(work.directions(node)) for node, _ in pairs))
        homes = (key for key in made if key[0] == pattern and used <= work.variables(key[1]))
        made.setdefault(next(homes, (pattern, used)), []).extend(pairs)
    return made


def _term(work: Directed, pattern: Columns, pairs: Sequence[tuple[int, Rows]], n_out: int) -> Term | None:
    """Some nodes with their coefficients as text, row by row."""
    used = [r for r in range(len(pairs[0][1])) if any(own[r] for _, own in pairs)]
    texts = []
    for r in used:
        graph = work.graph
        place = graph.total([graph.multiply(graph.number(own[r]), node) for node, own in pairs])
        text = printing.exact(graph.nodes, work.names, place)
        if text is None:
            return None
        texts.append(text)
    first = pattern[0][0]
    return Term(tuple(r * n_out + first for r in used), pattern[1:], ", ".join(texts))
