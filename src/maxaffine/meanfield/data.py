"""Samples of the task, and the loss of a layer on them with its gradient.

The directions are u* = e_1 and v* = e_2: the law of everything else is invariant under rotations of the rest.
Every random number comes from (seed, purpose, index), so a batch is drawn anew identically whenever it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.errors import BadInput
from maxaffine.meanfield.checks import whole
from maxaffine.meanfield.problem import Problem

__all__ = ["SLOPES", "Data", "loss_and_gradient", "losses", "sample", "stream"]

Array = NDArray[np.float64]
PURPOSES = {"train": 0, "test": 1, "init": 2, "batch": 3}

# links that can be trained: sigma and its derivative (sign has none)
SLOPES: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "linear": (lambda a: a, lambda a: np.ones_like(a)),
    "quadratic": (lambda a: a * a, lambda a: 2 * a),
    "relu": (lambda a: np.maximum(a, 0.0), lambda a: (a > 0).astype(np.float64)),
}


@dataclass(frozen=True)
class Data:
    """``tokens`` (n, L, d), labels ``y`` (n,), secret indices (n,)."""

    tokens: Array
    y: Array
    secret: NDArray[np.intp]

    @property
    def flat(self) -> Array:
        """(n L, d), a view."""
        return self.tokens.reshape(-1, self.tokens.shape[2])


def stream(seed: int, purpose: str, index: int = 0) -> np.random.Generator:
    """The generator of one purpose of one seed."""
    seed = whole("seed", seed, 0, "give a seed such as 0")
    return np.random.default_rng([seed, PURPOSES[purpose], index])


def sample(problem: Problem, n: int, rng: np.random.Generator | int, link: str = "linear") -> Data:
    """n independent samples; ``L`` must be a whole number here."""
    n = whole("n", n, 1, "give a number of samples such as 1000")
    length = whole("L", problem.L, 2, "only a whole number of tokens can be drawn")
    if n * length * problem.d > 2**31:
        raise BadInput(
            f"`n` (={n}) samples of {length} tokens in {problem.d} dimensions are {n * length * problem.d * 8 / 2**30:.0f} GiB; "
            "draw fewer at a time."
        )
    generator = rng if isinstance(rng, np.random.Generator) else stream(rng, "train")
    tokens = generator.standard_normal((n, length, problem.d))
    secret = generator.integers(0, length, n)
    rows = np.arange(n)
    chosen = problem.gamma * tokens[rows, secret]
    chosen[:, 0] += problem.C
    tokens[rows, secret] = chosen
    label = SLOPES[link][0](chosen[:, 1]) if link in SLOPES else np.sign(chosen[:, 1])
    y = label + problem.eps * generator.standard_normal(n)
    return Data(tokens, y, secret)


def _softmax(logits: Array) -> Array:
    logits = logits - logits.max(axis=1, keepdims=True)
    weights = np.exp(logits)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def losses(data: Data, u: Array, v: Array, lam: float, link: str = "linear") -> Array:
    """Squared errors (layers, n) of the layers u, v (layers, d)."""
    n, length, _ = data.tokens.shape
    sigma = SLOPES[link][0] if link in SLOPES else np.sign
    layers = u.shape[0]
    out = np.empty((layers, n))
    # blocks of samples keep the scratch arrays in cache
    for start in range(0, n, 1024):
        block = data.tokens[start : start + 1024]
        both = block.reshape(-1, block.shape[2]) @ np.concatenate([u, v]).T  # (block L, 2 layers)
        both = both.reshape(block.shape[0], length, 2 * layers)
        weights = _softmax(lam * both[:, :, :layers])
        f = (weights * sigma(both[:, :, layers:])).sum(axis=1)
        out[:, start : start + 1024] = (f - data.y[start : start + 1024, None]).T ** 2
    return out


def loss_and_gradient(data: Data, u: Array, v: Array, lam: float, link: str = "linear") -> tuple[Array, Array, Array]:
    """Mean squared errors (layers,) and Euclidean gradients in u and v (layers, d) of several layers on one data set."""
    n, length, d = data.tokens.shape
    sigma, slope = SLOPES[link]
    layers = u.shape[0]
    directions = np.concatenate([u, v]).T  # (d, 2 layers)
    total, gradient = np.zeros(layers), np.zeros((2 * layers, d))
    for start in range(0, n, 1024):
        block = data.tokens[start : start + 1024]
        size = block.shape[0]
        flat = block.reshape(size * length, d)
        both = (flat @ directions).reshape(size, length, 2 * layers)
        weights = _softmax(lam * both[:, :, :layers])
        values = sigma(both[:, :, layers:])
        f = (weights * values).sum(axis=1)  # (size, layers)
        error = f - data.y[start : start + size, None]
        total += (error**2).sum(axis=0)
        coefficients = np.empty_like(both)
        pull = 2 / n * error[:, None, :] * weights
        coefficients[:, :, :layers] = lam * pull * (values - f[:, None, :])
        coefficients[:, :, layers:] = pull * slope(both[:, :, layers:])
        gradient += coefficients.reshape(size * length, 2 * layers).T @ flat
    return total / n, gradient[:layers], gradient[layers:]
