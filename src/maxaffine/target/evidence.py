"""What may enter a proof about a target: facts declared by the user or derived from its expression."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


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

    def declared(self) -> dict[str, Any]:
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
