"""L_p certificates of heads on regions, jumps included and without a gap: what jumps mix is integrated, the rest pointwise.

Notation of heads/regions/prove.py.  Computed scores S' are off by at most d (as stored, and as computed), so at every x off the
planes a region s beyond planes i of jumps has a mass of at most e^{-2 lam_i |h_i| + 2 d}; C_i counts the regions beyond plane i:

    |f - g| <= eps + kappa W0((C-1) e^{2d-1}) + V sum_{i jumps} min(1, C_i e^{-2 lam_i |h_i| + 2 d}),       V = sup |f_s - f_t|.

Slices of the box by h = a . x + c at fixed h have volume at most |box| / max_j |a_j| w_j per unit of h, hence by Minkowski

    ||f - g||_p <= |box|^{1/p} (eps + kappa (..)) + V sum_i (|box| (2 d + log C_i + 1/p) / (lam_i max_j |a_j| w_j))^{1/p},

because min(1, C e^{-2 lam |h| + 2 d})^p integrates over h to (2 d + log C)/lam + 1/(p lam).  Planes themselves have measure zero.
"""

import math

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.scope import Scope
from maxaffine.heads.regions.plan import RegionsPlan
from maxaffine.heads.regions.prove import Mixed
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.assumptions import ELEMENTARY, FLINT, LOGARITHM
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.combine import output_rounding
from maxaffine.proofs.literal_form import ProvedBlend
from maxaffine.proofs.soft_gap import soft_gap
from maxaffine.structure.planes import Plane

THEOREM = "regions in L_p: error of each branch on the box, blending at kinks bounded pointwise, blending at jumps integrated"


def certify_regions_integral(
    layer: GroupedLayer, plan: RegionsPlan, p: float, error: float, slopes: list[float], runtime: str = "two-level"
) -> Certificate:
    """||layer - target||_p for the two-level runtime."""
    found, volume = plan.arrangement, float(np.prod(layer.high - layer.low)) * (1 + 1e-12)
    known = Mixed.of(layer, plan, error / volume ** (1.0 / p), slopes)
    size, approximation, uncertainty, errors = known.size, known.approximation, known.uncertainty, known.errors
    if not errors.scores < 1.0:
        raise Refused(f"its scores are too steep for {layer.dtype}.")
    drift = known.stored + errors.scores
    mixed = known.kappa * soft_gap(known.count, 2.0 * drift)
    crossed = 0.0
    for i in known.jumps:
        beyond = max(sum(signs[i] == side for signs in found.regions) for side in (-1, 1))
        layers = layer_measure(found.planes[i], layer.low, layer.high, plan.steepness[i], beyond, drift, p)
        crossed += 2.0 * size * min(layers, volume) ** (1.0 / p) * (1 + 1e-9)
    root = volume ** (1.0 / p) * (1 + 1e-12)
    # what is computed is a mean of computed heads, each within eps + head of its branch
    head = errors.head + errors.sums(0.0)
    lost = head + output_rounding(layer, size + approximation + uncertainty + head)
    parts = {
        "approximation": approximation * root, "leakage": mixed * root + crossed,
        "rounding": lost * root, "target_rounding": uncertainty * root,
    }  # fmt: skip
    details = {"regions": float(known.count), "planes": float(len(found.planes)), "jumps": float(len(known.jumps))}
    return Certificate.proved(
        p, parts, argument="regions in L_p", theorem=THEOREM, dtype=layer.dtype, runtime=runtime,
        assumptions=(LOGARITHM, ELEMENTARY, FLINT), scope=Scope("integral"), details=details,
        blends=(ProvedBlend(2.0 * (size + approximation), size),),  # at a jump all that both sides say
    )  # fmt: skip


def layer_measure(plane: Plane, low: Array, high: Array, steep: float, beyond: int, drift: float, p: float) -> float:
    """A bound of the integral over the box of min(1, C e^{-2 lam |h| + 2 d})^p."""
    across = max(abs(float(c)) * float(w) for c, w in zip(plane[:-1], high - low, strict=True)) * (1 - 1e-12)
    volume = float(np.prod(high - low)) * (1 + 1e-12)
    return volume * (2.0 * drift + math.log(beyond) + 1.0 / p) / (steep * across) * (1 + 1e-12)
