"""A layer as an ONNX model: the Attention operator from opset 23 on, MatMul, Softmax, MatMul before.

    x (batch, D)  ->  clip to the box  ->  queries (batch * n_q, k)  ->  attention over the m tokens  ->  y (batch,) or (batch, K)

All points of a batch are queries of one head over one context.  Sums of groups have one query column per group and a final sum.
Numbers are in the layer's dtype (bfloat16 layers in float32).  Needs the extra ``maxaffine[onnx]``.

`Graph` is what this form shares with the one that keeps the structure (onnx_fast.py): inputs, the box, the model around them.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from maxaffine.core.errors import BadInput
from maxaffine.core.records import canonical_json
from maxaffine.export.head import Head

OLDEST, ATTENTION = 13, 23


class Graph:
    """Nodes and constants of a model whose inputs and output are of `dtype`; its constants are `number`s."""

    def __init__(self, dtype: str, opset: int, number: Any = None) -> None:
        import onnx

        newest = onnx.defs.onnx_opset_version()
        if not OLDEST <= opset <= newest:
            raise BadInput(f"`opset` (={opset}) must lie between {OLDEST} and {newest}, the newest that this onnx knows.")
        self.opset = opset
        self.kind = onnx.TensorProto.DOUBLE if dtype == "float64" else onnx.TensorProto.FLOAT
        self.number = (np.float64 if dtype == "float64" else np.float32) if number is None else number
        self.constants: dict[str, Any] = {}
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []

    def constant(self, name: str, array: Any, of: Any = None) -> str:
        """A constant, a `number` unless told."""
        from onnx import numpy_helper

        made = np.ascontiguousarray(array, dtype=self.number if of is None else of)
        self.constants[name] = numpy_helper.from_array(made, name)
        return name

    def node(self, op: str, *inputs: str, out: str, **attributes: Any) -> str:
        """A node with one output."""
        from onnx import helper

        self.nodes.append(helper.make_node(op, list(inputs), [out], **attributes))
        return out

    def points(self, shapes: Sequence[tuple[int, int]]) -> str:
        """The inputs (batch, d) or (batch, d, n), declared, and all their numbers side by side: (batch, D)."""
        from onnx import helper

        flat = []
        for index, (d, n) in enumerate(shapes):
            name = "x" if len(shapes) == 1 else ("x_q", "x_kv")[index]
            sequence = n > 1
            self.inputs.append(helper.make_tensor_value_info(name, self.kind, ["batch", d, n] if sequence else ["batch", d]))
            if sequence:
                turned = self.node("Transpose", name, out=f"{name}_turned", perm=[0, 2, 1])
                shape = self.constant(f"{name}_shape", [-1, d * n], np.int64)
                name = self.node("Reshape", turned, shape, out=f"{name}_flat")
            flat.append(name)
        return flat[0] if len(flat) == 1 else self.node("Concat", *flat, out="joined", axis=1)

    def inside(self, points: str, low: Any, high: Any) -> str:
        """The nearest points of the box."""
        raised = self.node("Max", points, self.constant("low", low[None]), out="raised")
        return self.node("Min", raised, self.constant("high", high[None]), out="inside")

    def model(self, last: str, output: tuple[int, ...], semantics: dict[str, Any]) -> Any:
        """The model whose output y is `last` in the shape (batch, *output), checked by onnx's own checker."""
        import onnx
        from onnx import helper

        self.node("Reshape", last, self.constant("output_shape", [-1, *output], np.int64), out="y")
        results = [helper.make_tensor_value_info("y", self.kind, ["batch", *output])]
        graph = helper.make_graph(self.nodes, "maxaffine", self.inputs, results, list(self.constants.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], producer_name="maxaffine")
        model.ir_version = min(model.ir_version, 10 if self.opset >= ATTENTION else 8)
        helper.set_model_props(model, {"maxaffine": canonical_json(semantics)})
        onnx.checker.check_model(model, full_check=True)
        return model


def build(head: Head, output: tuple[int, ...], shapes: Any, dtype: str, opset: int, semantics: dict[str, Any]) -> Any:
    """The model, checked by onnx's own checker."""
    graph = Graph(dtype, opset)
    constant, node = graph.constant, graph.node
    n_q, k, D = head.query_map.shape
    m, d_out = head.values.shape
    inside = graph.inside(graph.points(shapes), head.low, head.high)
    if head.copies > 1:
        inside = node("Concat", *[inside] * head.copies, out="copies", axis=1)
    # In float32 the centre is a sum of two numbers: rounded to one it would shift x by half a unit in its last place.
    coarse = np.asarray(head.centre, dtype=graph.number)
    near = node("Sub", inside, constant("centre", coarse[None]), out="near")
    z = node("Sub", near, constant("centre_rest", (head.centre - coarse.astype(np.float64))[None]), out="z")
    maps = head.query_map.transpose(2, 0, 1).reshape(D, n_q * k)
    moved = node("MatMul", z, constant("query_map", maps), out="moved")
    shifted = node("Add", moved, constant("query_constant", head.query_constant.reshape(1, -1)), out="shifted")
    queries = node("Reshape", shifted, constant("query_shape", [1, 1, -1, k], np.int64), out="queries")
    table = head.values if head.slopes is None else np.concatenate([head.values[:, :, None], head.slopes], axis=2)
    values = table.reshape(m, -1)
    if opset >= ATTENTION:
        names = constant("keys", head.keys[None, None]), constant("values", values[None, None])
        mixed = node("Attention", queries, *names, out="mixed", scale=1.0)
    else:
        logits = node("MatMul", queries, constant("keys", head.keys.T[None, None]), out="logits")
        weights = node("Softmax", logits, out="weights", axis=-1)
        mixed = node("MatMul", weights, constant("values", values[None, None]), out="mixed")
    if head.slopes is not None:
        cube = node("Reshape", mixed, constant("cube_shape", [-1, n_q * d_out, D + 1], np.int64), out="cube")
        ones = node("MatMul", z, constant("nothing", np.zeros((D, 1))), out="zeros")
        one = node("Add", ones, constant("one", [[1.0]]), out="ones")
        lifted = node("Concat", one, z, out="lifted", axis=1)
        column = node("Reshape", lifted, constant("lifted_shape", [-1, D + 1, 1], np.int64), out="lifted_column")
        mixed = node("MatMul", cube, column, out="leaned")
    columns = node("Reshape", mixed, constant("column_shape", [-1, n_q, d_out], np.int64), out="columns")
    turned = node("Transpose", columns, out="turned", perm=[0, 2, 1])
    summed = node("MatMul", turned, constant("mix", head.mix), out="summed")
    return graph.model(summed, output, semantics)


def metadata(model: Any) -> dict[str, Any]:
    """What a model of ours says about itself."""
    found = {entry.key: entry.value for entry in model.metadata_props}
    if "maxaffine" not in found:
        raise BadInput("the model carries no record of maxaffine.")
    made: dict[str, Any] = json.loads(found["maxaffine"])
    return made


def session(data: bytes) -> Any:
    """An ONNX Runtime session on the CPU, one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
