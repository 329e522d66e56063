"""Large lookups: values in pieces, by an executor, straight into the file; mapped from it; memory as stated."""

import json
import subprocess
import sys
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker import check
from maxaffine.core import container, streams
from maxaffine.core.errors import BadInput, Refused
from maxaffine.heads.lookup import streamed

BOX = ma.Box.named(("x", "y"), [-1.0, 0.0], [1.0, 1.0])


class Recorder(Executor):
    """Runs every task at once, in this process, after a journey through its bytes."""

    def __init__(self):
        self.sizes = []

    def submit(self, fn, /, task):
        import pickle

        sent = pickle.dumps(task)
        self.sizes.append(len(sent))
        future = Future()
        future.set_result(fn(pickle.loads(sent)))  # noqa: S301, what it wrote itself
        return future


def asked(tmp_path, **more):
    return ma.compile("sin(2*x)*y", BOX, error=0.01, method="lookup", run=ma.Run(out=tmp_path / "f.safetensors", **more))


def test_a_streamed_layer_is_the_layer_built_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(streamed, "CELLS", 5_000)
    plain = ma.compile("sin(2*x)*y", BOX, error=0.01, method="lookup")
    executor = Recorder()
    layer = asked(tmp_path, executor=executor)
    assert len(executor.sizes) > 3 and max(executor.sizes) < 4_000  # expressions travel as text, cells as two numbers
    assert isinstance(layer.weights.values, np.memmap)
    assert layer.weights.keys.shape == plain.weights.keys.shape
    assert np.abs(layer.weights.values - plain.weights.values).max() < 1e-14
    assert layer.bound == pytest.approx(plain.bound, rel=1e-9) and layer.certificate.kind == "proved"
    again = ma.load(tmp_path / "f.safetensors")
    x = BOX.sample(500, np.random.default_rng(0))
    assert np.array_equal(again(x), layer(x))
    assert check(*container.read_container(tmp_path / "f.safetensors")).passed
    assert [path.name for path in tmp_path.iterdir()] == ["f.safetensors"]


def test_a_streamed_layer_is_proved_again_before_its_file_stands(tmp_path):
    told = []
    layer = asked(tmp_path, executor=Recorder(), progress=lambda stage, done, total: told.append((stage, done, total)))
    count = layer.weights.keys.count
    assert ("proved again, every value", count, count) in told
    stages = [stage for stage, _, _ in told]
    assert stages.index("proved again, every value") > stages.index("values")


def test_a_value_that_was_damaged_on_its_way_is_found_and_nothing_is_left(tmp_path):
    class Damaging(Recorder):
        def submit(self, fn, /, task):
            future = super().submit(fn, task)
            values, seen = future.result()
            damaged = values.copy()
            damaged[len(values) // 3] += 0.02  # after it was seen: the certificate knows nothing of it
            future = Future()
            future.set_result((damaged, seen))
            return future

    with pytest.raises(Refused, match="the independent checker does not confirm this layer, so it is not saved"):
        asked(tmp_path, executor=Damaging())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("lipschitz", [2.0, [2.0]])
def test_a_declared_constant_reaches_the_checker(tmp_path, lipschitz):
    # no constant of this target can be derived: one of its factors has an infinite slope at the origin
    box = ma.Box.named(("x",), [0.0], [1.0])
    path = tmp_path / "f.safetensors"
    run = ma.Run(out=path, executor=Recorder())
    layer = ma.compile("sqrt(x)**2 + x", box, error=1e-3, method="lookup", lipschitz=lipschitz, run=run)
    assert layer.certificate.kind == "proved" and check(*container.read_container(path)).passed


def test_threads_compute_the_same_file(tmp_path, monkeypatch):
    monkeypatch.setattr(streamed, "CELLS", 3_000)
    with ThreadPoolExecutor(3) as executor:
        asked(tmp_path, executor=executor)
    first = (tmp_path / "f.safetensors").read_bytes()
    asked(tmp_path, executor=Recorder())
    assert (tmp_path / "f.safetensors").read_bytes() == first


def test_a_big_file_is_mapped_checked_and_refused_when_it_was_touched(tmp_path, monkeypatch):
    monkeypatch.setattr(container, "BIG", 1_000)
    monkeypatch.setattr(container, "PIECE", 4_096)
    path = tmp_path / "f.safetensors"
    layer = asked(tmp_path, executor=Recorder())
    loaded = ma.load(path)
    assert isinstance(loaded.weights.values, np.memmap) and not loaded.weights.values.flags.writeable
    x = BOX.sample(200, np.random.default_rng(0))
    assert np.array_equal(loaded(x), layer(x))
    loaded.save(tmp_path / "g.safetensors")
    assert np.array_equal(ma.load(tmp_path / "g.safetensors").weights.values, layer.weights.values)
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(BadInput, match="content hash"):
        ma.load(path)
    data[-8:] = np.array([np.nan]).tobytes()
    path.write_bytes(bytes(data))
    with pytest.raises(BadInput, match="not finite"):
        ma.load(path)
    path.write_bytes(bytes(data[:-8]))
    with pytest.raises(BadInput, match="do not fill the file"):
        ma.load(path)


def test_nothing_is_left_where_a_compile_fails(tmp_path, monkeypatch):
    class Broken(Executor):
        def submit(self, fn, /, task):
            raise RuntimeError("the cluster is gone")

    with pytest.raises(RuntimeError, match="the cluster is gone"):
        asked(tmp_path, executor=Broken())
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(streams.shutil, "disk_usage", lambda folder: (0, 0, 10)[2] and type("U", (), {"free": 10})())
    with pytest.raises(Refused, match="are free in its folder"):
        asked(tmp_path, executor=Recorder())
    assert not list(tmp_path.iterdir())


def test_arguments_are_checked_with_sentences(tmp_path):
    with pytest.raises(BadInput, match="`executor`"):
        asked(tmp_path, executor=3)
    with pytest.raises(BadInput, match="`out`"):
        ma.compile("x", BOX.named(("x",), [0.0], [1.0]), error=0.1, run=ma.Run(out=3))
    with pytest.raises(BadInput, match="does not exist"):
        run = ma.Run(out=tmp_path / "no" / "f.safetensors", executor=Recorder())
        ma.compile("sin(2*x)*y", BOX, error=0.01, method="lookup", run=run)


def test_a_spectral_layer_goes_to_its_file_as_well(tmp_path):
    layer = ma.compile("sin(2*x)*y", BOX, error=0.01, method="spectral", run=ma.Run(out=tmp_path / "f.safetensors"))
    assert layer.file == str(tmp_path / "f.safetensors")
    assert ma.load(layer.file).bound == layer.bound


SCRIPT = """
import json, sys
import maxaffine as ma
from pathlib import Path

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) << 10

box = ma.Box.named(("x", "y"), [-1.0, 0.0], [1.0, 1.0])
run = ma.Run(out=sys.argv[1], max_bytes=400 << 20)
layer = ma.compile("sin(2*x)*y", box, error=float(sys.argv[2]), method="lookup", run=run)
print(json.dumps({"peak": peak(), "stated": layer.cost.peak_bytes, "bytes": layer.cost.bytes, "kind": layer.certificate.kind}))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_peak_of_memory_is_stated_before_and_respected(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", "import maxaffine.heads.lookup.streamed as s; s.STREAM = 1 << 20\n"
         "import maxaffine.heads.lookup.limits as l; l.STREAM = 1 << 20\n" + SCRIPT, str(tmp_path / "f.safetensors"), "0.0009"],
        capture_output=True, text=True, timeout=200, check=True,
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert told["kind"] == "proved" and told["bytes"] > 8 << 20
    assert told["peak"] <= told["stated"]


PIECES = """
import sys
import numpy as np
from pathlib import Path
from maxaffine.core import mapped

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssFile")) << 10

with open(sys.argv[1], "wb") as file:
    file.truncate(200 << 20)
values = np.memmap(sys.argv[1], np.float64, mode="r").reshape(-1, 2)
mapped.RESIDENT = int(sys.argv[2])
before, most, seen = resident(), 0, 0
for start, piece in mapped.pieces(values, 1 << 17):
    assert start == seen and not piece.any()
    seen, most = seen + len(piece), max(most, resident() - before)
assert seen == len(values)
print(most, resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_mapped_values_looked_at_in_pieces_are_given_back(tmp_path):
    most = {}
    for limit in (16 << 20, 1 << 30):
        done = subprocess.run(
            [sys.executable, "-c", PIECES, str(tmp_path / "v.bin"), str(limit)],
            capture_output=True, text=True, timeout=100, check=True,
        )  # fmt: skip
        most[limit], left = (int(number) for number in done.stdout.split())
        assert left < 8 << 20
    assert most[16 << 20] < 32 << 20 and most[1 << 30] > 150 << 20  # the second shows that the first could fail


PAGES = """
import sys
import numpy as np
import maxaffine as ma
from pathlib import Path
from maxaffine.layer.layer import Layer
from maxaffine.heads.lookup.grid import grid_coordinates, grid_keys
from maxaffine.runtime import parallel, windowed

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssFile")) << 10

P = 5_000
with open(sys.argv[1], "wb") as file:
    file.truncate(8 * P * P)  # zeros that take no disk
values = np.memmap(sys.argv[1], np.float64, mode="r", shape=(P, P, 1, 1))
box = ma.Box([-1.0, -1.0], [1.0, 1.0])
layer = Layer(grid_coordinates(box, (P, P)), grid_keys((P, P)), 40.0, values, box.low, box.high, ((2, 1),))
windowed.MAPPED = 16 << 20
parallel.ENOUGH, windowed.MANY_MAPPED, batch = (int(number) for number in sys.argv[2:5])
x = np.random.default_rng(0).uniform(-1, 1, size=(6_000, 2))
windowed.evaluate(layer, x[:10])
before = resident()
for i in range(0, len(x), batch):
    assert not windowed.evaluate(layer, x[i : i + batch]).any()
print(resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("enough", "many", "batch"), [("0", "1000000", "500"), ("1000000000", "1", "500"), ("0", "1", "500"), ("0", "1", "6000")],
    ids=["kernel", "NumPy", "in the order of cells", "in the order of cells, one batch"],
)  # fmt: skip
def test_pages_of_mapped_values_are_given_back(tmp_path, enough, many, batch):
    done = subprocess.run(
        [sys.executable, "-c", PAGES, str(tmp_path / "v.bin"), enough, many, batch],
        capture_output=True, text=True, timeout=200, check=True,
    )  # fmt: skip
    assert int(done.stdout) < 24 << 20
