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

from maxaffine.regressor import MaxAffineRegressor, metric_error, softmax_weights  # noqa: E402


@pytest.mark.slow
def test_every_check_of_scikit_learn_passes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(MaxAffineRegressor(), on_skip=None, on_fail=None)
    count = Counter(check["status"] for check in found)
    assert count["failed"] == 0, [check["check_name"] for check in found if check["status"] == "failed"]
    assert count["passed"] >= 59 and count["skipped"] <= 1


def test_it_beats_the_mean_and_knows_which_features_matter() -> None:
    X, y = make_friedman1(300, n_features=8, noise=0.5, random_state=0)
    model = MaxAffineRegressor().fit(X, y)
    assert np.sqrt(model.loo_error_) < 0.5 * y.std()
    assert model.metric_[:3].min() > 1.5 * model.metric_[5:].max()  # the three that enter other than linearly


def test_features_of_few_samples_that_say_nothing_do_not_make_a_metric() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 12))
    model = MaxAffineRegressor(max_tokens=16).fit(X, X.sum(axis=1) + rng.normal(size=60))
    assert np.sqrt(np.mean(np.square(model.predict(other := rng.normal(size=(2_000, 12))) - other.sum(axis=1)))) < 1.0


@pytest.mark.parametrize("tilted", [False, True])
def test_the_gradient_of_the_metric_is_that_of_its_error(tilted: bool) -> None:
    rng = np.random.default_rng(1)
    Z, keys, rows = rng.normal(size=(40, 3)), rng.normal(size=(6, 3)), rng.normal(size=(40, 2))
    place, weights = np.append(0.3 * rng.normal(size=3), -5.0), rng.integers(1, 4, 40).astype(float)
    judge = lambda at: metric_error(at, Z, keys, rows, weights, tilted)[0]  # noqa: E731
    steps = 1e-5 * np.eye(4)
    expected = [(judge(place + step) - judge(place - step)) / 2e-5 for step in steps]
    assert np.allclose(metric_error(place, Z, keys, rows, weights, tilted)[1], expected, rtol=1e-6, atol=1e-8)


def test_more_tokens_are_taken_where_they_help() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(500, 2))
    y = np.sin(3 * X[:, 0]) * np.cos(3 * X[:, 1])
    few, many = (MaxAffineRegressor(max_tokens=count, metric=False).fit(X, y) for count in (32, 128))
    assert many.n_tokens_ == 128 and many.loo_error_ < 0.2 * few.loo_error_


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
