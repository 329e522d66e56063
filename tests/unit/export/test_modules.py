"""Exported modules behave as torch modules do: one graph for torch.compile, a state that comes back, dtypes that move."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import maxaffine as ma

torch = pytest.importorskip("torch")


def _sequence(X: np.ndarray) -> np.ndarray:
    return np.stack([X[:, 0] + X[:, 1], X[:, 0] * X[:, 1]], axis=1)


def _pair(X_q: np.ndarray, X_kv: np.ndarray) -> np.ndarray:
    return np.sin(X_q[:, 0]) + X_kv[:, 0]


SQUARE = ma.Box(x=(-1, 1), y=(-1, 1))
MAKERS: dict[str, Callable[[], ma.Compiled]] = {
    "lookup": lambda: ma.compile("x + y", SQUARE, error=0.5, method="lookup"),
    "listed keys": lambda: ma.compile("max(x, y, 0.2)", SQUARE, error=1e-3),
    "spectral": lambda: ma.compile("sin(x) + cos(y)", SQUARE, error=1e-4, method="spectral"),
    "vector": lambda: ma.compile("x*y, x - y", SQUARE, error=1e-3, method="spectral"),
    "clusters": lambda: ma.compile("abs(sin(4*x))", ma.Box(x=(-1, 1)), error=1e-4),
    "sequence": lambda: ma.compile(
        _sequence, ma.Box.sequence(d=2, n=2, low=-1, high=1), error=1.0, lipschitz=[1, 1, 1, 1], method="lookup"
    ),
    "cross": lambda: ma.compile(
        _pair, (ma.Box(x=(-1, 1)), ma.Box(y=(0, 1))), error=0.2, lipschitz=[1, 1], method="lookup"
    ),
}
FORMS = ("fast", "literal", "mha")


@pytest.fixture(scope="module")
def layers() -> dict[str, ma.Compiled]:
    return {name: make() for name, make in MAKERS.items()}


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def module_of(layer: ma.Compiled, form: str, trainable: bool = False):  # type: ignore[no-untyped-def]
    return layer.to_multihead_attention() if form == "mha" else layer.to_torch(form=form, trainable=trainable)


def points(layer: ma.Compiled, count: int, dtype: str = "float64"):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(3)
    boxes = layer.target.boxes or (layer.target.box,)
    flat = [rng.uniform(box.low, box.high, size=(count, box.dimension)) for box in boxes]
    shaped = [box.unflatten(one) if box.is_sequence else one for box, one in zip(boxes, flat, strict=True)]
    return [torch.from_numpy(np.ascontiguousarray(one.astype(dtype))) for one in shaped]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MAKERS)
def test_torch_compile_takes_a_module_as_one_graph(name: str, form: str, layers: dict[str, ma.Compiled]) -> None:
    module = module_of(layers[name], form)
    graphs = []

    def count(graph, example):  # type: ignore[no-untyped-def]
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(module, backend=count, fullgraph=True, dynamic=True)  # fullgraph: a graph break is an error
    for size in (24, 7):
        x = points(layers[name], size)
        with torch.no_grad():
            assert torch.allclose(compiled(*x), module(*x), rtol=0.0, atol=1e-11)
    assert len(graphs) == 1, "a new batch size must not mean a new graph"


@pytest.mark.parametrize(("name", "form"), [("listed keys", "fast"), ("spectral", "literal"), ("clusters", "fast")])
def test_the_gradients_of_a_compiled_module_are_those_of_the_module(
    name: str, form: str, layers: dict[str, ma.Compiled]
) -> None:
    module = module_of(layers[name], form, trainable=True)
    x = points(layers[name], 16)
    want = torch.autograd.grad(module(*x).square().sum(), list(module.parameters()))
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    got = torch.autograd.grad(compiled(*x).square().sum(), list(module.parameters()))
    assert len(want) >= 3 and any(float(one.abs().max()) > 0 for one in want)
    for one, other in zip(want, got, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-9 * float(one.abs().max()) + 1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MAKERS)
def test_a_state_comes_back_from_its_file_bit_by_bit(
    name: str, form: str, layers: dict[str, ma.Compiled], tmp_path: Path
) -> None:
    module = module_of(layers[name], form)
    torch.save(module.state_dict(), tmp_path / "state.pt")
    other = copy.deepcopy(module)
    with torch.no_grad():
        for tensor in other.state_dict().values():
            tensor.zero_()
    x = points(layers[name], 9)
    assert not torch.equal(other(*x), module(*x))
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True), strict=True)
    assert torch.equal(other(*x), module(*x))
    if form != "mha":  # a frozen state starts a trainable module
        trainable = module_of(layers[name], form, trainable=True)
        trainable.load_state_dict(module.state_dict(), strict=True)
        assert torch.equal(trainable(*x), module(*x)) and list(trainable.parameters())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MAKERS)
def test_dtypes_move_and_double_loses_nothing(name: str, form: str, layers: dict[str, ma.Compiled]) -> None:
    layer = layers[name]
    x = points(layer, 50)
    before = module_of(layer, form)(*x)
    assert torch.equal(module_of(layer, form).double()(*x), before)
    for dtype in (torch.float32, torch.bfloat16):
        moved = module_of(layer, form).to(dtype)
        after = moved(*x)
        assert after.dtype == dtype and after.shape == before.shape and bool(after.isfinite().all())
        assert {parameter.dtype for parameter in moved.parameters()} <= {dtype}
        assert torch.equal(moved.double().to(dtype)(*x), after), "what is stored in a dtype survives a visit to float64"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("expression", ["sin(x) + cos(y)", "x*y, x - y", "max(x, y)"])
def test_a_layer_of_float32_keeps_its_certificate_in_every_form_and_cast(expression: str, form: str) -> None:
    layer = ma.compile(expression, SQUARE, error=1e-2, dtype="float32")
    (x,) = points(layer, 2000, "float32")
    exact = layer.target.present(layer.target.values(x.double().numpy()))
    assert layer.bound is not None
    for module in (module_of(layer, form), module_of(layer, form).float(), module_of(layer, form).double()):
        with torch.no_grad():
            assert np.abs(module(x).double().numpy() - exact).max() <= layer.bound


@pytest.fixture(scope="module")
def far() -> ma.Compiled:
    # centre 1000.55 is no float32 number: rounding it moves the graph by 2e-5, and 7 * 2e-5 is above the bound
    return ma.compile("sin(7*(x - 1000))", ma.Box(x=(1000, 1001.1)), error=1e-4, dtype="float32")


def off(far: ma.Compiled, run: Callable[[np.ndarray], np.ndarray]) -> float:
    (x,) = points(far, 4000, "float32")
    return float(np.abs(run(x.numpy()) - np.sin(7 * (x.double().numpy()[:, 0] - 1000))).max())


@pytest.mark.parametrize("form", FORMS)
def test_a_float32_module_far_from_the_origin_stays_within_its_certificate_when_it_is_cast(form: str, far: ma.Compiled) -> None:
    assert far.bound is not None
    for module in (module_of(far, form), module_of(far, form).float(), module_of(far, form).to(torch.float32).double()):
        with torch.no_grad():
            assert off(far, lambda x, module=module: module(torch.from_numpy(x)).double().numpy()) <= far.bound  # type: ignore[misc]


@pytest.mark.parametrize("form", FORMS)
def test_double_of_a_float32_module_answers_at_the_edges_of_the_box(form: str, far: ma.Compiled) -> None:
    module, edge = module_of(far, form).double(), torch.tensor([[1000.0], [1001.1]], dtype=torch.float64)  # 1001.1: no float32
    inside = torch.tensor([[1000.0], [1001.1 - 1e-9]], dtype=torch.float64)
    with torch.no_grad():
        assert float((module(edge) - module(inside)).abs().max()) < 1e-7


@pytest.mark.parametrize("opset", [17, 23])
def test_a_float32_model_far_from_the_origin_stays_within_its_certificate_in_onnx(
    opset: int, far: ma.Compiled, tmp_path: Path
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    far.to_onnx(tmp_path / "f.onnx", opset=opset)
    session = runtime.InferenceSession(str(tmp_path / "f.onnx"), providers=["CPUExecutionProvider"])
    assert far.bound is not None and off(far, lambda x: np.asarray(session.run(None, {"x": x})[0], dtype=float)) <= far.bound


def test_weights_of_a_float32_layer_leave_as_safetensors(far: ma.Compiled, tmp_path: Path) -> None:
    from maxaffine.export.safetensors_file import run

    far.to_safetensors(tmp_path / "f.safetensors")
    found = off(far, lambda x: far.target.present(run(tmp_path / "f.safetensors", x.astype(float))))
    assert far.bound is not None and found <= far.bound


def test_parameters_of_a_trainable_module_take_one_step_under_torch_compile(layers: dict[str, ma.Compiled]) -> None:
    layer = layers["spectral"]
    module = layer.to_torch(trainable=True)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    (x,) = points(layer, 64)
    y = torch.sin(x[:, 0]) + torch.cos(x[:, 1]) + 0.1
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-3)
    losses = []
    for _ in range(5):
        loss = (compiled(x) - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
