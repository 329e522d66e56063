"""A layer as a pure function of PyTorch tensors: one softmax per group and direction, differentiable in everything.

    F(x) = evaluate(structure, tensors, x),      tensors named as in the saved file (layer/file.py)

Nothing but tensor operations: autograd, `torch.compile` and `torch.func` pass through it, and any of the tensors (keys, values,
slopes, even coordinates) may be parameters.  Computed in the dtype of x; coordinates are formed in float64 and rounded once.
Needs the extra ``maxaffine[torch]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from maxaffine.layer import file as layer_file
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.layer import Layer

Tensor = torch.Tensor
Tensors = Mapping[str, Tensor]

COORDINATES = ("box.low", "box.high", "coordinates.centre", "coordinates.matrix", ".matrix", ".origins", ".radii", ".shapes")


@dataclass(frozen=True)
class GroupStructure:
    """How the tensors of one group belong together; `tokens` tells clusters, (C or none, then per direction) for every token."""

    directions: int
    factored: bool
    affine: bool
    tokens: tuple[NDArray[np.int64], ...] | None = None


@dataclass(frozen=True)
class Structure:
    """What of a layer is no tensor: the kind of keys, the number of directions, outputs and sharpness."""

    kind: str  # "product" | "listed" | "grouped"
    dimension: int
    d_out: int
    n_out: int
    directions: int
    sharpness: float
    affine: bool
    groups: tuple[GroupStructure, ...] = ()
    tilt: bool = False


def structure_of(layer: Layer | GroupedLayer) -> Structure:
    """The structure of a layer."""
    if isinstance(layer, Layer):
        kind, E = ("product" if layer.is_product else "listed"), int(layer.coordinates.matrix.shape[0])
        return Structure(kind, layer.dimension, layer.d_out, layer.n_out, E, layer.sharpness, layer.slopes is not None)
    groups = []
    for group in layer.groups:
        E = len(group.matrix)
        if isinstance(group, ClusterGroup):
            affine = any(cluster.slopes is not None for cluster in group.clusters)
            groups.append(GroupStructure(E, False, affine, _tokens(group)))
        else:
            groups.append(GroupStructure(E, group.factors is not None, group.slopes is not None))
    return Structure("grouped", layer.dimension, layer.d_out, 1, 0, 1.0, False, tuple(groups), layer.tilt is not None)


def _tokens(group: ClusterGroup) -> tuple[NDArray[np.int64], ...]:
    """For every token its cluster, and per direction its key in the concatenated rows of keys."""
    E = len(group.matrix)
    found: list[list[NDArray[np.int64]]] = [[] for _ in range(E + 1)]
    first = [0] * E
    for c, cluster in enumerate(group.clusters):
        index = np.unravel_index(np.arange(cluster.count), cluster.shape)
        found[0].append(np.full(cluster.count, c, dtype=np.int64))
        for e in range(E):
            found[e + 1].append(np.asarray(index[e] + first[e], dtype=np.int64))
            first[e] += cluster.shape[e]
    return tuple(np.concatenate(one) for one in found)


def tensors_of(layer: Layer | GroupedLayer, device: Any = None, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """The layer's tensors by their stable names: keys and values in `dtype`, coordinates in float64."""
    arrays, _ = layer_file.to_tensors(layer)
    found = {}
    for name, array in arrays.items():
        if name.startswith("sites."):  # of a hard layer: its softmax has keys of its own
            continue
        wide = np.array(array, dtype=np.float64)
        exact = name.endswith(COORDINATES)
        found[name] = torch.from_numpy(wide).to(device=device, dtype=torch.float64 if exact else dtype)
    return found


def evaluate(structure: Structure, tensors: Tensors, x: Tensor) -> Tensor:
    """F(x) for points (B, D): (B, d_out, n_out) in the dtype of x."""
    if structure.kind == "grouped":
        out = _tilted(structure, tensors, x)
        for g, group in enumerate(structure.groups):
            prefix = f"group.{g}."
            z = _coordinates(x, tensors["coordinates.centre"], tensors[prefix + "matrix"])
            out = out + (_product if group.tokens is None else _clusters)(group, tensors, prefix, z)
        return out.reshape(len(x), structure.d_out, structure.n_out)
    z = _coordinates(x, tensors["coordinates.centre"], tensors["coordinates.matrix"])
    values, slopes = tensors["values"].to(x.dtype), tensors.get("value_slopes")
    outputs = structure.d_out * structure.n_out
    if structure.kind == "product":
        weights = [
            torch.softmax(
                structure.sharpness * (z[:, e, None] * tensors[f"keys.{e}.slopes"] + tensors[f"keys.{e}.offsets"]), dim=1
            ).to(x.dtype)
            for e in range(structure.directions)
        ]
        mixed = contract(weights, values)
        lean = None if slopes is None else contract(weights, slopes.to(x.dtype))
    else:
        logits = structure.sharpness * (z @ tensors["keys.slopes"].T.to(x.dtype) + tensors["keys.offsets"].to(x.dtype))
        alpha = torch.softmax(logits, dim=1)
        mixed = alpha @ values.reshape(len(values), -1)
        lean = None if slopes is None else alpha @ slopes.reshape(len(slopes), -1).to(x.dtype)
    if lean is not None:
        mixed = mixed + (lean.reshape(len(x), outputs, -1) * z[:, None, :]).sum(dim=2)
    return mixed.reshape(len(x), structure.d_out, structure.n_out)


def contract(weights: list[Tensor], values: Tensor) -> Tensor:
    """values (N_1, .., N_E, rest..) contracted with weights (B, N_e): (B, rest)."""
    queries = len(weights[0])
    partial = weights[0] @ values.reshape(len(values), -1)
    for alpha in weights[1:]:
        partial = torch.bmm(alpha[:, None, :], partial.reshape(queries, alpha.shape[1], -1))[:, 0]
    return partial.reshape(queries, -1)


def _coordinates(x: Tensor, centre: Tensor, matrix: Tensor) -> Tensor:
    """M (x - centre) in float64, rounded once to the dtype of x."""
    return ((x.to(torch.float64) - centre) @ matrix.T).to(x.dtype)


def _tilted(structure: Structure, tensors: Tensors, x: Tensor) -> Tensor:
    if not structure.tilt:
        return torch.zeros((len(x), structure.d_out), dtype=x.dtype, device=x.device)
    away = (x.to(torch.float64) - tensors["coordinates.centre"]).to(x.dtype)
    return away @ tensors["tilt"].T.to(x.dtype)


def _product(group: GroupStructure, tensors: Tensors, prefix: str, z: Tensor) -> Tensor:
    """One softmax per direction, then values or factors."""
    weights = [
        torch.softmax(z[:, e, None] * tensors[f"{prefix}{e}.slopes"] + tensors[f"{prefix}{e}.offsets"], dim=1).to(z.dtype)
        for e in range(group.directions)
    ]
    if group.factored:
        product = weights[0] @ tensors[f"{prefix}0.factor"].to(z.dtype)
        for e in range(1, group.directions):
            product = product * (weights[e] @ tensors[f"{prefix}{e}.factor"].to(z.dtype))
        return product.sum(dim=1, keepdim=True)
    out = contract(weights, tensors[prefix + "values"].to(z.dtype))
    if group.affine:
        lean = contract(weights, tensors[prefix + "value_slopes"].to(z.dtype))
        out = out + (lean.reshape(*out.shape, group.directions) * z[:, None, :]).sum(dim=2)
    return out


def _clusters(group: GroupStructure, tensors: Tensors, prefix: str, z: Tensor) -> Tensor:
    """One softmax over all tokens of all clusters, logits formed in the clusters' own coordinates."""
    assert group.tokens is not None
    cluster, *keys = (torch.from_numpy(index).to(z.device) for index in group.tokens)
    origins, radii = tensors[prefix + "origins"].to(z.dtype), tensors[prefix + "radii"].to(z.dtype)
    t = (z[:, None, :] - origins) / radii  # (B, C, E)
    sites = z @ tensors[prefix + "sites.slopes"].T.to(z.dtype) + tensors[prefix + "sites.offsets"].to(z.dtype)
    logits = sites[:, cluster]
    for e, key in enumerate(keys):
        slopes, offsets = tensors[f"{prefix}keys.{e}.slopes"].to(z.dtype), tensors[f"{prefix}keys.{e}.offsets"].to(z.dtype)
        logits = logits + t[:, :, e][:, cluster] * slopes[key] + offsets[key]
    alpha = torch.softmax(logits, dim=1)  # (B, N)
    out = alpha @ tensors[prefix + "values"].to(z.dtype)
    if group.affine:
        lean = tensors[prefix + "value_slopes"].to(z.dtype)  # (N, K, E)
        out = out + torch.einsum("bn,nke,bne->bk", alpha, lean, t[:, cluster])
    return out


def bytes_per_query(structure: Structure, tensors: Tensors, itemsize: int) -> int:
    """Bytes per query that the largest intermediate results take, about."""
    if structure.kind == "listed":
        return 4 * itemsize * len(tensors["keys.offsets"])
    if structure.kind == "product":
        return 4 * itemsize * _partial(tensors["values"], tensors.get("value_slopes"))
    total = 0
    for g, group in enumerate(structure.groups):
        if group.tokens is not None:
            total += 4 * itemsize * len(group.tokens[0]) * (1 + group.directions)
        elif group.factored:
            total += 4 * itemsize * sum(len(tensors[f"group.{g}.{e}.slopes"]) for e in range(group.directions))
        else:
            total += 4 * itemsize * _partial(tensors[f"group.{g}.values"], tensors.get(f"group.{g}.value_slopes"))
    return max(total, 1)


def _partial(values: Tensor, slopes: Tensor | None) -> int:
    return int(sum(values.shape) + values.numel() // len(values) * (1 if slopes is None else 1 + slopes.shape[-1]))
