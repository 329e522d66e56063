"""Columns of a direct program with how far each may be from what it stands for: every instruction's rounding and error counted.

For numbers a, b of modulus at most A, B that are computed to within d, e, u the unit roundoff:

    a + b       d + e                             |a|, max, min     the larger of d, e, and nothing is rounded
    a b         A e + B d + d e                   sqrt a            min(sqrt d, d / sqrt min a)
    a / b       (d + max|a/b| e) / (min|b| - e)   exp a             max e^a (e^d - 1),   and the series' error
    sin, cos    d, and the series' error          table             L d, and the error of its polynomials

and each rounding adds u times the modulus of what is computed, and the smallest number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64, Dtype, gamma
from maxaffine.proofs.direct_table import Table
from maxaffine.proofs.short_series import ENDS, REACH, series
from maxaffine.runtime import direct as steps
from maxaffine.runtime.direct import Program
from maxaffine.runtime.windowed import LN2_LOW

TWICE = 1.42  # more than exp(log(2)/2 + 2^-9), so that 2^n <= TWICE e^a and e^r <= TWICE


@dataclass(frozen=True)
class Limits:
    """What one arithmetic can hold: largest numbers, arguments of exp, half turns up to which the reduction by pi is trusted.

    `lost` is what underflow takes from an exponential, a wave or a table, and what lies below the deepest exponential.  `logs`
    and `turns_off` are what log 2 and pi, in two parts, miss per turn; `low` the size of the lower part of log 2 and of pi, whose
    products are rounded.
    """

    largest: float
    deepest: float
    widest: float
    lost: float
    turns: float
    logs: float
    turns_off: float
    low_log: float
    low_pi: float
    waves: float  # about what sines and cosines are taken of, at most


LIMITS = {
    "float64": Limits(1e150, -690.0, 690.0, 1e-299, 2.0**18, 2.0**-86, 2.0**-84, LN2_LOW, 2.0**-32, 800_000),
    "float32": Limits(1e18, -80.0, 80.0, 2e-35, 2.0**9, 2.0**-46, 2.0**-45, 2.0**-24, 2.0**-22, 1_500),
}
"""Of float32 the parts are the nearest numbers, and products with them are fused into the differences."""
COSTS = {steps.DIVIDE: 5, steps.ROOT: 7, steps.EXP: 10, steps.WAVE: 14, steps.ATAN: 16, steps.TABLE: 8}
"""In multiply-adds, besides coefficients; 1 of the others."""
PAIRS = (steps.ADD, steps.SUBTRACT, steps.SCALE_ADD, steps.MULTIPLY, steps.DIVIDE, steps.MAXIMUM, steps.MINIMUM, steps.SIGNED)


@dataclass(frozen=True)
class Column:
    """A column of numbers: its place among all, the largest modulus of what it stands for, and how far it may be off."""

    place: int
    size: float
    error: float = 0.0

    @property
    def most(self) -> float:
        """The largest modulus of what is computed."""
        return self.size + self.error


@dataclass
class Columns:
    """A program as it grows, in one arithmetic: the same instruction is made once."""

    format: Dtype = FLOAT64
    rows: list[tuple[int, int, int, tuple[float, ...]]] = field(default_factory=list)
    known: dict[tuple[int, int, int, tuple[float, ...]], int] = field(default_factory=dict)

    @property
    def unit(self) -> float:
        """u, enlarged: the products and sums of this module are rounded as well."""
        return self.format.unit * (1 + 2.0**-40)

    @property
    def limits(self) -> Limits:
        """Of the arithmetic."""
        return LIMITS[self.format.name]

    def number(self, c: float, doubt: float = 0.0) -> tuple[float, float]:
        """A number of the arithmetic next to c, and how far it may be from what c stands for."""
        kept = float(np.dtype(self.format.name).type(c))
        return kept, doubt + abs(kept - c) * (1 + 2.0**-40)

    def put(self, kind: int, size: float, error: float, a: int = 0, b: int = 0, numbers: Sequence[float] = ()) -> Column:
        """The column of an instruction."""
        if not (size + error < self.limits.largest):
            raise Refused(f"numbers of more than {self.limits.largest:.0e}, or none that is known, may appear on the way.")
        row = kind, a, b, tuple(float(c) for c in numbers)
        if row not in self.known:
            self.known[row] = len(self.rows)
            self.rows.append(row)
        return Column(self.known[row], size, error)

    def rounded(self, kind: int, size: float, error: float, a: int, b: int = 0, numbers: Sequence[float] = ()) -> Column:
        """The same, its result rounded once."""
        return self.put(kind, size, error + self.unit * (size + error) + self.format.tiny, a, b, numbers)

    # -- arithmetic

    def load(self, i: int, size: float, error: float) -> Column:
        """Variable number i."""
        return self.put(steps.LOAD, size, error, i)

    def constant(self, c: float, error: float) -> Column:
        """A number, off by so much."""
        c, error = self.number(c, error)
        return self.put(steps.CONSTANT, abs(c), error, numbers=(c,))

    def scaled(self, a: Column, c: float, doubt: float) -> Column:
        """c a, c known to within `doubt`."""
        c, doubt = self.number(c, doubt)
        error = abs(c) * a.error + doubt * a.most
        kept = self.put if math.frexp(abs(c))[0] == 0.5 and abs(c) >= 1.0 else self.rounded  # powers of two are exact
        return kept(steps.SCALE, abs(c) * a.size, error, a.place, numbers=(c,))

    def shifted(self, a: Column, c: float, doubt: float) -> Column:
        """a + c."""
        c, doubt = self.number(c, doubt)
        return self.rounded(steps.SHIFT, a.size + abs(c), a.error + doubt, a.place, numbers=(c,))

    def added(self, a: Column, b: Column, c: float = 1.0, doubt: float = 0.0) -> Column:
        """a + c b."""
        c, doubt = self.number(c, doubt)
        size, error = a.size + abs(c) * b.size, a.error + abs(c) * b.error + doubt * b.most
        if c in (1.0, -1.0) and doubt == 0.0:
            return self.rounded(steps.ADD if c == 1.0 else steps.SUBTRACT, size, error, a.place, b.place)
        error += self.unit * (abs(c) + doubt) * b.most + self.format.tiny  # of the product
        return self.rounded(steps.SCALE_ADD, size, error, b.place, a.place, (c,))

    def multiplied(self, a: Column, b: Column) -> Column:
        """a b."""
        error = a.size * b.error + b.size * a.error + a.error * b.error
        return self.rounded(steps.MULTIPLY, a.size * b.size, error, a.place, b.place)

    def power(self, a: Column, n: int) -> Column:
        """a^n, n >= 1, by squares."""
        found, square = None, a
        while True:
            if n & 1:
                found = square if found is None else self.multiplied(found, square)
            n >>= 1
            if n == 0:
                assert found is not None
                return found
            square = self.multiplied(square, square)

    def divided(self, a: Column, b: Column, least: float, size: float) -> Column:
        """a / b, |b| >= least, |a / b| <= size."""
        if not least - b.error > 0.0:
            raise Refused("a denominator may reach 0 where it is computed.")
        error = (a.error + size * b.error) / (least - b.error) * (1 + 8 * self.unit)
        return self.rounded(steps.DIVIDE, size, error, a.place, b.place)

    def root(self, a: Column, least: float, size: float) -> Column:
        """sqrt a, a >= least >= 0."""
        error = math.sqrt(a.error) * (1 + 4 * self.unit)
        if least > 0.0:
            error = min(error, a.error / math.sqrt(least) * (1 + 8 * self.unit))
        return self.rounded(steps.ROOT, size, error, a.place)

    def absolute(self, a: Column) -> Column:
        """|a|."""
        return self.put(steps.ABSOLUTE, a.size, a.error, a.place)

    def extreme(self, a: Column, b: Column, larger: bool) -> Column:
        """max(a, b) or min(a, b)."""
        return self.put(steps.MAXIMUM if larger else steps.MINIMUM, max(a.size, b.size), max(a.error, b.error), a.place, b.place)

    # -- short polynomials

    def exponential(self, a: Column, high: float, allowed: float) -> Column:
        """e^a, a <= high, its series within `allowed`."""
        if not high + a.error <= self.limits.widest:
            raise Refused(f"an exponential of more than {self.limits.widest:.0f} appears.")
        size = math.exp(max(high, self.limits.deepest)) * (1 + 1e-12)
        most = size * math.exp(min(a.error, 1.0)) * TWICE  # of 2^n
        coefficients, off = _series("exp", allowed / most, self.format.name)
        turns = (max(abs(high), -self.limits.deepest) + a.error + 1.0) * 1.4427  # |n| <= turns
        reach = float(ENDS["exp"][1])
        # r: n log 2 in two parts, its low one rounded, two subtractions, and log 2 to within 2^-86
        moved = 4.0 * self.unit * (reach + turns * self.limits.low_log) + turns * self.limits.logs
        summed = sum(abs(c) * reach**k for k, c in enumerate(coefficients))
        here = off + gamma(2 * len(coefficients) + 2, self.unit) * summed + TWICE * moved
        more = math.expm1(a.error) * size if a.error < 1.0 else math.inf
        error = (here * most + more) * (1 + 1e-12) + self.limits.lost
        return self.put(steps.EXP, size, error, a.place, numbers=(self.limits.deepest, *_filled(steps.EXP, coefficients)))

    def wave(self, a: Column, cosine: bool, allowed: float) -> Column:
        """sin a or cos a, their series within `allowed`."""
        if not a.most * 0.32 + 1.0 < self.limits.turns:
            raise Refused(f"a sine or cosine of more than {self.limits.waves:,.0f} appears.")
        coefficients, off = _series("sin", allowed, self.format.name)
        turns, reach, top = a.most * 0.3184 + 1.0, float(REACH["sin"]), float(ENDS["sin"][1])
        moved = 4.0 * self.unit * (reach + turns * self.limits.low_pi) + turns * self.limits.turns_off  # of r, as above
        summed = reach * (1.0 + sum(abs(c) * top ** (k + 1) for k, c in enumerate(coefficients)))
        here = off + gamma(3 * len(coefficients) + 8, self.unit) * summed + moved
        before = (0.0, 0.5, 1.0) if cosine else (0.5, 0.0, 0.0)
        numbers = (*before, *_filled(steps.WAVE, coefficients))
        return self.put(steps.WAVE, 1.0, (here + a.error) * (1 + 1e-12) + self.limits.lost, a.place, numbers=numbers)

    def arctangent(self, a: Column, allowed: float) -> Column:
        """atan a, its series within `allowed`."""
        coefficients, off = _series("atan", allowed, self.format.name)
        summed = 1.0 + sum(abs(c) for c in coefficients)
        here = off + gamma(3 * len(coefficients) + 10, self.unit) * summed + 8.0 * self.unit  # of 1/|a|, pi/2 and the difference
        error = (here + a.error) * (1 + 1e-12) + self.limits.lost
        return self.put(steps.ATAN, 1.5708, error, a.place, numbers=coefficients[::-1])

    def tangent(self, a: Column, allowed: float) -> Column:
        """tanh a = (1 - t)/(1 + t) with the sign of a, t = exp(-2|a|): for steep ones, which tables do not serve."""
        t = self.exponential(self.scaled(self.absolute(a), -2.0, 0.0), 0.0, allowed / 2.0)
        above, below = self.shifted(self.scaled(t, -1.0, 0.0), 1.0, 0.0), self.shifted(t, 1.0, 0.0)
        found = self.divided(replace(above, size=1.0), below, 1.0, 1.0)
        # where |a| is below its error its sign may be wrong: tanh is not larger there
        return self.put(steps.SIGNED, 1.0, found.error + 2.0 * a.error, found.place, a.place)

    def tabled(self, a: Column, made: Table) -> Column:
        """A function of a by the polynomials of a table."""
        if self.format is not FLOAT64:
            raise Refused(f"tables have no form in {self.format.name}.")
        error = (made.error + made.slope * a.error) * (1 + 1e-12) + self.limits.lost
        return self.put(steps.TABLE, made.size, error, a.place, numbers=made.numbers)

    # -- the program

    def listed(self, outputs: Sequence[int]) -> tuple[list[tuple[int, int, int, tuple[float, ...]]], list[int]]:
        """The instructions that the outputs need, each with a column of its own, and where the outputs stand."""
        needed = set(outputs)
        for place in range(len(self.rows) - 1, -1, -1):
            if place in needed:
                needed.update(self._read(place))
        home = {place: k for k, place in enumerate(sorted(needed))}
        rows = []
        for place in sorted(needed):
            kind, a, b, own = self.rows[place]
            read = self._read(place)
            rows.append((kind, home[read[0]] if read else a, home[read[-1]] if read else b, own))
        return rows, [home[place] for place in outputs]

    def program(self, outputs: Sequence[int]) -> Program:
        """The instructions that the outputs need, in columns that are used again once nothing more reads them."""
        needed, last = set(outputs), dict.fromkeys(outputs, len(self.rows))
        for place in range(len(self.rows) - 1, -1, -1):
            if place in needed:
                for a in self._read(place):
                    needed.add(a)
                    last.setdefault(a, place)
        home: dict[int, int] = {}
        free: list[int] = []
        rows: list[tuple[int, ...]] = []
        numbers: list[float] = []
        columns, work = 0, 4
        for place in sorted(needed):
            kind, a, _, own = self.rows[place]
            if not free:
                free.append(columns)
                columns += 1
            home[place] = free.pop()
            read = self._read(place)
            first, second = (home[read[0]], home[read[-1]]) if read else (a, 0)
            rows.append((kind, home[place], first, second, len(numbers), len(own)))
            numbers += own
            work += COSTS.get(kind, 1) + (0 if kind == steps.TABLE else len(own))
            free += sorted({home[one] for one in read if last[one] == place})
        return Program(
            np.array(rows, dtype=np.int64).reshape(-1, 6), np.array([*numbers, 0.0]), np.array([home[k] for k in outputs]),
            columns, work,
        )  # fmt: skip

    def _read(self, place: int) -> tuple[int, ...]:
        """The columns that an instruction reads."""
        kind, a, b, _ = self.rows[place]
        if kind in (steps.LOAD, steps.CONSTANT):
            return ()
        return (a, b) if kind in PAIRS else (a,)


def _filled(kind: int, coefficients: tuple[float, ...]) -> tuple[float, ...]:
    """From the highest degree down, with zeros before them up to a number of coefficients that has a loop of its own."""
    count = next((n for n in steps.COUNTS[kind] if n >= len(coefficients)), len(coefficients))
    return (0.0,) * (count - len(coefficients)) + coefficients[::-1]


def _series(name: str, allowed: float, dtype: str) -> tuple[tuple[float, ...], float]:
    """A series within what is allowed, or the best that the dtype has."""
    found = series(name, allowed, dtype) or series(name, None, dtype)
    assert found is not None
    return found


def smaller(column: Column, size: float) -> Column:
    """The column with a smaller bound of its modulus, where there is one."""
    return replace(column, size=min(column.size, size))
