"""A layer as tensors with stable names, and back.

    box.low, box.high, coordinates.centre (D,), coordinates.matrix (E, D)        float64
    keys.<i>.slopes, keys.<i>.offsets (P_i,)  product keys, or keys.slopes (N, E), keys.offsets (N,)  listed keys
    values (keys..., d_out, n_out), value_slopes (keys..., d_out, n_out, E) where values are affine     in the dtype

A grouped layer has box.* and coordinates.centre, and for its group g and direction e:

    group.<g>.matrix (E, D) float64;  group.<g>.<e>.slopes, group.<g>.<e>.offsets (N_e,);
    group.<g>.values (N_1, .., N_E, K), or group.<g>.<e>.factor (N_e, R)
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from maxaffine.core.container import Tensors
from maxaffine.core.errors import BadInput
from maxaffine.core.rounding import numpy_dtype
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.plan.keys import AxisKeys, Coordinates, ListedKeys, ProductKeys


def to_tensors(layer: Layer | GroupedLayer) -> tuple[Tensors, dict[str, Any]]:
    """The tensors of a layer and the part of the record that describes them."""
    if isinstance(layer, GroupedLayer):
        return _grouped_tensors(layer)
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


def _grouped_tensors(layer: GroupedLayer) -> tuple[Tensors, dict[str, Any]]:
    tensors: Tensors = {"box.low": layer.low, "box.high": layer.high, "coordinates.centre": layer.centre}
    for g, group in enumerate(layer.groups):
        tensors[f"group.{g}.matrix"] = group.matrix
        for e, axis in enumerate(group.axes):
            tensors[f"group.{g}.{e}.slopes"], tensors[f"group.{g}.{e}.offsets"] = axis.slopes, axis.offsets
            if group.factors is not None:
                tensors[f"group.{g}.{e}.factor"] = group.factors[e]
        if group.values is not None:
            tensors[f"group.{g}.values"] = group.values
    inputs = [list(shape) for shape in layer.inputs]
    shapes = [len(group.axes) for group in layer.groups]
    return tensors, {"dtype": layer.dtype, "bonus": layer.bonus, "inputs": inputs, "keys": "grouped", "directions": shapes}


def _grouped_layer(tensors: Mapping[str, Any], record: Mapping[str, Any]) -> GroupedLayer:
    dtype = str(record["dtype"])
    stored, names, groups = numpy_dtype(dtype), {"box.low", "box.high", "coordinates.centre"}, []
    for g, E in enumerate(record["directions"]):
        axes, factors = [], []
        for e in range(int(E)):
            axes.append(AxisKeys(tensors[f"group.{g}.{e}.slopes"], tensors[f"group.{g}.{e}.offsets"]))
            if axes[-1].slopes.ndim != 1 or axes[-1].slopes.shape != axes[-1].offsets.shape:
                raise BadInput("keys per direction must be two equally long rows of numbers")
            names |= {f"group.{g}.{e}.slopes", f"group.{g}.{e}.offsets"}
            if f"group.{g}.{e}.factor" in tensors:
                factors.append(tensors[f"group.{g}.{e}.factor"])
                names.add(f"group.{g}.{e}.factor")
        names |= {f"group.{g}.matrix"} | ({f"group.{g}.values"} if not factors else set())
        values = None if factors else tensors[f"group.{g}.values"]
        groups.append(Group(tensors[f"group.{g}.matrix"], tuple(axes), values, tuple(factors) or None))
    if set(tensors) != names:
        raise BadInput(f"the tensors are {sorted(tensors)}")
    exact = {"matrix", "low", "high", "centre"}
    if any(tensors[name].dtype != (np.float64 if name.split(".")[-1] in exact else stored) for name in names):
        raise BadInput("a tensor is not in the dtype that the record states")
    if np.any(tensors["box.low"] >= tensors["box.high"]):
        raise BadInput("the box is empty")
    inputs = tuple((int(d), int(n)) for d, n in record["inputs"])
    low, high, bonus = tensors["box.low"], tensors["box.high"], float(record["bonus"])
    return GroupedLayer(tensors["coordinates.centre"], tuple(groups), bonus, low, high, inputs, dtype)


def from_tensors(tensors: Mapping[str, Any], record: Mapping[str, Any]) -> Layer | GroupedLayer:
    """The layer of validated tensors; refuses names, dtypes or shapes that do not belong together."""
    try:
        if record["keys"] == "grouped":
            return _grouped_layer(tensors, record)
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
