"""Arrays of symbols, which stand for what a traced function computes at a batch of points.

A `Traced` has the shape that the user's code expects, its batch axis as long as BATCH.  It holds the symbols of one point, an
array of objects whose batch axis has length 1.  What rearranges an array (indexing, reshape, stack) is done to these and, beside
them, to the numbers of the points, which must come out in order: nothing may pick, mix or repeat points.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.tracing.record import Recorder, Symbol, is_ours
from maxaffine.tracing.vocabulary import MEANINGS, SEVERAL, Meaning

BATCH = 10_007
"""Points of the batch that a traced function believes to get: a prime that no other length of an array will be."""

Cells = NDArray[Any]


class Traced:
    """What a traced function holds in place of an array of NumPy or torch."""

    __slots__ = ("axis", "cells", "recorder")
    __array_priority__ = 1000.0

    def __init__(self, cells: Cells, axis: int | None, recorder: Recorder) -> None:
        self.cells, self.axis, self.recorder = cells, axis, recorder

    # ------------------------------------------------------------------ protocols

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return numpy_ufunc(self.recorder, ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from maxaffine.tracing import numpy_functions

        return numpy_functions.call(self.recorder, function, args, kwargs)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from maxaffine.tracing import torch_functions

        return torch_functions.call(function, args, kwargs or {})

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise self.recorder.stop(
            "an array is wanted whose numbers are not known while the function is read",
            "leave out np.asarray, put results together with np.stack([..], axis=-1), and fill arrays made by np.zeros_like",
        )

    def __float__(self) -> float:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if is_ours(caller):
            raise self.recorder.stop(f"a value is handed to compiled code ({caller})")
        raise self.recorder.stop("a single number is wanted, as by math.sin", "use NumPy's functions, such as np.sin")

    __int__ = __index__ = __complex__ = item = tolist = __float__

    def __bool__(self) -> bool:
        raise self.recorder.stop("what happens next depends on a value (`if`, `while`, `and`, `or`, `not`)", "use np.where")

    def __hash__(self) -> int:
        return id(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Any:
        if self.axis == 0:
            raise self.recorder.stop("a loop runs over the points of a batch", "write it for all points at once, such as X[:, 0]")
        return (self[i] for i in range(len(self)))

    def __getattr__(self, name: str) -> Any:
        from maxaffine.tracing import numpy_functions

        found = numpy_functions.method(self, name)
        if found is None:
            raise AttributeError(f"'{name}' has no meaning in the language of expressions")
        return found

    # ------------------------------------------------------------------ shape

    @property
    def shape(self) -> tuple[int, ...]:
        """As the user's code sees it."""
        return tuple(BATCH if i == self.axis else n for i, n in enumerate(self.cells.shape))

    ndim = property(lambda self: self.cells.ndim)
    size = property(lambda self: int(np.prod(self.shape)))
    T = property(lambda self: self.transpose())

    @property
    def dtype(self) -> Any:
        """float64, as the library has it that was seen at work."""
        return sys.modules["torch"].float64 if self.recorder.torch_seen else np.dtype(np.float64)

    def transpose(self, *axes: Any) -> Traced:
        """The axes in another order."""
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes or None
        return rearranged(self.recorder, lambda a: np.transpose(a, order), self)

    def __getitem__(self, key: Any) -> Traced:
        if any(isinstance(k, Traced) for k in (key if isinstance(key, tuple) else (key,))):
            raise self.recorder.stop("values choose which entries are taken, as in x[x > 0]", "use np.where")
        return rearranged(self.recorder, lambda a: np.asarray(a[_for(a, key)]), self)

    def __setitem__(self, key: Any, value: Any) -> None:
        if any(isinstance(k, Traced) for k in (key if isinstance(key, tuple) else (key,))):
            raise self.recorder.stop("values choose which entries are set, as in y[x > 0] = ..", "use np.where")
        place, given = self[key], value if isinstance(value, Traced) else lifted(self.recorder, value, self[key])
        filled = elementwise(self.recorder, lambda _, a, __: a, given, place)
        if filled.shape != place.shape:
            raise ValueError(f"could not broadcast input array from shape {filled.shape} into shape {place.shape}")
        self.cells = self.cells.copy()
        self.cells[_for(self.cells, key)] = filled.cells

    # ------------------------------------------------------------------ operators

    def _unary(self, name: str) -> Traced:
        return elementwise(self.recorder, MEANINGS[name], self)

    def __neg__(self) -> Traced:
        return self._unary("negative")

    def __pos__(self) -> Traced:
        return self._unary("positive")

    def __abs__(self) -> Traced:
        return self._unary("absolute")

    def __invert__(self) -> Traced:
        return self._unary("invert")

    def __matmul__(self, other: Any) -> Traced:
        return matmul(self.recorder, self, other)

    def __rmatmul__(self, other: Any) -> Traced:
        return matmul(self.recorder, other, self)


def _operator(name: str, reflected: bool = False) -> Any:
    def method(self: Traced, other: Any) -> Any:
        if not _is_operand(other):
            return NotImplemented
        pair = (other, self) if reflected else (self, other)
        return elementwise(self.recorder, MEANINGS[name], *pair)

    return method


for _name, _meaning in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "pow": "power", "floordiv": "floor_divide",
    "mod": "remainder", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
}.items():  # fmt: skip
    setattr(Traced, f"__{_name}__", _operator(_meaning))
    setattr(Traced, f"__r{_name}__", _operator(_meaning, True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Traced, f"__{_name}__", _operator(_name))


def _is_operand(value: Any) -> bool:
    return isinstance(value, (Traced, int, float, complex, np.ndarray, np.generic, list, tuple)) or hasattr(value, "detach")


def _for(array: Any, key: Any) -> Any:
    """A key for an array of one point: what names the whole batch by its length names its one point."""
    if isinstance(key, tuple):
        return tuple(_for(array, k) for k in key)
    if isinstance(key, slice):
        whole = key.start in (None, 0) and key.stop in (None, BATCH) and key.step in (None, 1)
        return slice(None) if whole else key
    return constant(key) if hasattr(key, "detach") else key


# ---------------------------------------------------------------------- numbers


def constant(value: Any) -> NDArray[Any]:
    """Numbers of NumPy, torch or Python as an array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.numpy() if str(value.dtype) != "torch.bfloat16" else value.double().numpy()
    return np.asarray(value)


def lifted(r: Recorder, value: Any, like: Traced | None = None) -> Traced:
    """Numbers as an array of symbols; an axis as long as the batch must hold the same numbers at every point."""
    if isinstance(value, Traced):
        return value
    array = constant(value)
    if array.dtype == object:
        raise r.stop("results stand in a list or an array of objects", "use np.stack([..], axis=-1)")
    if array.dtype.kind not in "fiub":
        raise r.stop(f"numbers of type {array.dtype} stand in a formula", "the language has real numbers only")
    array, axis = one_point(r, array)
    if like is not None and axis is None and like.axis is not None and array.ndim == like.ndim and array.shape[like.axis] == 1:
        axis = like.axis
    return Traced(_symbols(r, array), axis, r)


def one_point(r: Recorder, array: NDArray[Any]) -> tuple[NDArray[Any], int | None]:
    """An array of numbers at one point of the batch, and its batch axis where it has one."""
    if BATCH not in array.shape:
        return array, None
    axis = array.shape.index(BATCH)
    first = np.take(array, [0], axis)
    if not np.array_equal(np.broadcast_to(first, array.shape), array, equal_nan=True):
        raise r.stop(
            "numbers differ from point to point of a batch without depending on the points",
            "a target is a function of its point alone",
        )
    return first, axis


def _symbols(r: Recorder, array: NDArray[Any]) -> Cells:
    cells = np.empty(array.shape, dtype=object)
    for place in np.ndindex(array.shape):
        value = array[place]
        cells[place] = r.number(int(value) if array.dtype.kind == "b" else value)
    return cells


# ---------------------------------------------------------------------- number by number


def elementwise(r: Recorder, meaning: Meaning, *operands: Any) -> Traced:
    """An operation on every entry of arrays that broadcast."""
    arrays: list[NDArray[Any]] = []
    behind: set[int] = set()  # the batch axis, counted from the last
    for operand in operands:
        if isinstance(operand, Traced):
            arrays.append(operand.cells)
            axis, ndim = operand.axis, operand.ndim
        else:
            array, axis = one_point(r, constant(operand))
            if array.dtype.kind not in "fiub":
                raise r.stop(f"a value of type {type(operand).__name__} stands in a formula", "it has real numbers only")
            arrays.append(array)
            ndim = array.ndim
        if axis is not None:
            behind.add(ndim - axis)
    if len(behind) > 1:
        raise r.stop(
            f"arrays of shapes {' and '.join(str(np.shape(o) if not isinstance(o, Traced) else o.shape) for o in operands)} pair "
            "different points of a batch"
        )
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    axis = len(shape) - next(iter(behind)) if behind else None
    if axis is not None and shape[axis] != 1:
        raise r.stop("an axis as long as another array's meets the points of a batch", "write X[:, i] or add an axis with None")
    cells = np.empty(shape, dtype=object)
    spread = [np.broadcast_to(a, shape) for a in arrays]
    for place in np.ndindex(shape):
        cells[place] = meaning(r, *(a[place] if isinstance(a[place], Symbol) else _number(r, a, place) for a in spread))
    return Traced(cells, axis, r)


def _number(r: Recorder, array: NDArray[Any], place: tuple[int, ...]) -> Symbol:
    value = array[place]
    return r.number(int(value) if array.dtype.kind == "b" else value)


def numpy_ufunc(r: Recorder, ufunc: Any, method: str, inputs: Sequence[Any], options: Any) -> Any:
    """A universal function of NumPy or SciPy on traced arrays."""
    name = ufunc.__name__
    if any(options.get(option) is not None for option in ("out", "where") if options.get(option) is not True):
        raise r.stop(f"`np.{name}` is called with `out` or `where`", "use its result, and np.where")
    if method == "reduce" and len(inputs) == 1:
        return reduced(r, name, inputs[0], options.get("axis", 0), options.get("keepdims", False))
    if method != "__call__":
        raise r.stop(f"`np.{name}.{method}` is not an operation of the language")
    if name in ("matmul", "vecdot", "matvec", "vecmat"):
        if name != "matmul":
            raise r.stop(f"`np.{name}` is not an operation of the language", "write it with @ or np.sum")
        return matmul(r, *inputs)
    if name in SEVERAL and ufunc.nout == len(SEVERAL[name]):
        return tuple(elementwise(r, one, *inputs) for one in SEVERAL[name])
    orders = {"jv": 1, "yv": 1, "iv": 1, "kv": 1, "jn": 1, "betainc": 2, "gammainc": 1, "gammaincc": 1}.get(name, 0)
    if any(isinstance(a, Traced) for a in inputs[:orders]):
        raise r.stop(f"the first argument of `{name}` depends on the point", "in the language it is a number")
    if name not in MEANINGS:
        raise r.stop(f"`{name}` is not a function of the language", "docs/expressions.md lists those that are")
    return elementwise(r, MEANINGS[name], *inputs)


def named(r: Recorder, name: str, *operands: Any) -> Traced:
    """An operation by its name."""
    if name not in MEANINGS:
        raise r.stop(f"`{name}` is not a function of the language", "docs/expressions.md lists those that are")
    return elementwise(r, MEANINGS[name], *operands)


# ---------------------------------------------------------------------- along axes


def reduced(r: Recorder, name: str, array: Any, axis: Any = None, keepdims: bool = False) -> Traced:
    """An operation of two numbers along axes, from the first to the last; never over points."""
    traced = lifted(r, array)
    every = tuple(range(traced.ndim))
    axes = every if axis is None else tuple(a % max(1, traced.ndim) for a in np.atleast_1d(axis).tolist())
    if traced.axis is not None and traced.axis in axes:
        raise r.stop(f"`{name}` goes over the points of a batch", "give the axis of the coordinates, such as axis=1")
    moved = np.moveaxis(traced.cells, axes, range(len(axes))) if axes else traced.cells[None]
    rows = moved.reshape(-1, *moved.shape[len(axes) :]) if axes else moved
    total = functools.reduce(lambda a, b: elementwise(r, MEANINGS[name], Traced(a, None, r), Traced(b, None, r)).cells, rows)
    kept = [a for a in every if a not in axes]
    where = kept.index(traced.axis) if traced.axis is not None else None
    found = Traced(total if isinstance(total, np.ndarray) else np.array(total, dtype=object), where, r)
    if len(rows) == 1:
        found = elementwise(r, MEANINGS["positive"], found)
    return rearranged(r, lambda a: np.expand_dims(a, sorted(axes)), found) if keepdims else found


def matmul(r: Recorder, a: Any, b: Any) -> Traced:
    """a @ b as sums of products."""
    first, second = (x if isinstance(x, Traced) else constant(x) for x in (a, b))
    if first.ndim == 0 or second.ndim == 0:
        raise ValueError("matmul: an operand is a single number")
    flat = first.ndim == 1, second.ndim == 1
    left = first[None, :] if flat[0] else first
    right = second[:, None] if flat[1] else second
    if left.shape[-1] != right.shape[-2]:
        raise ValueError(f"matmul: shapes {first.shape} and {second.shape} do not match")
    factors = [left[..., :, :, None], right[..., None, :, :]]
    products = named(r, "multiply", *(factors if isinstance(second, Traced) else factors[::-1]))
    found = reduced(r, "add", products, products.ndim - 2)
    if flat[1]:
        found = found[..., 0]
    return found[..., 0, :] if flat[0] and not flat[1] else found[..., 0] if flat[0] else found


def rearranged(r: Recorder, change: Callable[..., Any], *arrays: Traced) -> Traced:
    """Entries taken, moved or joined, with the points of the batch left in order."""
    batched = any(a.axis is not None for a in arrays)
    cells = change(*(a.cells for a in arrays))
    cells = cells if isinstance(cells, np.ndarray) else np.array(cells, dtype=object)
    if not batched:
        return Traced(cells, None, r)
    count = np.arange(BATCH, dtype=np.int32)
    ghosts = []
    for a in arrays:
        shape = [1] * a.ndim
        if a.axis is not None:
            shape[a.axis] = BATCH
        ghosts.append(np.broadcast_to(count.reshape(shape) if a.axis is not None else np.int32(0), a.shape))
    ghost = np.asarray(change(*ghosts))
    axis = ghost.shape.index(BATCH) if ghost.shape.count(BATCH) == 1 else None
    in_order = axis is not None and bool((np.moveaxis(ghost, axis, -1) == count).all())
    if not in_order or tuple(1 if i == axis else n for i, n in enumerate(ghost.shape)) != cells.shape:
        raise r.stop("single points of a batch are picked, mixed or repeated", "a coordinate of all points is X[:, 0]")
    return Traced(cells, axis, r)
