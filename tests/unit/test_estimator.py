"""The regressor: scikit-learn's own checks, left-out errors against refits, exports, and what it says it is."""

import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import maxaffine as ma

sklearn = pytest.importorskip("sklearn")
from sklearn.base import clone  # noqa: E402
from sklearn.datasets import load_diabetes, make_friedman1  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

from maxaffine.estimator import MaxAffineRegressor, _ridge, softmax_weights  # noqa: E402


@pytest.mark.slow
def test_every_check_of_scikit_learn_passes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(MaxAffineRegressor(), on_skip=None, on_fail=None)
    count = Counter(check["status"] for check in found)
    assert count["failed"] == 0, [check["check_name"] for check in found if check["status"] == "failed"]
    assert count["passed"] >= 59 and count["skipped"] <= 1


@pytest.mark.parametrize("weighted", [False, True])
def test_left_out_residuals_are_those_of_refits(weighted: bool) -> None:
    rng = np.random.default_rng(0)
    A, rows = rng.normal(size=(30, 5)), rng.normal(size=(30, 2))
    weights = rng.integers(1, 4, 30).astype(float) if weighted else np.ones(30)
    ridge = 0.01
    score, chosen, coefficients = _ridge(A, rows, weights, (ridge,))
    total = 0.0
    for i in range(30):  # one copy of sample i is left out; the ridge keeps its strength
        kept = weights.copy()
        kept[i] -= 1.0
        normal = A.T @ (kept[:, None] * A) + ridge * weights.sum() * np.eye(5)
        c = np.linalg.solve(normal, A.T @ (kept[:, None] * rows))
        total += weights[i] * float(np.square(rows[i] - A[i] @ c).sum())
    normal = A.T @ (weights[:, None] * A) + ridge * weights.sum() * np.eye(5)
    assert chosen == ridge and score == pytest.approx(total, rel=1e-10)
    assert np.allclose(coefficients, np.linalg.solve(normal, A.T @ (weights[:, None] * rows)))


def test_it_beats_the_mean_and_knows_which_features_matter() -> None:
    X, y = make_friedman1(300, n_features=8, noise=0.5, random_state=0)
    model = MaxAffineRegressor().fit(X, y)
    assert np.sqrt(model.loo_error_) < 0.5 * y.std()
    assert model.metric_[:3].min() > 1.5 * model.metric_[5:].max()  # the three that enter other than linearly


def test_the_head_is_a_layer_and_leaves_home(tmp_path: Path) -> None:
    torch, onnxruntime = pytest.importorskip("torch"), pytest.importorskip("onnxruntime")
    X, y = load_diabetes(return_X_y=True)
    for tilt in (False, True):
        model = MaxAffineRegressor(n_tokens=8, tilt=tilt, metric=False).fit(X, np.stack([y, y**0.5], axis=1))
        expected = model.predict(X[:50])
        scale = np.abs(expected).max()
        assert np.abs(model.to_compiled()(X[:50]) - expected).max() < 1e-11 * scale
        with torch.no_grad():
            assert np.abs(model.to_torch()(torch.from_numpy(X[:50])).numpy() - expected).max() < 1e-11 * scale
        model.to_onnx(tmp_path / "f.onnx")
        session = onnxruntime.InferenceSession(str(tmp_path / "f.onnx"), providers=["CPUExecutionProvider"])
        assert np.abs(session.run(None, {"x": X[:50]})[0] - expected).max() < 1e-11 * scale


def test_attention_weights_explain_a_prediction() -> None:
    X, y = load_diabetes(return_X_y=True)
    model = MaxAffineRegressor(n_tokens=6, tilt=False, metric=False).fit(X, y)
    weights = model.attention(X)
    assert weights.shape == (len(X), 6) and np.allclose(weights.sum(axis=1), 1)
    assert np.allclose(weights @ model.values_[:, 0], model.predict(X))


def test_a_convex_combination_stays_in_the_range_it_states() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 2)), rng.normal(size=80)
    model = MaxAffineRegressor(tilt=False, signed=False).fit(X, y)
    said = model.certificate_
    far = model.predict(rng.normal(size=(500, 2)) * 100)
    assert said.kind == "convex combination" and said.low is not None and said.high is not None
    assert said.low[0] <= far.min() and far.max() <= said.high[0] and y.min() <= said.low[0] and said.high[0] <= y.max()
    assert MaxAffineRegressor(tilt=True).fit(X, y).certificate_.kind == "signed values"


def test_it_works_in_pipelines_grids_and_with_frames() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    pipe = make_pipeline(StandardScaler().set_output(transform="pandas"), MaxAffineRegressor(n_tokens=4, metric=False))
    assert cross_val_score(pipe, X, y, cv=3).mean() > 0.3
    grid = GridSearchCV(MaxAffineRegressor(metric=False), {"n_tokens": [1, 4]}, cv=3).fit(X, y)
    assert grid.best_params_["n_tokens"] in (1, 4)
    model = clone(MaxAffineRegressor(n_tokens=4, metric=False)).fit(X, y)
    assert list(model.feature_names_in_) == list(X.columns)
    assert isinstance(pandas.Series(model.predict(X), index=X.index), pandas.Series)


def test_a_softmax_of_distances_is_a_softmax_of_affine_logits() -> None:
    rng = np.random.default_rng(0)
    Z, keys = rng.normal(size=(7, 3)), rng.normal(size=(5, 3))
    apart = -np.square(Z[:, None] - keys).sum(axis=2) / (2 * 0.7**2)
    expected = np.exp(apart) / np.exp(apart).sum(axis=1, keepdims=True)
    assert np.allclose(softmax_weights(Z, keys, 0.7), expected)


def test_the_public_name_is_the_class() -> None:
    assert ma.MaxAffineRegressor is MaxAffineRegressor
