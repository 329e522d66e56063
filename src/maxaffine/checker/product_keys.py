"""Product keys as a file holds them: keys per direction, and values that are listed or sums of products over blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from maxaffine.checker.axis_keys import Axis
from maxaffine.checker.proved import NotProved
from maxaffine.core.arrays import Array

Shapes = dict[str, tuple[int, ...]]

TOKENS = 4_000_000  # of a group
BLOCK = 4  # directions of a block of factors
PRODUCTS = 1 << 16  # that values are a sum of


def numbers_of(part: Mapping[str, Any], shapes: Shapes, dtype: str, exact: tuple[str, ...]) -> dict[str, Array]:
    """Tensors of exactly these names and shapes, the exact ones in float64 and the others in the dtype, as finite float64."""
    if {name: np.shape(tensor) for name, tensor in part.items()} != shapes:
        raise NotProved("its tensors are not those of its groups: names or shapes differ.")
    if any(str(np.asarray(part[name]).dtype) != ("float64" if name in exact else dtype) for name in shapes):
        raise NotProved("a tensor is not in the dtype that the record states.")
    held = {name: np.asarray(tensor).astype(np.float64) for name, tensor in part.items()}
    if not all(np.isfinite(tensor).all() for tensor in held.values()):
        raise NotProved("a tensor holds numbers that are not finite.")
    return held


@dataclass(frozen=True)
class ProductKeys:
    """A group of product keys: z = M (x - centre), values (N_1, .., N_E, K) and their slopes (.., K, E) in z, or factors.

    Factors are (N_e, .., N_f, R) per block of directions, mostly of one; with imaginary parts their products are complex.
    """

    matrix: Array
    axes: tuple[Axis, ...]
    values: Array | None
    slopes: Array | None
    factors: tuple[Array, ...] | None
    imaginary: tuple[Array, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Keys per coordinate."""
        return tuple(len(axis.a) for axis in self.axes)

    @property
    def tokens(self) -> int:
        """All of them."""
        return math.prod(self.shape)

    @property
    def plain(self) -> bool:
        """Whether values are listed, or have one real factor per direction."""
        return self.factors is None or (self.imaginary is None and all(factor.ndim == 2 for factor in self.factors))

    @property
    def cuts(self) -> tuple[slice, ...]:
        """The directions of every block of factors."""
        ends = accumulate((factor.ndim - 1 for factor in self.factors or ()), initial=0)
        return tuple(slice(first, last) for first, last in pairwise(ends))

    @np.errstate(over="ignore")
    def largest(self, span: Array) -> float:
        """The largest |value| of a token for |x - centre| <= span."""
        if self.values is None:
            sizes = [np.abs(factor) for factor in self.factors or ()]
            if self.imaginary is not None:
                sizes = [(real + np.abs(other)) for real, other in zip(sizes, self.imaginary, strict=True)]
            return float(np.prod([one.reshape(-1, one.shape[-1]).max(axis=0) for one in sizes], axis=0).sum())
        steep = 0.0 if self.slopes is None else float((np.abs(self.slopes) @ (np.abs(self.matrix) @ span)).max())
        return float(np.abs(self.values).max()) + steep

    def block_sums(self) -> list[tuple[float, float]]:
        """Of every block of factors the largest |value|, and how many tokens it has."""
        pairs = list(zip(self.factors or (), self.imaginary or self.factors or (), strict=True))
        twice = 2.0 if self.imaginary is not None else 1.0
        return [(twice * float(max(np.abs(a).max(), np.abs(b).max())), a.size / a.shape[-1]) for a, b in pairs]

    @classmethod
    def read(cls, part: Mapping[str, Any], dtype: str, E: int, D: int, K: int) -> ProductKeys:
        """From the tensors of one group; NotProved where they are not those of product keys."""
        counts = [int(np.size(part[f"{e}.slopes"])) if f"{e}.slopes" in part else 0 for e in range(E)]
        if 0 in counts:
            raise NotProved("a direction of a group has no keys.")
        firsts: list[int] = []
        shapes: Shapes = {"matrix": (E, D)}
        shapes |= {f"{e}.{name}": (n,) for e, n in enumerate(counts) for name in ("slopes", "offsets")}
        if "values" in part:
            shapes["values"] = (*counts, K)
            shapes |= {"value_slopes": (*counts, K, E)} if "value_slopes" in part else {}
        else:
            firsts, blocks = _blocks_of(part, counts)
            if K != 1:
                raise NotProved("its values are sums of products, and its target has more than one output.")
            shapes |= {f"{e}.{kind}": blocks[e] for e in firsts for kind in ("factor", "imaginary") if f"0.{kind}" in part}
        held = numbers_of(part, shapes, dtype, ("matrix",))
        if "values" in held and held["values"].size > TOKENS:
            raise NotProved(f"a group has {held['values'].size:,} values, more than this check takes.")
        axes = tuple(Axis(held[f"{e}.slopes"], held[f"{e}.offsets"]) for e in range(E))
        factors, imaginary = (
            tuple(held[f"{e}.{kind}"] for e in firsts) if f"0.{kind}" in held else None for kind in ("factor", "imaginary")
        )
        return cls(held["matrix"], axes, held.get("values"), held.get("value_slopes"), factors, imaginary)


def _blocks_of(part: Mapping[str, Any], counts: list[int]) -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """First directions of the blocks of factors, and the shapes that the counts of keys ask of them."""
    E = len(counts)
    firsts = [e for e in range(E) if f"{e}.factor" in part]
    shape = np.shape(part["0.factor"]) if firsts[:1] == [0] else ()
    if not shape or not 1 <= shape[-1] <= PRODUCTS:
        raise NotProved("its factors do not begin with those of its first direction, or are products without number.")
    blocks = {e: (*counts[e:after], int(shape[-1])) for e, after in zip(firsts, [*firsts[1:], E], strict=True)}
    if any(len(block) - 1 > BLOCK or math.prod(block) > TOKENS for block in blocks.values()):
        raise NotProved(f"a block of its factors has more than {BLOCK} directions, or more numbers than this check takes.")
    return firsts, blocks
