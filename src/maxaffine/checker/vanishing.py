"""Whether a form is 0: sums that stand in denominators are multiplied out, trigonometric functions written by exponentials.

    sin u = (cis u - cis(-u))/2i        tanh u = (exp 2u - 1)/(exp 2u + 1)        |u|^2 = u^2

A form that becomes the empty sum is 0 wherever it is defined: what it is multiplied by is nowhere 0, because it is divided by.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import floor

from maxaffine.checker.monomials import ONE, Algebra, Atom, Form, key_of

UNFOLDED = frozenset({"sum", "sin", "cos", "sinh", "cosh", "tanh", "sigmoid", "abs"})


class Vanishing:
    """Decides by expansion; `exponential` makes the exponential of a form.

    Sums that unfolding puts into denominators are atoms as they are written: to look for an equal one would unfold again.
    """

    def __init__(self, algebra: Algebra, exponential: Callable[[Form], Form]) -> None:
        self.algebra, self._exponential = algebra, exponential

    def same(self, a: Form, b: Form) -> bool:
        """Whether two forms are shown to be the same function."""
        return self.vanishes(self.algebra.minus(a, b))

    def vanishes(self, form: Form) -> bool:
        """Whether a form is shown to be 0."""
        while form:
            a = self._next(form)
            if a is None:
                return False
            form = self._without(form, a)
        return True

    def _next(self, form: Form) -> int | None:
        """The latest atom with something to unfold: later ones are made of earlier ones."""
        loose = [a for m in form for a, e in m if self._folded(a, e)]
        return max(loose, default=None)

    def _folded(self, a: int, e: Fraction) -> bool:
        op = self.algebra.atoms[a].op
        return op in UNFOLDED and not 0 <= e < (2 if op == "abs" else 1)

    def _without(self, form: Form, a: int) -> Form:
        """The form, times a power of the atom so that none is negative, with whole powers unfolded."""
        algebra, step = self.algebra, 2 if self.algebra.atoms[a].op == "abs" else 1
        least = min(dict(m).get(a, Fraction(0)) for m in form)
        lift = step * max(0, -floor(least / step))
        by_power: dict[int, dict[tuple[tuple[int, Fraction], ...], Fraction]] = {}
        for m, c in form.items():
            e = dict(m).get(a, Fraction(0)) + lift
            whole = floor(e / step)
            k, rest = algebra.settle({b: x for b, x in m if b != a} | ({a: e - step * whole} if e != step * whole else {}))
            row = by_power.setdefault(whole, {})
            row[rest] = row.get(rest, Fraction(0)) + c * k
        unfolded = self._unfold(a)
        return algebra.plus(*(algebra.times(algebra.raised(unfolded, n), row) for n, row in by_power.items()))

    def _unfold(self, a: int) -> Form:
        """What an atom is (of |u| its square)."""
        algebra, atom = self.algebra, self.algebra.atoms[a]
        u: Form = dict(atom.args[0])
        if atom.op == "sum":
            return u
        if atom.op == "abs":
            return algebra.raised(u, 2)
        if atom.op in ("sin", "cos"):
            plus, minus = self._circular(u), self._circular(algebra.scaled(u, Fraction(-1)))
            half = Fraction(1, 2)
            if atom.op == "cos":
                return algebra.scaled(algebra.plus(plus, minus), half)
            return algebra.times(algebra.scaled(algebra.minus(minus, plus), half), algebra.power(algebra.i, 1))
        if atom.op in ("sinh", "cosh"):
            plus, minus = self._exponential(u), self._exponential(algebra.scaled(u, Fraction(-1)))
            both = algebra.plus(plus, minus) if atom.op == "cosh" else algebra.minus(plus, minus)
            return algebra.scaled(both, Fraction(1, 2))
        square = self._exponential(algebra.scaled(u, Fraction(2 if atom.op == "tanh" else 1)))
        above = algebra.minus(square, ONE) if atom.op == "tanh" else square
        below = algebra.plus(square, ONE)
        if len(below) < 2:
            return algebra.scaled(above, 1 / next(iter(below.values())) if below else Fraction(0))
        return algebra.times(above, algebra.power(algebra.atom(Atom("sum", None, (key_of(below),))), -1))

    def _circular(self, form: Form) -> Form:
        """exp(i u), a product over the terms of u."""
        whole: Form = ONE
        for m, c in form.items():
            k, settled = self.algebra.settle({self.algebra.atom(Atom("cis", m)): c})
            whole = self.algebra.times(whole, {settled: k})
        return whole
