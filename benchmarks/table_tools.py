"""What the tables share: a table that counts its violations, the judge of literal matrices, face-biased errors."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from maxaffine.layer.layer import Layer
from maxaffine.layer.records import CrossMatrices, SelfMatrices
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.observe import face_biased, pointwise
from maxaffine.runtime import chooser
from maxaffine.target.target import Target

Array = NDArray[np.float64]

FULL_SOFTMAX = 1_500  # tokens up to which the whole m x m softmax is formed
AGREE = 1e-12  # literal matrices against the fast runtimes, or the certificate's rounding part where that is larger


@dataclass
class Table:
    """Rows of text, and what was claimed and found wrong: a violation makes the whole run fail."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    checks: int = 0
    violations: int = 0

    def claim(self, small: float, large: float) -> None:
        """Claim small <= large; a NaN is a violation too."""
        self.checks += 1
        self.violations += not small <= large

    def add(self, *cells: object) -> None:
        """One row; numbers are shown to four digits."""
        self.rows.append(tuple(shown(cell) for cell in cells))

    def lines(self) -> list[str]:
        """The table in Markdown."""
        out = [f"## {self.title}", "", "| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns)]
        out += ["| " + " | ".join(row) + " |" for row in self.rows]
        out += ["", *(f"{note}\n" for note in self.notes), f"claims checked: {self.checks}, violations: {self.violations}", ""]
        return out


def shown(cell: object) -> str:
    """A cell as text: integers with separators, other numbers to four digits."""
    if isinstance(cell, (int, np.integer)):
        return f"{cell:,}"
    if isinstance(cell, (float, np.floating)):
        return f"{cell:.4g}" if abs(cell) < 1e4 else f"{cell:,.0f}"
    return str(cell)


def magnitude(deviation: float) -> str:
    """A deviation as the power of ten above it: the digits below that depend on the machine's BLAS."""
    return "0" if deviation == 0.0 else f"<= 1e{math.ceil(math.log10(deviation)):+03d}"


def sup_error(layer: Layer, target: Target, points: int, seed: int) -> float:
    """The largest error over face-biased points, by the runtime that the chooser picks."""
    rng = np.random.default_rng(seed)
    worst = 0.0
    for start in range(0, points, 50_000):
        x = face_biased(layer, min(50_000, points - start), rng)
        worst = max(worst, float(pointwise(lambda p: chooser.evaluate(layer, p), target, x).max()))
    return worst


def as_inputs(layer: Layer, x: Array) -> list[Array]:
    """A point (D,) as the input matrices (d, n) of the layer, stacked columns undone."""
    parts, first = [], 0
    for d, n in layer.inputs:
        parts.append(x[first : first + d * n].reshape(n, d).T)
        first += d * n
    return parts


def literal_deviation(weights: SelfMatrices | CrossMatrices, layer: Layer, x: Array) -> float:
    """max |definition applied to the literal matrices - every fast runtime| over points (B, D)."""
    fast = [chooser.evaluate(layer, x, runtime) for runtime in chooser.available(layer)]
    worst = 0.0
    for i, point in enumerate(x):
        inputs = as_inputs(layer, point)
        if isinstance(weights, SelfMatrices):
            literal = weights(inputs[0], full=layer.tokens <= FULL_SOFTMAX)
        else:
            literal = weights(*inputs)
        worst = max([worst, *(float(np.abs(literal - values[i]).max()) for values in fast)])
    return worst


def agreement(certificate: Certificate) -> float:
    """How far literal matrices and runtimes may differ: 1e-12, or the certificate's rounding part."""
    return max(AGREE, certificate.parts["rounding"])
