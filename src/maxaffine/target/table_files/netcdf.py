"""Tables in NetCDF: a variable over dimensions whose coordinates are variables of the same names.

Classic files are read here, by SciPy; NetCDF-4 files, which are HDF5, in hdf5.py.  Values equal to `_FillValue` or
`missing_value`, or outside `valid_min`, `valid_max`, `valid_range`, are missing; the others are unpacked by `scale_factor` and
`add_offset`.
"""

import io
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.target.table_files.contents import Contents, grid, listed, numbers, pick, within

VARIABLES = 4096  # variables of a file


@dataclass(frozen=True)
class Variable:
    """A variable that has not been read: its dimensions, shape, dtype, attributes, and what reads it."""

    dimensions: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attributes: Mapping[str, Any]
    data: Any  # sliced by [...] to read


def read_classic(path: Path, shown: str, values: str | None, axes: str | None, max_bytes: int) -> Contents:
    """A table of a classic NetCDF file (formats 1 and 2)."""
    from scipy.io import netcdf_file

    try:
        # From memory: what the header claims beyond the end of the file is then not there, whatever its size.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            file = netcdf_file(io.BytesIO(path.read_bytes()), mode="r", mmap=False)
    except Exception as failure:
        raise BadInput(
            f"{shown} is not a sound classic NetCDF file ({type(failure).__name__}: {failure}); formats 1 and 2 are read, and "
            "NetCDF-4 with the extra maxaffine[netcdf]."
        ) from None
    with file:
        found = {}
        for name, variable in list(file.variables.items())[: VARIABLES + 1]:
            attributes = dict(vars(variable)["_attributes"])
            data = variable.data
            found[name] = Variable(tuple(variable.dimensions), tuple(variable.shape), np.dtype(data.dtype), attributes, data)
        return table(found, shown, values, axes, max_bytes)


def table(found: Mapping[str, Variable], shown: str, values: str | None, axes: str | None, max_bytes: int) -> Contents:
    """The variable that is asked for, over its coordinates."""
    if len(found) > VARIABLES:
        raise BadInput(f"{shown} holds more than {VARIABLES:,} variables; it is refused.")
    if axes is not None:
        raise BadInput("--axes is for .npz and .csv; a NetCDF file says itself which coordinates a variable has.")
    candidates = [
        name for name, variable in found.items()
        if variable.dimensions and variable.dimensions != (name,) and variable.dtype.kind in "iuf"
    ]  # fmt: skip
    outputs = pick(values, candidates, shown, "--values", "its values are")
    chosen = [found[name] for name in outputs]
    dimensions, shape = chosen[0].dimensions, chosen[0].shape
    if any(variable.dimensions != dimensions for variable in chosen):
        raise BadInput(f"{shown}: {listed(outputs)} have different dimensions; values of one table have the same.")
    for dimension in dimensions:
        if dimension not in found or found[dimension].dimensions != (dimension,):
            raise BadInput(
                f"{shown}: the dimension {dimension[:60]!r} of {outputs[0]!r} has no coordinate variable of its name; add "
                "one, or store the table as .npz with its axes."
            )
    if 0 in shape:
        raise BadInput(f"{shown}: {outputs[0]!r} has shape {shape}, which is empty.")
    needed = 8 * math.prod(shape) * len(chosen) + sum(8 * length for length in shape)
    within(needed, max_bytes, shown, f": {listed(outputs)} of shape {shape} would take")
    read = [_unpacked(variable, name, shown) for name, variable in zip(outputs, chosen, strict=True)]
    lines = [_unpacked(found[dimension], dimension, shown) for dimension in dimensions]
    return grid(shown, dimensions, lines, read[0] if len(read) == 1 else np.stack(read, axis=-1), outputs)


def _unpacked(variable: Variable, name: str, shown: str) -> Array:
    """The numbers that a variable stands for; NaN where one is missing."""
    raw: NDArray[Any] = np.array(variable.data[...])
    if str(text_of(variable.attributes.get("_Unsigned"))).lower() == "true" and raw.dtype.kind == "i":
        raw = raw.view(raw.dtype.str.replace("i", "u"))
    made = numbers(raw, name, shown).reshape(variable.shape)
    gaps = np.zeros(made.shape, dtype=bool)
    for key in ("_FillValue", "missing_value"):
        for mark in _attribute(variable, key, name, shown, raw.dtype):
            gaps |= made == mark
    span = _attribute(variable, "valid_range", name, shown, raw.dtype)
    if len(span) not in (0, 2):
        raise BadInput(f"{shown}: valid_range of {name!r} has {len(span)} entries and needs two.")
    for low in (*_attribute(variable, "valid_min", name, shown, raw.dtype), *span[:1]):
        gaps |= made < low
    for high in (*_attribute(variable, "valid_max", name, shown, raw.dtype), *span[1:]):
        gaps |= made > high
    scale, offset = (_attribute(variable, key, name, shown) for key in ("scale_factor", "add_offset"))
    if len(scale) > 1 or len(offset) > 1 or not all(math.isfinite(c) for c in (*scale, *offset)):
        raise BadInput(f"{shown}: scale_factor and add_offset of {name!r} must be one finite number each.")
    made = made * (scale[0] if scale else 1.0) + (offset[0] if offset else 0.0)
    made[gaps] = np.nan
    return made


def _attribute(variable: Variable, key: str, name: str, shown: str, stored: np.dtype[Any] | None = None) -> tuple[float, ...]:
    """The numbers of an attribute; those that speak of stored numbers are read as the variable is."""
    value = variable.attributes.get(key)
    if value is None:
        return ()
    found = np.atleast_1d(np.asarray(value))
    if found.dtype.kind not in "iuf" or found.ndim != 1:
        raise BadInput(f"{shown}: the attribute {key} of {name!r} is not a number.")
    if stored is not None and stored.kind == "f":
        with np.errstate(over="ignore"):
            found = found.astype(stored)
    elif stored is not None and stored.kind == "u" and found.dtype.kind == "i" and found.dtype.itemsize == stored.itemsize:
        found = found.view(found.dtype.str.replace("i", "u"))
    return tuple(float(number) for number in found)


def text_of(value: Any) -> Any:
    """Bytes as text, anything else as it is."""
    return value.decode("latin-1") if isinstance(value, bytes) else value
