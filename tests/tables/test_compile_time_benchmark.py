"""The benchmark of compile times: a request in a process of its own, stage by stage; a failure is no stop."""

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"


def measured(text: str, names: str) -> subprocess.CompletedProcess[str]:
    """What the benchmark makes of a request, in a fresh interpreter: the benchmark forks, which one with threads must not."""
    words = f"forked(Ask('{text}', '{text}', cube('{names}'), 1e-3), 60.0)"
    code = f"import json; from compile_time import Ask, cube, forked; print(json.dumps({words}))"
    return subprocess.run([sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True, timeout=120)


def test_a_request_is_measured_stage_by_stage() -> None:
    row = json.loads(measured("sin(x)*cos(y)", "x y").stdout)
    assert (row["kind"], row["method"]) == ("proved", "spectral") and row["bound"] <= 1e-3
    assert {"request", "plan", "build", "prove", "observe", "validate"} <= set(row["stages"])
    assert sum(row["stages"].values()) <= 1.01 * row["seconds"] + 0.05 and row["lost"] < row["seconds"]


def test_a_request_that_fails_is_not_recorded_as_stopped() -> None:
    failed = measured("nonsense(x", "x")
    assert failed.returncode == 1 and "nonsense(x failed" in failed.stderr
