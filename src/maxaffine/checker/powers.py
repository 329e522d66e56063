"""Roots, inverses, logarithms and exponentials of forms, where something is known of their signs on the box.

    (a^p b^q)^r = a^pr b^qr        log(a^p b^q) = p log a + q log b        exp(k log a) = a^k
    exp(k asinh u) = (u + sqrt(u^2 + 1))^k                         (2x + 2y)^-1 = (x + y)^-1 / 2

Sums under a root are taken apart into content, common factors and, where they are small, irreducible factors; a factor leaves a
root only with a sign that is proved.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import flint

from maxaffine.checker.monomials import EAGER, ONE, UNIT, WHY, Algebra, Atom, Form, Monomial, expanded_terms, key_of
from maxaffine.checker.proved import NotProved
from maxaffine.checker.signed_forms import SignedForms
from maxaffine.checker.vanishing import Vanishing

ALIKE = 60  # atoms that a new one is compared with
FACTORS = (40, 8, 10)  # terms, atoms and degree of sums that are factored
FACTORING = 3_000  # products of terms that it counts as
ODD = frozenset({"sin", "sinh", "tanh", "asin", "atan", "asinh", "atanh", "erf", "cbrt"})
EVEN = frozenset({"cos", "cosh", "abs"})
SMALL_PRIMES = 1_000

Parts = list[tuple[Form, int]]


class Powers:
    """Atoms that are functions of forms, and powers, logarithms and exponentials of forms."""

    def __init__(self, algebra: Algebra, signed: SignedForms) -> None:
        self.algebra, self.signed = algebra, signed
        self.vanishing = Vanishing(algebra, self.exponential)
        self._alike: dict[str, list[int]] = {}

    # ------------------------------------------------------------------ atoms

    def function(self, op: str, form: Form, place: int | None = None) -> Form:
        """The atom op(form), without the sign of its argument where it is odd or even; `place` is where it stands."""
        sign = Fraction(1)
        if form and op in ODD | EVEN and min(form.items())[1] < 0:
            form, place = self.algebra.scaled(form, Fraction(-1)), None
            sign = Fraction(-1 if op in ODD else 1)
        a = self._interned(op, form)
        if place is not None:
            self.signed.stands.setdefault(a, place)
        return self.algebra.scaled(self.algebra.power(a, 1), sign)

    def sum_atom(self, form: Form, place: int | None = None) -> int:
        """A sum that stands for itself."""
        a = self._interned("sum", form)
        if place is not None:
            self.signed.stands.setdefault(a, place)
        return a

    def _interned(self, op: str, form: Form) -> int:
        """The atom op(form), or one that is the same because the difference of their arguments vanishes."""
        self.algebra.spend(len(form))
        atom = Atom(op, None, (key_of(form),))
        if atom in self.algebra.places:
            return self.algebra.places[atom]
        others = self._alike.setdefault(op, [])
        for other in others[-ALIKE:]:
            if self.vanishing.same(form, dict(self.algebra.atoms[other].args[0])):
                return other
        a = self.algebra.atom(atom)
        others.append(a)
        return a

    # ------------------------------------------------------------------ powers

    def content(self, form: Form) -> tuple[Fraction, Monomial, Form]:
        """form = number * monomial * rest, where the rest is a sum whose leading coefficient is 1."""
        least: dict[int, Fraction] = {}
        for i, m in enumerate(form):
            here = dict(m)
            for a in {*least, *here}:
                least[a] = min(least.get(a, Fraction(0)) if i else here[a], here.get(a, Fraction(0)))
        _, common = self.algebra.settle(least)
        rest = self._with_sums_expanded(self.algebra.times(form, self._inverted({common: Fraction(1)})))
        if not rest:  # a sum of several terms that is 0 after all
            raise NotProved(WHY)
        scale = min(rest.items())[1]
        return scale, common, self.algebra.scaled(rest, 1 / scale)

    def _with_sums_expanded(self, form: Form) -> Form:
        """With whole powers of sums expanded where that is short."""
        whole: list[Form] = []
        for m, c in form.items():
            sums = [(a, e) for a, e in m if self.algebra.atoms[a].op == "sum" and e.denominator == 1 and e > 0]
            sums = [(a, e) for a, e in sums if not self._holds_root(a)]
            forms = [(dict(self.algebra.atoms[a].args[0]), int(e)) for a, e in sums]
            if not sums or any(expanded_terms(f, n) > EAGER for f, n in forms):
                whole.append({m: c})
            else:
                others: Form = {tuple(pair for pair in m if pair not in sums): c}
                whole.append(self.algebra.product(others, *(self.algebra.raised(f, n) for f, n in forms)))
        return self.algebra.plus(*whole)

    def _holds_root(self, a: int) -> bool:
        """Whether a sum that stands for itself has a root for a term, beside which its sign is known."""
        return any(e.denominator > 1 for m, _ in self.algebra.atoms[a].args[0] for _, e in m)

    def inverse(self, form: Form, place: int | None = None) -> Form:
        """1/form of what is not 0; it stands at `place`."""
        if len(form) == 1:
            return self._inverted(form)
        scale, common, rest = self.content(form)
        whole = self._inverted({common: scale})
        more, parts = self._factored(rest)
        for part, n in parts:
            if len(part) == 1:
                whole = self.algebra.times(whole, self._inverted(self.algebra.raised(part, n)))
            else:
                a = self.sum_atom(part, place if part == form else None)
                whole = self.algebra.times(whole, self.algebra.power(a, -n))
        return self.algebra.scaled(whole, 1 / more)

    def _inverted(self, form: Form) -> Form:
        """1/form of one term."""
        ((m, c),) = form.items()
        k, settled = self.algebra.settle({a: -e for a, e in m})
        return {settled: k / c}

    def root(self, form: Form, place: int | None, exponent: Fraction) -> Form:
        """form^exponent of what is not negative; it stands at `place`."""
        if not form:
            return {}
        scale, parts = self._apart(form, place)
        whole = self._number_to(scale, exponent)
        for a, e in parts:
            whole = self.algebra.times(whole, self.algebra.power(a, e * exponent))
        return whole

    def logarithm(self, form: Form, place: int) -> Form:
        """log(form) of what is positive; it stands at `place`."""
        scale, parts = self._apart(form, place)
        total = [self.algebra.scaled(self.function("log", {UNIT: Fraction(p)}), Fraction(n)) for p, n in _primes(scale)]
        for a, e in parts:
            atom = self.algebra.atoms[a]
            if atom.op == "exp":
                total.append({atom.data: e})
            else:
                base = {UNIT: Fraction(atom.data)} if atom.op == "prime" else self.algebra.power(a, 1)
                total.append(self.algebra.scaled(self.function("log", base), e))
        return self.algebra.plus(*total)

    def exponential(self, form: Form) -> Form:
        """exp(form): exp(c m) is the atom exp(m) to the power c, and exp(c log a) is a^c."""
        whole: Form = ONE
        for m, c in form.items():
            part = self._of_logarithm(m, c) or self._of_area(m, c)
            whole = self.algebra.times(whole, part or self.algebra.power(self.algebra.atom(Atom("exp", m)), c))
        return whole

    def _of_logarithm(self, m: Monomial, c: Fraction) -> Form | None:
        """a^c where the monomial is log(a), of an atom or a rational number."""
        if len(m) != 1 or m[0][1] != 1 or self.algebra.atoms[m[0][0]].op != "log":
            return None
        base = self.algebra.atoms[m[0][0]].args[0]
        if len(base) != 1:
            return None
        (n, scale) = base[0]
        if not n:
            return self._number_to(scale, c)
        return self.algebra.power(n[0][0], c) if scale == 1 and len(n) == 1 and n[0][1] == 1 else None

    def _of_area(self, m: Monomial, c: Fraction) -> Form | None:
        """exp(c asinh u) = (u + sqrt(u^2 + 1))^c."""
        if len(m) != 1 or m[0][1] != 1 or self.algebra.atoms[m[0][0]].op != "asinh":
            return None
        u: Form = dict(self.algebra.atoms[m[0][0]].args[0])
        square = self.algebra.plus(self.algebra.raised(u, 2), ONE)
        whole = self.algebra.plus(u, self.root(square, None, Fraction(1, 2)))
        return self.root(self.beside_root(whole), None, c)

    def beside_root(self, form: Form) -> Form:
        """A sum r + t of a root and what it outweighs, as one atom: its powers, taken apart, would not show that it is not 0.

        Where r and the leading term of t have two signs it is (r^2 - t^2)/(r - t).
        """
        if not self.signed.may_outweigh(form):
            return form
        scale, common, rest = self.content(form)
        found = self.signed.outweighed(rest)
        if found is None:
            return form
        root, apart = found
        others = {m: c for m, c in rest.items() if m != root}
        whole = self.algebra.power(self.sum_atom(rest), 1)
        if (min(others.items())[1] > 0) != (rest[root] > 0):
            other = self.algebra.plus({root: rest[root]}, self.algebra.scaled(others, Fraction(-1)))
            lead = min(other.items())[1]
            below = self.algebra.power(self.sum_atom(self.algebra.scaled(other, 1 / lead)), -1)
            whole = self.algebra.scaled(self.algebra.times(self.root(apart, None, Fraction(1)), below), 1 / lead)
        return self.algebra.times({common: scale}, whole)

    def _number_to(self, value: Fraction, exponent: Fraction) -> Form:
        """value^exponent of a positive rational number, by its primes."""
        exponents = {self.algebra.atom(Atom("prime", p)): n * exponent for p, n in _primes(value)}
        k, settled = self.algebra.settle(exponents)
        return {settled: k}

    # ------------------------------------------------------------------ what stands under a root

    def _apart(self, form: Form, place: int | None) -> tuple[Fraction, list[tuple[int, Fraction]]]:
        """form = positive number * prod atom^exponent, for a form that is not negative; no atom is negative."""
        if len(form) == 1:
            ((m, c),) = form.items()
            scale, common, rest = c, m, ONE
        else:
            scale, common, rest = self.content(form)
        whole = len(form) == 1 or self.signed.sign(rest, place if rest == form else None).strict
        if whole and all(self.signed.of_atom(a).value for a, _ in common):
            loose = set[int]()
        else:  # a factor that may be 0 stays under the root, because what is left may be negative there
            loose = {a for a, _ in common if not self.signed.of_atom(a).strict}
        flips = sum(int(e) for a, e in common if a not in loose and self.signed.of_atom(a).value < 0)
        parts = [(self._absolute(a), e) for a, e in common if a not in loose]
        left = self.algebra.times(rest, {tuple((a, e) for a, e in common if a in loose): Fraction(1)})
        left = self.algebra.scaled(left, Fraction((-1 if scale < 0 else 1) * (-1 if flips % 2 else 1)))
        if left == ONE:
            return abs(scale), parts
        if not any(left):  # a negative number times what is positive
            raise NotProved(WHY)
        more, found = self._split(left)
        for part, n in found:
            parts.append((self.sum_atom(part, place if part == form else None), Fraction(n)))
        return abs(scale) * more, parts

    def _absolute(self, a: int) -> int:
        """An atom for |a|, of an atom whose sign is known (a negative one has whole exponents)."""
        if self.signed.of_atom(a).value > 0:
            return a
        atom = self.algebra.atoms[a]
        inside: Form = dict(atom.args[0]) if atom.op == "sum" else self.algebra.power(a, 1)
        return self.sum_atom(self.algebra.scaled(inside, Fraction(-1)))

    def _split(self, form: Form) -> tuple[Fraction, Parts]:
        """What is not negative as a positive number and positive factors where all have a sign; else as it stands."""
        stands = Fraction(1), [(form, 1)]
        if len(form) == 1:
            return stands
        scale, parts = self._factored(form)
        found, whole = [], 1 if scale > 0 else -1
        for part, n in parts:
            sign = self.signed.sign(part, None)
            if not (sign.strict and sign.value):
                return stands
            found.append((self.algebra.scaled(part, Fraction(sign.value)), n))
            whole *= sign.value**n
        return (abs(scale), found) if whole > 0 else stands

    def _factored(self, form: Form) -> tuple[Fraction, Parts]:
        """Irreducible factors of a polynomial in atoms, where it is small: number * prod factor^n is the form."""
        stands = Fraction(1), [(form, 1)]
        atoms = sorted({a for m in form for a, _ in m})
        terms, most, degree = FACTORS
        if len(form) > terms or len(atoms) > most or any(e.denominator != 1 or e < 0 for m in form for _, e in m):
            return stands
        if any(sum(e for _, e in m) > degree for m in form):
            return stands
        self.algebra.spend(FACTORING)
        context = flint.fmpq_mpoly_ctx.get(tuple(f"a{a}" for a in atoms), "lex")
        rows = {tuple(int(dict(m).get(a, 0)) for a in atoms): flint.fmpq(c.numerator, c.denominator) for m, c in form.items()}
        _, found = context.from_dict(rows).factor()
        parts = []
        for one, n in found:
            part = _form_of(one, atoms)
            parts.append((self.algebra.scaled(part, 1 / min(part.items())[1]), int(n)))
        whole = self.algebra.product(*(self.algebra.raised(part, n) for part, n in parts))
        scale = min(form.items())[1] / min(whole.items())[1]
        return (scale, parts) if self.algebra.scaled(whole, scale) == form else stands


def _form_of(polynomial: Any, atoms: list[int]) -> Form:
    """A polynomial of flint as a form in these atoms."""
    found = {}
    for powers, c in polynomial.to_dict().items():
        m = tuple((a, Fraction(int(n))) for a, n in zip(atoms, powers, strict=True) if n)
        found[m] = Fraction(int(c.p), int(c.q))
    return found


def _primes(value: Fraction) -> list[tuple[int, int]]:
    """A positive rational number as powers of primes; what is large and has no small factor stays as it is."""
    found: dict[int, int] = {}
    for whole, sign in ((value.numerator, 1), (value.denominator, -1)):
        for p in range(2, SMALL_PRIMES):
            while whole > 1 and whole % p == 0:
                whole //= p
                found[p] = found.get(p, 0) + sign
        if whole > 1:
            rows = [(int(p), int(n)) for p, n in flint.fmpz(whole).factor()] if whole.bit_length() <= 64 else [(whole, 1)]
            for p, n in rows:
                found[p] = found.get(p, 0) + sign * n
    return [(p, n) for p, n in found.items() if n]
