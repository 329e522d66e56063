"""Gather the evidence for a target: what the user declared, checked against samples; what its expression yields."""

import math
from typing import Any

import numpy as np

from maxaffine.core.errors import BadInput, Refused
from maxaffine.target.evidence import Evidence
from maxaffine.target.facts import (
    Analytic,
    ConcaveModulus,
    Derivatives,
    Fact,
    IntegralModulus,
    Modulus,
    TotalVariation,
    check_lipschitz,
    contradicts,
    derive_euclidean,
    derive_lipschitz,
    derive_range,
    is_finite_on,
)
from maxaffine.target.target import Target


def gather(
    target: Target, lipschitz: Any, modulus: Any, analytic: Any, norm: float = math.inf, derivatives: Any = None
) -> Evidence:
    """All facts that may enter a proof; Refused where the expression is not finite on the box."""
    known: dict[str, Any] = {}
    origin: dict[str, str] = {}
    _declare(target, lipschitz, modulus, analytic, norm, known, origin)
    if derivatives is not None:
        if not isinstance(derivatives, Derivatives):
            raise BadInput(f"`derivatives` (={derivatives!r}) must be ma.Derivatives(order, bound).")
        known["derivatives"] = (int(derivatives.order), derivatives.per_axis(target.box.dimension))
        origin["derivatives"] = f"declared: order {derivatives.order}"
    if target.expression is not None:
        _derive(target, known, origin)
    return Evidence(**known, origin=origin)


def _declare(
    target: Target, lipschitz: Any, modulus: Any, analytic: Any, norm: float, known: dict[str, Any], origin: dict[str, str]
) -> None:
    D = target.box.dimension
    fact: Fact | None = None
    if lipschitz is not None:
        fact = check_lipschitz(lipschitz, D)
        name = "euclidean" if np.ndim(fact.value) == 0 else "lipschitz"
        known[name], origin[name] = fact.value, f"declared: {fact.value}"
    declared: Modulus | ConcaveModulus | None = None
    if isinstance(modulus, ConcaveModulus):
        declared = modulus
        known["concave_modulus"], origin["concave_modulus"] = modulus, "declared"
    elif isinstance(modulus, TotalVariation):
        known["variation"], origin["variation"] = modulus.per_axis(D), f"declared: {modulus.per_axis(D)}"
    elif isinstance(modulus, IntegralModulus):
        if modulus.p != norm:
            raise BadInput(f"`modulus` is declared for L_{modulus.p:g} and the error is asked for in another norm ({norm:g}).")
        known["integral_modulus"], origin["integral_modulus"] = modulus, f"declared for L_{modulus.p:g}"
        known["cell_means"] = modulus.means
    elif modulus is not None:
        declared = modulus if isinstance(modulus, Modulus) else Modulus(modulus)
        known["modulus"], origin["modulus"] = declared, "declared"
    if analytic is not None:
        if not isinstance(analytic, Analytic):
            raise BadInput(f"`analytic` (={analytic!r}) must be ma.Analytic(radii, bound).")
        known["ellipses"] = (analytic.per_axis(D), float(analytic.bound))
        if "lipschitz" not in known:
            known["lipschitz"], origin["lipschitz"] = _from_ellipses(analytic, target), "declared: analytic on ellipses"
    if fact is not None or declared is not None:
        found = contradicts(target.values, target.box, lipschitz=fact, modulus=declared)
        if found is not None:
            argument = "lipschitz" if fact is not None else "modulus"
            raise BadInput(f"`{argument}` is contradicted by the target: {found.sentence}. Declare a larger one.")


def _from_ellipses(analytic: Analytic, target: Target) -> np.ndarray:
    """Cauchy's estimate: |df/dx_i| <= M/d, d = (w_i/2)((r + 1/r)/2 - 1) the distance from the side to the ellipse."""
    radii = analytic.per_axis(target.box.dimension)
    distance = target.box.width / 2.0 * ((radii + 1.0 / radii) / 2.0 - 1.0)
    return np.asarray(analytic.bound / distance * (1 + 1e-12))


def _derive(target: Target, known: dict[str, Any], origin: dict[str, str]) -> None:
    expression, box = target.expression, target.box
    assert expression is not None
    finite = is_finite_on(expression, box)
    if not finite:
        raise Refused(f"{finite.why} Change the box or the expression.")
    spread = derive_range(expression, box)
    if spread.finite:
        known["extent"] = np.asarray(spread.value)
        known["spread"] = float((spread.value[1] - spread.value[0]).max()) * (1 + 1e-14)
        origin["range"] = f"derived: {spread.how}"
    if "lipschitz" not in known:
        fact = derive_lipschitz(expression, box)
        if fact.finite:
            known["lipschitz"], origin["lipschitz"] = np.asarray(fact.value), f"derived: {fact.how}"
            known["per_output"] = fact.per_output
        else:
            known["why_not"] = fact.how
    if "euclidean" not in known and box.dimension > 1 and known.get("lipschitz") is not None:
        fact = derive_euclidean(expression, box)
        if fact.finite and math.isfinite(fact.value):
            known["euclidean"], origin["euclidean"] = float(fact.value), f"derived: {fact.how}"
