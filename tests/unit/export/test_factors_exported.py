"""Sums of products over blocks leave as ONNX models and PyTorch modules that keep the structure; complex ones as real numbers."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import Refused

sys.path.insert(0, str(Path(__file__).parents[1]))

from separated_layers import by_definition, made

from maxaffine.report.text import summary

CASES = {
    "blocks and complex": {},
    "real blocks": {"complex_values": False},
    "a block of three": {"sizes": (3, 1)},
    "one block": {"sizes": (2,)},
    "two groups": {"sizes": (2, 1), "groups": 2},
    "sixty directions": {"sizes": (1,) * 60, "keys": 7, "rank": 3, "turned": False},
}


def points(layer, count: int = 64) -> np.ndarray:
    return np.random.default_rng(3).uniform(layer.low, layer.high, (count, layer.dimension))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("opset", [17, 23])
def test_an_onnx_model_says_what_the_definition_says(name: str, opset: int) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from maxaffine.export.onnx_fast import build_fast
    from maxaffine.export.onnx_model import session

    layer = made(**CASES[name])
    x = points(layer)
    model = build_fast(layer, (), layer.inputs, "float64", opset, {})
    assert {one.data_type for one in model.graph.initializer} <= {7, 11}  # int64 and double: nothing complex
    run = session(model.SerializeToString())
    (found,) = run.run(None, {run.get_inputs()[0].name: x})
    assert np.abs(np.ravel(found) - by_definition(layer, x)).max() < 1e-12


@pytest.fixture(scope="module")
def compiled() -> ma.Compiled:
    """A compiled layer of four variables whose numbers were replaced by those of blocks (1, 2, 1)."""
    names = ("x1", "x2", "x3", "x4")
    box = ma.Box.named(names, -np.ones(4), np.ones(4))
    return replace(ma.compile("sin(x1)", box, error=0.1, method="spectral"), weights=made())


def test_modules_run_blocks_and_learn_their_numbers(compiled: ma.Compiled) -> None:
    torch = pytest.importorskip("torch")
    x = points(compiled.weights)
    module = compiled.to_torch(form="fast", trainable=True)
    found = module(torch.from_numpy(x))
    assert np.abs(found.detach().numpy() - by_definition(compiled.weights, x)).max() < 1e-12
    found.sum().backward()
    assert all(one.grad is not None for one in module.parameters())
    assert sum("imaginary" in name for name, _ in module.named_parameters()) == 3


def test_routes_say_what_is_proved_of_blocks(compiled: ma.Compiled) -> None:
    for route in ("arrays", "factorised", "tensors", "module", "onnx"):
        assert compiled.statement(route).covered, route
    x = points(compiled.weights)
    away = np.abs(compiled(x, runtime="dense") - by_definition(compiled.weights, x)).max()
    for route in ("dense", "literal module", "multihead", "matrices", "literal onnx", "safetensors"):
        said = compiled.statement(route)
        assert said.covered and away < said.parts["literal softmax"] < 1e-6, route
    assert np.abs(compiled(x, runtime="collapsed") - by_definition(compiled.weights, x)).max() <= compiled.reserve * 1.01
    assert compiled.statement("collapsed").covered


def test_a_hundred_directions_are_told_in_words_and_their_literal_forms_refused() -> None:
    names = tuple(f"x{i + 1}" for i in range(100))
    box = ma.Box.named(names, -np.ones(100), np.ones(100))
    held = replace(
        ma.compile("sin(x1)", box, error=0.1, method="spectral"), weights=made((1,) * 100, keys=19, rank=2, turned=False)
    )
    assert "7.5e127 tokens (19^100 keys)" in summary(held)
    assert "7.5e127 tokens" in held.explain() and "7.5e127 tokens" in repr(held)
    assert held.tokens == 19**100
    for form in (lambda: held.matrices("cross"), lambda: held.attention(np.zeros(100)), lambda: held.to_torch(form="literal")):
        with pytest.raises(Refused, match=r"7\.5e127"):
            form()
    for route in ("dense", "literal module", "matrices"):
        assert "7.5e127 tokens" in held.statement(route).why


def test_json_holds_exact_counts_and_text_beyond_every_float(capsys: pytest.CaptureFixture[str]) -> None:
    import json

    from maxaffine.cli.streams import say_json

    say_json({"tokens": 19**100, "many": [10**400], "few": 3})
    found = json.loads(capsys.readouterr().out)
    assert found == {"tokens": 19**100, "many": [str(10**400)], "few": 3}
