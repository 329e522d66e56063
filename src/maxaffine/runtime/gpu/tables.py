"""From a collapsed layer to the tables that the kernels read, with a bound on what the kernels may be off by.

    products   a list of terms, each for one output: sum_r prod_e p_er(z_e), or its real part where the series are complex
    train      sum_rs p_r(z_1) P_rs(z_2) q_sk(z_3), three directions whose values do not separate

Coefficients that do not matter in the dtype are left out; what they sum to is part of the bound.  The remaining parts are bounded
in runtime/gpu/rounding.py.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import dtype_of, gamma
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.runtime.collapse import CollapsedGroup, collapse
from maxaffine.runtime.gpu import rounding
from maxaffine.runtime.gpu.compress import as_products, fewest_products, fewest_train

# what a collapse may take where nothing is asked for, tried in turn: float32 rounds by ten times as much
TOLERANCES = {"float32": (2.0**-23, 2.0**-20), "float64": (0.0, 1e-13, 1e-12, 1e-11, 1e-10)}
MOST_CODE = 1200  # coefficients that are written into the code; more are read from memory
MOST_PRODUCTS = 4  # a train of three directions with so few products is written as products
MOST_SERIES = 4096  # coefficients of products; beyond, unrolled code takes too long to build


class Numbers:
    """A row of numbers that a kernel is compiled for; equal rows are one kernel."""

    def __init__(self, numbers: Iterable[float]) -> None:
        self.numbers = tuple(numbers)
        self.digest = hashlib.sha256(repr(self.numbers).encode()).hexdigest()[:24]

    def __getitem__(self, index: int) -> float:
        return self.numbers[index]

    def __len__(self) -> int:
        return len(self.numbers)

    def __repr__(self) -> str:
        return f"Numbers({self.digest})"

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbers) and self.numbers == other.numbers


class OnBox(Protocol):
    """What the map of a direction is made of: the centre and the box, and the dtype of the kernel."""

    @property
    def centre(self) -> Array: ...  # noqa: D102
    @property
    def low(self) -> Array: ...  # noqa: D102
    @property
    def high(self) -> Array: ...  # noqa: D102
    @property
    def dtype(self) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class Term:
    """One sum of products for output k: for every direction its row (1, D) of M and coefficients (degree + 1, R).

    Where they are complex the columns 2r and 2r + 1 are the real and the imaginary part of product r.  `centre` is what is
    taken off x where that is not the layer's.
    """

    output: int
    rows: Array  # (E, D)
    cores: tuple[Array, ...]
    complex_: bool = False
    centre: Array | None = None


@dataclass(frozen=True)
class Train:
    """Three directions: rows (3, D), cores (1, n, R), (R, n, R'), (R', n, K)."""

    rows: Array
    cores: tuple[Array, ...]


@dataclass(frozen=True)
class Polynomials:
    """A layer as terms and trains in one dtype, and sup |kernel - layer| over the box, all roundings counted."""

    terms: tuple[Term, ...]
    trains: tuple[Train, ...]
    centre: Array
    low: Array
    high: Array
    outputs: int
    dtype: str
    bound: float
    parts: dict[str, float]

    @property
    def dimension(self) -> int:
        """D."""
        return len(self.centre)

    @property
    def multiplications(self) -> int:
        """Fused multiply-adds per query: one per coefficient and one per degree of up to four series."""
        total = 0
        for term in self.terms:
            rank = term.cores[0].shape[1]
            total += 2 * rank * (len(term.cores) - 1) if term.complex_ else 0
            for core in term.cores:  # zeros in the code are left out, zeros in memory are not
                kept = int(np.count_nonzero(core)) if self.dtype == "float32" else core.size
                total += kept + (len(core) - 2) * -(-rank // 4)
        for train in self.trains:
            (_, n0, R0), (_, n1, R1), (_, n2, K) = (core.shape for core in train.cores)
            fours, others = -(-R0 // 4), -(-R1 // 4)  # ranks are taken four at a time
            total += 5 * K * others * (n0 * fours + n1 * 4 * fours + n2)
        return total


def polynomials(layer: GroupedLayer, dtype: str, tolerance: float = 0.0) -> Polynomials:
    """The tables of a layer in that dtype, collapsed to within `tolerance` or the dtype's own; Refused where that cannot be.

    The collapse takes a quarter of that; products and coefficients within the rest may be left out.
    """
    for least in TOLERANCES[dtype]:
        allowed = max(tolerance, least)
        try:
            found = collapse(layer, allowed / 4.0, basis="chebyshev")
            break
        except Refused:
            if least == TOLERANCES[dtype][-1]:
                raise
    unit, left_out = dtype_of(dtype).unit, 0.0
    terms: list[Term] = []
    trains: list[Train] = []
    for group in found.groups:
        made, lost = _parts(group, 0.75 * allowed / len(found.groups))
        left_out += lost
        terms += [one for one in made if isinstance(one, Term)]
        trains += [one for one in made if isinstance(one, Train)]
    if sum(core.size for term in terms for core in term.cores) > MOST_SERIES:
        raise Refused("the layer's series are too long for unrolled code.")
    collapsed = math.fsum(group.error for group in found.groups)
    reach = layer.reach * (1 + 1e-12)
    evaluated, moved = 0.0, 0.0
    every: list[Term | Train] = [*terms, *trains]
    for part in every:
        arguments = (part.rows, part.cores, found.centre, reach, unit)
        if isinstance(part, Term):
            one, other = rounding.of_products(*arguments, part.complex_)
        else:
            one, other = rounding.of_train(*arguments)
        evaluated, moved = evaluated + one, moved + other
    whole = sum(size(term.cores, term.complex_) for term in terms) + sum(size(train.cores) for train in trains)
    evaluated += gamma(len(terms) + len(trains) - 1, unit) * whole
    parts = {"collapse": collapsed, "left out": left_out, "evaluation": evaluated, "query": moved}
    bound = math.fsum(parts.values()) * (1 + 1e-9)
    return Polynomials(tuple(terms), tuple(trains), found.centre, layer.low, layer.high, layer.d_out, dtype, bound, parts)


def size(cores: tuple[Array, ...], complex_: bool = False) -> float:
    """A bound of the sum that the cores of a term or train stand for."""
    if cores[0].ndim == 2:
        return float(np.prod(_sizes(cores, complex_), axis=0).sum()) / (2.0 if complex_ else 1.0)
    state = np.ones(1)
    for core in cores:
        state = state @ np.abs(core).sum(axis=1)
    return float(state.max())


def _sizes(cores: Sequence[Array], complex_: bool) -> Array:
    """Sums of |coefficients| of every column, (E, columns); of complex ones a bound of the modulus, for both of their columns."""
    sums = np.stack([np.abs(core).sum(axis=0) for core in cores])
    return np.repeat(rounding.moduli(sums), 2, axis=1) if complex_ else sums


def _parts(group: CollapsedGroup, room: float) -> tuple[list[Term | Train], float]:
    """The terms of a group, one or more per output, or a train of three directions; and what was left out."""
    E = len(group.matrix)
    if group.parts:
        complex_ = group.parts == 2
        term, lost = _short(0, group.matrix, multiplied_out(group.cores, group.blocks, complex_), room, complex_)
        return [term], lost
    if E > 3:
        raise Refused(f"the kernels take values that couple at most 3 directions, and a group couples {E}.")
    cores, dropped = group.cores, 0.0
    if E == 3:
        cores, dropped = fewest_train(cores, 2.0 / 3.0 * room)
        if cores[0].shape[2] * cores[1].shape[2] > MOST_PRODUCTS:
            return [Train(group.matrix, cores)], dropped
    terms: list[Term | Train] = []
    total = 0.0
    for k in range(cores[-1].shape[-1]):
        if E == 3:
            one = as_products(cores, k)
        else:
            last = cores[-1][:, :, k].T  # (n, R)
            one = (last,) if E == 1 else (cores[0][0], last)
        term, lost = _short(k, group.matrix, one, room - dropped)
        terms.append(term)
        total = max(total, lost)
    return terms, dropped + total


def multiplied_out(cores: tuple[Array, ...], blocks: tuple[int, ...], complex_: bool) -> tuple[Array, ...]:
    """Products of trains over blocks as products of series (degree + 1, R'), one per direction; complex columns in pairs.

    Product r with ranks k, .. between the directions of a block becomes one product for every choice of them.
    """
    R = cores[blocks[0] - 1].shape[2] // (2 if complex_ else 1)
    inner = [core.shape[2] for core, ends in zip(cores, _ends(blocks), strict=True) if not ends]
    if math.prod(inner) * R * sum(core.shape[1] for core in cores) > MOST_SERIES:
        raise Refused("the layer's blocks of directions couple too many series for unrolled code.")
    choices = np.indices((R, *inner)).reshape(1 + len(inner), -1)  # product, then a rank for every direction inside a block
    found, place, left = [], 1, np.zeros(choices.shape[1], dtype=np.int64)
    for core, ends in zip(cores, _ends(blocks), strict=True):
        if not ends:
            right = choices[place]
            found.append(_paired(core[left, :, right].T, None, complex_))
            left, place = right, place + 1
        else:
            imaginary = core[left, :, R + choices[0]].T if complex_ else None
            found.append(_paired(core[left, :, choices[0]].T, imaginary, complex_))
            left = np.zeros_like(left)
    return tuple(found)


def _ends(blocks: tuple[int, ...]) -> list[bool]:
    """For every direction whether it is the last one of its block."""
    return [i + 1 == count for count in blocks for i in range(count)]


def _paired(real: Array, imaginary: Array | None, complex_: bool) -> Array:
    """(degree + 1, R) as it is, or with its imaginary parts (or 0) in every second column."""
    if not complex_:
        return real
    pair = np.stack([real, np.zeros_like(real) if imaginary is None else imaginary], axis=-1)
    return pair.reshape(len(real), -1)


def _short(output: int, rows: Array, cores: tuple[Array, ...], room: float, complex_: bool = False) -> tuple[Term, float]:
    """The term with few products and without coefficients that matter less than `room`; what was left out at most."""
    cores, dropped = (cores, 0.0) if complex_ else fewest_products(cores, 2.0 / 3.0 * room)
    kept = [np.array(core, dtype=np.float64) for core in cores]
    sizes = _sizes(kept, complex_)  # (E, R)
    lost = 0.0
    for e, core in enumerate(kept):
        others = np.prod(np.delete(sizes, e, axis=0), axis=0)  # what a coefficient of this direction is multiplied by
        impact = np.abs(core) * others
        order = np.argsort(impact, axis=None)
        sums = np.cumsum(impact.ravel()[order])
        gone = order[: int(np.count_nonzero(sums <= room / 3.0 / len(kept)))]
        lost += float(impact.ravel()[gone].sum())
        core.ravel()[gone] = 0.0
        alive = np.flatnonzero(np.abs(core).max(axis=1))
        last = int(alive[-1]) + 1 if len(alive) else 1
        kept[e] = np.pad(core[:last], ((0, max(2 - last, 0)), (0, 0)))
    return Term(output, rows, tuple(kept), complex_), dropped + lost * (1 + 1e-12)


# -- what the kernels read


@dataclass(frozen=True)
class Program:
    """The arguments of the kernel `products`: maps, form and table."""

    maps: Numbers
    form: Numbers
    terms: int
    stride: int
    table: Array
    constant: bool  # whether the table is written into the code


def signs(count: int) -> Array:
    """S_k = signs_k T_k: + + - - and so on."""
    return np.where(np.arange(count) // 2 % 2 == 0, 1.0, -1.0)


def program(found: Polynomials, slopes: bool = False) -> Program:
    """Maps, form and table of all terms; with `slopes` the derivatives' coefficients as well."""
    most = max(len(term.cores) for term in found.terms)
    stride = 4 + 6 * most
    maps: list[float] = []
    form: list[float] = []
    table: list[Array] = []
    length = 0
    for term in found.terms:
        rank = term.cores[0].shape[1]
        padded = rank + 1 if rank % 4 == 3 else rank
        entry: list[float] = [len(term.cores), padded, term.output, int(term.complex_)]
        for row, plain in zip(term.rows, term.cores, strict=True):
            core = np.pad(plain, ((0, 0), (0, padded - rank)))
            even = not slopes and rounding.is_even(core)
            core = core[::2] if even else core
            split = rounding.split(core)
            entry += [len(maps), len(core), length, split, int(even)]
            maps += affine(row, found, term.centre)
            table.append((core * signs(len(core))[:, None]).ravel())
            length += core.size
            entry.append(length)
            if slopes:
                derived = np.zeros_like(core)
                derived[:-1] = np.polynomial.chebyshev.chebder(core, axis=0)
                table.append((derived * signs(len(core))[:, None]).ravel())
                length += core.size
        form += entry + [0] * (stride - len(entry))
    flat = np.concatenate(table)
    constant = found.dtype == "float32" and len(flat) <= MOST_CODE
    return Program(Numbers(maps), Numbers(form), len(found.terms), stride, flat, constant)


def affine(row: Array, found: OnBox, own: Array | None = None) -> list[float]:
    """One direction: shift, whether to clip x before z, then per variable M in two parts, the centre (its `own`), and the box."""
    middle = found.centre if own is None else own
    narrow = np.dtype(found.dtype).type
    high = row.astype(found.dtype).astype(np.float64)
    low = (row - high).astype(found.dtype).astype(np.float64)
    centre = middle.astype(found.dtype).astype(np.float64)
    shift = -float(row @ (middle - centre))
    sides = np.stack([row * (found.low - middle), row * (found.high - middle)])
    whole = bool((np.abs(sides[:, row != 0]) >= 1.0 - 8.0 * np.finfo(narrow).eps).all())  # to clip z is to clip x
    numbers = [float(narrow(shift)), float(int(np.count_nonzero(row)) > 1 or not whole)]
    for d in range(len(row)):
        numbers += [high[d], low[d], centre[d], float(narrow(found.low[d])), float(narrow(found.high[d]))]
    return [float(number) for number in numbers]


def train_table(train: Train, found: Polynomials) -> tuple[Numbers, int, Array, tuple[int, int, int, int, int]]:
    """Maps, their length per direction, the table of the kernel `train`, and (N0, N1, N2, R0, R1)."""
    first, middle, last = (np.asarray(core, dtype=np.float64) for core in train.cores)
    _, n0, r0 = first.shape
    _, n1, r1 = middle.shape
    _, n2, K = last.shape
    R0, R1 = -(-r0 // 4) * 4, -(-r1 // 4) * 4
    p = np.pad(first[0] * signs(n0)[:, None], ((0, 0), (0, R0 - r0)))
    P = np.pad(middle * signs(n1)[:, None], ((0, R0 - r0), (0, 0), (0, R1 - r1)))
    q = np.pad(last * signs(n2)[:, None], ((0, R1 - r1), (0, 0), (0, 0)))
    blocks = [p.ravel(), P.reshape(R0, n1, R1 // 4, 4).transpose(0, 2, 1, 3).ravel()]
    blocks.append(q.reshape(R1 // 4, 4, n2, K).transpose(3, 0, 2, 1).ravel())
    maps = [number for row in train.rows for number in affine(row, found)]
    return Numbers(maps), 2 + 5 * found.dimension, np.concatenate(blocks), (n0, n1, n2, R0, R1)
