"""How the tensors of a layer belong together, for runtimes on tensors: groups, clusters of equal shape, parts side by side.

What the tensors say themselves, or their names, is not repeated here.  Needs the extra ``maxaffine[torch]``.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import AnyGroup
from maxaffine.layer.side_by_side import AnyLayer

Tensor = torch.Tensor


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of a tensor in a new shape: from `first` on where they follow one another, else those that `index` lists."""

    shape: tuple[int, ...]
    first: int | None
    index: Tensor

    @classmethod
    def of(cls, index: NDArray[np.int64]) -> Self:
        """Rows numbered by an array."""
        flat = index.reshape(-1)
        together = bool(np.all(np.diff(flat) == 1))
        return cls(tuple(int(n) for n in index.shape), int(flat[0]) if together else None, torch.from_numpy(index.copy()))

    def __call__(self, tensor: Tensor) -> Tensor:
        """The rows, (shape, ..)."""
        if self.first is None:
            return tensor[self.index.to(tensor.device)]
        return tensor.narrow(0, self.first, math.prod(self.shape)).reshape(*self.shape, *tensor.shape[1:])


@dataclass(frozen=True, eq=False)
class FamilyStructure:
    """Clusters of equal shape: which (F,), per direction their keys (F, p_e), and their tokens (F, P), in the file's order."""

    shape: tuple[int, ...]
    members: Rows
    keys: tuple[Rows, ...]
    tokens: Rows

    @property
    def count(self) -> int:
        """F."""
        return self.members.shape[0]


@dataclass(frozen=True)
class GroupStructure:
    """How the tensors of one group belong together; a group of clusters has `families`, a product `factors`."""

    families: tuple[FamilyStructure, ...] = ()
    factors: tuple["GroupStructure", ...] = ()


@dataclass(frozen=True)
class Structure:
    """What of a layer neither the tensors say nor their names; a lookup has no groups."""

    dimension: int
    d_out: int
    n_out: int
    sharpness: float
    groups: tuple[GroupStructure, ...] = ()
    parts: tuple["PartStructure", ...] = ()


@dataclass(frozen=True)
class PartStructure:
    """Of layers side by side: (k, e, sign), its output k is added to entry e of the output; its variables; its structure."""

    writes: tuple[tuple[int, int, int], ...]
    variables: tuple[int, ...]
    structure: Structure


def structure_of(layer: AnyLayer) -> Structure:
    """The structure of a layer."""
    if layer.several:
        pairs = zip(layer.parts, layer.writes(), strict=True)
        parts = tuple(PartStructure(tuple(rows), part.variables, structure_of(part.layer)) for part, rows in pairs)
        return Structure(layer.dimension, layer.d_out, layer.n_out, 1.0, parts=parts)
    if not layer.grouped:
        return Structure(layer.dimension, layer.d_out, layer.n_out, layer.sharpness)
    return Structure(layer.dimension, layer.d_out, 1, 1.0, tuple(_group_structure(group) for group in layer.groups))


def _group_structure(group: AnyGroup) -> GroupStructure:
    if group.factored:
        return GroupStructure(factors=tuple(_group_structure(one) for one in group.factors))
    return GroupStructure(_families(group) if group.clustered else ())


def _families(group: ClusterGroup) -> tuple[FamilyStructure, ...]:
    """The clusters by shape, with the places of their keys and tokens in the file's rows."""
    shapes = np.array([cluster.shape for cluster in group.clusters], dtype=np.int64)
    first = np.cumsum(shapes, axis=0) - shapes  # of the keys, (C, E)
    counts = shapes.prod(axis=1)
    token = np.cumsum(counts) - counts
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for k, cluster in enumerate(group.clusters):
        by_shape.setdefault(cluster.shape, []).append(k)
    found = []
    for shape, listed in by_shape.items():
        members = np.asarray(listed, dtype=np.int64)
        keys = tuple(Rows.of(first[members, e, None] + np.arange(n)) for e, n in enumerate(shape))
        tokens = Rows.of(token[members, None] + np.arange(math.prod(shape)))
        found.append(FamilyStructure(shape, Rows.of(members), keys, tokens))
    return tuple(found)
