"""What may enter a proof about a target: facts declared by the user, checked against samples, or derived from its expression."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.deadline import OutOfCalls
from maxaffine.core.errors import BadInput, Refused
from maxaffine.target.calls import Calls
from maxaffine.target.contradict import Contradiction, contradicts
from maxaffine.target.declare import (
    Analytic,
    ConcaveModulus,
    Derivatives,
    Fact,
    IntegralModulus,
    Modulus,
    TotalVariation,
    check_lipschitz,
)
from maxaffine.target.derive import derive_euclidean, derive_lipschitz, derive_range, is_finite_on
from maxaffine.target.target import Target


@dataclass(frozen=True)
class Evidence:
    """Facts about f on the box, each with its origin ("declared" or "derived"); None where nothing is known."""

    lipschitz: Array | None = None  # (D,): |f(x) - f(y)| <= sum_i L_i |x_i - y_i|
    euclidean: float | None = None  # |f(x) - f(y)| <= L |x - y|_2
    modulus: Callable[[float], float] | None = None  # |f(x) - f(y)| <= w(max_i |x_i - y_i|)
    concave_modulus: Callable[[float], float] | None = None  # |f(x) - f(y)| <= w(sum_i |x_i - y_i|), w concave
    integral_modulus: Callable[[Array], float] | None = None  # sup_{|z_i| <= r_i} ||f(.+z) - f||_p <= w(r)
    variation: Array | None = None  # (D,): ||f(.+s e_i) - f||_1 <= s V_i
    cell_means: Callable[[Array, Array], Array] | None = None  # exact means of f over boxes (low, high), declared
    ellipses: tuple[Array, float] | None = None  # radii and bound of |f| on Bernstein ellipses about every side
    derivatives: tuple[int, Array] | None = None  # order q and bounds (D,) of |d^q f / dx_i^q|
    spread: float | None = None  # sup f - inf f, the largest over the output entries
    extent: Array | None = None  # (2, K): a lower and an upper bound of every output entry
    origin: dict[str, str] | None = None  # fact name -> "declared: ..." or "derived: ..."
    per_output: Array | None = None  # (K, D): Lipschitz constants of every output entry apart
    why_not: str = ""  # why the Lipschitz constants are not known, as part of a sentence

    def source(self, name: str) -> str:
        """Where that fact comes from, in words."""
        return (self.origin or {}).get(name, "not known")

    def reach(self, widths: Array) -> float:
        """max over the output entries of sum_i L_i widths_i: how far f can go over a cell."""
        rows = self.lipschitz if self.per_output is None else self.per_output
        assert rows is not None
        return float(np.max(rows @ widths))

    def record(self) -> dict[str, Any]:
        """Declared constants as plain numbers, which a saved file can carry to the checker."""
        facts: dict[str, Any] = {}
        if self.lipschitz is not None and self.source("lipschitz").startswith("declared"):
            facts["lipschitz"] = [float(value) for value in self.lipschitz]
        if self.euclidean is not None and self.source("euclidean").startswith("declared"):
            facts["euclidean"] = float(self.euclidean)
        return facts

    def range_bound(self, width: Array) -> float:
        """An upper bound on sup f - inf f from whatever is known; infinite where nothing is."""
        bounds = [np.inf]
        if self.spread is not None:
            bounds.append(self.spread)
        if self.lipschitz is not None:
            bounds.append(float(self.lipschitz @ width))
        if self.euclidean is not None:
            bounds.append(self.euclidean * float(np.linalg.norm(width)))
        if self.modulus is not None:
            bounds.append(float(self.modulus(float(width.max()))))
        if self.concave_modulus is not None:
            bounds.append(float(self.concave_modulus(float(width.sum()))))
        return min(bounds)


@dataclass(frozen=True)
class Facts:
    """What is declared about a target, and all that may enter a proof, derived from its expression when someone asks."""

    target: Target
    declared: Evidence

    @cached_property
    def evidence(self) -> Evidence:
        """The declared facts with range and Lipschitz constants, which take seconds where slopes are hard to enclose."""
        return self.declared if self.target.expression is None else _derived(self.target, self.declared)


def gather(
    target: Target, lipschitz: Any, modulus: Any, analytic: Any, norm: float = math.inf, derivatives: Any = None
) -> Facts:
    """The facts that may enter a proof; Refused where the expression is not finite on the box."""
    known: dict[str, Any] = {}
    origin: dict[str, str] = {}

    def note(name: str, value: Any, source: str) -> None:
        known[name], origin[name] = value, source

    D = target.box.dimension
    fact = None if lipschitz is None else check_lipschitz(lipschitz, D)
    if fact is not None:
        note("euclidean" if np.ndim(fact.value) == 0 else "lipschitz", fact.value, f"declared: {fact.value}")
    declared: Modulus | None = None
    if isinstance(modulus, TotalVariation):
        note("variation", modulus.per_axis(D), f"declared: {modulus.per_axis(D)}")
    elif isinstance(modulus, IntegralModulus):
        if modulus.p != norm:
            raise BadInput(f"`modulus` is declared for L_{modulus.p:g} and the error is asked for in another norm ({norm:g}).")
        note("integral_modulus", modulus, f"declared for L_{modulus.p:g}")
        known["cell_means"] = modulus.means
    elif modulus is not None:
        declared = modulus if isinstance(modulus, Modulus) else Modulus(modulus)
        note("concave_modulus" if isinstance(declared, ConcaveModulus) else "modulus", declared, "declared")
    if analytic is not None:
        if not isinstance(analytic, Analytic):
            raise BadInput(f"`analytic` (={analytic!r}) must be ma.Analytic(radii, bound).")
        known["ellipses"] = (analytic.per_axis(D), float(analytic.bound))
        if "lipschitz" not in known:
            note("lipschitz", _from_ellipses(analytic, target), "declared: analytic on ellipses")
    if fact is not None or declared is not None:
        found = _refuted(target, fact, declared)
        if found is not None:
            argument = "lipschitz" if fact is not None else "modulus"
            raise BadInput(f"`{argument}` is contradicted by the target: {found.sentence}. Declare a larger one.")
    if derivatives is not None:
        if not isinstance(derivatives, Derivatives):
            raise BadInput(f"`derivatives` (={derivatives!r}) must be ma.Derivatives(order, bound).")
        note("derivatives", (int(derivatives.order), derivatives.per_axis(D)), f"declared: order {derivatives.order}")
    finite = None if target.expression is None else is_finite_on(target.expression, target.box)
    if finite is not None and not finite:
        raise Refused(f"{finite.why} Change the box or the expression.")
    return Facts(target, Evidence(**known, origin=origin))


def _refuted(target: Target, fact: Fact | None, modulus: Modulus | None) -> Contradiction | None:
    """Two points that refute what was declared; of the calls allowed at most a quarter is spent on it."""
    calls = target.calls if isinstance(target.calls, Calls) else None
    if calls is None or calls.left is None or calls.most is None:
        return contradicts(target.values, target.box, lipschitz=fact, modulus=modulus)
    calls.held = calls.most - calls.count - min(calls.left, calls.most // 4)
    try:
        return contradicts(target.values, target.box, lipschitz=fact, modulus=modulus, count=max(4, calls.most // 256))
    except OutOfCalls:
        return None
    finally:
        calls.held, calls.denied = 0, False


def _from_ellipses(analytic: Analytic, target: Target) -> Array:
    """Cauchy's estimate: |df/dx_i| <= M/d, d = (w_i/2)((r + 1/r)/2 - 1) the distance from the side to the ellipse."""
    radii = analytic.per_axis(target.box.dimension)
    distance = target.box.width / 2.0 * ((radii + 1.0 / radii) / 2.0 - 1.0)
    return np.asarray(analytic.bound / distance * (1 + 1e-12))


def _derived(target: Target, declared: Evidence) -> Evidence:
    """The declared facts and what the expression shows."""
    expression, box = target.expression, target.box
    assert expression is not None
    known: dict[str, Any] = {"lipschitz": declared.lipschitz}
    origin = dict(declared.origin or {})
    spread = derive_range(expression, box)
    if spread.finite:
        known["extent"] = np.asarray(spread.value)
        known["spread"] = float((spread.value[1] - spread.value[0]).max()) * (1 + 1e-14)
        origin["range"] = f"derived: {spread.how}"
    if declared.lipschitz is None:
        fact = derive_lipschitz(expression, box)
        if fact.finite:
            known["lipschitz"], origin["lipschitz"] = np.asarray(fact.value), f"derived: {fact.how}"
            known["per_output"] = fact.per_output
        else:
            known["why_not"] = fact.how
    if declared.euclidean is None and box.dimension > 1 and known["lipschitz"] is not None:
        fact = derive_euclidean(expression, box)
        if fact.finite:
            known["euclidean"], origin["euclidean"] = float(fact.value), f"derived: {fact.how}"
    return replace(declared, **known, origin=origin)
