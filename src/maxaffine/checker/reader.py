"""What a file holds, read once for all rules: every tensor named, shaped, finite and in its dtype, in views to prove from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.axis_keys import Axis
from maxaffine.checker.product_keys import TOKENS, ProductKeys, Shapes, numbers_of
from maxaffine.checker.proved import NotProved
from maxaffine.core.arrays import Array
from maxaffine.core.rounding import DTYPES, numpy_dtype
from maxaffine.target.target import Target

__all__ = ["Axis", "Clusters", "Factored", "Group", "Layer", "Lookup", "ProductKeys", "reach_of"]

FRAME = ("box.low", "box.high", "coordinates.centre")
KEYS = 1 << 20  # of a cluster along a coordinate


@dataclass(frozen=True)
class Clusters:
    """A group of clusters: sites (C, E + 1) in z = M (x - centre); keys and affine values in t = (z - origin)/radius."""

    matrix: Array
    sizes: NDArray[np.int64]  # (C, E)
    origins: Array
    radii: Array
    sites: Array
    axes: list[tuple[Axis, ...]]
    values: list[Array]  # (p_1, .., p_E, K)
    slopes: list[Array]  # (p_1, .., p_E, K, E)

    @property
    def tokens(self) -> int:
        """Keys of all clusters."""
        return int(self.sizes.prod(axis=1).sum())

    @property
    def single(self) -> bool:
        """Whether every cluster is one token, whose score is that of its site alone."""
        return bool(np.all(self.sizes == 1)) and all(axis.bare for axes in self.axes for axis in axes)

    def farthest(self, span: Array) -> Array:
        """max |t| (C, E) for |x - centre| <= span."""
        return np.asarray((np.abs(self.matrix) @ span + np.abs(self.origins)) / self.radii)

    def largest(self, span: Array) -> float:
        """The largest |value| of a token there."""
        t = self.farthest(span).max(axis=0)
        level = max(float(np.abs(c).max()) for c in self.values)
        return level + max(float((np.abs(G) @ t).max()) for G in self.slopes)

    def scores_fit(self, span: Array, most: float) -> bool:
        """Whether t, logits (products and sums in the dtype that computes) and sites (added in float64) are numbers there."""
        with np.errstate(all="ignore"):
            t, E = self.farthest(span).max(axis=0), self.sizes.shape[1]
            logits = [
                t[e] * max(float(np.abs(axes[e].a).max()) for axes in self.axes)
                + max(float(np.abs(axes[e].b).max()) for axes in self.axes)
                for e in range(E)
            ]
            sites = (np.abs(self.sites[:, :-1]) @ (np.abs(self.matrix) @ span) + np.abs(self.sites[:, -1])).max()
            return bool(max(*t, *logits) < most and sites + sum(logits) < 2.0**1015)

    @classmethod
    def read(cls, part: Mapping[str, Any], dtype: str, C: int, E: int, D: int, K: int) -> Clusters:
        """From the tensors of one group; NotProved where they are not those of clusters with affine values."""
        shapes = np.asarray(part["shapes"], dtype=np.float64)
        whole = shapes.shape == (C, E) and np.all((shapes >= 1) & (shapes == np.rint(shapes)) & (shapes <= KEYS))
        if not whole or not float(shapes.prod(axis=1).sum()) <= TOKENS:
            raise NotProved("its clusters are not those of its record, or have more keys than this check takes.")
        sizes = shapes.astype(np.int64)
        total = int(sizes.prod(axis=1).sum())
        wanted: Shapes = {"matrix": (E, D), "shapes": (C, E), "origins": (C, E), "radii": (C, E), "sites.slopes": (C, E)}
        wanted |= {"sites.offsets": (C,), "values": (total, K), "value_slopes": (total, K, E)}
        wanted |= {f"keys.{e}.{name}": (int(sizes[:, e].sum()),) for e in range(E) for name in ("slopes", "offsets")}
        held = numbers_of(part, wanted, dtype, ("matrix", "shapes", "origins", "radii"))
        if not np.all(held["radii"] > 0):
            raise NotProved("a radius is not positive.")
        ends = np.concatenate([np.zeros((1, E), dtype=np.int64), np.cumsum(sizes, axis=0)])
        firsts = np.concatenate([[0], np.cumsum(sizes.prod(axis=1))])
        axes, values, slopes = [], [], []
        for k, shape in enumerate(sizes):
            cuts = [slice(ends[k, e], ends[k + 1, e]) for e in range(E)]
            axes.append(tuple(Axis(held[f"keys.{e}.slopes"][cut], held[f"keys.{e}.offsets"][cut]) for e, cut in enumerate(cuts)))
            rows = slice(firsts[k], firsts[k + 1])
            values.append(held["values"][rows].reshape(*shape, K))
            slopes.append(held["value_slopes"][rows].reshape(*shape, K, E))
        sites = np.concatenate([held["sites.slopes"], held["sites.offsets"][:, None]], axis=1)
        return cls(held["matrix"], sizes, held["origins"], held["radii"], sites, axes, values, slopes)


@dataclass(frozen=True)
class Factored:
    """A product of groups of clusters along one direction each, and a shift added to it."""

    factors: tuple[Clusters, ...]
    shift: float

    @property
    def matrix(self) -> Array:
        """Of all directions."""
        return np.concatenate([one.matrix for one in self.factors])

    @property
    def tokens(self) -> int:
        """Keys of all combinations of clusters."""
        return math.prod(one.tokens for one in self.factors)

    def largest(self, span: Array) -> float:
        """The largest |value| of a combination."""
        return math.prod(one.largest(span) for one in self.factors) + abs(self.shift)

    def scores_fit(self, span: Array, most: float) -> bool:
        """Whether those of every factor do."""
        return all(one.scores_fit(span, most) for one in self.factors)

    def combined(self) -> Clusters:
        """All combinations of clusters as one group, the last factor running fastest: sums of offsets, products of values."""
        E, rows = len(self.factors), list(product(*(range(len(one.sites)) for one in self.factors)))

        def beside(name: str, column: int = 0) -> Any:
            return np.array([[getattr(one, name)[k, column] for one, k in zip(self.factors, row, strict=True)] for row in rows])

        axes, values, slopes = [], [], []
        for row in rows:
            pairs = list(zip(self.factors, row, strict=True))
            axes.append(tuple(one.axes[k][0] for one, k in pairs))
            c, G = [one.values[k][:, 0] for one, k in pairs], [one.slopes[k][:, 0, 0] for one, k in pairs]
            steep = [reduce(np.multiply.outer, [G[b] if b == e else c[b] for b in range(E)]) for e in range(E)]
            values.append((reduce(np.multiply.outer, c) + self.shift)[..., None])
            slopes.append(np.stack(steep, axis=-1)[..., None, :])
        sites = np.concatenate([beside("sites"), beside("sites", 1).sum(axis=1)[:, None]], axis=1)
        return Clusters(self.matrix, beside("sizes"), beside("origins"), beside("radii"), sites, axes, values, slopes)

    @classmethod
    def read(cls, part: Mapping[str, Any], dtype: str, counts: Any, E: int, D: int) -> Factored:
        """From the tensors of one group; NotProved where they are not those of a product of clusters."""
        if not isinstance(counts, list) or len(counts) != E or any(type(n) is not int or n < 1 for n in counts):
            raise NotProved("the clusters of its factors are not those of its record.")
        shift = numbers_of({"shift": part["shift"]}, {"shift": (1,)}, "float64", ("shift",))["shift"]
        own = [_under(part, f"factor.{b}.") for b in range(E)]
        if set(part) != {"shift", *(f"factor.{b}.{name}" for b, names in enumerate(own) for name in names)}:
            raise NotProved("its tensors are not those of a product.")
        return cls(tuple(Clusters.read(one, dtype, n, 1, D, 1) for one, n in zip(own, counts, strict=True)), float(shift[0]))


Group = ProductKeys | Clusters | Factored


def _under(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


@dataclass(frozen=True)
class Layer:
    """A grouped layer: the box, the centre, the dtype, the affine part (K, D) or none, the group bias, and the groups."""

    low: Array
    high: Array
    centre: Array
    dtype: str
    affine_part: Array | None
    bias: float
    groups: tuple[Group, ...]
    pair: bool = False  # of two inputs, query and context

    @property
    def reach(self) -> Array:
        """max |x - centre| per variable."""
        return reach_of(self.low, self.high, self.centre)

    @property
    def tokens(self) -> int:
        """Key tokens of all groups together."""
        return sum(group.tokens for group in self.groups)

    def clusters(self, *dimensions: int) -> tuple[Clusters, ...]:
        """All groups, which must be clusters over that many coordinates each, without an affine part beside them."""
        found = tuple(group for group in self.groups if isinstance(group, Clusters))
        if tuple(len(group.matrix) for group in found) != dimensions or len(found) != len(self.groups):
            raise NotProved("its groups are not the clusters that are proved for its target.")
        return found

    @classmethod
    def read(cls, tensors: Mapping[str, Any], description: Mapping[str, Any], target: Target) -> Layer:
        """From a file's tensors; NotProved for tensors that are not those of its groups and of no others."""
        dtype, D, K = str(description["dtype"]), target.box.dimension, target.d_out
        directions, counts = list(description["directions"]), list(description.get("clusters", ()) or ())
        counts = counts or [0] * len(directions)
        good = all(type(n) is int and n >= 1 for n in directions) and all(type(n) is int and n >= 0 for n in counts)
        if dtype not in DTYPES or not directions or len(counts) != len(directions) or not good:
            raise NotProved("its dtype, or the counts of its groups and clusters, are not those of a layer.")
        bias = float(description["bonus"])
        if not 0.0 <= bias < 1e30:
            raise NotProved("its group bias is negative, or no number that logits can be added to.")
        factors = list(description.get("factors", ())) or [None] * len(directions)
        if len(factors) != len(directions):
            raise NotProved("its record does not say of every group whether it is a product.")
        groups: list[Group] = []
        names = set(FRAME)
        for g, (E, C, counts_of) in enumerate(zip(directions, counts, factors, strict=True)):
            part = _under(tensors, f"group.{g}.")
            names |= {f"group.{g}.{name}" for name in part}
            if counts_of:
                groups.append(Factored.read(part, dtype, counts_of, E, D))
                if math.prod(counts_of) != C or K != 1:
                    raise NotProved("the clusters of its factors are not those of its record.")
            else:
                groups.append(Clusters.read(part, dtype, C, E, D, K) if C else ProductKeys.read(part, dtype, E, D, K))
        if set(tensors) - {"tilt"} != names:
            raise NotProved("its tensors are not those of the groups of its record.")
        low, high, centre = read_frame(tensors, target)
        affine = None
        if "tilt" in tensors:
            affine = numbers_of({"tilt": tensors["tilt"]}, {"tilt": (K, D)}, dtype, ())["tilt"]
        return cls(low, high, centre, dtype, affine, bias, tuple(groups), target.inputs == "pair")


def reach_of(low: Array, high: Array, centre: Array) -> Array:
    """max |x - centre| per variable."""
    return np.asarray(np.maximum(high - centre, centre - low) * (1 + 1e-15))


def read_frame(tensors: Mapping[str, Any], target: Target) -> tuple[Array, Array, Array]:
    """Low and high ends of the box, which is the target's, and the centre, which lies in it."""
    D = target.box.dimension
    held = numbers_of({name: tensors[name] for name in FRAME}, dict.fromkeys(FRAME, (D,)), "float64", FRAME)
    low, high, centre = (held[name] for name in FRAME)
    if not (np.array_equal(low, target.box.low) and np.array_equal(high, target.box.high)):
        raise NotProved("the layer and the target speak about different boxes.")
    if not np.all((centre >= low) & (centre <= high)):
        raise NotProved("its centre lies outside the box.")
    return low, high, centre


@dataclass(frozen=True)
class Lookup:
    """A lookup: keys per axis of a grid (slopes and offsets (P_i,)) or listed ((N, D) and (N,)), values (N, K), the sharpness."""

    low: Array
    high: Array
    centre: Array
    scale: Array  # (D,), the diagonal of the coordinates' matrix
    dtype: str
    slopes: list[Array]
    offsets: list[Array]
    values: Array  # (N, K); mapped from a big file, in its dtype
    sharpness: float
    listed: bool
    sites: list[Array]  # in x, of a layer that answers with the nearest
    pair: bool = False  # of two inputs, query and context

    @property
    def reach(self) -> Array:
        """max |x - centre| per variable."""
        return reach_of(self.low, self.high, self.centre)

    def steepest(self) -> tuple[Array, float]:
        """The largest |slope| per variable, and the largest |offset|."""
        if self.listed:
            return np.abs(self.slopes[0]).max(axis=0), float(np.abs(self.offsets[0]).max())
        return np.array([np.abs(a).max() for a in self.slopes]), float(sum(np.abs(b).max() for b in self.offsets))

    @classmethod
    def read(cls, tensors: Mapping[str, Any], description: Mapping[str, Any], target: Target) -> Lookup:
        """From a file's tensors; NotProved for tensors that are not those of a lookup for this target."""
        dtype, kind, D = str(description["dtype"]), description["keys"], target.box.dimension
        if dtype not in DTYPES or kind not in ("product", "listed"):
            raise NotProved("its dtype or its keys are not those of a lookup.")
        names = ["keys"] if kind == "listed" else [f"keys.{i}" for i in range(D)]
        counts = [int(np.size(tensors[f"{name}.offsets"])) for name in names]
        shapes: Shapes = {**dict.fromkeys(FRAME, (D,)), "coordinates.matrix": (D, D)}
        shapes |= {f"{name}.slopes": (n, D) if kind == "listed" else (n,) for name, n in zip(names, counts, strict=True)}
        shapes |= {f"{name}.offsets": (n,) for name, n in zip(names, counts, strict=True)}
        hard = description.get("hard", False)
        if hard not in (True, False):
            raise NotProved("`hard` is true or absent.")
        places = [f"sites.{i}" for i in range(len(names))] if hard else []
        shapes |= {name: (n, D) if kind == "listed" else (n,) for name, n in zip(places, counts, strict=False)}
        rest = {name: tensor for name, tensor in tensors.items() if name != "values"}
        held = numbers_of(rest, shapes, dtype, (*FRAME, "coordinates.matrix", *places))
        values, K = tensors["values"], target.d_out * target.n_out
        mapped = isinstance(values, np.memmap)
        if np.shape(values) != (*counts, target.d_out, target.n_out) or values.dtype != numpy_dtype(dtype):
            raise NotProved("its values are not those of its keys and of this target, in the dtype that the record states.")
        if not mapped:
            values = np.asarray(values).astype(np.float64)
            if not np.isfinite(values).all():
                raise NotProved("a tensor holds numbers that are not finite.")
        low, high, centre = read_frame(tensors, target)
        matrix, sharpness = held["coordinates.matrix"], float(description["sharpness"])
        if np.any(matrix != np.diag(np.diag(matrix))) or np.any(np.diag(matrix) <= 0):
            raise NotProved("its coordinates are not scaled variables.")
        with np.errstate(over="ignore"):
            stored = float(numpy_dtype(dtype).type(sharpness))
        if not 0.0 < sharpness < math.inf or stored != sharpness:
            raise NotProved(f"its sharpness (={sharpness!r}) is not a positive number of its dtype.")
        slopes, offsets = ([held[f"{name}.{part}"] for name in names] for part in ("slopes", "offsets"))
        return cls(
            low, high, centre, np.diag(matrix).copy(), dtype, slopes, offsets, values.reshape(math.prod(counts), K), sharpness,
            kind == "listed", [held[name] for name in places], target.inputs == "pair",
        )  # fmt: skip
