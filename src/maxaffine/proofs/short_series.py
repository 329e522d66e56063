"""Short polynomials for exp, sin and atan behind a reduction of the argument, each with an error proved in rational arithmetic.

    exp(r)         = P(r)                |r| <= log(2)/2 + 2^-9
    sin(r)         = r (1 + s Q(s))      |r| <= pi/2 + 2^-9, s = r^2
    atan(w)        = w (1 + s Q(s))      0 <= w <= 1, s = w^2

Let g(s) be sin(r)/r or atan(w)/w, or exp itself, and g = T + rest, T a polynomial of rational coefficients, |rest| <= tail:
Taylor's for exp and sin(r)/r; for atan(w)/w Chebyshev's, whose coefficients are 2 (-1)^k q^{2k+1}/(2k+1), q = sqrt(2) - 1.  P
(or Q) is T (or (T - T(0))/s) cut off in Chebyshev's basis of the interval, its coefficients rounded to the dtype.  T minus
what is stored is turned into that basis again, exactly, and |T_k| <= 1 gives

    sup |g - P|  <=  sum_k |c_k(T - P)| + tail,       times the largest |r| for sin.

Nothing is sampled, and nothing is rounded but the last number, which is rounded up.
"""

import math
from fractions import Fraction
from functools import lru_cache

from maxaffine.core.errors import BadInput
from maxaffine.core.rounding import dtype_of, numpy_dtype

MORE = Fraction(1, 512)
ENDS = {
    "exp": (-Fraction(34_658, 100_000) - MORE, Fraction(34_658, 100_000) + MORE),
    "sin": (Fraction(0), (Fraction(15_708, 10_000) + MORE) ** 2),
    "atan": (Fraction(0), Fraction(1)),
}
"""The interval of r, or of s."""

REACH = {"exp": Fraction(1), "sin": Fraction(15_708, 10_000) + MORE, "atan": Fraction(1)}  # the factor before g
TERMS = {"exp": 26, "sin": 22, "atan": 34}
MOST = 24  # coefficients

Polynomial = list[Fraction]  # from the constant term up


def series(name: str, allowed: float | None, dtype: str = "float64") -> tuple[tuple[float, ...], float] | None:
    """The fewest coefficients, constant first, numbers of the dtype, and their error, at most `allowed`; None if none do.

    Without `allowed`: what the dtype is worth, a quarter of its unit or as near as its numbers come.
    """
    found = (of_length(name, count, dtype) for count in range(1, MOST + 1))
    if allowed is not None:
        return next((one for one in found if one[1] <= allowed), None)
    least = dtype_of(dtype).unit / 4.0
    kept = list(found)
    best = max(min(one[1] for one in kept) * 1.1, least)
    return next(one for one in kept if one[1] <= best)


@lru_cache(maxsize=1_000)
def of_length(name: str, count: int, dtype: str = "float64") -> tuple[tuple[float, ...], float]:
    """So many coefficients, and a bound of the error of what they stand for."""
    if name not in ENDS:
        raise BadInput(f"`name` (={name!r}) must be one of {', '.join(ENDS)}.")
    low, high = ENDS[name]
    whole, tail, candidates = _basis(name)
    kind = numpy_dtype(dtype_of(dtype).name).type
    stored = [float(kind(float(c))) for c in _powers(candidates[:count], low, high)]
    full = [Fraction(c) for c in (stored if name == "exp" else [1.0, *stored])]
    short = [*_chebyshev(full, low, high), *[Fraction(0)] * (len(whole) - len(full))]
    error = REACH[name] * sum((abs(a - b) for a, b in zip(whole, short, strict=True)), start=tail)
    return tuple(stored), math.nextafter(float(error), math.inf)


@lru_cache(maxsize=10)
def _basis(name: str) -> tuple[Polynomial, Fraction, Polynomial]:
    """T in Chebyshev's basis of the interval, the tail, and what is cut off: T, or (T - T(0))/s, in that basis."""
    powers, tail = _taylor(name)
    cut = powers if name == "exp" else powers[1:]
    return _chebyshev(powers, *ENDS[name]), tail, _chebyshev(cut, *ENDS[name])


def _taylor(name: str) -> tuple[Polynomial, Fraction]:
    """T in powers of its argument, and the tail."""
    N = TERMS[name]
    if name == "exp":
        first = ENDS[name][1] ** N / math.factorial(N)  # the terms after it fall by more than half
        return [Fraction(1, math.factorial(k)) for k in range(N)], 2 * first
    if name == "sin":
        first = ENDS[name][1] ** N / math.factorial(2 * N + 1)
        return [Fraction((-1) ** k, math.factorial(2 * k + 1)) for k in range(N)], 2 * first
    fine = 2**200
    q = Fraction(math.isqrt(2 * fine**2), fine) - 1  # below sqrt(2) - 1 by less than 2^-200
    odd = [Fraction(0)] * (2 * N)
    for k in range(N):
        odd[2 * k + 1] = Fraction(round(2 * (-1) ** k * q ** (2 * k + 1) / (2 * k + 1) * fine), fine)
    # atan(v)/v from atan(v): where odd coefficients are off by d_k each, |sum d_k T_k(v) / v| <= sum k d_k, |T_k(v)/v| being <= k
    lost = sum((Fraction(3, fine) * (2 * k + 1) for k in range(N)), start=Fraction(0))
    above = Fraction(5, 12)  # more than q
    rest = 4 * above ** (2 * N + 1)  # sum over k >= N of 2 q^{2k+1}, whose terms fall by more than half
    return _powers(odd, Fraction(-1), Fraction(1))[1::2], lost + rest


def _moved(powers: Polynomial, low: Fraction, high: Fraction) -> Polynomial:
    """Coefficients in y of sum_k p_k w^k, w = (low + high)/2 + y (high - low)/2."""
    middle, half = (low + high) / 2, (high - low) / 2
    out: Polynomial = []
    for c in reversed(powers):  # Horner's rule
        grown = [Fraction(0)] * (len(out) + 1)
        for k, a in enumerate(out):
            grown[k] += a * middle
            grown[k + 1] += a * half
        grown[0] += c
        out = grown
    return out[: len(powers)]


def _chebyshev(powers: Polynomial, low: Fraction, high: Fraction) -> Polynomial:
    """The coefficients of T_k((2w - low - high)/(high - low))."""
    out: Polynomial = []
    for c in reversed(_moved(powers, low, high)):  # y T_0 = T_1, y T_k = (T_{k-1} + T_{k+1})/2
        grown = [Fraction(0)] * (len(out) + 2)
        for k, a in enumerate(out):
            if k == 0:
                grown[1] += a
            else:
                grown[k - 1] += a / 2
                grown[k + 1] += a / 2
        grown[0] += c
        out = grown
    return out[: len(powers)]


def _powers(chebyshev: Polynomial, low: Fraction, high: Fraction) -> Polynomial:
    """The inverse of `_chebyshev`."""
    before, current = [Fraction(1)], [Fraction(0), Fraction(1)]
    total = [Fraction(0)] * len(chebyshev)
    for k, c in enumerate(chebyshev):
        if k > 1:
            twice = [Fraction(0), *(2 * a for a in current)]
            before, current = current, [a - b for a, b in zip(twice, [*before, *[Fraction(0)] * 2], strict=False)]
        for place, a in enumerate([Fraction(1)] if k == 0 else current):
            total[place] += c * a
    half = (high - low) / 2
    return _moved(total, -(low + high) / (2 * half) - 1 / half, -(low + high) / (2 * half) + 1 / half)
