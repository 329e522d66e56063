"""The literal stack: block l maps the stream s to [s ; heads(s)] by one softmax attention between two linear maps.

    z        =  before s + constant - centre                       the arguments of the block's H heads, less their middles
    queries  =  spread z + marks_c          c = 1..n_q             a token [z_h, 1, e_c] in the columns of every head h
    context  =  context_j + slopes_j z      j = 1..m               a token [key_hj, value_hj] there; constant keys, affine values
    out      =  softmax_j(W_Q queries . W_K context per head, masked where a head has fewer tokens) W_V context
    s'       =  [s ; read out]

The width of a head is a power of four, so that the factor 1/sqrt(width) of attention is a power of two and rounds nothing.
What is proved of it: the theorem of stacks with the literal bounds of the heads (literal.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.budget import afford_bytes
from maxaffine.export.head import Head, head_of

if TYPE_CHECKING:
    from maxaffine.stack.stack import Stack


@dataclass(frozen=True)
class Block:
    """One block; see the module for the formula."""

    nodes: tuple[str, ...]
    before: Array  # (E, S)
    constant: Array  # (E,)
    centre: Array  # (E,)
    spread: Array  # (width, E), zeros and ones
    marks: Array  # (n_q, width)
    W_Q: Array  # (width, width), as W_K and W_V, block by block for every head
    W_K: Array
    W_V: Array
    context: Array  # (m, width)
    slopes: Array  # (m, width, E)
    mask: NDArray[np.bool_]  # (H, m): True where a head has no such token
    read: Array  # (H, n_q, width)

    @property
    def heads(self) -> int:
        """H."""
        return len(self.nodes)

    def __call__(self, s: Array) -> Array:
        """The stream (B, S) after this block, (B, S + H), by plain multiplications."""
        z = s @ self.before.T + self.constant - self.centre
        queries = (z @ self.spread.T)[:, None] + self.marks
        context = self.context + np.einsum("mwe,be->bmw", self.slopes, z)
        B, H, width = len(s), self.heads, len(self.W_Q) // self.heads
        q, k, v = (
            (tokens @ W.T).reshape(B, -1, H, width).transpose(0, 2, 1, 3)
            for tokens, W in ((queries, self.W_Q), (context, self.W_K), (context, self.W_V))
        )
        logits = q @ k.transpose(0, 1, 3, 2) / np.sqrt(width)
        logits = np.where(self.mask[None, :, None, :], -np.inf, logits)
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        out = (weights @ v).transpose(0, 2, 1, 3).reshape(B, -1, H * width)
        return np.concatenate([s, np.einsum("hcw,bcw->bh", self.read, out)], axis=1)

    def describe(self) -> str:
        """A line: heads, tokens, width."""
        heads = f"{self.heads} heads of width {len(self.W_Q) // self.heads}"
        return f"{heads}, {self.mask.shape[1]} context tokens: {', '.join(self.nodes)}"


def blocks(stack: Stack) -> tuple[Block, ...]:
    """The blocks of a stack, layer by layer; the stream is the inputs and the nodes in the order of the blocks."""
    place = {i: i for i in range(stack.box.dimension)}  # of a value of the plan in the stream
    found = []
    for level in stack.levels:
        found.append(_block(stack, level, place))
        for k in level:
            place[stack.box.dimension + k] = len(place)
    return tuple(found)


def last_map(stack: Stack) -> tuple[Array, float]:
    """Weights (S,) and constant of the output in the stream after the last block."""
    order = [k for level in stack.levels for k in level]
    D = stack.box.dimension
    place = {**{i: i for i in range(D)}, **{D + k: D + i for i, k in enumerate(order)}}
    weights = np.zeros(len(place))
    result = stack.plan.flat.result
    for i, c in zip(result.indices, result.weights, strict=True):
        weights[place[i]] = c
    return weights, result.constant


def run(stack: Stack, points: Array) -> Array:
    """The literal stack at points (B, D) of the box, by plain multiplications: (B,)."""
    s = np.asarray(points, dtype=np.float64)
    for block in blocks(stack):
        s = block(s)
    weights, constant = last_map(stack)
    return np.asarray(s @ weights + constant)


def _block(stack: Stack, level: tuple[int, ...], place: dict[int, int]) -> Block:
    nodes = [stack.plan.flat.nodes[k] for k in level]
    heads = [head_of(stack.heads[node.head].weights) for node in nodes]
    sizes = [len(head.centre) for head in heads]
    n_q, m = max(len(head.mix) for head in heads), max(len(head.keys) for head in heads)
    width = _power_of_four(max(_needed(head) for head in heads))
    total, E = width * len(heads), sum(sizes)
    afford_bytes(8 * m * total * E, "the literal blocks of a stack", "ask for a larger error")
    before, constant = np.zeros((E, len(place))), np.zeros(E)
    spread, marks, slopes = np.zeros((total, E)), np.zeros((n_q, total)), np.zeros((m, total, E))
    W_Q, W_K, W_V = (np.zeros((total, total)) for _ in range(3))
    context, mask, read = np.zeros((m, total)), np.ones((len(heads), m), dtype=bool), np.zeros((len(heads), n_q, total))
    row = 0
    for h, (node, head) in enumerate(zip(nodes, heads, strict=True)):
        count, first = len(head.centre), h * width
        for e, (affine, scale) in enumerate(zip(node.maps, node.scales, strict=True)):
            constant[row + e] = np.ldexp(affine.constant, -scale)
            for i, c in zip(affine.indices, affine.weights, strict=True):
                before[row + e, place[i]] = np.ldexp(c, -scale)
        _fill(head, first, row, spread, marks, W_Q, W_K, W_V, context, slopes, float(np.sqrt(width)))
        mask[h, : len(head.keys)] = False
        read[h, : len(head.mix), first] = np.ldexp(head.mix[:, 0], node.lift)
        row += count
    centre = np.concatenate([head.centre for head in heads])
    names = tuple(node.name for node in nodes)
    return Block(names, before, constant, centre, spread, marks, W_Q, W_K, W_V, context, slopes, mask, read)


def _fill(
    head: Head, first: int, row: int, spread: Array, marks: Array, W_Q: Array, W_K: Array, W_V: Array, context: Array,
    slopes: Array, factor: float,
) -> None:  # fmt: skip
    """One head in its columns from `first` on: query token [z, 1, e_c], context token [key_j, value_j]."""
    n_q, k, D = head.query_map.shape
    m = len(head.keys)
    spread[first : first + D, row : row + D] = np.eye(D)
    marks[:, first + D] = 1.0
    marks[np.arange(n_q), first + D + 1 + np.arange(n_q)] = 1.0
    least = head.query_constant.min(axis=0)
    W_Q[first : first + k, first : first + D] = factor * head.query_map[0]
    W_Q[first : first + k, first + D] = factor * least
    W_Q[first : first + k, first + D + 1 : first + D + 1 + n_q] = factor * (head.query_constant - least).T
    W_K[first : first + k, first : first + k] = np.eye(k)
    W_V[first, first + k] = 1.0
    context[:m, first : first + k], context[:m, first + k] = head.keys, head.values[:, 0]
    if head.slopes is not None:
        slopes[:m, first + k, row : row + D] = head.slopes[:, 0]


def _needed(head: Head) -> int:
    """The width that a head takes."""
    n_q, k, D = head.query_map.shape
    return int(max(D + 1 + n_q, k + 1))


def _power_of_four(least: int) -> int:
    width = 4
    while width < least:
        width *= 4
    return width
