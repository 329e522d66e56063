"""A layer as tensors with stable names, and back.

    box.low, box.high, coordinates.centre (D,), coordinates.matrix (E, D)        float64
    keys.<i>.slopes, keys.<i>.offsets (P_i,)  product keys, or keys.slopes (N, E), keys.offsets (N,)  listed keys
    values (keys..., d_out, n_out), value_slopes (keys..., d_out, n_out, E) where values are affine     in the dtype
    sites.<i> (P_i,), or sites.0 (N, D) of listed keys: a hard layer's sites in x                       float64

A grouped layer has box.* and coordinates.centre, and for its group g and direction e:

    group.<g>.matrix (E, D) float64;  group.<g>.<e>.slopes, group.<g>.<e>.offsets (N_e,);
    group.<g>.values (N_1, .., N_E, K), or group.<g>.<e>.factor (N_e, R); group.<g>.value_slopes (N_1, .., N_E, K, E) where affine
    group.<g>.<e>.factor (N_e, .., N_f, R) of a block of directions, named by its first; group.<g>.<e>.imaginary, so shaped
    tilt (K, D), where there is one

Its groups of C clusters (`clusters` of the record counts them, 0 for product keys) hold one array per kind of number, cluster
after cluster; group.<g>.shapes (C, E) says how many keys a cluster has per coordinate, so that it can be cut again:

    group.<g>.matrix (E, D), group.<g>.shapes, .origins, .radii (C, E) float64;  group.<g>.sites.slopes (C, E), .offsets (C,);
    group.<g>.keys.<e>.slopes, .offsets (sum of keys along e,);  group.<g>.values (N_g, K), group.<g>.value_slopes (N_g, K, E)

Layers side by side (`parts` of the record lists their entries, variables and descriptions) have box.* and part.<p>.* of each.

A product (`factors` of the record lists the clusters of its factors, and nothing for other groups) holds its factors, the same
arrays each, and not their combinations: group.<g>.factor.<b>.matrix (E_b, D), .shapes, ..;  group.<g>.shift (1,) float64
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from maxaffine.core.container import Tensors
from maxaffine.core.errors import BadInput
from maxaffine.core.rounding import numpy_dtype
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.factors import FactorGroup
from maxaffine.layer.grouped import AnyGroup, Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys, Coordinates, ListedKeys, ProductKeys
from maxaffine.layer.layer import Layer
from maxaffine.layer.side_by_side import AnyLayer, OutputsLayer, Part


def to_tensors(layer: AnyLayer) -> tuple[Tensors, dict[str, Any]]:
    """The tensors of a layer and the part of the record that describes them."""
    if layer.several:
        return _parts_tensors(layer)
    if layer.grouped:
        return _grouped_tensors(layer)
    tensors: Tensors = {
        "box.low": layer.low,
        "box.high": layer.high,
        "coordinates.centre": layer.coordinates.centre,
        "coordinates.matrix": layer.coordinates.matrix,
        "values": layer.values,
    }
    if layer.keys.is_product:
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
    if layer.sites is not None:
        record["hard"] = True
        tensors |= {f"sites.{i}": one for i, one in enumerate(layer.sites)}
    return tensors, record


def _parts_tensors(layer: OutputsLayer) -> tuple[Tensors, dict[str, Any]]:
    tensors: Tensors = {"box.low": layer.low, "box.high": layer.high}
    parts = []
    for p, part in enumerate(layer.parts):
        own, record = _grouped_tensors(part.layer)
        tensors |= {f"part.{p}.{name}": tensor for name, tensor in own.items()}
        also = {"also": [list(one) for one in part.also]} if part.also else {}
        parts.append({"entries": list(part.entries), **also, "variables": list(part.variables), "layer": record})
    inputs, shape = [list(one) for one in layer.inputs], [layer.d_out, layer.n_out]
    return tensors, {
        "dtype": layer.dtype, "bonus": layer.bonus, "inputs": inputs, "keys": "parts", "outputs": shape, "parts": parts,
    }  # fmt: skip


def _parts_layer(tensors: Mapping[str, Any], record: Mapping[str, Any], common: dict[str, Any]) -> OutputsLayer:
    parts, known = [], {"box.low", "box.high"}
    if len(record["parts"]) > PARTS_LIMIT or any(one["layer"]["keys"] != "grouped" for one in record["parts"]):
        raise BadInput(f"the parts of a layer are layers of groups, at most {PARTS_LIMIT:,}")
    for p, one in enumerate(record["parts"]):
        own = _under(tensors, f"part.{p}.")
        known |= {f"part.{p}.{name}" for name in own}
        layer = from_tensors(own, one["layer"])
        assert isinstance(layer, GroupedLayer)
        also = tuple((int(c), int(sign)) for c, sign in one.get("also", ()))
        parts.append(Part(tuple(int(e) for e in one["entries"]), tuple(int(i) for i in one["variables"]), layer, also))
    _expect(tensors, known)
    d_out, n_out = (int(n) for n in record["outputs"])
    made = OutputsLayer(tuple(parts), d_out, n_out, float(record["bonus"]), common["low"], common["high"], common["inputs"])
    if made.dtype != common["dtype"]:
        raise BadInput("the parts of a layer have another dtype than its record says")
    return made


PARTS_LIMIT = 1000
CLUSTER_LIMIT = 1 << 20  # clusters that a file may hold
EXACT = {"matrix", "low", "high", "centre", "shapes", "origins", "radii", "shift"}  # last parts of names, float64 in every dtype
PARTS = ("slopes", "offsets")


def _grouped_tensors(layer: GroupedLayer) -> tuple[Tensors, dict[str, Any]]:
    tensors: Tensors = {"box.low": layer.low, "box.high": layer.high, "coordinates.centre": layer.centre}
    for g, group in enumerate(layer.groups):
        if group.factored:
            parts: Tensors = {"shift": group.shift}
            for b, factor in enumerate(group.factors):
                parts |= {f"factor.{b}.{name}": tensor for name, tensor in _cluster_tensors(factor).items()}
        else:
            parts = _cluster_tensors(group) if group.clustered else _product_tensors(group)
        tensors |= {f"group.{g}.{name}": tensor for name, tensor in parts.items()}
    if layer.tilt is not None:
        tensors["tilt"] = layer.tilt
    inputs = [list(shape) for shape in layer.inputs]
    shapes = [len(group.matrix) for group in layer.groups]
    record = {"dtype": layer.dtype, "bonus": layer.bonus, "inputs": inputs, "keys": "grouped", "directions": shapes}
    if layer.has_clusters:
        counts = [[len(block.clusters) for block in group.blocks] for group in layer.groups]
        record["clusters"] = [math.prod(row) if row else 0 for row in counts]
        if any(group.factored for group in layer.groups):
            record["factors"] = [row if group.factored else [] for group, row in zip(layer.groups, counts, strict=True)]
    return tensors, record


def _product_tensors(group: Group) -> Tensors:
    tensors: Tensors = {"matrix": group.matrix}
    for e, axis in enumerate(group.axes):
        tensors[f"{e}.slopes"], tensors[f"{e}.offsets"] = axis.slopes, axis.offsets
    for name, arrays in (("factor", group.factors), ("imaginary", group.imaginary)):
        if arrays is not None:
            tensors |= {f"{cut.start}.{name}": array for cut, array in zip(group.block_slices, arrays, strict=True)}
    if group.values is not None:
        tensors["values"] = group.values
    if group.slopes is not None:
        tensors["value_slopes"] = group.slopes
    return tensors


def _cluster_tensors(group: ClusterGroup) -> Tensors:
    clusters, E, K = group.clusters, len(group.matrix), group.outputs
    tensors: Tensors = {
        "matrix": group.matrix,
        "shapes": np.array([cluster.shape for cluster in clusters], dtype=np.float64),
        "origins": np.stack([cluster.origin for cluster in clusters]),
        "radii": np.stack([cluster.radius for cluster in clusters]),
        "sites.slopes": group.site_slopes,
        "sites.offsets": group.site_offsets,
        "values": np.concatenate([cluster.values.reshape(-1, K) for cluster in clusters]),
    }
    for e in range(E):
        tensors[f"keys.{e}.slopes"] = np.concatenate([cluster.axes[e].slopes for cluster in clusters])
        tensors[f"keys.{e}.offsets"] = np.concatenate([cluster.axes[e].offsets for cluster in clusters])
    slopes = [cluster.slopes.reshape(-1, K, E) for cluster in clusters if cluster.slopes is not None]
    if slopes:  # of all clusters, or of none
        tensors["value_slopes"] = np.concatenate(slopes)
    return tensors


def _product_group(tensors: Mapping[str, Any], E: int) -> Group:
    axes = []
    for e in range(E):
        axes.append(AxisKeys(tensors[f"{e}.slopes"], tensors[f"{e}.offsets"]))
        if axes[-1].slopes.ndim != 1 or axes[-1].slopes.shape != axes[-1].offsets.shape:
            raise BadInput("keys per direction must be two equally long rows of numbers")
    names = {"matrix", *(f"{e}.{part}" for e in range(E) for part in PARTS)}
    if "0.factor" not in tensors:
        _expect(tensors, names | {"values"} | ({"value_slopes"} & set(tensors)))
        return Group(tensors["matrix"], tuple(axes), tensors["values"], None, tensors.get("value_slopes"))
    firsts = [e for e in range(E) if f"{e}.factor" in tensors]
    kinds = ("factor", "imaginary") if "0.imaginary" in tensors else ("factor",)
    _expect(tensors, names | {f"{e}.{kind}" for e in firsts for kind in kinds})
    if any(tensors[f"{e}.factor"].ndim - 1 != after - e for e, after in zip(firsts, [*firsts[1:], E], strict=True)):
        raise BadInput("a block of factors has other directions than its name says")
    factors, imaginary = (tuple(tensors[f"{e}.{kind}"] for e in firsts) for kind in ("factor", kinds[-1]))
    return Group(tensors["matrix"], tuple(axes), factors=factors, imaginary=imaginary if len(kinds) > 1 else None)


def _cluster_group(tensors: Mapping[str, Any], E: int, C: int) -> ClusterGroup:
    """The clusters cut out of their arrays; nothing larger than the arrays themselves is made."""
    if not 1 <= C <= CLUSTER_LIMIT:
        raise BadInput(f"a group of {C} clusters is outside 1 to {CLUSTER_LIMIT:,}")
    names = {"matrix", "shapes", "origins", "radii", "sites.slopes", "sites.offsets", "values"}
    names |= {"value_slopes"} & set(tensors)
    _expect(tensors, names | {f"keys.{e}.{part}" for e in range(E) for part in PARTS})
    counts = np.asarray(tensors["shapes"])
    if any(tensors[name].shape != (C, E) for name in ("shapes", "origins", "radii")):
        raise BadInput("shapes, origins and radii must be one row per cluster")
    if not (np.all(counts == np.floor(counts)) and np.all(counts >= 1) and np.all(counts <= 2**31)):
        raise BadInput("a cluster has a whole number of keys per coordinate, at least one")
    shapes = [tuple(int(n) for n in row) for row in counts]
    values, slopes = tensors["values"], tensors.get("value_slopes")
    N = sum(math.prod(shape) for shape in shapes)
    if values.ndim != 2 or len(values) != N or (slopes is not None and slopes.shape != (*values.shape, E)):
        raise BadInput("values must be one row per token")
    for e in range(E):
        length = (sum(shape[e] for shape in shapes),)
        if any(tensors[f"keys.{e}.{part}"].shape != length for part in PARTS):
            raise BadInput("keys per coordinate must be as many as the clusters' shapes say")
    clusters, token, key = [], 0, [0] * E
    for k, shape in enumerate(shapes):
        axes = []
        for e, n in enumerate(shape):
            cut = slice(key[e], key[e] + n)
            axes.append(AxisKeys(tensors[f"keys.{e}.slopes"][cut], tensors[f"keys.{e}.offsets"][cut]))
            key[e] += n
        tokens = slice(token, token + math.prod(shape))
        token = tokens.stop
        own = None if slopes is None else slopes[tokens].reshape(*shape, -1, E)
        c = values[tokens].reshape(*shape, -1)
        clusters.append(Cluster(tensors["origins"][k], tensors["radii"][k], tuple(axes), c, own))
    return ClusterGroup(tensors["matrix"], tensors["sites.slopes"], tensors["sites.offsets"], tuple(clusters))


def _factor_group(tensors: Mapping[str, Any], E: int, C: int, counts: list[int]) -> FactorGroup:
    """The factors of a product, E directions and C combinations of clusters in all."""
    own = [_under(tensors, f"factor.{b}.") for b in range(len(counts))]
    _expect(tensors, {"shift", *(f"factor.{b}.{name}" for b, part in enumerate(own) for name in part)})
    factors = tuple(_cluster_group(part, len(part["matrix"]), count) for part, count in zip(own, counts, strict=True))
    if sum(len(factor.matrix) for factor in factors) != E or math.prod(counts) != C:
        raise BadInput("the factors of a product have other directions or clusters than its record says")
    return FactorGroup(factors, tensors["shift"])


def _under(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _expect(tensors: Mapping[str, Any], names: set[str]) -> None:
    if set(tensors) != names:
        raise BadInput(f"the tensors are {sorted(tensors)[:12]} and not {sorted(names)[:12]}")


def _grouped_layer(tensors: Mapping[str, Any], record: Mapping[str, Any], common: dict[str, Any]) -> GroupedLayer:
    directions = [int(E) for E in record["directions"]]
    counts = [int(C) for C in record.get("clusters", [0] * len(directions))]
    factors = [[int(C) for C in row] for row in record.get("factors", [[]] * len(directions))]
    groups: list[AnyGroup] = []
    known = {"box.low", "box.high", "coordinates.centre"} | ({"tilt"} & set(tensors))
    for g, (E, C, row) in enumerate(zip(directions, counts, factors, strict=True)):
        part = _under(tensors, f"group.{g}.")
        known |= {f"group.{g}.{name}" for name in part}
        groups.append(_factor_group(part, E, C, row) if row else _cluster_group(part, E, C) if C else _product_group(part, E))
    _expect(tensors, known)
    centre, bonus = tensors["coordinates.centre"], float(record["bonus"])
    return GroupedLayer(centre=centre, groups=tuple(groups), bonus=bonus, tilt=tensors.get("tilt"), **common)


def _lookup(tensors: Mapping[str, Any], record: Mapping[str, Any], common: dict[str, Any]) -> Layer:
    if record["keys"] == "product":
        names = [f"keys.{i}" for i in range(sum(name.startswith("keys.") for name in tensors) // 2)]
        pairs = [AxisKeys(*(tensors[f"{name}.{part}"] for part in PARTS)) for name in names]
        keys: ProductKeys | ListedKeys = ProductKeys(tuple(pairs))
        if any(pair.slopes.ndim != 1 or pair.slopes.shape != pair.offsets.shape for pair in pairs):
            raise BadInput("keys per coordinate must be two equally long rows of numbers")
    else:
        names = ["keys"]
        keys = ListedKeys(tensors["keys.slopes"], tensors["keys.offsets"])
        if keys.slopes.ndim != 2 or keys.offsets.shape != keys.slopes.shape[:1]:
            raise BadInput("listed keys must be (N, E) slopes and (N,) offsets")
    hard = record.get("hard", False)
    if not isinstance(hard, bool):
        raise BadInput("`hard` is true or absent")
    sites = [f"sites.{i}" for i in range(len(names))] if hard else []
    expected = {"box.low", "box.high", "coordinates.centre", "coordinates.matrix", "values", *sites}
    expected |= {f"{name}.{part}" for name in names for part in PARTS}
    if set(tensors) - {"value_slopes"} != expected:
        raise BadInput(f"the tensors are {sorted(tensors)}")
    return Layer(
        coordinates=Coordinates(tensors["coordinates.centre"], tensors["coordinates.matrix"]),
        keys=keys,
        sharpness=float(record["sharpness"]),
        values=tensors["values"],
        slopes=tensors.get("value_slopes"),
        sites=tuple(tensors[name] for name in sites) or None,
        **common,
    )


def from_tensors(tensors: Mapping[str, Any], record: Mapping[str, Any]) -> AnyLayer:
    """The layer of validated tensors; refuses names, dtypes or shapes that do not belong together."""
    try:
        dtype = str(record["dtype"])
        stored, low, high = numpy_dtype(dtype), tensors["box.low"], tensors["box.high"]
        exact = {name for name in tensors if name.split(".")[-1] in EXACT or name.startswith("sites.")}
        if any(tensor.dtype != (np.float64 if name in exact else stored) for name, tensor in tensors.items()):
            raise BadInput("a tensor is not in the dtype that the record states")
        if np.any(low >= high):
            raise BadInput("the box is empty")
        inputs = tuple((int(d), int(n)) for d, n in record["inputs"])
        make: Callable[..., AnyLayer] = {"grouped": _grouped_layer, "parts": _parts_layer}.get(str(record["keys"]), _lookup)
        return make(tensors, record, {"dtype": dtype, "low": low, "high": high, "inputs": inputs})
    except (KeyError, TypeError, ValueError, AttributeError) as failure:
        raise BadInput(f"the file does not hold a layer: {failure}.") from None
