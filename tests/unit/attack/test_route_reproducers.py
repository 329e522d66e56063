"""The violations that an attack on all routes found, by number: each is now within its statement, refused, or stated larger."""

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.attack.search import Effort
from maxaffine.attack.walk import walk
from maxaffine.attack.ways import ways
from maxaffine.checker import check
from maxaffine.core.container import write_container
from maxaffine.core.errors import MaxaffineError
from maxaffine.proofs.known_error import known_errors
from maxaffine.proofs.routes import narrow_tolerance
from maxaffine.runtime.gpu.tables import polynomials

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

LINE, SQUARE = ma.Box(x=(-1, 1)), ma.Box(x=(-1, 1), y=(-1, 1))


@cache
def layer_of(text: str, error: float, dtype: str = "float64", **options: Any) -> ma.Compiled:
    return ma.compile(text, SQUARE if "y" in text else LINE, error=error, dtype=dtype, **options)


def errors(layer: ma.Compiled, x: np.ndarray) -> dict[str, tuple[float, float | None]]:
    """Per way to run the layer: its error at points x by balls, and its bound; where no bound is stated, it is not run."""
    found: dict[str, tuple[float, float | None]] = {}
    for way in ways(layer):
        if way.statement.bound is None:
            found[f"{way.name}, {way.statement.dtype}"] = (0.0, None)
            continue
        try:
            run = way.build()
        except MaxaffineError:
            continue
        points = np.clip(x.astype(np.float32).astype(np.float64), layer.weights.low, layer.weights.high) if way.narrow else x
        found[f"{way.name}, {way.statement.dtype}"] = float(known_errors(run, layer.target, points).max()), way.statement.bound
    return found


def within(layer: ma.Compiled, x: np.ndarray) -> dict[str, tuple[float, float | None]]:
    found = errors(layer, x)
    for name, (error, bound) in found.items():
        assert bound is None or error <= bound, (name, error, bound)
    return found


# ---------------------------------------------------------------------- V1: clusters on tensors


def test_v1_asking_for_a_gradient_changes_nothing():
    layer = layer_of("abs(sin(7*x))", 1e-9)
    at = np.array([[0.8966949105625269]])
    exact = float(layer.target.values(at).ravel()[0])
    t = torch.tensor(at)
    assert layer.bound is not None and layer.bound <= 1e-9
    module = layer.to_torch()
    for answer in (layer(t), layer(t.clone().requires_grad_()), layer(t, runtime="factorised"), module(t)):
        assert abs(float(answer.detach()) - exact) <= layer.bound  # 7.1e-4 it was, of gradients, factorised and module
    assert module.statement.bound == layer.bound
    found = within(layer, at)
    literal = [bound for name, (_, bound) in found.items() if name.startswith(("dense", "literal", "multihead", "matrices"))]
    assert len(literal) == 9 and literal.count(None) == 1  # layout K is not covered


@pytest.mark.parametrize(
    ("text", "error", "dtype"),
    [
        ("abs(sin(7*x))", 1e-4, "float32"), ("abs(sin(7*x))", 0.1, "bfloat16"),
        ("abs(sin(5*x))+cos(y)**2", 1e-6, "float64"), ("abs(sin(5*x))+cos(y)**2", 1e-3, "float32"),
        ("abs(sin(7*x))*exp(y)", 1e-2, "float32"), ("abs(x+2*y-.3)*cos(x)", 1e-3, "float64"),
        ("max(x,y)", 1e-4, "float32"), ("sin(x)+cos(y)", 0.1, "bfloat16"),
    ],
)  # fmt: skip
def test_v1_no_entry_of_the_table_is_above_one(text, error, dtype):
    rows = list(walk(layer_of(text, error, dtype), np.random.default_rng(2), Effort(400, 6, 4, 10, 2000)))
    assert not [row for row in rows if row.violated]
    assert sum(row.judged for row in rows) >= 17
    assert all(row.judged for row in rows if row.route in ("arrays", "tensors", "tensors with gradients", "onnx"))


# ---------------------------------------------------------------------- V2: the literal layer of a curved head


def test_v2_the_literal_layer_of_a_curved_head_is_the_same_function():
    layer = layer_of("max(x**2+y**2,0.5)", 1e-2)
    corner = np.array([[1.0, -1.0]])
    alike = [way for way in ways(layer, lambda route: route in ALIKE) if way.variant != "I"]  # not for affine values
    answers = {way.name: float(way.build()(corner)[0, 0]) for way in alike}
    assert set(answers) == {"arrays", "arrays, loaded", "dense", "literal module, self", "literal module, cross", "multihead",
                            "matrices, Q", "matrices, K", "matrices, cross"}  # fmt: skip
    assert all(abs(answer - 2.0) <= 1e-2 for answer in answers.values()), answers  # 0.5386 it was
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 60)
    ring = np.sqrt(0.5) * np.c_[np.cos(angle), np.sin(angle)] * (1 + 10.0 ** rng.uniform(-16, -1, (60, 1)))
    found = within(layer, np.clip(np.concatenate([corner, ring, rng.uniform(-1, 1, (60, 2))]), -1, 1))
    for name in ("dense, float64", "multihead, float64", "matrices, Q, float64", "literal module, self, float64"):
        assert found[name][1] is not None and found[name][1] <= 2e-2  # useful: below twice the error asked


ALIKE = ("arrays", "dense", "literal module", "multihead", "matrices")


# ---------------------------------------------------------------------- V3: a file with its bonus set to zero


def test_v3_a_file_without_its_bonus_is_not_proved(tmp_path):
    layer = layer_of("abs(sin(5*x))+cos(y)**2", 1e-3)
    tensors, record = layer._record()
    assert record["layer"]["bonus"] > 0 and check(tensors, record).passed
    record = {**record, "layer": {**record["layer"], "bonus": 0.0}}
    path = tmp_path / "forged.safetensors"
    write_container(path, tensors, record)
    assert not check(tensors, record).passed
    assert subprocess.run([sys.executable, "-m", "maxaffine", "check", str(path)], capture_output=True).returncode == 1
    forged = ma.load(path)
    assert forged.standing == "stated" and "not checked" in forged.statement("dense").why
    with pytest.raises(ma.Refused):
        ma.load(path, check=True)


# ---------------------------------------------------------------------- V4: kernels


def _kernel_in_numpy(layer: ma.Compiled, dtype: str, tolerance: float) -> tuple[Callable[[np.ndarray], np.ndarray], float]:
    """The kernel's polynomials, evaluated in the dtype, and its own bound; layers of one output."""
    found = polynomials(layer.weights, dtype, tolerance)
    assert not found.trains

    def run(x: np.ndarray) -> np.ndarray:
        total = np.zeros(len(x))
        for term in found.terms:
            product = np.ones((len(x), term.cores[0].shape[1]), dtype=dtype)
            for row, core in zip(term.rows, term.cores, strict=True):
                z = ((x - found.centre) @ row).astype(dtype)
                product = product * np.polynomial.chebyshev.chebval(z, core.astype(dtype)).T.astype(dtype)
            total += product.sum(axis=1)
        return total[:, None]

    return run, found.bound


@pytest.mark.parametrize(
    ("text", "error"), [("cos(4*x)", 5e-2), ("sin(x)+cos(y)", 1e-3), ("sin(x)*cos(2*y)", 1e-2), ("exp(x)", 1e-4)]
)
@pytest.mark.parametrize("own", ["float32", "float64"])
def test_v4_a_kernel_is_within_what_is_stated_on_cuda(text, error, own):
    layer = layer_of(text, error, own, method="spectral")
    rng = np.random.default_rng(1)
    D = layer.weights.dimension
    x = np.concatenate(
        [
            rng.uniform(-1, 1, (400, D)),
            np.where(rng.random((8, D)) < 0.5, -1.0, 1.0),
            np.linspace(-1, 1, 401)[:, None] ** np.ones(D),
        ]
    )
    x = np.clip(x, -1, 1).astype(np.float32).astype(np.float64)
    for dtype, tolerance in (("float32", narrow_tolerance(layer)), ("float64", layer.reserve or 0.0)):
        run, added = _kernel_in_numpy(layer, dtype, tolerance)
        said = layer.statement("tensors", dtype, "cuda")
        assert said.bound is not None and said.parts["kernel"] == added > 0.0
        assert float(known_errors(run, layer.target, x).max()) <= said.bound
        assert np.abs(run(x).ravel() - layer(x if D > 1 else x.ravel(), runtime="factorised")).max() <= added + 64 * 2.0**-24


def test_v4_what_the_kernel_takes_is_stated():
    layer = layer_of("cos(4*x)", 5e-2, "float32", method="spectral")
    assert layer.bound == pytest.approx(0.0176464, rel=1e-5)
    run, _ = _kernel_in_numpy(layer, "float32", narrow_tolerance(layer))
    off = float(known_errors(run, layer.target, np.array([[-1.0], [1.0]])).max())
    said = layer.statement("tensors", "float32", "cuda")
    assert off <= said.bound <= layer.error  # .0178862 at the ends it was, above the bound that was shown


# ---------------------------------------------------------------------- V5: bfloat16 modules


@pytest.mark.parametrize(("text", "error"), [("abs(sin(7*x))", 0.1), ("max(x,y)", 1e-2), ("sin(x)+cos(y)", 0.1), ("x*y", 0.1)])
def test_v5_a_bfloat16_module_takes_x_as_it_comes_and_keeps_its_bound(text, error):
    layer = layer_of(text, error, "bfloat16")
    x = np.random.default_rng(3).uniform(-1, 1, (2000, layer.weights.dimension))
    module = layer.to_torch()
    assert module.dtype == torch.float32 and module.statement.bound == layer.bound
    answer = module(torch.tensor(x)).double().numpy()
    assert np.abs(answer - layer.target.values(x).reshape(answer.shape)).max() <= layer.bound + 1e-12
    moved = module(torch.tensor(x).to(torch.bfloat16)).double().numpy()
    assert np.abs(answer - moved).max() > 1e-4  # a query that is rounded to bfloat16 is another query
    assert not module.to(torch.bfloat16).statement.covered


# ---------------------------------------------------------------------- V6: exports


def test_v6_exports_state_what_is_proved_and_not_what_was_seen(tmp_path):
    layer = layer_of("max(x,y)", 1e-4, "float32")
    at = np.array([[0.9999998807907104, 0.9995899796485901]])
    found = within(layer, at)
    worst = max(error for error, _ in found.values())
    assert worst >= 0.99 * layer.bound  # the point is near the worst there is
    rows = [*layer.to_onnx(tmp_path / "a.onnx", form="fast"), *layer.to_onnx(tmp_path / "b.onnx", form="literal"),
            *layer.to_safetensors(tmp_path / "c.safetensors"), *layer.export("torch", tmp_path / "d.safetensors"),
            *layer.export("mha", tmp_path / "e.safetensors")]  # fmt: skip
    stated = [row.statement for row in rows if row.statement.covered]
    assert len(stated) >= 5 and all(said.bound >= layer.bound for said in stated)
    assert all(row.points > 512 and row.seen < row.statement.bound for row in rows if row.statement.covered)
    for module in (layer.to_torch(), layer.to_torch(form="literal"), layer.to_multihead_attention()):
        assert (
            float(known_errors(lambda x, m=module: m(torch.tensor(x)).detach().double().numpy(), layer.target, at)[0])
            <= module.statement.bound
        )


# ---------------------------------------------------------------------- V7: float32 tensors on float64 layers


def test_v7_the_rounding_of_float32_tensors_is_stated():
    layer = layer_of("sin(x)+cos(y)", 1e-10)
    x = np.random.default_rng(5).uniform(-1, 1, (3000, 2)).astype(np.float32)
    off = float(np.abs(layer(torch.tensor(x)).double().numpy() - layer.target.values(x.astype(np.float64)).ravel()).max())
    said = layer.statement("tensors", "float32")
    assert off > 100 * layer.bound  # 6e-8 against 7.5e-11
    assert off <= said.bound and said.parts["output"] > 5e-8
    assert layer.statement("tensors with gradients", "float32").bound == said.bound
    assert layer.statement("tensors", "float64").bound == layer.bound


# ---------------------------------------------------------------------- smaller ones


def test_smaller_a_bound_multiplied_by_three_tenths_is_not_confirmed(tmp_path):
    layer = layer_of("abs(sin(5*x))+cos(y)**2", 1e-3)
    tensors, record = layer._record()
    record = {**record, "certificate": {**record["certificate"], "bound": 0.3 * record["certificate"]["bound"]}}
    path = tmp_path / "forged.safetensors"
    write_container(path, tensors, record)
    done = subprocess.run([sys.executable, "-m", "maxaffine", "check", str(path)], capture_output=True, text=True)
    assert done.returncode == 1
    forged = ma.load(path)
    assert forged.bound.standing == "stated" and "stated, not checked" in repr(forged) and "not checked" in repr(forged.bound)


def test_smaller_a_batch_changes_no_more_than_rounding():
    layer = layer_of("abs(sin(5*x))+cos(y)**2", 1e-6)
    x = np.random.default_rng(6).uniform(-1, 1, (400, 2))
    alone = np.array([float(layer(point)) for point in x])
    assert np.abs(layer(x) - alone).max() <= 1e-12
    assert np.abs(alone - layer.target.values(x).ravel()).max() <= layer.bound


# ---------------------------------------------------------------------- what the walk itself found


def test_found_a_hard_layer_on_factorised_tensors_is_not_called_covered():
    rng = np.random.default_rng(0)
    table = ma.Table([np.sort(rng.uniform(0, 1, 40))], rng.normal(size=40))
    layer = ma.compile(table, method="nearest")
    ((x, values),) = table.blocks()
    assert np.array_equal(layer(torch.tensor(x)).numpy().ravel(), values.ravel())
    said = layer.statement("factorised tensors", "float64")
    assert said.bound is None and "another function" in said.why  # 1.4e-17 off, where 0 was stated


@pytest.mark.parametrize(
    ("text", "error"), [("exp(x)", 0.05), ("1/(1.3-x)", 0.1), ("sqrt(x+1.02)", 0.05), ("abs(x-.3)+exp(x)", 0.1)]
)
def test_found_dense_in_bfloat16_is_within_its_statement(text, error):
    layer = layer_of(text, error, "bfloat16", method="axis")
    x = np.linspace(-1, 1, 20001)
    off = np.abs(layer(x, runtime="dense").astype(np.float64) - layer.target.values(x[:, None]).ravel()).max()
    said = layer.statement("dense")
    assert said.bound is None or off <= said.bound  # 2.8 times its statement: z was rounded to bfloat16


def test_found_an_export_is_not_judged_inside_a_gap():
    layer = layer_of("1.94*sign(x-0.32)", 2e-4, "float32", gap=0.0026567, method="axis")
    module = layer.to_torch(form="literal")  # an AssertionError it was: layer and module differ inside the gap
    x = np.concatenate([np.linspace(-1, 0.317, 300), np.linspace(0.323, 1, 300)])
    off = np.abs(module(torch.tensor(x[:, None])).double().numpy() - layer.target.values(x[:, None]).ravel())
    assert module.statement.bound is not None and off.max() <= module.statement.bound
