"""Derivatives of a tree, in the same list of nodes.

Where a function has a kink the derivative is one from either side, and its enclosure is the hull while the side is undecided:

    |u|'          = sign(u) u'                         sign(u) is enclosed by [-1, 1] where u contains 0
    max(a, b)'    = where(a >= b, a', b')              the hull of both where undecided
    where(c,a,b)' = where(c, a', b') + jump(c)         jump(c) is 0 where c is decided and undefined elsewhere
    sign(u)', floor(u)', the cut of atan2              a jump in the same way

So a bounded enclosure of the derivative over a convex set proves that the function is Lipschitz there, jumps included.
"""

from __future__ import annotations

from fractions import Fraction

from maxaffine.expression.graph import Graph, schedule


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
    args = node.args
    if node.op == "lin":
        return g.total(g.multiply(c, slopes[a]) for c, a in zip(args[1::2], args[2::2], strict=True))
    if node.op == "prod":
        return _product_slope(g, place, slopes)
    if node.op == "div":
        return _quotient_slope(g, place, slopes)
    if node.op == "pow":
        return _power_slope(g, place, slopes)
    if node.op == "powr" and isinstance(node.data, Fraction):
        outer = g.multiply(g.number(node.data), g.power(args[0], g.number(node.data - 1)))
        return g.multiply(outer, slopes[args[0]])
    if node.op == "sqrt":
        return _root_slope(g, place, slopes)
    if node.op == "unit":
        # The second derivative of a norm is not bounded at its tip: the plain quotient says so.
        return _quotient_slope(g, place, slopes)
    if node.op == "atan2":
        return _angle_slope(g, args, slopes)
    if node.op in ("min", "max"):
        a, b = args
        first = g.compare("<=" if node.op == "min" else ">=", a, b)
        return g.apply("where", first, slopes[a], slopes[b])
    if node.op == "where":
        return g.add(g.apply("where", args[0], slopes[args[1]], slopes[args[2]]), g.make("jump", (args[0],)))
    if node.op in ("sign", "floor"):
        return g.make(f"jump_{node.op}", args)
    if node.op.startswith("jump"):
        return place
    return g.multiply(_outer_slope(g, place), slopes[args[0]])


def _product_slope(g: Graph, place: int, slopes: dict[int, int]) -> int:
    """(prod a_i^n_i)' = sum_i n_i a_i^(n_i - 1) a_i' prod_{j != i} a_j^n_j."""
    node = g.nodes[place]
    assert isinstance(node.data, tuple)
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
        if weight is None or weight <= 0 or inner.op != "prod" or not isinstance(inner.data, tuple):
            return None
        if len(inner.args) != 1 or inner.data[0] % 2:
            return None
        found.append((weight, inner.args[0], inner.data[0] // 2))
    return found


def _angle_slope(g: Graph, args: tuple[int, ...], slopes: dict[int, int]) -> int:
    """atan2(y, x)' = (x y' - y x')/(x^2 + y^2), and a jump across the cut."""
    y, x = args
    above = g.subtract(g.multiply(x, slopes[y]), g.multiply(y, slopes[x]))
    below = g.add(g.integer_power(x, 2), g.integer_power(y, 2))
    return g.add(g.divide(above, below), g.make("jump_atan2", (y, x)))


def _outer_slope(g: Graph, place: int) -> int:
    """f'(u) for a function of one argument, written so that u occurs once wherever it can."""
    node = g.nodes[place]
    (u,) = node.args
    one = g.one
    if node.op == "exp":
        return place
    if node.op == "expm1":
        return g.apply("exp", u)
    if node.op == "log":
        return g.divide(one, u)
    if node.op == "log1p":
        return g.divide(one, g.add(one, u))
    if node.op == "cbrt":
        return g.divide(g.number(Fraction(1, 3)), g.integer_power(place, 2))
    if node.op == "sin":
        return g.apply("cos", u)
    if node.op == "cos":
        return g.negate(g.apply("sin", u))
    if node.op == "tan":
        return g.add(one, g.integer_power(place, 2))
    if node.op in ("asin", "acos"):
        slope = g.divide(one, g.apply("sqrt", g.subtract(one, g.integer_power(u, 2))))
        return slope if node.op == "asin" else g.negate(slope)
    if node.op == "atan":
        return g.divide(one, g.add(one, g.integer_power(u, 2)))
    if node.op == "sinh":
        return g.apply("cosh", u)
    if node.op == "cosh":
        return g.apply("sinh", u)
    if node.op == "asinh":
        return g.divide(one, g.apply("sqrt", g.add(one, g.integer_power(u, 2))))
    if node.op == "acosh":
        return g.divide(one, g.apply("sqrt", g.subtract(g.integer_power(u, 2), one)))
    if node.op == "atanh":
        return g.divide(one, g.subtract(one, g.integer_power(u, 2)))
    if node.op == "tanh":
        return g.subtract(one, g.integer_power(place, 2))
    if node.op == "sigmoid":
        # (1 - tanh(u/2)^2)/4: one occurrence of u, where s (1 - s) has two.
        half = g.apply("tanh", g.multiply(g.number(Fraction(1, 2)), u))
        quarter = g.number(Fraction(1, 4))
        return g.multiply(quarter, g.subtract(one, g.integer_power(half, 2)))
    if node.op == "erf":
        bell = g.apply("exp", g.negate(g.integer_power(u, 2)))
        return g.multiply(g.divide(g.number(2), g.apply("sqrt", g.make("pi"))), bell)
    assert node.op == "abs", node.op
    return g.apply("sign", u)
