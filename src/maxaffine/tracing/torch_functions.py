"""Functions and modules of torch on traced arrays, which speak torch's protocol as they speak NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from maxaffine.tracing import numpy_functions as of_numpy
from maxaffine.tracing.array import Traced, constant, elementwise, lifted, matmul, named, rearranged
from maxaffine.tracing.record import Recorder, Symbol
from maxaffine.tracing.torch_attention import multi_head, scaled_dot_product
from maxaffine.tracing.vocabulary import MEANINGS, SEVERAL, choice

CASTS = {"float": "float32", "double": "float64", "bool": "bool", "int": "int32", "long": "int64"}
"""Methods that give the same numbers in another type."""

IGNORED = ("out", "dtype", "inplace", "memory_format", "_stacklevel")


def call(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A function of torch by its name."""
    r = _recorder((*args, *kwargs.values()))
    r.torch_seen = True
    full = getattr(function, "__name__", str(function))
    name = full.strip("_").removeprefix("linalg_")
    if name == "norm" and full.startswith("linalg_"):
        name = "linalg_norm"
    for prefix in ("special_", "modified_", "bessel_"):
        name = name.removeprefix(prefix)
    if kwargs.get("out") is not None:
        raise r.stop(f"`torch.{name}` is called with `out`", "use its result")
    if _is_in_place(full) or kwargs.get("inplace"):
        plain = {key: value for key, value in kwargs.items() if key != "inplace"}
        return args[0].written_over(_called(r, name, full, args, plain))
    return _called(r, name, full, args, kwargs)


def _is_in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _called(r: Recorder, name: str, full: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if kwargs.get("dtype") is not None and name not in ("zeros_like", "ones_like", "full_like"):
        args = (of_numpy.cast(r, lifted(r, args[0]), kwargs["dtype"]), *args[1:])
    kwargs = {key: value for key, value in kwargs.items() if key not in IGNORED}
    if name in FUNCTIONS:
        return FUNCTIONS[name](r, *args, **kwargs)
    if full.startswith("__r") and name[1:] in MEANINGS:
        name, args = name[1:], args[::-1]
    if name in MEANINGS and not kwargs:
        return elementwise(r, MEANINGS[name], *args)
    if name in SEVERAL:
        return tuple(elementwise(r, one, *args) for one in SEVERAL[name])
    raise r.stop(f"`torch.{name}` is not an operation of the language", "docs/functions.md lists those that are")


def method(array: Traced, name: str) -> Any:
    """A method of tensors; None for what has no meaning."""
    r = array.recorder
    r.torch_seen = r.torch_seen or name in FUNCTIONS
    if name in CASTS:
        return lambda: of_numpy.cast(r, array, CASTS[name])
    if name in ("detach", "contiguous", "cpu"):
        return lambda *_, **__: array
    if name == "to":
        return lambda *given, **more: _to(r, array, *given, **more)
    if name == "clone":
        return lambda *_, **__: of_numpy.FUNCTIONS["copy"](r, array)
    if name == "dim":
        return lambda: array.ndim
    if _is_in_place(name):
        plain = method(array, name[:-1])
        return plain and (lambda *args, **kwargs: array.written_over(plain(*args, **kwargs)))
    if name in FUNCTIONS:
        return partial(FUNCTIONS[name], r, array)
    if name in MEANINGS:
        return partial(elementwise, r, MEANINGS[name], array)
    return None


def _to(r: Recorder, array: Traced, *given: Any, **more: Any) -> Traced:
    """Another type or another device, the numbers as they are."""
    for one in (*given, *more.values()):
        dtype = getattr(one, "dtype", one)
        if "torch." in str(dtype):
            return of_numpy.cast(r, array, dtype)
    return array


def _recorder(values: Sequence[Any]) -> Recorder:
    for value in values:
        if isinstance(value, Traced):
            return value.recorder
        if isinstance(value, (list, tuple)) and any(isinstance(one, Traced) for one in value):
            return _recorder(value)
    raise TypeError("no traced array among the arguments")


def _along(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch's `dim` and `keepdim` are NumPy's `axis` and `keepdims`."""

    def reduced(
        r: Recorder, array: Any, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool = False
    ) -> Any:
        return function(r, array, axis=axis if dim is None else dim, keepdims=keepdim or keepdims)

    return reduced


def _spread(name: str) -> Callable[..., Any]:
    """torch's std and var: over one less than there are, if nothing else is said."""

    def function(
        r: Recorder, array: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = None
    ) -> Traced:
        less = int(unbiased) if correction is None else correction
        found: Traced = of_numpy.FUNCTIONS[name](r, array, axis=dim, ddof=less, keepdims=keepdim)
        return found

    return function


class Extreme(NamedTuple):
    """What torch's max and min along a dimension give."""

    values: Traced
    indices: None


def _extreme(name: str) -> Callable[..., Any]:
    def function(r: Recorder, array: Any, other: Any = None, keepdim: bool = False, dim: Any = None, axis: Any = None) -> Any:
        if isinstance(other, Traced) or hasattr(other, "detach"):
            return named(r, name, array, other)
        dim = axis if dim is None else dim
        axis = other if dim is None else dim
        found = (of_numpy.most if name == "maximum" else of_numpy.least)(r, array, axis, keepdim)
        return found if axis is None else Extreme(found, None)

    return function


def linear(r: Recorder, x: Any, weight: Any, bias: Any = None) -> Traced:
    """x W^T + b."""
    found = matmul(r, x, np.swapaxes(constant(weight), -1, -2))
    return found if bias is None else named(r, "add", found, bias)


def _scaled(name: str) -> Callable[..., Any]:
    def function(r: Recorder, a: Any, b: Any, *, alpha: Any = 1) -> Traced:
        return named(r, name, a, b if alpha == 1 else named(r, "multiply", alpha, b))

    return function


def _divided(r: Recorder, a: Any, b: Any, *, rounding_mode: str | None = None) -> Traced:
    found = named(r, "divide", a, b)
    return found if rounding_mode is None else named(r, "floor" if rounding_mode == "floor" else "trunc", found)


def _softplus(r: Recorder, x: Any, beta: float = 1.0, threshold: float = 20.0) -> Traced:
    """log(1 + e^(beta x))/beta; beyond the threshold torch gives x, from 20 on as much as rounding in float32."""
    steep = named(r, "multiply", beta, x)
    found = named(r, "divide", named(r, "softplus", steep), beta)
    return found if threshold >= 20.0 else named(r, "where", named(r, "greater", steep, threshold), x, found)


def _gelu(r: Recorder, x: Any, approximate: str = "none") -> Traced:
    return named(r, "gelu" if approximate == "none" else "gelu_tanh", x)


def _leaky(r: Recorder, x: Any, negative_slope: float = 0.01, *_: Any) -> Traced:
    slope = float(negative_slope)
    return named(r, "maximum" if slope <= 1.0 else "minimum", x, named(r, "multiply", slope, x))


def _elu(r: Recorder, x: Any, alpha: float = 1.0, *_: Any) -> Traced:
    def meaning(q: Recorder, a: Symbol) -> Symbol:
        return choice(q, q.make(">", a, q.number(0)), a, q.make("*", q.number(alpha), q.make("expm1", a)))

    return elementwise(r, meaning, x)


def _softmax(r: Recorder, x: Any, dim: int = -1, **_: Any) -> Traced:
    powers = named(r, "exp", x)
    return named(r, "divide", powers, of_numpy.total(r, powers, dim, True))


def _layer_norm(
    r: Recorder, x: Any, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Traced:
    axes = tuple(range(-len(tuple(shape)), 0))
    away = named(r, "subtract", x, of_numpy.mean(r, x, axes, True))
    spread = of_numpy.mean(r, named(r, "square", away), axes, True)
    found = named(r, "divide", away, named(r, "sqrt", named(r, "add", spread, eps)))
    found = found if weight is None else named(r, "multiply", found, weight)
    return found if bias is None else named(r, "add", found, bias)


def _batch_norm(
    r: Recorder,
    x: Any,
    mean: Any,
    var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    *rest: Any,
    **more: Any,
) -> Traced:
    if training:
        raise r.stop("a batch norm in training mode mixes the points of a batch", "call .eval() on the module")
    eps = more.get("eps", rest[-1] if rest and isinstance(rest[-1], float) else 1e-5)
    found = named(r, "divide", named(r, "subtract", x, mean), np.sqrt(constant(var).astype(np.float64) + eps))
    found = found if weight is None else named(r, "multiply", found, weight)
    return found if bias is None else named(r, "add", found, bias)


def _dropout(r: Recorder, x: Any, p: float = 0.5, training: bool = True, *_: Any) -> Any:
    if training and p > 0:
        raise r.stop("dropout in training mode is random", "call .eval() on the module")
    return x


def _flatten(r: Recorder, x: Traced, start_dim: int = 0, end_dim: int = -1) -> Traced:
    first, last = start_dim % x.ndim, end_dim % x.ndim
    shape = [*x.shape[:first], int(np.prod(x.shape[first : last + 1])), *x.shape[last + 1 :]]
    return of_numpy.reshape(r, x, shape)


def _pieces(r: Recorder, x: Traced, dim: int = 0) -> tuple[Traced, ...]:
    at = dim % x.ndim
    if at == x.axis:
        raise r.stop("a loop runs over the points of a batch", "write it for all points at once, such as X[:, 0]")
    return tuple(x[(slice(None),) * at + (i,)] for i in range(x.shape[at]))


def _squeeze(r: Recorder, x: Traced, dim: Any = None) -> Traced:
    if dim is not None and np.ndim(dim) == 0 and x.shape[dim] != 1:
        return x
    return rearranged(r, lambda a: np.squeeze(a, dim), x)


def _norm(r: Recorder, x: Any, p: Any = None, dim: Any = None, keepdim: bool = False, ord: Any = None, **_: Any) -> Traced:
    """torch's norms of vectors; of matrices the root of the sum of squares, unless another one is asked for."""
    order = ord if ord is not None else p
    return of_numpy.norm(r, x, None if order in (None, "fro", 2) else order, dim, keepdim)


def _matrix_norm(r: Recorder, x: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, **_: Any) -> Traced:
    return of_numpy.norm(r, x, ord, dim, keepdim)


def _like(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda r, *args, **kwargs: function(r, *args, **{"axis" if k == "dim" else k: v for k, v in kwargs.items()})


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "linear": linear, "matmul": matmul, "mm": matmul, "mv": matmul, "bmm": matmul, "dot": matmul, "einsum": of_numpy.einsum,
    "rmatmul": lambda r, a, b: matmul(r, b, a),
    "add": _scaled("add"), "sub": _scaled("subtract"), "subtract": _scaled("subtract"), "div": _divided, "divide": _divided,
    "rsub": lambda r, a, b: named(r, "subtract", b, a), "rdiv": lambda r, a, b: named(r, "divide", b, a),
    "sum": _along(of_numpy.total), "mean": _along(of_numpy.mean), "prod": _along(of_numpy.product),
    "amax": _along(of_numpy.most), "amin": _along(of_numpy.least), "max": _extreme("maximum"), "min": _extreme("minimum"),
    "std": _spread("std"), "var": _spread("var"),
    "repeat": lambda r, x, *n: rearranged(r, lambda a: np.tile(a, n[0] if np.ndim(n[0]) else n), x),
    "tile": lambda r, x, n: rearranged(r, lambda a: np.tile(a, n), x),
    "norm": _norm, "linalg_norm": _matrix_norm,
    "vector_norm": lambda r, x, ord=2, dim=None, keepdim=False, **_: _norm(r, x, ord, dim, keepdim),
    "stack": _like(of_numpy.stack), "cat": _like(of_numpy.concatenate), "concat": _like(of_numpy.concatenate),
    "concatenate": _like(of_numpy.concatenate), "unbind": _pieces,
    "unsqueeze": lambda r, x, dim: rearranged(r, lambda a: np.expand_dims(a, dim), x), "squeeze": _squeeze, "flatten": _flatten,
    "reshape": of_numpy.reshape, "view": of_numpy.reshape, "t": lambda r, x: x.T,
    "transpose": lambda r, x, a, b: rearranged(r, lambda c: np.swapaxes(c, a, b), x),
    "permute": lambda r, x, *dims: x.transpose(*dims),
    "select": lambda r, x, dim, i: x[(slice(None),) * (dim % x.ndim) + (i,)],
    "where": of_numpy.where, "clamp": of_numpy.clip, "clip": of_numpy.clip,
    "clamp_min": lambda r, x, low: of_numpy.clip(r, x, low), "clamp_max": lambda r, x, high: of_numpy.clip(r, x, None, high),
    "hardtanh": lambda r, x, min_val=-1.0, max_val=1.0: of_numpy.clip(r, x, min_val, max_val),
    "relu6": lambda r, x: of_numpy.clip(r, x, 0, 6),
    "relu": lambda r, x, *_: named(r, "relu", x), "silu": lambda r, x, *_: named(r, "silu", x), "gelu": _gelu,
    "softplus": _softplus, "leaky_relu": _leaky, "elu": _elu, "softmax": _softmax, "layer_norm": _layer_norm,
    "batch_norm": _batch_norm, "dropout": _dropout,
    "scaled_dot_product_attention": scaled_dot_product, "multi_head_attention_forward": multi_head,
    "mish": lambda r, x, *_: named(r, "multiply", x, named(r, "tanh", named(r, "softplus", x))),
    "softsign": lambda r, x: named(r, "divide", x, named(r, "add", 1, named(r, "absolute", x))),
    "zeros_like": of_numpy.FUNCTIONS["zeros_like"], "ones_like": of_numpy.FUNCTIONS["ones_like"],
    "full_like": of_numpy.FUNCTIONS["full_like"], "sinc": of_numpy.FUNCTIONS["sinc"],
    "lgamma": lambda r, x: named(r, "loggamma", x),
    "lerp": lambda r, a, b, w: named(r, "add", a, named(r, "multiply", w, named(r, "subtract", b, a))),
    "positive": lambda r, x: lifted(r, x),
}  # fmt: skip
