"""Calling a user's function, and saying what is wrong with what comes back."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput, MaxaffineError
from maxaffine.target.box import Box

_WAY_OUT = "pass `vectorize=True` to have it called one point at a time"
_NOT_VECTORISED = (
    "only length-1 arrays",
    "only 0-dimensional arrays",
    "truth value of an array",
    "must be real number",
    "only integer scalar",
)


def call_batch(function: Callable[..., Any], inputs: tuple[Array, ...], count: int) -> tuple[Array, tuple[int, ...]]:
    """function(*inputs) for a batch of `count` points: its values (count, ...) and the shape of one entry."""
    array, shapes = _called(function, inputs, batch=True)
    if array.ndim == 0 or len(array) != count or array.ndim > 3:
        raise BadInput(
            f"the target returned an array of shape {array.shape} for {count} points (input of shape {shapes}); "
            f"it must be ({count},), ({count}, K) or ({count}, d_out, n_out).  If it takes single points, {_WAY_OUT}."
        )
    return array, array.shape[1:]


def call_points(function: Callable[..., Any], inputs: tuple[Array, ...], count: int) -> tuple[Array, tuple[int, ...]]:
    """The same, one point at a time."""
    rows: list[Array] = []
    for i in range(count):
        array, _ = _called(function, tuple(part[i] for part in inputs), batch=False)
        if rows and array.shape != rows[0].shape:
            raise BadInput(
                f"the target returned shape {array.shape} for one point and {rows[0].shape} for another; they must agree."
            )
        if array.ndim > 2:
            raise BadInput(f"the target returned shape {array.shape} for one point; it must be (), (K,) or (d_out, n_out).")
        rows.append(array)
    if not rows:
        return np.empty((0,)), ()
    return np.stack(rows), rows[0].shape


def _called(function: Callable[..., Any], inputs: tuple[Array, ...], batch: bool) -> tuple[Array, str]:
    """What the function returns, in float64, and the shapes of its inputs in words."""
    shapes = " and ".join(str(part.shape) for part in inputs)
    copies = tuple(np.array(part) for part in inputs)  # what a function does to its input stays there
    try:
        return _real(function(*copies), shapes), shapes
    except MaxaffineError:
        raise
    except Exception as error:
        if not batch:
            raise BadInput(f"the target raised {_said(error)} for one point, an input of shape {shapes}.") from error
        alone = any(hint in str(error) for hint in _NOT_VECTORISED)
        advice = f"it seems to expect single points: {_WAY_OUT}" if alone else f"it is called with batches; {_WAY_OUT}"
        advice = _takes_other(function, inputs) or advice
        raise BadInput(f"the target raised {_said(error)} for an input of shape {shapes}; {advice}.") from error


def _takes_other(function: Callable[..., Any], inputs: tuple[Array, ...]) -> str | None:
    """What a function gets that takes another number of arguments; None where it takes as many."""
    try:
        inspect.signature(function).bind(*inputs)
    except ValueError:  # a function in C, which does not tell
        return None
    except TypeError:
        if len(inputs) == 2:
            return "a function of two inputs is called with two arrays, the query's and the context's"
        return "a function of a sequence is called with one array (B, d, n)" if inputs[0].ndim == 3 else None
    return None


def check_finite(values: Array, points: Array, box: Box, description: str) -> None:
    """BadInput with the first point at which a value is NaN or infinite."""
    bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        value = values.reshape(len(values), -1)[row]
        first = value[~np.isfinite(value)][0]
        where = ", ".join(f"{n}={v:.6g}" for n, v in zip(box.names[:8], points[row], strict=False))
        what = description if description.startswith("the function") else f"`{description}`"
        raise BadInput(f"{what} is {first} at {where}; a target must be finite on its whole box.")


def _said(error: Exception) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__} ({words[:200]})" if words else type(error).__name__


def _real(found: Any, shapes: str) -> Array:
    """What a function returned, as float64."""
    if found is None:
        raise BadInput(f"the target returned None for an input of shape {shapes}; it must return its values.")
    try:
        array = np.asarray(found)
    except Exception as error:
        raise BadInput(
            f"the target returned something that is not an array ({_said(error)}) for an input of shape {shapes}."
        ) from None
    if array.dtype.kind == "c":
        raise BadInput(f"the target returned complex numbers for an input of shape {shapes}; return a real part, or two outputs.")
    if array.dtype.kind not in "fiub":
        kind = f"{array.dtype} values (a {type(found).__name__})"
        raise BadInput(f"the target returned {kind} for an input of shape {shapes}; it must return real numbers.")
    return array.astype(np.float64)
