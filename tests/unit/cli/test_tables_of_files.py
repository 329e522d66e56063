"""Tables on the command line: compile, check, eval and export of what comes out of a file."""

import csv
import io
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy.interpolate import RegularGridInterpolator

import maxaffine as ma
from maxaffine.cli.app import main

T, P = np.linspace(0.0, 100.0, 21), np.linspace(1.0, 100.0, 16)
RHO = 1000.0 - 0.0055 * (T[:, None] - 4.0) ** 2 + 0.045 * P + 2.0 * np.sin(T[:, None] / 20.0)


@pytest.fixture
def run(capsys):
    def call(*arguments):
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def refused(run, tmp_path):
    """Run, and check that it is refused: code 2, one sentence, empty standard output, no file."""

    def call(*arguments):
        before = sorted(tmp_path.rglob("*"))
        code, out, err = run(*arguments)
        assert (code, out) == (2, ""), (code, out, err)
        assert err.startswith("maxaffine: ") and err.count("\n") == 1 and "Traceback" not in err
        assert sorted(tmp_path.rglob("*")) == before
        return err

    return call


@pytest.fixture
def density(tmp_path) -> Path:
    path = tmp_path / "density.npz"
    np.savez(path, T=T, p=P, rho=RHO)
    return path


def test_a_table_is_compiled_checked_and_evaluated(run, density, tmp_path):
    layer, points = tmp_path / "rho.safetensors", tmp_path / "points.csv"
    code, out, err = run("compile", "--table", density, "--error", "0.05", "--out", layer)
    assert (code, err) == (0, "")
    assert f"table      {density}: rho over T, p: a grid of 21 x 16 entries" in out
    assert "at 336 entries; nothing between them" in out and "proved     error <= " in out
    assert f"next       maxaffine check {layer} --table {density}" in out
    code, out, _ = run("check", layer, "--table", density)
    assert code == 0 and "verdict    proved" in out and "336 entries" in out and "L_" not in out
    points.write_text("T,p\n" + "\n".join(f"{t!r},{p!r}" for t in T.tolist() for p in P.tolist()))
    code, out, _ = run("eval", layer, "--points", points)
    found = np.array([float(row[2]) for row in list(csv.reader(io.StringIO(out)))[1:]])
    assert code == 0 and np.abs(found - RHO.ravel()).max() <= 0.05


def test_the_json_of_a_table_says_what_was_read(run, density):
    code, out, _ = run("compile", "--table", density, "--error", "0.05", "--json")
    found = json.loads(out)
    assert code == 0 and found["norm"] == "entries" and found["bound"] <= 0.05
    assert found["table"] == {
        "file": str(density), "kind": "table", "variables": ["T", "p"], "values": ["rho"], "shape": [21, 16], "missing": 0,
        "notes": [],
    }  # fmt: skip


def test_a_hard_layer_needs_no_error_and_answers_as_scipy_does(run, density, tmp_path):
    layer, points = tmp_path / "rho.safetensors", tmp_path / "points.csv"
    assert run("compile", "--table", density, "--method", "nearest", "--out", layer, "--quiet") == (0, "", "")
    again = tmp_path / "again.safetensors"
    code, out, err = run("compile", "--table", density, "--hard", "--out", again, "--quiet")
    assert (code, out) == (0, "") and "--method nearest" in err and again.read_bytes() == layer.read_bytes()
    assert run("check", layer, "--table", density)[0] == 0
    asked = np.random.default_rng(0).uniform([0, 1], [100, 100], size=(200, 2))
    points.write_text("T,p\n" + "\n".join(f"{t!r},{p!r}" for t, p in asked.tolist()))
    _, out, _ = run("eval", layer, "--points", points)
    found = np.array([float(row[2]) for row in list(csv.reader(io.StringIO(out)))[1:]])
    assert np.array_equal(found, RegularGridInterpolator((T, P), RHO, method="nearest")(asked))


def test_the_same_table_in_every_format_is_the_same_layer(run, density, tmp_path):
    pytest.importorskip("h5py")
    import h5py
    from scipy.io import netcdf_file

    np.save(tmp_path / "t.npy", np.array([[t, p, RHO[i, j]] for i, t in enumerate(T) for j, p in enumerate(P)]))
    rows = "\n".join(f"{t!r},{p!r},{float(RHO[i, j])!r}" for i, t in enumerate(T.tolist()) for j, p in enumerate(P.tolist()))
    (tmp_path / "t.csv").write_text(f"T,p,rho\n{rows}\n")
    side = "\n".join(f"{t!r}," + ",".join(map(repr, row)) for t, row in zip(T.tolist(), RHO.tolist(), strict=True))
    (tmp_path / "m.csv").write_text("T/p," + ",".join(map(repr, P.tolist())) + f"\n{side}\n")
    with netcdf_file(tmp_path / "t.nc", "w") as file, h5py.File(tmp_path / "t4.nc", "w") as newer:
        for name, axis in (("T", T), ("p", P)):
            file.createDimension(name, len(axis))
            file.createVariable(name, "d", (name,))[:] = axis
            newer[name] = axis
            newer[name].make_scale(name)
        file.createVariable("rho", "d", ("T", "p"))[:] = RHO
        newer["rho"] = RHO
        newer["rho"].dims[0].attach_scale(newer["T"])
        newer["rho"].dims[1].attach_scale(newer["p"])
    layer = tmp_path / "rho.safetensors"
    assert run("compile", "--table", density, "--error", "0.05", "--out", layer)[0] == 0
    for name in ("t.npy", "t.csv", "m.csv", "t.nc", "t4.nc"):
        code, out, err = run("check", layer, "--table", tmp_path / name)
        assert code == 0 and "verdict    proved" in out, (name, out, err)


def test_another_table_does_not_prove_the_layer(run, density, tmp_path):
    layer, other = tmp_path / "rho.safetensors", tmp_path / "other.npz"
    run("compile", "--table", density, "--error", "0.05", "--out", layer)
    np.savez(other, T=T, p=P, rho=np.nextafter(RHO, 2000.0))
    code, out, err = run("check", layer, "--table", other)
    assert code == 1 and "not proved" in out and "SHA-256" in err
    code, out, err = run("check", layer)
    assert code == 1 and "--table FILE" in err


def test_samples_are_compiled_and_checked(run, tmp_path):
    path, layer = tmp_path / "s.csv", tmp_path / "s.safetensors"
    points = np.random.default_rng(1).uniform(-1, 1, size=(150, 2))
    path.write_text("u,v,f\n" + "\n".join(f"{a!r},{b!r},{a * a - b!r}" for a, b in points.tolist()))
    code, out, _ = run("compile", "--table", path, "--error", "0.05", "--out", layer)
    assert code == 0 and "f over u, v: 150 scattered samples" in out
    assert run("check", layer, "--table", path)[0] == 0
    assert ma.load(layer).box.names == ("u", "v")


def test_missing_values_are_refused_or_declared_and_the_check_knows(run, refused, tmp_path):
    path, layer = tmp_path / "gaps.npz", tmp_path / "gaps.safetensors"
    gaps = np.where(RHO > 1003.0, np.nan, RHO)
    np.savez(path, T=T, p=P, rho=gaps)
    assert "--missing ignore" in refused("compile", "--table", path, "--error", "0.05", "--out", layer)
    assert "'drop'" in refused("compile", "--table", path, "--error", "0.05", "--missing", "drop")
    code, out, err = run("compile", "--table", path, "--error", "0.05", "--missing", "ignore", "--out", layer)
    assert code == 0 and f"{int(np.isnan(gaps).sum())} of them missing" in out, err
    assert run("check", layer, "--table", path)[0] == 0


def test_values_and_axes_reach_the_file(run, refused, tmp_path):
    path, layer = tmp_path / "two.npz", tmp_path / "two.safetensors"
    np.savez(path, T=T, p=P, rho=RHO, mu=RHO / 2)
    assert "--values NAME" in refused("compile", "--table", path, "--error", "0.05")
    code, out, _ = run("compile", "--table", path, "--values", "rho,mu", "--axes", "T,p", "--error", "0.05", "--out", layer)
    assert code == 0 and "rho, mu over T, p" in out and "--values rho,mu --axes T,p    proves it again" in out
    assert ma.load(layer).target.output_shape == (2,)
    assert run("check", layer, "--table", path, "--values", "rho,mu")[0] == 0
    assert run("check", layer, "--table", path, "--values", "rho")[0] == 1


def test_options_that_contradict_a_table_are_refused(run, refused, density, tmp_path):
    table = ("--table", density, "--error", "0.05")
    assert "leave out the expression" in refused("compile", "sin(x)", *table)
    assert "leave out --box" in refused("compile", *table, "--box", "x=0:1")
    assert "leave out --lipschitz" in refused("compile", *table, "--lipschitz", "1")
    assert "leave out --gap" in refused("compile", *table, "--gap", "1")
    assert "leave `norm` out" in refused("compile", *table, "--norm", "2")
    assert "choose one of auto" in refused("compile", *table, "--method", "tree")
    assert "--error is missing" in refused("compile", "--table", density)
    assert "nothing to compile" in refused("compile", "--error", "0.1")
    for option in (("--values", "v"), ("--axes", "x"), ("--missing", "ignore"), ("--method", "nearest")):
        assert "--table" in refused("compile", "sin(x)", "--box", "x=0:1", "--error", "0.1", *option)
    layer = tmp_path / "f.safetensors"
    assert main(["compile", "sin(x)", "--box", "x=0:1", "--error", "0.1", "--out", str(layer), "--quiet"]) == 0
    assert "not compiled from a table" in refused("check", layer, "--table", density)
    assert "--table" in refused("check", layer, "--values", "rho")


class Armed:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_bad_files_are_refused_with_their_name_and_nothing_runs(run, refused, density, tmp_path):
    fired = tmp_path / "fired"
    whole = density.read_bytes()
    bad = {
        "cut.npz": whole[: len(whole) // 2],
        "noise.npz": os.urandom(4096),
        "pickle.npz": pickle.dumps(Armed(fired)),
        "noise.nc": b"CDF\x01" + os.urandom(200),
        "cut.nc": b"\x89HDF\r\n\x1a\n" + os.urandom(500),
        "text.csv": b"x,y,v\n1,2,three\n",
        "empty.csv": b"",
    }
    for name, data in bad.items():
        (tmp_path / name).write_bytes(data)
    np.savez(tmp_path / "object.npz", T=T, p=P, rho=np.array([[Armed(fired)]], dtype=object), allow_pickle=True)
    for name in (*bad, "object.npz", "not-there.npz"):
        assert name in refused("compile", "--table", tmp_path / name, "--error", "0.1", "--out", tmp_path / "f.safetensors")
    assert "--max-bytes" in refused("compile", "--table", density, "--error", "0.1", "--max-bytes", "1000")
    assert not fired.exists()


@pytest.mark.parametrize("to", ["torch", "mha", "onnx", "safetensors"])
def test_a_layer_of_a_table_is_exported_with_its_certificate(run, density, tmp_path, to):
    pytest.importorskip({"torch": "torch", "mha": "torch", "onnx": "onnxruntime"}.get(to, "numpy"))
    layer, out = tmp_path / "rho.safetensors", tmp_path / ("e.onnx" if to == "onnx" else "e.safetensors")
    assert run("compile", "--table", density, "--error", "0.05", "--out", layer, "--quiet")[0] == 0
    code, told, err = run("export", layer, "--to", to, "--out", out)
    assert code == 0 and told.startswith("export") and "difference seen" in told and "float64" in told, err
    assert b"entries" in out.read_bytes() and b"sha256" in out.read_bytes()


WHERE = [("torch", "write.module_answers"), ("onnx", "write.onnx_answers"), ("safetensors", "safetensors_file.run")]


@pytest.mark.parametrize(("to", "where"), WHERE)
def test_an_export_that_says_something_else_is_refused(run, refused, density, tmp_path, monkeypatch, to, where):
    pytest.importorskip({"torch": "torch", "onnx": "onnxruntime"}.get(to, "numpy"))
    import importlib

    layer, out = tmp_path / "rho.safetensors", tmp_path / ("e.onnx" if to == "onnx" else "e.safetensors")
    assert run("compile", "--table", density, "--error", "0.05", "--out", layer, "--quiet")[0] == 0
    file, name = where.split(".")
    module = importlib.import_module(f"maxaffine.export.{file}")
    true = getattr(module, name)
    if to == "safetensors":
        monkeypatch.setattr(module, name, lambda place, x: true(place, x) + 0.1)
    else:
        monkeypatch.setattr(module, name, lambda *how: lambda x: true(*how)(x) + 0.1)
    assert "differs from the layer" in refused("export", layer, "--to", to, "--out", out)


def test_the_export_of_a_hard_layer_says_that_it_is_a_softmax(run, density, tmp_path):
    pytest.importorskip("onnxruntime")
    import onnxruntime

    layer, out = tmp_path / "rho.safetensors", tmp_path / "e.onnx"
    assert run("compile", "--table", density, "--method", "nearest", "--out", layer, "--quiet")[0] == 0
    code, told, _ = run("export", layer, "--to", "onnx", "--out", out)
    row = next(line for line in told.splitlines() if line.startswith("softmax for nearest"))
    assert code == 0 and float(row.split()[4]) > 0.1 and "the softmax is another function" in told
    assert b"the softmax is another function" in out.read_bytes()
    entries = np.stack(np.meshgrid(T, P, indexing="ij"), axis=-1).reshape(-1, 2)
    (found,) = onnxruntime.InferenceSession(out.read_bytes()).run(None, {"x": entries})
    assert np.abs(found - RHO.ravel()).max() < 1e-6  # at the entries themselves it is as good as the nearest
