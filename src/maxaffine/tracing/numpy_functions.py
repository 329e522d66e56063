"""Functions and methods of NumPy on traced arrays: what rearranges, what sums up, what chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from maxaffine.tracing.array import BATCH, Traced, alike, constant, elementwise, lifted, matmul, named, rearranged, reduced
from maxaffine.tracing.ordering import ascending, middle, rows_of
from maxaffine.tracing.record import Recorder
from maxaffine.tracing.vocabulary import MEANINGS, PI, SEVERAL, number

IGNORED = ("out", "where", "dtype", "subok", "like", "device", "casting", "optimize")
UNREAD = ("initial", "weights", "left", "right", "period", "correction", "order", "returned", "prepend", "append")
"""Options that change what is computed."""

ORDERS = {"jv": 1, "yv": 1, "iv": 1, "kv": 1, "jn": 1, "betainc": 2, "gammainc": 1, "gammaincc": 1}
"""How many first arguments are numbers in the language."""


def universal(r: Recorder, ufunc: Any, method: str, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """A universal function of NumPy or SciPy on traced arrays."""
    name = ufunc.__name__
    out = options.pop("out", (None,))
    if options.get("where", True) is not True or (out[0] is not None and not isinstance(out[0], Traced)):
        why = "use np.where" if out[0] is None else "begin with 0.0 or np.zeros_like(x) what is added to, or write a = a + b"
        raise r.stop(f"`np.{name}` is called with `out` or `where`, or writes into an array that was there before", why)
    if out[0] is not None:
        return out[0].written_over(universal(r, ufunc, method, inputs, options))
    options = _options(r, name, options)
    if method == "reduce" and len(inputs) == 1:
        return reduced(r, name, inputs[0], options.get("axis", 0), options.get("keepdims", False))
    if method != "__call__":
        raise r.stop(f"`np.{name}.{method}` is not an operation of the language")
    if name == "matmul":
        return matmul(r, *inputs)
    if name in SEVERAL and ufunc.nout == len(SEVERAL[name]):
        return tuple(elementwise(r, one, *inputs) for one in SEVERAL[name])
    if any(isinstance(a, Traced) for a in inputs[: ORDERS.get(name, 0)]):
        raise r.stop(f"the first argument of `{name}` depends on the point", "in the language it is a number")
    return named(r, name, *inputs)


def call(r: Recorder, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A function of NumPy by its name."""
    name, module = function.__name__, getattr(function, "__module__", "") or ""
    if "linalg" in module and name != "norm":
        raise r.stop(f"`np.linalg.{name}` is not an operation of the language")
    if any(kwargs.get(option) is not None for option in ("out", "where")):
        raise r.stop(f"`np.{name}` is called with `out` or `where`", "use its result, and np.where")
    found = FUNCTIONS.get(name)
    if found is None:
        raise r.stop(f"`np.{name}` is not an operation of the language", "docs/functions.md lists those that are")
    return found(r, *args, **_options(r, name, kwargs))


def _options(r: Recorder, name: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """What is asked of a function beside its arrays; an option that is not read ends the trace."""
    for option in UNREAD:
        value = kwargs.get(option)
        if not (value is None or value is np._NoValue or (option == "order" and value in ("C", "K", "A"))):
            raise r.stop(f"`np.{name}` is called with `{option}`, which is not read", "write out what it computes")
    if kwargs.get("dtype") is not None and _kind(kwargs["dtype"]) != "f":
        raise r.stop(f"`np.{name}` is called with dtype={kwargs['dtype']}, which changes numbers", "leave the dtype out")
    return {key: value for key, value in kwargs.items() if key not in (*IGNORED, *UNREAD)}


PLAIN = {"device": "cpu", "requires_grad": False, "is_cuda": False}
"""Attributes that are the same for all arrays."""


def _kind(dtype: Any) -> str:
    """The kind of numbers of NumPy or torch, "" for those of fewer bits than float32 has."""
    try:
        found = np.dtype(str(dtype).removeprefix("torch.") if "torch" in str(dtype) else dtype)
    except TypeError:
        return ""
    return found.kind if found.kind == "b" or found.itemsize >= 4 else ""


def cast(r: Recorder, array: Traced, dtype: Any = None) -> Traced:
    """The same numbers in another type: as they are in one of floats; integers of conditions only, as others are cut off."""
    kind = "f" if dtype is None else _kind(dtype)
    if kind == "b":
        return named(r, "logical_and", array, True)
    if kind != "f" and not (kind == "i" and array.is_mask):
        raise r.stop(f"values are turned into {dtype}, which changes them", "use np.floor or np.where")
    return named(r, "positive", array)


def method(array: Traced, name: str) -> Any:
    """A method or an attribute of arrays and tensors; None for what has no meaning."""
    if name in PLAIN:
        return PLAIN[name]
    if name == "real":
        return array
    from maxaffine.tracing import torch_functions

    if name not in METHODS or (array.recorder.torch_seen and name in torch_functions.FUNCTIONS):
        return torch_functions.method(array, name)

    def called(*args: Any, **kwargs: Any) -> Any:
        tensors = {"dim", "keepdim", "start_dim", "end_dim"} & set(kwargs) or (name == "flatten" and args and args[0] != "C")
        if tensors:
            return torch_functions.method(array, name)(*args, **kwargs)
        return METHODS[name](array.recorder, array, *args, **_options(array.recorder, name, kwargs))

    return called


# ---------------------------------------------------------------------- rearranging


def _moved(change: Callable[..., Any]) -> Callable[..., Traced]:
    """A function of one array and plain arguments that takes or moves entries."""
    return lambda r, array, *args, **kwargs: rearranged(r, lambda a: change(a, *args, **kwargs), lifted(r, array))


def _one(shape: Sequence[int], array: Any) -> tuple[int, ...]:
    """A shape, for the points themselves or for the symbols of one point."""
    whole = BATCH in np.shape(array)
    return tuple(n if whole or n != BATCH else 1 for n in shape)


def reshape(r: Recorder, array: Traced, *given: Any, shape: Any = None, **_: Any) -> Traced:
    """Another shape with the batch in its place."""
    shape = given or (shape,)
    flat = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    return rearranged(r, lambda a: np.reshape(a, _one([int(n) for n in flat], a)), array)


def _broadcast(r: Recorder, array: Any, shape: Sequence[int], **_: Any) -> Traced:
    return rearranged(r, lambda a: np.broadcast_to(a, _one(shape, a)), lifted(r, array))


def joined(change: Callable[..., Any]) -> Callable[..., Traced]:
    """A function of a list of arrays, numbers among them."""

    def function(r: Recorder, arrays: Sequence[Any], *args: Any, **kwargs: Any) -> Traced:
        parts = [arrays[i] for i in range(len(arrays))] if isinstance(arrays, Traced) else list(arrays)
        like = next((one for one in parts if isinstance(one, Traced)), None)
        made = [lifted(r, one, like) for one in parts]
        if not all(one.is_mask for one in made):  # conditions beside numbers become numbers
            made = [elementwise(r, number, one) for one in made]
        if like is not None:
            made = [_like(r, one, like) for one in made]
        return rearranged(r, lambda *a: change(list(a), *args, **kwargs), *made)

    return function


def _like(r: Recorder, one: Traced, like: Traced) -> Traced:
    """Numbers without a batch beside arrays that have one: an axis of length 1 there is as long as the batch."""
    if one.axis is None and like.axis is not None and one.ndim == like.ndim and one.cells.shape[like.axis] == 1:
        return Traced(one.cells, like.axis, r)
    return one


def _full_like(r: Recorder, array: Any, fill_value: Any, shape: Any = None, **_: Any) -> Traced:
    if shape is not None:
        raise r.stop("an array like another is made in another shape", "put it together with np.stack([..], axis=-1)")
    filled = elementwise(r, lambda __, ___, b: b, array, fill_value)
    return alike(filled, lifted(r, array))


def _filled(value: float) -> Callable[..., Traced]:
    return lambda r, array, **more: _full_like(r, array, value, **more)


# ---------------------------------------------------------------------- along axes


def _reduction(name: str) -> Callable[..., Traced]:
    def function(r: Recorder, array: Any, axis: Any = None, keepdims: Any = False, **_: Any) -> Traced:
        return reduced(r, name, array, axis, bool(keepdims) and keepdims is not np._NoValue)

    return function


total, most, least, product = (_reduction(name) for name in ("add", "maximum", "minimum", "multiply"))


def mean(r: Recorder, array: Any, axis: Any = None, keepdims: Any = False, **_: Any) -> Traced:
    """Sum over count."""
    added = total(r, array, axis, keepdims)
    over = np.size(array) if not isinstance(array, Traced) else array.size
    count = over if axis is None else int(np.prod([np.shape(array)[a] for a in np.atleast_1d(axis)]))
    return named(r, "divide", added, count)


def _variance(r: Recorder, array: Any, axis: Any = None, ddof: Any = 0, keepdims: Any = False, **_: Any) -> Traced:
    away = named(r, "square", named(r, "subtract", array, mean(r, array, axis, True)))
    count = int(np.prod([np.shape(array)[a] for a in np.atleast_1d(axis)])) if axis is not None else np.size(array)
    return named(r, "divide", total(r, away, axis, keepdims), count - ddof)


def norm(r: Recorder, x: Any, ord: Any = None, axis: Any = None, keepdims: Any = False, **_: Any) -> Traced:
    """The norms of vectors that the language can write."""
    if ord is not None and axis is not None and np.size(axis) == 2:
        raise r.stop("`norm` of matrices with `ord` is not an operation of the language", "leave `ord` out, or use np.sum")
    if ord in (None, 2, "fro"):
        return named(r, "sqrt", total(r, named(r, "square", x), axis, keepdims))
    if ord in (np.inf, -np.inf):
        return (most if ord > 0 else least)(r, named(r, "absolute", x), axis, keepdims)
    size = named(r, "absolute", x)
    if ord == 1:
        return total(r, size, axis, keepdims)
    if not isinstance(ord, (int, float)) or ord == 0:
        raise r.stop(f"`norm` of order {ord!r} is not an operation of the language")
    return named(r, "power", total(r, named(r, "power", size, ord), axis, keepdims), 1.0 / ord)


def _cumulative(name: str) -> Callable[..., Traced]:
    def function(r: Recorder, array: Any, axis: Any = None, **_: Any) -> Traced:
        traced = elementwise(r, number, lifted(r, array))
        at = 0 if axis is None and traced.ndim == 1 else axis
        if at is None or traced.axis == at % traced.ndim:
            raise r.stop("a cumulative sum goes over the points of a batch", "give the axis of the coordinates")
        rows = [traced[(slice(None),) * (at % traced.ndim) + (i,)] for i in range(traced.shape[at])]
        kept = [rows[0]]
        for row in rows[1:]:
            kept.append(named(r, name, kept[-1], row))
        return stack(r, kept, at % traced.ndim)

    return function


def _sorted(r: Recorder, a: Any, axis: Any = -1, **_: Any) -> Traced:
    """np.sort along an axis of coordinates or tokens."""
    rows, at = rows_of(r, a, axis, "sort")
    return stack(r, ascending(r, rows), at)


def einsum(r: Recorder, rule: str, *operands: Any, **_: Any) -> Traced:
    """Sums of products by letters, without dots."""
    left, arrow, out = rule.replace(" ", "").partition("->")
    inputs = left.split(",")
    if "." in rule or len(inputs) != len(operands) or any(len(set(i)) < len(i) for i in inputs):
        raise r.stop(f"`np.einsum({rule!r}, ..)` is not an operation of the language", "write it with @ and np.sum")
    letters = sorted(set(left) - {","})
    out = out if arrow else "".join(c for c in letters if left.count(c) == 1)
    order = [*out, *(c for c in letters if c not in out)]
    parts = []
    for rule_in, operand in zip(inputs, operands, strict=True):
        array = operand if isinstance(operand, Traced) else constant(operand)
        there = [c for c in order if c in rule_in]
        array = array.transpose([rule_in.index(c) for c in there])
        parts.append(array[tuple(slice(None) if c in rule_in else None for c in order)])
    product = reduce(partial(named, r, "multiply"), parts)
    product = product if isinstance(product, Traced) else lifted(r, product)
    added = "logical_or" if product.is_mask else "add"
    return reduced(r, added, product, tuple(range(len(out), len(order)))) if len(order) > len(out) else product


# ---------------------------------------------------------------------- choosing


def where(r: Recorder, condition: Any, *branches: Any, **_: Any) -> Traced:
    """where(c, a, b); of known conditions the branch itself."""
    if len(branches) != 2:
        raise r.stop("`np.where` with a condition alone lists places", "give it the two values to choose from")
    return named(r, "where", condition, *branches)


def _select(r: Recorder, conditions: Sequence[Any], choices: Sequence[Any], default: Any = 0) -> Traced:
    result = default
    for c, a in zip(reversed(conditions), reversed(choices), strict=True):
        result = where(r, c, a, result)
    return lifted(r, result)


def clip(r: Recorder, a: Any, a_min: Any = None, a_max: Any = None, min: Any = None, max: Any = None, **_: Any) -> Traced:
    """min(max(a, low), high), either side left out where it is None or infinite."""
    low, high = a_min if a_min is not None else min, a_max if a_max is not None else max
    low = None if low is None or _everywhere(low, -np.inf) else low
    high = None if high is None or _everywhere(high, np.inf) else high
    found = named(r, "positive", a) if low is None else named(r, "maximum", a, low)
    return found if high is None else named(r, "minimum", found, high)


def _everywhere(value: Any, one: float) -> bool:
    return not isinstance(value, Traced) and bool((constant(value) == one).all())


def _interpolated(r: Recorder, x: Any, xp: Any, fp: Any, *more: Any, **_: Any) -> Traced:
    """Straight pieces between known points, constant beyond them: the last slope, and its change at every point."""
    if any(one is not None for one in more):
        raise r.stop("`np.interp` is called with values beyond its ends, or a period", "use np.where for what lies beyond")
    at, f = np.asarray(xp, dtype=np.float64), np.asarray(fp, dtype=np.float64)
    if len(at) < 2 or not (np.diff(at) > 0.0).all():
        raise r.stop("the points of `np.interp` do not increase", "sort them, and leave out those that stand twice")
    u = clip(r, x, float(at[0]), float(at[-1]))
    result: Any = float(f[-1])
    for i in range(len(at) - 2, -1, -1):
        share = named(r, "divide", named(r, "subtract", u, float(at[i])), float(at[i + 1]) - float(at[i]))
        piece = named(r, "add", float(f[i]), named(r, "multiply", float(f[i + 1]) - float(f[i]), share))
        result = piece if i == len(at) - 2 else where(r, named(r, "less", u, float(at[i + 1])), piece, result)
    return lifted(r, result)


def _sinc(r: Recorder, x: Any) -> Traced:
    """NumPy's sinc, sin(pi x)/(pi x)."""
    return elementwise(r, lambda q, a: q.make("sinc", q.make("*", PI, a)), x)


def _polynomial(r: Recorder, p: Any, x: Any) -> Traced:
    found: Any = 0.0
    for c in p:
        found = named(r, "add", named(r, "multiply", found, x), c)
    return lifted(r, found)


stack, concatenate = joined(np.stack), joined(np.concatenate)

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "where": where, "select": _select, "clip": clip, "interp": _interpolated, "sinc": _sinc, "polyval": _polynomial,
    "sum": total, "prod": product, "mean": mean, "average": mean, "max": most, "amax": most, "min": least, "amin": least,
    "var": _variance, "std": lambda r, *a, **k: named(r, "sqrt", _variance(r, *a, **k)), "norm": norm,
    "cumsum": _cumulative("add"), "cumprod": _cumulative("multiply"), "sort": _sorted, "median": middle,
    "dot": matmul, "matmul": matmul, "inner": lambda r, a, b: matmul(r, a, np.swapaxes(b, -1, -2) if np.ndim(b) > 1 else b),
    "einsum": einsum, "stack": stack, "concatenate": concatenate, "hstack": joined(np.hstack), "vstack": joined(np.vstack),
    "column_stack": joined(np.column_stack), "dstack": joined(np.dstack),
    "transpose": _moved(np.transpose), "moveaxis": _moved(np.moveaxis), "swapaxes": _moved(np.swapaxes),
    "squeeze": _moved(np.squeeze), "expand_dims": _moved(np.expand_dims), "flip": _moved(np.flip), "roll": _moved(np.roll),
    "take": _moved(np.take), "tile": _moved(np.tile), "repeat": _moved(np.repeat), "atleast_1d": _moved(np.atleast_1d),
    "atleast_2d": _moved(np.atleast_2d), "ravel": _moved(np.ravel), "reshape": reshape, "broadcast_to": _broadcast,
    "delete": _moved(np.delete), "copy": lambda r, a, **_: elementwise(r, lambda __, x: x, a),
    "zeros_like": _filled(0), "ones_like": _filled(1), "empty_like": _filled(0), "full_like": _full_like,
    "real": lambda r, a: lifted(r, a), "real_if_close": lambda r, a, **_: lifted(r, a),
    "shape": lambda r, a: a.shape, "ndim": lambda r, a: a.ndim, "size": lambda r, a, **_: a.size,
    "iscomplexobj": lambda r, a: False, "isrealobj": lambda r, a: True,
    "diff": lambda r, a, n=1, axis=-1: named(r, "subtract", *_neighbours(r, a, n, axis)),
}  # fmt: skip


def _neighbours(r: Recorder, a: Any, n: int, axis: int) -> tuple[Traced, Traced]:
    traced = lifted(r, a)
    at = axis % traced.ndim
    if n != 1 or traced.axis == at:
        raise r.stop("`np.diff` goes over the points of a batch, or more than once", "write the differences out")
    before = (slice(None),) * at
    return traced[(*before, slice(1, traced.shape[at]))], traced[(*before, slice(0, traced.shape[at] - 1))]


METHODS: dict[str, Callable[..., Any]] = {
    **{name: FUNCTIONS[name] for name in (
        "sum", "prod", "mean", "max", "min", "clip", "dot", "var", "std", "squeeze", "ravel", "take", "repeat", "copy", "cumsum",
        "cumprod", "swapaxes",
    )},
    "reshape": reshape, "flatten": lambda r, a, *_, **__: FUNCTIONS["copy"](r, FUNCTIONS["ravel"](r, a)),
    "astype": lambda r, a, dtype=None, *_, copy=True, **__: a if not copy and a.dtype == dtype else cast(r, a, dtype),
    "conj": lambda r, a: a, "conjugate": lambda r, a: a,
}  # fmt: skip


def ufunc_names() -> tuple[str, ...]:
    """The universal functions that have a meaning, for the documentation."""
    return tuple(sorted(name for name in MEANINGS if hasattr(np, name)))
