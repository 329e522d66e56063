"""`to_torch(form="kernel")`: one operator, so that a compiled model has one graph, and the same answers as `layer(tensor)`."""

import copy
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import maxaffine as ma

torch = pytest.importorskip("torch")

SCRIPT = Path(__file__).parents[1] / "runtime" / "operator_interpreted.py"
SQUARE = ma.Box(x=(-1, 1), y=(-1, 1))
GRID = np.linspace(-1, 1, 9)
MAKERS: dict[str, Callable[[], ma.Compiled]] = {
    "clusters": lambda: ma.compile("max(x, y, 0.2)", SQUARE, error=1e-3),
    "spectral": lambda: ma.compile("sin(x)*cos(y)", SQUARE, error=1e-4),
    "several": lambda: ma.compile("abs(x), x*y", SQUARE, error=1e-2),
    "lookup": lambda: ma.compile("x + y", SQUARE, error=0.5, method="lookup"),
    "nearest": lambda: ma.compile(ma.Table([GRID, GRID], np.add.outer(GRID, GRID**2)), error=1e-6, method="nearest"),
}


@pytest.fixture(scope="module")
def layers() -> dict[str, ma.Compiled]:
    return {name: make() for name, make in MAKERS.items()}


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def points(count: int, dtype: str = "float64", wide: float = 1.0):  # type: ignore[no-untyped-def]
    u = torch.rand((count, 2), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return ((2.0 * u - 1.0) * wide).to(getattr(torch, dtype))


@pytest.mark.parametrize("name", MAKERS)
def test_it_answers_as_tensors_do_and_takes_points_outside_at_the_nearest_point(name: str, layers) -> None:  # type: ignore[no-untyped-def]
    layer = layers[name]
    module = layer.to_torch(form="kernel")
    for dtype in ("float64", "float32", "bfloat16", "float16"):
        x = points(60, dtype, 1.4)
        y = module(x)
        assert y.dtype == x.dtype and torch.equal(y, layer(x, outside="clamp"))
        said = module.statement_for(x.dtype)
        assert "nearest point" in said.outside and said.bound == layer.statement("tensors", dtype).bound
        if name == "nearest":
            continue  # proved at the entries
        exact = layer.target.present(layer.target.values(x.double().numpy().clip(-1.0, 1.0)))
        assert np.abs(y.double().numpy() - exact).max() <= said.bound
    assert module.statement.bound == layer.bound and module.statement.route == "kernel module"


@pytest.mark.parametrize("name", MAKERS)
def test_the_operators_keep_the_rules_of_pytorch(name: str, layers) -> None:  # type: ignore[no-untyped-def]
    module, x = layers[name].to_torch(form="kernel"), points(7)
    operators = torch.ops.maxaffine
    torch.library.opcheck(operators.layer.default, (x.clone().requires_grad_(), module.key, module.outputs))
    torch.library.opcheck(operators.slopes.default, (x, torch.ones(7, module.outputs).double(), module.key))


@pytest.mark.parametrize("name", MAKERS)
def test_a_model_with_it_is_one_graph_with_the_same_gradients(name: str, layers) -> None:  # type: ignore[no-untyped-def]
    module, graphs = layers[name].to_torch(form="kernel"), []
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh(), module).double()

    def count(graph, example):  # type: ignore[no-untyped-def]
        graphs.append([node for node in graph.graph.nodes if "maxaffine" in str(node.target)])
        return graph.forward

    compiled = torch.compile(model, backend=count, fullgraph=True, dynamic=True)
    for size in (9, 5):
        h = torch.randn((size, 3), dtype=torch.float64)
        assert torch.equal(compiled(h), model(h))
    assert [len(one) for one in graphs] == [1], "one graph for all batches, and in it one operator"
    found = []
    for run in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        h = torch.randn((9, 3), generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
        model.zero_grad()
        run(h).square().sum().backward()
        found.append([h.grad, model[0].weight.grad.clone()])
    assert all(torch.allclose(one, other, rtol=1e-12, atol=1e-14) for one, other in zip(*found, strict=True))
    assert (found[0][0].abs().max() > 0.0) == (name != "nearest"), "a hard layer is constant but for jumps"


def test_its_gradients_are_those_of_the_structure_and_can_be_differentiated_again(layers) -> None:  # type: ignore[no-untyped-def]
    module, fast = layers["spectral"].to_torch(form="kernel"), layers["spectral"].to_torch()
    found = []
    for run in (module, fast):
        x = points(30, wide=1.2).requires_grad_()
        (first,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        found.append((first.detach(), second))
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, rtol=1e-10, atol=1e-10) and one.abs().max() > 0.1
    outside = points(30, wide=1.2).abs() > 1.0
    assert outside.any() and not found[0][0][outside].any()


def test_nothing_that_is_done_to_a_module_changes_what_it_computes(layers, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    module, x = layers["clusters"].to_torch(form="kernel"), points(20)
    y = module(x)
    torch.save(module.state_dict(), tmp_path / "state.pt")
    pickled = pickle.loads(pickle.dumps(module))  # noqa: S301
    for other in (copy.deepcopy(module), pickled, layers["clusters"].to_torch(form="kernel").half()):
        assert torch.equal(other(x), y) and other.statement.bound == module.statement.bound
        other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True), strict=True)
    assert not list(module.parameters())


def test_a_saved_layer_makes_the_module_of_the_same_state(layers, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    layer = layers["spectral"]
    layer.save(tmp_path / "f.safetensors")
    module, again = layer.to_torch(form="kernel"), ma.load(tmp_path / "f.safetensors").to_torch(form="kernel")
    again.load_state_dict(module.state_dict())
    assert torch.equal(again(points(20)), module(points(20))) and "not checked" in again.statement.why


def test_the_state_of_another_layer_is_refused(layers) -> None:  # type: ignore[no-untyped-def]
    module, other = (layers[name].to_torch(form="kernel") for name in ("clusters", "spectral"))
    with pytest.raises(ma.MaxaffineError, match="another layer"):
        module.load_state_dict(other.state_dict())


def test_what_cannot_be_done_is_said(layers) -> None:  # type: ignore[no-untyped-def]
    layer = layers["spectral"]
    module = layer.to_torch(form="kernel")
    with pytest.raises(ma.MaxaffineError, match="batches of 2 variables"):
        module(torch.zeros(3, 3))
    with pytest.raises(ma.MaxaffineError, match="no parameters"):
        layer.to_torch(form="kernel", trainable=True)
    with pytest.raises(ma.MaxaffineError, match='"fast", "literal" or "kernel"'):
        layer.to_torch(form="fused")
    with pytest.raises(ma.MaxaffineError, match="is not there"):
        torch.ops.maxaffine.layer(points(3), "0" * 32, 1)


def test_kernels_answer_within_their_statements_inside_a_compiled_model() -> None:
    pytest.importorskip("triton")
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert len(found) == 4
    for name, one in found.items():
        assert one["by"] == "collapsed" and one["bound"] / 20 < one["seen"] <= one["bound"], name
        assert one["same as the tensors"] and one["outside"] and one["narrow"] and one["compiled"] == 0.0, name
        assert one["gradient"] <= 1e-3, name
