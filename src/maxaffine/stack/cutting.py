"""A cutting: the nodes of a formula as exact expressions, before ranges and heads are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from maxaffine.expression import printing
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.stack.ridges import PLANNED, Emitter, Uncut
from maxaffine.structure.stacked import LOCAL, NORM, AffineMap, StackNode, StackPlan

PREFIXES = ("v", "h", "node", "node_of_the_stack_")


@dataclass(frozen=True)
class Cutting:
    """Names of inputs and nodes, phi of every node and its arguments, and the output.

    `folds`: of nodes that are norms the number of folds, else 0; `bare` which of their arguments are never negative.
    """

    inputs: tuple[str, ...]
    names: tuple[str, ...]
    functions: tuple[Expression, ...]
    arguments: tuple[tuple[Expression, ...], ...]
    output: Expression
    folds: tuple[int, ...]
    bare: tuple[tuple[bool, ...], ...]

    def folded(self, folds: Sequence[int]) -> Cutting:
        """The same with other numbers of folds."""
        return self if tuple(folds) == self.folds else replace(self, folds=tuple(folds))

    @cached_property
    def maps(self) -> tuple[tuple[AffineMap, ...], ...]:
        """The affine maps of every node."""
        return tuple(tuple(AffineMap.of(one) for one in args) for args in self.arguments)

    @cached_property
    def result(self) -> AffineMap:
        """The affine map of the output."""
        return AffineMap.of(self.output)

    @cached_property
    def planned(self) -> StackPlan:
        """Before heads are known: what runs, and the layer of every node."""
        count = len(self.names)
        return self.plan([0] * count, [(0,) * len(rows) for rows in self.arguments], [0] * count)

    @property
    def depth(self) -> int:
        """The number of layers."""
        return self.planned.depth

    def plan(self, heads: Sequence[int], scales: Sequence[tuple[int, ...]], lifts: Sequence[int]) -> StackPlan:
        """With the heads of the nodes."""
        rows = zip(self.names, self.functions, self.arguments, heads, scales, lifts, self.folds, self.bare, strict=True)
        return StackPlan(self.inputs, tuple(StackNode(*row) for row in rows), self.output)


def written(emit: Emitter, output: int, inputs: tuple[str, ...]) -> Cutting:
    """What was emitted as texts, parsed again; nodes that nothing reads are left out."""
    G, D = emit.G, emit.inputs
    used: set[int] = set()
    waiting = [output]
    while waiting:
        for a in G.terms(waiting.pop())[1]:
            k = G.nodes[a].data - D
            if k >= 0 and k not in used:
                used.add(k)
                waiting += emit.nodes[k].arguments
    kept = sorted(used)
    prefix = next(p for p in PREFIXES if not any(name.startswith(p) and name[len(p) :].isdigit() for name in inputs))
    names = [f"{prefix}{i + 1}" for i in range(len(kept))]
    short = dict(zip(kept, names, strict=True))
    known = [*inputs, *(short.get(k, f"unused_{k}") for k in range(len(emit.nodes)))]
    functions, arguments = [], []
    for i, k in enumerate(kept):
        node = emit.nodes[k]
        text = NORM if node.bare else _exact(emit.F, LOCAL, node.function)
        functions.append(Expression.parse(text, LOCAL[: len(node.arguments)]))
        visible = [*inputs, *names[:i]]
        arguments.append(tuple(Expression.parse(_exact(G, known, a), visible) for a in node.arguments))
    last = Expression.parse(_exact(G, known, output), [*inputs, *names])
    bare = tuple(emit.nodes[k].bare for k in kept)
    folds = tuple(PLANNED if one else 0 for one in bare)
    return Cutting(inputs, tuple(names), tuple(functions), tuple(arguments), last, folds, bare)


def _exact(graph: Graph, names: Sequence[str], place: int) -> str:
    text = printing.exact(graph.nodes, names, place)
    if text is None:
        raise Uncut("one of its parts is too long to be written")
    return text
