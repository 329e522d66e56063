"""A formula cut into nodes of one or two directions: affine parts are free, functions of one direction stay together.

lin      ridges of one direction are added up and become one node; everything else goes into the linear maps
f(...)   a function of one direction stays a ridge: chains such as exp(-0.2*sqrt(u)) are one head
sqrt(a^2 + b^2 + ..)  where that may touch 0, a tree of hypot(u, w), which are folded (structure/folding.py)
a*b/c    factors are grouped by direction; then, by the style,
         lean    one head per group that is not affine, and bilinear nodes u*w
         fused   the last two groups together as one node of two directions
         log     exp(sum of logarithms) of the groups that are positive
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.expression import evaluate, printing
from maxaffine.expression.cosine_law import third_side
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.stack.cutting import Cutting, written
from maxaffine.stack.ranges import argument
from maxaffine.stack.rewrites import cleared, gathered, squares_of, under_roots
from maxaffine.stack.ridges import Emitter, Ridge, Uncut, Value, carried, logarithm, replaced
from maxaffine.structure.stacked import MOST_NODES, AffineMap, rebuilt
from maxaffine.target.box import Box

STYLES = ("lean", "log", "fused", "lean, cleared", "log, cleared", "lean, gathered", "log, gathered", "lean, folded")
"""How products are put together; the formula rewritten before (rewrites.py), or all norms folded."""

REWRITES = {"cleared": (cleared, "there are no denominators to clear"), "gathered": (gathered, "there are no factors to gather")}

NEAR = 1e-4  # part of its range: a sum of squares that may be as small is no sum of squares under a root, but a norm

FEW_LOGS = 3  # positive factors from which on exp(sum of logarithms) may pay


class Cutter:
    """One cutting of one formula in one style."""

    def __init__(self, expression: Expression, box: Box, style: str) -> None:
        self.style, _, first = style.partition(", ")
        self.names, self.box = expression.names, Interval(box.low, box.high)
        self.source = Graph()
        variables = [self.source.variable(i) for i in range(expression.dimension)]
        self.output = rebuilt(self.source, expression, variables)
        self.folded = first == "folded"
        if first in REWRITES:
            rewrite, nothing = REWRITES[first]
            before, self.output = self.output, rewrite(self.source, self.output)
            if self.output == before:
                raise Uncut(nothing)
        self.emit = Emitter(expression.dimension)
        self.values: dict[int, Value] = {}
        self._enclosed()
        sides = {place: third_side(self.source, place) for place in self._near_zero()}
        if any(squares is not None for squares in sides.values()):
            self.output = under_roots(self.source, self.output, {a: b for a, b in sides.items() if b is not None})
            self._enclosed()
        uses = [a for node in self.source.nodes for a in node.args]
        self.uses = {place: uses.count(place) for place in set(uses)}

    def _enclosed(self) -> None:
        """Ends of every part of the formula on the box."""
        order = range(len(self.source.nodes))
        found = evaluate.enclosures(self.source.nodes, order, Interval(self.box.lo[None], self.box.hi[None]))
        self.low = {place: _end(one, np.min) for place, one in found.items()}
        self.high = {place: _end(one, np.max) for place, one in found.items()}

    def _near_zero(self) -> list[int]:
        """What stands under roots and may be 0, or under any where all norms are folded."""
        roots = [node.args[0] for node in self.source.nodes if node.op == "sqrt"]
        return [a for a in roots if self.folded or self.low[a] <= NEAR * self.high[a]]

    def cut(self) -> int:
        """The place of the output in `emit.G`."""
        try:
            return self.emit.affine(self.value(self.output))
        except RecursionError:
            raise Uncut("its formula is nested too deeply") from None

    def value(self, place: int) -> Value:
        """The value of a place of the formula, each once."""
        if place not in self.values:
            self.values[place] = self._value(place)
            if len(self.emit.nodes) > MOST_NODES:
                raise Uncut(f"it takes more than {MOST_NODES} nodes")
        return self.values[place]

    def _value(self, place: int) -> Value:
        node, G, F = self.source.nodes[place], self.emit.G, self.emit.F
        if self.source.is_constant(place):
            return carried(self.source, G, place)
        if node.op == "var":
            return G.variable(node.data)
        if node.op in ("prod", "div"):
            return self._product(place)
        if node.op == "sqrt" and (self.folded or self.low[node.args[0]] <= NEAR * self.high[node.args[0]]):
            squares = squares_of(self.source, node.args[0])
            if squares is not None:
                return self._norm(*squares)
        if node.op in ("sqrt", "powr") and self.style == "log" and self._splits(node.args[0]):
            return self._product(place)
        if node.op == "log" and self.style == "log" and self._splits(node.args[0]):
            return self._logarithm(node.args[0])
        args = [self.value(a) for a in node.args]
        if node.op == "lin":
            return self._sum(args)
        together = self.emit.common(args)
        if together is not None:
            direction, functions = together
            return Ridge(direction, self._simple(node.op, functions) or F.again(node, functions))
        if node.op == "pow":
            return self._exponential(args)
        if len(args) == 2 and node.op == "atan2":
            return self._two(args, lambda a, b: F.make("atan2", (a, b)))
        raise Uncut(
            f"`{printing.text(self.source.nodes, [f'x{i + 1}' for i in range(self.emit.inputs)], place)}` "
            "has conditions on several directions"
        )

    def _simple(self, op: str, functions: Sequence[int]) -> int | None:
        """log(exp(a)) is a, and roots of exponentials are exponentials."""
        F = self.emit.F
        inner = F.nodes[functions[0]]
        if inner.op != "exp" or op not in ("log", "sqrt"):
            return None
        return inner.args[0] if op == "log" else F.apply("exp", F.multiply(F.number(Fraction(1, 2)), inner.args[0]))

    # ------------------------------------------------------------------ sums

    def _sum(self, args: Sequence[Value]) -> Value:
        """c0 + sum c a: affine terms are free, ridges of one direction go together, heads of two tokens stay alone."""
        emit, G, F = self.emit, self.emit.G, self.emit.F
        total, ridges = args[0], list[Ridge]()
        assert isinstance(total, int)
        for c, a in zip(args[1::2], args[2::2], strict=True):
            assert isinstance(c, int)
            if isinstance(a, int):
                total = G.add(total, G.multiply(c, a))
            elif emit.is_exact(a.function):
                total = G.add(total, G.multiply(c, emit.affine(a)))
            else:
                ridges.append(Ridge(a.direction, F.multiply(emit.carry(c), a.function)))
        grouped = list[Ridge]()
        for one in ridges:
            for i, other in enumerate(grouped):
                f = emit.along(other.direction, one)
                if f is not None:
                    grouped[i] = Ridge(other.direction, F.add(other.function, f))
                    break
            else:
                grouped.append(one)
        if len(grouped) == 1:
            rest = emit.along(grouped[0].direction, total)
            if rest is not None:
                return Ridge(grouped[0].direction, F.add(grouped[0].function, rest))
        for one in grouped:
            total = G.add(total, emit.affine(one))
        return total

    # ------------------------------------------------------------------ norms

    def _norm(self, scale: int, squared: Sequence[tuple[int, int]]) -> Value:
        """scale * sqrt(sum (c a)^2) as a tree of hypot(u, w)."""
        emit, G = self.emit, self.emit.G
        waiting = list[tuple[int, bool]]()
        for c, a in squared:
            value = self.value(a)
            leaf = G.multiply(carried(self.source, G, c), emit.affine(value))
            waiting.append((leaf, self._never_negative(leaf)))
        while len(waiting) > 1:
            waiting.sort(key=lambda one: emit.level(one[0]))
            (u, first), (w, second) = waiting.pop(0), waiting.pop(0)
            waiting.append((emit.norm(u, w, (first, second)), False))
        return G.multiply(carried(self.source, G, scale), waiting[0][0])

    def _never_negative(self, affine: int) -> bool:
        """Whether an affine form of the inputs alone is at least 0 on the box."""
        terms = self.emit.G.terms(affine)[1]
        if any(self.emit.G.nodes[a].data >= self.emit.inputs for a in terms):
            return False
        row = AffineMap.of(Expression.of_graph("a leaf", self.names, self.emit.G, (affine,)))
        return bool(argument(row, self.box).lo >= 0.0)

    # ------------------------------------------------------------------ products

    def _splits(self, place: int) -> bool:
        """Whether something is a product of several factors that are positive."""
        found = self._factors(place, Fraction(1), top=True)
        return len(found) > 1 and all(self.low[base] > 0 for base, _ in found)

    def _factors(self, place: int, exponent: Fraction, top: bool = False) -> list[tuple[int, Fraction]]:
        """place^exponent as a product of powers; roots and shared parts stay together unless that is known to be right."""
        node = self.source.nodes[place]
        inside: list[tuple[int, Fraction]] = []
        if not top and self.uses.get(place, 0) > 1 and self.style != "log":
            return [(place, exponent)]
        if node.op == "lin" and self.source.unscaled(place)[0] != self.source.one:
            inside = [(one, exponent) for one in self.source.unscaled(place)]
        elif node.op == "prod":
            inside = [(a, exponent * n) for a, n in zip(node.args, node.data, strict=True)]
        elif node.op == "div":
            inside = [(node.args[0], exponent), (node.args[1], -exponent)]
        elif node.op in ("sqrt", "powr") and self.style == "log" and self._splits(node.args[0]):
            inside = [(node.args[0], exponent * (node.data if node.op == "powr" else Fraction(1, 2)))]
        else:
            return [(place, exponent)]
        whole = exponent.denominator == 1 or all(self.low[a] > 0 for a, _ in inside)
        if not whole:
            return [(place, exponent)]
        return [one for a, e in inside for one in self._factors(a, e)]

    def _logarithm(self, place: int) -> Value:
        """The logarithm of a product of positive factors: the sum of theirs."""
        emit, G, F = self.emit, self.emit.G, self.emit.F
        total = G.zero
        for base, exponent in self._factors(place, Fraction(1), top=True):
            value = self.value(base)
            if isinstance(value, int) and G.is_constant(value):
                total = G.add(total, G.multiply(G.number(exponent), G.apply("log", value)))
                continue
            ridge = value if isinstance(value, Ridge) else Ridge(value, emit.u)
            logs = logarithm(F, ridge.function, exponent)
            total = G.add(total, emit.affine(Ridge(ridge.direction, logs)))
        return total

    def _product(self, place: int) -> Value:
        """Factors grouped by direction, then put together in the style of this cutting."""
        emit, G, F = self.emit, self.emit.G, self.emit.F
        scale, groups = G.one, list[tuple[Ridge, int | None]]()  # a ridge, and its logarithm where it is positive
        for base, exponent in self._factors(place, Fraction(1), top=True):
            value = self.value(base)
            if isinstance(value, int) and G.is_constant(value):
                scale = G.multiply(scale, G.power(value, G.number(exponent)))
                continue
            ridge = value if isinstance(value, Ridge) else Ridge(value, emit.u)
            logs = logarithm(F, ridge.function, exponent) if self.low[base] > 0 else None
            powered = Ridge(ridge.direction, F.power(ridge.function, F.number(exponent)))
            self._join(groups, powered, logs)
        scaled = emit.carry(scale)
        if len(groups) == 1:
            ((ridge, _),) = groups
            return self._ridge(Ridge(ridge.direction, F.multiply(scaled, ridge.function)))
        if self.style == "log":
            positive = [(ridge, logs) for ridge, logs in groups if logs is not None]
            if len(positive) >= FEW_LOGS or (len(positive) == 2 and all(r.function != emit.u for r, _ in positive)):
                exponents = G.zero
                for ridge, logs in positive:
                    exponents = G.add(exponents, emit.affine(Ridge(ridge.direction, logs)))
                joint = Ridge(exponents, F.multiply(scaled, F.apply("exp", emit.u)))
                others = [ridge for ridge, logs in groups if logs is None]
                return joint if not others else self._multiplied([joint, *others])
        found = self._multiplied([ridge for ridge, _ in groups])
        return G.multiply(scale, found)

    def _join(self, groups: list[tuple[Ridge, int | None]], one: Ridge, logs: int | None) -> None:
        """A factor to the group of its direction."""
        emit, F = self.emit, self.emit.F
        for i, (other, known) in enumerate(groups):
            f = emit.along(other.direction, one)
            if f is None:
                continue
            g = None if logs is None else emit.along(other.direction, Ridge(one.direction, logs))
            together = None if known is None or g is None else F.add(known, g)
            groups[i] = Ridge(other.direction, F.multiply(other.function, f)), together
            return
        groups.append((one, logs))

    def _ridge(self, ridge: Ridge) -> Value:
        """A ridge, or the affine form that it is."""
        terms = self.emit.F.terms(ridge.function)[1]
        return self.emit.affine(ridge) if set(terms) <= {self.emit.u} else ridge

    def _multiplied(self, factors: Sequence[Ridge]) -> int:
        """The product of ridges of different directions: pairs of those known first, by nodes u*w."""
        emit, F = self.emit, self.emit.F
        if self.style == "fused" and len(factors) == 2:
            return emit.affine(self._two(list(factors), lambda a, b: F.multiply(a, b)))
        known = [emit.affine(one) for one in factors]
        while len(known) > 1:
            known.sort(key=emit.level)
            known.append(emit.product(known.pop(0), known.pop(0)))
        return known[0]

    def _two(self, args: Sequence[Value], together: Callable[[int, int], int]) -> int:
        """A node of two directions from two values."""
        emit, F = self.emit, self.emit.F
        first, second = (v if isinstance(v, Ridge) else Ridge(v, emit.u) for v in args)
        if emit.G.is_constant(first.direction) or emit.G.is_constant(second.direction):
            raise Uncut("one argument of a function of two is constant")
        moved = replaced(F, second.function, emit.w)
        whole = together(first.function, moved)
        scale, whole = F.unscaled(whole)
        return emit.G.multiply(emit.back(scale), emit.node(whole, first.direction, second.direction))

    def _exponential(self, args: Sequence[Value]) -> Value:
        """u^v = exp(v log(u))."""
        emit, F = self.emit, self.emit.F
        base, exponent = args
        ridge = base if isinstance(base, Ridge) else Ridge(base, emit.u)
        logs = emit.affine(Ridge(ridge.direction, logarithm(F, ridge.function, Fraction(1))))
        return Ridge(emit.product(logs, emit.affine(exponent)), F.apply("exp", emit.u))


def _end(found: evaluate.Enclosed, which: Callable[[Array], Any]) -> float:
    """The lower or the upper end of a part of the formula on the box."""
    if not isinstance(found.value, Interval) or (found.ok is not None and not found.ok.all()):
        return -np.inf if which is np.min else np.inf
    return float(which(found.value.lo if which is np.min else found.value.hi))


def cut(expression: Expression, box: Box, style: str) -> Cutting:
    """The nodes of a formula in one style; Uncut where there are none."""
    cutter = Cutter(expression, box, style)
    output = cutter.cut()
    return written(cutter.emit, output, expression.names)
