"""How an expression becomes a separation: a sum of monomials whose factors depend on one direction, on a block, or on a sum.

A factor of several directions stays a block where they are few.  Otherwise it is read as g(u) of a node u below it through which
it depends on all its variables: u a sum over directions, or a product of positive factors, whose logarithm is one.  A power of a
sum of two monomials p + q is p^r (1 + q/p)^r, a function of the one monomial q/p.  Quadratic forms are sums of squares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from maxaffine.core.arrays import Array
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph, schedule
from maxaffine.structure.directions import Direction, Rewrite
from maxaffine.structure.monomials import Monomial, Monomials, joined
from maxaffine.structure.quadratic import squares
from maxaffine.structure.separation import Outer, Parts, Separation, Term

CHOICES = ("sums", "blocks")  # factors of several directions become functions of sums wherever they can, or where they must
MOST_TERMS = 64
MOST_BLOCK = 3
MOST_NODES = 3_000

SUMS_OF_SQUARES = "quadratic forms as sums of squares"
RATIOS = "sums of two products by their ratio"
OF_PRODUCTS = "functions of a product, by its logarithm"
OF_SUMS = "functions of a sum"


class NotSeparated(Exception):
    """Why an expression is no sum of products over small blocks."""


@dataclass(frozen=True)
class _Wrapped:
    """front * g(u), u the sum of the nodes `parts`, which share no direction."""

    front: Monomial
    function: Expression
    parts: tuple[int, ...]


@dataclass(frozen=True)
class _Product:
    """A term on its way: a constant, nodes of few directions, and places of nodes that are wrapped."""

    scale: int
    nodes: tuple[int, ...]
    wrapped: tuple[int, ...]


def separate(expression: Expression, low: Array, high: Array, choice: str = "sums") -> Separation:
    """The separation of an expression of one output on a box; NotSeparated with a reason where there is none."""
    if len(expression.nodes) > MOST_NODES:
        raise NotSeparated("the expression is too long")
    return _Separator(expression, low, high).separation(expression.outputs[0], choice)


class _Separator(Monomials):
    def separation(self, output: int, choice: str) -> Separation:
        rows = self.monomials(self.place[output])
        wraps = dict[int, _Wrapped]()
        if choice == "sums":
            self._wrap(self._wide(rows), wraps)
        while True:
            products = self._products(rows, wraps)
            blocks = self._blocks(products, wraps)
            large = [block for block in blocks if len(block) > MOST_BLOCK]
            if not large:
                break
            inside = [n for n in self._wide(rows) if n not in wraps and any(self._frame(n) <= block for block in large)]
            if not self._wrap(inside, wraps):
                told = ", ".join(self._told(w) for w in sorted(large[0], reverse=True)[:6])
                raise NotSeparated(f"{len(large[0])} directions ({told}) cannot be taken apart")
        if len(products) > MOST_TERMS:
            raise NotSeparated(f"it has {len(products)} terms, more than {MOST_TERMS}")
        return self._assembled(products, wraps, blocks)

    def _told(self, w: Direction) -> str:
        """A direction as a person reads it."""
        parts = [f"{'' if c == 1 else '-' if c == -1 else f'{c}*'}{name}" for c, name in zip(w, self.names, strict=True) if c]
        return "+".join(parts).replace("+-", "-")

    # ------------------------------------------------------------------ which factors are functions of sums

    def _wide(self, rows: Iterable[Monomial]) -> list[int]:
        """The factors of several directions, each once."""
        found = dict[int, None]()
        for one in rows:
            for base, p in one.powers.items():
                if len(self.directions(base)) > 1:
                    found[self.factor(base, p)] = None
        return list(found)

    def _wrap(self, nodes: Iterable[int], wraps: dict[int, _Wrapped]) -> bool:
        """Those that are functions of sums noted as such; whether there was any."""
        before = len(wraps)
        for node in nodes:
            if node not in wraps and (found := self._wrapped(node)) is not None:
                wraps[node] = found
        return len(wraps) > before

    def _wrapped(self, node: int) -> _Wrapped | None:
        """The node as a function of a sum or of a product, with the smallest parts."""
        best: tuple[int, _Wrapped, str] | None = None
        for waist in self._waists(node):
            for found, name in self._readings(node, waist):
                widest = max(len(self._frame(part)) for part in found.parts)
                if best is None or widest < best[0]:
                    best = widest, found, name
        if best is None or best[0] >= len(self._frame(node)):
            return None
        self.identities[best[2]] = None
        return best[1]

    def _readings(self, node: int, waist: int) -> Iterator[tuple[_Wrapped, str]]:
        graph, rows = self.graph, self.monomials(waist)
        if len(rows) == 1:
            (row,) = rows
            flipped = Monomial(graph.negate(row.scale), row.powers)
            for turned, sign in ((self.positive(row), 1), (self.positive(flipped), -1)):
                if turned is not None:
                    parts = self._logarithms(turned)
                    if len(parts) > 1:
                        scale = graph.multiply(graph.number(sign), turned.scale)
                        yield _Wrapped(Monomial(graph.one, {}), self._function(node, waist, scale), parts), OF_PRODUCTS
            return
        yield from self._sum_of(node, waist, rows, OF_SUMS)
        yield from self._ratio(node, waist, rows)
        flat = self._squared(rows)
        if flat is not rows:
            yield from self._sum_of(node, waist, flat, SUMS_OF_SQUARES)

    def _sum_of(self, node: int, waist: int, rows: list[Monomial], name: str) -> Iterator[tuple[_Wrapped, str]]:
        parts = tuple(self.total(part) for part in self.components(rows))
        if len(parts) > 1:
            constant = self.total([row for row in rows if not row.powers])
            yield _Wrapped(Monomial(self.graph.one, {}), self._function(node, waist, None, constant), parts), name

    def _logarithms(self, one: Monomial) -> tuple[int, ...]:
        """The logarithm of a positive monomial, but for its constant, in parts that share no direction."""
        parts = joined([((base, p), self.directions(base)) for base, p in one.powers.items()])
        graph = self.graph
        return tuple(
            graph.total([graph.multiply(graph.number(p), graph.apply("log", base)) for (base, p), _ in part]) for part in parts
        )

    def _ratio(self, node: int, waist: int, rows: list[Monomial]) -> Iterator[tuple[_Wrapped, str]]:
        """(p + q)^r = p^r (1 + q/p)^r for p > 0 and q of one sign."""
        power = self._exponent(node, waist)
        if len(rows) != 2 or power is None:
            return
        for p, q in (rows, rows[::-1]):
            above, graph = self.positive(p), self.graph
            if above is None:
                continue
            sign = 1
            below = self.positive(q)
            if below is None:
                sign, below = -1, self.positive(Monomial(graph.negate(q.scale), q.powers))
            if below is None:
                continue
            back = Monomial(graph.divide(graph.one, above.scale), {base: -e for base, e in above.powers.items()})
            ratio = self.times(below, back)
            parts, front = self._logarithms(ratio), self._root(above, power)
            if len(parts) > 1 and front is not None:
                fresh = Graph()
                grown = fresh.apply("exp", fresh.variable(0))
                scale = fresh.include(graph.nodes[: ratio.scale + 1])[ratio.scale] if ratio.scale != graph.one else fresh.one
                term = fresh.multiply(fresh.multiply(fresh.number(sign), scale), grown)
                place = fresh.power(fresh.add(fresh.one, term), fresh.number(power))
                yield _Wrapped(front, Expression.of_graph("ratio", ("u",), fresh, (place,)), parts), RATIOS

    def _exponent(self, node: int, waist: int) -> Fraction | None:
        """r where node = waist^r."""
        at = self.graph.nodes[node]
        if node == waist:
            return Fraction(1)
        if at.op == "sqrt" and at.args[0] == waist:
            return Fraction(1, 2)
        if at.op == "powr" and at.args[0] == waist:
            return Fraction(at.data)
        if at.op == "prod" and at.args == (waist,):
            return Fraction(at.data[0])
        if at.op == "div" and at.args[0] == self.graph.one:
            below = self._exponent(at.args[1], waist)
            return None if below is None else -below
        return None

    def _waists(self, node: int) -> list[int]:
        """Nodes through which a node depends on all its variables, itself included, lowest first."""
        nodes = tuple(self.graph.nodes)
        found = []
        for place in schedule(nodes, (node,)):
            if self.graph.is_constant(place) or len(self.directions(place)) < 2:
                continue
            seen, todo = {place}, [node] if node != place else []
            while todo:
                here = todo.pop()
                if here not in seen:
                    seen.add(here)
                    todo += nodes[here].args
            if node == place or not any(nodes[p].op == "var" for p in seen):
                found.append(place)
        return found

    def _function(self, node: int, waist: int, scale: int | None, constant: int | None = None) -> Expression:
        """The node as a function of u: the waist is scale e^u, or u + constant where there is no scale."""
        graph, nodes = Graph(), tuple(self.graph.nodes)
        copies = dict[int, int]()
        for place in schedule(nodes, [p for p in (node, scale, constant) if p is not None]):
            if place != waist and self.graph.is_constant(place):
                copies[place] = graph.make(nodes[place].op, tuple(copies[a] for a in nodes[place].args), nodes[place].data)
        u = graph.variable(0)
        if scale is not None:
            copies[waist] = graph.multiply(copies[scale], graph.apply("exp", u))
        else:
            copies[waist] = u if constant is None else graph.add(u, copies[constant])

        def copy(place: int) -> int:
            if place not in copies:
                copies[place] = graph.again(nodes[place], [copy(a) for a in nodes[place].args])
            return copies[place]

        return Expression.of_graph("outer function", ("u",), graph, (copy(node),))

    # ------------------------------------------------------------------ quadratic forms

    def _squared(self, rows: list[Monomial]) -> list[Monomial]:
        """A sum with the products of two affine factors in it as squares of linear forms; the same list where there are none."""
        quadratic, other = list[tuple[Fraction, list[int]]](), list[Monomial]()
        for one in rows:
            value = self.graph.rational(one.scale)
            flat = [base for base, p in one.powers.items() for _ in range(int(p) if p in (1, 2) else 0)]
            plain = len(flat) == 2 and len(flat) == sum(one.powers.values()) and all(self._linear(base) for base in flat)
            if value is not None and plain:
                quadratic.append((value, flat))
            else:
                other.append(one)
        if all(a == b for _, (a, b) in quadratic):
            return rows
        D, graph = len(self.names), self.graph
        matrix, lean, level = [[Fraction(0)] * D for _ in range(D)], [Fraction(0)] * D, Fraction(0)
        for c, (a, b) in quadratic:
            (a0, va), (b0, vb) = self._row(a), self._row(b)
            level += c * a0 * b0
            for i in range(D):
                lean[i] += c * (a0 * vb[i] + b0 * va[i])
                for j in range(D):
                    matrix[i][j] += c * (va[i] * vb[j] + va[j] * vb[i]) / 2
        for d, form in squares(matrix):
            base = self._form(form)
            other.append(Monomial(graph.number(d), {base: Fraction(2)}))
        if any(lean):
            scale, base = graph.unscaled(self._form(tuple(lean)))
            other.append(Monomial(scale, {base: Fraction(1)}))
        if level:
            other.append(Monomial(graph.number(level), {}))
        return self.gathered(other)

    def _form(self, row: tuple[Fraction, ...]) -> int:
        graph = self.graph
        return graph.total([graph.multiply(graph.number(c), graph.variable(i)) for i, c in enumerate(row) if c])

    def _linear(self, place: int) -> bool:
        """Whether a node is affine in x with rational coefficients."""
        affine = self.affine(place)
        return affine is not None and all(self.graph.rational(c) is not None for c in (affine[0], *affine[1].values()))

    def _row(self, place: int) -> tuple[Fraction, list[Fraction]]:
        affine = self.affine(place)
        assert affine is not None
        row = [Fraction(0)] * len(self.names)
        for i, c in affine[1].items():
            row[i] = self.graph.rational(c) or Fraction(0)
        return self.graph.rational(affine[0]) or Fraction(0), row

    # ------------------------------------------------------------------ blocks and terms

    def _frame(self, node: int) -> frozenset[Direction]:
        """The directions that hold a node: its own, or its variables where these are not more."""
        own = self.directions(node)
        variables = self.variables(own)
        return variables if len(own) > 1 and len(variables) <= len(own) else own

    def _products(self, rows: Iterable[Monomial], wraps: Mapping[int, _Wrapped]) -> list[_Product]:
        """Every monomial as nodes, with the wrapped ones apart and their fronts among the factors."""
        found = []
        for one in rows:
            whole, wrapped = Monomial(one.scale, {}), []
            for base, p in one.powers.items():
                node = self.factor(base, p) if len(self.directions(base)) > 1 else base
                if node in wraps:
                    wrapped.append(node)
                    whole = self.times(whole, wraps[node].front)
                else:
                    whole = self.times(whole, Monomial(self.graph.one, {base: p}))
            nodes = tuple(self.factor(base, p) for base, p in whole.powers.items())
            found.append(_Product(whole.scale, nodes, tuple(sorted(wrapped))))
        return found

    def _blocks(self, products: Iterable[_Product], wraps: Mapping[int, _Wrapped]) -> list[frozenset[Direction]]:
        """The directions in classes: those that a factor or a part of a sum joins are in one."""
        held = dict[int, frozenset[Direction]]()
        for product in products:
            for node in (*product.nodes, *(part for w in product.wrapped for part in wraps[w].parts)):
                held[node] = self._frame(node)
        blocks = [frozenset[Direction]().union(*(need for _, need in part)) for part in joined(held.items())]
        return sorted(blocks, key=lambda block: sorted(block, reverse=True), reverse=True)

    def _assembled(
        self, products: list[_Product], wraps: Mapping[int, _Wrapped], blocks: list[frozenset[Direction]]
    ) -> Separation:
        ordered = [tuple(sorted(block, reverse=True)) for block in blocks]
        home = {w: b for b, block in enumerate(ordered) for w in block}
        copies = [Rewrite(self, block) for block in ordered]

        def place(node: int) -> int:
            return home[next(iter(self._frame(node)))]

        def parts(nodes: Mapping[int, int]) -> Parts:
            return tuple(copies[b].several(nodes[b]) if b in nodes else None for b in range(len(ordered)))

        wanted = sorted({w for product in products for w in product.wrapped})
        numbers = {w: j for j, w in enumerate(wanted)}
        outers = []
        for w in wanted:
            nodes = dict[int, int]()
            for part in wraps[w].parts:
                b = place(part)
                nodes[b] = self.graph.add(nodes[b], part) if b in nodes else part
            outers.append(Outer(wraps[w].function, parts(nodes)))
        terms = []
        for factors, wrapped in self._merged(products, place):
            terms.append(Term(parts(factors), tuple(numbers[w] for w in wrapped)))
        directions = tuple(w for block in ordered for w in block)
        return Separation(directions, tuple(len(block) for block in ordered), tuple(terms), tuple(outers), tuple(self.identities))

    def _merged(
        self, products: Iterable[_Product], place: Callable[[int], int]
    ) -> list[tuple[dict[int, int], tuple[int, ...]]]:
        """Terms as one node per block; those that differ in one block alone are added up there."""
        graph = self.graph
        terms = list[tuple[dict[int, int], tuple[int, ...]]]()
        for product in products:
            cells = dict[int, int]()
            for node in product.nodes:
                b = place(node)
                cells[b] = graph.multiply(cells[b], node) if b in cells else node
            first = min(cells, default=0)
            cells[first] = graph.multiply(product.scale, cells.get(first, graph.one))
            terms.append((cells, product.wrapped))
        for b in sorted({b for cells, _ in terms for b in cells}):
            sums = dict[tuple[frozenset[tuple[int, int]], tuple[int, ...]], list[int]]()
            for cells, wrapped in terms:
                rest = frozenset((c, node) for c, node in cells.items() if c != b)
                sums.setdefault((rest, wrapped), []).append(cells.get(b, graph.one))
            terms = []
            for (rest, wrapped), nodes in sums.items():
                total = graph.total(nodes)
                terms.append(({**dict(rest), b: total} if total != graph.one else dict(rest), wrapped))
        return terms
