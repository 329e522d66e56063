"""Units on a real Dask cluster of several processes, one of which is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from maxaffine.cli.app import main

pytest.importorskip("distributed", reason="distributed is not installed")
TOYS = Path(__file__).with_name("toys")

# A cluster in a process of its own: its event loop and its warnings stay out of the tests.
CLUSTER = """
import sys
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        pids = [nanny.pid for nanny in cluster.workers.values()]  # of the processes that compute
        print(cluster.scheduler_address, *pids, flush=True)
        sys.stdin.readline()
"""


@pytest.fixture
def cluster(tmp_path):
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER)
    environment = {**os.environ, "PYTHONPATH": str(TOYS), "DASK_DISTRIBUTED__NANNY__PRE_SPAWN_ENVIRON__OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=environment, cwd=tmp_path,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None and process.stdin is not None
            address, *pids = process.stdout.readline().split()
            yield address, [int(pid) for pid in pids]
            process.stdin.write("\n")
            process.stdin.flush()
            process.wait(timeout=30)
        finally:
            if process.poll() is None:
                process.kill()


def test_a_killed_dask_worker_does_not_keep_a_run_from_completing_with_the_same_results(cluster, tmp_path, monkeypatch):
    address, pids = cluster
    assert len(pids) == 2
    monkeypatch.syspath_prepend(str(TOYS))
    words = ["lab", "run", "lab_toy:EXPERIMENT", "--set", "count=10", "--set", "wait=0.3"]
    folder = tmp_path / "dask"
    run = subprocess.Popen(
        [sys.executable, "-m", "maxaffine", *words, "--dask", address, "--out", str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(TOYS)},
    )  # fmt: skip
    deadline = time.monotonic() + 60
    journal = folder / "results.jsonl"
    while not journal.exists() or journal.read_bytes().count(b"\n") < 2:
        assert run.poll() is None and time.monotonic() < deadline, run.communicate()
        time.sleep(0.02)
    os.kill(pids[0], signal.SIGKILL)
    _, err = run.communicate(timeout=90)
    assert run.returncode == 0, err
    assert main([*words[:-1], "wait=0.0", "--out", str(tmp_path / "here")]) == 0
    there, here = (json.loads((path / "results.json").read_text())["results"] for path in (folder, tmp_path / "here"))
    assert there == here and len(there) == 10


def test_an_address_where_nobody_listens_is_a_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(TOYS))
    monkeypatch.setattr("maxaffine.lab.executors.PATIENCE", "1s")
    assert main(["lab", "run", "lab_toy:EXPERIMENT", "--dask", "tcp://127.0.0.1:9", "--out", str(tmp_path / "run")]) == 2
    assert "no scheduler answers there" in capsys.readouterr().err
