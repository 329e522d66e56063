"""Tables in NetCDF-4, which is HDF5: read by h5py in a process of its own.

The HDF5 library trusts its files, and a damaged one can bring it down: whatever happens to the process that reads, here it is a
sentence.  That process gets a path and limits, follows no links, opens no other files, loads no filters, and answers with an .npz
of numbers and a line of JSON, both of which are doubted like any other file.
"""

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.errors import BadInput, MaxaffineError
from maxaffine.target.table_files.arrays import archive
from maxaffine.target.table_files.contents import Contents, grid
from maxaffine.target.table_files.netcdf import VARIABLES, Variable, table, text_of

# Filters that come with HDF5 and h5py: deflate, shuffle, fletcher32, szip, nbit, scale-offset, lzf.  Others would load code.
FILTERS = (1, 2, 3, 4, 5, 6, 32000)
BARE = "This is a netCDF dimension but not a netCDF variable"
PATIENCE = 120.0  # seconds, and one more for every 16 MiB
ANSWER = 1 << 20  # characters of the answer in words
BESIDES = 4 << 30  # bytes of address space beside the data


def read_hdf5(path: Path, shown: str, values: str | None, axes: str | None, max_bytes: int) -> Contents:
    """A table of a NetCDF-4 file."""
    if find_spec("h5py") is None:
        raise BadInput(
            f"{shown} is a NetCDF-4 file, which needs h5py; install maxaffine[netcdf], or store the table as .npz or .csv."
        )
    with tempfile.TemporaryDirectory(prefix="maxaffine-") as folder:
        there = Path(folder) / "table.npz"
        question = {"path": str(path.resolve()), "shown": shown, "values": values, "axes": axes, "max_bytes": max_bytes}
        answer = _ask({**question, "answer": str(there)}, shown, PATIENCE + path.stat().st_size / (1 << 24))
        if "refused" in answer:
            raise BadInput(str(answer["refused"]))
        arrays = archive(there, shown, 2 * max_bytes + (1 << 20))
    try:
        names, outputs, notes = ([str(text) for text in answer[key]] for key in ("names", "outputs", "notes"))
        lines = [arrays[f"axis{d}"] for d in range(len(names))]
        return grid(shown, names, lines, arrays["values"], outputs, notes)
    except (KeyError, TypeError):
        raise BadInput(f"{shown} is not a sound NetCDF-4 file: what was read of it makes no sense.") from None


def _ask(question: dict[str, Any], shown: str, patience: float) -> dict[str, Any]:
    """What the process that reads has to say; BadInput where it dies."""
    package = Path(__file__).parents[3]
    known = os.environ.get("PYTHONPATH")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(package), *([known] if known else [])]),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "HDF5_PLUGIN_PRELOAD": "::",  # no filter is loaded from anywhere
    }
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", f"from {__name__} import serve; serve()"],
            input=json.dumps(question), capture_output=True, text=True, timeout=patience, env=environment, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise BadInput(f"{shown} is not a sound NetCDF-4 file: reading it took more than {patience:.0f} seconds.") from None
    try:
        answer = json.loads(done.stdout[:ANSWER]) if done.returncode == 0 else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise BadInput(f"{shown} is not a sound NetCDF-4 file: the HDF5 library broke down over it ({how}).")
    return answer


def serve() -> None:
    """What the process does: read a question, write the arrays, and say what they are."""
    question = json.loads(sys.stdin.read())
    _limit(question["max_bytes"])
    path, shown = question["path"], question["shown"]
    try:
        import h5py

        with h5py.File(path, "r") as file:
            found = table(_datasets(h5py, file, shown), shown, question["values"], question["axes"], question["max_bytes"])
        assert found.axes is not None
        arrays: dict[str, Any] = {f"axis{d}": axis for d, axis in enumerate(found.axes)}
        np.savez(question["answer"], values=found.values, **arrays)
        answer: dict[str, Any] = {"names": found.names, "outputs": found.outputs, "notes": found.notes}
    except MaxaffineError as failure:
        answer = {"refused": str(failure)}
    except Exception as failure:
        answer = {"refused": f"{shown} is not a sound NetCDF-4 file ({type(failure).__name__}: {failure})."}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # without the library's own tidying up, which a damaged file may have spoilt


def _limit(max_bytes: int) -> None:
    """No core file, and no more memory than the data may take."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = BESIDES + 4 * max_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _datasets(h5py: Any, file: Any, shown: str) -> dict[str, Variable]:
    """The datasets at the root that lie in this very file and need no foreign code to be unpacked."""
    found: dict[str, Variable] = {}
    for name in file:
        if len(found) > VARIABLES:
            break
        if not isinstance(file.get(name, getlink=True), h5py.HardLink):
            raise BadInput(f"{shown}: {name[:60]!r} is a link, which is not followed; copy what it points to into the file.")
        item = file[name]
        if not isinstance(item, h5py.Dataset):
            continue
        if item.is_virtual or item.external:
            raise BadInput(f"{shown}: {name[:60]!r} keeps its data in other files, which are not opened; copy it into the file.")
        plan = item.id.get_create_plist()
        if any(plan.get_filter(k)[0] not in FILTERS for k in range(plan.get_nfilters())):
            raise BadInput(f"{shown}: {name[:60]!r} is packed by a filter that HDF5 does not bring along; use gzip.")
        attributes = {key: item.attrs[key] for key in item.attrs if key not in ("DIMENSION_LIST", "REFERENCE_LIST")}
        if str(text_of(attributes.get("NAME"))).startswith(BARE):
            continue
        found[name] = Variable(_dimensions(item, name), tuple(item.shape or ()), item.dtype, attributes, item)
    return found


def _dimensions(item: Any, name: str) -> tuple[str, ...]:
    """The names of a dataset's dimensions: the scales attached to it; a scale is its own dimension."""
    if item.is_scale and item.ndim == 1:
        return (name,)
    named = []
    for d in range(item.ndim):
        scales = list(item.dims[d].values())
        named.append(scales[0].name.rsplit("/", 1)[-1] if scales else item.dims[d].label or "")
    return tuple(named)

