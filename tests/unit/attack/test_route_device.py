"""What judges routes on another machine: it starts with NumPy, safetensors and torch alone, and finds what is wrong."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from maxaffine.core.errors import BadInput

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[3]
BENCHMARKS = ROOT / "benchmarks"
GONE = ("scipy", "flint", "typer", "rich", "matplotlib", "ml_dtypes", "onnx", "onnxruntime", "numba", "sklearn", "pandas")
START = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({GONE!r}))
sys.argv = ["device", *sys.argv[1:]]
runpy.run_path({str(BENCHMARKS / "gpu_routes.py")!r}, run_name="__main__")
"""
FEW = ("axis, L_p", "spectral", "lookup", "hard table")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("routes") / "prepared"
    spec = importlib.util.spec_from_file_location("gpu_routes_prepare", BENCHMARKS / "gpu_routes_prepare.py")
    assert spec is not None and spec.loader is not None
    prepare = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(prepare)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "POINTS", 120)
        patch.setattr(prepare, "CELLS", 600)
        counts = prepare.prepare(place, FEW, layers=1, seed=11)
        with pytest.raises(BadInput, match="not empty"):
            prepare.prepare(place, FEW, layers=1, seed=11)
    assert counts["layers"] >= 10 and counts["routes"] >= 70 and counts["bytes"] < 2 << 20
    return place


def judged(place: Path, **more: str) -> tuple[int, list[dict], str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"} | more
    command = [sys.executable, "-c", START, str(place), "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode in (0, 1), done.stderr[-3000:]
    *lines, last = done.stdout.splitlines()
    return done.returncode, [json.loads(line) for line in lines], last


@pytest.mark.parametrize("kernels", ["0", "1"])
def test_no_route_is_above_its_statement_without_the_libraries_of_the_proofs(folder: Path, kernels: str) -> None:
    if kernels == "1":
        pytest.importorskip("triton")
    code, rows, last = judged(folder, TRITON_INTERPRET=kernels)
    assert code == 0 and "violations 0" in last and not any(row["violated"] for row in rows)
    assert {row["head"] for row in rows} == set(FEW) and {row["dtype"] for row in rows} == {"float64", "float32", "bfloat16"}
    assert {row["route"] for row in rows if row["bound"]} >= {
        "tensors", "tensors with gradients", "factorised tensors", "module", "literal module", "multihead",
    }  # fmt: skip
    assert all(row["points"] > 0 for row in rows if row["bound"] is not None and row["x"] == "float64")
    assert max(row["ratio"] for row in rows) > 0.5
    ran = {row["by"] for row in rows}
    assert "factorised" in ran and ({"collapsed", "windowed"} <= ran if kernels == "1" else "native" in ran)


def test_a_route_above_its_statement_is_found(folder: Path, tmp_path: Path) -> None:
    index = json.loads((folder / "index.json").read_text())
    entry = next(one for one in index["layers"] if one["head"] == "spectral" and one["dtype"] == "float64")
    for said in entry["statements"]:
        if said["bound"] is not None:
            said["bound"] *= 1e-3
    for name in (entry["file"], entry["points"]):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "index.json").write_text(json.dumps({"seed": 0, "layers": [entry]}))
    code, rows, last = judged(tmp_path)
    assert code == 1 and "violations 0" not in last and any(row["violated"] and row["at"] for row in rows)


def test_true_values_are_enclosed(folder: Path) -> None:
    index = json.loads((folder / "index.json").read_text())
    for entry in index["layers"]:
        with np.load(folder / entry["points"]) as held:
            assert (held["low"] <= held["high"]).all() and len(held["x"]) == len(held["narrow"]) == len(held["low"])
            bounds = [said["bound"] for said in entry["statements"] if said["bound"]]
            if entry["kind"] == "sup" and bounds:
                assert (held["high"] - held["low"]).max() <= 1e-3 * min(bounds)
