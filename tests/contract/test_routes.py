"""The walk: heads x dtypes x routes, the error of each maximised next to kinks, hand-overs, faces and ends; none above its bound.

`maxaffine attack --routes` is the longer one, with random targets.
"""

import math
from typing import Any

import numpy as np
import pytest

from maxaffine.attack.domain import domain_of
from maxaffine.attack.search import Effort
from maxaffine.attack.starts import start_points
from maxaffine.attack.walk import Row, walk
from maxaffine.export import judge
from maxaffine.proofs.statement import NO_GRADIENT

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from cases import CASES, WALKED, compiled, grouped, in_dtypes  # noqa: E402

EFFORT = Effort(starts=250, climbers=6, tries=4, rounds=7, integral=1800)
LEAST = 27  # ways of any layer: arrays, runtimes, tensors, modules, matrices, ONNX models, files
PAIRS = [(name, dtype) for name in WALKED for dtype in CASES[name].errors]
SMOOTH = [name for name in WALKED if name != "hard table"]


@pytest.fixture(autouse=True)
def _short_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports judge themselves at fewer points: the walk judges them here."""
    monkeypatch.setattr(judge, "POINTS", 96)
    monkeypatch.setattr(judge, "SWITCHES", 6)


def rows_of(head: str, dtype: str) -> list[Row]:
    found = []
    for row in walk(compiled(head, dtype), np.random.default_rng(7), EFFORT, head):
        assert not row.violated, row
        found.append(row)
    return found


@pytest.mark.parametrize("head", grouped(WALKED))
def test_no_route_exceeds_its_statement(head: str) -> None:
    for dtype in CASES[head].errors:
        rows = rows_of(head, dtype)
        assert len(rows) >= LEAST
        assert all(row.judged or row.why for row in rows)
        refused = {row.route for row in rows if not row.judged and row.variant not in ("in float64", "in float32", "I", "K")}
        if head == "hard table":  # the softmax is another function
            assert {"arrays", "nearest", "tensors", "kernel module"}.isdisjoint(refused)
            assert {"module", "matrices", "onnx"} <= refused
        elif dtype == "float64":
            assert refused == {"attention"}
        else:  # a literal softmax may be unresolved in float32, never in float64
            assert refused <= {"attention", "dense", "literal module", "multihead", "literal onnx"}
        assert max(row.ratio for row in rows) > 0.0


def test_four_hundred_combinations_are_walked() -> None:
    assert LEAST * len(PAIRS) >= 400


@pytest.mark.parametrize(("head", "dtype"), in_dtypes(WALKED))
def test_asking_for_a_gradient_changes_no_answer_beyond_rounding(head: str, dtype: str) -> None:
    """L(t.requires_grad_()) by float64 operations and L(t) by the runtime of arrays, on the same stored numbers."""
    layer = compiled(head, dtype)
    inner = layer.weights
    if layer.certificate.scope.over == "entries":
        x = np.concatenate([block[0] for block in layer.target.data.blocks()])
    else:
        domain = domain_of(layer.certificate.scope, layer.target, inner)
        assert domain is not None
        pool = start_points(inner, layer.target, domain, np.random.default_rng(3))
        x = pool[domain.keeps(pool)]
        x = x[np.random.default_rng(4).choice(len(x), min(len(x), 1500), replace=False)]
    shaped = x if inner.inputs[0][1] == 1 else x.reshape(-1, *reversed(inner.inputs[0])).transpose(0, 2, 1)
    for width in (torch.float64, torch.float32):
        t = torch.tensor(np.clip(shaped, *_ends(inner, shaped)), dtype=width)
        plain = layer(t.clone(), outside="clamp")
        asked = layer(t.clone().requires_grad_(), outside="clamp")
        assert asked.requires_grad and not plain.requires_grad and asked.dtype == plain.dtype == width
        name = str(width).removeprefix("torch.")
        both = [layer.statement(route, name) for route in ("tensors", "tensors with gradients")]
        assert both[0].bound is not None and both[1].bound == both[0].bound
        apart = float((asked.detach() - plain).abs().double().max())
        # What rounding and polynomials may take of the bound; of float32 tensors the last rounding beside it, on both sides.
        unit = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-24}[dtype]
        size = float(plain.abs().double().max())
        parts = layer.certificate.parts
        stated = 2.0 * (parts["rounding"] + parts["leakage"] + (layer.reserve or 0.0) + both[0].parts.get("output", 0.0))
        stated = max(stated, 64.0 * unit * size) if layer.certificate.norm == math.inf else 1e5 * unit * size
        assert apart <= stated + 2.0**-23 * size * (width == torch.float32), (head, dtype, width, apart, stated)


def _ends(inner: Any, shaped: np.ndarray) -> tuple[Any, Any]:
    if shaped.ndim == 2:
        return inner.low, inner.high
    d, n = inner.inputs[0]
    return tuple(end.reshape(n, d).T for end in (inner.low, inner.high))  # type: ignore[return-value]


@pytest.mark.parametrize("head", grouped(SMOOTH))
def test_gradients_are_those_of_the_layer(head: str) -> None:
    """Tensors and modules against central differences of the NumPy layer, where it is smooth."""
    layer = compiled(head, "float64")
    inner, rng = layer.weights, np.random.default_rng(5)
    runtime = next(name for name in ("two-level", "factorised", "dense") if name in layer.runtimes())
    width = inner.high - inner.low
    x = rng.uniform(inner.low + 0.01 * width, inner.high - 0.01 * width, size=(60, inner.dimension))

    def flat(points: np.ndarray) -> np.ndarray:
        return (
            np.asarray(layer(_shaped(points, inner.inputs[0]), runtime=runtime), dtype=np.float64)
            .reshape(len(points), -1)
            .sum(axis=1)
        )

    h = 1e-5 * width
    slopes, again = np.empty_like(x), np.empty_like(x)
    for d in range(inner.dimension):
        for out, step in ((slopes, h[d]), (again, 2 * h[d])):
            move = np.zeros(inner.dimension)
            move[d] = step
            out[:, d] = (flat(x + move) - flat(x - move)) / (2 * step)
    steep = np.maximum(np.abs(slopes).max(), 1e-3)
    smooth = (np.abs(slopes - again) <= 1e-6 * steep).all(axis=1)
    if smooth.sum() < 5:
        pytest.skip("too steep for differences in float64")
    for run in (layer, layer.to_torch()):
        t = torch.tensor(np.ascontiguousarray(_shaped(x, inner.inputs[0])), requires_grad=True)
        (found,) = torch.autograd.grad(run(t).sum(), t)
        flatly = found.numpy() if found.ndim == 2 else found.numpy().transpose(0, 2, 1).reshape(len(x), -1)
        assert np.abs(flatly - slopes)[smooth].max() <= 1e-5 * steep


def _shaped(x: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    d, n = shape
    return x if n == 1 else x.reshape(-1, n, d).transpose(0, 2, 1)


@pytest.mark.parametrize("head", grouped(["axis", "spectral, a sum", "lookup", "table", "hard table"]))
def test_no_statement_covers_gradients(head: str) -> None:
    said = compiled(head, "float64").statements()
    graded = ("tensors with gradients", "factorised tensors", "module", "kernel module", "literal module", "multihead")
    with_gradients = [one for one in said if one.route in graded]
    assert "not proved" in NO_GRADIENT and len(with_gradients) >= 8
    assert all(one.gradient == NO_GRADIENT for one in with_gradients)
    assert all("no gradients" in one.gradient for one in said if one not in with_gradients)
