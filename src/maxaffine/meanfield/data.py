"""Samples of the task, and the loss of a layer on them with its gradient.

The directions are u* = e_1 and v* = e_2: the law of everything else is invariant under rotations of the rest.
Every random number comes from (seed, purpose, index), so a batch is drawn anew identically whenever it is needed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.meanfield.links import LINKS
from maxaffine.meanfield.problem import Problem, whole

PURPOSES = {"train": 0, "test": 1, "init": 2, "batch": 3}

# derivatives of the links that can be trained (sign has none)
SLOPES: dict[str, Callable[[Array], Array]] = {
    "linear": np.ones_like,
    "quadratic": lambda a: 2 * a,
    "relu": lambda a: (a > 0).astype(np.float64),
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
    y = LINKS[link](chosen[:, 1]) + problem.eps * generator.standard_normal(n)
    return Data(tokens, y, secret)


def _softmax(logits: Array) -> Array:
    logits = logits - logits.max(axis=1, keepdims=True)
    weights = np.exp(logits)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _forward(data: Data, u: Array, v: Array, lam: float, link: str) -> Iterator[tuple[Array, ...]]:
    """Tokens, their products a with v, weights, values sigma(a), outputs and errors, in blocks of samples that fit the cache."""
    length, d = data.tokens.shape[1:]
    layers, directions = u.shape[0], np.concatenate([u, v]).T  # (d, 2 layers)
    for start in range(0, len(data.y), 1024):
        flat = data.tokens[start : start + 1024].reshape(-1, d)
        both = (flat @ directions).reshape(-1, length, 2 * layers)
        weights, a = _softmax(lam * both[:, :, :layers]), both[:, :, layers:]
        values = LINKS[link](a)
        f = (weights * values).sum(axis=1)  # (block, layers)
        yield flat, a, weights, values, f, f - data.y[start : start + 1024, None]


def losses(data: Data, u: Array, v: Array, lam: float, link: str = "linear") -> Array:
    """Squared errors (layers, n) of the layers u, v (layers, d)."""
    return np.concatenate([np.ascontiguousarray(error.T**2) for *_, error in _forward(data, u, v, lam, link)], axis=1)


def loss_and_gradient(data: Data, u: Array, v: Array, lam: float, link: str = "linear") -> tuple[Array, Array, Array]:
    """Mean squared errors (layers,) and Euclidean gradients in u and v (layers, d) of several layers on one data set."""
    n, layers = len(data.y), u.shape[0]
    total, gradient = np.zeros(layers), np.zeros((2 * layers, u.shape[1]))
    for flat, a, weights, values, f, error in _forward(data, u, v, lam, link):
        total += (error**2).sum(axis=0)
        pull = 2 / n * error[:, None, :] * weights
        coefficients = np.concatenate([lam * pull * (values - f[:, None, :]), pull * SLOPES[link](a)], axis=2)
        gradient += coefficients.reshape(-1, 2 * layers).T @ flat
    return total / n, gradient[:layers], gradient[layers:]
