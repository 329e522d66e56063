"""Expressions as a list of operations, each distinct one once.

A `Node` names its operation and the positions of its arguments; arguments stand before the node, so that walking the list
from front to back evaluates everything once, without recursion.  `Graph` builds such a list and keeps three normal forms:

    lin    c0 + c1 a1 + c2 a2 + ...   c: constants, a: distinct non-constant nodes (for constants: irrational ones)
    prod   a1^n1 a2^n2 ...            n >= 1 integers, distinct a
    const  an exact rational number

so an affine subexpression is one affine form ((x+y)-(x+y) is 0, and 5*(x+y) is 5x + 5y), x*x is x^2, and derivatives share
what they can.  A term is dropped only where it is defined everywhere: log(x)-log(x) keeps the domain of log.  Arguments of roots
are factored where they can be (identities.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from maxaffine.core.errors import BadInput
from maxaffine.expression.identities import exact_value, tightened
from maxaffine.expression.operations import OPERATIONS

MAX_EXPONENT = 1_000_000
MAX_BITS = 20_000

CONDITIONS = frozenset({"negative", "nonpositive", "zero", "and", "or", "not"})
"""Operations whose value is true or false; the first three compare their argument with 0."""

PARTIAL = frozenset(op for op, rule in OPERATIONS.items() if rule.defined is not None)
"""Operations that are not defined for every real argument (the jump_ ones: not where something jumps)."""

PIECEWISE_AFFINE = frozenset({"const", "var", "lin", "max", "min", "abs", "where"}) | CONDITIONS
"""Operations that make piecewise affine functions of piecewise affine ones."""

JUMPING = frozenset({"sign", "floor", "where", "atan2"})
"""Operations that may be discontinuous in their arguments."""


class Node(NamedTuple):
    """One operation: its name, the positions of its arguments, and what else it needs.

    Data are the index of a `var`, the Fraction of a `const` or of the exponent of a `powr`, the exponents of a `prod`, the weight
    of a `unit`; None for all others.
    """

    op: str
    args: tuple[int, ...] = ()
    data: Any = None


class Graph:
    """A growing list of distinct nodes."""

    zero: int
    one: int

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.nodes: list[Node] = []
        self._places: dict[Node, int] = {}
        self._constant: list[bool] = []
        self._total: list[bool] = []
        self.include(nodes)
        self.zero = self.number(0)
        self.one = self.number(1)

    def make(self, op: str, args: tuple[int, ...] = (), data: Any = None) -> int:
        """The place of this node, added if it is new; no simplification."""
        node = Node(op, args, data)
        place = self._places.get(node)
        if place is None:
            place = len(self.nodes)
            self.nodes.append(node)
            self._places[node] = place
            self._constant.append(op != "var" and all(self._constant[a] for a in args))
            self._total.append(op not in PARTIAL and all(self._total[a] for a in args))
        return place

    def include(self, nodes: Iterable[Node], variables: Mapping[int, int] | None = None) -> list[int]:
        """The places of the nodes of another list here, as they stand; `variables` says what stands for a variable."""
        places: list[int] = []
        for node in nodes:
            if node.op == "var" and variables is not None:
                places.append(variables[node.data])
            else:
                places.append(self.make(node.op, tuple(places[a] for a in node.args), node.data))
        return places

    # ------------------------------------------------------------------ looking

    def is_constant(self, place: int) -> bool:
        """True where no variable occurs."""
        return self._constant[place]

    def is_condition(self, place: int) -> bool:
        """True for what is true or false rather than a number."""
        return self.nodes[place].op in CONDITIONS

    def rational(self, place: int) -> Fraction | None:
        """The exact value of a `const` node, else None."""
        return self.nodes[place].data if self.nodes[place].op == "const" else None

    def is_zero(self, place: int) -> bool:
        """True for the number 0."""
        return place == self.zero

    # ------------------------------------------------------------------ numbers

    def number(self, value: Fraction | int) -> int:
        """An exact rational number."""
        return self.make("const", (), Fraction(value))

    def variable(self, index: int) -> int:
        """Coordinate number `index`."""
        return self.make("var", (), index)

    # ------------------------------------------------------------------ sums

    def terms(self, place: int) -> tuple[int, dict[int, int]]:
        """place = c0 + sum_a coefficient[a] * a, with constants c0 and coefficient[a]."""
        node = self.nodes[place]
        if node.op == "lin":
            if self._constant[place]:
                return place, {}
            return node.args[0], dict(zip(node.args[2::2], node.args[1::2], strict=True))
        if self._constant[place]:
            return place, {}
        return self.zero, {place: self.one}

    def constant_terms(self, place: int) -> tuple[Fraction, dict[int, Fraction]]:
        """The same for a constant: irrational constants with rational coefficients."""
        value = self.rational(place)
        if value is not None:
            return value, {}
        node = self.nodes[place]
        if node.op == "lin":
            numbers = [self.rational(a) for a in node.args[1::2]]
            first = self.rational(node.args[0])
            assert first is not None
            return first, {a: c for a, c in zip(node.args[2::2], numbers, strict=True) if c is not None}
        return Fraction(0), {place: Fraction(1)}

    def _join_constant(self, c0: Fraction, terms: Mapping[int, Fraction]) -> int:
        return self._join(self.number(c0), {a: self.number(terms[a]) for a in sorted(terms)})

    def _join(self, c0: int, terms: Mapping[int, int]) -> int:
        kept = {a: c for a, c in terms.items() if not self.is_zero(c) or not self._total[a]}
        if not kept:
            return c0
        if self.is_zero(c0) and len(kept) == 1 and next(iter(kept.values())) == self.one:
            return next(iter(kept))
        args = [c0]
        for a in sorted(kept):
            args += [kept[a], a]
        return self.make("lin", tuple(args))

    def _add_constants(self, a: int, b: int) -> int:
        first, terms = self.constant_terms(a)
        second, more = self.constant_terms(b)
        total = dict(terms)
        for place, c in more.items():
            total[place] = total.get(place, Fraction(0)) + c
        return self._join_constant(first + second, total)

    def add(self, a: int, b: int) -> int:
        """a + b."""
        return self.total((a, b))

    def total(self, places: Iterable[int]) -> int:
        """The sum of several, in one pass."""
        constant, terms = self.zero, dict[int, int]()
        for item in places:
            c0, more = self.terms(item)
            constant = self._add_constants(constant, c0)
            for place, c in more.items():
                terms[place] = self._add_constants(terms[place], c) if place in terms else c
        return self._join(constant, terms)

    def combination(self, args: Sequence[int]) -> int:
        """c0 + c1 a1 + c2 a2 + ... from the arguments (c0, c1, a1, c2, a2, ...) of a `lin`."""
        return self.total([args[0], *(self.multiply(c, a) for c, a in zip(args[1::2], args[2::2], strict=True))])

    def negate(self, a: int) -> int:
        """-a."""
        return self.multiply(self.number(-1), a)

    def subtract(self, a: int, b: int) -> int:
        """a - b."""
        return self.add(a, self.negate(b))

    # ------------------------------------------------------------------ products

    def _multiply_constants(self, a: int, b: int) -> int:
        for c, other in ((a, b), (b, a)):
            value = self.rational(c)
            if value is not None:
                c0, terms = self.constant_terms(other)
                return self._join_constant(value * c0, {p: value * k for p, k in terms.items()})
        return self._product(a, b)

    def multiply(self, a: int, b: int) -> int:
        """a * b."""
        if self._constant[a] and self._constant[b]:
            return self._multiply_constants(a, b)
        for c, other in ((a, b), (b, a)):
            if self._constant[c]:
                if self.rational(c) == 0 and self._total[other]:
                    return self.zero
                c0, terms = self.terms(other)
                first = c0 if terms and self.is_zero(c0) else self._multiply_constants(c, c0)
                return self._join(first, {p: self._multiply_constants(c, k) for p, k in terms.items()})
        scale_a, a = self.unscaled(a)
        scale_b, b = self.unscaled(b)
        product = self._product(a, b)
        scale = self._multiply_constants(scale_a, scale_b)
        return product if scale == self.one else self.multiply(scale, product)

    def product(self, factors: Iterable[int]) -> int:
        """The product of several."""
        result = self.one
        for factor in factors:
            result = self.multiply(result, factor)
        return result

    def monomial(self, powers: Iterable[tuple[int, int]]) -> int:
        """a1^n1 a2^n2 ... from pairs (a, n)."""
        return self.product(self.integer_power(base, n) for base, n in powers)

    def unscaled(self, place: int) -> tuple[int, int]:
        """place = scale * rest, with the constant factor of a single term taken out."""
        node = self.nodes[place]
        if node.op == "lin" and len(node.args) == 3 and self.is_zero(node.args[0]) and not self.is_zero(node.args[1]):
            return node.args[1], node.args[2]
        return self.one, place

    def factors(self, place: int) -> dict[int, int]:
        """place = prod_a a^exponent[a]."""
        node = self.nodes[place]
        if node.op == "prod":
            return dict(zip(node.args, node.data, strict=True))
        return {place: 1}

    def _product(self, a: int, b: int) -> int:
        factors = self.factors(a)
        for base, n in self.factors(b).items():
            factors[base] = factors.get(base, 0) + n
        return self._join_factors(factors)

    def _join_factors(self, factors: Mapping[int, int]) -> int:
        if len(factors) == 1:
            ((base, n),) = factors.items()
            if n == 1:
                return base
        if max(factors.values()) > MAX_EXPONENT:
            raise BadInput(f"a power larger than {MAX_EXPONENT:,} appears; exponents must stay below that.")
        pair = self._sine_and_cosine(factors)
        if pair is not None:
            # sin(u) cos(u) = sin(2u)/2: one occurrence of u.
            sine = pair[0]
            rest = {base: n for base, n in factors.items() if base not in pair}
            twice = self.make("sin", (self.multiply(self.number(2), self.nodes[sine].args[0]),))
            rest[twice] = rest.get(twice, 0) + 1
            return self.multiply(self.number(Fraction(1, 2)), self._join_factors(rest))
        bases = tuple(sorted(factors))
        return self.make("prod", bases, tuple(factors[base] for base in bases))

    def _sine_and_cosine(self, factors: Mapping[int, int]) -> tuple[int, int] | None:
        """Places of sin(u) and cos(u) among factors of power 1."""
        sines = {self.nodes[p].args[0]: p for p, n in factors.items() if n == 1 and self.nodes[p].op == "sin"}
        for p, n in factors.items():
            if n == 1 and self.nodes[p].op == "cos" and self.nodes[p].args[0] in sines:
                return sines[self.nodes[p].args[0]], p
        return None

    def divide(self, a: int, b: int) -> int:
        """a / b."""
        value = self.rational(b)
        if value is not None and value != 0:
            return self.multiply(self.number(1 / value), a)
        if self._constant[b]:
            if self._constant[a]:
                scale, rest = self.unscaled(a)
                return self._multiply_constants(scale, self.make("div", (rest, b)))
            return self.multiply(self.make("div", (self.one, b)), a)
        scale, rest = self.unscaled(a)
        value = self.rational(rest)
        if value is not None and value not in (0, 1):
            scale, rest = rest, self.one
        quotient = self.make("div", (rest, b))
        return quotient if scale == self.one else self.multiply(scale, quotient)

    # ------------------------------------------------------------------ powers

    def power(self, a: int, b: int) -> int:
        """a ** b."""
        exponent = self.rational(b)
        if exponent is None:
            if self.nodes[a].op == "e":
                return self.make("exp", (b,))
            return self.make("pow", (a, b))
        if abs(exponent) > MAX_EXPONENT:
            raise BadInput(f"an exponent of {_short(exponent)} is too large; exponents must lie within {MAX_EXPONENT:,}.")
        if exponent.denominator == 1:
            return self.integer_power(a, int(exponent))
        if exponent == Fraction(1, 2):
            return self.apply("sqrt", a)
        tight = tightened(self, "powr", a, exponent)
        return self.make("powr", (a,), exponent) if tight is None else tight

    def integer_power(self, a: int, n: int) -> int:
        """a ** n for an integer n; a ** 0 is 1, also for a = 0."""
        if n < 0:
            return self.divide(self.one, self.integer_power(a, -n))
        if n == 0:
            return self.one if self._total[a] else self.add(self.one, self.multiply(self.zero, a))
        value = self.rational(a)
        if value is not None:
            if n * max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS and abs(value) != 1:
                raise BadInput(f"the number {_short(value)}**{n} is too large or too small; write it as a decimal such as 1e50.")
            return self.number(value**n)
        scale, rest = self.unscaled(a)
        if scale != self.one and self.rational(scale) is None:
            scale, rest = self.one, a
        factors = self._join_factors({base: k * n for base, k in self.factors(rest).items()})
        return factors if scale == self.one else self.multiply(self.integer_power(scale, n), factors)

    # ------------------------------------------------------------------ the rest

    def apply(self, op: str, *args: int) -> int:
        """A function of the table `functions.UNARY`, or atan2, min, max, where and the conditions."""
        if op == "abs" and self.nodes[args[0]].op == "abs":
            return args[0]
        if op in ("min", "max") and args[0] == args[1]:
            return args[0]
        if op == "where" and args[1] == args[2] and self._total[args[0]]:
            return args[1]
        value = self.rational(args[0]) if len(args) == 1 else None
        if value is not None:
            folded = exact_value(op, value)
            if folded is not None:
                return self.number(folded)
        tight = tightened(self, op, args[0]) if len(args) == 1 else None
        return self.make(op, args) if tight is None else tight

    def again(self, node: Node, args: Sequence[int]) -> int:
        """The operation of a node on other arguments, in normal form."""
        if node.op == "lin":
            return self.combination(args)
        if node.op == "prod":
            return self.monomial(zip(args, node.data, strict=True))
        if node.op == "div":
            return self.divide(args[0], args[1])
        if node.op in ("abs", "min", "max", "where") or (len(args) == 1 and node.data is None):
            return self.apply(node.op, *args)
        if node.op == "powr":
            return self.power(args[0], self.number(node.data))
        return self.make(node.op, tuple(args), node.data)

    def compare(self, relation: str, a: int, b: int) -> int:
        """The condition a < b, a <= b, a == b, ... as a comparison of one difference with 0."""
        if relation in (">", ">="):
            return self.compare({">": "<", ">=": "<="}[relation], b, a)
        if relation == "!=":
            return self.make("not", (self.compare("==", a, b),))
        op = {"<": "negative", "<=": "nonpositive", "==": "zero"}[relation]
        return self.make(op, (self.subtract(a, b),))


def _short(value: Fraction) -> str:
    """A rational number for a message."""
    try:
        return f"{float(value):.6g}"
    except OverflowError:
        return f"about 10^{int(0.30103 * (value.numerator.bit_length() - value.denominator.bit_length()))}"


def schedule(nodes: tuple[Node, ...], outputs: Iterable[int]) -> tuple[int, ...]:
    """The places that the outputs need, in an order in which they can be computed."""
    needed = set(outputs)
    for place in range(len(nodes) - 1, -1, -1):
        if place in needed:
            needed.update(nodes[place].args)
    return tuple(sorted(needed))
