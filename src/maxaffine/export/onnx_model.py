"""A layer as an ONNX model: the Attention operator from opset 23 on, MatMul, Softmax, MatMul before.

    x (batch, D)  ->  clip to the box  ->  queries (batch * n_q, k)  ->  attention over the m tokens  ->  y (batch,) or (batch, K)

All points of a batch are queries of one head over one context.  Sums of groups have one query column per group and a final sum.
Numbers are in the layer's dtype (bfloat16 layers in float32).  Needs the extra ``maxaffine[onnx]``.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from maxaffine.core.errors import BadInput
from maxaffine.core.records import canonical_json
from maxaffine.export.head import Head

OLDEST, ATTENTION = 13, 23


def build(head: Head, output: tuple[int, ...], shapes: Any, dtype: str, opset: int, semantics: dict[str, Any]) -> Any:
    """The model, checked by onnx's own checker."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    newest = onnx.defs.onnx_opset_version()
    if not OLDEST <= opset <= newest:
        raise BadInput(f"`opset` (={opset}) must lie between {OLDEST} and {newest}, the newest that this onnx knows.")
    number = np.float64 if dtype == "float64" else np.float32
    kind = TensorProto.DOUBLE if dtype == "float64" else TensorProto.FLOAT
    n_q, k, D = head.query_map.shape
    d_out = head.outputs[0]
    constants: dict[str, Any] = {}
    nodes: list[Any] = []

    def constant(name: str, array: Any, of: Any = number) -> str:
        constants[name] = numpy_helper.from_array(np.ascontiguousarray(array, dtype=of), name)
        return name

    def node(op: str, *inputs: str, out: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, list(inputs), [out], **attributes))
        return out

    inputs = []
    flat = []
    for index, (d, n) in enumerate(shapes):
        name = "x" if len(shapes) == 1 else ("x_q", "x_kv")[index]
        sequence = n > 1
        inputs.append(helper.make_tensor_value_info(name, kind, ["batch", d, n] if sequence else ["batch", d]))
        if sequence:
            turned = node("Transpose", name, out=f"{name}_turned", perm=[0, 2, 1])
            name = node("Reshape", turned, constant(f"{name}_shape", [-1, d * n], np.int64), out=f"{name}_flat")
        flat.append(name)
    joined = flat[0] if len(flat) == 1 else node("Concat", *flat, out="joined", axis=1)
    raised = node("Max", joined, constant("low", head.low[None]), out="raised")
    inside = node("Min", raised, constant("high", head.high[None]), out="inside")
    # In float32 the centre is a sum of two numbers: rounded to one it would shift x by half a unit in its last place.
    coarse = np.asarray(head.centre, dtype=number)
    near = node("Sub", inside, constant("centre", coarse[None]), out="near")
    z = node("Sub", near, constant("centre_rest", (head.centre - coarse.astype(np.float64))[None]), out="z")
    maps = head.query_map.transpose(2, 0, 1).reshape(D, n_q * k)
    moved = node("MatMul", z, constant("query_map", maps), out="moved")
    shifted = node("Add", moved, constant("query_constant", head.query_constant.reshape(1, -1)), out="shifted")
    queries = node("Reshape", shifted, constant("query_shape", [1, 1, -1, k], np.int64), out="queries")
    table = head.values if head.slopes is None else np.concatenate([head.values[:, :, None], head.slopes], axis=2)
    values = table.reshape(head.tokens, -1)
    if opset >= ATTENTION:
        names = constant("keys", head.keys[None, None]), constant("values", values[None, None])
        mixed = node("Attention", queries, *names, out="mixed", scale=1.0)
    else:
        logits = node("MatMul", queries, constant("keys", head.keys.T[None, None]), out="logits")
        weights = node("Softmax", logits, out="weights", axis=-1)
        mixed = node("MatMul", weights, constant("values", values[None, None]), out="mixed")
    if head.slopes is None:
        columns = node("Reshape", mixed, constant("column_shape", [-1, n_q, d_out], np.int64), out="columns")
    else:
        cube = node("Reshape", mixed, constant("cube_shape", [-1, n_q * d_out, D + 1], np.int64), out="cube")
        ones = node("MatMul", z, constant("nothing", np.zeros((D, 1))), out="zeros")
        one = node("Add", ones, constant("one", [[1.0]]), out="ones")
        lifted = node("Concat", one, z, out="lifted", axis=1)
        column = node("Reshape", lifted, constant("lifted_shape", [-1, D + 1, 1], np.int64), out="lifted_column")
        leaned = node("MatMul", cube, column, out="leaned")
        columns = node("Reshape", leaned, constant("column_shape", [-1, n_q, d_out], np.int64), out="columns")
    turned = node("Transpose", columns, out="turned", perm=[0, 2, 1])
    summed = node("MatMul", turned, constant("mix", head.mix), out="summed")
    node("Reshape", summed, constant("output_shape", [-1, *output], np.int64), out="y")
    graph = helper.make_graph(
        nodes, "maxaffine", inputs, [helper.make_tensor_value_info("y", kind, ["batch", *output])], list(constants.values())
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], producer_name="maxaffine")
    model.ir_version = min(model.ir_version, 10 if opset >= ATTENTION else 8)
    helper.set_model_props(model, {"maxaffine": canonical_json(semantics)})
    onnx.checker.check_model(model, full_check=True)
    return model


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
