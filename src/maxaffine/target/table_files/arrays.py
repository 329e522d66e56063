"""Tables in NumPy's own files, read with suspicion: no pickle, and every size is checked before anything is inflated.

.npz   arrays by name.  `X` and `y` are samples.  Else the values are the array called `values` (or by --values), or the only one
       of two or more dimensions; the other one-dimensional arrays are the axes, in the order of the file if their lengths fit,
       else in the only order in which they do.  A dimension of the values behind the axes holds several values per entry.
       One-dimensional values beside several arrays of their length are rows, as in CSV.
.npy   rows x_1, .., x_D, value, as in CSV without a header.
"""

import io
import math
import zipfile
from itertools import permutations
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.errors import BadInput
from maxaffine.target.box import default_names
from maxaffine.target.table_files.contents import Contents, grid, listed, numbers, pick, rows, scattered, within

MEMBERS = 256  # arrays in an archive
HEADER = 10_000  # bytes of an array's header
MOST = 32  # variables of a bare array; beyond, it is a matrix whose axes are not in the file
STORED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what NumPy writes
MAGIC = b"\x93NUMPY"


def read_npz(path: Path, shown: str, values: str | None, axes: str | None, max_bytes: int) -> Contents:
    """The grid or the samples of an archive of arrays."""
    arrays = archive(path, shown, max_bytes)
    chosen = {name: array for name, array in arrays.items() if array.dtype.kind not in "SUb"}
    if values in (None, "y") and axes is None and {"X", "y"} <= set(chosen) and "values" not in chosen:
        return _samples(shown, chosen)
    named = _values_of(chosen, values, shown)
    outputs = [numbers(chosen[name], name, shown) for name in named]
    if any(array.shape != outputs[0].shape for array in outputs):
        raise BadInput(f"{shown}: {listed(named)} have different shapes; values of one table have one.")
    made = outputs[0] if len(outputs) == 1 else np.stack(outputs, axis=-1)
    dimensions = outputs[0].ndim
    lines = [name for name in chosen if name not in named and chosen[name].ndim == 1]
    columns = lines if axes is None else pick(axes, lines, shown, "--axes", "the coordinates are")
    if dimensions == 1 and len(columns) > 1 and all(len(chosen[name]) == len(made) for name in columns):
        points = np.stack([numbers(chosen[name], name, shown) for name in columns], axis=1)
        return rows(shown, columns, points, made, named)
    lengths = {name: len(chosen[name]) for name in lines}
    order = columns if axes is not None else _axes_of(lengths, outputs[0].shape, named, shown)
    if not order or len(order) not in (dimensions, dimensions - 1):
        raise BadInput(f"{shown}: {len(order)} axes were named, and {named[0]!r} has {dimensions} dimensions; name one for each.")
    return grid(shown, order, [numbers(chosen[name], name, shown) for name in order], made, named)


def read_npy(path: Path, shown: str, values: str | None, axes: str | None, max_bytes: int) -> Contents:
    """The rows of a bare array."""
    if values is not None or axes is not None:
        raise BadInput(f"{shown} is one array without names; --values and --axes are for .npz, .csv and NetCDF.")
    with path.open("rb") as handle:
        array = numbers(_array(handle, path.stat().st_size, shown, "the array", max_bytes), "the array", shown)
    if array.ndim != 2 or not 2 <= array.shape[1] <= MOST + 1 or not len(array):
        raise BadInput(
            f"{shown} holds an array of shape {array.shape}; a bare array is read as rows x1, .., xD, value with at most {MOST} "
            "variables. Save a grid as np.savez('table.npz', x=.., y=.., values=..)."
        )
    D = array.shape[1] - 1
    return rows(shown, default_names(D), array[:, :D], np.ascontiguousarray(array[:, D]), ["value"])


def _samples(shown: str, arrays: dict[str, NDArray[Any]]) -> Contents:
    X, y = numbers(arrays["X"], "X", shown), numbers(arrays["y"], "y", shown)
    X = X[:, None] if X.ndim == 1 else X
    if X.ndim != 2 or y.ndim not in (1, 2) or len(X) != len(y) or not len(X):
        raise BadInput(f"{shown}: 'X' has shape {X.shape} and 'y' {y.shape}; samples are X (N, D) and y (N,) or (N, K).")
    if X.shape[1] == 0 or (y.ndim == 2 and y.shape[1] == 0):
        raise BadInput(f"{shown}: 'X' has shape {X.shape} and 'y' {y.shape}; neither may be empty.")
    return scattered(shown, default_names(X.shape[1]), X, y, ["y"])


def _values_of(arrays: dict[str, NDArray[Any]], wanted: str | None, shown: str) -> list[str]:
    many = [name for name, array in arrays.items() if array.ndim >= 1]
    if wanted is None and "values" in many:
        return ["values"]
    deep = [name for name in many if arrays[name].ndim >= 2] if wanted is None else []
    return pick(wanted, deep or many, shown, "--values", "its values are")


def _axes_of(lengths: dict[str, int], shape: tuple[int, ...], named: list[str], shown: str) -> list[str]:
    """The one-dimensional arrays as axes of the values."""
    names = list(lengths)
    others = ", ".join(f"{name} ({length})" for name, length in list(lengths.items())[:12]) or "none"
    facts = f"{shown}: the values {named[0]!r} have shape {shape}, and the other one-dimensional arrays are {others}"
    for wanted in (shape, shape[:-1]):  # the last dimension may hold several values per entry
        if len(names) != len(wanted) or not wanted:
            continue
        if tuple(lengths.values()) == wanted:
            return names
        if len(wanted) <= 6:
            fitting = [order for order in permutations(names) if tuple(lengths[name] for name in order) == wanted]
            if len(fitting) == 1:
                return list(fitting[0])
            if fitting:
                raise BadInput(f"{facts}, which fit in {len(fitting)} orders; say which, such as --axes {','.join(fitting[0])}.")
    raise BadInput(
        f"{facts}; a table needs one axis per dimension, as long as the values are along it. Save them in order, such as "
        "np.savez('table.npz', x=.., y=.., values=..), or name them with --axes."
    )


def archive(path: Path, shown: str, max_bytes: int) -> dict[str, NDArray[Any]]:
    """The arrays of a zip file; the sizes that its directory claims are checked first, and reading stops at them."""
    try:
        with zipfile.ZipFile(path) as opened:
            members = opened.infolist()
            _check_members(members, shown, max_bytes)
            arrays = {}
            for member in members:
                with opened.open(member) as handle:
                    name = member.filename.removesuffix(".npy")
                    arrays[name] = _array(handle, member.file_size, shown, repr(name[:60]), max_bytes)
            return arrays
    except BadInput:
        raise
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, RuntimeError, NotImplementedError, LookupError) as failure:
        raise BadInput(f"{shown} is not a sound .npz file ({failure}); save it again with np.savez.") from None
    except Exception as failure:  # zlib.error and what else a damaged archive brings forth
        raise BadInput(f"{shown} is not a sound .npz file ({type(failure).__name__}: {failure}).") from None


def _check_members(members: list[zipfile.ZipInfo], shown: str, max_bytes: int) -> None:
    if not members or len(members) > MEMBERS:
        raise BadInput(f"{shown} holds {len(members):,} arrays; from 1 to {MEMBERS} are read.")
    seen = set()
    for member in members:
        name = member.filename
        if not name.endswith(".npy") or "/" in name or "\\" in name or len(name) > 200:
            raise BadInput(f"{shown} holds {name[:80]!r}, which is no array that np.savez writes; it is refused.")
        if name in seen:
            raise BadInput(f"{shown} holds the array {name[:80]!r} twice; it is refused.")
        seen.add(name)
        if member.flag_bits & 1 or member.compress_type not in STORED:
            raise BadInput(f"{shown}: {name[:80]!r} is encrypted or packed in a way that np.savez does not use; it is refused.")
    within(sum(member.file_size for member in members), max_bytes, shown, " unpacks to")


def _array(handle: IO[bytes], size: int, shown: str, name: str, max_bytes: int) -> NDArray[Any]:
    """One array in NumPy's format: the header is believed only where it fits the bytes."""
    from numpy.lib import format as npy

    try:
        start = handle.read(8)
        if start[:6] != MAGIC or start[6:] not in (b"\x01\x00", b"\x02\x00"):
            raise BadInput(f"{shown}: {name} is not an array in NumPy's format 1 or 2{_pickled(start)}.")
        width = 2 if start[6] == 1 else 4
        length = int.from_bytes(handle.read(width), "little")
        if not 0 < length <= HEADER:
            raise BadInput(f"{shown}: {name} claims a header of {length:,} bytes, and at most {HEADER:,} are read.")
        text = handle.read(length)
        stream = io.BytesIO(len(text).to_bytes(2, "little") + text)
        shape, fortran, dtype = npy.read_array_header_1_0(stream, max_header_size=HEADER)
    except BadInput:
        raise
    except Exception as failure:
        raise BadInput(f"{shown}: {name} has no header that can be read ({failure}).") from None
    if dtype.hasobject:
        raise BadInput(f"{shown}: {name} holds Python objects, a pickle, which may run code when it is read; store numbers.")
    left = size - 8 - width - length
    if dtype.names is not None or dtype.itemsize == 0 or any(not 0 <= n <= 2**40 for n in shape) or len(shape) > 32:
        raise BadInput(f"{shown}: {name} has dtype {dtype} and shape {shape}, which is no table of numbers.")
    needed = math.prod(shape) * dtype.itemsize
    within(needed, max_bytes, shown, f": {name} claims")
    if needed != left:
        raise BadInput(f"{shown}: {name} claims shape {shape}, {needed:,} bytes, and has {left:,}; it is cut short or damaged.")
    if needed == 0:
        raise BadInput(f"{shown}: {name} is empty (shape {shape}); leave it out.")
    data = handle.read(needed)
    if len(data) != needed or handle.read(1):
        raise BadInput(f"{shown}: {name} is cut short: {len(data):,} of {needed:,} bytes are there.")
    flat: NDArray[Any] = np.frombuffer(data, dtype=dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def _pickled(start: bytes) -> str:
    return ", it is a pickle and is not read" if start[:1] == b"\x80" else ""
