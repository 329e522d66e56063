"""What the checker reads: the stored numbers, their structure, and what rounding may do to them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.proved import Form, rounded
from maxaffine.core.errors import BadInput
from maxaffine.core.mapped import pieces
from maxaffine.core.rounding import DTYPES
from maxaffine.core.scope import Scope
from maxaffine.target.target import Target

Array = NDArray[np.float64]

VALUES_LIMIT = 20_000_000  # stored values that a check is willing to enclose
MAPPED_LIMIT = 16_000_000_000  # where they are mapped from a big file and read in pieces: as many as a file holds
PIECE = 1 << 20  # keys whose values are looked at together
BLOCK = 4096  # keys per round of the streaming runtime, whose rescalings are counted
WINDOW = 2.0**-56  # weight per coordinate, relative to the nearest site, that a runtime may leave out on a grid
FLOORS = {"float64": 745.2, "float32": 104.0}  # exp(-floor) is zero in the dtype


LISTED = 1 << 16  # tokens that a literal form is listed with


class NotProved(Exception):
    """What stands in the way of a proof, as a sentence."""


def stated_scope(certificate: Mapping[str, Any]) -> Scope:
    """The x that a certificate speaks of."""
    try:
        return Scope.of(certificate)
    except BadInput as failure:
        raise NotProved(f"{failure}.") from None


def stated_gap(record: Mapping[str, Any]) -> float | None:
    """The gap about jumps that the certificate excludes, which the plan must have as well (format 1 states six digits of it)."""
    gap, planned = stated_scope(record["certificate"]).gap, record["plan"].get("gap")
    if gap is None:
        return None
    if not gap > 0.0 or not isinstance(planned, float) or not abs(planned - gap) <= 1e-5 * gap:
        raise NotProved("the gap about the jumps of its target is not the one its certificate speaks of.")
    return gap


@dataclass(frozen=True)
class Stored:
    """Numbers of a saved layer: keys per axis (a grid) or listed, values (N, K), the box, the sharpness."""

    centre: Array
    scale: Array  # (D,), the diagonal of the coordinates' matrix
    slopes: list[Array]
    offsets: list[Array]
    values: Array  # (N, K)
    low: Array
    high: Array
    sharpness: float
    dtype: str
    is_grid: bool
    offset_error: float  # how far offsets are from -slope^2/2 (grids), summed over the axes

    @classmethod
    def read(cls, tensors: Mapping[str, Any], description: Mapping[str, Any], target: Target) -> Stored:
        """Read validated tensors; NotProved for a structure that no theorem here covers."""
        if "value_slopes" in tensors:
            raise NotProved("its values are affine in x, which this checker does not cover.")
        matrix = np.asarray(tensors["coordinates.matrix"], dtype=np.float64)
        if matrix.shape[0] != matrix.shape[1] or np.count_nonzero(matrix - np.diag(np.diag(matrix))):
            raise NotProved("its coordinates are not scaled variables, which this checker does not cover.")
        scale = np.diag(matrix).copy()
        if np.any(scale <= 0) or description["dtype"] not in DTYPES:
            raise NotProved("its coordinates or dtype are not those of a lookup.")
        low, high = (np.asarray(tensors[f"box.{side}"], dtype=np.float64) for side in ("low", "high"))
        if not (np.array_equal(low, target.box.low) and np.array_equal(high, target.box.high)):
            raise NotProved("the layer and the target speak about different boxes.")
        product = description["keys"] == "product"
        names = [f"keys.{i}" for i in range(len(scale))] if product else ["keys"]
        slopes = [np.asarray(tensors[f"{name}.slopes"], dtype=np.float64) for name in names]
        offsets = [np.asarray(tensors[f"{name}.offsets"], dtype=np.float64) for name in names]
        cls._agree(tensors, str(description["dtype"]), names, slopes, offsets, target)
        count = math.prod(len(b) for b in offsets)
        values = tensors["values"]
        if not isinstance(values, np.memmap):
            values = np.asarray(values, dtype=np.float64)
        values = values.reshape(count, -1)
        limit = MAPPED_LIMIT if isinstance(tensors["values"], np.memmap) else VALUES_LIMIT
        if values.size > limit:
            raise NotProved(f"it holds {values.size:,} values, more than the {limit:,} this check encloses.")
        if values.shape[1] != target.d_out * target.n_out:
            raise NotProved("the layer and the target have different outputs.")
        drift = cls._grid_error(slopes, offsets) if product else math.nan
        if product and not math.isfinite(drift):
            raise NotProved("its keys are not those of a uniform grid.")
        return cls(
            np.asarray(tensors["coordinates.centre"], dtype=np.float64), scale, slopes, offsets, values, low, high,
            cls._sharpness(description), str(description["dtype"]), product, drift,
        )  # fmt: skip

    @staticmethod
    def _agree(
        tensors: Mapping[str, Any], dtype: str, names: list[str], slopes: list[Array], offsets: list[Array], target: Target
    ) -> None:
        """Tensors of the shapes and dtype that the description and the target imply, and no others."""
        D, product = target.box.dimension, names != ["keys"]
        shapes = {"box.low": (D,), "box.high": (D,), "coordinates.centre": (D,), "coordinates.matrix": (D, D)}
        for name, a, b in zip(names, slopes, offsets, strict=True):
            shapes[f"{name}.slopes"] = (a.size,) if product else (len(b), D)
            shapes[f"{name}.offsets"] = (a.size,) if product else (b.size,)
        shapes["values"] = (*(b.size for b in offsets), target.d_out, target.n_out)
        if {name: tensor.shape for name, tensor in tensors.items()} != shapes:
            raise NotProved("its tensors are not those of one layer for this target.")
        if any(tensors[name].dtype != (dtype if name.startswith(("keys", "values")) else "float64") for name in tensors):
            raise NotProved("a tensor is not in the dtype that the record states.")

    @staticmethod
    def _sharpness(description: Mapping[str, Any]) -> float:
        sharpness, kind = float(description["sharpness"]), np.dtype(description["dtype"])
        if not 0.0 < sharpness <= float(np.finfo(kind).max) or float(kind.type(sharpness)) != sharpness:
            raise NotProved(f"its sharpness (={sharpness!r}) is not a positive number of its dtype.")
        return sharpness

    @staticmethod
    def _grid_error(slopes: list[Array], offsets: list[Array]) -> float:
        """sum over axes of max |b + a^2/2| where the slopes step by one about zero; infinite otherwise."""
        total = 0.0
        for a, b in zip(slopes, offsets, strict=True):
            symmetric = a[0] == -a[-1] and len(a) < 2**26
            if not symmetric or (len(a) > 1 and not np.all(np.diff(a) == 1.0)):
                return math.inf
            total += float(np.abs(b + a * a / 2.0).max())
        return total

    @property
    def unit(self) -> float:
        """Unit roundoff of the dtype."""
        return DTYPES[self.dtype].unit

    @property
    def reach(self) -> Array:
        """max |x - centre| per variable."""
        return np.asarray(np.maximum(self.high - self.centre, self.centre - self.low) * (1 + 1e-15))

    def logit_error(self) -> float:
        """What all roundings together may do to a logit, whichever runtime runs the layer.

        The query is rounded to float64, centred, scaled and rounded to the dtype; the scores are formed with at most
        D + 4 operations each; then come the shift by the maximum, exp, the division, and one rescaling per block.
        """
        double, u = 2.0**-53, self.unit
        size = self.scale * self.reach
        largest = np.maximum(np.abs(self.low), np.abs(self.high))
        query = self.scale * double * largest + (len(self.scale) + 8) * double * size
        if self.dtype != "float64":
            query = query + 1.01 * u * size
        if self.is_grid:
            a = np.array([np.abs(s).max() for s in self.slopes])
            b = float(sum(np.abs(o).max() for o in self.offsets))
            drift = self.offset_error
        else:
            a, b, drift = np.abs(self.slopes[0]).max(axis=0), float(np.abs(self.offsets[0]).max()), 0.0
        scores = float(a @ query) + (len(self.scale) + 4) * u * 1.01 * (float(a @ size) * 1.01 + b)
        if not self.sharpness * (4.0 * float(a @ size) + 4.0 * b + 1.0) < float(np.finfo(self.dtype).max):
            raise NotProved(f"its logits overflow in {self.dtype}.")
        rounds = -(-len(self.values) // BLOCK)
        # One softmax per coordinate shifts, exponentiates and divides once for each.
        softmaxes = max(2.0, float(len(self.scale)))
        return self.sharpness * (scores + drift) + u * (softmaxes * (FLOORS[self.dtype] + 20.0) + 12.0 * rounds)

    def literally(self, bound: float, form: Form, columns: int, volume: float = 1.0) -> float:
        """A bound of the literal form of a lookup whose default form has that bound, of any x or in L_p over a box.

        A softmax whose logits are off by eta moves a mean of values by (e^{2 eta} - 1) times half their range at most.  So does
        the softmax that several output columns share: column c gives the bonus log(1 + n) to its own tokens, and the
        inverse of the mixing has rows whose absolute sum is below 3.
        """
        D, tokens = len(self.scale), len(self.values) * columns
        if tokens > LISTED:
            raise NotProved(f"it has {tokens:,} tokens, and literal forms of more than {LISTED:,} are not looked at.")
        size = self.scale * self.reach * (1 + 1e-12)
        error = (rounded(D + 4, 2.0**-53) + form.gamma(D + 9)) * size
        if self.is_grid:
            a = np.array([np.abs(s).max() for s in self.slopes])
            b = float(sum(np.abs(o).max() for o in self.offsets))
        else:
            a, b = np.abs(self.slopes[0]).max(axis=0), float(np.abs(self.offsets[0]).max())
        bonus = math.log(1.0 + columns) if columns > 1 else 0.0
        top = self.sharpness * (float(a @ (size + error)) + b) + bonus
        eta = self.sharpness * float(a @ error) + (form.gamma(D + 13) + rounded(2 * D + 9, 2.0**-53)) * top
        eta += form.unit * (min(2.0 * top, 50.0) + 72.0)
        if not (top < form.largest and eta < 1.5):
            raise NotProved(f"its logits are not resolved in {form.name}.")
        ends = [(float(piece.min()), float(piece.max())) for _, piece in pieces(self.values, PIECE)]
        low, high = min(a for a, _ in ends), max(b for _, b in ends)
        largest = max(abs(low), abs(high))
        moved = math.expm1(2.0 * eta) * (high - low) / 2.0
        moved += form.gamma(2 * tokens + 4 * columns + 20) * math.exp(2.0 * eta) * largest
        moved += (8.0 * form.unit + tokens * (4.0 * form.normal + 2.0 * math.exp(-50.0) * 1000.0 * form.unit)) * largest
        mixed = 3.0 if columns > 1 else 1.0
        return (bound + volume * (mixed * moved + 4.0 * form.unit * largest)) * (1 + 1e-11)

    def summation_error(self) -> float:
        """Rounding of the weighted sum, from the keys whose weight is not zero; and weights out of nothing."""
        alive = 1.0
        for axis, b in enumerate(self.offsets):
            count = float(len(b))
            if self.is_grid:
                lead = 2.0 * (FLOORS[self.dtype] + 2.0 * self.logit_error()) / self.sharpness
                count = min(count, 2.0 * math.floor(0.5 + math.sqrt(0.25 + lead)) + 1.0)
            alive *= count
            del axis
        rounds = -(-len(self.values) // BLOCK)
        terms = 2.0 * alive + 4.0 * rounds + 4.0 * len(self.scale) + 6.0
        terms = max(terms, sum(2.0 * len(b) + 4.0 for b in self.offsets) if alive > 1e6 else 0.0)
        if terms * self.unit > 0.1:
            raise NotProved(f"sums over {alive:.3g} keys are not under control in {self.dtype}.")
        largest = max(float(np.abs(piece).max()) for _, piece in pieces(self.values, PIECE))
        if not largest * (terms + 2.0) < 0.4 * float(np.finfo(self.dtype).max):  # sums are divided by their normaliser last
            raise NotProved(f"sums of its values may overflow in {self.dtype}.")
        stray = 8.0 * len(self.values) * DTYPES[self.dtype].tiny * (1 + len(self.offsets))
        underflow = terms * DTYPES[self.dtype].tiny  # products of small values with weights
        window = 2.0 * WINDOW * len(self.offsets) if self.is_grid else 0.0
        return largest * (terms * self.unit / (1.0 - terms * self.unit) + stray + window) + underflow
