"""Large lookups through a Dask cluster: the same file as by a thread."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import maxaffine as ma

distributed = pytest.importorskip("distributed")


def test_a_dask_cluster_writes_the_same_file_as_a_thread(tmp_path: Path) -> None:
    box = ma.Box(x=(-1, 1), y=(-1, 1))
    with ThreadPoolExecutor(1) as executor:
        run = ma.Run(out=tmp_path / "here.safetensors", executor=executor)
        ma.compile("sin(3*x)*y", box, error=2e-2, method="lookup", run=run)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        run = ma.Run(out=tmp_path / "there.safetensors", executor=client.get_executor())
        there = ma.compile("sin(3*x)*y", box, error=2e-2, method="lookup", run=run)
        layer = ma.compile(lambda x: x[:, 0] * x[:, 1], box, error=1e-2, trace=False)
        for one in (there, layer):  # workers run layers, those of a lambda and those mapped from a file too
            x = box.sample(20, np.random.default_rng(0))
            assert np.array_equal(client.submit(one, x).result(), one(x))
    assert (tmp_path / "here.safetensors").read_bytes() == (tmp_path / "there.safetensors").read_bytes()
