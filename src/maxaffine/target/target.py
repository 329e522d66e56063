"""Target: the function to be compiled, from an expression, a callable, or a sequence function, on its box.

Inside, a target is always a map from points x (B, D) to arrays (B, d_out, n_out); `present` gives back the user's shape.

    inputs      what a callable sees                            what it may return
    points      X (B, D)                                        (B,), (B, K) or (B, d_out, n_out)
    sequence    X (B, d, n)                                     the same
    pair        X_q, X_kv, each (B, D_q) or (B, d, n)           the same

Outputs (B,) are 1 x 1, outputs (B, K) are K x 1: d_out = K numbers in n_out = 1 token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.target.box import Box
from maxaffine.target.call import call_batch, call_points, check_finite
from maxaffine.target.calls import Answers, Calls
from maxaffine.target.carried import carried
from maxaffine.target.entries import KINDS, Entries
from maxaffine.target.piecewise_affine import written
from maxaffine.target.rewritten import continued, without_cancellation
from maxaffine.target.sequences import read

Inputs = Literal["points", "sequence", "pair"]
OneBox = Box | Mapping[str, Any]
BoxOrPair = OneBox | tuple[OneBox, OneBox] | None

CHUNK = 65_536
"""Points per call of a user's function."""

MAX_OUTPUT = 1_000_000

NARROWEST = 1e-100
"""The least width of a variable: searches and proofs work with squares of widths and with their inverses."""


@dataclass(frozen=True, eq=False)
class Target:
    """A function on a box.  Make one with `Target.of`."""

    box: Box
    output_shape: tuple[int, ...]
    inputs: Inputs = "points"
    expression: Expression | None = None
    function: Callable[..., Any] | None = field(default=None, repr=False)
    text: str | None = None
    name: str | None = None
    vectorize: bool = False
    boxes: tuple[Box, Box] | None = None
    data: Any = field(default=None, repr=False)  # a Table or Samples; of a file only their Entries
    continued: bool = False  # whether quotients that are 0/0 somewhere on the box stand for their limits there
    published: Expression | None = field(default=None, repr=False)  # as it was written, where `expression` has roots rewritten
    traced: Any = field(default=None, repr=False)  # what was read of a Python function (tracing/reading.py); None for others
    calls: Answers | None = field(default=None, repr=False)  # of a callable: counts and keeps its values, or stands in for it

    @classmethod
    def of(
        cls,
        source: Any,
        box: BoxOrPair = None,
        *,
        vectorize: bool = False,
        output_shape: Sequence[int] | None = None,
        name: str | None = None,
        probe: bool = True,
    ) -> Target:
        """A target from an expression (str), a callable, another target, a gallery entry, a ReluNetwork or a PiecewiseAffine law.

        `box`: a Box or a dictionary {"x": (-1, 1)}, or a pair (box_q, box_kv) of them for f(X_q, X_kv); may be left out for a
        target or a gallery entry.
        `vectorize`: call the function one point at a time.  `output_shape`: (), (K,) or (d_out, n_out); an expression's K
        outputs fill (d_out, n_out) row by row; on a sequence, semicolons between output tokens say it (target/sequences.py).
        `probe`: whether a callable is called to see the shape of its values; without, `output_shape` is believed.
        """
        source = getattr(source, "target", source)
        if isinstance(source, Target):
            return source._on(box, output_shape)
        joined, boxes = boxes_of(box)
        inputs: Inputs = "pair" if boxes else "sequence" if joined.is_sequence else "points"
        shape = _shape(output_shape)
        text = written(source, joined)
        if text is not None:
            source, name = text, name or type(source).__name__
        if isinstance(source, str):
            source, columns = read(source, joined, boxes)
            if columns is not None and shape not in (None, columns):
                raise BadInput(f"`output_shape` (={shape}): the expression has {columns[0]} rows in {columns[1]} output tokens.")
            shape = columns or shape
        if isinstance(source, Expression):
            if source.names != joined.names:
                raise BadInput(f"the expression's variables {source.names} are not those of the box {joined.names}.")
            whole, shape = continued(source, joined), _fill(source, shape)
            made = cls(joined, shape, inputs, whole, None, source.text, name, False, boxes, continued=whole is not source)
            other = None if made.continued else without_cancellation(source, joined)
            return made if other is None else replace(made, expression=other, published=source)
        if not callable(source):
            texts = isinstance(source, (list, tuple)) and all(isinstance(one, str) for one in source)
            more = "; several outputs are one expression with commas, such as 'sin(x), cos(x)'" if texts else ""
            raise BadInput(
                f"the target (a {type(source).__name__}) must be an expression such as 'sin(x)', a function of batches, "
                f"a Target or a gallery entry{more}."
            )
        title = name or getattr(source, "__name__", None) or type(source).__name__
        blank = cls(joined, shape or (), inputs, None, source, None, title, bool(vectorize), boxes)
        found = blank._shape_of_values() if probe or shape is None else shape
        if shape is not None and found != shape:
            raise BadInput(f"the target returns entries of shape {found}, and `output_shape` says {shape}.")
        return cls(joined, found, inputs, None, source, None, title, bool(vectorize), boxes)

    def _on(self, given: BoxOrPair, output_shape: Sequence[int] | None) -> Target:
        """The same function on another box, or as it is."""
        joined, pair = (None, None) if given is None else boxes_of(given)
        box = pair or joined
        shape = self.output_shape if output_shape is None else output_shape
        if self.data is not None and (box not in (None, self.box) or tuple(shape) != self.output_shape):
            raise BadInput(f"{self.description} has its own box and outputs; leave out `box` and `output_shape`.")
        if (box is None or box in (self.box, self.boxes)) and tuple(shape) == self.output_shape:
            return self
        where = box if box is not None else self.boxes or self.box
        source = self.text if self.expression is not None else self.function
        return Target.of(source, where, vectorize=self.vectorize, output_shape=shape, name=self.name)

    # ------------------------------------------------------------------ shapes

    @property
    def d_out(self) -> int:
        """Numbers per output token."""
        return 1 if not self.output_shape else self.output_shape[0]

    @property
    def n_out(self) -> int:
        """Output tokens."""
        return 1 if len(self.output_shape) < 2 else self.output_shape[1]

    @property
    def input_shapes(self) -> tuple[tuple[int, int], ...]:
        """(d, n) of every input matrix."""
        return tuple((box.d, box.n) for box in (self.boxes or (self.box,)))

    @property
    def query(self) -> int:
        """How many coordinates, the first ones, are the query's, in which values may not be affine; 0 of one input."""
        return 0 if self.boxes is None else self.boxes[0].dimension

    @property
    def dimension(self) -> int:
        """The number of coordinates D."""
        return self.box.dimension

    @property
    def is_expression(self) -> bool:
        """True where the target can be enclosed and differentiated."""
        return self.expression is not None

    @property
    def entries(self) -> Entries | None:
        """What a table or samples say about themselves; None for a function."""
        return self.data if self.data is None or isinstance(self.data, Entries) else self.data.entries

    @property
    def description(self) -> str:
        """The expression's text, or the name of the callable."""
        if self.entries is not None:
            return f"the {self.entries.kind} {self.name}" if self.name != self.entries.kind else f"the {self.name}"
        return self.text if self.text is not None else f"the function {self.name}"

    def present(self, y: ArrayLike) -> Array:
        """(B, d_out, n_out) -> the user's shape: (B,), (B, K) or (B, d_out, n_out)."""
        array = np.asarray(y)
        return array.reshape(len(array), *self.output_shape)

    def split(self, x: Array) -> tuple[Array, ...]:
        """Points (B, D) as what a callable sees: (B, D), (B, d, n), or two of them."""
        if self.boxes is None:
            return (self.box.unflatten(x) if self.box.is_sequence else x,)
        cut = self.boxes[0].dimension
        parts = x[:, :cut], x[:, cut:]
        return tuple(b.unflatten(p) if b.is_sequence else p for b, p in zip(self.boxes, parts, strict=True))

    # ------------------------------------------------------------------ values

    def values(self, x: ArrayLike) -> Array:
        """f at points x (B, D) -> (B, d_out, n_out) float64, in chunks; BadInput where something is wrong with f there."""
        points = np.asarray(x, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != self.dimension:
            raise BadInput(f"points must have shape (B, {self.dimension}), and {points.shape} came.")
        return self._computed(points) if self.calls is None else self.calls.ask(points, self._computed)

    def restless(self, points: ArrayLike) -> float:
        """How far a callable is from what it said before at these points, when it is asked there again."""
        x, calls = np.asarray(points, dtype=np.float64), self.calls
        if self.expression is not None or not isinstance(calls, Calls):
            return 0.0
        first, second = self.values(x), calls.again(x, self._computed)
        return 0.0 if second is None else float(np.abs(first - second).max())

    def _computed(self, points: Array) -> Array:
        result = np.empty((len(points), self.d_out, self.n_out))
        for start in range(0, len(points), CHUNK):
            result[start : start + CHUNK] = self._chunk(points[start : start + CHUNK])
        return result

    def _chunk(self, points: Array) -> Array:
        if self.expression is None:
            return self.judged(points, self._call(points))
        found = self.expression.evaluate(points)
        check_finite(found, points, self.box, self.description)
        return found.reshape(len(points), self.d_out, self.n_out)

    def judged(self, points: Array, called: tuple[Array, tuple[int, ...]]) -> Array:
        """What a callable returned for points, as values (B, d_out, n_out), where nothing is wrong with it."""
        found, shape = called
        if shape != self.output_shape:
            raise BadInput(
                f"the target returned entries of shape {shape} for one batch and {self.output_shape} for another; "
                "its output must not depend on the batch."
            )
        check_finite(found, points, self.box, self.description)
        return found.reshape(len(points), self.d_out, self.n_out)

    def task(self, points: Array) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """What calls a callable at points, anywhere: a function and its arguments, for `judged` to look at the result."""
        call = call_points if self.vectorize else call_batch
        return call, (self.function, self.split(points), len(points))

    def _call(self, points: Array) -> tuple[Array, tuple[int, ...]]:
        assert self.function is not None
        call, arguments = self.task(points)
        found: tuple[Array, tuple[int, ...]] = call(*arguments)
        return found

    @property
    def probed(self) -> int:
        """Points that a callable is first called with: no other length of the input, as x[0] must not pass for a batch."""
        lengths = {length for part in self.split(self.box.centre[None, :]) for length in part.shape}
        return next(c for c in (3, 5, 7, 11, 13, 17) if c not in lengths)

    def _shape_of_values(self) -> tuple[int, ...]:
        """Call the function once on a few points of the box and look at what comes back."""
        count = self.probed
        t = (0.5 + 0.618033988749895 * np.arange(count)[:, None]) % 1.0
        probe = self.box.clip(self.box.low + t * self.box.width)
        found, shape = self._call(probe)
        if int(np.prod(shape)) > MAX_OUTPUT or 0 in shape:
            raise BadInput(
                f"the target returns entries of shape {shape}; from 1 to {MAX_OUTPUT:,} numbers per point are allowed."
            )
        check_finite(found, probe, self.box, self.description)
        return shape

    def enclose(self, low: ArrayLike, high: ArrayLike) -> Interval:
        """Enclosures of f over boxes [low, high] (B, D) -> (B, d_out, n_out); expressions only."""
        if self.expression is None:
            raise BadInput(f"{self.description} is a callable and cannot be enclosed; give an expression.")
        lows, highs = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
        return self.expression.enclose(Interval(lows, highs)).reshape(len(lows), self.d_out, self.n_out)

    # ------------------------------------------------------------------ records

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: a callable by its name or itself, or a stand-in that says why it is not there."""
        if self.function is None or self.data is not None:
            return self.__dict__
        return {**self.__dict__, "function": carried(self.function)}

    def __copy__(self) -> Target:
        """The same: targets do not change."""
        return self

    def __deepcopy__(self, memo: Any) -> Target:
        """The same: targets do not change."""
        return self

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary; a callable leaves only its name, a table its counts and its hash."""
        entries = self.entries
        return ({} if entries is None else {"entries": entries.to_json()}) | {
            "kind": entries.kind if entries is not None else "expression" if self.expression is not None else "callable",
            "text": self.text,
            "name": self.name,
            "inputs": self.inputs,
            "output_shape": list(self.output_shape),
            "box": self.box.to_json(),
            "boxes": [b.to_json() for b in self.boxes] if self.boxes else None,
        }

    @classmethod
    def from_json(cls, record: Any) -> Target:
        """The target of a dictionary that `to_json` wrote.

        Of a callable only the record is left: such a target has neither an expression nor a function, and `values` refuses.
        """
        keys = {"kind", "text", "name", "inputs", "output_shape", "box", "boxes"}
        if not isinstance(record, dict) or set(record) - {"entries"} != keys:
            raise BadInput(f"the record of a target must have exactly the keys {', '.join(sorted(keys))}.")
        name, pair = record["name"], record["boxes"]
        if name is not None and not isinstance(name, str):
            raise BadInput("`name` of a target's record must be a text or null.")
        if pair is not None and (not isinstance(pair, list) or len(pair) != 2):
            raise BadInput("`boxes` of a target's record must be null or two boxes.")
        boxes = (Box.from_json(pair[0]), Box.from_json(pair[1])) if pair else None
        box = Box.join(*boxes) if boxes else Box.from_json(record["box"])
        inputs: Inputs = "pair" if boxes else "sequence" if box.is_sequence else "points"
        if record["inputs"] != inputs or (boxes and record["box"] != box.to_json()):
            raise BadInput("the record of a target contradicts itself about its box or its inputs.")
        shape = _shape(record["output_shape"])
        if shape is None:
            raise BadInput("`output_shape` of a target's record is missing.")
        if record["kind"] in KINDS:
            entries = Entries.from_json(record.get("entries"))
            if record["kind"] != entries.kind or record["text"] is not None or inputs != "points" or len(shape) > 1:
                raise BadInput("the record of a table contradicts itself.")
            return cls(box, shape, inputs, None, _no_entries, None, name, data=entries)
        if "entries" in record:
            raise BadInput("the record of a target that is no table has `entries`.")
        if record["kind"] == "expression" and isinstance(record["text"], str):
            return cls.of(record["text"], boxes or box, output_shape=shape, name=name)
        if record["kind"] == "callable" and record["text"] is None:
            return cls(box, shape, inputs, None, _gone, None, name, False, boxes)
        raise BadInput("the record of a target must be an expression with its text, or a callable without.")


def _gone(*_: Any) -> Any:
    """Stands in for a callable of which only a record is left."""
    raise BadInput("the target was a Python function, which a file does not keep; pass the function again.")


def _no_entries(*_: Any) -> Any:
    """Stands in for a table of which only a record is left."""
    raise BadInput("the target was a table, whose entries a file does not keep; load the table again.")


def boxes_of(box: Any) -> tuple[Box, tuple[Box, Box] | None]:
    """The box of all variables, and the two boxes where two were given."""
    if isinstance(box, (tuple, list)) and len(box) == 2 and all(isinstance(b, (Box, Mapping)) for b in box):
        query, context = (_wide(Box.of(one)) for one in box)
        return Box.join(query, context), (query, context)
    if box is None:
        raise BadInput("`box` is missing; say where the target lives, such as Box(x=(0, 1)).")
    return _wide(Box.of(box)), None


def _wide(box: Box) -> Box:
    """The box, unless it is so narrow that squares of its width, and what they divide, are no numbers of float64."""
    for name, low, high in zip(box.names, box.low, box.high, strict=True):
        if not high - low >= NARROWEST:
            raise BadInput(
                f"`box`: the edges of `{name}` (={low:g}, {high:g}) lie {high - low:.3g} apart, and float64 needs at least "
                f"{NARROWEST:g}; scale the variable, such as `{name}` in units of {high - low:.1g}."
            )
    return box


def _shape(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    try:
        shape = tuple(value)
    except TypeError:
        shape = (value,)
    good = len(shape) <= 2 and all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n >= 1 for n in shape)
    if not good or int(np.prod([int(n) for n in shape])) > MAX_OUTPUT:
        raise BadInput(f"`output_shape` (={value!r}) must be (), (K,) or (d_out, n_out) with whole numbers from 1.")
    return tuple(int(n) for n in shape)


def _fill(expression: Expression, shape: tuple[int, ...] | None) -> tuple[int, ...]:
    """The output shape of an expression: () for one output, (K,) for several, or what was asked if it fits."""
    if shape is None:
        return () if expression.count == 1 else (expression.count,)
    if int(np.prod(shape)) != expression.count:
        raise BadInput(
            f"`output_shape` (={shape}) holds {int(np.prod(shape))} numbers and the expression has {expression.count} outputs."
        )
    return shape
