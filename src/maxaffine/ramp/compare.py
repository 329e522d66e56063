"""Error per token: a ramp net beside a hard lookup, a soft lookup and a Bernstein head of the same number of tokens m.

Sup errors on a grid, so observed and not proved. Regulariser and the shape of the Bernstein head are picked on that grid, which
flatters both a little. `maxaffine plan` and `compile` prove such layers; here only what one token is worth is compared.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.ramp.constants import BEST
from maxaffine.ramp.net import piecewise_linear
from maxaffine.ramp.ridge import ridge_fit

SOFT, GUARDS = 3.0, 3  # sharpness of the soft lookup, and its cells beyond each side of the box
LINE, SQUARE = 20_001, 101  # points of the grids
HARDER = 400.0  # a ramp head as good as hard
DELTAS = np.geomspace(0.4, 4.0, 10)


@dataclass(frozen=True)
class PerToken:
    """Sup errors on the grid by kind of head, and how many tokens each has."""

    m: int
    errors: dict[str, float]


def _softmax(logits: Array) -> Array:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def compare_per_token(f: Callable[..., Any], box: Any, m: int, seed: int = 0) -> PerToken:
    """`f` of one variable on (low, high), or of two on ((low, high), (low, high)); m tokens each."""
    sides = np.asarray(box, dtype=np.float64)
    sides = sides[None] if sides.ndim == 1 else sides
    if sides.shape not in ((1, 2), (2, 2)) or not (sides[:, 0] < sides[:, 1]).all():
        raise BadInput(f"`box` (={box!r}) must be (low, high), or two such pairs: this compares heads in one and two variables.")
    if m < 4:
        raise BadInput(f"`m` (={m}) must be at least 4 tokens.")
    return _on_line(f, sides[0], m) if len(sides) == 1 else _on_square(f, sides, m, seed)


def _on_line(f: Callable[..., Any], box: Array, m: int) -> PerToken:
    low, high = float(box[0]), float(box[1])
    x = np.linspace(low, high, LINE)
    truth = np.asarray(f(x), dtype=np.float64)

    def off(values: Array) -> float:
        return float(np.abs(values - truth).max())

    hard, soft = _axis(low, high, m, None), _axis(low, high, m, SOFT)
    nets = {
        "ReLU neurons, hard": (HARDER, True), "ReLU neurons, rho*": (BEST, True),
        "ramps, hard": (HARDER, False), "ramps, rho*": (BEST, False),
    }  # fmt: skip
    errors = {"hard lookup": off(hard[1](x) @ f(hard[0])), "soft lookup": off(soft[1](x) @ _reflected(f, soft[0], low, high))}
    errors |= {name: off(piecewise_linear(f, (low, high), m, m, rho, relu=relu)(x)) for name, (rho, relu) in nets.items()}
    fitted = piecewise_linear(f, (low, high), m, m, SOFT, relu=True)
    c = np.linalg.lstsq(fitted.neurons(x[:: max(1, LINE // (20 * m))]), truth[:: max(1, LINE // (20 * m))], rcond=1e-12)[0]
    errors["ReLU neurons, fitted"] = off(fitted.neurons(x) @ c)
    errors["Bernstein head"] = _bernstein_line(f, low, high, m, x, truth)
    return PerToken(m, errors)


def _axis(low: float, high: float, count: int, rho: float | None) -> tuple[Array, Callable[[Array], Array]]:
    """Sites in the middles of cells, hard or soft with guards beyond both ends, and their weights at numbers."""
    guards = 0 if rho is None else GUARDS
    step = (high - low) / (count - 2 * guards)
    sites: Array = low + step * (np.arange(count, dtype=np.float64) - guards + 0.5)

    def weights(x: Array) -> Array:
        away = -(((x[:, None] - sites) / step) ** 2)
        if rho is None:
            return np.asarray(np.eye(count)[away.argmax(axis=1)])
        return _softmax(0.5 * rho * away)

    return sites, weights


def _reflected(f: Callable[..., Any], sites: Array, low: float, high: float) -> Array:
    """f at sites; beyond an end by odd reflection about it, so that f is asked on the box alone."""
    inside = np.clip(sites, low, high)
    mirrored = np.clip(2.0 * inside - sites, low, high)
    return np.asarray(np.where(sites == inside, f(inside), 2.0 * np.asarray(f(inside)) - np.asarray(f(mirrored))))


def _bernstein_weights(z: Array, count: int, delta: float) -> Array:
    from scipy.special import gammaln  # here: whoever compiles imports this package, and needs no such function

    j = np.arange(count)
    n = count - 1
    logs = gammaln(n + 1) - gammaln(j + 1) - gammaln(n - j + 1)
    return _softmax(np.multiply.outer(z, delta * (j - n / 2.0)) + logs)


def _bernstein_line(f: Callable[..., Any], low: float, high: float, m: int, x: Array, truth: Array) -> float:
    z = 2.0 * (x - low) / (high - low) - 1.0
    nodes = np.cos(np.pi * (np.arange(8 * m) + 0.5) / (8 * m))
    values = np.asarray(f((low + high) / 2.0 + (high - low) / 2.0 * nodes))
    best = np.inf
    for delta in DELTAS if m <= 64 else ():
        c = np.linalg.lstsq(_bernstein_weights(nodes, m, delta), values, rcond=1e-15)[0]
        best = min(best, float(np.abs(_bernstein_weights(z[::8], m, delta) @ c - truth[::8]).max()))
    return best


def _on_square(f: Callable[..., Any], box: Array, m: int, seed: int) -> PerToken:
    (a, b), (c, d) = box
    x, y = np.linspace(a, b, SQUARE), np.linspace(c, d, SQUARE)
    X, Y = np.meshgrid(x, y, indexing="ij")
    truth = np.asarray(f(X, Y), dtype=np.float64)
    side = round(np.sqrt(m))
    if side * side != m or side <= 2 * GUARDS:
        least = (2 * GUARDS + 2) ** 2
        raise BadInput(f"`m` (={m}) must be a square of at least {least} in two variables, for the grids of lookups.")
    errors = {}
    for name, rho in (("hard lookup", None), ("soft lookup", SOFT)):
        (sx, wx), (sy, wy) = _axis(a, b, side, rho), _axis(c, d, side, rho)
        values = np.asarray(f(*np.meshgrid(sx, sy, indexing="ij")))
        errors[name] = float(np.abs(wx(x) @ values @ wy(y).T - truth).max())
    rng, points = np.random.default_rng(seed), np.stack([X.ravel(), Y.ravel()], axis=1)
    inside = rng.uniform(box[:, 0], box[:, 1], (8 * m, 2))
    edge = rng.uniform(box[:, 0], box[:, 1], (4 * m, 2))
    which, end = rng.integers(0, 2, len(edge)), rng.integers(0, 2, len(edge))
    edge[np.arange(len(edge)), which] = box[which, end]
    samples = np.concatenate([inside, edge, np.array([(a, c), (a, d), (b, c), (b, d)])])
    said = np.asarray(f(samples[:, 0], samples[:, 1]), dtype=np.float64)
    for name, rho in (("ridge ramps, hard", HARDER), ("ridge ramps, rho*", BEST), ("ridge ramps, rho = 3", SOFT)):
        net = ridge_fit(samples, said, m, rho, seed=seed)
        errors[name] = float(np.abs(net(points) - truth.ravel()).max())
    errors["Bernstein head"] = _bernstein_square(f, box, side, x, y, truth)
    return PerToken(m, errors)


def _bernstein_square(f: Callable[..., Any], box: Array, side: int, x: Array, y: Array, truth: Array) -> float:
    (a, b), (c, d) = box
    nodes = np.cos(np.pi * (np.arange(6 * side) + 0.5) / (6 * side))
    at = np.meshgrid((a + b) / 2 + (b - a) / 2 * nodes, (c + d) / 2 + (d - c) / 2 * nodes, indexing="ij")
    values, best = np.asarray(f(*at)), np.inf
    for delta in DELTAS:
        inverse = np.linalg.pinv(_bernstein_weights(nodes, side, delta), rcond=1e-14)
        wx = _bernstein_weights(2 * (x - a) / (b - a) - 1, side, delta)
        wy = _bernstein_weights(2 * (y - c) / (d - c) - 1, side, delta)
        best = min(best, float(np.abs(wx @ (inverse @ values @ inverse.T) @ wy.T - truth).max()))
    return best
