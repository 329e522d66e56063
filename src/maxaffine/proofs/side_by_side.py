"""Certificates of layers side by side: a theorem about parts, each of which is proved as the head it is.

**Theorem (outputs).**  Let a layer answer the entries of its output by parts, each entry by one of them, and part p be within b_p
of the target's entries of p on the box of its own variables, in the sup norm or in L_p.  Then for every entry e of p

    ||F_e - f_e||  <=  scale_p b_p,        scale_p = 1 in the sup norm,

and in L_p |box|^(1/p) where b_p is in the sup norm, |box of the other variables|^(1/p) where it is in L_p; the bound of the layer
is the largest.  No term is added: the parts are run one by one and write to their own entries alone.  Rounding of x is that of
the variables of p, each rounded once, so statements about real x hold.  Left out are the x that one part leaves out.

Where an entry is the sum of n parts, with signs, the target is that sum of theirs and the errors add up, in the sup norm:

    |F_e - f_e|  <=  sum_p b_p + (u + gamma(n + 1)) sum_p sup |F_p|,        gamma in float64, u of the rounding at the end.

The literal form, where the parts share one softmax, is proofs/literal.py's.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64, compute_format, gamma
from maxaffine.core.scope import Scope
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.side_by_side import OutputsLayer
from maxaffine.proofs.certificate import PARTS, Certificate
from maxaffine.proofs.combine import token_values
from maxaffine.runtime.collapse import collapsible

THEOREM = "outputs: every output is proved by itself, and what is proved holds of them all"
SUMMED = "outputs: every output is a sum of terms that are proved by themselves, and their errors add up"
UP = 1.0 + 1e-12


def scale_of(width: Array, own: Array, norm: float, part: float) -> float:
    """What an error of a part is multiplied by: `width` of the box, `own` of that of its variables, the norms of both."""
    if math.isinf(norm):
        return 1.0
    volume = float(np.prod(width)) if math.isinf(part) else float(np.prod(width)) / float(np.prod(own))
    return float(volume ** (1.0 / norm)) * UP


def over_entries(layer: OutputsLayer, numbers: Sequence[float]) -> Array:
    """Of every entry the sum of the numbers of the parts that write to it, rounded up."""
    found, counts = np.zeros((2, layer.d_out * layer.n_out))
    for rows, number in zip(layer.writes(), numbers, strict=True):
        for _, e, _ in rows:
            found[e] += number
            counts[e] += 1
    return np.where(counts > 1, found * UP, found)


def adding_up(layer: OutputsLayer) -> Array:
    """What rounding does to the sum of the parts of every entry, nothing where it has one part."""
    sizes = over_entries(layer, [token_values(part.layer) for part in layer.parts])
    counts = over_entries(layer, [1.0] * len(layer.parts))
    lost = [compute_format(layer.dtype).unit + gamma(int(n) + 1, FLOAT64.unit) if n > 1 else 0.0 for n in counts]
    return np.array(lost) * sizes * UP


def certify_outputs(layer: OutputsLayer, norm: float, prove: Callable[[int, GroupedLayer], Certificate]) -> Certificate:
    """The certificate of the largest error of an output; `prove` hands over those of the parts."""
    if math.isfinite(norm) and layer.adds:
        raise Refused("sums of parts are proved in the sup norm alone")
    found = [prove(number, part.layer) for number, part in enumerate(layer.parts)]
    scales, reserves = [], []
    for one, part in zip(found, layer.parts, strict=True):
        if one.bound is None or one.pointwise:
            raise Refused(f"nothing is proved of one of its outputs: {one.theorem}")
        if math.isfinite(norm) and math.isinf(one.norm) and one.scope != Scope():
            raise Refused("what is proved of float64 numbers alone, or not of every x, says nothing about an integral")
        own = part.layer.high - part.layer.low
        scales.append(scale_of(layer.high - layer.low, own, norm, one.norm))
        reserves.append(one.details.get("collapse"))
    bounds = [one.bound * scale for one, scale in zip(found, scales, strict=True) if one.bound is not None]
    rounded = adding_up(layer)
    worst = int(np.argmax(over_entries(layer, bounds) + rounded))
    terms = {name: [one.parts.get(name, 0.0) * scale for one, scale in zip(found, scales, strict=True)] for name in PARTS}
    parts = {name: float(over_entries(layer, terms[name])[worst]) for name in PARTS}
    parts["rounding"] += float(rounded[worst])
    details = {"parts": float(len(found))}
    kept = [one for one, part in zip(reserves, layer.parts, strict=True) if collapsible(part.layer)]
    told = [float(one) for one in kept if one is not None]
    if told and len(told) == len(kept):
        details["collapse"] = min(told)
    assumptions = tuple(dict.fromkeys(line for one in found for line in one.assumptions))
    theorem = SUMMED if layer.adds else THEOREM
    return Certificate.proved(
        norm, parts, argument="outputs", theorem=theorem, dtype=layer.dtype, runtime="arrays", assumptions=assumptions,
        scope=together([one.scope for one in found], norm), details=details, within=tuple(found),
    )  # fmt: skip


def together(scopes: Sequence[Scope], norm: float) -> Scope:
    """What the scopes of parts leave of the x of the box."""
    if math.isfinite(norm):
        return Scope("integral")
    gaps = [scope for scope in scopes if scope.gap is not None]
    inputs = "real" if all(scope.inputs == "real" for scope in scopes) else "float64"
    if any(scope.over != "box" for scope in scopes):
        raise Refused("one of its outputs is proved at some x of the box only")
    if not gaps:
        return Scope("box", inputs)
    measures = {scope.measure for scope in gaps}
    measure = measures.pop() if len(measures) == 1 else "outputs"
    return replace(
        gaps[0], inputs=inputs, gap=max(float(scope.gap or 0.0) for scope in gaps), measure=measure,
        jumps=sum(scope.jumps for scope in gaps),
    )  # fmt: skip
