"""Functions of JAX: what jax.make_jaxpr writes down, carried out on symbols, equation by equation."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from maxaffine.tracing import numpy_functions as of_numpy
from maxaffine.tracing.array import BATCH, Traced, lifted, named, rearranged, reduced
from maxaffine.tracing.record import Line, Recorder
from maxaffine.tracing.vocabulary import MEANINGS

OWN = ("jax", "jaxlib", "maxaffine")
"""Folders whose lines are not the user's."""

INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")
"""Where equations that call a function keep it."""

NAMES = {
    "logistic": "sigmoid", "lgamma": "loggamma", "max": "maximum", "min": "minimum", "and": "logical_and", "or": "logical_or",
    "not": "logical_not", "xor": "logical_xor", "add_any": "add", "bessel_i0e": "", "bessel_i1e": "", "rem": "",
}  # fmt: skip
"""JAX's names where the language has others; none where it means something else."""


def outputs(function: Callable[..., Any], given: Sequence[Traced], r: Recorder) -> Any:
    """What the function returns for symbols, by its program for arrays of their shapes."""
    import jax

    shapes = [jax.ShapeDtypeStruct(one.shape, np.float64) for one in given]
    with jax.enable_x64(True):
        program, form = jax.make_jaxpr(function, return_shape=True)(*shapes)
        found = _run(r, program.jaxpr, program.consts, given)
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(form), found)


def _run(r: Recorder, program: Any, constants: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """The results of a program."""
    known: dict[Any, Any] = {}

    def value(name: Any) -> Any:
        return np.asarray(name.val) if hasattr(name, "val") else known[name]

    known.update(zip(program.constvars, (np.asarray(c) for c in constants), strict=True))
    known.update(zip(program.invars, given, strict=True))
    for equation in program.eqns:
        results = _equation(r, equation, [value(name) for name in equation.invars])
        known.update(zip(equation.outvars, results, strict=True))
    return [value(name) for name in program.outvars]


def _equation(r: Recorder, equation: Any, args: list[Any]) -> list[Any]:
    name, options = equation.primitive.name, equation.params
    inner = next((options[key] for key in INNER if key in options), None)
    if inner is not None and name not in ("while", "scan", "cond"):
        program = getattr(inner, "jaxpr", inner)
        return _run(r, program, getattr(inner, "consts", ()), args[: len(program.invars)])
    if not any(isinstance(a, Traced) for a in args):
        found = equation.primitive.bind(*args, **options)
        return [np.asarray(one) for one in found] if equation.primitive.multiple_results else [np.asarray(found)]
    if name in PRIMITIVES:
        return [PRIMITIVES[name](r, *args, **options)]
    plain = NAMES.get(name, name)
    if plain not in MEANINGS:
        raise r.stop(f"JAX's `{name}` is not an operation of the language", line=_line(equation))
    return [named(r, plain, *args)]


def _line(equation: Any) -> Line | None:
    """The line of the user's code that an equation comes from, as far as JAX tells."""
    try:
        frames = equation.source_info.traceback.frames
        return next(Line(f.file_name, f.line_num) for f in frames if not any(f"/{own}/" in f.file_name for own in OWN))
    except (AttributeError, StopIteration):
        return None


def _broadcast(r: Recorder, a: Traced, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], **_: Any) -> Traced:
    def change(array: Any) -> Any:
        whole, long = BATCH in array.shape, [1] * len(shape)
        for i, d in enumerate(broadcast_dimensions):
            long[d] = array.shape[i]
        return np.broadcast_to(array.reshape(long), [n if whole or n != BATCH else 1 for n in shape])

    return rearranged(r, change, a)


def _dot(r: Recorder, a: Any, b: Any, *, dimension_numbers: Any, **_: Any) -> Traced:
    (left, right), (left_batch, right_batch) = dimension_numbers
    letters = iter(string.ascii_lowercase)
    first = [next(letters) for _ in range(np.ndim(a) if not isinstance(a, Traced) else a.ndim)]
    second = [next(letters) for _ in range(np.ndim(b) if not isinstance(b, Traced) else b.ndim)]
    for i, j in (*zip(left, right, strict=True), *zip(left_batch, right_batch, strict=True)):
        second[j] = first[i]
    out = [first[i] for i in left_batch]
    out += [c for i, c in enumerate(first) if i not in (*left, *left_batch)]
    out += [c for j, c in enumerate(second) if j not in (*right, *right_batch)]
    return of_numpy.einsum(r, f"{''.join(first)},{''.join(second)}->{''.join(out)}", a, b)


def _slice(r: Recorder, a: Traced, *, start_indices: Any, limit_indices: Any, strides: Any, **_: Any) -> Traced:
    steps = strides or [1] * len(start_indices)
    return a[tuple(slice(i, j, k) for i, j, k in zip(start_indices, limit_indices, steps, strict=True))]


def _converted(r: Recorder, a: Traced, *, new_dtype: Any, **_: Any) -> Traced:
    return of_numpy.cast(r, a, np.dtype(new_dtype))


def _power(r: Recorder, a: Traced, *, y: int, **_: Any) -> Traced:
    return named(r, "power", a, y)


def _over(name: str) -> Callable[..., Traced]:
    return lambda r, a, *, axes, **_: reduced(r, name, a, tuple(axes))


PRIMITIVES: dict[str, Callable[..., Any]] = {
    "broadcast_in_dim": _broadcast, "dot_general": _dot, "slice": _slice, "convert_element_type": _converted,
    "integer_pow": _power,
    "squeeze": lambda r, a, *, dimensions, **_: rearranged(r, lambda x: np.squeeze(x, tuple(dimensions)), a),
    "expand_dims": lambda r, a, *, dimensions, **_: rearranged(r, lambda x: np.expand_dims(x, tuple(dimensions)), a),
    "reshape": lambda r, a, *, new_sizes, **_: of_numpy.reshape(r, a, tuple(new_sizes)),
    "transpose": lambda r, a, *, permutation, **_: a.transpose(tuple(permutation)),
    "rev": lambda r, a, *, dimensions, **_: rearranged(r, lambda x: np.flip(x, tuple(dimensions)), a),
    "stack": lambda r, *parts, axis=0, **_: of_numpy.stack(r, parts, axis),
    "concatenate": lambda r, *parts, dimension, **_: of_numpy.concatenate(r, parts, dimension),
    "select_n": lambda r, c, no, yes, **_: of_numpy.where(r, c, yes, no),
    "clamp": lambda r, low, a, high, **_: of_numpy.clip(r, a, low, high),
    "reduce_sum": _over("add"), "reduce_prod": _over("multiply"), "reduce_max": _over("maximum"), "reduce_min": _over("minimum"),
    "stop_gradient": lambda r, a, **_: a, "copy": lambda r, a, **_: a, "copy_p": lambda r, a, **_: a,
    "rem": lambda r, a, b, **_: named(r, "subtract", a, named(r, "multiply", b, named(r, "trunc", named(r, "divide", a, b)))),
    "erfc": lambda r, a, **_: named(r, "erfc", a), "real": lambda r, a, **_: lifted(r, a),
}  # fmt: skip
