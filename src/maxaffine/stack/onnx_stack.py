"""The literal stack as an ONNX model in float64: block after block, the operations of stack/blocks.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from maxaffine.export.onnx_model import Graph
from maxaffine.stack.blocks import Block, blocks, last_map

if TYPE_CHECKING:
    from maxaffine.stack.stack import Stack


def build(stack: Stack, opset: int, semantics: dict[str, Any]) -> Any:
    """The model x (batch, D) -> y (batch,), checked by onnx's own checker."""
    graph = Graph("float64", opset)
    stream = graph.inside(graph.points(((stack.box.dimension, 1),)), stack.box.low, stack.box.high)
    for number, block in enumerate(blocks(stack)):
        stream = _block(graph, f"b{number}", block, stream)
    weights, constant = last_map(stack)
    summed = graph.node("MatMul", stream, graph.constant("last", weights[:, None]), out="summed")
    return graph.model(graph.node("Add", summed, graph.constant("last_constant", [[constant]]), out="answer"), (), semantics)


def _block(graph: Graph, name: str, block: Block, stream: str) -> str:
    """s -> [s ; heads(s)]."""

    def node(op: str, *inputs: str, out: str, **attributes: Any) -> str:
        return graph.node(op, *inputs, out=f"{name}_{out}", **attributes)

    def constant(what: str, array: Any, of: Any = None) -> str:
        return graph.constant(f"{name}_{what}", array, of)

    H, m = block.mask.shape
    total = len(block.W_Q)
    width, n_q, E = total // H, len(block.marks), len(block.before)
    moved = node("MatMul", stream, constant("before", block.before.T), out="moved")
    shifted = node("Add", moved, constant("constant", block.constant[None]), out="shifted")
    z = node("Sub", shifted, constant("centre", block.centre[None]), out="z")
    spread = node("MatMul", z, constant("spread", block.spread.T), out="spread_z")
    tall = node("Reshape", spread, constant("tall_shape", [-1, 1, total], np.int64), out="tall")
    tokens = node("Add", tall, constant("marks", block.marks[None]), out="tokens")
    mapped = node("MatMul", tokens, constant("W_Q", block.W_Q.T[None]), out="mapped")
    heads = node("Reshape", mapped, constant("heads_shape", [-1, n_q, H, width], np.int64), out="heads")
    queries = node("Transpose", heads, out="queries", perm=[0, 2, 1, 3])
    keys = (block.context @ block.W_K.T).reshape(m, H, width).transpose(1, 2, 0)
    logits = node("MatMul", queries, constant("keys", keys[None]), out="logits")
    scaled = node("Mul", logits, constant("scale", [1.0 / np.sqrt(width)]), out="scaled")
    hidden = np.where(block.mask, -np.inf, 0.0)[None, :, None, :]
    weights = node("Softmax", node("Add", scaled, constant("mask", hidden), out="masked"), out="weights", axis=-1)
    firsts = np.arange(H) * width
    values = (block.context @ block.W_V.T)[:, firsts].T
    slopes = np.einsum("mwe,vw->mve", block.slopes, block.W_V)[:, firsts].transpose(2, 1, 0).reshape(E, H * m)
    leaning = node("MatMul", z, constant("slopes", slopes), out="leaning")
    cube = node("Reshape", leaning, constant("cube_shape", [-1, H, m, 1], np.int64), out="cube")
    said = node("MatMul", weights, node("Add", cube, constant("values", values[None, :, :, None]), out="values_z"), out="said")
    read = np.stack([block.read[h, :, h * width] for h in range(H)])[None, :, :, None]
    mixed = node("Mul", said, constant("read", read), out="mixed")
    summed = node("ReduceSum", mixed, constant("axes", [2, 3], np.int64), out="read_out", keepdims=0)
    return node("Concat", stream, summed, out="stream", axis=1)
