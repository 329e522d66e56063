"""Rewritings of a formula before it is cut, each an identity that the checker proves again by canonical forms.

    cleared     a/(b (1 + c/(b d)))  =  a/(b 1 + c/d)          a denominator that divides terms of another one is multiplied in
    gathered    a b/(b c)  =  a/c        a b + a c  =  a (b + c)
                                                               what several terms or both sides of a quotient share is taken out
    squares     sqrt(c a^2 + d b^2)  =  sqrt(c) sqrt(a^2 + (sqrt(d/c) b)^2)
"""

from collections.abc import Iterable
from fractions import Fraction

from maxaffine.expression.graph import Graph

Factors = dict[int, int]


def cleared(graph: Graph, place: int) -> int:
    """The place with every such quotient multiplied out, from the innermost outwards."""
    done: dict[int, int] = {}

    def walk(at: int) -> int:
        if at not in done:
            node = graph.nodes[at]
            again = graph.again(node, [walk(a) for a in node.args]) if node.args and not graph.is_constant(at) else at
            done[at] = _cleared(graph, again)
        return done[at]

    return walk(place)


def under_roots(graph: Graph, place: int, instead: dict[int, int]) -> int:
    """The place with something else under square roots."""
    done: dict[int, int] = {}

    def walk(at: int) -> int:
        if at not in done:
            node = graph.nodes[at]
            args = [walk(a) for a in node.args]
            if node.op == "sqrt" and node.args[0] in instead:
                args = [instead[node.args[0]]]
            done[at] = graph.again(node, args) if args and not graph.is_constant(at) else at
        return done[at]

    return walk(place)


def gathered(graph: Graph, place: int) -> int:
    """The place with factors cancelled in every product and quotient, and common factors taken out of sums."""
    done: dict[int, int] = {}

    def walk(at: int) -> int:
        if at not in done:
            node = graph.nodes[at]
            again = graph.again(node, [walk(a) for a in node.args]) if node.args and not graph.is_constant(at) else at
            done[at] = _shared(graph, again) if graph.nodes[again].op == "lin" else _cancelled(graph, again)
        return done[at]

    return walk(place)


def _cancelled(graph: Graph, place: int) -> int:
    """A product or a quotient, every factor once."""
    if graph.is_constant(place) or graph.nodes[place].op not in ("prod", "div", "lin"):
        return place
    return _product(graph, _with_one_exponential(graph, _factors(graph, place)).items())


def _with_one_exponential(graph: Graph, factors: Factors) -> Factors:
    """exp(a)^m exp(b)^n = exp(m a + n b), never in a denominator."""
    found = [(a, n) for a, n in factors.items() if graph.nodes[a].op == "exp"]
    if all(n == 1 for _, n in found) and len(found) < 2:
        return factors
    angle = graph.total(graph.multiply(graph.number(n), graph.nodes[a].args[0]) for a, n in found)
    return {a: n for a, n in factors.items() if graph.nodes[a].op != "exp"} | {graph.apply("exp", angle): 1}


def _shared(graph: Graph, place: int) -> int:
    """A sum as common factors times a sum."""
    c0, terms = graph.terms(place)
    if not graph.is_zero(c0) or len(terms) < 2:
        return place if len(terms) != 1 else graph.total([c0, _scaled(graph, *next(iter(terms.items())))])
    found = [_factors(graph, a) for a in terms]
    common = {a: min(one.get(a, 0) for one in found) for a in found[0]}
    common = {a: n for a, n in common.items() if n > 0}
    if not common:
        return place
    left = [_product(graph, {a: n - common.get(a, 0) for a, n in one.items()}.items()) for one in found]
    inner = graph.total(graph.multiply(c, a) for c, a in zip(terms.values(), left, strict=True))
    return _product(graph, [*common.items(), (inner, 1)])


def _scaled(graph: Graph, place: int, scale: int) -> int:
    return graph.multiply(scale, _cancelled(graph, place))


def _cleared(graph: Graph, place: int) -> int:
    """One quotient."""
    if graph.nodes[place].op != "div":
        return place
    factors = _factors(graph, place)
    below = [a for a, n in factors.items() if n < 0]
    for total in below:
        if graph.nodes[total].op != "lin" or factors[total] != -1:
            continue
        for base in below:
            if base == total or graph.is_constant(base) or not _divides(graph, base, total):
                continue
            rest = {a: n for a, n in factors.items() if a not in (base, total)}
            if factors[base] < -1:
                rest[base] = factors[base] + 1
            rest[_times(graph, base, total)] = -1
            return _cleared(graph, _product(graph, rest.items()))
    return place


def _divides(graph: Graph, base: int, total: int) -> bool:
    """Whether some term of a sum is divided by a factor."""
    return any(_factors(graph, a).get(base, 0) < 0 for a in graph.terms(total)[1])


def _times(graph: Graph, base: int, total: int) -> int:
    """base * total: what is divided by base loses it, the rest stays together."""
    c0, terms = graph.terms(total)
    kept, moved = [c0], []
    for a, c in terms.items():
        factors = _factors(graph, a)
        if factors.get(base, 0) < 0:
            factors[base] += 1
            moved.append(graph.multiply(c, _product(graph, factors.items())))
        else:
            kept.append(graph.multiply(c, a))
    return graph.total([graph.multiply(base, graph.total(kept)), *moved])


def _factors(graph: Graph, place: int) -> Factors:
    """place = prod a^n with whole n, through products and quotients; constant factors of single terms included."""
    node, found = graph.nodes[place], Factors()
    inside: list[tuple[int, int]]
    scale, rest = graph.unscaled(place)
    if scale != graph.one:
        inside = [(scale, 1), (rest, 1)]
    elif node.op == "prod":
        inside = list(zip(node.args, node.data, strict=True))
    elif node.op == "div":
        inside = [(node.args[0], 1), (node.args[1], -1)]
    else:
        return {place: 1}
    for a, n in inside:
        for b, m in _factors(graph, a).items():
            found[b] = found.get(b, 0) + n * m
    return {a: n for a, n in found.items() if n}


def _product(graph: Graph, factors: Iterable[tuple[int, int]]) -> int:
    """prod a^n as one quotient."""
    pairs = list(factors)
    above = graph.monomial((a, n) for a, n in pairs if n > 0)
    below = graph.monomial((a, -n) for a, n in pairs if n < 0)
    return above if below == graph.one else graph.divide(above, below)


# ---------------------------------------------------------------------- sums of squares

Squares = tuple[int, list[tuple[int, int]]]
"""scale and (c, a): constants and places with place = scale^2 sum (c a)^2."""


def squares_of(graph: Graph, place: int) -> Squares | None:
    """A place as a sum of at least two squares, which are not constant, with positive coefficients; None where it is none."""
    c0, terms = graph.terms(place)
    first, coefficients = graph.rational(c0), [graph.rational(c) for c in terms.values()]
    numbers = [c for c in coefficients if c is not None and c > 0]
    if first is None or first < 0 or len(numbers) < max(2, len(terms)):
        return None
    halves = [_half(graph, a) for a in terms]
    known = [a for a in halves if a is not None]
    if len(known) < len(halves):
        return None

    def root(c: Fraction) -> int:
        return graph.apply("sqrt", graph.number(c))

    found = [(root(c / numbers[0]), a) for c, a in zip(numbers, known, strict=True)]
    return root(numbers[0]), found + ([(root(first / numbers[0]), graph.one)] if first else [])


def _half(graph: Graph, place: int) -> int | None:
    """The place of a with a^2 at this one, where all exponents are even."""
    node = graph.nodes[place]
    if node.op != "prod" or any(n % 2 for n in node.data):
        return None
    return graph.monomial((a, n // 2) for a, n in zip(node.args, node.data, strict=True))
