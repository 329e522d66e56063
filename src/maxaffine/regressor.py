"""A scikit-learn regressor that is one softmax attention head, everything about it chosen by closed-form leave-one-out.

    z = metric (x - mean) / std            keys k_j in z, from k-means
    w(x) = softmax_j(-|z - k_j|^2 / (2 t^2))                affine logits k_j . z / t^2 - |k_j|^2 / (2 t^2)
    f(x) = sum_j w_j(x) c_j + tilt . z                       values c_j by weighted ridge regression on w (and z)

For fixed keys and temperature t the values are ridge regression, so left-out residuals are known without refitting
(core/left_out.py).  Number of tokens, temperature, ridge, and whether there is a tilt are those with the least left-out error.
So is the metric, found by following the gradient of the logarithm of that error, with a prior: the logarithms of the features'
weights spread like a standard normal, which costs their sum of squares around their mean over the total weight.  Without it
a metric of many features learns the noise of few samples.  (The k-means centres do see all samples; what is left out is the
fit of the values.)  A weight of two is the same as the sample twice, and one of its copies is what is left out.  Nothing is
random.  Needs ``maxaffine[sklearn]``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.left_out import best_ridge, left_out_gradient

if TYPE_CHECKING:
    from maxaffine.compiled import Compiled
    from maxaffine.export.torch_module import Exported
    from maxaffine.layer.layer import Layer


TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TEMPERATURES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
RIDGES = tuple(10.0**k for k in np.arange(-8.0, 2.5, 0.5))
FEW = 32  # up to so many tokens all counts are tried
# The search of the metric: so many keys and samples, and rounds of so many steps between which the keys move.
METRIC_TOKENS, METRIC_SAMPLES, METRIC_ROUNDS, METRIC_STEPS = 32, 600, 6, 15
REACH = 10.0  # exports and predictions clamp to the range of the data, widened by this many ranges


@dataclass(frozen=True)
class HeadStatement:
    """What a fitted head is: whether its outputs are convex combinations of its values, and the range that this proves."""

    kind: str  # "convex combination" | "signed values"
    tokens: int
    temperature: float
    low: tuple[float, ...] | None  # proved for every x where the head has no tilt
    high: tuple[float, ...] | None
    sentence: str


@dataclass(frozen=True)
class _Fit:
    keys: Array
    temperature: float
    ridge: float
    tilted: bool
    error: float  # left out
    coefficients: Array


class MaxAffineRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Regression by one softmax attention head with listed keys.

    Parameters
    ----------
    n_tokens : int or "auto"
        Number of keys; "auto" tries 1 to `max_tokens`.
    temperature : float or "auto"
        t above, in units of the median distance between neighbouring keys.
    ridge : float or "auto"
        Ridge of the values, relative to the total sample weight.
    tilt : bool or "auto"
        Whether all values share an affine part; without it, and with `signed=False`, outputs are convex combinations.
    metric : bool
        Whether the features may get weights of their own, `metric_`, the largest of them one; they do where that lowers
        the left-out error and there are at least two different samples per feature.
    signed : bool
        False clips every value to the range of the targets, so that the head cannot overshoot it.
    max_tokens : int
        The largest number of keys that "auto" tries, in powers of two up to 512.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_tokens": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "temperature": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "ridge": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "tilt": ["boolean", StrOptions({"auto"})],
        "metric": ["boolean"],
        "signed": ["boolean"],
        "max_tokens": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_tokens: int | str = "auto",
        *,
        temperature: float | str = "auto",
        ridge: float | str = "auto",
        tilt: bool | str = "auto",
        metric: bool = True,
        signed: bool = True,
        max_tokens: int = 256,
    ) -> None:
        self.n_tokens = n_tokens
        self.temperature = temperature
        self.ridge = ridge
        self.tilt = tilt
        self.metric = metric
        self.signed = signed
        self.max_tokens = max_tokens

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MaxAffineRegressor:
        """Choose keys, temperature, ridge, tilt and metric, and fit the values."""
        self._validate_params()
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, dtype=np.float64)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.sum() > 0:
            raise ValueError("sample_weight must have a positive sum; all weights are zero.")
        targets = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        self._one = np.ndim(y) == 1
        low, high = X[weights > 0].min(axis=0), X[weights > 0].max(axis=0)
        room = REACH * np.where(high > low, high - low, 1.0)
        self.low_, self.high_ = low - room, high + room
        total = weights.sum()
        self.mean_ = weights @ X / total
        spread = np.sqrt(weights @ np.square(X - self.mean_) / total)
        self.scale_ = np.where(spread > 1e-12 * (np.abs(self.mean_) + 1e-300), spread, 1.0)
        self.offset_ = weights @ targets / total
        Z = (X - self.mean_) / self.scale_
        rows = targets - self.offset_
        self.metric_, best = self._choose(Z, rows, weights)
        self.keys_, self.temperature_, self.ridge_ = best.keys, best.temperature, best.ridge
        count = len(best.keys)
        values = best.coefficients[:count] + self.offset_
        if not self.signed:
            values = np.clip(values, targets.min(axis=0), targets.max(axis=0))
        self.values_ = values
        self.tilt_ = best.coefficients[count:] / self.metric_[:, None] if best.tilted else None
        self.n_tokens_, self.loo_error_ = count, best.error / total
        return self

    # -- choosing

    def _choose(self, Z: Array, rows: Array, weights: Array) -> tuple[Array, _Fit]:
        """The metric and the head: the better of the best head without a metric and the best one with it."""
        metric = np.ones(Z.shape[1])
        best = self._grow(Z, metric, rows, weights)
        # Fewer than two different samples per feature cannot say which features matter.
        if self.metric and 1 < Z.shape[1] <= len(np.unique(Z[weights > 0], axis=0)) // 2:
            found, price = self._search_metric(Z, rows, weights)
            other = self._grow(Z, found, rows, weights)
            if other.error * np.exp(price) < best.error:
                metric, best = found, other
        return metric, best

    def _grow(self, Z: Array, metric: Array, rows: Array, weights: Array) -> _Fit:
        """More and more keys, until twice in a row they do not help."""
        fixed = isinstance(self.n_tokens, Integral)
        counts = [int(self.n_tokens)] if fixed else [count for count in TOKENS if count <= self.max_tokens]
        scaled = Z * metric
        order = spread_out(scaled, weights, counts[-1])
        ridges: tuple[float, ...] = RIDGES if self.ridge == "auto" else (float(self.ridge),)
        best: _Fit | None = None
        idle = 0
        for count in counts:
            keys = centres(scaled, weights, scaled[order[:count]], 20)
            head = partial(_head, keys, scaled, Z, rows, weights, ridges)
            for tilted in (False, True) if self.tilt == "auto" else (bool(self.tilt),):
                made = self._descend(partial(head, tilted))
                if best is None or made.error < best.error * (1 - 1e-9):
                    best, idle = made, -1
            idle += 1
            if count >= len(order) or (idle == 2 and count > FEW):
                break
        assert best is not None
        return best

    def _descend(self, head: Callable[[float], _Fit]) -> _Fit:
        """The best temperature for given keys: from the spacing of the keys downhill."""
        if self.temperature != "auto":
            return head(float(self.temperature))
        tried: dict[int, _Fit] = {}
        here = TEMPERATURES.index(1.0)
        while True:
            for k in (here, here - 1, here + 1):
                if 0 <= k < len(TEMPERATURES) and k not in tried:
                    tried[k] = head(TEMPERATURES[k])
            best = min(tried, key=lambda k: tried[k].error)
            if best == here or len(tried[here].keys) == 1:
                return tried[here]
            here = best

    def _search_metric(self, Z: Array, rows: Array, weights: Array) -> tuple[Array, float]:
        """Weights of the features, the largest one, and what the prior charges for them; keys move between rounds."""
        from scipy.optimize import minimize

        kept = np.flatnonzero(weights > 0)
        some = kept[np.linspace(0, len(kept) - 1, min(len(kept), METRIC_SAMPLES)).round().astype(int)]
        Z, rows, weights = Z[some], rows[some], weights[some]
        D = Z.shape[1]
        place = np.append(np.zeros(D), np.log(1e-4))  # logarithms of metric / temperature, and of the ridge
        best, lowest = place[:D], np.inf
        for round_ in range(METRIC_ROUNDS):
            scaled = Z * np.exp(place[:D])
            order = spread_out(scaled, weights, METRIC_TOKENS)
            if len(order) < 4:
                break
            keys = centres(scaled, weights, scaled[order], 20) / np.exp(place[:D])
            if round_ == 0:
                place[:D] = best = -np.log(1.4 * _spacing(keys))
            judge = partial(metric_error, Z=Z, keys=keys, rows=rows, weights=weights, tilted=self.tilt is not False)
            before = judge(place)[0]
            if before < lowest - 1e-3:
                best, lowest = place[:D], before
            limits = [(value - 1.0, value + 1.0) for value in place[:D]] + [(np.log(1e-9), np.log(10.0))]
            found = minimize(judge, place, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": METRIC_STEPS})
            place = found.x
        return np.exp(best - best.max()), float(np.square(best - best.mean()).sum() / weights.sum())

    # -- using

    def _coordinates(self, X: Any) -> Array:
        check_is_fitted(self)
        return self._scaled(validate_data(self, X, reset=False, dtype=np.float64))

    def _scaled(self, X: Array) -> Array:
        return np.asarray((np.clip(X, self.low_, self.high_) - self.mean_) / self.scale_ * self.metric_)

    def predict(self, X: Any) -> Array:
        """Values of the head; inputs far outside the training data are clamped (`low_`, `high_`)."""
        return self._head(self._coordinates(X))

    def attention(self, X: Any) -> Array:
        """Attention weights (samples, tokens) of every sample: which keys answer, and how much."""
        return softmax_weights(self._coordinates(X), self.keys_, self.temperature_)

    @property
    def certificate_(self) -> HeadStatement:
        """What the head is, and what that proves about its range."""
        check_is_fitted(self)
        if self.tilt_ is not None:
            sentence = "values share an affine part: a signed-value head, whose range is not bounded by its values"
            return HeadStatement("signed values", self.n_tokens_, self.temperature_, None, None, sentence)
        low, high = self.values_.min(axis=0), self.values_.max(axis=0)
        sentence = "every output is a convex combination of the values, so it lies between the least and the largest of them"
        return HeadStatement(
            "convex combination", self.n_tokens_, self.temperature_, tuple(low.tolist()), tuple(high.tolist()), sentence
        )

    def to_layer(self) -> Layer:
        """The head as a Layer."""
        from maxaffine.layer.keys import Coordinates, ListedKeys
        from maxaffine.layer.layer import Layer

        check_is_fitted(self)
        coordinates = Coordinates(self.mean_, np.diag(self.metric_ / self.scale_))
        slopes, offsets = self.keys_ / self.temperature_**2, -np.square(self.keys_).sum(axis=1) / (2 * self.temperature_**2)
        tilt = None
        if self.tilt_ is not None:
            tilt = np.broadcast_to(self.tilt_.T[:, None, :], (len(self.keys_), self.values_.shape[1], 1, self.keys_.shape[1]))
        return Layer(
            coordinates, ListedKeys(slopes, offsets), 1.0, self.values_[:, :, None], self.low_, self.high_,
            ((len(self.mean_), 1),), slopes=tilt,
        )  # fmt: skip

    def to_compiled(self) -> Compiled:
        """The head as what `maxaffine.compile` returns, so that it can be saved, exported and drawn; nothing is proved of it."""
        from maxaffine.compiled import Compiled
        from maxaffine.core.budget import Cost
        from maxaffine.proofs.certificate import Certificate
        from maxaffine.proofs.observe import Observed
        from maxaffine.target.box import Box
        from maxaffine.target.target import Target

        layer = self.to_layer()
        names = {f"x{i + 1}": (float(a), float(b)) for i, (a, b) in enumerate(zip(self.low_, self.high_, strict=True))}
        target = Target.of(self._function, Box(**names))
        why = "the head was fitted to data; its error on other data is not known"
        return Compiled(
            target=target, weights=layer, certificate=Certificate.nothing(np.inf, why, "float64"),
            observed=Observed(0.0, tuple(self.mean_.tolist()), 0, 0), error=float(np.abs(self.values_).max()) * 1e-6,
            method="regression", attention_kind="self", plan={"plan": "regression", "tokens": self.n_tokens_},
            cost=Cost(layer.tokens, layer.nbytes, 2 * layer.nbytes, 8 * layer.tokens * layer.dimension),
        )  # fmt: skip

    def _function(self, x: Array) -> Array:
        return self._head(self._scaled(x))

    def _head(self, Z: Array) -> Array:
        out = softmax_weights(Z, self.keys_, self.temperature_) @ self.values_
        out = out if self.tilt_ is None else out + Z @ self.tilt_
        return np.asarray(out[:, 0] if self._one else out)

    def to_torch(self, **options: Any) -> Exported:
        """A torch.nn.Module of the head."""
        return self.to_compiled().to_torch(**options)

    def to_onnx(self, path: str | Path, opset: int = 23) -> Any:
        """An ONNX model of the head."""
        return self.to_compiled().to_onnx(path, opset)


def softmax_weights(Z: Array, keys: Array, temperature: float) -> Array:
    """softmax_j(-|z - k_j|^2 / (2 t^2)), (samples, tokens)."""
    if not temperature > 0:
        raise BadInput(f"`temperature` (={temperature}) must be positive.")
    logits = (Z @ keys.T - np.square(keys).sum(axis=1) / 2.0) / temperature**2
    logits -= logits.max(axis=1, keepdims=True)
    weights = np.exp(logits)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def spread_out(Z: Array, weights: Array, count: int) -> NDArray[np.intp]:
    """Up to `count` samples far from each other, the first nearest to the mean: a start for k-means that needs no chance."""
    alive = np.flatnonzero(weights > 0)
    points = Z[alive]
    mean = weights[alive] @ points / weights[alive].sum()
    nearest = np.square(points - mean).sum(axis=1)
    chosen = [int(nearest.argmin())]
    away = np.square(points - points[chosen[0]]).sum(axis=1)
    while len(chosen) < count and away.max() > 1e-20:
        chosen.append(int(away.argmax()))
        away = np.minimum(away, np.square(points - points[chosen[-1]]).sum(axis=1))
    return alive[chosen]


def centres(Z: Array, weights: Array, start: Array, steps: int) -> Array:
    """Weighted k-means from a given start."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        made = KMeans(len(start), init=start, n_init=1, max_iter=steps, algorithm="lloyd").fit(Z, sample_weight=weights)
    return np.asarray(made.cluster_centers_, dtype=np.float64)


def _head(
    keys: Array, scaled: Array, Z: Array, rows: Array, weights: Array, ridges: tuple[float, ...], tilted: bool, ratio: float
) -> _Fit:
    """The values of a head, fitted."""
    temperature = ratio * _spacing(keys)
    A = softmax_weights(scaled, keys, temperature)
    error, ridge, coefficients = best_ridge(np.concatenate([A, Z], axis=1) if tilted else A, rows, weights, ridges)
    return _Fit(keys, temperature, ridge, tilted, error, coefficients)


def metric_error(place: Array, Z: Array, keys: Array, rows: Array, weights: Array, tilted: bool) -> tuple[float, Array]:
    """Logarithm of the left-out error plus the prior, and its gradient in log(metric / temperature) and log ridge."""
    D = Z.shape[1]
    metric, ridge = np.exp(place[:D]), float(np.exp(place[D]))
    A = softmax_weights(Z * metric, keys * metric, 1.0)
    columns = np.concatenate([A, Z], axis=1) if tilted else A
    error, slopes, ridge_slope = left_out_gradient(columns, rows, weights, ridge)
    slopes = slopes[:, : len(keys)]
    logits = A * (slopes - (slopes * A).sum(axis=1, keepdims=True))  # gradient in the logits -sum_d metric_d^2 (z_d - k_jd)^2 / 2
    squares = logits.sum(axis=1) @ np.square(Z) - 2.0 * ((logits.T @ Z) * keys).sum(axis=0) + logits.sum(axis=0) @ np.square(keys)
    away = place[:D] - place[:D].mean()
    total, safe = weights.sum(), error + 1e-300
    gradient = np.append(-np.square(metric) * squares / safe + 2.0 * away / total, ridge_slope / safe)
    return float(np.log(safe) + away @ away / total), gradient


def _spacing(keys: Array) -> float:
    """Median distance of a key to its nearest neighbour; one where there is a single key."""
    if len(keys) < 2:
        return 1.0
    squares = np.square(keys).sum(axis=1)
    apart = squares[:, None] + squares - 2.0 * keys @ keys.T
    np.fill_diagonal(apart, np.inf)
    return float(np.sqrt(np.maximum(np.median(apart.min(axis=1)), 1e-24)))
