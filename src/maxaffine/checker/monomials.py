"""Sums of monomials in atoms, with rational exponents and rational coefficients: the arithmetic of canonical forms.

An atom is a variable, a number such as pi, or an operation on a form.  Three kinds settle what their exponents say:

    p^3/2 = p p^1/2  for primes p          i^2 = -1          cis(pi)^1/2 = i

Work is counted: whoever asks for too much of it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import comb, floor
from typing import Any

from maxaffine.checker.proved import NotProved

Monomial = tuple[tuple[int, Fraction], ...]  # (atom, exponent), by the atoms' numbers
Form = Mapping[Monomial, Fraction]
Key = tuple[tuple[Monomial, Fraction], ...]

UNIT: Monomial = ()
ONE: Form = {UNIT: Fraction(1)}
WORK = 1_500_000  # products of terms
EAGER = 6_000  # terms up to which products of sums are expanded at once
ATOMS = 6_000
BITS = 20_000  # of a coefficient
WHY = "its sum of products could not be shown to be its target."


@dataclass(frozen=True)
class Atom:
    """What stands for itself: an operation, its data and the keys of its arguments (of exp and cis a monomial)."""

    op: str
    data: Any = None
    args: tuple[Any, ...] = ()


def key_of(form: Form) -> Key:
    """A form as something that can be looked up."""
    return tuple(sorted(form.items()))


def number(value: Fraction | int) -> Form:
    """A rational number as a form."""
    return {UNIT: Fraction(value)} if value else {}


class Algebra:
    """Atoms by their numbers, and sums and products of forms."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self.places: dict[Atom, int] = {}
        self.left = WORK
        self.i = self.atom(Atom("i"))
        self.pi = self.atom(Atom("pi"))

    def atom(self, atom: Atom) -> int:
        """The number of an atom, which is added if it is new."""
        found = self.places.get(atom)
        if found is None:
            if len(self.atoms) >= ATOMS:
                raise NotProved(WHY)
            found = self.places[atom] = len(self.atoms)
            self.atoms.append(atom)
        return found

    def spend(self, work: int) -> None:
        """NotProved where more work was asked for than is done for one target."""
        self.left -= work
        if self.left < 0:
            raise NotProved(WHY)

    # ------------------------------------------------------------------ sums and products

    def power(self, atom: int, exponent: Fraction | int) -> Form:
        """atom^exponent."""
        scale, settled = self.settle({atom: Fraction(exponent)})
        return {settled: scale}

    def plus(self, *forms: Form) -> Form:
        """The sum."""
        total: dict[Monomial, Fraction] = {}
        for form in forms:
            self.spend(len(form))
            for m, c in form.items():
                total[m] = total.get(m, Fraction(0)) + c
        return {m: _bounded(c) for m, c in total.items() if c}

    def scaled(self, form: Form, c: Fraction) -> Form:
        """c times a form."""
        self.spend(len(form))
        return {m: _bounded(c * k) for m, k in form.items()} if c else {}

    def minus(self, a: Form, b: Form) -> Form:
        """a - b."""
        return self.plus(a, self.scaled(b, Fraction(-1)))

    def times(self, a: Form, b: Form) -> Form:
        """a b, expanded."""
        self.spend(len(a) * len(b))
        total: dict[Monomial, Fraction] = {}
        for m, c in a.items():
            for n, d in b.items():
                k, joined = self.join(m, n)
                total[joined] = total.get(joined, Fraction(0)) + c * d * k
        return {m: _bounded(c) for m, c in total.items() if c}

    def product(self, *forms: Form) -> Form:
        """The product of several, expanded."""
        whole: Form = ONE
        for form in forms:
            whole = self.times(whole, form)
        return whole

    def raised(self, form: Form, n: int) -> Form:
        """form^n for n >= 0, expanded."""
        if len(form) == 1:
            ((m, c),) = form.items()
            if n * max(c.numerator.bit_length(), c.denominator.bit_length()) > BITS and abs(c) != 1:
                raise NotProved(WHY)
            k, settled = self.settle({a: e * n for a, e in m})
            return {settled: _bounded(k * c**n)}
        self.spend(expanded_terms(form, n))
        whole, square = ONE, form
        while n:
            if n & 1:
                whole = self.times(whole, square)
            n >>= 1
            if n:
                square = self.times(square, square)
        return whole

    def join(self, m: Monomial, n: Monomial) -> tuple[Fraction, Monomial]:
        """The product of two monomials: a rational number times one."""
        if not m or not n:
            return Fraction(1), m or n
        exponents = dict(m)
        for a, e in n:
            exponents[a] = exponents.get(a, Fraction(0)) + e
        return self.settle(exponents)

    def settle(self, exponents: Mapping[int, Fraction]) -> tuple[Fraction, Monomial]:
        """prod atom^exponent as a rational number times a monomial."""
        scale, kept, turns = Fraction(1), {}, Fraction(0)  # turns: powers of i
        for a, e in exponents.items():
            atom = self.atoms[a]
            if atom.op == "prime":
                whole = floor(e)
                if abs(whole) * int(atom.data).bit_length() > BITS:
                    raise NotProved(WHY)
                scale *= Fraction(atom.data) ** whole
                e -= whole
            elif atom.op == "i":
                turns, e = turns + e, Fraction(0)
            elif atom.op == "cis" and atom.data == ((self.pi, Fraction(1)),):
                turns += floor(2 * e)
                e -= Fraction(floor(2 * e), 2)
            if e:
                kept[a] = e
        if turns:
            rest = int(turns) % 4
            scale = -scale if rest >= 2 else scale
            if rest % 2:
                kept[self.i] = Fraction(1)
        return scale, tuple(sorted(kept.items()))


def expanded_terms(form: Form, n: int) -> int:
    """The most terms that form^n has when it is expanded."""
    if len(form) <= 1:
        return 1
    if len(form) > EAGER or n > EAGER:
        return 1 << 40
    return comb(len(form) + n - 1, n)


def _bounded(c: Fraction) -> Fraction:
    if max(c.numerator.bit_length(), c.denominator.bit_length()) > BITS:
        raise NotProved(WHY)
    return c
