"""T7: L_1 and L_2 lookups of a discontinuous target: the proved split, and the measured error."""

import math

import numpy as np

import maxaffine as ma
from maxaffine.heads.lookup.build import build_grid
from maxaffine.heads.lookup.plan import GridPlan
from maxaffine.heads.lookup.prove_integral import certify_integral, soft_part
from maxaffine.layer.layer import Layer
from maxaffine.proofs.observe_integral import observe_integral
from maxaffine.runtime import chooser
from maxaffine.target.evidence import Evidence
from maxaffine.target.target import Target
from table_tools import Array, Table

DISCONTINUOUS = "where(x**2 + y**2 < 1, 1, 0) - .7*where(x + .3*y > .4, 1, 0)"
BOX = ma.Box(x=(-2, 2), y=(-2, 2))
QUADRATURE = 1.01  # adaptive quadrature of a jump is good to about a percent here; claims allow for it

# (P, p, values, rho, expected hard, soft, F2, F1, total)
ROWS = (
    (64, 1.0, "median", 200.0, ".1269", ".0050", ".0051", ".377", ".1269"),
    (64, 1.0, "median", 20.0, ".1269", ".0493", ".0539", "", ".1336"),
    (64, 2.0, "mean", 20.0, ".282", ".0874", ".241", "", ".2572"),
    (64, 2.0, "mean", 200.0, "", "", "", "", ""),
    (8, 1.0, "mean", 3.22, "", "", "", "", "1.847"),
    (16, 1.0, "mean", 3.22, "", "", "", "", ""),
    (32, 1.0, "mean", 3.22, "", "", "", "", ""),
    (64, 1.0, "mean", 3.22, "", "", "", "", ".278"),
)


def on_cells(layer: Layer) -> Target:
    """g: the stored value of the cell that holds x."""
    shape = np.asarray(layer.keys.shape)
    values = layer.values.reshape(*shape)

    def nearest(x: Array) -> Array:
        index = np.floor(layer.coordinates(x) + shape / 2.0).astype(int)
        return values[tuple(np.clip(index, 0, shape - 1).T)]

    return Target.of(nearest, BOX)


def measured_norm(layer: Layer, target: Target, p: float, sharp: bool = False) -> float:
    """||layer - target||_p by adaptive quadrature graded towards the faces; sharp: the cell values instead of the layer."""
    cells = on_cells(layer)
    evaluate = cells.values if sharp else (lambda x: chooser.evaluate(layer, x))
    return observe_integral(evaluate, target, layer, p, 0, 40 * sum(layer.keys.shape)).error


def table_7(points: int) -> list[Table]:
    """The split of the L_p error: hard part proved by enclosures, soft part by F1 and F2, both measured."""
    target = Target.of(DISCONTINUOUS, BOX)
    table = Table(
        "T7: 1{x^2+y^2<1} - 0.7 1{x+0.3y>0.4} on [-2, 2]^2",
        ("P", "p", "values", "rho", "hard proved", "hard measured", "F1", "F2", "soft measured", "bound", "total measured"),
    )
    expected = Table(
        "T7, expected figures (hard, soft and total measured)", ("P", "p", "values", "rho", "hard", "soft", "F2", "F1", "total")
    )
    rows = ROWS if points >= 100_000 else ROWS[1:2] + ROWS[4:5]
    for P, p, values, rho, *known in rows:
        layer = build_grid(GridPlan("L_p", (P, P), rho, math.nan, norm=1.0 if values == "median" else 2.0), target, "float64")
        certificate = certify_integral(layer, target, Evidence(), p)
        first, second = soft_part(layer, p)
        hard = measured_norm(layer, target, p, sharp=True)
        soft = measured_norm(layer, on_cells(layer), p)
        total = measured_norm(layer, target, p)
        proved = certificate.parts["approximation"]
        table.claim(hard, proved * QUADRATURE)
        table.claim(soft, min(first, second) * QUADRATURE)
        table.claim(total, certificate.bound)
        table.add(P, f"{p:g}", values, f"{rho:g}", proved, hard, first, second, soft, certificate.bound, total)
        if any(known):
            expected.add(P, f"{p:g}", values, f"{rho:g}", *known)
    table.notes.append(
        "The hard part is proved by enclosures of |f - y|^p on pieces of the cells, a piece that a jump crosses counting with "
        "its full oscillation, refined until upper and lower sums agree to a percent: that is the distance between proved and "
        "measured.  In L_2 averaging across faces helps, so that the total is below the hard part."
    )
    return [table, expected]
