"""Samples of the task, and the loss of a layer on them with its gradient.

The directions are u* = e_1 and v* = e_2: the law of everything else is invariant under rotations of the rest.
Every random number comes from (seed, purpose, index), so a batch is drawn anew identically whenever it is needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.meanfield.links import LINKS
from maxaffine.meanfield.problem import Problem, whole

PURPOSES = {"train": 0, "test": 1, "init": 2, "batch": 3}

SLOPES = {name: link.slope for name, link in LINKS.items() if link.slope is not None}  # of the links that can be trained


@dataclass(frozen=True)
class Data:
    """``tokens`` (n, L, d), labels ``y`` (n,), secret indices (n,)."""

    tokens: Array
    y: Array
    secret: NDArray[np.intp]


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


def forward(data: Data, u: Any, v: Any, lam: float, link: str, xp: Any = np, block: int = 1024) -> Iterator[tuple[Any, ...]]:
    """Tokens, their products a with v, weights, values sigma(a), outputs and errors, in blocks of samples that fit the cache.

    `xp` is numpy or torch: the arrays are its own, and may have one more axis in front, that of seeds.
    """
    layers, directions = u.shape[-2], xp.concatenate([u, v], axis=-2).swapaxes(-1, -2)  # (d, 2 layers)
    normalised = getattr(xp, "softmax", softmax)
    for start in range(0, data.y.shape[-1], block):
        tokens = data.tokens[..., start : start + block, :, :]
        flat = tokens.reshape(*tokens.shape[:-3], -1, tokens.shape[-1])
        both = (flat @ directions).reshape(*tokens.shape[:-1], 2 * layers)
        weights, a = normalised(lam * both[..., :layers], axis=-2), both[..., layers:]
        values = LINKS[link](a)
        f = (weights * values).sum(-2)  # (block, layers)
        yield flat, a, weights, values, f, f - data.y[..., start : start + block, None]


def losses(data: Data, u: Array, v: Array, lam: float, link: str = "linear") -> Array:
    """Squared errors (layers, n) of the layers u, v (layers, d)."""
    return np.concatenate([np.ascontiguousarray(error.T**2) for *_, error in forward(data, u, v, lam, link)], axis=1)


def loss_and_gradient(
    data: Data, u: Any, v: Any, lam: float, link: str = "linear", xp: Any = np, block: int = 1024
) -> tuple[Any, Any, Any]:
    """Mean squared errors (layers,) and Euclidean gradients in u and v (layers, d) of several layers on one data set."""
    n, layers = data.y.shape[-1], u.shape[-2]
    total: Any = 0.0
    gradient: Any = 0.0
    for flat, a, weights, values, f, error in forward(data, u, v, lam, link, xp, block):
        total = total + (error**2).sum(-2)
        pull = 2 / n * error[..., None, :] * weights
        coefficients = xp.concatenate([lam * pull * (values - f[..., None, :]), pull * SLOPES[link](a)], axis=-1)
        gradient = gradient + coefficients.reshape(*flat.shape[:-1], 2 * layers).swapaxes(-1, -2) @ flat
    return total / n, gradient[..., :layers, :], gradient[..., layers:, :]
