"""Exported modules under torch.compile: one graph without breaks, the same values, the same gradients, the same state."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import maxaffine as ma

torch = pytest.importorskip("torch")


def _pair(X_q: np.ndarray, X_kv: np.ndarray) -> np.ndarray:
    return np.sin(X_q[:, 0]) + X_kv[:, 0]


MAKERS: dict[str, Callable[[], ma.Compiled]] = {
    "lookup": lambda: ma.compile("x + y", ma.Box(x=(0, 1), y=(0, 1)), error=0.3, method="lookup"),
    "spectral": lambda: ma.compile("sin(x) + cos(y)", ma.Box(x=(-3, 3), y=(-3, 3)), error=1e-4, method="spectral"),
    "vector": lambda: ma.compile("x*y, x - y", ma.Box(x=(-1, 1), y=(-1, 1)), error=1e-2, method="spectral"),
    "clusters": lambda: ma.compile("max(x, y, 0.2)", ma.Box(x=(-1, 1), y=(-1, 1)), error=1e-3),
    "cross": lambda: ma.compile(
        _pair, (ma.Box(x=(-1, 1)), ma.Box(y=(0, 1))), error=0.2, lipschitz=[1, 1], method="lookup"
    ),
}


@pytest.fixture(autouse=True)
def _forgotten_graphs() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def _points(layer: ma.Compiled, count: int) -> list[Any]:
    rng = np.random.default_rng(count)
    boxes = layer.target.boxes or (layer.box,)
    return [torch.from_numpy(rng.uniform(box.low, box.high, size=(count, box.dimension))) for box in boxes]


def _module(layer: ma.Compiled, form: str, **options: Any) -> Any:
    if form == "mha":
        return layer.to_multihead_attention()
    return layer.to_torch(form=form, kind="cross" if len(layer.target.boxes or ()) == 2 else "self", **options)


CASES = [(name, "fast") for name in MAKERS] + [("spectral", "literal"), ("cross", "literal"), ("lookup", "mha")]


@pytest.mark.parametrize(("name", "form"), CASES)
def test_a_module_is_one_graph_with_the_same_values(name: str, form: str) -> None:
    layer = MAKERS[name]()
    module = _module(layer, form)
    graph = torch.compile(module, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        for count in (5, 9):
            x = _points(layer, count)
            assert (graph(*x) - module(*x)).abs().max() <= 1e-13
    assert graph.state_dict().keys() == {f"_orig_mod.{key}" for key in module.state_dict()}


def test_gradients_through_the_graph_are_those_of_the_module() -> None:
    layer = MAKERS["spectral"]()
    module = _module(layer, "fast", trainable=True)
    x = _points(layer, 30)[0]
    found = []
    for run in (module, torch.compile(module, backend="aot_eager", fullgraph=True)):
        module.zero_grad()
        point = x.clone().requires_grad_(True)
        run(point).square().sum().backward()
        found.append([point.grad, *(p.grad.clone() for p in module.parameters())])
    assert len(found[0]) > 2 and max(float(g.abs().max()) for g in found[0]) > 1e-3
    for eager, traced in zip(*found, strict=True):
        assert torch.allclose(eager, traced, rtol=1e-10, atol=1e-12)
