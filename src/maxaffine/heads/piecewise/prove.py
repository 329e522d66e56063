"""The certificate of piecewise affine layers: closed form, for the numbers as they are stored.

Theorem PWA.  Let |v_k - f| <= max s - s_k + delta on the box for every token k.  If the stored scores differ from R s_k (up to a
function common to all tokens) by at most e, and the stored values from v_k by at most eps, then

    |layer - f| <= W0((N-1) e^{2 (e + eta) - 1})/R + delta + eps,

eta the error of computed scores.  Proof: |v'_k - f| <= eps + delta + (S'_a - S'_k + 2 (e + eta))_+/R, a the piece with the
largest exact s, and the lemma of proofs/soft_gap.py.  The constant is attained by N pieces that meet at a point.
"""

import math
from fractions import Fraction

import numpy as np

from maxaffine.core.errors import Refused
from maxaffine.heads.piecewise.plan import PiecewisePlan
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.assumptions import CONSTANTS, LOGARITHM
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.combine import output_rounding
from maxaffine.proofs.literal_form import ProvedBlend
from maxaffine.proofs.soft_gap import soft_gap
from maxaffine.proofs.two_level import GroupErrors

THEOREM = "PWA: |v_k - f| <= max s - s_k for every token gives error <= W0((N-1)/e)/R"


def certify_piecewise(layer: GroupedLayer, plan: PiecewisePlan, runtime: str = "two-level") -> Certificate:
    """The bound for the two-level runtime."""
    (group,) = layer.cluster_groups()
    scores, values = stored_errors(layer, group, plan)
    kappa = 1.0 / plan.sharpness * (1 + 2.0**-50)
    blend = kappa * soft_gap(plan.cells)
    size = _size(plan) + blend + 2.0 * kappa * scores + values  # of the layer, however far it is from the target
    rounded = GroupErrors.of(layer, group).mixed(kappa, size, scores)
    if not math.isfinite(rounded):
        raise Refused(f"its logits overflow in {layer.dtype}.")
    exact = plan.pieces.error
    lagging = kappa if plan.cells > 1 else 0.0  # one token has all of the weight, whatever its score
    parts = {
        "approximation": _up(exact) if exact else 0.0,
        "leakage": blend,
        "rounding": values + rounded + output_rounding(layer, size),
        "target_rounding": 0.0,
    }
    return Certificate.proved(
        math.inf, parts, argument="PWA", theorem=THEOREM, dtype=layer.dtype, runtime=runtime,
        assumptions=(LOGARITHM, CONSTANTS) if exact else (LOGARITHM,),
        details={"tokens": float(plan.cells), "sharpness": plan.sharpness},
        blends=(ProvedBlend(blend + 2.0 * kappa * scores + values + (_up(exact) if exact else 0.0), size, kappa=lagging),),
    )  # fmt: skip


def stored_errors(layer: GroupedLayer, group: ClusterGroup, plan: PiecewisePlan) -> tuple[float, float]:
    """(e, eps): how far stored scores and values are from the exact ones on the box, in exact arithmetic, rounded up."""
    used, half, middle = plan.used, plan.pieces.half, plan.pieces.middle
    if not np.array_equal(group.matrix, np.eye(layer.dimension)[list(used)]):
        raise Refused("its coordinates are not those of its plan.")
    shift = [m - Fraction(float(c)) for m, c in zip(middle, layer.centre, strict=True)]

    def away(slopes: np.ndarray, constant: float, piece: tuple[Fraction, ...]) -> Fraction:
        """sup |slopes . z + constant - piece(u)|, z = half u + middle - centre."""
        total = Fraction(float(constant)) - piece[-1]
        whole = Fraction(0)
        given = {i: Fraction(float(a)) for i, a in zip(used, slopes, strict=True)}
        for i, h in enumerate(half):
            a = given.get(i, Fraction(0))
            total += a * shift[i]
            whole += abs(a * h - piece[i])
        return whole + abs(total)

    scores = values = Fraction(0)
    rows = zip(group.site_slopes, group.site_offsets, group.clusters, plan.logits(), plan.pieces.tokens, strict=True)
    for slopes, offset, cluster, logit, token in rows:
        plain = not cluster.origin.any() and np.all(cluster.radius == 1.0) and cluster.count == 1
        if not plain or any(float(axis.slopes[0]) or float(axis.offsets[0]) for axis in cluster.axes):
            raise Refused("its clusters are not single tokens in the layer's coordinates.")
        scores = max(scores, away(slopes.astype(np.float64), float(offset), logit))
        c = cluster.values.astype(np.float64).ravel()
        G = np.zeros((len(c), len(used))) if cluster.slopes is None else cluster.slopes.astype(np.float64).reshape(len(c), -1)
        for k, piece in enumerate(token.values):
            values = max(values, away(G[k], float(c[k]), piece))
    return _up(scores), _up(values)


def _size(plan: PiecewisePlan) -> float:
    """A bound of |f| over the box."""
    rows = [piece for token in plan.pieces.tokens for piece in token.values]
    return _up(max(sum((abs(c) for c in row), Fraction(0)) for row in rows) + plan.pieces.error)


def _up(value: Fraction) -> float:
    return float(value) * (1 + 2.0**-50) + 2.0**-1074
