"""Layers of blocks and complex factors, made by hand, and what they are by definition."""

import itertools
from functools import reduce
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys


def by_definition(layer: GroupedLayer, x: Array) -> Array:
    """Re sum_r prod_b sum_j w_j (A_b[j, r] + i B_b[j, r]) by complex einsum over all the tokens of every block: (B,)."""
    total = np.zeros(len(x)) if layer.tilt is None else (x - layer.centre) @ layer.tilt.astype(np.float64)[0]
    for group in layer.products():
        z = (x - layer.centre) @ group.matrix.T
        weights = []
        for e, axis in enumerate(group.axes):
            scores = np.multiply.outer(z[:, e], axis.slopes.astype(np.float64)) + axis.offsets.astype(np.float64)
            mass = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights.append(mass / mass.sum(axis=1, keepdims=True))
        assert group.factors is not None
        pieces: list[Any] = []
        for b, (cut, factor) in enumerate(zip(group.block_slices, group.factors, strict=True)):
            value = factor.astype(np.complex128)
            if group.imaginary is not None:
                value = value + 1j * group.imaginary[b].astype(np.float64)
            letters = "abcd"[: factor.ndim - 1]
            rule = ",".join(f"z{one}" for one in letters) + f",{letters}r->zr"
            pieces.append(np.einsum(rule, *weights[cut], value))
        total = total + reduce(np.multiply, pieces).sum(axis=1).real
    return np.asarray(total)


def made(
    sizes: tuple[int, ...] = (1, 2, 1), keys: int = 4, rank: int = 3, complex_values: bool = True, dtype: str = "float64",
    seed: int = 0, turned: bool = True, groups: int = 1,
) -> GroupedLayer:  # fmt: skip
    """One or more groups of blocks of these sizes on [-1, 1]^D, keys of slightly different number per direction."""
    rng, E = np.random.default_rng(seed), sum(sizes)
    held = []
    for _ in range(groups):
        matrix = np.linalg.qr(rng.normal(size=(E, E)))[0] / np.sqrt(E) if turned else np.diag(rng.uniform(0.5, 1.0, E))
        shape = tuple(keys + e % 3 if E < 12 else keys for e in range(E))
        matrix = matrix / 1.2  # |x - centre| goes up to 1.1, and z stays in [-1, 1]
        axes = tuple(AxisKeys(rng.normal(size=n), rng.normal(size=n)) for n in shape)
        ends = np.cumsum([0, *sizes])
        shapes = [(*shape[a:b], rank) for a, b in itertools.pairwise(ends)]
        many = E >= 12  # factors about one, so that a product of a hundred is neither huge nor tiny
        factors = tuple(1.0 + 0.02 * rng.normal(size=s) if many else rng.normal(size=s) for s in shapes)
        imaginary = tuple(rng.normal(size=s) * (0.02 if many else 1.0) for s in shapes) if complex_values else None
        held.append(Group(matrix, axes, factors=factors, imaginary=imaginary))
    box = np.ones(E)
    return GroupedLayer(0.1 * box, tuple(held), 1.0 if groups > 1 else 0.0, -box, box, ((E, 1),), dtype)
