"""Derivatives of an expression, in the same list of operations.

Where a function has a kink the derivative is one from either side, and its enclosure is the hull while the side is undecided:

    |u|'          = sign(u) u'                         sign(u) is enclosed by [-1, 1] where u contains 0
    max(a, b)'    = where(a >= b, a', b')              the hull of both where undecided
    where(c,a,b)' = where(c, a', b') + jump(c)         jump(c) is 0 where c is decided and undefined elsewhere
    sign(u)', floor(u)', the cut of atan2              a jump in the same way

So a bounded enclosure of the derivative over a convex set proves that the function is Lipschitz there, jumps included.
"""

from collections.abc import Callable
from fractions import Fraction

from maxaffine.expression.graph import Graph, schedule
from maxaffine.expression.operations import OPERATIONS


def differentiate(graph: Graph, outputs: tuple[int, ...], variable: int) -> list[int]:
    """The places of d output / d x_variable, appended to the graph."""
    zero = graph.zero
    slopes: dict[int, int] = {}
    depending: set[int] = set()
    for place in schedule(tuple(graph.nodes), outputs):
        node = graph.nodes[place]
        if (node.op == "var" and node.data == variable) or any(a in depending for a in node.args):
            depending.add(place)
        if place not in depending or graph.is_condition(place):
            slopes[place] = zero
        elif node.op == "var":
            slopes[place] = graph.one
        else:
            slopes[place] = _slope(graph, place, slopes)
    return [slopes[place] for place in outputs]


def _slope(g: Graph, place: int, slopes: dict[int, int]) -> int:
    node = g.nodes[place]
    if node.op in _RULES:
        return _RULES[node.op](g, place, slopes)
    outer = OPERATIONS[node.op].slope
    assert outer is not None, node.op
    return g.multiply(outer(g, place, node.args[0]), slopes[node.args[0]])


def _sum_slope(g: Graph, place: int, slopes: dict[int, int]) -> int:
    args = g.nodes[place].args
    return g.total(g.multiply(c, slopes[a]) for c, a in zip(args[1::2], args[2::2], strict=True))


def _product_slope(g: Graph, place: int, slopes: dict[int, int]) -> int:
    """(prod a_i^n_i)' = sum_i n_i a_i^(n_i - 1) a_i' prod_{j != i} a_j^n_j."""
    node = g.nodes[place]
    terms = []
    for i, base in enumerate(node.args):
        if g.is_zero(slopes[base]):
            continue
        term = g.multiply(g.number(node.data[i]), slopes[base])
        for j, (other, n) in enumerate(zip(node.args, node.data, strict=True)):
            term = g.multiply(term, g.integer_power(other, n - 1 if i == j else n))
        terms.append(term)
    return g.total(terms)


def _quotient_slope(g: Graph, place: int, slopes: dict[int, int]) -> int:
    """(a/b)' = (a' - (a/b) b')/b."""
    a, b = g.nodes[place].args
    if g.is_zero(slopes[b]):
        return g.divide(slopes[a], b)
    return g.divide(g.subtract(slopes[a], g.multiply(place, slopes[b])), b)


def _power_slope(g: Graph, place: int, slopes: dict[int, int]) -> int:
    """(u^v)' = v u^(v-1) u' + u^v log(u) v'."""
    u, v = g.nodes[place].args
    terms = []
    if not g.is_zero(slopes[u]):
        terms.append(g.multiply(g.multiply(v, g.power(u, g.subtract(v, g.one))), slopes[u]))
    if not g.is_zero(slopes[v]):
        terms.append(g.multiply(g.multiply(place, g.apply("log", u)), slopes[v]))
    return g.total(terms)


def _root_slope(g: Graph, place: int, slopes: dict[int, int]) -> int:
    """sqrt(u)' = u'/(2 sqrt(u)); for a norm, u = c0 + sum_i c_i v_i^2, it is sum_i c_i v_i' (v_i/sqrt(u)).

    |v_i/sqrt(u)| <= 1/sqrt(c_i) even where u vanishes: a norm has slopes at its tip, all of them bounded.
    """
    (u,) = g.nodes[place].args
    squares = _squares(g, u)
    if squares is None:
        return g.multiply(g.divide(g.number(Fraction(1, 2)), place), slopes[u])
    terms = []
    for weight, base, k in squares:
        inner = g.multiply(g.multiply(g.number(k), g.integer_power(base, k - 1)), slopes[base])
        if not g.is_zero(inner):
            direction = g.make("unit", (g.integer_power(base, k), place), weight)
            terms.append(g.multiply(g.number(weight), g.multiply(direction, inner)))
    return g.total(terms)


def _squares(g: Graph, place: int) -> list[tuple[Fraction, int, int]] | None:
    """(c, base, k) with place = c0 + sum c (base^k)^2, all c > 0 and c0 >= 0; None where it is no such sum."""
    node = g.nodes[place]
    pairs = [(g.one, place)]
    if node.op == "lin":
        first = g.rational(node.args[0])
        if first is None or first < 0:
            return None
        pairs = list(zip(node.args[1::2], node.args[2::2], strict=True))
    found = []
    for c, a in pairs:
        weight, inner = g.rational(c), g.nodes[a]
        if weight is None or weight <= 0 or inner.op != "prod":
            return None
        if len(inner.args) != 1 or inner.data[0] % 2:
            return None
        found.append((weight, inner.args[0], inner.data[0] // 2))
    return found


def _angle_slope(g: Graph, place: int, slopes: dict[int, int]) -> int:
    """atan2(y, x)' = (x y' - y x')/(x^2 + y^2), and a jump across the cut."""
    y, x = g.nodes[place].args
    above = g.subtract(g.multiply(x, slopes[y]), g.multiply(y, slopes[x]))
    below = g.add(g.integer_power(x, 2), g.integer_power(y, 2))
    return g.add(g.divide(above, below), g.make("jump_atan2", (y, x)))


def _constant_power_slope(g: Graph, place: int, slopes: dict[int, int]) -> int:
    """(u^r)' = r u^(r-1) u'."""
    node = g.nodes[place]
    outer = g.multiply(g.number(node.data), g.power(node.args[0], g.number(node.data - 1)))
    return g.multiply(outer, slopes[node.args[0]])


def _extremum_slope(g: Graph, place: int, slopes: dict[int, int]) -> int:
    a, b = g.nodes[place].args
    first = g.compare("<=" if g.nodes[place].op == "min" else ">=", a, b)
    return g.apply("where", first, slopes[a], slopes[b])


def _choice_slope(g: Graph, place: int, slopes: dict[int, int]) -> int:
    condition, a, b = g.nodes[place].args
    return g.add(g.apply("where", condition, slopes[a], slopes[b]), g.make("jump", (condition,)))


def _step_slope(g: Graph, place: int, _: dict[int, int]) -> int:
    return g.make(f"jump_{g.nodes[place].op}", g.nodes[place].args)


def _beta_slope(g: Graph, place: int, slopes: dict[int, int]) -> int:
    """B(a, b)' = B ((psi(a) - psi(a + b)) a' + (psi(b) - psi(a + b)) b')."""
    a, b = g.nodes[place].args
    both = g.apply("digamma", g.add(a, b))
    terms = [g.multiply(g.subtract(g.apply("digamma", u), both), slopes[u]) for u in (a, b) if not g.is_zero(slopes[u])]
    return g.multiply(place, g.total(terms))


_RULES: dict[str, Callable[[Graph, int, dict[int, int]], int]] = {
    "lin": _sum_slope,
    "prod": _product_slope,
    "div": _quotient_slope,
    "unit": _quotient_slope,  # the second derivative of a norm is not bounded at its tip: the plain quotient says so
    "pow": _power_slope,
    "powr": _constant_power_slope,
    "sqrt": _root_slope,
    "atan2": _angle_slope,
    "beta": _beta_slope,
    "min": _extremum_slope,
    "max": _extremum_slope,
    "where": _choice_slope,
    "sign": _step_slope,
    "floor": _step_slope,
    **dict.fromkeys(("jump", "jump_sign", "jump_floor", "jump_atan2"), lambda _, place, __: place),
}
