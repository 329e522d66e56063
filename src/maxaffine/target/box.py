"""The domain: a box of named coordinates, or of sequences X in R^(d x n) read as x = vec(X).

    Box(x=(-pi, pi), y=(0, 1))          by name
    Box([-1, -1], [1, 1])               by arrays: x1, x2
    Box(0, 1)                           one variable: x
    Box.sequence(d=2, n=3, low=-1, high=1)

vec stacks columns: coordinate (t-1) d + i of x is X[i, t], tokens being columns.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.expression.functions import RESERVED

MAX_DIMENSION = 10_000
_EMPTY = "the box is empty; name at least one variable, such as Box(x=(0, 1))."
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Box:
    """prod_i [low_i, high_i] with a name for every coordinate; immutable.

    A plain box of D coordinates is one token: d = D, n = 1.  A sequence box has D = d n coordinates, columns stacked.
    """

    names: tuple[str, ...]  # of the coordinates, in order
    low: Array  # (D,), read-only
    high: Array  # (D,), read-only
    d: int  # numbers per token
    n: int  # tokens
    is_sequence: bool  # made by `Box.sequence`: its functions see (B, d, n)

    def __init__(self, low: ArrayLike | None = None, high: ArrayLike | None = None, /, **edges: Any) -> None:
        if edges:
            if low is not None or high is not None:
                raise BadInput("a box is given by name or by arrays, not by both; write Box(x=(0, 1), y=(0, 1)).")
            self._set(tuple(edges), *_pairs(edges))
            return
        if low is None or high is None:
            raise BadInput(_EMPTY)
        lows, highs = _edge(low, "low"), _edge(high, "high")
        if len(lows) != len(highs):
            raise BadInput(f"`low` has {len(lows)} entries and `high` has {len(highs)}; a box needs one of each per variable.")
        self._set(default_names(len(lows)), lows, highs)

    def _set(
        self, names: tuple[str, ...], low: Sequence[float], high: Sequence[float], d: int | None = None, n: int = 1,
        is_sequence: bool = False,
    ) -> None:  # fmt: skip
        _check(names, low, high)
        lows, highs = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
        lows.setflags(write=False)
        highs.setflags(write=False)
        values = (names, lows, highs, len(names) if d is None else d, n, is_sequence)
        for field, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, field.name, value)

    @classmethod
    def of(cls, value: Any) -> Box:
        """The box of whatever may stand for one: a Box, or a dictionary of pairs, {"x": (-1, 1), "y": (0, 1)}."""
        if isinstance(value, Box):
            return value
        if isinstance(value, Mapping):
            return cls._make(tuple(value), *_pairs(value))
        raise BadInput(_no_box(value))

    @classmethod
    def named(cls, names: Sequence[str], low: ArrayLike, high: ArrayLike) -> Box:
        """A plain box from names and edges (one number for all coordinates, or one per coordinate)."""
        names = tuple(names)
        return cls._make(names, _spread(low, len(names), "low"), _spread(high, len(names), "high"))

    @classmethod
    def _make(cls, *parts: Any) -> Box:
        box = cls.__new__(cls)
        box._set(*parts)
        return box

    @classmethod
    def sequence(cls, d: int, n: int, low: ArrayLike = -1.0, high: ArrayLike = 1.0, prefix: str = "x") -> Box:
        """Sequences X in R^(d x n): n tokens of d numbers.  `low`, `high`: one number, or a d x n array.

        The coordinate X[i, t] is called x11, x12, ... (row, token), or x1_1 where d or n has two digits; of one row x1, x2, ...
        """
        d, n = _count(d, "d"), _count(n, "n")
        if d * n > MAX_DIMENSION:
            raise BadInput(f"`d` * `n` (={d * n}) must be at most {MAX_DIMENSION}.")
        names = sequence_names(d, n, prefix)
        edges = []
        for value, label in ((low, "low"), (high, "high")):
            array = _numbers(value, label)
            if array.ndim == 0:
                array = np.full((d, n), float(array))
            if array.shape != (d, n):
                raise BadInput(f"`{label}` has shape {array.shape}; give one number or an array of shape ({d}, {n}).")
            edges.append([float(v) for v in array.T.reshape(-1)])
        return cls._make(names, edges[0], edges[1], d, n, True)

    @staticmethod
    def join(box_q: Box, box_kv: Box) -> Box:
        """The box of (x_q, x_kv); where names clash those of the first get the prefix q_, those of the second k_."""
        first, second = box_q.names, box_kv.names
        if set(first) & set(second) or (box_q.is_sequence and box_kv.is_sequence and box_q.prefix == box_kv.prefix):
            first, second = tuple(f"q_{a}" for a in first), tuple(f"k_{a}" for a in second)
        if set(first) & set(second):
            raise BadInput(f"the two boxes share names even after prefixes ({', '.join(first)}); rename their variables.")
        low, high = [*box_q.low, *box_kv.low], [*box_q.high, *box_kv.high]
        return Box._make(first + second, low, high)

    # ------------------------------------------------------------------ looking

    @property
    def dimension(self) -> int:
        """The number of coordinates D."""
        return len(self.names)

    @property
    def prefix(self) -> str | None:
        """What the names of a sequence begin with, x of x11, x12, ..; None where they are called otherwise."""
        for end in ("1_1", "11", "1"):
            first = self.names[0].removesuffix(end)
            if first and first != self.names[0] and sequence_names(self.d, self.n, first) == self.names:
                return first
        return None

    @property
    def centre(self) -> Array:
        """The middle, shape (D,), inside the box."""
        middle: Array = 0.5 * self.low + 0.5 * self.high
        return middle

    @property
    def width(self) -> Array:
        """high - low, shape (D,)."""
        return self.high - self.low

    @property
    def volume(self) -> float:
        """The product of the widths."""
        return math.prod(float(w) for w in self.width)

    def corners(self) -> Array:
        """The 2^D corners, shape (2^D, D); refused beyond 20 coordinates."""
        if self.dimension > 20:
            raise BadInput(f"a box of {self.dimension} coordinates has 2^{self.dimension} corners; at most 2^20 are listed.")
        return np.array(list(itertools.product(*zip(self.low, self.high, strict=True))), dtype=np.float64)

    def contains(self, x: ArrayLike) -> NDArray[np.bool_]:
        """For points x (..., D), whether each lies in the box, edges included."""
        points = np.asarray(x, dtype=np.float64)
        inside: NDArray[np.bool_] = np.all((points >= self.low) & (points <= self.high), axis=-1)
        return inside

    def clip(self, x: ArrayLike) -> Array:
        """The nearest points of the box, shape (..., D)."""
        return np.clip(np.asarray(x, dtype=np.float64), self.low, self.high)

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """`count` points, uniform, shape (count, D)."""
        draw = rng.random((count, self.dimension))
        return self.clip(self.low + draw * self.width)

    def flatten(self, x: ArrayLike) -> Array:
        """(B, d, n) -> (B, D) by vec: columns stacked."""
        points = np.asarray(x, dtype=np.float64)
        if points.ndim != 3 or points.shape[1:] != (self.d, self.n):
            raise BadInput(f"an array of shape {points.shape} is not a batch of shape (B, {self.d}, {self.n}).")
        return np.ascontiguousarray(points.transpose(0, 2, 1)).reshape(len(points), self.dimension)

    def unflatten(self, x: ArrayLike) -> Array:
        """(B, D) -> (B, d, n), the inverse of `flatten`."""
        points = np.asarray(x, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != self.dimension:
            raise BadInput(f"an array of shape {points.shape} is not a batch of shape (B, {self.dimension}).")
        return points.reshape(len(points), self.n, self.d).transpose(0, 2, 1)

    def __iter__(self) -> Iterator[tuple[str, float, float]]:
        return ((a, float(x), float(y)) for a, x, y in zip(self.names, self.low, self.high, strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return (self.names, tuple(self.low), tuple(self.high), self.d, self.n, self.is_sequence)

    def __repr__(self) -> str:
        if self.is_sequence:
            low, high = (edge[0] if np.all(edge == edge[0]) else "..." for edge in (self.low, self.high))
            return f"Box.sequence(d={self.d}, n={self.n}, low={low!s}, high={high!s})"
        edges = [f"{name}=({low!s}, {high!s})" for name, low, high in itertools.islice(self, 12)]
        return f"Box({', '.join(edges)}{', ...' if self.dimension > 12 else ''})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Box.from_json, (self.to_json(),)

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary: names, low, high, d, n, sequence."""
        return {
            "names": list(self.names),
            "low": [float(v) for v in self.low],
            "high": [float(v) for v in self.high],
            "d": self.d,
            "n": self.n,
            "sequence": self.is_sequence,
        }

    @classmethod
    def from_json(cls, record: Any) -> Box:
        """The box of a dictionary that `to_json` wrote; anything else is refused."""
        keys = {"names", "low", "high", "d", "n", "sequence"}
        if not isinstance(record, dict) or set(record) != keys:
            raise BadInput(f"the record of a box must have exactly the keys {', '.join(sorted(keys))}.")
        names, low, high = record["names"], record["low"], record["high"]
        for label, value in (("names", names), ("low", low), ("high", high)):
            if not isinstance(value, list) or len(value) > MAX_DIMENSION:
                raise BadInput(f"`{label}` of a box's record must be a list of at most {MAX_DIMENSION} entries.")
        d, n, is_sequence = _count(record["d"], "d"), _count(record["n"], "n"), record["sequence"]
        if not isinstance(is_sequence, bool) or d * n != len(names) or (not is_sequence and n != 1):
            raise BadInput(f"a box of {len(names)} names cannot have d={d}, n={n}, sequence={is_sequence!r}.")
        return cls._make(tuple(names), [_number(v, "low") for v in low], [_number(v, "high") for v in high], d, n, is_sequence)


def sequence_names(d: int, n: int, prefix: str = "x", old: bool = False) -> tuple[str, ...]:
    """x11, x21, .. token by token; x1, x2, .. of one row, which were x11, x12, .. in `old` files."""
    if d == 1 and not old:
        return tuple(f"{prefix}{t + 1}" for t in range(n))
    joint = "_" if max(d, n) > 9 else ""
    return tuple(f"{prefix}{i + 1}{joint}{t + 1}" for t in range(n) for i in range(d))


def default_names(count: int) -> tuple[str, ...]:
    """x for one variable, x1, x2, .. for several."""
    return ("x",) if count == 1 else tuple(f"x{i + 1}" for i in range(count))


def _count(value: object, label: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 1 <= int(value) <= MAX_DIMENSION:
        raise BadInput(f"`{label}` (={value!r}) must be a whole number from 1 to {MAX_DIMENSION}.")
    return int(value)


def _numbers(value: ArrayLike, label: str) -> Array:
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "iuf":
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"`{label}` (={value!r}) must be a real number or an array of real numbers.") from None


def _number(value: object, label: str) -> float:
    if isinstance(value, (bool, str)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise BadInput(f"`{label}` (={value!r}) must be a real number.")
    try:
        return float(value)
    except OverflowError:
        raise BadInput(f"`{label}` is too large for a float64 number; the edges of a box must be finite.") from None


def _edge(value: ArrayLike, label: str) -> list[float]:
    array = _numbers(value, label)
    if array.ndim > 1:
        raise BadInput(f"`{label}` has shape {array.shape}; give one number per variable, or use Box.sequence for d x n.")
    return [float(v) for v in np.atleast_1d(array)]


def _spread(value: ArrayLike, count: int, label: str) -> list[float]:
    edges = _edge(value, label)
    if len(edges) == 1:
        return edges * count
    if len(edges) != count:
        raise BadInput(f"`{label}` has {len(edges)} entries for {count} names; give one number, or one per name.")
    return edges


def _pairs(edges: Mapping[Any, Any]) -> tuple[list[float], list[float]]:
    """Lower and upper edges of a dictionary of pairs."""
    lows, highs = [], []
    for name, value in edges.items():
        try:
            if isinstance(value, (str, bytes)):
                raise TypeError
            low, high = value
        except (TypeError, ValueError):
            raise BadInput(f"the edges of `{name}` (={value!r}) must be two numbers, such as {name}=(0, 1).") from None
        lows.append(_number(low, str(name)))
        highs.append(_number(high, str(name)))
    return lows, highs


def _no_box(value: Any) -> str:
    """What stands in the way of calling this a box, and how to write the box that was probably meant."""
    try:
        edges = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        edges = np.empty(0)
    if edges.size and edges.shape in ((2,), (edges.size // 2, 2)):
        rows = edges.reshape(-1, 2)
        names = ("x", "y", "z") if len(rows) <= 3 else ("x1", "x2", "x3")
        pairs = [(name, f"({low:g}, {high:g})") for name, (low, high) in zip(names, rows, strict=False)]
        dots = ", .." if len(rows) > 3 else ""
        by_name = ", ".join(f"{name}={pair}" for name, pair in pairs) + dots
        as_dict = ", ".join(f'"{name}": {pair}' for name, pair in pairs) + dots
        return f"`box` (={value!r:.60}) must be a Box that names its variables: write Box({by_name}) or {{{as_dict}}}."
    return (
        f"`box` (a {type(value).__name__}) must be a Box such as Box(x=(-1, 1), y=(0, 1)), a dictionary such as "
        '{"x": (-1, 1), "y": (0, 1)}, or a pair of boxes for a target of two inputs.'
    )


def _check(names: Sequence[object], low: Sequence[float], high: Sequence[float]) -> None:
    if not names:
        raise BadInput(_EMPTY)
    if len(names) > MAX_DIMENSION:
        raise BadInput(f"a box of {len(names)} coordinates is too large; at most {MAX_DIMENSION}.")
    if not len(names) == len(low) == len(high):
        raise BadInput(f"a box needs one name, one `low` and one `high` each: {len(names)}, {len(low)} and {len(high)} came.")
    for name in names:
        if not isinstance(name, str) or len(name) > 64 or not _NAME.match(name):
            raise BadInput(f"`{name!s:.70}` cannot name a variable; use letters, digits and _, not starting with a digit.")
        if name in RESERVED:
            raise BadInput(f"`{name}` is a word of the expression grammar and cannot name a variable; choose another name.")
    seen: set[object] = set()
    for name, a, b in zip(names, low, high, strict=True):
        if name in seen:
            raise BadInput(f"`{name}` names two coordinates of the box; names must differ.")
        seen.add(name)
        if not (math.isfinite(a) and math.isfinite(b)):
            raise BadInput(f"the edges of `{name}` (={a}, {b}) must be finite; cut the domain somewhere.")
        if a == b:
            raise BadInput(f"the box is empty: both edges of `{name}` are {a}; the upper edge must be larger than the lower.")
        if a > b:
            raise BadInput(f"the box is inverted: the edges of `{name}` are {a} and {b}; give the lower one first.")
        if not math.isfinite(b - a):
            raise BadInput(f"the edges of `{name}` (={a}, {b}) lie too far apart for float64 numbers; narrow the box.")
