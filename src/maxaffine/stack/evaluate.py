"""Running a stack in NumPy, layer after layer: nodes of one layer that share a head go through it together.

Batches run in pieces that stay in the processor's cache, on several threads where that pays; heads by their own runtimes, which
are compiled for large batches (runtime/chooser.py).  Every query goes through the same operations wherever it stands.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.compiled import Compiled
from maxaffine.runtime import chooser, parallel
from maxaffine.runtime.kept import once
from maxaffine.structure.stacked import StackNode, StackPlan

Array = NDArray[Any]

CACHED = 1 << 18  # numbers of a piece that stay in the cache: those of all nodes at its queries
LEAST = 1_024  # queries of a piece, below which calling heads takes longer than what they do

Step = tuple[int, tuple[int, ...]]
"""A head, and the nodes of one layer that it computes."""


@once
def steps(plan: StackPlan) -> tuple[Step, ...]:
    """Layer after layer, the heads and what they compute."""
    found: dict[tuple[int, int], list[int]] = {}
    for k, (node, level) in enumerate(zip(plan.nodes, plan.levels, strict=True)):
        found.setdefault((level, node.head), []).append(k)
    return tuple((head, tuple(found[level, head])) for level, head in sorted(found))


def node_values(plan: StackPlan, heads: Sequence[Compiled], points: Array, threads: int | None = None) -> list[Array]:
    """What every node says at points (B, D) of the box, those of `plan.flat` in order, and last the output: (B,) each."""
    plan, x = plan.flat, np.asarray(points, dtype=np.float64)
    out = np.empty((len(plan.nodes) + 1, len(x)))
    for start, stop in _pieces(plan, len(x)):
        out[:, start:stop] = _piece(plan, heads, x[start:stop], threads)
    return list(out)


def outputs(plan: StackPlan, heads: Sequence[Compiled], points: Array, threads: int | None = None) -> Array:
    """The output at points (B, D) of the box: (B,)."""
    plan, x = plan.flat, np.asarray(points, dtype=np.float64)
    out = np.empty(len(x))

    def run(first: int, last: int) -> None:
        for start, stop in _pieces(plan, last - first):
            here = slice(first + start, first + stop)
            out[here] = _piece(plan, heads, x[here], 1 if shared else threads)[-1]

    work = len(x) * _ready(plan, heads, len(x))
    shared = len(x) > LEAST and parallel.shares(len(x), work, threads) > 1
    if shared:
        parallel.over(0, len(x), work, threads, run)
    else:
        run(0, len(x))
    return out


def _pieces(plan: StackPlan, count: int) -> Iterator[tuple[int, int]]:
    step = max(LEAST, CACHED // (len(plan.inputs) + len(plan.nodes)))
    return ((start, min(start + step, count)) for start in range(0, count, step))


def _ready(plan: StackPlan, heads: Sequence[Compiled], count: int) -> int:
    """The work that a query takes; compiled code is loaded where a batch of so many is worth that."""
    total = 0
    for head, nodes in steps(plan):
        ways = _ways(heads[head])
        total += ways.work * len(nodes)
        if ways.kernel is not None:
            parallel.kernel(ways.kernel, ways.work * len(nodes) * count, count)
    return total


@once
def _ways(head: Compiled) -> parallel.Ways:
    """How batches of a head run."""
    name = chooser.choose(head.weights, head.reserve)[0]
    return chooser.ways(head.weights, name, head.reserve or 0.0)


def _piece(plan: StackPlan, heads: Sequence[Compiled], x: Array, threads: int | None) -> list[Array]:
    """All nodes and the output at a few points.  Scales are powers of two: nothing is rounded there.

    By the proof no argument leaves the box of its head by more than the rounding of its affine map, which is part of that box.
    """
    D, B = len(plan.inputs), len(x)
    known: list[Any] = [*(np.ascontiguousarray(column) for column in x.T), *([None] * len(plan.nodes))]
    for number, members in steps(plan):
        head, nodes = heads[number], [plan.nodes[k] for k in members]
        asked = np.empty((len(nodes) * B, head.target.dimension))
        for i, node in enumerate(nodes):
            _arguments(node, known, asked[i * B : (i + 1) * B])
        np.minimum(np.maximum(asked, head.box.low, out=asked), head.box.high, out=asked)
        said = chooser.evaluate(head.weights, asked, None, head.reserve, threads).reshape(len(nodes), B)
        for k, node, values in zip(members, nodes, said, strict=True):
            known[D + k] = np.ldexp(values, node.lift) if node.lift else values
    return [*known[D:], plan.result(known)]


def _arguments(node: StackNode, known: Sequence[Any], out: Array) -> None:
    """What a node asks its head at, (B, E)."""
    for e, (row, scale) in enumerate(zip(node.maps, node.scales, strict=True)):
        value = row(known)
        out[:, e] = np.ldexp(value, -scale) if scale else value
