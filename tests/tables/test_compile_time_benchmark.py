"""The benchmark of compile times: a request in a process of its own, stage by stage; a failure is no stop."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> Iterator[Any]:
    sys.path.insert(0, str(FOLDER))
    try:
        import compile_time

        yield compile_time
    finally:
        sys.path.remove(str(FOLDER))


def test_a_request_is_measured_stage_by_stage(benchmark: Any) -> None:
    row = benchmark.forked(benchmark.Ask("sin x cos y", "sin(x)*cos(y)", benchmark.cube("x y"), 1e-3), 60.0)
    assert (row["kind"], row["method"]) == ("proved", "spectral") and row["bound"] <= 1e-3
    assert {"request", "plan", "build", "prove", "observe", "validate"} <= set(row["stages"])
    assert sum(row["stages"].values()) <= 1.01 * row["seconds"] + 0.05 and row["lost"] < row["seconds"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of JAX at a fork, where it was imported
def test_a_request_that_fails_is_not_recorded_as_stopped(benchmark: Any) -> None:
    with pytest.raises(RuntimeError, match="nonsense failed"):
        benchmark.forked(benchmark.Ask("nonsense", "nonsense(x", benchmark.cube("x"), 1e-2), 60.0)
