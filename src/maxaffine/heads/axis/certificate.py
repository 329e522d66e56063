"""Certificates of clusters along one direction: the parts that prove.py proves, put together in words."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from maxaffine.core.errors import Refused
from maxaffine.core.scope import Scope
from maxaffine.heads.axis.line import AxisProof, AxisTarget
from maxaffine.heads.axis.prove import prove_axis
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.assumptions import ELEMENTARY, FLINT, LOGARITHM
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.combine import affine_part_error, output_rounding
from maxaffine.structure.one_direction import OneDirection

THEOREM = (
    "clusters along one direction: error inside each cluster (Ehlich-Zeller), blending at kinks, leakage from distant clusters"
)


@dataclass(frozen=True)
class Asked:
    """What is asked for: the error, p of the norm, and how far from jumps it speaks, in units of w . x."""

    error: float
    norm: float
    gap: float | None


def certify_axis(layer: GroupedLayer, target: OneDirection, asked: Asked, runtime: str = "two-level") -> Certificate:
    """Prove a bound for a stored layer of one group of clusters along the target's direction."""
    group = layer.groups[0]
    if len(layer.groups) != 1 or not group.clustered:
        raise Refused("one group of clusters is needed.")
    centre = [Fraction(float(c)) for c in layer.centre]
    lift = sum((a * c for a, c in zip(target.slopes, centre, strict=True)), Fraction(0))
    off = affine_part_error(layer, target.slopes)
    volume = float(np.prod(layer.high - layer.low)) * (1 + 1e-12)
    sup = asked.error if math.isinf(asked.norm) else asked.error / volume ** (1.0 / asked.norm)
    proof = prove_axis(layer, group, AxisTarget(target.shifted(lift), target.direction), sup, asked.gap)
    parts = {
        "approximation": proof.approximation, "leakage": proof.leakage, "target_rounding": proof.uncertainty,
        "rounding": proof.rounding + off + output_rounding(layer, proof.layer_size),
    }  # fmt: skip
    known = proof.blend
    if math.isfinite(asked.norm):
        known = replace(known, blend=known.blend + 2.0 * proof.layer_size + 2.0 * proof.size)  # next to a jump both sides speak
        parts = _integral(layer, group, proof, sum(parts.values()), asked.norm, volume, off)
    return Certificate.proved(
        asked.norm, parts, argument="axis clusters", theorem=THEOREM, dtype=layer.dtype, runtime=runtime,
        assumptions=(LOGARITHM, ELEMENTARY, FLINT), scope=scope_of(proof.every_x, len(proof.holes), asked),
        details={"clusters": float(len(group.clusters)), "jumps": float(len(proof.holes)), "gap": asked.gap or 0.0},
        blends=(known,),
    )  # fmt: skip


def scope_of(every_x: bool, jumps: int, asked: Asked) -> Scope:
    """For which x a certificate speaks."""
    inputs = "real" if every_x else "float64"
    if math.isfinite(asked.norm):
        return Scope("integral", inputs)
    return Scope("box", inputs) if jumps == 0 else Scope("box", inputs, gap=asked.gap, measure="direction", jumps=jumps)


def _integral(
    layer: GroupedLayer, group: ClusterGroup, proof: AxisProof, sup: float, p: float, volume: float, off: float
) -> dict[str, float]:
    """(sup^p volume + (|f| + |F|)^p measure of the holes)^(1/p)."""
    row = np.abs(group.matrix[0])
    lead = int(row.argmax())
    across = volume / float(layer.high[lead] - layer.low[lead]) / float(row[lead]) * (1 + 1e-12)
    measure = min(sum(hole.high - hole.low for hole in proof.holes) * across * (1 + 1e-9), volume)
    reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low)
    tilt = 0.0 if layer.tilt is None else float(np.abs(layer.tilt[0].astype(np.float64)) @ reach)
    jump = 2.0 * tilt + off + proof.size + proof.layer_size
    smooth = (sup**p * volume) ** (1.0 / p)
    whole = (sup**p * volume + jump**p * measure) ** (1.0 / p)
    return {"approximation": smooth, "leakage": max(whole - smooth, 0.0) + 1e-13 * whole}
