"""Which kernel runs a layer on a CUDA device, in which dtype, and why; nothing here needs a device or PyTorch.

Of a lookup on a uniform grid the kernel gathers a window.  What it may be off by:

    sites left out    2 sum_{m >= k} e^{-rho (m^2 - 1/4)/2} of the nearest weight per coordinate, times the range of the values
    weights           relative errors eta of the weights move the output by at most (e^{2 eta} - 1) times the range
    sums              gamma(2 terms) times the largest |value|
"""

import math
from dataclasses import dataclass

import numpy as np

from maxaffine.core.budget import count_text
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import dtype_of, gamma
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.layer.side_by_side import AnyLayer, OutputsLayer
from maxaffine.runtime import windowed
from maxaffine.runtime.gpu.clustered import Clustered, clustered
from maxaffine.runtime.gpu.side_by_side import side_by_side
from maxaffine.runtime.gpu.tables import Numbers, Polynomials, polynomials
from maxaffine.runtime.kept import once

TAILS = {"float32": 2.0**-27, "float64": 2.0**-56}
MOST_GATHERS = 512
FURTHEST = 64.0  # times what its polynomials may take that a kernel of clusters may be off by
ROUNDED = {"float32": 2.0**-16, "float64": 2.0**-36}  # or this part of the largest value


@dataclass(frozen=True)
class LookupProgram:
    """The arguments of the kernel `windowed`, and sup |kernel - layer| over the box."""

    maps: Numbers
    form: Numbers
    rho: float
    outputs: int
    dimension: int
    gathers: int
    bound: float
    parts: dict[str, float]


def lookup_program(layer: Layer, dtype: str) -> LookupProgram:
    """The window of a layer in that dtype; Refused where it has none that the kernel takes."""
    reason = windowed.reason_not(layer)
    if reason is not None:
        raise Refused(f"the layer has no window: {reason}.")
    if layer.dimension > 3:
        raise Refused(f"the kernel of lookups takes up to 3 variables, and the layer has {layer.dimension}.")
    rho, unit, outputs = layer.sharpness, dtype_of(dtype).unit, layer.d_out * layer.n_out
    k = windowed.window(rho, TAILS[dtype])
    counts = layer.keys.shape
    widths = [min(2 * k, count) for count in counts]
    gathers = math.prod(widths)
    if gathers > MOST_GATHERS:
        raise Refused(f"the window holds {gathers} sites, and the kernel takes {MOST_GATHERS}.")
    maps: list[float] = []
    form: list[float] = []
    for i, count in enumerate(counts):
        centre, scale = float(layer.coordinates.centre[i]), float(layer.coordinates.matrix[i, i])
        maps += [centre, scale, (count - 1) / 2.0, float(layer.low[i]), float(layer.high[i])]
        form += [count, widths[i], outputs * math.prod(counts[i + 1 :])]
    values = layer.values.astype(np.float64)
    span, most = float(values.max() - values.min()), float(np.abs(values).max())
    D = len(counts)
    # the layer's own offsets are -a^2/2 rounded; coordinates in float64 are off by a few units of the number of cells
    away = [axis.offsets.astype(np.float64) + axis.slopes.astype(np.float64) ** 2 / 2.0 for axis in layer.axes]
    offsets = sum(rho * float(np.abs(one).max()) for one in away)
    far = float(np.abs(layer.coordinates.centre * np.diag(layer.coordinates.matrix)).max())
    place = 6.0 * 2.0**-53 * (max(counts) + far)
    reach = float(max(widths))
    eta = D * (rho * reach * (place + 2.0 * unit * reach) + unit * (3.0 * rho * reach * reach / 2.0 + 12.0)) + offsets
    if not eta < 0.1:
        raise Refused(f"{layer.dtype} keys of {max(counts):,} cells are rounded too much; store the layer in float64.")
    parts = {
        "sites left out": D * windowed.tail(rho, k) * span,
        "weights": math.expm1(2.0 * eta) * span,
        "sums": gamma(2 * gathers + 4, unit) * most,
    }
    bound = math.fsum(parts.values()) * (1 + 1e-9)
    return LookupProgram(Numbers(maps), Numbers(form), float(rho), outputs, layer.dimension, gathers, bound, parts)


Program = Polynomials | Clustered | LookupProgram


def choose(layer: AnyLayer, dtype: str, tolerance: float, asked: str | None = None) -> tuple[str, str, Program]:
    """The kernel's name, the reason and its program; Refused where none takes the layer, or not the one asked for."""
    if layer.several:
        return _clustered(layer, dtype, tolerance, asked)
    if layer.grouped:
        if asked == "windowed":
            raise Refused("spectral layers have no window.")
        if layer.has_clusters:
            return _clustered(layer, dtype, tolerance, asked)
        try:
            made = polynomials(layer, dtype, tolerance)
        except Refused:
            if any(one.factored for one in layer.groups):
                raise
            return _clustered(layer, dtype, tolerance, asked)  # steps
        many = str(layer.tokens) if layer.tokens < 10**15 else count_text(layer.tokens)
        return "collapsed", f"{made.multiplications} multiply-adds per query instead of {many} exponentials", made
    if asked == "collapsed":
        raise Refused("lookups do not collapse.")
    found = lookup_program(layer, dtype)
    return "windowed", f"{found.gathers} of {layer.keys.count} keys per query", found


def tolerance(layer: AnyLayer, dtype: str, narrow: float, reserve: float) -> float:
    """What the polynomials of a kernel may differ from the layer by: `narrow` in float32 and of clusters, else the `reserve`."""
    return narrow if dtype == "float32" or layer.has_clusters else reserve


def _clustered(
    layer: GroupedLayer | OutputsLayer, dtype: str, tolerance: float, asked: str | None
) -> tuple[str, str, Program]:
    """The kernel of a layer with clusters, or of layers side by side."""
    if asked not in (None, "collapsed"):
        raise Refused("clusters have no window.")
    made = _made(layer, dtype, tolerance)
    if isinstance(made, str):
        raise Refused(made)
    if not made.bound <= max(FURTHEST * tolerance, ROUNDED[dtype] * made.size):
        raise Refused(f"the {dtype} kernel would be off by {made.bound:.2g}.")
    return "collapsed", f"{made.words} instead of {count_text(layer.tokens)} exponentials", made


@once
def _made(layer: GroupedLayer | OutputsLayer, dtype: str, tolerance: float) -> Clustered | str:
    """The forms of a layer, or why there are none: a refusal costs as much as a success."""
    try:
        return side_by_side(layer, dtype, tolerance) if layer.several else clustered(layer, dtype, tolerance)
    except Refused as refusal:
        return str(refusal)
