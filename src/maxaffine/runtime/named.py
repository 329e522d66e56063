"""Inputs by name, and answers in the form in which the points came.

    layer(x=1, y=2), layer({"x": 1, "y": 2})    numbers or arrays, which broadcast      an array of their common shape
    layer(frame)                                columns of pandas or polars             a series with the index, or a frame
    layer(row)                                  a pandas series labelled by names       one answer
    layer(dataset), layer(x=.., y=..)           variables of xarray, which broadcast    a DataArray with the coordinates

Whatever has names is matched by them: what has other names is ignored, a missing one is refused, and so is an unknown keyword.
Arrays, lists and labels that are numbers go by position (runtime/queries.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.runtime.queries import as_points, boxes_for, inside, unit_of
from maxaffine.target.box import Box
from maxaffine.target.target import Target

Give = Callable[[Array], Any]


@dataclass(frozen=True)
class Form:
    """The form in which points came: whether it was one alone, and how values (B, ..) go back."""

    single: bool
    give: Give


@dataclass(frozen=True)
class Columns:
    """One column (B,) for each variable of a box, the rounding unit of each, and their form."""

    columns: tuple[Array, ...]
    units: tuple[float, ...]
    form: Form


def points_of(target: Target, x: Sequence[Any], by_name: Mapping[str, Any], outside: str = "error") -> tuple[Array, Form]:
    """Points (B, D) in float64 of whatever was given, and how the answers go back."""
    if by_name:
        if x:
            raise BadInput("points came by position and by name; give them in one way.")
        for name in by_name:
            if name not in target.box.names:
                raise BadInput(f"`{name}` is no variable of this layer; they are {_list(target.box.names)}.")
        return _points(target.box, _mapping(target, target.box, by_name), outside)
    boxes = (target.box,) if len(x) == 1 else boxes_for(target, len(x), outside)
    found = [_named(target, box, one) for box, one in zip(boxes, x, strict=True)]
    if any(one is not None for one in found):
        named = [one for one in found if one is not None]
        if len(named) < len(found) or len({len(one.columns[0]) for one in named}) != 1:
            raise BadInput("both inputs must hold the same number of points, and either both or neither have names.")
        columns = tuple(column for one in named for column in one.columns)
        units = tuple(unit for one in named for unit in one.units)
        return _points(target.box, Columns(columns, units, named[0].form), outside)
    points, single = as_points(target, *x, outside=outside)
    return points, Form(single, lambda values: values[0] if single else values)


def output_names(target: Target, taken: Sequence[str] = ()) -> list[str]:
    """f; f1, f2, ..; or f11, f21, .. (row, token; columns stacked), kept apart from the variables' names and those `taken`."""
    letter = "f"
    while any(name.startswith(letter) for name in (*target.box.names, *taken)):
        letter += "_" if letter != "f" else "value"
    shape = target.output_shape
    if len(shape) == 0:
        return [letter]
    if len(shape) == 1:
        return [f"{letter}{k + 1}" for k in range(shape[0])]
    joint = "_" if max(shape) > 9 else ""
    return [f"{letter}{i + 1}{joint}{t + 1}" for t in range(shape[1]) for i in range(shape[0])]


def stacked(values: Array) -> Array:
    """Values (B, ..) as rows of numbers in the order of `output_names`: columns of several output tokens one after the other."""
    return (values.transpose(0, 2, 1) if values.ndim == 3 else values).reshape(len(values), -1)


def _points(box: Box, found: Columns, outside: str) -> tuple[Array, Form]:
    if outside not in ("error", "clamp"):
        raise BadInput(f'`outside` (={outside!r}) must be "error" or "clamp".')
    return inside(box, np.stack(found.columns, axis=1), np.array(found.units), outside), found.form


def _named(target: Target, box: Box, given: Any) -> Columns | None:
    """The columns of something that has names; None where it has none."""
    if isinstance(given, Mapping) and not hasattr(given, "data_vars"):
        return _mapping(target, box, _picked(given, list(given), box, "dictionary"))
    if isinstance(given, np.ndarray):
        return None if given.dtype.names is None else _mapping(target, box, _picked(given, given.dtype.names, box, "array"))
    if hasattr(given, "dims") and hasattr(given, "coords"):
        return _labelled(target, box, given)
    labels = getattr(given, "column_names", None) or getattr(given, "columns", None)
    if labels is not None and hasattr(given, "__getitem__"):
        return _frame(target, box, given, list(labels))
    if hasattr(given, "iloc") and hasattr(given, "index"):
        return _series(target, box, given)
    return None


def _frame(target: Target, box: Box, frame: Any, labels: list[Any]) -> Columns:
    """Columns of a frame; the index of pandas goes back with the values."""
    picked = _picked(frame, labels, box, "frame")
    columns, units = zip(*(_numbers(name, column) for name, column in picked.items()), strict=True)
    return Columns(columns, units, Form(False, lambda values: _as_frame(target, frame, values)))


def _as_frame(target: Target, frame: Any, values: Array) -> Any:
    """Values (B, ..) as a series, or a frame of several outputs, in the library of the points; else as they are."""
    names, library = output_names(target), type(frame).__module__.partition(".")[0]
    if library == "pandas":
        import pandas

        if not target.output_shape:
            return pandas.Series(values, index=frame.index, name=names[0])
        return pandas.DataFrame(stacked(values), index=frame.index, columns=names)
    if library == "polars":
        polars = sys.modules["polars"]
        rows = stacked(values)
        made = polars.DataFrame({name: rows[:, k] for k, name in enumerate(names)})
        return made if target.output_shape else made[names[0]]
    return values


def _series(target: Target, box: Box, series: Any) -> Columns | None:
    """A row of a frame, labelled by the variables; or, of one variable, a column whose index goes back with the values."""
    labels = list(series.index)
    if any(isinstance(label, str) for label in labels) and (box.dimension > 1 or box.names[0] in labels):
        return _mapping(target, box, _picked(series, labels, box, "series"))
    if box.dimension > 1:
        return None
    column, unit = _numbers(box.names[0], series)
    return Columns((column,), (unit,), Form(False, lambda values: _as_frame(target, series, values)))


def _labelled(target: Target, box: Box, given: Any) -> Columns | None:
    """Variables of an xarray Dataset, or the labels along a dimension of a DataArray; of one variable its values."""
    if hasattr(given, "data_vars"):
        return _mapping(target, box, _picked(given, list(given.variables), box, "dataset"))
    for dim in given.dims:
        labels = given.coords[dim].values.tolist() if dim in given.coords else []
        if any(isinstance(label, str) for label in labels):
            _require(labels, box, f"dimension {dim!r}")
            return _mapping(target, box, {name: given.sel({dim: name}).drop_vars(dim) for name in box.names})
    for name in box.names:
        if name in given.coords and not np.array_equal(given, given.coords[name]):
            raise BadInput(f"the array has values and a coordinate {name!r}: layer(array.coords) takes the coordinates.")
    return _mapping(target, box, {box.names[0]: given}) if box.dimension == 1 else None


def _mapping(target: Target, box: Box, given: Mapping[str, Any]) -> Columns:
    """Numbers, arrays, series or labelled arrays by name, brought to one shape."""
    values = list(_picked(given, list(given), box, "call").values())
    if any(hasattr(one, "dims") and hasattr(one, "coords") for one in values):
        return _coordinates(target, box, values)
    series = [one for one in values if hasattr(one, "iloc") and hasattr(one, "index")]
    if any(not one.index.equals(series[0].index) for one in series):
        raise BadInput("the series that came have different indexes; put them into one frame, so that rows belong together.")
    arrays, units = zip(*(_numbers(name, one) for name, one in zip(box.names, values, strict=True)), strict=True)
    try:
        arrays = np.broadcast_arrays(*arrays)
    except ValueError:
        told = ", ".join(f"{name} {array.shape}" for name, array in zip(box.names, arrays, strict=True))
        raise BadInput(f"the shapes of the variables do not broadcast: {told}.") from None
    shape = arrays[0].shape

    def give(values: Array) -> Any:
        if series and shape == series[0].shape:
            return _as_frame(target, series[0], values)
        found = values.reshape((*shape, *values.shape[1:]))
        return found if found.shape else found[()]

    return Columns(tuple(array.ravel() for array in arrays), units, Form(not shape, give))


def _coordinates(target: Target, box: Box, values: list[Any]) -> Columns:
    """Labelled arrays, which broadcast by the names of their dimensions; their coordinates must agree."""
    import xarray

    try:
        labelled = [one if hasattr(one, "dims") else xarray.DataArray(_scalar(one)) for one in values]
        arrays = xarray.broadcast(*xarray.align(*labelled, join="exact"))
    except ValueError as failure:
        raise BadInput(f"the labelled arrays of the variables do not go together: {failure}.") from None
    columns, units = zip(*(_numbers(name, one) for name, one in zip(box.names, arrays, strict=True)), strict=True)
    like = arrays[0]
    more = ("output", "token")[: len(target.output_shape)]

    def give(values: Array) -> Any:
        name = output_names(target)[0] if not more else None
        found = values.reshape((*like.shape, *values.shape[1:]))
        return xarray.DataArray(found, dims=(*like.dims, *more), coords=like.coords, name=name)

    return Columns(tuple(column.ravel() for column in columns), units, Form(not like.shape, give))


def _scalar(value: Any) -> Any:
    """What needs no labels among labelled arrays."""
    if np.ndim(value):
        raise ValueError("one of them has no names for its dimensions")
    return value


def _picked(given: Any, labels: Sequence[Any], box: Box, what: str) -> dict[str, Any]:
    """What stands under the names of the box, in their order."""
    _require(list(labels), box, what)
    return {name: given[name] for name in box.names}


def _require(labels: list[Any], box: Box, what: str) -> None:
    """Every variable of the box must be there, and once."""
    for name in box.names:
        if name not in labels:
            has = _list(labels) or "nothing"
            raise BadInput(f"the {what} has no {name!r}: the layer's variables are {_list(box.names)}, and it has {has}.")
        if labels.count(name) > 1:
            raise BadInput(f"the {what} has {name!r} twice; keep one of them.")


def _list(names: Sequence[Any]) -> str:
    return ", ".join(str(name)[:40] for name in names[:8]) + (", .." if len(names) > 8 else "")


def _numbers(name: str, value: Any) -> tuple[Array, float]:
    """A variable as float64, and the rounding unit of what it came in."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        raise BadInput(f"`{name}` is a tensor; tensors go by position, such as layer(torch.stack([a, b], -1)).")
    try:
        array = np.asarray(value)
        numbers = array.dtype.kind == "O" and all(isinstance(one, Number) for one in array.ravel())
        if not numbers and array.dtype.kind not in "fiub":
            raise TypeError
        return np.asarray(array, dtype=np.float64), unit_of(array.dtype)
    except (TypeError, ValueError):
        kind = getattr(value, "dtype", type(value).__name__)
        raise BadInput(f"`{name}` must hold numbers, and {kind} came.") from None
