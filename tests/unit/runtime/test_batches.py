"""What a batch decides: never a bit, and what explain() says of it is what happens."""

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import BadInput
from maxaffine.heads.lookup.grid import grid_coordinates, grid_keys
from maxaffine.layer.layer import Layer
from maxaffine.runtime import chooser, parallel, windowed

BOX = ma.Box.named(("x", "y"), [-1.0, -1.0], [1.0, 1.0])
TARGETS = {
    "collapsed": ("sin(2*x)*y", {"error": 1e-6, "method": "spectral"}),
    "windowed": ("sin(2*x)*y", {"error": 0.02, "method": "lookup"}),
    "two-level": ("max(x, y)", {"error": 1e-3, "method": "piecewise"}),
}


@pytest.fixture(scope="module")
def layers():
    return {name: ma.compile(text, BOX, **asked) for name, (text, asked) in TARGETS.items()}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(parallel, "_loaded", {})
    monkeypatch.setattr(parallel, "_waited", {})
    monkeypatch.setattr(parallel, "thread_count", lambda threads: threads or 2)


def grid(counts, dtype="float64"):
    D = len(counts)
    values = np.random.default_rng(0).normal(size=(*counts, 1, 1))
    box = ma.Box([-1.0] * D, [1.0] * D)
    return Layer(grid_coordinates(box, counts), grid_keys(counts), 40.0, values, box.low, box.high, ((D, 1),), dtype)


@pytest.mark.parametrize("name", TARGETS)
def test_the_bits_of_a_query_depend_neither_on_its_batch_nor_on_threads_nor_on_what_is_loaded(name, layers, monkeypatch):
    layer = layers[name]
    assert layer.runtime()[0] == name
    x = BOX.sample(3_000, np.random.default_rng(0))
    slow = layer(x[:600])
    assert not parallel.is_loaded(chooser.ways(layer.weights, name, layer.reserve or 0.0).kernel)
    monkeypatch.setattr(parallel, "ENOUGH", 1)
    monkeypatch.setattr(parallel, "SHARE", 1)
    whole = layer(x, threads=2)
    assert np.array_equal(whole[:600], slow)
    for cut in (1, 7, 300):
        assert np.array_equal(np.concatenate([layer(x[i : min(i + cut, 600)]) for i in range(0, 600, cut)]), slow)
    assert layer(x[5]) == slow[5]


@pytest.mark.parametrize("name", TARGETS)
def test_many_small_batches_load_compiled_code_in_the_end(name, layers, monkeypatch):
    layer = layers[name]
    kernel = chooser.ways(layer.weights, name, layer.reserve or 0.0).kernel
    monkeypatch.setattr(parallel, "PATIENCE", parallel.PATIENCE >> 10)
    x = BOX.sample(1, np.random.default_rng(0))
    told = layer.explain(batch=1).split("after about ")[1]
    stated = int(told.split(" ")[0].replace(",", ""))
    calls = 0
    while not parallel.is_loaded(kernel):
        layer(x)
        calls += 1
        assert calls <= stated
    assert calls == stated > 1
    assert "1 query: compiled code, one thread" in layer.explain(batch=1)


@pytest.mark.parametrize("name", ["collapsed", "windowed"])
def test_what_is_said_of_a_batch_is_what_is_done(name, layers, monkeypatch):
    layer, shared, ordered = layers[name], [], []
    found = chooser.ways(layer.weights, name, layer.reserve or 0.0)
    monkeypatch.setattr(parallel, "over", lambda first, last, work, threads, run, known=parallel.over: (
        shared.append(parallel.shares(last - first, work, threads)), known(first, last, work, threads, run)))  # fmt: skip
    monkeypatch.setattr(windowed, "order", lambda *told, known=windowed.order: (ordered.append(1), known(*told))[1])
    for count in (1, found.compiled - 1, found.compiled, found.shared - 1, found.shared):
        parallel._loaded.clear()
        parallel._waited.clear()
        shared.clear()
        said = layer.explain(batch=count)
        layer(BOX.sample(count, np.random.default_rng(0)))
        assert ("NumPy, and compiled code after" in said) == (not shared) == (count < found.compiled)
        assert ("2 threads" in said.split("batch      ")[1]) == (2 in shared) == (count >= max(found.shared, found.compiled))
    assert not ordered and "order of their cells" not in said


def test_large_batches_over_large_values_are_said_to_be_ordered():
    layer = grid((110, 100, 90))
    assert layer.values.nbytes > windowed.FAR
    said = chooser.how_it_runs(layer, batch=10**6)
    assert said == (
        "1,000,000 queries: compiled code, 2 threads, in the order of their cells (values do not fit the caches); "
        "the same bits in every batch"
    )
    assert "order" not in chooser.how_it_runs(layer, batch=1_000)
    assert "in the order of their cells from 32,768 on (values do not fit the caches)" in chooser.how_it_runs(layer)
    assert "order" not in chooser.how_it_runs(grid((30, 30, 30)), batch=10**7)


def test_runtimes_of_numpy_say_their_chunks_and_claim_no_bits():
    layer = grid((40, 40, 40))
    said = chooser.how_it_runs(layer, batch=10**6, name="dense")
    chunk = chooser.WORKSPACE // chooser.RUNTIMES["dense"].bytes_per_query(layer)
    rounding = "batches differ by rounding alone, which the bound counts"
    assert said == f"1,000,000 queries: NumPy, in chunks of {chunk:,} queries; {rounding}"
    assert "chunks" not in chooser.how_it_runs(layer, batch=1, name="dense")


def test_the_runtime_of_a_layer_is_the_same_for_every_batch_and_says_how(layers):
    for name, layer in layers.items():
        assert {layer.runtime(batch)[0] for batch in (1, 10**3, 10**7)} == {name}
        assert layer.runtime(10**7)[1].endswith("the same bits in every batch")


def test_tensors_on_the_cpu_are_answered_with_the_bits_of_arrays(layers):
    torch = pytest.importorskip("torch")
    x = BOX.sample(500, np.random.default_rng(0))
    for layer in layers.values():
        assert np.array_equal(layer(torch.from_numpy(x)).numpy(), layer(x))


def test_explain_speaks_of_tensors_on_a_device(layers):
    said = layers["collapsed"].explain(device="cuda")
    assert "the collapsed kernel: " in said and "multiply-adds per query instead of" in said
    assert "the windowed kernel: " in layers["windowed"].explain(device="cuda")
    assert "the collapsed kernel" not in layers["collapsed"].explain()
    for name, layer in layers.items():
        told = layer.statement("tensors", "float32", "cuda")
        assert told.bound is None or f"{told.bound:.4g}" in layer.explain(device="cuda"), name
    assert "tensors, float32, cuda" in layers["two-level"].explain(device="cuda")
    with pytest.raises(BadInput, match=r"`device` \(='tpu'\) must be"):
        layers["collapsed"].explain(device="tpu")
    for wrong in (0, 1.5, True):
        with pytest.raises(BadInput, match="`batch`"):
            layers["collapsed"].explain(batch=wrong)


def test_a_large_batch_in_passing_loads_nothing_that_would_take_longer_than_the_batch(monkeypatch):
    asked = []

    def absent(name):
        asked.append(name)
        raise ImportError(name)

    monkeypatch.setattr(parallel.importlib, "import_module", absent)
    with parallel.in_passing():
        assert parallel.kernel("of_no_name", 2 * parallel.ENOUGH) is None
    assert not asked
    assert parallel.kernel("of_no_name", 2 * parallel.ENOUGH) is None
    assert asked == ["maxaffine.runtime.kernel_of_no_name"]
