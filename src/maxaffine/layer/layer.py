"""The layer: one softmax head over affine logits, as frozen data.

    z      = M (x - centre)                                   coordinates, float64, then rounded to the dtype
    l_j(x) = sharpness * (a_j . z + b_j)                      logits of the keys j = 1..N
    F(x)   = sum_j softmax_j(l(x)) (c_j + G_j z)              values, constant (G = 0) or affine in x

Keys are either listed one by one or the product of keys per coordinate, in which case N = prod P_i tokens are implied
by sum P_i numbers, and the softmax factorises exactly.  How F is computed is the runtime's matter.

A hard layer has sites besides, exact numbers in x, and answers with the value of the nearest: the limit of infinite sharpness.
Its keys hand over half-way between the sites; the softmax over them is what its other runtimes and its exports are.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.mapped import pieces
from maxaffine.core.rounding import numpy_dtype
from maxaffine.layer.keys import AxisKeys, Coordinates, ListedKeys, ProductKeys, frozen

PIECE = 1 << 22  # values looked at together
MAPPED = 1 << 30  # bytes of mapped values that may be resident; they are the system's cache and not lost when given back


class Boxed:
    """What layers of every kind have: a box, the point that coordinates are counted from, and a dtype."""

    centre: Array
    low: Array
    high: Array
    inputs: tuple[tuple[int, int], ...]
    dtype: str

    @property
    def dimension(self) -> int:
        """D, the number of input variables."""
        return len(self.centre)

    @property
    def reach(self) -> Array:
        """The largest |x - centre| of the box, (D,)."""
        return np.maximum(self.high - self.centre, self.centre - self.low)

    @property
    def itemsize(self) -> int:
        """Bytes of a stored number."""
        return int(numpy_dtype(self.dtype).itemsize)

    def check_box(self) -> None:
        """Refuse a box or inputs of another dimension."""
        if self.low.shape != (self.dimension,) or self.high.shape != (self.dimension,):
            raise BadInput(f"the box has shape {self.low.shape} and the coordinates take {self.dimension} numbers.")
        if sum(d * n for d, n in self.inputs) != self.dimension:
            raise BadInput(f"`inputs` {self.inputs} must hold {self.dimension} numbers in all.")


@dataclass(frozen=True)
class Layer(Boxed):
    """One softmax attention head: coordinates, keys, sharpness and values, stored in `dtype`."""

    coordinates: Coordinates
    keys: ProductKeys | ListedKeys
    sharpness: float
    values: Array  # keys.shape + (d_out, n_out)
    low: Array  # (D,) the box the layer speaks about
    high: Array  # (D,)
    inputs: tuple[tuple[int, int], ...]  # ((d, n),) or ((d_q, n_q), (d_kv, n_kv))
    dtype: str = "float64"
    slopes: Array | None = field(default=None)  # keys.shape + (d_out, n_out, E), values affine in z
    sites: tuple[Array, ...] | None = field(default=None)  # of a hard layer, float64: (P_i,) per variable, or one (N, D)

    grouped: ClassVar[Literal[False]] = False
    several: ClassVar[Literal[False]] = False
    has_clusters: ClassVar[Literal[False]] = False

    def __post_init__(self) -> None:
        stored = numpy_dtype(self.dtype)
        object.__setattr__(self, "keys", self.keys.stored(stored))
        object.__setattr__(self, "sharpness", float(stored.type(self.sharpness)))
        for name, dtype in (("values", stored), ("slopes", stored), ("low", np.float64), ("high", np.float64)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, frozen(getattr(self, name), dtype))
        if self.sites is not None:
            object.__setattr__(self, "sites", tuple(frozen(one) for one in self.sites))
        self._check()

    def _check(self) -> None:
        (rows, dimension), width = self.coordinates.matrix.shape, self.keys.width
        if rows != width:
            raise BadInput(f"keys have {width} coordinates and `matrix` makes {rows}; they must agree.")
        if self.values.ndim != len(self.keys.shape) + 2 or self.values.shape[:-2] != self.keys.shape:
            raise BadInput(
                f"`values` {self.values.shape} must be (keys..., d_out, n_out) with keys {self.keys.shape}."
            )
        if self.sites is not None:
            self._check_sites(self.sites, dimension)
        if self.slopes is not None and self.slopes.shape != (*self.values.shape, rows):
            raise BadInput(f"`slopes` {self.slopes.shape} must be values' shape and {rows} coordinates.")
        self.check_box()
        arrays = [self.centre, self.coordinates.matrix, self.low, self.high, *self._stored()]
        arrays = [a for a in arrays if not isinstance(a, np.memmap)]  # a map was looked at when its file was read or written
        if not (np.isfinite(self.sharpness) and self.sharpness > 0 and all(np.isfinite(a).all() for a in arrays)):
            raise BadInput("every number of a layer must be finite and its sharpness positive.")

    def _check_sites(self, sites: tuple[Array, ...], dimension: int) -> None:
        if self.slopes is not None or not all(np.isfinite(one).all() for one in sites):
            raise BadInput("a hard layer has constant values and finite sites.")
        shapes = [(count,) for count in self.keys.shape] if self.is_product else [(self.keys.count, dimension)]
        if [one.shape for one in sites] != shapes or len(shapes) != (dimension if self.is_product else 1):
            raise BadInput("a hard layer has one site per key: a row per variable, or points.")
        if self.is_product and any(len(one) < 2 or np.any(np.diff(one) <= 0) for one in sites):
            raise BadInput("the sites of a hard layer must increase along every variable.")

    @property
    def hard(self) -> bool:
        """Whether the nearest site answers alone."""
        return self.sites is not None

    @cached_property
    def axes(self) -> tuple[AxisKeys, ...]:
        """Keys per coordinate; for listed keys one pseudo-axis that holds them all."""
        return self.keys.axes

    @property
    def is_product(self) -> bool:
        """Whether the keys are a product over coordinates, so that the softmax factorises."""
        return self.keys.is_product

    @property
    def is_grid(self) -> bool:
        """Whether the keys are a product over the variables themselves, each only scaled."""
        return self.is_product and self.coordinates.is_diagonal

    @property
    def centre(self) -> Array:  # type: ignore[override]
        """The point that coordinates are counted from."""
        return self.coordinates.centre

    @property
    def d_out(self) -> int:
        """Rows of the output."""
        return int(self.values.shape[-2])

    @property
    def n_out(self) -> int:
        """Columns of the output."""
        return int(self.values.shape[-1])

    @property
    def tokens(self) -> int:
        """Key tokens of the literal layer: N groups of n_out."""
        return self.keys.count * self.n_out

    @property
    def work(self) -> int:
        """Tokens that an evaluation meets."""
        return self.tokens

    @property
    def nbytes(self) -> int:
        """Bytes that the stored arrays take."""
        return sum(a.nbytes for a in (*self._stored(), *(self.sites or ())))

    def _stored(self) -> list[Array]:
        """Every array in the layer's dtype."""
        return [*self.keys.key_arrays, self.values, *([] if self.slopes is None else [self.slopes])]

    @cached_property
    def largest(self) -> float:
        """max |value|, read in pieces."""
        flat = self.values.reshape(-1)
        return max(float(np.abs(piece).max()) for _, piece in pieces(flat, PIECE))

    def layout(self) -> str:
        """Keys per coordinate, as a person reads them."""
        return " x ".join(str(n) for n in self.keys.shape)

    def affine_pieces(self) -> tuple[Array, Array]:
        """Slopes (N, D) and offsets (N,) in x of the scores s_j(x) = a_j . M (x - centre) + b_j, float64."""
        slopes, offsets = (np.asarray(part, dtype=np.float64) for part in self.keys.listed())
        in_x = slopes @ self.coordinates.matrix
        return in_x, offsets - in_x @ self.coordinates.centre


def shaped(x: NDArray[np.float64], shapes: tuple[tuple[int, int], ...]) -> list[NDArray[np.float64]]:
    """Points (B, D) as the arrays that a user hands over: (B, D), (B, d, n), or one for each input."""
    parts, first = [], 0
    for d, n in shapes:
        part = x[:, first : first + d * n]
        parts.append(np.ascontiguousarray(part if n == 1 else part.reshape(-1, n, d).transpose(0, 2, 1)))
        first += d * n
    return parts
