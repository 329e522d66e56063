"""Arrays of symbols, which stand for what a traced function computes at a batch of points.

A `Traced` has the shape that the user's code expects, its batch axis as long as BATCH.  It holds the symbols of one point, an
array of objects whose batch axis has length 1.  What rearranges an array (indexing, reshape, stack) is done to these and, beside
them, to the numbers of the points, which must come out in order: nothing may pick, mix or repeat points.  What is a view in NumPy
is a view of the symbols as well: what is written into one array is seen in all that share it.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.tracing.record import Recorder, is_ours
from maxaffine.tracing.vocabulary import MEANINGS, Meaning, condition, number, truth

BATCH = 10_007
"""Points of the batch that a traced function believes to get: a prime that no other length of an array will be."""

Cells = NDArray[Any]
WITHOUT_ARRAYS = "leave out np.asarray, put results together with np.stack([..], axis=-1), and fill arrays made by np.zeros_like"
ATTRIBUTE = "has no meaning while the function is read"


class Traced:
    """What a traced function holds in place of an array of NumPy or torch."""

    __slots__ = ("axis", "cells", "recorder")
    __array_priority__ = 1000.0

    def __init__(self, cells: Cells, axis: int | None, recorder: Recorder) -> None:
        self.cells, self.axis, self.recorder = cells, axis, recorder

    # ------------------------------------------------------------------ protocols

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        from maxaffine.tracing import numpy_functions

        return numpy_functions.universal(self.recorder, ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from maxaffine.tracing import numpy_functions

        return numpy_functions.call(self.recorder, function, args, kwargs)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from maxaffine.tracing import torch_functions

        return torch_functions.call(function, args, kwargs or {})

    def __array__(self, *_: Any, **__: Any) -> Any:
        caller = sys._getframe(1)
        library = str(caller.f_globals.get("__name__", "")).partition(".")[0]
        what, instead = "an array is wanted whose numbers are not known while the function is read", WITHOUT_ARRAYS
        if library in ("scipy", "numpy"):
            what, instead = f"{what}, by `{caller.f_code.co_name}` of {library}", "write out what it computes"
        raise self.recorder.stop(what, instead)

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
        if found is not None:
            return found
        if not name.startswith("__") and hasattr(np.ndarray, name):  # also for who asks with hasattr and goes on without
            raise self.recorder.stop(f"an array is asked for its `{name}`, which {ATTRIBUTE}")
        raise AttributeError(f"'{name}' has no meaning in the language of expressions")

    # ------------------------------------------------------------------ shape

    @property
    def shape(self) -> tuple[int, ...]:
        """As the user's code sees it."""
        return tuple(BATCH if i == self.axis else n for i, n in enumerate(self.cells.shape))

    ndim = property(lambda self: self.cells.ndim)
    is_nested = property(lambda self: False)  # asked by modules of torch
    size = property(lambda self: Count(self.shape))
    T = property(lambda self: self.transpose())

    @property
    def is_mask(self) -> bool:
        """Whether every entry is true or false."""
        return self.cells.size > 0 and all(one.is_condition for one in self.cells.flat)

    @property
    def dtype(self) -> Any:
        """float64 or bool, as the library has it that was seen at work."""
        library = sys.modules["torch"] if self.recorder.torch_seen else np
        found = library.bool if self.is_mask else library.float64
        return found if self.recorder.torch_seen else np.dtype(found)

    def transpose(self, *axes: Any) -> Traced:
        """The axes in another order; torch names two that change places."""
        if self.recorder.torch_seen and len(axes) == 2:
            return rearranged(self.recorder, lambda a: np.swapaxes(a, *axes), self)
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
        self.cells[_for(self.cells, key)] = alike(filled, place).cells

    def written_over(self, found: Traced) -> Traced:
        """This array with other entries, as `+=` leaves it; a single number is not changed, its name gets another one."""
        if self.ndim == 0:
            return found
        if found.shape != self.shape:
            raise ValueError(f"an array of shape {self.shape} cannot hold one of shape {found.shape}")
        self.cells[...] = alike(found, self).cells
        return self

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


def _in_place(name: str) -> Any:
    def method(self: Traced, other: Any) -> Any:
        if not _is_operand(other):
            return NotImplemented
        return self.written_over(elementwise(self.recorder, MEANINGS[name], self, other))

    return method


for _name, _meaning in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "pow": "power", "floordiv": "floor_divide",
    "mod": "remainder", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
}.items():  # fmt: skip
    setattr(Traced, f"__{_name}__", _operator(_meaning))
    setattr(Traced, f"__r{_name}__", _operator(_meaning, True))
    setattr(Traced, f"__i{_name}__", _in_place(_meaning))
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


class Count(int):
    """How many entries an array has, which torch asks for by calling it."""

    shape: tuple[int, ...]

    def __new__(cls, shape: tuple[int, ...]) -> Count:
        """The product of a shape."""
        made = super().__new__(cls, math.prod(shape))
        made.shape = shape
        return made

    def __call__(self, axis: int | None = None) -> Any:
        """The shape, or one length of it."""
        return self.shape if axis is None else self.shape[axis]


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
        cells[place] = truth(r, bool(array[place])) if array.dtype.kind == "b" else r.number(array[place])
    return cells


def alike(found: Traced, place: Traced) -> Traced:
    """Entries as an array holds them that they are written into: conditions in an array of conditions, else numbers."""
    return elementwise(found.recorder, condition if place.is_mask else number, found)


# ---------------------------------------------------------------------- number by number


def elementwise(r: Recorder, meaning: Meaning, *operands: Any) -> Traced:
    """An operation on every entry of arrays that broadcast."""
    arrays: list[NDArray[Any]] = []
    behind: set[int] = set()  # the batch axis, counted from the last
    masked = any(isinstance(operand, Traced) and operand.is_mask for operand in operands)
    for operand in operands:
        if isinstance(operand, Traced):
            arrays.append(operand.cells)
            axis, ndim = operand.axis, operand.ndim
        else:
            array, axis = one_point(r, constant(operand))
            if array.dtype.kind not in "fiub":
                raise r.stop(f"a value of type {type(operand).__name__} stands in a formula", "it has real numbers only")
            if array.dtype.kind in "iu" and array.dtype.itemsize < 8 and masked:
                raise r.stop(f"conditions meet numbers of type {array.dtype}, which may overflow", "use floats")
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
    spread = [np.broadcast_to(a if a.dtype == object else _symbols(r, a), shape) for a in arrays]
    for place in np.ndindex(shape):
        cells[place] = meaning(r, *(a[place] for a in spread))
    return Traced(cells, axis, r)


def named(r: Recorder, name: str, *operands: Any) -> Traced:
    """An operation by its name."""
    if name not in MEANINGS:
        raise r.stop(f"`{name}` is not a function of the language", "docs/expressions.md lists those that are")
    return elementwise(r, MEANINGS[name], *operands)


# ---------------------------------------------------------------------- along axes


def reduced(r: Recorder, name: str, array: Any, axis: Any = None, keepdims: bool = False) -> Traced:
    """An operation of two numbers along axes, from the first to the last; never over points.  Conditions are counted."""
    traced = lifted(r, array)
    if name in ("add", "multiply"):
        traced = elementwise(r, number, traced)
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
    found = reduced(r, "logical_or" if products.is_mask else "add", products, products.ndim - 2)
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
