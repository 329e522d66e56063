"""Functions of JAX, in an interpreter of their own: JAX starts threads, and other tests fork."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def test_functions_of_jax_are_read_and_compiled() -> None:
    pytest.importorskip("jaxlib")  # its version alone: no backend is started here
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(HERE / "jax_cases.py")],
        cwd=HERE.parents[2], capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout and "skipped" not in done.stdout, done.stdout
