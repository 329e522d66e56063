"""What all roundings together may do to the logits and the sums of a lookup, whichever runtime runs it."""

import math

import numpy as np

from maxaffine.checker.literal_groups import MARGIN, MOST_TOKENS, NEGLIGIBLE, RESOLVED
from maxaffine.checker.proved import DOUBLE, Form, NotProved, rounded
from maxaffine.checker.reader import Lookup
from maxaffine.core.arrays import Array
from maxaffine.core.mapped import pieces
from maxaffine.core.rounding import DTYPES

PIECE = 1 << 20  # keys whose values are looked at together
BLOCK = 4096  # keys per round of the streaming runtime, whose rescalings are counted
WINDOW = 2.0**-56  # weight per coordinate, relative to the nearest site, that a runtime may leave out on a grid
FLOORS = {"float64": 745.2, "float32": 104.0}  # exp(-floor) is zero in the dtype


def grid_drift(layer: Lookup) -> float:
    """sum over axes of max |b + a^2/2|; NotProved where the slopes do not step by one about zero."""
    total = 0.0
    for a, b in zip(layer.slopes, layer.offsets, strict=True):
        symmetric = a[0] == -a[-1] and len(a) < 2**26
        if not symmetric or (len(a) > 1 and not np.all(np.diff(a) == 1.0)):
            raise NotProved("its keys are not those of a uniform grid.")
        total += float(np.abs(b + a * a / 2.0).max())
    return total


def logit_error(layer: Lookup) -> float:
    """What all roundings together may do to a logit.

    The query is rounded to float64, centred, scaled and rounded to the dtype; the scores are formed with at most D + 4 operations
    each; then come the shift by the maximum, exp, the division, and one rescaling per block.
    """
    D, unit = len(layer.scale), DTYPES[layer.dtype].unit
    size = layer.scale * layer.reach
    largest = np.maximum(np.abs(layer.low), np.abs(layer.high))
    query = layer.scale * DOUBLE * largest + (D + 8) * DOUBLE * size
    if layer.dtype != "float64":
        query = query + 1.01 * unit * size
    a, b = layer.steepest()
    scores = float(a @ query) + (D + 4) * unit * 1.01 * (float(a @ size) * 1.01 + b)
    if not layer.sharpness * (4.0 * float(a @ size) + 4.0 * b + 1.0) < float(np.finfo(layer.dtype).max):
        raise NotProved(f"its logits overflow in {layer.dtype}.")
    rounds = -(-len(layer.values) // BLOCK)
    softmaxes = max(2.0, float(D))  # one per coordinate shifts, exponentiates and divides once for each
    drift = 0.0 if layer.listed else grid_drift(layer)
    return layer.sharpness * (scores + drift) + unit * (softmaxes * (FLOORS[layer.dtype] + 20.0) + 12.0 * rounds)


def summation_error(layer: Lookup) -> float:
    """Rounding of the weighted sum, from the keys whose weight is not zero; and weights out of nothing."""
    alive, dtype = 1.0, DTYPES[layer.dtype]
    for b in layer.offsets:
        count = float(len(b))
        if not layer.listed:
            lead = 2.0 * (FLOORS[layer.dtype] + 2.0 * logit_error(layer)) / layer.sharpness
            count = min(count, 2.0 * math.floor(0.5 + math.sqrt(0.25 + lead)) + 1.0)
        alive *= count
    rounds = -(-len(layer.values) // BLOCK)
    terms = 2.0 * alive + 4.0 * rounds + 4.0 * len(layer.scale) + 6.0
    terms = max(terms, sum(2.0 * len(b) + 4.0 for b in layer.offsets) if alive > 1e6 else 0.0)
    if terms * dtype.unit > 0.1:
        raise NotProved(f"sums over {alive:.3g} keys are not under control in {layer.dtype}.")
    low, high = value_range(layer)
    largest = max(abs(low), abs(high))
    if not largest * (terms + 2.0) < 0.4 * float(np.finfo(layer.dtype).max):  # sums are divided by their normaliser last
        raise NotProved(f"sums of its values may overflow in {layer.dtype}.")
    stray = 8.0 * len(layer.values) * dtype.tiny * (1 + len(layer.offsets))
    underflow = terms * dtype.tiny  # products of small values with weights
    window = 0.0 if layer.listed else 2.0 * WINDOW * len(layer.offsets)
    return largest * (terms * dtype.unit / (1.0 - terms * dtype.unit) + stray + window) + underflow


def value_range(layer: Lookup) -> tuple[float, float]:
    """The least and the largest value."""
    ends = np.array([(piece.min(), piece.max()) for _, piece in pieces(layer.values, PIECE)], dtype=np.float64)
    if not np.isfinite(ends).all():
        raise NotProved("a stored number is not finite.")
    return float(ends[:, 0].min()), float(ends[:, 1].max())


def literal_lookup(layer: Lookup, bound: float, form: Form, z: Array, columns: int = 1, volume: float = 1.0) -> float:
    """A bound of the literal form of a lookup whose default form has that bound where |z| <= z, or in L_p over a box.

    A softmax whose logits are off by eta moves a mean of values by (e^{2 eta} - 1) times half their range at most.  So does the
    softmax that several output columns share: column c gives the bias log(1 + n) to its own tokens, and the inverse of the
    mixing has rows whose absolute sum is below 3.
    """
    D, tokens = len(layer.scale), len(layer.values) * columns
    if tokens > MOST_TOKENS:
        raise NotProved(f"it has {tokens:,} tokens, and literal forms of more than {MOST_TOKENS:,} are not looked at.")
    error = (rounded(D + 4, DOUBLE) + form.gamma(D + 9)) * z
    a, b = layer.steepest()
    top = layer.sharpness * (float(a @ (z + error)) + b) + (math.log(1.0 + columns) if columns > 1 else 0.0)
    eta = layer.sharpness * float(a @ error) + (form.gamma(D + 13) + rounded(2 * D + 9, DOUBLE)) * top
    eta += form.unit * (min(2.0 * top, NEGLIGIBLE) + 72.0)
    if layer.pair:  # keys hold what the context adds to their scores, multiplied out in float64 without centring
        far = layer.scale * (np.maximum(np.abs(layer.low), np.abs(layer.high)) + np.abs(layer.centre))
        eta += layer.sharpness * (rounded(D + 10, DOUBLE) + 4.0 * form.unit) * float(a @ far)
    if not (top < form.largest and eta < RESOLVED):
        raise NotProved(f"its logits are not resolved in {form.name}.")
    low, high = value_range(layer)
    largest = max(abs(low), abs(high))
    moved = math.expm1(2.0 * eta) * (high - low) / 2.0
    moved += form.gamma(2 * tokens + 4 * columns + 20) * math.exp(2.0 * eta) * largest
    stray = tokens * (4.0 * form.normal + 2.0 * math.exp(-NEGLIGIBLE) * 1000.0 * form.unit)
    moved += (8.0 * form.unit + stray) * largest
    mixed = 3.0 if columns > 1 else 1.0
    return (bound + volume * (mixed * moved + 4.0 * form.unit * largest)) * MARGIN
