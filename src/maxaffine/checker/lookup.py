"""Lookups re-proved: which theorem covers one, what rounding does to its logits and sums, and its literal form."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from maxaffine.checker.certificate import stated_norm, stated_scope
from maxaffine.checker.grid import check_integral, check_sup
from maxaffine.checker.listed import check_centres, check_partition
from maxaffine.checker.lookup_rounding import FLOORS, grid_drift, literal_lookup
from maxaffine.checker.proved import NotProved, Proved
from maxaffine.checker.reader import Lookup
from maxaffine.core.progress import Progress, silent
from maxaffine.core.scope import Scope
from maxaffine.target.target import Target

VALUES_LIMIT = 20_000_000  # stored values that a check is willing to enclose
MAPPED_LIMIT = 16_000_000_000  # where they are mapped from a big file and read in pieces: as many as a file holds


def check_lookup(
    tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, error: float, progress: Progress = silent
) -> Proved:
    """Grids in the sup norm or in L_p, listed keys about centres or on a partition."""
    if "value_slopes" in tensors:
        raise NotProved("its values are affine in x, which this checker does not cover.")
    layer = Lookup.read(tensors, record["layer"], target)
    if layer.dtype not in FLOORS:
        raise NotProved(f"lookups in {layer.dtype} are not proved.")
    limit = MAPPED_LIMIT if isinstance(tensors.get("values"), np.memmap) else VALUES_LIMIT
    if layer.values.size > limit:
        raise NotProved(f"it holds {layer.values.size:,} values, more than the {limit:,} this check encloses.")
    found = _bound(layer, target, record, error, progress)
    volume = target.box.volume ** (1.0 / stated_norm(record)) * (1 + 1e-12)
    size = layer.scale * layer.reach * (1 + 1e-12)
    return replace(
        found, literal=lambda form, claimed: literal_lookup(layer, found.bound, form, size, target.n_out, volume)
    )


def _bound(layer: Lookup, target: Target, record: Mapping[str, Any], error: float, progress: Progress) -> Proved:
    norm, declared = stated_norm(record, 64.0), record.get("declared") or {}
    if not layer.listed:
        grid_drift(layer)
        if math.isfinite(norm):
            return check_integral(layer, target, norm, error)
        return check_sup(layer, target, declared, error, progress)
    if math.isfinite(norm):
        raise NotProved("L_p errors are proved on grids only.")
    if record["plan"].get("plan") == "centres":
        scope = stated_scope(record["certificate"])
        if scope != Scope("centres", radius=scope.radius, count=len(layer.values)) or scope.radius is None:
            raise NotProved("the x it is proved for are not those its certificate speaks of.")
        return check_centres(layer, target, declared, scope.radius)
    return check_partition(layer, target, error)
