"""A layer of several groups: one softmax head whose query columns differ by group, and whose output adds them up.

    F(x) = sum_g F_g(x) + tilt (x - centre)
    F_g(x) = sum_j softmax_j(a_gj . z_g + b_gj) (c_gj + G_gj z_g),    z_g = M_g (x - centre)

The tokens of all groups stand side by side.  Query column g has a bonus Lambda on the keys of its own group, so that the others
leak into it by at most e^-Lambda times a ratio of normalisers, and W_O adds one column of every group: tokens add instead of
multiplying.  A group's keys are a product over its directions; its values are listed, constant (G = 0) or affine in z, or a
short sum of products over the directions or blocks of them, real or complex (layer/blocks.py; then its tokens are implied,
counted and never stored).  A ClusterGroup has keys in clusters, and a FactorGroup is a product of such.  The tilt, an affine
function of x, costs no token: it is added to the values of every token of the first group.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, Literal

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.rounding import numpy_dtype
from maxaffine.layer.blocks import block_slices, check_blocks, check_listed, keys_text, multiplied_out
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.factors import FactorGroup
from maxaffine.layer.keys import AxisKeys, OnAxes, frozen
from maxaffine.layer.layer import Boxed


@dataclass(frozen=True)
class Group(OnAxes):
    """One group: M (E, D), keys per direction, and values (N_1, .., N_E, K), affine with slopes, or factors.

    Factors are (N_e, R) per direction, or (N_e, .., N_f, R) per block of directions e..f, with imaginary parts where complex.
    """

    matrix: Array
    axes: tuple[AxisKeys, ...]
    values: Array | None = None
    factors: tuple[Array, ...] | None = None
    slopes: Array | None = None  # (N_1, .., N_E, K, E): values c + G z
    imaginary: tuple[Array, ...] | None = None  # shaped as the factors

    clustered: ClassVar[Literal[False]] = False
    factored: ClassVar[Literal[False]] = False
    blocks: ClassVar[tuple[ClusterGroup, ...]] = ()

    @property
    def outputs(self) -> int:
        """K."""
        return 1 if self.values is None else int(self.values.shape[-1])

    @property
    def work(self) -> int:
        """Tokens that an evaluation meets, or keys and tokens of blocks where values are factored."""
        return self.count if self.factors is None else sum(math.prod(factor.shape[:-1]) for factor in self.factors)

    @property
    def rank(self) -> int:
        """R, the number of products that the values are a sum of; 0 where they are listed."""
        return 0 if self.factors is None else int(self.factors[0].shape[-1])

    @property
    def block_slices(self) -> tuple[slice, ...]:
        """The directions of every block of factors; all together where values are listed."""
        return (slice(0, len(self.axes)),) if self.factors is None else block_slices(self.factors)

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """How many directions every block of factors has."""
        return tuple(cut.stop - cut.start for cut in self.block_slices)

    @property
    def is_plain(self) -> bool:
        """Whether values are factored with one real factor per direction."""
        return self.factors is not None and self.imaginary is None and set(self.block_sizes) == {1}

    @property
    def is_affine(self) -> bool:
        """Whether some value is affine rather than constant."""
        return self.slopes is not None

    @property
    def layout(self) -> str:
        """Keys per direction, as a person reads them."""
        return keys_text(self.shape, self.block_sizes)

    @property
    def nbytes(self) -> int:
        """Bytes that the stored arrays take."""
        return sum(a.nbytes for a in self.arrays())

    def arrays(self) -> list[Array]:
        """Every number stored in the layer's dtype."""
        values = [self.values] if self.values is not None else [*(self.factors or ()), *(self.imaginary or ())]
        return [*self.key_arrays, *values, *([] if self.slopes is None else [self.slopes])]

    def stored(self, dtype: np.dtype[np.generic]) -> Group:
        """The group with keys and values rounded to `dtype`."""
        values, slopes = (None if a is None else frozen(a, dtype) for a in (self.values, self.slopes))
        factors, imaginary = (
            None if parts is None else tuple(frozen(part, dtype) for part in parts) for parts in (self.factors, self.imaginary)
        )
        return Group(frozen(self.matrix), self.stored_axes(dtype), values, factors, slopes, imaginary)

    def check(self, dimension: int) -> None:
        """Refuse shapes that do not belong together and numbers that are not finite."""
        E = len(self.axes)
        if self.matrix.shape != (E, dimension):
            raise BadInput(f"a group's `matrix` {self.matrix.shape} must be ({E}, {dimension}).")
        if (self.values is None) == (self.factors is None):
            raise BadInput("a group has either values or factors.")
        if self.values is not None and self.values.shape[:-1] != self.shape:
            raise BadInput(f"a group's values {self.values.shape} must be (keys.., outputs) with keys {self.shape}.")
        if self.slopes is not None and (self.values is None or self.slopes.shape != (*self.values.shape, E)):
            raise BadInput(f"a group's slopes {self.slopes.shape} must be the shape of its values and {E} directions.")
        if self.imaginary is not None and self.factors is None:
            raise BadInput("a group has imaginary parts of factors, and no factors.")
        if self.factors is not None:
            check_blocks(self.shape, self.factors, self.imaginary)
        if not all(np.isfinite(a).all() for a in (self.matrix, *self.arrays())):
            raise BadInput("every number of a layer must be finite.")

    def dense_values(self) -> Array:
        """Values (N_1, .., N_E, K), multiplied out where they are factored; Refused where they are too many."""
        if self.values is not None:
            return self.values
        assert self.factors is not None
        return multiplied_out(self.factors, self.imaginary).reshape(*self.shape, 1)

    def listed_values(self) -> tuple[Array, Array]:
        """Values (N_g, K) and slopes (N_g, K, E) in z of all tokens, float64."""
        if self.factors is not None:
            c = multiplied_out(self.factors, self.imaginary)[:, None]
        else:
            c = self.dense_values().reshape(self.count, -1).astype(np.float64)
        if self.slopes is None:
            return c, np.zeros((*c.shape, len(self.axes)))
        return c, self.slopes.reshape(*c.shape, -1).astype(np.float64)

    def listed(self) -> tuple[Array, Array]:
        """Slopes (N_g, E) and offsets (N_g,) of all keys in row-major order; Refused where they are too many."""
        if self.factors is not None:
            check_listed(self.count)
        slopes = np.stack([a.ravel() for a in np.meshgrid(*(axis.slopes for axis in self.axes), indexing="ij")], axis=1)
        offsets = reduce(np.add.outer, [axis.offsets.astype(np.float64) for axis in self.axes], np.zeros(()))
        return slopes, offsets.ravel()


AnyGroup = Group | ClusterGroup | FactorGroup


@dataclass(frozen=True)
class GroupedKeys:
    """What a reader of a layer asks about keys: how many, and how they are laid out."""

    shape: tuple[int, ...]  # tokens of every group
    count: int


@dataclass(frozen=True)
class GroupedLayer(Boxed):
    """One softmax head of one or more groups, stored in `dtype`; `bonus` is Lambda."""

    centre: Array
    groups: tuple[AnyGroup, ...]
    bonus: float
    low: Array
    high: Array
    inputs: tuple[tuple[int, int], ...]
    dtype: str = "float64"
    tilt: Array | None = None  # (K, D)

    grouped: ClassVar[Literal[True]] = True
    several: ClassVar[Literal[False]] = False
    hard = is_product = is_grid = False
    sharpness = 1.0
    n_out = 1

    def __post_init__(self) -> None:
        stored = numpy_dtype(self.dtype)
        object.__setattr__(self, "groups", tuple(group.stored(stored) for group in self.groups))
        for name, dtype in (("centre", np.float64), ("low", np.float64), ("high", np.float64), ("tilt", stored)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, frozen(getattr(self, name), dtype))
        self._check()

    def _check(self) -> None:
        D = len(self.centre)
        if not self.groups:
            raise BadInput("a grouped layer needs at least one group.")
        self.check_box()
        for group in self.groups:
            group.check(D)
        if len({group.outputs for group in self.groups}) != 1:
            raise BadInput("all groups must have the same outputs.")
        if self.tilt is not None and (self.tilt.shape != (self.d_out, D) or not np.isfinite(self.tilt).all()):
            raise BadInput(f"`tilt` {self.tilt.shape} must be ({self.d_out}, {D}) finite numbers.")
        if not all(np.isfinite(a).all() for a in (self.centre, self.low, self.high)) or not (
            math.isfinite(self.bonus) and self.bonus >= 0
        ):
            raise BadInput("every number of a layer must be finite.")

    @property
    def d_out(self) -> int:
        """K."""
        return self.groups[0].outputs

    @property
    def tokens(self) -> int:
        """Key tokens of the literal layer, stored or implied."""
        return sum(group.count for group in self.groups)

    @property
    def work(self) -> int:
        """Tokens that an evaluation meets, or keys where values are factored."""
        return sum(group.work for group in self.groups)

    @property
    def keys(self) -> GroupedKeys:
        """Tokens per group and in all."""
        return GroupedKeys(tuple(group.count for group in self.groups), self.tokens)

    @property
    def nbytes(self) -> int:
        """Bytes that the stored arrays take."""
        return sum(group.nbytes for group in self.groups) + (0 if self.tilt is None else self.tilt.nbytes)

    @property
    def has_clusters(self) -> bool:
        """Whether some group's keys stand in clusters."""
        return any(group.blocks for group in self.groups)

    @property
    def is_affine(self) -> bool:
        """Whether some value is affine in x rather than constant."""
        return self.tilt is not None or any(group.is_affine for group in self.groups)

    def cluster_groups(self) -> tuple[ClusterGroup, ...]:
        """Everything that two levels run: groups of clusters, and the factors of products."""
        return tuple(block for group in self.groups for block in group.blocks)

    def site_pieces(self) -> tuple[Array, Array] | None:
        """Slopes (C, D) and offsets (C,) in x of the sites, where one group alone has several clusters; float64."""
        groups = [group.combined for group in self.groups if group.clustered or group.factored]
        several = [group for group in groups if len(group.clusters) > 1] if len(groups) > 1 else groups
        if len(groups) != len(self.groups) or len(several) != 1:
            return None
        (group,) = several
        in_x = group.site_slopes.astype(np.float64) @ group.matrix
        return in_x, group.site_offsets.astype(np.float64) - in_x @ self.centre

    def products(self) -> tuple[Group, ...]:
        """The groups, where none has clusters."""
        found = tuple(group for group in self.groups if not (group.clustered or group.factored))
        if len(found) != len(self.groups):
            raise BadInput("this is for groups of product keys, and the layer has clusters.")
        return found

    def layout(self) -> str:
        """Keys per group and direction, as a person reads them; three and more groups alike are counted."""
        words = []
        for text, run in itertools.groupby(group.layout for group in self.groups):
            many = len(list(run))
            words += [f"{many} times {text}"] if many > 2 else [text] * many
        return " + ".join(words)
