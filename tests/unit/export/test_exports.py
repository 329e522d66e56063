"""Exports: every form of a layer agrees with the definition, survives its file, and says what it is."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import maxaffine as ma
from maxaffine import reference
from maxaffine.core.errors import BadInput, Refused
from maxaffine.export.safetensors_file import run, unpack

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def _sequence(X: np.ndarray) -> np.ndarray:
    return np.stack([X[:, 0] + X[:, 1], X[:, 0] * X[:, 1]], axis=1)


def _pair(X_q: np.ndarray, X_kv: np.ndarray) -> np.ndarray:
    return np.sin(X_q[:, 0]) + X_kv[:, 0]


MAKERS: dict[str, Callable[[str], ma.Compiled]] = {
    "lookup": lambda dtype: ma.compile("x + y", ma.Box(x=(0, 1), y=(0, 1)), error=0.3, method="lookup", dtype=dtype),
    "spectral": lambda dtype: ma.compile(
        "sin(x) + cos(y)", ma.Box(x=(-3, 3), y=(-3, 3)), error=1e-4, method="spectral", dtype=dtype
    ),
    "vector": lambda dtype: ma.compile("x*y, x - y", ma.Box(x=(-1, 1), y=(-1, 1)), error=1e-3, method="spectral", dtype=dtype),
    "sequence": lambda dtype: ma.compile(
        _sequence, ma.Box.sequence(d=2, n=2, low=-1, high=1), error=1.0, lipschitz=[1, 1, 1, 1], method="lookup", dtype=dtype
    ),
    "cross": lambda dtype: ma.compile(
        _pair, (ma.Box(x=(-1, 1)), ma.Box(y=(0, 1))), error=0.2, lipschitz=[1, 1], method="lookup", dtype=dtype
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def layers() -> Callable[[str, str], ma.Compiled]:
    made: dict[tuple[str, str], ma.Compiled] = {}

    def get(name: str, dtype: str = "float64") -> ma.Compiled:
        if (name, dtype) not in made:
            made[name, dtype] = MAKERS[name](dtype)
        return made[name, dtype]

    return get


def queries(layer: ma.Compiled, count: int = 40) -> tuple[list[np.ndarray], np.ndarray]:
    """Arguments as a user gives them, and the definition's answer for each."""
    rng = np.random.default_rng(7)
    boxes = layer.target.boxes or (layer.target.box,)
    x = [rng.uniform(box.low, box.high, size=(count, box.dimension)) for box in boxes]
    x = [one.astype(np.float32).astype(np.float64) for one in x]
    shaped = [box.unflatten(one) if box.is_sequence else one for box, one in zip(boxes, x, strict=True)]
    kind = "cross" if len(boxes) == 2 else "self"
    literal = layer.matrices(kind)
    columns = [[one[i] if one.ndim == 3 else one[i][:, None] for one in shaped] for i in range(count)]
    values = np.stack([literal(*parts) for parts in columns])
    return shaped, layer.target.present(values)


NAMES = tuple(MAKERS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["fast", "literal self", "literal cross", "mha", "onnx 23", "onnx 17", "safetensors"])
def test_every_form_agrees_with_the_definition(name: str, form: str, layers, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for dtype in ("float64", "float32"):
        layer = layers(name, dtype)
        x, expected = queries(layer)
        if form == "literal self" and len(x) == 2:
            continue
        got = evaluate(layer, form, x, tmp_path / dtype)
        allowed = 1e-12 * largest(layer) if dtype == "float64" else layer.certificate.bound
        assert got.shape == expected.shape
        assert np.abs(got - expected).max() <= allowed, dtype


def largest(layer: ma.Compiled) -> float:
    """The largest number that a sum over tokens adds up, one at least."""
    from maxaffine.export.head import head_of

    head = head_of(layer.weights)
    reach = 0.0 if head.slopes is None else np.abs(head.slopes @ (head.high - head.centre)).max()
    return max(1.0, float(np.abs(head.values).max() + reach))


def evaluate(layer: ma.Compiled, form: str, x: list[np.ndarray], folder: Path) -> np.ndarray:
    folder.mkdir(exist_ok=True)
    typed = [one.astype(layer.dtype) for one in x]
    if form.startswith("onnx"):
        import onnxruntime

        layer.to_onnx(folder / "f.onnx", opset=int(form.split()[1]))
        session = onnxruntime.InferenceSession(str(folder / "f.onnx"), providers=["CPUExecutionProvider"])
        feeds = {one.name: part for one, part in zip(session.get_inputs(), typed, strict=True)}
        return np.asarray(session.run(None, feeds)[0], dtype=np.float64)
    if form == "safetensors":
        layer.to_safetensors(folder / "f.safetensors")
        boxes = layer.target.boxes or (layer.box,)
        flat = [box.flatten(one) if box.is_sequence else one for box, one in zip(boxes, x, strict=True)]
        return layer.target.present(run(folder / "f.safetensors", np.concatenate(flat, axis=1)))
    if form == "mha":
        module = layer.to_multihead_attention()
        assert type(module.attention) is torch.nn.MultiheadAttention
    else:
        module = layer.to_torch(kind=form.split()[-1] if " " in form else "self", form=form.split()[0])
    with torch.no_grad():
        return module(*(torch.from_numpy(one) for one in typed)).double().numpy()


@pytest.mark.parametrize("name", NAMES)
def test_exported_weights_read_back_as_the_same_layer(name: str, layers, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    from maxaffine.layer.file import to_tensors

    layer = layers(name)
    layer.to_safetensors(tmp_path / "f.safetensors")
    again, record = unpack(tmp_path / "f.safetensors")
    expected, got = to_tensors(layer.weights)[0], to_tensors(again)[0]
    assert expected.keys() == got.keys() and all(np.array_equal(expected[key], got[key]) for key in expected)
    assert record["certificate"]["bound"] == layer.certificate.bound


def test_affine_values_and_clusters_leave_home_too(tmp_path: Path) -> None:
    layer = ma.compile("max(x, y, 0.2)", ma.Box(x=(-1, 1), y=(-1, 1)), error=1e-3)
    x, expected = queries(layer)
    for form in ("fast", "literal self", "literal cross", "mha", "onnx 23", "onnx 17", "safetensors"):
        assert np.abs(evaluate(layer, form, x, tmp_path) - expected).max() <= 1e-9


def test_the_model_carries_its_certificate_and_passes_the_checker(layers, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    import onnx

    from maxaffine.export.onnx_model import metadata

    layer = layers("spectral")
    rows = layer.to_onnx(tmp_path / "f.onnx")
    model = onnx.load(tmp_path / "f.onnx")
    onnx.checker.check_model(model, full_check=True)
    record = metadata(model)
    assert record["certificate"]["bound"] == layer.certificate.bound and "nearest point" in record["outside"]
    assert [node.op_type for node in model.graph.node].count("Attention") == 1
    assert {row.dtype for row in rows} == {"float64", "float32"} and rows[0].seen < 1e-11 * largest(layer)
    layer.to_onnx(tmp_path / "old.onnx", opset=17)
    assert "Attention" not in {node.op_type for node in onnx.load(tmp_path / "old.onnx").graph.node}


@pytest.mark.parametrize("opset", [12, 99])
def test_an_opset_out_of_range_is_refused(opset: int, layers, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadInput, match="opset"):
        layers("lookup").to_onnx(tmp_path / "f.onnx", opset=opset)
    assert not list(tmp_path.iterdir())


def test_a_failed_round_trip_leaves_no_file(layers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    from maxaffine.export import onnx_model

    honest = onnx_model.build

    def broken(head, *rest):  # type: ignore[no-untyped-def]
        from dataclasses import replace

        return honest(replace(head, values=head.values * 1.01), *rest)

    monkeypatch.setattr(onnx_model, "build", broken)
    with pytest.raises(Refused, match="differs from the layer"):
        layers("spectral").to_onnx(tmp_path / "f.onnx")
    assert not list(tmp_path.iterdir())


def test_a_float64_layer_loses_nothing_in_the_module(layers) -> None:  # type: ignore[no-untyped-def]
    layer = layers("spectral")
    module = layer.to_torch()
    assert {buffer.dtype for buffer in module.buffers()} == {torch.float64} and not list(module.parameters())
    small = layers("spectral", "float32")
    x, expected = queries(small)
    with torch.no_grad():
        wide = small.to_torch().double()(torch.from_numpy(x[0])).numpy()
    assert np.abs(wide - expected).max() < 1e-9  # the literal matrices leak by 1e-10; float32 would be off by 1e-7


def test_a_trainable_module_has_gradients_and_a_state(layers) -> None:  # type: ignore[no-untyped-def]
    module = layers("spectral").to_torch(trainable=True)
    x = torch.rand(16, 2, dtype=torch.float64)
    module(x).square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in module.parameters())
    again = layers("spectral").to_torch(trainable=True)
    again.load_state_dict(module.state_dict())
    assert torch.equal(again(x), module(x))
    assert torch.func.vmap(lambda one: module(one[None])[0])(x).shape == (16,)


def test_queries_outside_the_box_are_clamped(layers) -> None:  # type: ignore[no-untyped-def]
    layer = layers("spectral")
    module = layer.to_torch()
    far, edge = (torch.tensor([[v, 0.5]], dtype=torch.float64) for v in (99.0, 3.0))
    assert torch.equal(module(far), module(edge)) and "nearest point" in module.semantics["outside"]


@pytest.mark.parametrize("to", ["torch", "mha", "onnx", "safetensors"])
def test_the_command_exports_and_prints_what_it_adds(to: str, layers, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    from maxaffine.cli.export import app

    layers("spectral").save(tmp_path / "f.safetensors")
    out = tmp_path / ("g.onnx" if to == "onnx" else "g.safetensors")
    shown = CliRunner().invoke(app, [str(tmp_path / "f.safetensors"), "--to", to, "--out", str(out)])
    assert shown.exit_code == 0 and "difference seen" in shown.stdout and out.stat().st_size > 500
    told = CliRunner().invoke(app, [str(tmp_path / "f.safetensors"), "--to", to, "--out", str(out), "--json"])
    assert json.loads(told.stdout)["judged"][0]["difference_seen"] < 1e-9


def test_wrong_words_are_answered_with_a_sentence(layers, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    layer = layers("lookup")
    with pytest.raises(BadInput, match="must end in"):
        layer.to_onnx(tmp_path / "f.txt")
    with pytest.raises(BadInput, match="`to`"):
        layer.export("tensorflow", tmp_path / "f.pb")
    with pytest.raises(BadInput, match="`form`"):
        layer.to_torch(form="slow")
    with pytest.raises(BadInput, match="not an export"):
        layer.save(tmp_path / "f.safetensors")
        unpack(tmp_path / "f.safetensors")


def test_the_definition_runs_the_exported_head(layers, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    from maxaffine.export.head import head_of

    layer = layers("vector")
    head = head_of(layer.weights)
    x = np.array([0.3, -0.4])
    columns = head.query_map @ (x - head.centre) + head.query_constant
    weights = reference.softmax(head.keys @ columns.T)
    values = head.values if head.slopes is None else head.values + head.slopes @ (x - head.centre)
    assert np.abs((values.T @ weights @ head.mix)[:, 0] - layer(x, runtime="dense")).max() < 1e-12
