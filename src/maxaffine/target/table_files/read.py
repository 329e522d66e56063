"""Which reader a file of data goes to: by what it begins with, then by its ending."""

import stat
from pathlib import Path

from maxaffine.core.errors import BadInput
from maxaffine.core.progress import Progress, silent
from maxaffine.target.table_files import arrays, hdf5, netcdf, text
from maxaffine.target.table_files.contents import Contents, within

MAX_BYTES = 4 << 30
SUFFIXES = (".npz", ".npy", ".csv", ".tsv", ".txt", ".nc", ".nc4", ".cdf", ".h5", ".hdf5")
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".joblib")


def read_contents(
    path: str | Path,
    values: str | None = None,
    axes: str | None = None,
    max_bytes: int | None = None,
    progress: Progress = silent,
) -> Contents:
    """The table or the samples of a .npz, .npy, .csv or NetCDF file.

    Args:
        path: the file.
        values: the array, column or variable that holds the values; several separated by commas are several values per entry.
        axes: the arrays or columns that hold the coordinates, separated by commas, in order.
        max_bytes: the most that the file, and what it unpacks to, may take; 4 GiB if not given.
        progress: a callback progress(stage, done, total).

    Raises:
        BadInput: the file is not what it should be; nothing in it is ever executed.
    """
    path = Path(path)
    shown = repr(str(path))
    limit = MAX_BYTES if max_bytes is None else max_bytes
    suffix = path.suffix.lower()
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadInput(f"{shown} is not a plain file; name a table in .npz, .npy, .csv or NetCDF.")
        within(status.st_size, limit, shown, " has")
        if suffix in PICKLES:
            raise BadInput(f"{shown} looks like a pickle, which may run code when it is read; save the table as .npz or .csv.")
        if suffix not in SUFFIXES:
            raise BadInput(f"{shown} has the ending {suffix!r}, and tables are read from .npz, .npy, .csv and NetCDF (.nc).")
        with path.open("rb") as handle:
            start = handle.read(8)
        if not start:
            raise BadInput(f"{shown} is empty.")
        if suffix == ".npz":
            return arrays.read_npz(path, shown, values, axes, limit)
        if suffix == ".npy":
            return arrays.read_npy(path, shown, values, axes, limit)
        if suffix in (".csv", ".tsv", ".txt"):
            return text.read_csv(path, shown, values, axes, progress)
        if start == b"\x89HDF\r\n\x1a\n":
            return hdf5.read_hdf5(path, shown, values, axes, limit)
        return netcdf.read_classic(path, shown, values, axes, limit)
    except OSError as failure:
        raise BadInput(f"cannot read {shown}: {failure.strerror or failure}.") from None
