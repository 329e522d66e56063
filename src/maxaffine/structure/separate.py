"""How an expression becomes a separation: a sum of monomials whose factors depend on one direction, on a block, or on a sum.

A factor of several directions stays a block where they are few; otherwise it is read as a function of a sum (outers.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from maxaffine.core.arrays import Array
from maxaffine.expression.expression import Expression
from maxaffine.structure.directions import Direction, Rewrite, told
from maxaffine.structure.monomials import Monomial, joined
from maxaffine.structure.outers import Outers, Wrapped
from maxaffine.structure.separation import Outer, Parts, Separation, Term

Cell = tuple[tuple[int, int], ...]  # pairs of a constant and a node, multiplied and added up

CHOICES = ("sums", "blocks", "fours")
"""Factors of several directions become functions of sums wherever they can, or where they must; or blocks of four may be held."""
MOST_TERMS = 64
SMALL_BLOCK, MOST_BLOCK = 3, 4
MOST_NODES = 3_000


class NotSeparated(Exception):
    """Why an expression is no sum of products over small blocks, and the directions that stay together."""

    def __init__(self, why: str, together: tuple[Direction, ...] = ()) -> None:
        super().__init__(why)
        self.together = together


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


class _Separator(Outers):
    """An expression on its way to a separation."""

    def separation(self, output: int, choice: str) -> Separation:
        rows = self.monomials(self.place[output])
        wraps, kept = dict[int, Wrapped](), set[int]()
        most = MOST_BLOCK if choice == "fours" else SMALL_BLOCK
        if choice == "sums":
            self._wrap(self._wide(rows), wraps)
        while True:
            products = self._products(rows, wraps)
            blocks = self._blocks(products, wraps)
            small = [block for block in blocks if len(block) <= most]
            idle = [n for n in wraps if any(all(self.frame(part) <= block for part in wraps[n].parts) for block in small)]
            if idle:  # functions of one block that are held as they are
                kept.update(idle)
                for n in idle:
                    del wraps[n]
                continue
            large = [block for block in blocks if len(block) > most]
            if not large:
                break
            inside = [n for n in self._wide(rows) if n not in kept and any(self.frame(n) <= block for block in large)]
            if not self._wrap(inside, wraps):
                words = ", ".join(told(w, self.names) for w in sorted(large[0], reverse=True)[:8])
                raise NotSeparated(f"{len(large[0])} directions ({words}) cannot be taken apart", tuple(large[0]))
        if len(products) > MOST_TERMS:
            raise NotSeparated(f"it has {len(products)} terms, more than {MOST_TERMS}")
        return self._assembled(products, wraps, blocks)

    def _wide(self, rows: Iterable[Monomial]) -> list[int]:
        """The factors of several directions, each once."""
        found = dict[int, None]()
        for one in rows:
            for base, p in one.powers.items():
                if len(self.directions(base)) > 1:
                    found[self.factor(base, p)] = None
        return list(found)

    def _wrap(self, nodes: Iterable[int], wraps: dict[int, Wrapped]) -> bool:
        """Those that are functions of sums noted as such; whether there was any."""
        before = len(wraps)
        for node in nodes:
            if node not in wraps and (found := self.wrapped(node)) is not None:
                wraps[node] = found
        return len(wraps) > before

    # ------------------------------------------------------------------ blocks and terms

    def _products(self, rows: Iterable[Monomial], wraps: Mapping[int, Wrapped]) -> list[_Product]:
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

    def _blocks(self, products: Iterable[_Product], wraps: Mapping[int, Wrapped]) -> list[frozenset[Direction]]:
        """The directions in classes: those that a factor or a part of a sum joins are in one."""
        held = dict[int, frozenset[Direction]]()
        for product in products:
            for node in (*product.nodes, *(part for w in product.wrapped for part in wraps[w].parts)):
                held[node] = self.frame(node)
        blocks = [frozenset[Direction]().union(*(need for _, need in part)) for part in joined(held.items())]
        return sorted(blocks, key=lambda block: sorted(block, reverse=True), reverse=True)

    def _assembled(
        self, products: list[_Product], wraps: Mapping[int, Wrapped], blocks: list[frozenset[Direction]]
    ) -> Separation:
        ordered = [tuple(sorted(block, reverse=True)) for block in blocks]
        home = {w: b for b, block in enumerate(ordered) for w in block}
        copies = [Rewrite(self, block) for block in ordered]

        def place(node: int) -> int:
            return home[next(iter(self.frame(node)))]

        def parts(cells: Mapping[int, Cell]) -> Parts:
            return tuple(copies[b].several(cells[b]) if b in cells else None for b in range(len(ordered)))

        wanted = sorted({w for product in products for w in product.wrapped})
        numbers = {w: j for j, w in enumerate(wanted)}
        outers = []
        for w in wanted:
            inner = dict[int, Cell]()
            for part in wraps[w].parts:
                b = place(part)
                inner[b] = (*inner.get(b, ()), (self.graph.one, part))
            outers.append(Outer(wraps[w].function, parts(inner)))
        terms = []
        for factors, wrapped in self._merged(products, place):
            terms.append(Term(parts(factors), tuple(numbers[w] for w in wrapped)))
        directions = tuple(w for block in ordered for w in block)
        return Separation(directions, tuple(len(block) for block in ordered), tuple(terms), tuple(outers), tuple(self.identities))

    def _merged(self, products: Iterable[_Product], place: Callable[[int], int]) -> list[tuple[dict[int, Cell], tuple[int, ...]]]:
        """Terms as one cell per block; those that differ in one block alone are added up there."""
        graph = self.graph
        terms = list[tuple[dict[int, Cell], tuple[int, ...]]]()
        for product in products:
            nodes = dict[int, int]()
            for node in product.nodes:
                b = place(node)
                nodes[b] = graph.multiply(nodes[b], node) if b in nodes else node
            first = min(nodes, default=0)  # where the constant goes
            nodes.setdefault(first, graph.one)
            cells: dict[int, Cell] = {b: ((product.scale if b == first else graph.one, node),) for b, node in nodes.items()}
            terms.append(({b: cell for b, cell in cells.items() if cell != self._one}, product.wrapped))
        for b in sorted({b for cells, _ in terms for b in cells}):
            sums = dict[tuple[frozenset[tuple[int, Cell]], tuple[int, ...]], Cell]()
            for cells, wrapped in terms:
                rest = frozenset((c, cell) for c, cell in cells.items() if c != b)
                sums[rest, wrapped] = (*sums.get((rest, wrapped), ()), *cells.get(b, self._one))
            terms = [
                ({**dict(rest), b: cell} if cell != self._one else dict(rest), wrapped) for (rest, wrapped), cell in sums.items()
            ]
        return terms

    @property
    def _one(self) -> Cell:
        """The cell of a block that a term does not depend on."""
        return ((self.graph.one, self.graph.one),)
