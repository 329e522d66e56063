"""Tables out of files: what is understood, and one sentence for everything else."""

import io
import os
import pickle
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from maxaffine.core.errors import BadInput
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table
from maxaffine.target.table_files import read_contents

X, Y = np.array([0.0, 1.0, 2.5]), np.array([-1.0, 0.0, 2.0, 7.0])
V = np.arange(12.0).reshape(3, 4) ** 1.5


class Armed:
    """A pickle of this touches the file `fired` when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return Path.touch, (self.path,)


def refusal(path: Path, *words: str, **options: object) -> str:
    with pytest.raises(BadInput) as raised:
        read_contents(path, **options)  # type: ignore[arg-type]
    said = str(raised.value)
    for word in words:
        assert word in said, said
    assert said.endswith(".") and len(said) < 600
    return said


def same(found, names=("x", "y"), axes=(X, Y), values=V):  # type: ignore[no-untyped-def]
    assert found.names == tuple(names)
    assert all(np.array_equal(a, b) for a, b in zip(found.axes, axes, strict=True))
    assert np.array_equal(found.values, values, equal_nan=True)


# -- npz


def test_axes_of_an_npz_are_taken_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, x=X, y=Y, values=V)
    found = read_contents(path)
    same(found)
    assert isinstance(found.target(), Table) and found.outputs == ("values",)
    np.savez_compressed(path, x=X, y=Y, density=V.astype(">f4"))
    same(read_contents(path), values=V.astype(np.float32))


def test_axes_whose_lengths_fit_in_one_order_only_may_stand_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, values=np.asfortranarray(V), y=Y, x=X)
    same(read_contents(path))


def test_axes_of_equal_lengths_go_by_the_order_of_the_file_and_by_axes_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    square = np.arange(9.0).reshape(3, 3)
    np.savez(path, b=X, a=X + 1, values=square)
    same(read_contents(path), ("b", "a"), (X, X + 1), square)
    same(read_contents(path, axes="a,b"), ("a", "b"), (X + 1, X), square)
    np.savez(path, a=Y, b=X, c=X + 1, values=np.zeros((3, 4, 3)))
    refusal(path, "2 orders", "--axes b,a,c")
    assert read_contents(path, axes="b,a,c").names == ("b", "a", "c")


def test_several_arrays_of_values_need_a_name_and_may_be_taken_together(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, x=X, y=Y, rho=V, mu=2 * V)
    refusal(path, "'rho', 'mu'", "--values NAME")
    refusal(path, "'nu'", "'rho'", values="nu")
    refusal(path, "twice", values="mu,mu")
    same(read_contents(path, "mu"), values=2 * V)
    both = read_contents(path, "rho,mu")
    assert np.array_equal(both.values, np.stack([V, 2 * V], axis=-1)) and both.outputs == ("rho", "mu")
    assert both.target().output_shape == (2,)


def test_a_last_dimension_without_axis_holds_several_values_per_entry(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, x=X, y=Y, values=np.stack([V, -V], axis=-1))
    assert read_contents(path).target().output_shape == (2,)


def test_x_and_y_of_an_npz_are_samples(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    points = np.random.default_rng(0).normal(size=(20, 2))
    np.savez(path, X=points, y=points[:, 0])
    found = read_contents(path)
    assert found.axes is None and isinstance(found.target(), Samples) and found.names == ("x1", "x2")
    assert read_contents(path, "y").axes is None
    np.savez(path, X=points, y=points[:5, 0])
    refusal(path, "(20, 2)", "(5,)")


def test_columns_of_one_length_in_an_npz_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    a, b = (part.ravel() for part in np.meshgrid(X, Y, indexing="ij"))
    np.savez(path, x=a, y=b, values=V.ravel())
    same(read_contents(path))
    np.savez(path, x=a[:-1], y=b[:-1], z=b[:-1], values=V.ravel()[:-1])
    assert "1 of the 3 x 4" in read_contents(path, axes="x,y").notes[0]


def test_a_table_of_one_variable_needs_the_name_values(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, x=X, values=X**2)
    same(read_contents(path), ("x",), (X,), X**2)
    np.savez(path, x=X, square=X**2)
    refusal(path, "--values NAME")
    same(read_contents(path, "square"), ("x",), (X,), X**2)


def test_descending_axes_are_turned_and_axes_of_one_entry_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, x=X[::-1], t=[5.0], y=Y, values=V[::-1][:, None, :])
    found = read_contents(path)
    same(found)
    assert found.notes == ("t has one entry, 5.0, and is left out",)
    np.savez(path, x=X[[0, 2, 1]], y=Y, values=V)
    refusal(path, "'x'", "strictly", "2.5 to 1.0")
    np.savez(path, x=[1.0], values=[2.0])
    refusal(path, "one entry")


def test_names_that_no_variable_can_have_are_mended_and_the_note_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, **{"T [K]": X, "pi": Y, "values": V})
    found = read_contents(path)
    assert found.names == ("T_K", "pi_") and "'T [K]'" in found.notes[0]
    np.savez(path, **{"T [K]": X, "T (K)": Y, "values": V})
    refusal(path, "'T_K'", "rename")


def test_arrays_that_are_no_real_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, x=X, y=Y, values=V + 1j)
    refusal(path, "complex")
    np.savez(path, x=X, y=Y, values=np.full((3, 4), 2**60))
    refusal(path, "2^53")
    np.savez(path, x=X.astype("M8[s]"), y=Y, values=V)
    refusal(path, "times")
    np.savez(path, x=X, y=Y, values=np.where(V > 3, np.inf, V))
    refusal(path, "infinite")
    np.savez(path, x=[0.0, np.nan, 1.0], y=Y, values=V)
    refusal(path, "'x'", "finite")
    np.savez(path, x=X, y=Y)
    refusal(path, "--values")
    np.savez(path, x=X, values=np.zeros((5, 4)))
    refusal(path, "(5, 4)", "x (3)")


def test_missing_values_are_refused_or_declared(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, x=X, y=Y, values=np.where(V > 20, np.nan, V))
    found = read_contents(path)
    with pytest.raises(BadInput, match=r"the first at x = 2\.5, y = -1\.0; .* --missing ignore"):
        found.target()
    assert found.target("ignore").entries.missing == found.missing == int((V > 20).sum())
    np.savez(path, x=X, y=Y, values=np.full((3, 4), np.nan))
    with pytest.raises(BadInput, match="every value is missing"):
        read_contents(path).target("ignore")


def test_a_pickle_in_an_npz_is_not_read(tmp_path: Path) -> None:
    path, fired = tmp_path / "t.npz", tmp_path / "fired"
    np.savez(path, x=X, y=Y, values=V, extra=np.array([Armed(fired)], dtype=object), allow_pickle=True)
    refusal(path, "pickle")
    path.write_bytes(pickle.dumps(Armed(fired)))
    refusal(path, "not a sound .npz")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("values.npy", pickle.dumps(Armed(fired)))
    refusal(path, "pickle")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(Armed(fired)))
    refusal(path, "data.pkl")
    bare = tmp_path / "t.npy"
    np.save(bare, np.array([Armed(fired)], dtype=object), allow_pickle=True)
    refusal(bare, "pickle")
    renamed = tmp_path / "t.pkl"
    renamed.write_bytes(pickle.dumps(Armed(fired)))
    refusal(renamed, "pickle")
    assert not fired.exists()


def header(shape: str, dtype: str = "<f8") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (header("(1000000000000, 1000)"), "claims"),
        (header("(-3, 4)") + b"0" * 96, "no table of numbers"),
        (header("(3, 4)") + b"0" * 95, "cut short"),
        (header("(3, 4)") + b"0" * 97, "damaged"),
        (header("(0, 4)"), "empty"),
        (header("(3, 4)", "|O") + b"0" * 96, "pickle"),
        (header("(3,)", "<f8, <i4"), "header"),
        (header("'" + "(" * 90), "header"),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b"{}", "header of 2,147,483,648 bytes"),
        (b"\x93NUMPY\x07\x00\x00\x00", "format 1 or 2"),
        (b"", "format 1 or 2"),
    ],
)
def test_arrays_whose_header_does_not_fit_their_bytes_are_refused(data: bytes, word: str, tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("values.npy", data)
    refusal(path, "'values'", word)
    if data:
        bare = tmp_path / "t.npy"
        bare.write_bytes(data)
        refusal(bare, "the array", word)


def test_a_bomb_is_refused_before_it_is_inflated(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez_compressed(path, x=X, values=np.zeros(4_000_000))
    assert path.stat().st_size < 100_000
    refusal(path, "--max-bytes", "32,000", max_bytes=1 << 20)
    # A directory that lies about the size: reading stops at what it claims.
    damaged = path.read_bytes().replace(struct.pack("<I", 32_000_128), struct.pack("<I", 224))
    path.write_bytes(damaged)
    refusal(path, max_bytes=1 << 20)


def test_archives_that_numpy_does_not_write_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    member = io.BytesIO()
    np.save(member, V)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../values.npy", member.getvalue())
    refusal(path, "../values.npy")
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "w") as archive:
        archive.writestr("values.npy", member.getvalue())
        archive.writestr("values.npy", member.getvalue())
    refusal(path, "twice")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("values.npy", member.getvalue())
    refusal(path, "packed")
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(300):
            archive.writestr(f"a{number}.npy", member.getvalue())
    refusal(path, "300 arrays")


def test_a_damaged_file_is_refused_wherever_it_is_damaged_or_cut(tmp_path: Path) -> None:
    whole = tmp_path / "t.npz"
    np.savez_compressed(whole, x=X, y=Y, values=V)
    data = whole.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for trial in range(300):
        broken = bytearray(data)
        if trial % 3 == 0:
            broken = broken[: rng.integers(0, len(data))]
        else:
            for place in rng.integers(0, len(data), size=3):
                broken[place] ^= 1 << rng.integers(8)
        whole.write_bytes(broken)
        try:
            read_contents(whole)
        except BadInput:
            refused += 1
    assert refused > 250


# -- npy


def test_a_bare_array_is_read_as_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.npy"
    grid = np.array([[x, y, x * y] for y in Y for x in X])
    np.save(path, grid)
    same(read_contents(path), ("x1", "x2"), (X, Y), X[:, None] * Y)
    np.save(path, np.zeros((100, 200)))
    refusal(path, "(100, 200)", "np.savez")
    refusal(path, "without names", values="a")


# -- csv


def test_rows_that_form_a_grid_are_a_table_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = [f"{x!r},{y!r},{float(v)!r}" for (x, y), v in zip(((float(a), float(b)) for a in X for b in Y), V.flat, strict=True)]
    np.random.default_rng(0).shuffle(lines)
    path.write_text("x,y,v\n# a remark\n\n" + "\n".join(lines) + "\n")
    same(read_contents(path))
    path.write_text("\n".join(lines))
    same(read_contents(path), ("x1", "x2"))
    path.write_text("x;y;v\n" + "\n".join(lines).replace(",", ";"))
    same(read_contents(path))
    path.write_text("x\ty\tv\n" + "\n".join(lines).replace(",", "\t"))
    same(read_contents(path))


def test_rows_that_do_not_form_a_grid_are_samples_and_the_note_says_why(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,y,v\n0,0,1\n0,1,2\n1,0,3\n")
    found = read_contents(path)
    assert isinstance(found.target(), Samples) and "1 of the 2 x 2" in found.notes[0]
    path.write_text("x,y,v\n0,0,1\n0,1,2\n1,0,3\n1,0,4\n")
    assert "twice" in read_contents(path).notes[0]
    path.write_text("x,y,v\n0,5,1\n1,5,2\n")
    same(read_contents(path), ("x",), (np.array([0.0, 1.0]),), [1.0, 2.0])


def test_values_and_axes_of_a_csv_are_columns_by_name(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,x,b,unit\n1,0,10,K\n2,1,20,K\n")
    same(read_contents(path, "a", "x"), ("x",), (np.array([0.0, 1.0]),), [1.0, 2.0])
    both = read_contents(path, "b,a", "x")
    assert both.values.tolist() == [[10, 1], [20, 2]] and both.notes == ("not used: 'unit'",)
    refusal(path, "column unit", "'K' is not a number")
    refusal(path, "'z'", "'a', 'x', 'b', 'unit'", values="z")
    refusal(path, "leaves no column", values="a,x,b,unit")


def test_a_matrix_with_its_axes_along_two_sides_is_a_table(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    body = "\n".join(",".join(repr(float(c)) for c in (x, *row)) for x, row in zip(X, V, strict=True))
    top = ",".join(repr(float(y)) for y in Y)
    path.write_text(f",{top}\n{body}\n")
    same(read_contents(path), ("x1", "x2"))
    path.write_text(f"x/y,{top}\n{body}\n")
    same(read_contents(path))
    same(read_contents(path, axes="T,p"), ("T", "p"))
    refusal(path, "no name", values="v")
    path.write_text(f"x/y,{top.replace('7.0', '2.0')}\n{body}\n")
    refusal(path, "twice")


def test_empty_cells_are_missing_values_and_no_coordinates(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,v\n0,1\n1,\n2,NA\n3,nan\n")
    assert read_contents(path).missing == 3
    path.write_text("x,v\n0,1\n,2\n")
    refusal(path, "'x'", "finite")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty"]),
        ("# nothing\n\n", ["empty"]),
        ("x,v\n", ["no entries"]),
        ("x\n1\n", ["one column"]),
        ("x,x,v\n1,2,3\n", ["twice"]),
        ("x,,v\n1,2,3\n", ["no name"]),
        ("x,v\n1,2\n# remark\n1,2,3\n", ["line 4", "3 cells"]),
        ("x,v\n1,2\n2,two\n", ["line 3", "column v", "'two'"]),
        ("x;v\n1,5;2\n2;3\n", ["line 2", "'1,5'", "with a point"]),
        ("x,v\n1,1e999\n2,3\n", ["infinite"]),
        ('x,v\n1,"2\n', ["not CSV"]),
        ("x,v\n1," + "9" * 200_000 + "\n2,3\n", ["infinite"]),
        ("x,v\n1,1\n", ["one entry"]),
    ],
)
def test_text_that_is_no_table_gets_a_sentence(text: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    refusal(path, *words)


def test_bytes_that_are_no_text_get_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"x,v\n1,\xff\xfe\n")
    refusal(path, "UTF-8")


# -- netcdf


def classic(path: Path, version: int = 1, **attributes: object) -> None:
    from scipy.io import netcdf_file

    with netcdf_file(path, "w", version=version) as file:
        for name, axis in (("lat", Y[::-1]), ("lon", X)):
            file.createDimension(name, len(axis))
            file.createVariable(name, "d", (name,))[:] = axis
        packed = file.createVariable("rho", "h", ("lon", "lat"))
        packed[:] = np.arange(12).reshape(3, 4)
        for key, value in attributes.items():
            setattr(packed, key, value)


@pytest.mark.parametrize("version", [1, 2])
def test_a_classic_netcdf_variable_is_unpacked(version: int, tmp_path: Path) -> None:
    path = tmp_path / "t.nc"
    marks = {"_FillValue": np.int16(3), "missing_value": np.int16(5), "valid_max": np.int16(10)}
    classic(path, version, scale_factor=0.5, add_offset=10.0, **marks)
    found = read_contents(path)
    wanted = np.arange(12.0).reshape(3, 4) * 0.5 + 10
    for gone in (3, 5, 11):
        wanted.flat[gone] = np.nan
    same(found, ("lon", "lat"), (X, Y), wanted[:, ::-1])
    assert found.outputs == ("rho",) and found.missing == 3


def test_netcdf_without_coordinates_or_with_several_variables_gets_a_sentence(tmp_path: Path) -> None:
    from scipy.io import netcdf_file

    path = tmp_path / "t.nc"
    with netcdf_file(path, "w") as file:
        file.createDimension("x", 3)
        file.createDimension("time", 1)
        file.createVariable("a", "d", ("x",))[:] = X
        file.createVariable("b", "d", ("time", "x"))[:] = X
        file.createVariable("time", "d", ("time",))[:] = 4.0
    refusal(path, "'a', 'b'", "--values NAME")
    refusal(path, "dimension 'x'", "coordinate", values="a")
    refusal(path, "NetCDF file says itself", axes="x", values="a")
    with netcdf_file(path, "a") as file:
        file.createVariable("x", "d", ("x",))[:] = Y[:3]
    found = read_contents(path, "b")
    same(found, ("x",), (Y[:3],), X)
    assert found.notes == ("time has one entry, 4.0, and is left out",)
    refusal(path, "different dimensions", values="a,b")


def test_damaged_classic_files_are_refused_or_read_and_never_more(tmp_path: Path) -> None:
    path = tmp_path / "t.nc"
    classic(path)
    data = path.read_bytes()
    rng = np.random.default_rng(1)
    refused = 0
    for trial in range(300):
        broken = bytearray(data)
        if trial % 3 == 0:
            broken = broken[: rng.integers(1, len(data))]
        else:
            for place in rng.integers(0, len(data), size=2):
                broken[place] = rng.integers(256)
        path.write_bytes(broken)
        try:
            read_contents(path, max_bytes=1 << 24)
        except BadInput:
            refused += 1
    assert refused > 100
    # A dimension of two thousand million entries is not believed.
    path.write_bytes(data.replace(b"lat\x00" + struct.pack(">i", 4), b"lat\x00" + struct.pack(">i", 2**31 - 1), 1))
    refusal(path, "not a sound classic NetCDF")


def hdf5(path: Path, **options: object) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        for name, axis in (("lat", Y[::-1]), ("lon", X)):
            file[name] = axis
            file[name].make_scale(name)
        made = file.create_dataset("rho", data=np.arange(12, dtype="i2").reshape(3, 4), **options)
        made.dims[0].attach_scale(file["lon"])
        made.dims[1].attach_scale(file["lat"])


def test_a_netcdf_4_variable_is_unpacked(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "t.nc"
    hdf5(path, compression="gzip", shuffle=True)
    with h5py.File(path, "a") as file:
        file["rho"].attrs["_FillValue"] = np.array([3], dtype="i2")
        file["rho"].attrs["scale_factor"] = 0.5
        file.create_group("ignored")
        file["history"] = "text"
    wanted = np.arange(12.0).reshape(3, 4) * 0.5
    wanted.flat[3] = np.nan
    same(read_contents(path), ("lon", "lat"), (X, Y), wanted[:, ::-1])


def test_hdf5_that_leads_out_of_the_file_or_needs_foreign_code_is_refused(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path, other = tmp_path / "t.nc", tmp_path / "other.nc"
    hdf5(other)
    hdf5(path)
    with h5py.File(path, "a") as file:
        file["secret"] = h5py.ExternalLink(other.name, "/rho")
    refusal(path, "'secret' is a link")
    hdf5(path)
    with h5py.File(path, "a") as file:
        file.create_dataset("outside", shape=(4,), dtype="f8", external=[(os.fspath(tmp_path / "raw"), 0, 32)])
    refusal(path, "'outside' keeps its data in other files")
    hdf5(path)
    with h5py.File(path, "a") as file:
        layout = h5py.VirtualLayout(shape=(3, 4), dtype="i2")
        layout[:] = h5py.VirtualSource(other, "rho", shape=(3, 4))
        file.create_virtual_dataset("virtual", layout)
    refusal(path, "'virtual' keeps its data in other files")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", shape=(1 << 20,), dtype="f8", chunks=(1024,)).make_scale("x")
        huge = file.create_dataset("huge", shape=(1 << 20, 1 << 20), dtype="f8", chunks=(1024, 1024), compression="gzip")
        huge.dims[0].attach_scale(file["x"])
        huge.dims[1].attach_scale(file["x"])
    assert path.stat().st_size < 100_000
    refusal(path, "--max-bytes")
    path.write_bytes(other.read_bytes()[:500])
    refusal(path, "NetCDF-4")


def test_a_reader_that_breaks_down_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The HDF5 library itself can crash over a damaged file; it does so in a process of its own."""
    pytest.importorskip("h5py")
    path, broken = tmp_path / "t.nc", tmp_path / "broken"
    hdf5(path)
    data = bytearray(path.read_bytes())
    rng = np.random.default_rng(0)
    for _ in range(3):
        damaged = bytearray(data)
        for place in rng.integers(8, len(data), size=40):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            read_contents(path)
        except BadInput as failure:
            assert "NetCDF-4" in str(failure) or "rho" in str(failure) or "its values are" in str(failure)
    hdf5(path)
    broken.write_text("#!/bin/sh\nkill -ABRT $$\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", os.fspath(broken))
    refusal(path, "broke down", "signal 6")
    broken.write_text("#!/bin/sh\necho 17\n")
    refusal(path, "broke down")


def test_modules_in_the_current_folder_are_not_run_by_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("h5py")
    path = tmp_path / "t.nc"
    hdf5(path)
    for name in ("h5py", "numpy", "json"):
        (tmp_path / f"{name}.py").write_text("from pathlib import Path\nPath('fired').touch()\n")
    monkeypatch.chdir(tmp_path)
    assert read_contents("t.nc").names == ("lon", "lat")
    assert not (tmp_path / "fired").exists()


def test_netcdf_4_without_h5py_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("h5py")
    path = tmp_path / "t.nc"
    hdf5(path)
    monkeypatch.setitem(sys.modules, "h5py", None)
    refusal(path, "maxaffine[netcdf]")


# -- any


def test_what_is_no_plain_file_of_a_known_kind_is_refused(tmp_path: Path) -> None:
    refusal(tmp_path, "not a plain file")
    refusal(tmp_path / "none.csv", "No such file")
    refusal(Path("/dev/zero"), "not a plain file")
    unknown = tmp_path / "t.xlsx"
    unknown.write_text("x")
    refusal(unknown, "'.xlsx'", ".npz")
    empty = tmp_path / "t.nc"
    empty.touch()
    refusal(empty, "empty")
    large = tmp_path / "t.csv"
    large.write_text("x,v\n1,2\n" * 100)
    refusal(large, "--max-bytes", max_bytes=100)
