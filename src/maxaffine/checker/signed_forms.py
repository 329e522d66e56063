"""Signs of forms on a box: by the signs of their terms, by what is known of equal forms, or by enclosures."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from maxaffine.checker.monomials import WHY, Algebra, Form, Monomial
from maxaffine.checker.proved import NotProved
from maxaffine.checker.signs import POSITIVE, UNKNOWN, Sign, Signs
from maxaffine.core.arrays import Array
from maxaffine.expression.graph import Graph

HALF = Fraction(1, 2)
MOST_BESIDE = 40  # terms of a sum with a root that are squared

ALWAYS_POSITIVE = frozenset({"exp", "pi", "prime", "cosh", "sigmoid"})


class SignedForms:
    """What stands for atoms in a graph of expressions, and the signs of forms on the box."""

    def __init__(self, algebra: Algebra, names: Sequence[str], low: Array, high: Array) -> None:
        self.algebra, self.graph = algebra, Graph()
        self.signs = Signs(self.graph, tuple(names), low, high)
        self.stands: dict[int, int] = {}  # places of atoms
        self._known: dict[Any, Sign] = {}  # signs of forms, up to a factor

    def sign(self, form: Form, place: int | None) -> Sign:
        """The sign of a form on the box, by its terms, by what is known of it, or by an enclosure of what stands at a place."""
        if not form:
            return UNKNOWN
        key, lead = normal(form)
        found = self.recalled(key, lead)
        if not found.strict:
            by_terms = self._by_terms(form)
            found = by_terms if by_terms.strict or not found.value else found
        if not found.strict:
            beside = self.outweighed(form)
            found = found if beside is None else Sign(self._by_terms({beside[0]: form[beside[0]]}).value, True)
        if not found.strict:
            seen = self.signs.of(self.build(form) if place is None else place)
            found = seen if seen.strict or not found.value else found
        if found.value:
            self._known[key] = found if lead > 0 else found.negated
        return found

    def recalled(self, key: Any, lead: int) -> Sign:
        """The sign that is known of the form `normal` made this of."""
        found = self._known.get(key, UNKNOWN)
        return found if lead > 0 else found.negated

    def _by_terms(self, form: Form) -> Sign:
        """Where all terms have one sign."""
        signs = []
        for m, c in form.items():
            sign = POSITIVE if c > 0 else POSITIVE.negated
            for a, e in m:
                sign = sign.times(self._power_sign(a, e))
            signs.append(sign)
        values = {sign.value for sign in signs}
        if len(values) != 1:
            return UNKNOWN
        return Sign(values.pop(), any(sign.strict for sign in signs))

    def may_outweigh(self, form: Form) -> bool:
        """Whether just one term of a sum has a root of a sum."""
        return 1 < len(form) <= MOST_BESIDE and sum(self._rooted(m) is not None for m in form) == 1

    def outweighed(self, form: Form) -> tuple[Monomial, Form] | None:
        """The term r of r + t that has a root, and r^2 - t^2, where that is positive: then r + t has the sign of r."""
        if not self.may_outweigh(form):
            return None
        (root,) = (m for m in form if self._rooted(m) is not None)
        a, algebra = self._rooted(root), self.algebra
        assert a is not None
        others = {m: c for m, c in form.items() if m != root}
        inside: Form = dict(algebra.atoms[a].args[0])
        square = algebra.product(algebra.raised({root: form[root]}, 2), algebra.power(a, -1), inside)
        apart = algebra.minus(square, algebra.raised(others, 2))
        good = apart and self._by_terms(apart) == POSITIVE and self._by_terms({root: form[root]}).value
        return (root, apart) if good else None

    def _rooted(self, m: Monomial) -> int | None:
        """The sum under a square root in a monomial."""
        return next((a for a, e in m if e == HALF and self.algebra.atoms[a].op == "sum"), None)

    def _power_sign(self, a: int, e: Fraction) -> Sign:
        sign = self.of_atom(a)
        if e.denominator != 1 or e % 2 == 0:  # roots are taken of what is not negative alone
            return Sign(1, sign.strict) if self.algebra.atoms[a].op not in ("i", "cis") else UNKNOWN
        return sign

    def of_atom(self, a: int) -> Sign:
        """The sign of an atom on the box."""
        atom = self.algebra.atoms[a]
        if atom.op in ALWAYS_POSITIVE:
            return POSITIVE if atom.op != "exp" or self._is_real(atom.data) else UNKNOWN
        if atom.op in ("i", "cis"):
            return UNKNOWN
        if atom.op == "sum":
            return self.sign(dict(atom.args[0]), self.stands.get(a))
        if a not in self.stands:
            self.stands[a] = self._built_atom(a)
        return self.signs.of(self.stands[a])

    def _is_real(self, m: Monomial) -> bool:
        return all(self.algebra.atoms[a].op not in ("i", "cis") for a, _ in m)

    # ------------------------------------------------------------------ back to expressions, for enclosures

    def build(self, form: Form) -> int:
        """A place of the graph that is this form."""
        graph = self.graph
        total = []
        for m, c in form.items():
            powers = [graph.power(self._built_atom(a), graph.number(e)) for a, e in m]
            total.append(graph.multiply(graph.number(c), graph.product(powers)))
        return graph.total(total)

    def _built_atom(self, a: int) -> int:
        if a in self.stands:
            return self.stands[a]
        atom, graph = self.algebra.atoms[a], self.graph
        if atom.op == "pi":
            place = graph.make("pi")
        elif atom.op == "prime":
            place = graph.number(atom.data)
        elif atom.op == "exp":
            place = graph.apply("exp", self.build({atom.data: Fraction(1)}))
        elif atom.op == "sum":
            place = self.build(dict(atom.args[0]))
        elif len(atom.args) == 1 and atom.op not in ("i", "cis"):
            place = graph.apply(atom.op, self.build(dict(atom.args[0])))
        else:
            raise NotProved(WHY)
        self.stands[a] = place
        return place


def normal(form: Form) -> tuple[Any, int]:
    """A form up to a factor, and the sign of that."""
    lead = min(form.items())[1]
    return tuple(sorted((m, c / lead) for m, c in form.items())), 1 if lead > 0 else -1
