"""Canonical forms: what an expression is on a box as a sum of monomials in atoms (monomials.py), by rules with proved conditions.

Sums and products are expanded, powers and logarithms taken apart (powers.py), |a|, min and max decided where the box decides
them; every other operation is an atom of its canonical argument.  Whether something is positive on the box is proved by
enclosures (signs.py).  An operation that is not defined everywhere, such as a quotient, must be shown to be defined on the box;
where a form is the same as one whose sign is known, that is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from maxaffine.checker.monomials import EAGER, ONE, WHY, Algebra, Atom, Form, expanded_terms, key_of, number
from maxaffine.checker.powers import Powers
from maxaffine.checker.proved import NotProved
from maxaffine.checker.signed_forms import SignedForms, normal
from maxaffine.checker.signs import Sign
from maxaffine.core.arrays import Array
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import PARTIAL, Node

NODES = 20_000
MOST_SHOWN = 40  # forms that one of which something is required is compared with
UNDEFINED = "its target could not be shown to be defined on the whole box."


class Forms:
    """The canonical forms of all nodes of some expressions of the same variables, on a box."""

    def __init__(self, names: Sequence[str], low: Array, high: Array) -> None:
        self.algebra = Algebra()
        self.signed = SignedForms(self.algebra, names, low, high)
        self.powers = Powers(self.algebra, self.signed)
        self._forms: dict[int, Form] = {}
        self._defined: set[Any] = set()
        self._shown: list[tuple[Form, Sign]] = []  # forms of which something was required and shown
        self._pending: list[tuple[str, Any, int]] = []  # kind, key, and the sign of a form's leading coefficient

    def of(self, expression: Expression) -> Form:
        """The form of an expression's only output."""
        if len(expression.nodes) > NODES:
            raise NotProved(WHY)
        graph = self.signed.graph
        places = graph.include(expression.nodes)
        for place in places:
            if place not in self._forms:
                node = graph.nodes[place]
                self._forms[place] = self._node(place, node, [self._forms[a] for a in node.args])
        return self._forms[places[expression.outputs[0]]]

    def same(self, a: Form, b: Form) -> bool:
        """Whether two forms are shown to be the same function."""
        return self.powers.vanishing.same(a, b)

    def settle_pending(self) -> None:
        """NotProved unless all that had to be positive, not 0 or defined was shown to be so, here or where it was the same."""
        for kind, key, lead in self._pending:
            known = key in self._defined if kind == "defined" else _meets(kind, self.signed.recalled(key, lead))
            if not known and not (kind != "defined" and self._met_elsewhere(kind, key, lead)):
                raise NotProved(UNDEFINED)

    def _met_elsewhere(self, kind: str, key: Any, lead: int) -> bool:
        """Whether a form is the same function as one of which this was shown, such as sums of squares written apart."""
        form = {m: c * lead for m, c in key}
        return any(_meets(kind, sign) and self._multiple(form, other) for other, sign in self._shown[:MOST_SHOWN])

    def _multiple(self, form: Form, other: Form) -> bool:
        """Whether a form is another one times a positive number; tried is the ratio of a term that both have."""
        ratios = {form[m] / other[m] for m in form if m in other}
        return any(r > 0 and self.same(form, self.algebra.scaled(other, r)) for r in sorted(ratios)[:2])

    # ------------------------------------------------------------------ nodes

    def _node(self, place: int, node: Node, args: list[Form]) -> Form:
        op, algebra = node.op, self.algebra
        if op == "const":
            return number(node.data)
        if op == "pi":
            return algebra.power(algebra.pi, 1)
        if op == "e":
            return self.powers.exponential(ONE)
        if op == "lin":
            total = algebra.plus(args[0], *(algebra.times(c, a) for c, a in zip(args[1::2], args[2::2], strict=True)))
            return self.powers.beside_root(total)
        if op == "prod":
            return self._product(args, node)
        if op == "div":
            self._require("nonzero", args[1], node.args[1])
            return algebra.times(args[0], self.powers.inverse(args[1], node.args[1]))
        if op in ("sqrt", "powr", "cbrt"):
            return self._rooted(args[0], node)
        if op in ("exp", "expm1"):
            return algebra.plus(self.powers.exponential(args[0]), number(-1 if op == "expm1" else 0))
        if op in ("log", "log1p", "pow"):
            return self._logarithmic(node, args)
        if op == "tan":
            return self._tangent(place, node, args)
        if op in ("abs", "min", "max"):
            return self._switch(place, node, args)
        if op in PARTIAL:
            self._require_defined(place, node, args)
        if len(args) == 1 and node.data is None:
            return self.powers.function(op, args[0], place)
        return self._opaque(place, node, args)

    def _opaque(self, place: int, node: Node, args: list[Form]) -> Form:
        """An operation that stands for itself, as variables do."""
        a = self.algebra.atom(Atom(node.op, node.data, tuple(key_of(form) for form in args)))
        self.signed.stands.setdefault(a, place)
        return self.algebra.power(a, 1)

    def _product(self, args: list[Form], node: Node) -> Form:
        """Expanded where that is short; where it is not, sums stay together as atoms."""
        total, parts = 1, []
        for form, n in zip(args, node.data, strict=True):
            total *= expanded_terms(form, n)
        for form, n, place in zip(args, node.data, node.args, strict=True):
            if len(form) <= 1 or total <= EAGER:
                parts.append(self.algebra.raised(form, n))
            else:
                scale, common, rest = self.powers.content(form)
                held = self.algebra.power(self.powers.sum_atom(rest, place if rest == form else None), n)
                parts.append(self.algebra.times(self.algebra.raised({common: scale}, n), held))
        return self.algebra.product(*parts)

    def _rooted(self, form: Form, node: Node) -> Form:
        """sqrt, cbrt and real powers."""
        place = node.args[0]
        if node.op != "cbrt":
            exponent = Fraction(1, 2) if node.op == "sqrt" else Fraction(node.data)
            self._require("nonnegative" if exponent > 0 else "positive", form, place)
            return self.powers.root(form, place, exponent)
        sign = self.signed.sign(form, place).value
        if not sign:
            return self.powers.function("cbrt", form)
        if sign < 0:
            form, place = self.algebra.scaled(form, Fraction(-1)), self.signed.graph.negate(place)
        return self.algebra.scaled(self.powers.root(form, place, Fraction(1, 3)), Fraction(sign))

    def _logarithmic(self, node: Node, args: list[Form]) -> Form:
        """log u, log(1 + u), and u^v = exp(v log u)."""
        form, place = args[0], node.args[0]
        if node.op == "log1p":
            form, place = self.algebra.plus(form, ONE), self.signed.graph.add(self.signed.graph.one, place)
        self._require("positive", form, place)
        found = self.powers.logarithm(form, place)
        return self.powers.exponential(self.algebra.times(args[1], found)) if node.op == "pow" else found

    def _tangent(self, place: int, node: Node, args: list[Form]) -> Form:
        """sin/cos."""
        self._require_defined(place, node, args)
        sine, cosine = (self.powers.function(op, args[0]) for op in ("sin", "cos"))
        return self.algebra.times(sine, self.powers.inverse(cosine))

    def _switch(self, place: int, node: Node, args: list[Form]) -> Form:
        """abs, min and max where the box decides them."""
        if node.op == "abs":
            sign = self.signed.sign(args[0], node.args[0]).value
            return self.algebra.scaled(args[0], Fraction(sign)) if sign else self.powers.function("abs", args[0], place)
        apart = self.algebra.minus(args[0], args[1])
        sign = self.signed.sign(apart, self.signed.graph.subtract(node.args[0], node.args[1])).value
        if apart and not sign:
            return self._opaque(place, node, args)
        return args[0] if (sign >= 0) == (node.op == "max") else args[1]

    # ------------------------------------------------------------------ conditions

    def _require(self, kind: str, form: Form, place: int) -> None:
        """That a form is not 0, not negative or positive, here or where the same form stands again."""
        if not form:
            if kind != "nonnegative":
                raise NotProved(UNDEFINED)
            return
        sign = self.signed.sign(form, place)
        if _meets(kind, sign):
            self._shown.append((form, sign))
        else:
            self._pending.append((kind, *normal(form)))

    def _require_defined(self, place: int, node: Node, args: list[Form]) -> None:
        """That an operation is defined on the whole box, here or where the same one stands again."""
        key = (node.op, node.data, tuple(key_of(form) for form in args))
        if self.signed.signs.defined(place):
            self._defined.add(key)
        else:
            self._pending.append(("defined", key, 1))


def _meets(kind: str, sign: Sign) -> bool:
    if kind == "nonzero":
        return sign.strict and sign.value != 0
    return sign.value > 0 and (sign.strict or kind == "nonnegative")
