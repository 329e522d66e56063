"""A function called once with symbols: the text of the expression that it computes, or the line at which that ends.

The text goes the way of any text.  It is the target that is proved; what numbers the function holds, it has exactly.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from maxaffine.core.errors import BadInput, MaxaffineError
from maxaffine.expression.expression import Expression
from maxaffine.target.box import Box
from maxaffine.tracing.array import ATTRIBUTE, Traced, lifted, one_point, rearranged
from maxaffine.tracing.calling import Called, is_module
from maxaffine.tracing.compare import POINTS, compared
from maxaffine.tracing.reading import Reading
from maxaffine.tracing.record import Line, Recorder, Symbol, Untraceable, is_ours, written


@dataclass(frozen=True)
class Understood:
    """The outputs of a trace, row by row, and their shape as the user sees it."""

    outputs: tuple[Symbol, ...]
    shape: tuple[int, ...]


def read(
    called: Called, box: Box, boxes: tuple[Box, Box] | None, vectorize: bool, name: str, longest: int
) -> tuple[Reading, Called]:
    """What the function computes, in so many characters, and the way to call it that fits what it was seen to do."""
    tensors = called.tensors is not None or is_module(called.function)
    reading, r = Reading(name, called.says(box)), Recorder(tensors)
    try:
        first = understood(called, box, boxes, vectorize, r)
        if r.torch_seen and not tensors:  # from the beginning now, as some methods of tensors mean something else
            first = understood(called, box, boxes, vectorize, r := Recorder(True))
        called = _spoken(called, r, box, boxes, vectorize)
        reading = replace(reading, how=called.says(box))
        text = written(first.outputs, box.names)
        again = understood(called, box, boxes, vectorize, Recorder(r.torch_seen))
        if written(again.outputs, box.names) != text:
            line, says = _changed(first.outputs, again.outputs)
            raise Untraceable(f"the function is not the same when it is called again{says}", "give random numbers a seed", line)
        if len(text) > longest:
            raise BadInput(f"its expression has {len(text):,} characters, and {longest:,} are read for one layer")
        expression = Expression.parse(text, box.names)
        evaluate = _evaluation(called, box, boxes, vectorize)
        _same_twice(evaluate, box)
        difference = compared(evaluate, expression, box, name)
        return replace(reading, text=text, compared=POINTS, difference=difference, output_shape=first.shape), called
    except Untraceable as failure:
        called = _spoken(called, r, box, boxes, vectorize)
        return replace(reading, how=called.says(box), why=failure.sentence), called
    except BadInput as failure:
        if type(failure) is not BadInput or reading.text is not None:
            raise
        return replace(reading, why=str(failure).splitlines()[0].rstrip(".")), called


def understood(called: Called, box: Box, boxes: tuple[Box, Box] | None, vectorize: bool, r: Recorder) -> Understood:
    """The symbols that the function returns; Untraceable where it does not."""
    given = _inputs(called, box, boxes, vectorize, r)
    function = _plain_module(called.function)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = called.given(function, given)
    except Exception as error:
        seen = _of_jax(called, box, boxes, vectorize) if _may_be_jax(error, r) else None
        if seen is not None:
            return seen
        if isinstance(error, Untraceable):
            raise r.failure or error from None
        if r.failure is not None:
            raise r.failure from None
        raise _ended_by(error) from error
    if r.failure is not None:  # the user's code went on after it
        raise r.failure
    return _result(found, r, box, vectorize)


def _ended_by(error: Exception) -> Untraceable:
    words = " ".join(str(error).split())[:160]
    return Untraceable(f"{type(error).__name__}{f' ({words})' if words else ''}", "", _line_of(error))


def _may_be_jax(error: Exception, r: Recorder) -> bool:
    """Whether JAX is there and something did not know what to do with a traced array."""
    wanted = r.failure is not None and ("an array is wanted" in r.failure.what or ATTRIBUTE in r.failure.what)
    return "jax" in sys.modules and (wanted or not isinstance(error, Untraceable))


def _of_jax(called: Called, box: Box, boxes: tuple[Box, Box] | None, vectorize: bool) -> Understood | None:
    """The same for functions of JAX, by the program that it makes of them; None where it makes none."""
    from maxaffine.tracing import jax_programs

    r = Recorder()
    try:
        found = jax_programs.outputs(
            lambda *values: called.given(called.function, values), _inputs(called, box, boxes, vectorize, r), r
        )
    except Exception:
        if r.failure is not None:
            raise r.failure from None
        return None
    return _result(found, r, box, vectorize)


def _plain_module(function: Any) -> Callable[..., Any]:
    """A module's `forward` where nothing else happens in its call."""
    if not is_module(function) or function._forward_hooks or function._forward_pre_hooks:
        return function  # type: ignore[no-any-return]
    return function.forward  # type: ignore[no-any-return]


def _inputs(called: Called, box: Box, boxes: tuple[Box, Box] | None, vectorize: bool, r: Recorder) -> list[Traced]:
    """What the function gets: the coordinates as symbols, in the shapes of numbers."""
    names = np.empty((1, box.dimension), dtype=object)
    for i, name in enumerate(box.names):
        names[0, i] = Symbol("name", (), name)
    cells = [names]
    if boxes is not None:
        cut = boxes[0].dimension
        cells = [names[:, :cut], names[:, cut:]]
    shaped = [_shaped(part, one) for part, one in zip(cells, boxes or (box,), strict=True)]
    if called.order is not None:
        shaped = [shaped[0][:, i] for i in called.order]
    return [Traced(_entry(part), None, r) if vectorize else Traced(part, 0, r) for part in shaped]


def _entry(cells: Any) -> Any:
    """The first entry of an array of symbols, an array of symbols again."""
    return cells[0] if cells.ndim > 1 else cells[:1].reshape(())


def _shaped(cells: Any, box: Box) -> Any:
    return cells.reshape(1, box.n, box.d).transpose(0, 2, 1) if box.is_sequence else cells


def _result(found: Any, r: Recorder, box: Box, vectorize: bool) -> Understood:
    """The outputs of what came back: (B,), (B, K), (B, d, n), or several (B,)."""
    if found is None:
        raise r.stop("the function returns nothing")
    if isinstance(found, (tuple, list)):
        parts = [_column(lifted(r, one), vectorize) for one in found]
        if any(p.ndim > (0 if vectorize else 1) for p in parts) and box.dimension > 1:
            raise r.stop(f"the function returns a {type(found).__name__} of arrays", "use np.stack([..], axis=-1)")
        like = next((p for p in parts if p.axis is not None), None)
        if like is not None:
            parts = [p if p.axis is not None else Traced(np.broadcast_to(p.cells, like.cells.shape), like.axis, r) for p in parts]
        found = rearranged(r, lambda *a: np.stack(a, axis=-1), *parts)
    elif not isinstance(found, Traced):
        array, axis = one_point(r, np.asarray(found))
        found = Traced(lifted(r, array).cells, axis, r)
    cells, axis = found.cells, found.axis
    if not vectorize:
        if axis != 0:
            raise r.stop(f"the function returns shape {found.shape}, whose first axis is not the batch")
        cells = _entry(cells)
    one = (box.dimension == 1 and not box.is_sequence) or (r.torch_seen and cells.ndim == 1)
    if one and cells.ndim >= 1 and cells.shape[0] == 1:
        cells = _entry(cells)  # (B, 1) counts as (B,)
    if cells.ndim > 2:
        raise r.stop(f"the function returns {cells.ndim} axes per point; (), (K,) or (d_out, n_out) are possible")
    from maxaffine.tracing.vocabulary import number

    return Understood(tuple(number(r, s) for s in cells.ravel()), cells.shape)


def _column(part: Traced, vectorize: bool) -> Traced:
    """One of several results: (B, 1) counts as (B,)."""
    extra = part.ndim == (1 if vectorize else 2) and part.cells.shape[-1] == 1
    return part[..., 0] if extra else part


def _spoken(called: Called, r: Recorder, box: Box, boxes: tuple[Box, Box] | None, vectorize: bool) -> Called:
    """Functions that were seen to use torch get tensors: float64 ones where they take them, else float32."""
    if called.tensors is not None or not (r.torch_seen or is_module(called.function)):
        return called
    probe = box.centre[None]
    for dtype in ("float64", "float32"):
        attempt = replace(called, tensors=dtype)
        try:
            _evaluation(attempt, box, boxes, vectorize)(probe)
        except Exception:  # a function that fails on both says so when it is called for its values
            continue
        return attempt
    return replace(called, tensors="float32")


def _evaluation(called: Called, box: Box, boxes: tuple[Box, Box] | None, vectorize: bool) -> Callable[[Any], Any]:
    """Values at points (B, D) as the function returns them."""

    def split(x: Any) -> tuple[Any, ...]:
        if boxes is None:
            return (box.unflatten(x) if box.is_sequence else x,)
        cut = boxes[0].dimension
        parts = x[:, :cut], x[:, cut:]
        return tuple(b.unflatten(p) if b.is_sequence else p for b, p in zip(boxes, parts, strict=True))

    def evaluate(x: Any) -> Any:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                if vectorize:
                    return np.stack([np.asarray(called(*(part[i] for part in split(x)))) for i in range(len(x))])
                return called(*(np.array(part) for part in split(x)))
            except Exception as error:
                raise _ended_by(error) from error

    return evaluate


def _same_twice(evaluate: Callable[[Any], Any], box: Box) -> None:
    """Untraceable where the function does not give the same values again."""
    x = box.sample(64, np.random.default_rng(1))
    first, second = np.asarray(evaluate(x)), np.asarray(evaluate(x))
    if first.shape != second.shape or not np.array_equal(first, second, equal_nan=True):
        raise Untraceable("the function gives other values when it is called again at the same points", line=None)


def _changed(first: Sequence[Symbol], second: Sequence[Symbol]) -> tuple[Line | None, str]:
    """The line of the first symbol that is another one in a second trace."""
    stack = list(zip(first, second, strict=False))
    seen: set[int] = set()
    while stack:
        a, b = stack.pop(0)
        if id(a) in seen:
            continue
        seen.add(id(a))
        if (a.op, a.text, len(a.args)) != (b.op, b.text, len(b.args)):
            return a.line, f": {a.text or a.op} became {b.text or b.op}"
        stack += list(zip(a.args, b.args, strict=True))
    return None, ""


def _line_of(error: BaseException) -> Line | None:
    """The innermost line of the user's code in a traceback."""
    found, step = None, error.__traceback__
    while step is not None:
        if not is_ours(step.tb_frame.f_globals.get("__name__", "")):
            found = Line(step.tb_frame.f_code.co_filename, step.tb_lineno)
        step = step.tb_next
    return found


__all__ = ["MaxaffineError", "read", "understood"]
