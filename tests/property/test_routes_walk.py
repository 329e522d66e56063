"""The walk: heads x dtypes x routes, the error of each maximised next to kinks, hand-overs, faces and ends; none above its bound.

`maxaffine attack --routes` is the longer one, with random targets.
"""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.attack.layers import sequence_answer
from maxaffine.attack.route_points import Effort, speaks, start_points
from maxaffine.attack.walk import Row, walk
from maxaffine.export import judge
from maxaffine.proofs.statement import NO_GRADIENT
from maxaffine.target.target import Target

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

LINE, SQUARE, WIDE = ma.Box(x=(-1, 1)), ma.Box(x=(-1, 1), y=(-1, 1)), ma.Box(x=(-2, 2), y=(-2, 2))
DTYPES = ("float64", "float32", "bfloat16")
EFFORT = Effort(starts=250, climbers=6, tries=4, rounds=7, integral=1800)
LEAST = 27  # ways of any layer: arrays, runtimes, tensors, modules, matrices, ONNX models, files
ANGLES = np.linspace(0, 2 * math.pi, 60)


def _table() -> ma.Table:
    a, b = np.linspace(0, 1, 9), np.linspace(-1, 1, 7)
    return ma.Table([a, b], np.sin(2 * a)[:, None] * np.cos(b))


def _irregular() -> ma.Table:
    rng = np.random.default_rng(0)
    rough = np.sort(rng.uniform(0, 1, 5)).astype(np.float32).astype(np.float64)  # numbers that float32 queries can be
    return ma.Table([np.array([0.0, 1.0, 2.5, 3.0]), rough], rng.normal(size=(4, 5)))


def _sites() -> ma.MaxAffine:
    return ma.MaxAffine.from_power_diagram(np.random.default_rng(0).uniform(-1, 1, (25, 2)))


# Target, box, the error per dtype (those it compiles in), options.
HEADS: dict[str, tuple[Any, Any, tuple[float | None, ...], dict[str, Any]]] = {
    "axis": ("abs(sin(3*x))", LINE, (1e-6, 1e-3, 0.1), {}),
    "axis, smooth": ("exp(x)", LINE, (1e-4, 1e-3, 0.05), {"method": "axis"}),
    "axis, gap": ("sign(x - .3) + x", LINE, (1e-3, 1e-2, 0.1), {"gap": 1e-3}),
    "axis, L_1": ("sign(x - .3) + sin(x)", LINE, (1e-2, 1e-2, 0.1), {"norm": 1}),
    "sums": ("abs(x - .2) + sin(2*y)", SQUARE, (1e-4, 1e-2, 0.1), {}),
    "products": ("abs(x - .1)*cos(y)", SQUARE, (2e-2, 2e-2, 0.1), {"method": "products"}),
    "regions": ("abs(x + 2*y - .3)*cos(x)", SQUARE, (1e-2, 1e-1), {"method": "regions"}),
    "regions, L_2": ("where(x + y > .1, cos(x), y)", SQUARE, (1e-1,), {"norm": 2, "method": "regions"}),
    "curved kink": ("max(x**2 + y**2, .5)", SQUARE, (1e-1, 1e-1), {"method": "curved"}),
    "curved maximum": ("max(sin(3*x), y)", SQUARE, (1e-1, 1e-1), {"method": "curved"}),
    "tree": ("exp(-9*((x - .2)**2 + y**2))", SQUARE, (1e-1, 1e-1), {"method": "tree"}),
    "piecewise": ("max(x, y, .3)", SQUARE, (1e-4, 1e-4, 1e-2), {}),
    "level, L_1": ("where(x**2 + y**2 < .5, 1, 0)", SQUARE, (4e-1, 4e-1), {"norm": 1, "method": "level"}),
    "spectral, listed": ("sin(x*y)", SQUARE, (1e-2, 1e-2), {"method": "spectral"}),
    "spectral, factored": ("sin(x)*cos(2*y)", SQUARE, (1e-3, 1e-2, 0.1), {"method": "spectral"}),
    "spectral, affine": ("sin(x)", LINE, (1e-3, 1e-3, 0.1), {"method": "spectral"}),
    "spectral, single": ("cos(4*x)", LINE, (5e-2, 5e-2, 0.1), {"method": "spectral"}),
    "spectral, a sum": ("sin(x) + cos(y)", SQUARE, (1e-6, 1e-3, 0.1), {"method": "spectral"}),
    "lookup": ("sin(3*x) + y", SQUARE, (0.5, 0.5), {"method": "lookup"}),
    "lookup, L_1": ("sign(x - .3) + x", LINE, (0.2, 0.2), {"norm": 1, "method": "lookup"}),
    "partition": ("x + y/2", SQUARE, (1.2, 1.2), {"method": "lookup", "partition": _sites()}),
    "centres": ("sin(2*x) + y/2", WIDE, (0.8, 0.8), {"method": "lookup", "centres": np.c_[np.cos(ANGLES), np.sin(ANGLES)]}),
    "matrix": (Target.of("sin(x), x, cos(x), x*x", LINE, output_shape=(2, 2)), None, (0.3, 0.3), {"method": "lookup"}),
    "sequence": (sequence_answer, ma.Box.sequence(2, 2), (0.9, 0.9), {"method": "lookup", "lipschitz": [1, 1, 1, 1]}),
    "table": (_table(), None, (1e-2, 1e-2, 0.1), {}),
    "hard table": (_irregular(), None, (None, None, None), {"hard": True}),
}
CASES = [(head, dtype) for head, (_, _, errors, _) in HEADS.items() for dtype, _ in zip(DTYPES, errors, strict=False)]
SMOOTH = [head for head in HEADS if head != "hard table"]


@pytest.fixture(autouse=True)
def _short_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports judge themselves at fewer points: the walk judges them here."""
    monkeypatch.setattr(judge, "POINTS", 96)
    monkeypatch.setattr(judge, "SWITCHES", 6)


@cache
def compiled(head: str, dtype: str) -> ma.Compiled:
    target, box, errors, options = HEADS[head]
    error = errors[DTYPES.index(dtype)]
    more = {} if error is None else {"error": error}
    return ma.compile(target, box, dtype=dtype, **more, **options)


def rows_of(head: str, dtype: str) -> list[Row]:
    found = []
    for row in walk(compiled(head, dtype), np.random.default_rng(7), EFFORT, head):
        assert not row.violated, row
        found.append(row)
    return found


@pytest.mark.parametrize("head", HEADS)
def test_no_route_exceeds_its_statement(head: str) -> None:
    for dtype in DTYPES[: len(HEADS[head][2])]:
        rows = rows_of(head, dtype)
        assert len(rows) >= LEAST
        assert all(row.judged or row.why for row in rows)
        refused = {row.route for row in rows if not row.judged and row.variant not in ("in float64", "in float32", "I", "K")}
        if head == "hard table":  # the softmax is another function
            assert {"arrays", "nearest", "tensors"}.isdisjoint(refused) and {"module", "matrices", "onnx"} <= refused
        elif dtype == "float64":
            assert refused == {"attention"}
        else:  # a literal softmax may be unresolved in float32, never in float64
            assert refused <= {"attention", "dense", "literal module", "multihead", "literal onnx"}
        assert max(row.ratio for row in rows) > 0.0


def test_four_hundred_combinations_are_walked() -> None:
    assert LEAST * len(CASES) >= 400


@pytest.mark.parametrize(("head", "dtype"), CASES)
def test_asking_for_a_gradient_changes_no_answer_beyond_rounding(head: str, dtype: str) -> None:
    """L(t.requires_grad_()) by float64 operations and L(t) by the runtime of arrays, on the same stored numbers."""
    layer = compiled(head, dtype)
    inner = layer.weights
    if layer.certificate.scope.over == "entries":
        x = np.concatenate([block[0] for block in layer.target.data.blocks()])
    else:
        domain = speaks(layer)
        assert domain is not None
        pool = start_points(layer, np.random.default_rng(3), domain)
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


@pytest.mark.parametrize("head", SMOOTH)
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


@pytest.mark.parametrize("head", ["axis", "spectral, a sum", "lookup", "table", "hard table"])
def test_no_statement_covers_gradients(head: str) -> None:
    said = compiled(head, "float64").statements()
    graded = ("tensors with gradients", "factorised tensors", "module", "literal module", "multihead")
    with_gradients = [one for one in said if one.route in graded]
    assert "not proved" in NO_GRADIENT and len(with_gradients) >= 8
    assert all(one.gradient == NO_GRADIENT for one in with_gradients)
    assert all("no gradients" in one.gradient for one in said if one not in with_gradients)
