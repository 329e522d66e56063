"""Stacks as data: nodes v_k = phi_k(T_k v) over inputs and earlier nodes, and the expression that they are together.

phi_k is an expression of one or two variables, T_k affine, both exact; the output is affine in inputs and nodes.  A node is
computed by a head, v_k = 2^lift head(2^-a u, 2^-b w): heads are shared where only powers of two lie between.  A norm hypot(u, w)
is computed by several nodes |.| (folding.py): `StackPlan.flat` has them one by one, as they run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.intervals import Interval
from maxaffine.expression import evaluate
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.structure.folding import MOST_FOLDS, absolutes, unfolded

LOCAL = ("u", "w")
"""What the variables of phi are called."""

NORM = "hypot(u, w)"
"""phi of what is computed by folding."""

MOST_NODES = 2_000
MOST_POWER = 900  # of two, in scales and lifts


@dataclass(frozen=True)
class AffineMap:
    """c0 + sum_i c_i v_i with constants as exact as they are written: enclosures of them, and the float64 numbers that run."""

    constant: float
    indices: tuple[int, ...]
    weights: Array  # (n,)
    exact_constant: Interval  # shape ()
    exact_weights: Interval  # shape (n,)

    @classmethod
    def of(cls, expression: Expression) -> "AffineMap":
        """The map that an expression of one output is; BadInput where it is not affine."""
        graph = Graph(expression.nodes)
        c0, terms = graph.terms(expression.outputs[0])
        if expression.count != 1 or any(graph.nodes[a].op != "var" for a in terms):
            raise BadInput(f"`{expression.text[:60]}` is not affine")
        order = sorted(terms, key=lambda a: graph.nodes[a].data)
        places = [c0, *(terms[a] for a in order)]
        needed = [place for place in range(len(graph.nodes)) if graph.is_constant(place)]
        values = evaluate.values(graph.nodes, needed, ())
        found = evaluate.enclosures(graph.nodes, needed, ())
        if any(found[p].ok is not None and not np.all(found[p].ok) for p in places):
            raise BadInput(f"`{expression.text[:60]}` has a constant that is not defined")
        lo = np.array([float(found[p].value.lo) for p in places])
        hi = np.array([float(found[p].value.hi) for p in places])
        numbers = np.array([float(values[p]) for p in places])
        if not (np.isfinite(lo) & np.isfinite(hi) & np.isfinite(numbers)).all():
            raise BadInput(f"`{expression.text[:60]}` has a constant beyond float64")
        indices = tuple(int(graph.nodes[a].data) for a in order)
        return cls(float(numbers[0]), indices, numbers[1:], Interval(lo[0], hi[0]), Interval(lo[1:], hi[1:]))

    def __call__(self, values: Sequence[Any]) -> Any:
        """c0 + c1 v1 + c2 v2 + .. in float64, from left to right: the same for a point alone and in a batch."""
        total = 0.0 * values[0] + self.constant
        for i, c in zip(self.indices, self.weights, strict=True):
            total = total + float(c) * values[i]
        return total


@dataclass(frozen=True)
class StackNode:
    """One node: its name, phi, the affine maps of its arguments, and how its head is asked.

    `folds`: of a norm, the K of folding.py; its head is |u|, with one scale.  `bare`: which of its arguments are never negative.
    """

    name: str
    function: Expression
    arguments: tuple[Expression, ...]
    head: int
    scales: tuple[int, ...]
    lift: int
    folds: int = 0
    bare: tuple[bool, ...] = ()

    @property
    def heads(self) -> int:
        """How many times its head is used."""
        return absolutes(self.folds, self.bare) if self.folds else 1

    @cached_property
    def maps(self) -> tuple[AffineMap, ...]:
        """T_k, row by row."""
        return tuple(AffineMap.of(one) for one in self.arguments)

    def to_json(self) -> dict[str, Any]:
        """What a file keeps."""
        return {
            "name": self.name, "function": self.function.text, "arguments": [one.text for one in self.arguments],
            "head": self.head, "scales": list(self.scales), "lift": self.lift,
            **({"folds": self.folds, "bare": list(self.bare)} if self.folds else {}),
        }  # fmt: skip


@dataclass(frozen=True)
class StackPlan:
    """Inputs, nodes in the order in which they are computed, and the affine output."""

    inputs: tuple[str, ...]
    nodes: tuple[StackNode, ...]
    output: Expression

    @cached_property
    def result(self) -> AffineMap:
        """The last map."""
        return AffineMap.of(self.output)

    @cached_property
    def flat(self) -> "StackPlan":
        """The same with the absolute values of norms one by one: what runs."""
        return self._flattened[0] if any(node.folds for node in self.nodes) else self

    @cached_property
    def parts(self) -> tuple[range, ...]:
        """The nodes of `flat` that compute every node."""
        return self._flattened[1]

    @cached_property
    def _flattened(self) -> "tuple[StackPlan, tuple[range, ...]]":
        graph, D = Graph(), len(self.inputs)
        known = [graph.variable(i) for i in range(D)]
        names, nodes, parts = list(self.inputs), list[StackNode](), list[range]()

        def absolute(place: int) -> int:
            name = f"{node.name}.{len(nodes) - first + 1}"
            read = Expression.of_graph(f"a turn of {node.name}", tuple(names), graph, (place,))
            nodes.append(StackNode(name, ABSOLUTE, (read,), node.head, node.scales, node.lift))
            names.append(name)
            return graph.variable(D + len(nodes) - 1)

        for node in self.nodes:
            first, inner = len(nodes), [rebuilt(graph, one, known) for one in node.arguments]
            if node.folds:
                known.append(unfolded(graph, inner[0], inner[1], node.folds, node.bare, absolute))
            else:
                pairs, seen = zip(node.arguments, inner, strict=True), tuple(names)
                read = tuple(Expression.of_graph(one.text, seen, graph, (place,)) for one, place in pairs)
                nodes.append(replace(node, arguments=read))
                names.append(node.name)
                known.append(graph.variable(D + len(nodes) - 1))
            parts.append(range(first, len(nodes)))
        last = Expression.of_graph(self.output.text, tuple(names), graph, (rebuilt(graph, self.output, known),))
        return StackPlan(self.inputs, tuple(nodes), last), tuple(parts)

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The layer of every node: one more than the largest layer it reads, from 1; inputs are at 0.  Of a norm its last one."""
        if self.flat is not self:
            return tuple(max((self.flat.levels[f] for f in part), default=0) for part in self.parts)
        D, found = len(self.inputs), list[int]()
        for node in self.nodes:
            below = [0 if i < D else found[i - D] for one in node.maps for i in one.indices]
            found.append(1 + max(below, default=0))
        return tuple(found)

    @property
    def depth(self) -> int:
        """The number of layers."""
        return max(self.levels, default=0)

    @property
    def uses(self) -> tuple[int, ...]:
        """How many times every node uses its head."""
        return tuple(node.heads for node in self.nodes)

    def to_json(self) -> dict[str, Any]:
        """What a file keeps."""
        return {"inputs": list(self.inputs), "nodes": [node.to_json() for node in self.nodes], "output": self.output.text}

    @classmethod
    def read(cls, record: Any, names: Sequence[str], heads: int) -> "StackPlan":
        """The plan of a file, every field doubted; BadInput where it is none."""
        if not isinstance(record, Mapping) or set(record) != {"inputs", "nodes", "output"}:
            raise BadInput("the record of a stack must have inputs, nodes and output")
        listed = record["nodes"]
        if record["inputs"] != list(names) or not isinstance(listed, list) or len(listed) > MOST_NODES:
            raise BadInput(f"a stack must have the inputs of its box and at most {MOST_NODES} nodes")
        known, nodes = list(names), list[StackNode]()
        for one in listed:
            nodes.append(_read_node(one, known, heads))
            known.append(nodes[-1].name)
        if not isinstance(record["output"], str):
            raise BadInput("the output of a stack must be a text")
        made = cls(tuple(names), tuple(nodes), Expression.parse(record["output"], known))
        made.result  # noqa: B018  (BadInput where it is not affine)
        if len(made.flat.nodes) > MOST_NODES:
            raise BadInput(f"a stack must have at most {MOST_NODES} nodes, those of norms included")
        made.flat.result  # noqa: B018
        return made


def _read_node(one: Any, known: Sequence[str], heads: int) -> StackNode:
    """One node of a file."""
    keys = {"name", "function", "arguments", "head", "scales", "lift"}
    folds, bare = _read_folds(one)
    if not isinstance(one, Mapping) or set(one) - {"folds", "bare"} != keys or not isinstance(one["function"], str):
        raise BadInput("a node of a stack must have " + ", ".join(sorted(keys)))
    name, texts, scales, lift, head = (one[key] for key in ("name", "arguments", "scales", "lift", "head"))
    if not isinstance(name, str) or not name.isidentifier() or name in known or len(name) > 64:
        raise BadInput(f"a node of a stack cannot be called {str(name)[:60]!r}")
    lists = isinstance(texts, list) and isinstance(scales, list) and 1 <= len(texts) <= 2
    lists = lists and (len(texts), len(scales)) in ([(2, 1)] if folds else [(1, 1), (2, 2)])
    if not lists or not all(isinstance(text, str) for text in texts):
        raise BadInput(f"the node {name!r} must have one or two arguments, each with its scale")
    whole = all(type(n) is int and abs(n) <= MOST_POWER for n in (*scales, lift))
    if not whole or type(head) is not int or not 0 <= head < heads:
        raise BadInput(f"the node {name!r} must have whole numbers as scales and lift, and one of the stack's heads")
    function = Expression.parse(one["function"], LOCAL[: len(texts)])
    arguments = tuple(Expression.parse(text, known) for text in texts)
    node = StackNode(name, function, arguments, head, tuple(scales), lift, folds, bare)
    if function.count != 1 or (folds and one["function"] != NORM):
        raise BadInput(f"the node {name!r} must have one value, and what is folded must be {NORM}")
    node.maps  # noqa: B018  (BadInput where they are not affine)
    return node


def _read_folds(one: Any) -> tuple[int, tuple[bool, ...]]:
    """The number of folds of a node in a file, 0 for one without, and which of its arguments are bare."""
    if not isinstance(one, Mapping) or ("folds" not in one and "bare" not in one):
        return 0, ()
    folds, bare = one.get("folds"), one.get("bare")
    good = type(folds) is int and 1 <= folds <= MOST_FOLDS and isinstance(bare, list) and [type(b) for b in bare] == [bool, bool]
    if folds is not None and bare is not None and good and absolutes(folds, tuple(bare)) >= 1:
        return folds, tuple(bare)
    raise BadInput(f"a norm must be folded 1 to {MOST_FOLDS} times and say of both arguments whether they are bare")


def rebuilt(graph: Graph, expression: Expression, variables: Sequence[int]) -> int:
    """The place of an expression's output in a graph, in its normal form, with what stands for every variable.

    max(a, b) is written b + max(a - b, 0), and min(a, b) as b - max(b - a, 0).
    """
    places: list[int] = []
    for node in expression.nodes:
        args = [places[a] for a in node.args]
        if node.op == "var":
            places.append(variables[node.data])
        elif node.op in ("max", "min"):
            a, b = args
            apart = graph.subtract(a, b) if node.op == "max" else graph.subtract(b, a)
            above = graph.apply("max", apart, graph.zero)
            places.append(graph.add(b, above if node.op == "max" else graph.negate(above)))
        else:
            places.append(graph.again(node, args) if args else graph.make(node.op, (), node.data))
    return places[expression.outputs[0]]


def composed(plan: StackPlan, graph: Graph) -> int:
    """The place in a graph of what the nodes are together: every node put in where it is read."""
    known = [graph.variable(i) for i in range(len(plan.inputs))]
    for node in plan.nodes:
        inner = [rebuilt(graph, one, known) for one in node.arguments]
        known.append(rebuilt(graph, node.function, inner))
    return rebuilt(graph, plan.output, known)


ABSOLUTE = Expression.parse("abs(u)", LOCAL[:1])
"""phi of the nodes that a norm consists of."""
