"""The program of a stack's kernel: nodes in order, each one or two affine rows and a function, in one dtype."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from maxaffine.runtime.gpu.clustered import Clustered
from maxaffine.runtime.gpu.tables import Polynomials

HEAD, ROOT, PRODUCT, SQUARE, ABSOLUTE, POSITIVE, LENGTH = range(7)

Form = Polynomials | Clustered


@dataclass(frozen=True)
class Row:
    """c0 + sum_i c_i v_i with numbers of the dtype; v are the inputs, then the nodes."""

    constant: float
    indices: tuple[int, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True)
class Step:
    """A node: what computes it, its rows, and of a head which one and powers of two about it; of heads and roots their box."""

    kind: int
    rows: tuple[Row, ...]
    head: int = 0
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    scales: tuple[int, ...] = ()
    lift: int = 0


@dataclass(frozen=True)
class StackProgram:
    """Steps, output, forms of the heads, box, the dtype that it computes in, and what it is off the formula by at most."""

    steps: tuple[Step, ...]
    result: Row
    forms: Mapping[int, Form]
    low: tuple[float, ...]
    high: tuple[float, ...]
    dtype: str
    bound: float
    parts: Mapping[str, float]

    @property
    def dimension(self) -> int:
        """D."""
        return len(self.low)

    @property
    def multiplications(self) -> int:
        """Multiply-adds per query, about."""
        return work(self.steps, self.result, self.forms)

    @property
    def live(self) -> int:
        """The most values that are needed at once."""
        return alive(self.dimension, self.steps, self.result)


def work(steps: Sequence[Step], result: Row, forms: Mapping[int, Form]) -> int:
    """Multiply-adds per query, about."""
    rows = sum(1 + len(row.weights) for step in steps for row in step.rows) + len(result.weights)
    return rows + sum(forms[step.head].multiplications + 8 if step.kind == HEAD else 2 for step in steps)


def alive(inputs: int, steps: Sequence[Step], result: Row) -> int:
    """The most values that are needed at once, inputs from the beginning on."""
    last = dict.fromkeys(result.indices, len(steps))
    for k in range(len(steps) - 1, -1, -1):
        for row in steps[k].rows:
            for i in row.indices:
                last.setdefault(i, k)
    born = [0 if i < inputs else i - inputs + 1 for i in range(inputs + len(steps))]
    ends = [last.get(i, -1) for i in range(inputs + len(steps))]
    return max((sum(1 for b, e in zip(born, ends, strict=True) if b <= k <= e) for k in range(len(steps) + 1)), default=0)
