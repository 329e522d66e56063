"""A layer as tensors with stable names, and back.

    box.low, box.high, coordinates.centre (D,), coordinates.matrix (E, D)        float64
    keys.<i>.slopes, keys.<i>.offsets (P_i,)  product keys, or keys.slopes (N, E), keys.offsets (N,)  listed keys
    values (keys..., d_out, n_out), value_slopes (keys..., d_out, n_out, E) where values are affine     in the dtype
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from maxaffine.core.container import Tensors
from maxaffine.core.errors import BadInput
from maxaffine.core.rounding import numpy_dtype
from maxaffine.layer.layer import Layer
from maxaffine.plan.keys import AxisKeys, Coordinates, ListedKeys, ProductKeys


def to_tensors(layer: Layer) -> tuple[Tensors, dict[str, Any]]:
    """The tensors of a layer and the part of the record that describes them."""
    tensors: Tensors = {
        "box.low": layer.low,
        "box.high": layer.high,
        "coordinates.centre": layer.coordinates.centre,
        "coordinates.matrix": layer.coordinates.matrix,
        "values": layer.values,
    }
    if isinstance(layer.keys, ProductKeys):
        for i, axis in enumerate(layer.keys.axes):
            tensors[f"keys.{i}.slopes"], tensors[f"keys.{i}.offsets"] = axis.slopes, axis.offsets
    else:
        tensors["keys.slopes"], tensors["keys.offsets"] = layer.keys.slopes, layer.keys.offsets
    if layer.slopes is not None:
        tensors["value_slopes"] = layer.slopes
    record = {
        "dtype": layer.dtype,
        "sharpness": layer.sharpness,
        "inputs": [list(shape) for shape in layer.inputs],
        "keys": "product" if layer.is_product else "listed",
    }
    return tensors, record


def from_tensors(tensors: Mapping[str, Any], record: Mapping[str, Any]) -> Layer:
    """The layer of validated tensors; refuses names, dtypes or shapes that do not belong together."""
    try:
        dtype = str(record["dtype"])
        stored = numpy_dtype(dtype)
        inputs = tuple((int(d), int(n)) for d, n in record["inputs"])
        if record["keys"] == "product":
            axes = sum(name.startswith("keys.") for name in tensors) // 2
            names = [f"keys.{i}" for i in range(axes)]
            pairs = [AxisKeys(tensors[f"{name}.slopes"], tensors[f"{name}.offsets"]) for name in names]
            keys: ProductKeys | ListedKeys = ProductKeys(tuple(pairs))
            if any(pair.slopes.ndim != 1 or pair.slopes.shape != pair.offsets.shape for pair in pairs):
                raise BadInput("keys per coordinate must be two equally long rows of numbers")
        else:
            names = ["keys"]
            keys = ListedKeys(tensors["keys.slopes"], tensors["keys.offsets"])
            if keys.slopes.ndim != 2 or keys.offsets.shape != keys.slopes.shape[:1]:
                raise BadInput("listed keys must be (N, E) slopes and (N,) offsets")
        expected = {"box.low", "box.high", "coordinates.centre", "coordinates.matrix", "values"}
        expected |= {f"{name}.{part}" for name in names for part in ("slopes", "offsets")}
        in_dtype = [name for name in tensors if name.startswith(("keys", "value"))]
        if set(tensors) - {"value_slopes"} != expected:
            raise BadInput(f"the tensors are {sorted(tensors)}")
        if any(tensors[name].dtype != (stored if name in in_dtype else np.float64) for name in tensors):
            raise BadInput("a tensor is not in the dtype that the record states")
        if np.any(tensors["box.low"] >= tensors["box.high"]):
            raise BadInput("the box is empty")
        return Layer(
            coordinates=Coordinates(tensors["coordinates.centre"], tensors["coordinates.matrix"]),
            keys=keys,
            sharpness=float(record["sharpness"]),
            values=tensors["values"],
            low=tensors["box.low"],
            high=tensors["box.high"],
            inputs=inputs,
            dtype=dtype,
            slopes=tensors.get("value_slopes"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as failure:
        raise BadInput(f"the file does not hold a layer: {failure}.") from None
