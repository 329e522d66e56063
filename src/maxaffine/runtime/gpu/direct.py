"""The direct form of a target for the Triton kernel: its instructions, each with a column of its own, in one dtype.

The form and its bound come from proofs/direct.py; here stand the numbers that the kernel's reductions take besides.
"""

from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.runtime.direct import ATAN, EXP, HALF_PI, TABLE, WAVE
from maxaffine.runtime.gpu.tables import Numbers

LOG2, PI = "0.693147180559945309417232121458176568", "3.14159265358979323846264338327950288"
MOST = 4000  # instructions that the code may be written out to

Row = tuple[int, int, int, tuple[float, ...]]  # kind, columns a and b, numbers


@dataclass(frozen=True)
class DirectProgram:
    """Rows of the form, the columns that come out, the box, and what the kernel differs from the target by at most."""

    rows: tuple[Row, ...]
    outputs: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    dtype: str
    bound: float

    @property
    def dimension(self) -> int:
        """D."""
        return len(self.low)

    @property
    def multiplications(self) -> int:
        """Instructions and coefficients per query."""
        return sum(1 + len(row[3]) for row in self.rows)

    def constants(self) -> dict[str, Numbers]:
        """What the kernel is compiled for."""
        form: list[float] = []
        numbers: list[float] = []
        for kind, a, b, own in self.rows:
            before = {EXP: 1, WAVE: 3}.get(kind, 0)
            lead = next((k for k in range(before, len(own)) if own[k]), len(own) - 1) if kind in (EXP, WAVE, ATAN) else before
            more = [*_reduction(kind, self.dtype), *own[:before], *own[lead:]]  # zeros in front only fill up other kernels' loops
            form += [kind, a, b, len(numbers), len(more)]
            numbers += more
        return {"FORM": Numbers(form), "NUMBERS": Numbers(numbers), "BOX": Numbers(inner_box(self.low, self.high, self.dtype)),
                "OUTPUTS": Numbers(self.outputs)}  # fmt: skip


def direct_program(rows: list[Row], outputs: list[int], low: Array, high: Array, dtype: str, bound: float) -> DirectProgram:
    """The program; Refused where it has tables, or would be written out too long."""
    if any(row[0] == TABLE for row in rows):
        raise Refused("tables have no form on a GPU.")
    sizes: list[int] = []
    for _, a, b, own in rows:
        inner = [sizes[k] for k in {a, b} if k < len(sizes)]
        sizes.append(1 + len(own) // 4 + sum(inner))
    if sum(sizes[k] for k in outputs) > MOST:
        raise Refused("its instructions are read too often to be written out.")
    return DirectProgram(tuple(rows), tuple(outputs), tuple(low.tolist()), tuple(high.tolist()), dtype, bound)


def _reduction(kind: int, dtype: str) -> list[float]:
    """The inverse of the period and the period in two parts; pi/2."""
    narrow = np.dtype(dtype).type
    if kind == ATAN:
        return [float(narrow(HALF_PI))]
    if kind not in (EXP, WAVE):
        return []
    whole = np.longdouble(LOG2 if kind == EXP else PI)
    upper = narrow(whole)
    return [float(narrow(1 / whole)), float(upper), float(narrow(whole - np.longdouble(upper)))]


def inner_box(low: tuple[float, ...], high: tuple[float, ...], dtype: str) -> list[float]:
    """The largest box of numbers of the dtype within the box."""
    narrow, found = np.dtype(dtype).type, []
    for one, other in zip(low, high, strict=True):
        least, most = narrow(one), narrow(other)
        found.append(float(least if float(least) >= one else np.nextafter(least, narrow(np.inf))))
        found.append(float(most if float(most) <= other else np.nextafter(most, narrow(-np.inf))))
    return found
