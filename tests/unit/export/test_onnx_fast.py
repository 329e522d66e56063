"""The ONNX model that keeps the structure says what NumPy's softmax says, in float64, at kinks, corners and outside the box."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import BadInput, Refused
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.keys import AxisKeys, Coordinates, ListedKeys, ProductKeys
from maxaffine.layer.layer import Layer
from maxaffine.runtime import chooser

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

import layers_for_tensors  # noqa: E402

from maxaffine.export import onnx_fast  # noqa: E402
from maxaffine.export.onnx_model import metadata, session  # noqa: E402

LINE, SQUARE = ma.Box(x=(-1, 1)), ma.Box(x=(-1, 1), y=(-1, 1))
CUBE = ma.Box(x=(-1, 1), y=(-1, 1), z=(-1, 1))
TABLE = ma.Table([np.cumsum([0.3, 0.1, 0.2, 0.4, 0.25]), np.arange(4.0)], np.random.default_rng(5).normal(size=(5, 4)))
SCATTERED = np.random.default_rng(7).uniform(-1.0, 1.0, (60, 2))


def _sequence(X: np.ndarray) -> np.ndarray:
    return np.stack([X[:, 0] + X[:, 1], X[:, 0] * X[:, 1]], axis=1)


def _pair(X_q: np.ndarray, X_kv: np.ndarray) -> np.ndarray:
    return np.sin(X_q[:, 0]) + X_kv[:, 0]


MAKERS: dict[str, Callable[[], ma.Compiled]] = {
    "axis": partial(ma.compile, "abs(sin(7*x))", LINE, error=1e-9),
    "axis, float32": partial(ma.compile, "abs(sin(7*x))", LINE, error=1e-4, dtype="float32"),
    "axis, bfloat16": partial(ma.compile, "abs(x)", LINE, error=5e-2, dtype="bfloat16"),
    "root": partial(ma.compile, "sqrt(x)", ma.Box(x=(0, 1)), error=1e-5),
    "sums": partial(ma.compile, "abs(sin(5*x))+cos(y)**2", SQUARE, error=1e-4),
    "products": partial(ma.compile, "abs(sin(7*x))*exp(y)", SQUARE, error=1e-4),
    "regions": partial(ma.compile, "abs(x+2*y-.3)*cos(x)", SQUARE, error=1e-6),
    "curved": partial(ma.compile, "max(x**2+y**2,0.5)", SQUARE, error=1e-2),
    "curved maximum": partial(ma.compile, "max(sin(3*x),y)", SQUARE, error=1e-2),
    "tree": partial(ma.compile, "1/(1+25*x**2)", LINE, error=1e-3, method="tree"),
    "tree of two variables": partial(ma.compile, "exp(-30*(x**2+y**2))", SQUARE, error=1e-2, method="tree"),
    "piecewise": partial(ma.compile, "max(x,y)", SQUARE, error=1e-8),
    "affine": partial(ma.compile, "2*x-y+1", SQUARE, error=0.1),
    "constant": partial(ma.compile, "0*x+2", LINE, error=0.1),
    "level": partial(ma.compile, "where(x**2+y**2<.5,1,0)", SQUARE, error=1e-2, norm=1),
    "factors": partial(ma.compile, "exp(-x**2)*cos(y)*sin(z)", CUBE, error=1e-3, method="spectral"),
    "spectral sum": partial(ma.compile, "sin(3*x)+cos(2*y)", SQUARE, error=1e-6, method="spectral"),
    "spectral vector": partial(ma.compile, "x*y, x - y", SQUARE, error=1e-3, method="spectral"),
    "lookup": partial(ma.compile, "x+y", SQUARE, error=0.1, method="lookup"),
    "lookup, float32": partial(ma.compile, "x+y", SQUARE, error=0.3, method="lookup", dtype="float32"),
    "sequence": partial(ma.compile, _sequence, ma.Box.sequence(d=2, n=2, low=-1, high=1), error=1.0, lipschitz=[1, 1, 1, 1],
                        method="lookup"),
    "two inputs": partial(ma.compile, _pair, (ma.Box(x=(-1, 1)), ma.Box(y=(0, 1))), error=0.2, lipschitz=[1, 1],
                          method="lookup"),
    "table": partial(ma.compile, TABLE, error=1e-6),
    "hard table": partial(ma.compile, TABLE, method="nearest"),
    "samples": partial(ma.compile, ma.Samples(SCATTERED, np.sin(2.0 * SCATTERED[:, 0]) + SCATTERED[:, 1] ** 2), error=1e-4),
}  # fmt: skip
MADE = {**layers_for_tensors.grouped_layers(), **layers_for_tensors.other_layers(), **layers_for_tensors.lookups()}
NAMES = (*MAKERS, *MADE)


@dataclass(frozen=True)
class Case:
    """A layer, the shape of its output, and its record."""

    layer: Layer | GroupedLayer
    output: tuple[int, ...]
    record: dict

    def model(self, dtype: str = "float64", opset: int = 23):  # type: ignore[no-untyped-def]
        return onnx_fast.build_fast(self.layer, self.output, self.layer.inputs, dtype, opset, self.record)

    def run(self, x: np.ndarray, dtype: str = "float64", opset: int = 23, start: Callable = session) -> np.ndarray:
        made = start(self.model(dtype, opset).SerializeToString())
        parts, first = [], 0
        for d, n in self.layer.inputs:
            part = x[:, first : first + d * n]
            parts.append(part if n == 1 else part.reshape(-1, n, d).transpose(0, 2, 1))
            first += d * n
        feeds = {one.name: np.ascontiguousarray(part, dtype=dtype) for one, part in zip(made.get_inputs(), parts, strict=True)}
        return np.asarray(made.run(None, feeds)[0])

    def softmax(self, x: np.ndarray) -> np.ndarray:
        """NumPy's softmax of the stored numbers in float64."""
        wide = replace(self.layer, dtype="float64")
        able = chooser.available(wide)
        runtime = next(name for name in ("two-level", "factorised", "dense", "blocked") if name in able)
        inside = np.clip(x, wide.low, wide.high)
        return chooser.evaluate(wide, inside, runtime).reshape(len(x), *self.output)


@cache
def case(name: str) -> Case:
    if name in MAKERS:
        made = compiled(name)
        return Case(made.weights, made.target.output_shape, {"certificate": made.certificate.to_json()})
    return Case(MADE[name], (MADE[name].d_out, MADE[name].n_out), {})


@cache
def compiled(name: str) -> ma.Compiled:
    return MAKERS[name]()


def points(layer: Layer | GroupedLayer, count: int = 300) -> np.ndarray:
    """Random ones, corners, outside the box, and beside the places where another key takes over."""
    rng = np.random.default_rng(1)
    low, high, D = layer.low, layer.high, len(layer.low)
    random = rng.uniform(low, high, (count, D))
    corners = np.where(rng.random((16, D)) < 0.5, low, high)
    outside = rng.uniform(low - 3 * (high - low), high + 3 * (high - low), (16, D))
    a, b = rng.uniform(low, high, (2, 12, D))
    first = chooser.attention(layer, a).argmax(axis=1)
    for _ in range(60):
        middle = (a + b) / 2
        same = chooser.attention(layer, middle).argmax(axis=1) == first
        a, b = np.where(same[:, None], middle, a), np.where(same[:, None], b, middle)
    steps = np.concatenate([[0.0], *([10.0**-k, -(10.0**-k)] for k in range(1, 17))])
    switches = (b[:, None, :] + steps[:, None] * rng.choice([-1.0, 1.0], (12, 1, D))).reshape(-1, D)
    return np.concatenate([random, corners, outside, switches])


@pytest.mark.parametrize("name", NAMES)
def test_the_model_says_what_the_softmax_of_numpy_says(name: str) -> None:
    made = case(name)
    x = points(made.layer)
    expected = made.softmax(x)
    got = made.run(x)
    assert got.dtype == np.float64 and got.shape == expected.shape
    assert np.abs(got - expected).max() <= 1e-12 * (1 + np.abs(expected).max())


@pytest.mark.parametrize("name", NAMES)
def test_float32_is_widened_before_and_rounded_after(name: str) -> None:
    made = case(name)
    x = points(made.layer, 50).astype(np.float32)
    expected, got = made.softmax(x.astype(np.float64)), made.run(x, "float32")
    assert got.dtype == np.float32
    assert np.all(np.abs(got - expected) <= 2.0**-24 * np.abs(expected) + 1e-12 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize("opset", [13, 17, 18, 21, 23])
def test_every_opset_says_the_same(opset: int) -> None:
    for name in NAMES:
        made = case(name)
        x = np.random.default_rng(2).uniform(made.layer.low, made.layer.high, (20, len(made.layer.low)))
        for dtype, unit in (("float64", 0.0), ("float32", 2.0**-24))[: 2 if name in ("sums", "factors", "sequence") else 1]:
            fed = x.astype(dtype)
            expected = made.softmax(fed.astype(np.float64))
            allowed = (1e-12 + unit) * (1 + np.abs(expected).max())
            assert np.abs(made.run(fed, dtype, opset) - expected).max() <= allowed, (name, dtype)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_may_be_empty_and_one_point_is_a_batch(name: str) -> None:
    made = case(name)
    D = len(made.layer.low)
    x = np.random.default_rng(3).uniform(made.layer.low, made.layer.high, (1000, D))
    whole = made.run(x)
    assert made.run(np.zeros((0, D)), "float32").shape == (0, *made.output)
    assert np.abs(made.run(x[:1]) - whole[:1]).max() <= 1e-14 * (1 + np.abs(whole).max())


@pytest.mark.parametrize("name", ["axis", "axis, float32", "sums", "products", "regions", "curved", "curved maximum", "root"])
def test_the_bound_of_the_layer_holds_for_the_model(name: str) -> None:
    made, layer = case(name), compiled(name)
    x = np.clip(points(made.layer), made.layer.low, made.layer.high)
    if layer.dtype == "float32":
        x = x.astype(np.float32).astype(np.float64)
    assert layer.bound is not None
    assert np.abs(made.run(x, layer.dtype) - layer.target.values(x).reshape(len(x))).max() <= layer.bound
    assert np.abs(made.run(x, layer.dtype) - layer(x)).max() <= (1e-12 if layer.dtype == "float64" else 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_optimising_the_graph_changes_no_bit(name: str) -> None:
    made = case(name)
    x = points(made.layer, 20)
    assert np.array_equal(made.run(x), made.run(x, start=plain))


def plain(data: bytes):  # type: ignore[no-untyped-def]
    """A session that runs the nodes as they are written."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def test_single_numbers_that_float32_cannot_tell_are_kept() -> None:
    """ONNX Runtime drops x * 1.00000001 and x + 1e-50, and rounds a factor beside a MatMul to float32."""
    box = -np.ones(1), np.ones(1), ((1, 1),)
    axes = (AxisKeys(np.array([-1.0, 1.0, 0.5]), np.array([0.0, 0.1, -0.2])),)
    values, slopes = np.array([[1e8], [2e8], [3e8]]), np.array([[[1e8]], [[2e8]], [[-1e8]]])
    for factor in (1.0 + 1e-8, 1.0 + 2.0**-50, 34.52875928044828):
        one = Cluster(np.array([1e-9]), np.array([factor]), axes, values, slopes)
        group = ClusterGroup(np.array([[factor]]), np.zeros((1, 1)), np.zeros(1), (one,))
        listed = ListedKeys(axes[0].slopes[:, None], axes[0].offsets)
        where = Coordinates(np.zeros(1), np.array([[factor]]))
        for layer in (
            GroupedLayer(np.zeros(1), (group,), 0.0, *box),
            Layer(where, listed, factor, values[:, :, None], *box, "float64", slopes[:, :, None]),
            Layer(where, ProductKeys(axes), factor, values[:, :, None], *box, "float64", slopes[:, :, None]),
        ):
            made = Case(layer, (), {})
            x = np.linspace(-1, 1, 7)[:, None]
            assert np.abs(made.run(x) - made.softmax(x)).max() <= 1e-6
    tiny = 2e-300
    layer = GroupedLayer(np.array([tiny]), (ClusterGroup(np.array([[1.0 / tiny]]), np.zeros((1, 1)), np.zeros(1), (one,)),), 0.0,
                         np.zeros(1), np.array([2 * tiny]), ((1, 1),))  # fmt: skip
    made, x = Case(layer, (), {}), np.linspace(0, 2 * tiny, 9)[:, None]
    assert np.abs(made.run(x) - made.softmax(x)).max() <= 1e-7


def test_what_is_not_a_number_stays_so() -> None:
    for name in ("axis", "spectral sum", "curved maximum", "lookup", "constant"):
        made = case(name)
        x = np.zeros((3, len(made.layer.low)))
        x[1, 0] = np.nan
        assert np.isnan(made.run(x)).tolist() == [False, True, False], name


def test_clusters_far_away_and_tiny_answer_nothing() -> None:
    """t reaches 1e30 and scores 1e40: the clusters out of sight must neither answer nor spoil the others."""
    axes = (AxisKeys(np.array([-1.0, 1.0, 0.5]), np.array([0.0, 0.1, -0.2])),)
    one = Cluster(
        np.array([0.5]), np.array([1e-30]), axes, np.array([[1.0], [2.0], [3.0]]), np.array([[[1.0]], [[2.0]], [[-1.0]]])
    )
    other = Cluster(np.array([-0.5]), np.array([1.0]), axes, np.array([[4.0], [5.0], [6.0]]), np.zeros((3, 1, 1)))
    group = ClusterGroup(np.eye(1), np.array([[1e40], [-1e40]]), np.array([-1e39, 1e39]), (one, other))
    layer = GroupedLayer(np.zeros(1), (group,), 0.0, -np.ones(1), np.ones(1), ((1, 1),))
    made = Case(layer, (1,), {})
    x = np.array([[-1.0], [-0.3], [0.0], [0.0999999], [-1e300], [-0.5]])
    got, expected = made.run(x), made.softmax(x)
    assert np.isfinite(got).all() and np.abs(got - expected).max() <= 1e-12 * (1 + np.abs(expected).max())


def test_the_model_is_checked_small_and_carries_its_record() -> None:
    made = case("axis")
    model = made.model()
    onnx.checker.check_model(model, full_check=True)
    assert metadata(model)["certificate"]["bound"] == compiled("axis").bound
    assert len(model.SerializeToString()) < 20_000
    assert {one.data_type for one in model.graph.initializer} <= {onnx.TensorProto.DOUBLE, onnx.TensorProto.INT64}


def test_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for opset in (12, 99):
        with pytest.raises(BadInput, match="opset"):
            case("axis").model(opset=opset)
    monkeypatch.setattr(onnx_fast, "LARGEST", 100)
    with pytest.raises(Refused, match="at most"):
        case("axis").model()
