"""A layer as safetensors for other tools, and back.

    attention.keys (m, k), attention.values (m, d_out), attention.value_slopes (m, d_out, D) where values are affine
    attention.query_map (n_q, k, D), attention.query_constant (n_q, k), attention.mix (n_q, n_out), attention.centre (D,)
    layer.*            the layer itself under the names of layer/file.py, from which it is read back bit for bit
    metadata           "maxaffine": one JSON object: what the numbers mean, the certificate, and the description of the layer

With z = clip(x) - centre (clip(x) as often as centre is longer), query c is query_map[c] z + query_constant[c]; softmax over
query . keys, no scale; the output is
sum_c mix[c] sum_j weight_cj (values[j] + value_slopes[j] z).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.container import container_bytes, read_container
from maxaffine.core.errors import BadInput
from maxaffine.export.head import Head
from maxaffine.layer import file as layer_file
from maxaffine.layer.side_by_side import AnyLayer

SCHEMA = 1


def pack(layer: AnyLayer, head: Head, semantics: Mapping[str, Any]) -> bytes:
    """The bytes of the file; attention.* in float64, layer.* as they are stored."""
    native, description = layer_file.to_tensors(layer)
    tensors = {f"layer.{name}": array for name, array in native.items()}
    tensors |= {
        "attention.keys": head.keys, "attention.values": head.values, "attention.query_map": head.query_map,
        "attention.query_constant": head.query_constant, "attention.mix": head.mix, "attention.centre": np.asarray(head.centre),
    }  # fmt: skip
    if head.slopes is not None:
        tensors["attention.value_slopes"] = head.slopes
    return container_bytes(tensors, {"schema": SCHEMA, "semantics": dict(semantics), "layer": description})


def unpack(path: str | Path) -> tuple[AnyLayer, dict[str, Any]]:
    """The layer of an exported file, and what the file says about it."""
    tensors, record = read_container(path)
    if record.get("schema") != SCHEMA or not isinstance(record.get("semantics"), dict):
        raise BadInput(f"{str(path)!r} is not an export of maxaffine; load a saved layer with maxaffine.load.")
    native = {name.removeprefix("layer."): array for name, array in tensors.items() if name.startswith("layer.")}
    return layer_file.from_tensors(native, record["layer"]), dict(record["semantics"])


def run(path: str | Path, x: Any) -> Any:
    """F(x) from the attention.* tensors alone, by the schema above: (B, d_out, n_out)."""
    tensors, _ = read_container(path)
    t = {name.removeprefix("attention."): array for name, array in tensors.items() if name.startswith("attention.")}
    inside = np.clip(x, tensors["layer.box.low"], tensors["layer.box.high"])
    z = np.tile(inside, (1, len(t["centre"]) // inside.shape[1])) - t["centre"]
    logits = (np.einsum("ckd,bd->bck", t["query_map"], z) + t["query_constant"]) @ t["keys"].T
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    out = weights @ t["values"]
    if "value_slopes" in t:
        out = out + np.einsum("bcm,mrd,bd->bcr", weights, t["value_slopes"], z)
    return np.einsum("bcr,cn->brn", out, t["mix"])
